//! The replacement policy: S3-FIFO.
//!
//! Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, section 4. A page enters a small queue (a
//! tenth of the frames) on probation. When it reaches the end of this queue, it moves to the main queue if it was used
//! again, and is evicted otherwise. The main queue is a clock: at its end, a used page is reinserted with its use count
//! decremented, and an unused page is evicted. A page that is read again soon after its eviction from the small queue enters
//! the main queue directly. One pass of a scan, however long, therefore moves through the small queue only, and the pages of
//! the main queue stay.
//!
//! The pool reports each page that enters a frame ([`Replacement::arrived`]) and makes two requests: the next page to evict
//! ([`Replacement::victim`]), and the next dirty page to write before its eviction ([`Replacement::next_to_write`]). A page
//! that could not be evicted is [put back](Replacement::put_back). A hit takes no lock. It increments the page's own
//! [`Uses`], which the policy reads when the page reaches the end of a queue.
//!
//! Differences from the paper:
//! * The ghost queue is stored in the absent entries of the page table, as eviction numbers. It is half as long as in the
//!   paper, which results in fewer misses on the page accesses of TPC-C (`tests/larger.rs`).
//! * A miss counts as the first use, because the reader that caused it touches the page after the load.
//! * Inner pages of trees enter the main queue with the maximum use count: a leaf that stays without its parent saves
//!   nothing.
//! * A dirty page that should be evicted waits in a third queue until it is written. This queue is short, because otherwise
//!   clean pages are evicted in place of dirty ones, which multiplies the misses of TPC-C (see the README, Figures).
//! * The queues are sharded by frame number. A page takes a frame of its own shard if one is free.

use crate::base::sync::plain::{AtomicU8, Ordering};
use std::collections::VecDeque;

/// Maximum of the use counter.
const MAX_USES: u8 = 3;

/// Number of uses that move a page from the small queue to the main queue: the miss itself and one more.
const PROVEN_USES: u8 = 2;

/// A page that is read again within `frames / GHOST_PART` evictions enters the main queue.
const GHOST_PART: usize = 2;

/// Saturating counter of a page's recent uses. It is a hint: any thread may change it at any time.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Uses(AtomicU8);

impl Uses {
    /// Increments the counter. Writes only if the value changes, because all workers share the cache line.
    #[inline]
    pub(super) fn touch(&self) {
        let uses = self.get();
        if uses < MAX_USES {
            self.set(uses + 1);
        }
    }

    /// Sets the counter to zero.
    pub(super) fn clear(&self) {
        self.set(0);
    }

    #[inline]
    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, uses: u8) {
        self.0.store(uses, Ordering::Relaxed);
    }
}

/// Properties of resident pages that the policy reads.
pub(super) trait ResidentPages {
    /// Returns the use counter of the page in this frame.
    fn uses(&self, frame: u32) -> &Uses;

    /// Returns true if the page appears to be an inner page of a tree. A hint: no latch is held.
    fn is_inner(&self, frame: u32) -> bool;
}

/// Reason for which a page entered its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The page was created and has no content yet.
    Created,
    /// The page was read because a caller needs it.
    Read {
        /// Number of evictions from the pool since the page's own eviction. `None` if the page left no ghost.
        absence: Option<u32>,
    },
    /// The page was read together with its neighbours. It enters the main queue: the small queue is only for pages that are
    /// read one by one.
    Preloaded,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Small,
    Main,
    Dirty,
}

/// A frame whose page is to be evicted. The frame is in no queue: the pool empties it or puts it back.
#[derive(Debug)]
#[must_use]
pub(super) struct Candidate {
    pub(super) frame: u32,
    from: Queue,
}

impl Candidate {
    /// Returns true if the eviction leaves a ghost in the page table, by which a later read of the page is recognised.
    pub(super) fn leaves_ghost(&self) -> bool {
        self.from != Queue::Main
    }

    /// Returns true if the page was used while it waited to be written. It then stays in the pool.
    pub(super) fn is_wanted_again(&self, pages: &(impl ResidentPages + ?Sized)) -> bool {
        self.from == Queue::Dirty && pages.uses(self.frame).get() > 0
    }
}

/// Reason for which a candidate was not evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotEvicted {
    /// The page has to be written first.
    Dirty,
    /// Another thread holds the page's latch or writes the page, or the page was used again.
    Busy,
}

/// Replacement policy for the frames of one shard. Each frame with a page is either in exactly one of the queues or owned by
/// the thread that took it out.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Pages on probation, oldest first.
    small: VecDeque<u32>,
    /// Pages that were used again.
    main: VecDeque<u32>,
    /// Dirty pages that wait to be written before their eviction.
    dirty: VecDeque<u32>,
    /// Length of `small` above which eviction candidates are taken from `small`.
    small_target: usize,
    /// Length of `dirty` at which no more eviction candidates are returned. Without this bound, clean pages would be evicted
    /// in place of dirty ones, even if the clean pages are hot.
    dirty_most: usize,
    /// Number of evictions within which an evicted page that is read again enters the main queue.
    ghost_reach: usize,
}

impl Replacement {
    /// Creates the policy for `frames` frames of a pool of `of` frames. At most `dirty_most` pages may wait to be written.
    pub(super) fn new(frames: usize, of: usize, dirty_most: usize) -> Replacement {
        let (small, main, dirty) = Default::default();
        Replacement { small, main, dirty, small_target: (frames / 10).max(1), dirty_most, ghost_reach: of / GHOST_PART }
    }

    /// Records that a page has entered `frame`. Returns true if the page was read again soon after its eviction (a ghost
    /// hit).
    pub(super) fn arrived(&mut self, pages: &(impl ResidentPages + ?Sized), frame: u32, how: Arrival) -> bool {
        let inner = how != Arrival::Created && pages.is_inner(frame);
        pages.uses(frame).set(if inner { MAX_USES } else { 0 });
        let returned = match how {
            Arrival::Read { absence: Some(evictions) } => !inner && (evictions as usize) < self.ghost_reach,
            _ => false,
        };
        let proven = inner || returned || how == Arrival::Preloaded;
        if proven { &mut self.main } else { &mut self.small }.push_back(frame);
        returned
    }

    /// Returns the next candidate for eviction. Examines up to `looks` frames and decrements `looks`. Returns `None` while
    /// the queue of dirty pages is full.
    pub(super) fn victim(&mut self, pages: &(impl ResidentPages + ?Sized), looks: &mut usize) -> Option<Candidate> {
        if self.dirty.len() >= self.dirty_most {
            return None;
        }
        while *looks > 0 {
            *looks -= 1;
            if self.small.len() > self.small_target || self.main.is_empty() {
                let frame = self.small.pop_front()?;
                let uses = pages.uses(frame);
                if uses.get() >= PROVEN_USES {
                    uses.set(0);
                } else if uses.get() > 0 && pages.is_inner(frame) {
                    uses.set(MAX_USES);
                } else {
                    return Some(Candidate { frame, from: Queue::Small });
                }
                self.main.push_back(frame);
            } else {
                let frame = self.main.pop_front()?;
                let uses = pages.uses(frame);
                let Some(fewer) = uses.get().checked_sub(1) else {
                    return Some(Candidate { frame, from: Queue::Main });
                };
                uses.set(fewer);
                self.main.push_back(frame);
            }
        }
        None
    }

    /// Switches to a mode in which no page is written any more. The queue of dirty pages has no bound in this mode, and
    /// clean pages continue to be evicted.
    pub(super) fn write_no_more(&mut self) {
        self.dirty_most = usize::MAX;
    }

    /// Returns the number of pages that are not known to be dirty.
    pub(super) fn evictable(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// Returns the next dirty page to write before its eviction.
    pub(super) fn next_to_write(&mut self) -> Option<Candidate> {
        self.dirty.pop_front().map(|frame| Candidate { frame, from: Queue::Dirty })
    }

    /// Returns a candidate that was not evicted to its queue.
    pub(super) fn put_back(&mut self, pages: &(impl ResidentPages + ?Sized), victim: Candidate, why: NotEvicted) {
        let Candidate { frame, from } = victim;
        match (why, from) {
            (NotEvicted::Dirty, Queue::Dirty) => self.dirty.push_back(frame),
            (NotEvicted::Dirty, _) => {
                // Uses counted from now on keep the page in the pool.
                pages.uses(frame).clear();
                self.dirty.push_back(frame);
            }
            (NotEvicted::Busy, Queue::Small) => self.small.push_back(frame),
            (NotEvicted::Busy, _) => self.main.push_back(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fastrand::Rng;

    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    /// Frames of a cache without a pool. Pages numbered `INNER` and above are inner pages.
    #[derive(Default)]
    struct Frames(Vec<(u32, Uses)>);

    const INNER: u32 = 1000;

    impl ResidentPages for Frames {
        fn uses(&self, frame: u32) -> &Uses {
            &self.0[frame as usize].1
        }

        fn is_inner(&self, frame: u32) -> bool {
            self.0[frame as usize].0 >= INNER
        }
    }

    /// A cache that the policy drives: a pool without threads, latches and files.
    struct Cache {
        policy: Replacement,
        frames: Frames,
        size: usize,
        ghosts: HashMap<u32, u32>,
        evictions: u32,
    }

    impl Cache {
        fn new(size: usize) -> Cache {
            let policy = Replacement::new(size, size, size);
            Cache { policy, frames: Frames::default(), size, ghosts: HashMap::new(), evictions: 0 }
        }

        fn holds(&self, page: u32) -> bool {
            self.frames.0.iter().any(|(held, _)| *held == page)
        }

        /// Uses a page and loads it if it is absent. Returns the page that was evicted for it.
        fn access(&mut self, page: u32) -> Option<u32> {
            if let Some((_, uses)) = self.frames.0.iter().find(|(held, _)| *held == page) {
                uses.touch();
                return None;
            }
            let (mut frame, mut gone) = (self.frames.0.len() as u32, None);
            if self.frames.0.len() < self.size {
                self.frames.0.push((page, Uses::default()));
            } else {
                let victim = self.policy.victim(&self.frames, &mut { NO_LIMIT }).unwrap();
                frame = victim.frame;
                let old = std::mem::replace(&mut self.frames.0[frame as usize].0, page);
                gone = Some(old);
                if victim.leaves_ghost() {
                    self.ghosts.insert(old, self.evictions);
                }
                self.evictions += 1;
            }
            let absence = self.ghosts.remove(&page).map(|at| self.evictions - at);
            self.policy.arrived(&self.frames, frame, Arrival::Read { absence });
            self.frames.uses(frame).touch();
            gone
        }
    }

    /// The algorithm of the paper with the differences of the module's documentation, on lists of pages and use counts.
    struct Model {
        small: Vec<(u32, u8)>,
        main: Vec<(u32, u8)>,
        ghosts: Vec<(u32, usize)>,
        size: usize,
        evictions: usize,
    }

    impl Model {
        fn access(&mut self, page: u32) -> Option<u32> {
            if let Some((_, uses)) = self.small.iter_mut().chain(&mut self.main).find(|(held, _)| *held == page) {
                *uses = (*uses + 1).min(3);
                return None;
            }
            let gone = (self.small.len() + self.main.len() == self.size).then(|| self.evict());
            let ghost = self.ghosts.iter().position(|(ghost, _)| *ghost == page);
            let soon = ghost.is_some_and(|at| self.evictions - self.ghosts.remove(at).1 < self.size / 2);
            match page {
                INNER.. => self.main.push((page, 3)),
                _ if soon => self.main.push((page, 1)),
                _ => self.small.push((page, 1)),
            }
            gone
        }

        fn evict(&mut self) -> u32 {
            loop {
                if self.small.len() > (self.size / 10).max(1) || self.main.is_empty() {
                    let (page, uses) = self.small.remove(0);
                    if uses < 2 {
                        self.ghosts.push((page, self.evictions));
                        self.evictions += 1;
                        return page;
                    }
                    self.main.push((page, 0));
                } else {
                    let (page, uses) = self.main.remove(0);
                    if uses == 0 {
                        self.evictions += 1;
                        return page;
                    }
                    self.main.push((page, uses - 1));
                }
            }
        }
    }

    #[test]
    fn evicts_what_a_simple_model_evicts() {
        for seed in 0..20 {
            let size = [1, 2, 16, 50][seed as usize % 4];
            let mut cache = Cache::new(size);
            let mut model = Model { small: vec![], main: vec![], ghosts: vec![], size, evictions: 0 };
            let mut rng = Rng::with_seed(seed);
            for step in 0..3000 {
                // Small numbers are frequent.
                let range = 1 + rng.u32(..4 * size as u32);
                let page = rng.u32(..range) + if rng.u64(..20) == 0 { INNER } else { 0 };
                assert_eq!(cache.access(page), model.access(page), "seed {seed}, step {step}, page {page}");
            }
        }
    }

    #[test]
    fn a_scan_leaves_proven_pages() {
        let mut cache = Cache::new(100);
        for page in (0..60).chain(0..60) {
            cache.access(page);
        }
        // The first pages of the scan move the hot pages out of the small queue. The rest of the scan does not affect them.
        for page in 100..900 {
            cache.access(page);
        }
        assert!((0..60).all(|page| cache.holds(page)));
    }

    #[test]
    fn a_page_that_comes_back_soon_is_proven() {
        let mut policy = Replacement::new(20, 20, 20);
        let frames = Frames((0..4).map(|page| (page, Uses::default())).collect());
        assert!(policy.arrived(&frames, 0, Arrival::Read { absence: Some(9) }));
        assert!(!policy.arrived(&frames, 1, Arrival::Read { absence: Some(10) }));
        assert!(!policy.arrived(&frames, 2, Arrival::Preloaded));
        assert!(!policy.arrived(&frames, 3, Arrival::Created));
        assert_eq!((policy.main.len(), policy.small.len()), (2, 2));
    }

    #[test]
    fn a_dirty_page_waits_for_its_write_and_stays_if_it_is_used() {
        let mut policy = Replacement::new(16, 16, 2);
        let frames = Frames((0..4).map(|page| (page, Uses::default())).collect());
        for frame in 0..4 {
            policy.arrived(&frames, frame, Arrival::Read { absence: None });
            frames.uses(frame).touch();
        }
        for expected in 0..2 {
            let victim = policy.victim(&frames, &mut { NO_LIMIT }).unwrap();
            assert_eq!(victim.frame, expected);
            policy.put_back(&frames, victim, NotEvicted::Dirty);
        }
        assert!(policy.victim(&frames, &mut { NO_LIMIT }).is_none(), "two may wait");
        frames.uses(0).touch();
        let used = policy.next_to_write().unwrap();
        assert!(used.frame == 0 && used.is_wanted_again(&frames));
        policy.put_back(&frames, used, NotEvicted::Busy);
        let unused = policy.next_to_write().unwrap();
        assert!(unused.frame == 1 && !unused.is_wanted_again(&frames) && unused.leaves_ghost());
        assert!(policy.next_to_write().is_none());
        assert_eq!((policy.main, policy.small), (VecDeque::from([0]), VecDeque::from([2, 3])));
    }

    #[test]
    fn a_busy_page_goes_back_where_it_was_and_looks_are_limited() {
        let mut policy = Replacement::new(16, 16, 2);
        let frames = Frames((0..3).map(|page| (page, Uses::default())).collect());
        for frame in 0..3 {
            policy.arrived(&frames, frame, Arrival::Read { absence: None });
        }
        let busy = policy.victim(&frames, &mut { NO_LIMIT }).unwrap();
        policy.put_back(&frames, busy, NotEvicted::Busy);
        assert_eq!(policy.small, VecDeque::from([1, 2, 0]));
        for _ in 0..3 {
            (0..3).for_each(|frame| frames.uses(frame).touch());
        }
        assert!(policy.victim(&frames, &mut 2).is_none(), "only two pages were looked at, and both had uses");
        assert_eq!((policy.small, policy.main), (VecDeque::from([0]), VecDeque::from([1, 2])));
    }
}
