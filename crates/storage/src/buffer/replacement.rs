//! The replacement policy: S3-FIFO.
//!
//! Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, section 4. Pages enter a small queue (a
//! tenth of the frames) on probation. At its end a page that has been used again moves to the main queue, any other
//! page is evicted. The main queue is a clock: at its end a used page is put back with one use less, an unused one is
//! evicted. A page that comes back soon after its eviction from probation enters the main queue directly. So one pass
//! of a scan, however long, moves through the small queue only, and the proven pages stay.
//!
//! The pool tells of each page that has come ([`Replacement::arrived`]) and asks two things: which page is to go next
//! ([`Replacement::victim`]), and which dirty page is to be written so that it can go ([`Replacement::next_to_write`]).
//! A page that could not go is [put back](Replacement::put_back). A hit takes no lock: it counts in the page's own
//! [`Uses`], which the policy reads when the page is at the end of a queue.
//!
//! Differences from the paper:
//! * The ghost queue lies in the absent entries of the page table, as eviction numbers. It reaches back half
//!   as far as the paper's: 5% fewer misses on the page uses of TPC-C (`tests/larger.rs`).
//! * A miss counts as the first use, because the reader that caused it touches the page once it is there.
//! * Inner pages of trees enter the main queue, with all their uses: a leaf that stays without its parent saves
//!   nothing.
//! * A page that should be evicted but is dirty waits in a third queue until it is written. That queue is
//!   short: when it was not, clean pages were evicted in place of dirty ones, and TPC-C in a pool of a third of the
//!   database had seven times the misses.
//! * Queues are sharded by frame number; a page takes a frame of its own shard when there is one.

use crate::base::sync::plain::{AtomicU8, Ordering};
use std::collections::VecDeque;

/// Uses are counted up to this.
const MAX_USES: u8 = 3;

/// Uses that take a page from probation to the main queue: the miss itself, and another.
const PROVEN_USES: u8 = 2;

/// A page that comes back within `frames / GHOST_PART` evictions counts as proven.
const GHOST_PART: usize = 2;

/// Saturating count of a page's recent uses. A hint: any thread may change it at any time.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Uses(AtomicU8);

impl Uses {
    /// Counts a use. Writes only when that changes something, because the line is shared by all workers.
    #[inline]
    pub(super) fn touch(&self) {
        let uses = self.get();
        if uses < MAX_USES {
            self.set(uses + 1);
        }
    }

    /// Forgets all uses.
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

/// What the policy asks of the pages in the frames.
pub(super) trait ResidentPages {
    /// The uses of the page in this frame.
    fn uses(&self, frame: u32) -> &Uses;

    /// Whether the page looks like an inner page of a tree. A hint: nothing is latched.
    fn is_inner(&self, frame: u32) -> bool;
}

/// How a page has come into its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// It was created, and has no content yet.
    Created,
    /// It was read because a caller wants it.
    Read {
        /// Evictions from the pool since its own; none if it left no ghost.
        absence: Option<u32>,
    },
    /// It was read with its neighbours. The small queue is for pages that are read one by one.
    Preloaded,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Small,
    Main,
    Dirty,
}

/// A frame whose page is to go. It is in no queue: the pool empties it, or puts it back.
#[derive(Debug)]
#[must_use]
pub(super) struct Candidate {
    pub(super) frame: u32,
    from: Queue,
}

impl Candidate {
    /// Whether the page leaves a ghost, by which its return is noticed.
    pub(super) fn leaves_ghost(&self) -> bool {
        self.from != Queue::Main
    }

    /// Whether the page was used while it waited to be written: then it stays.
    pub(super) fn is_wanted_again(&self, pages: &(impl ResidentPages + ?Sized)) -> bool {
        self.from == Queue::Dirty && pages.uses(self.frame).get() > 0
    }
}

/// Why a victim has kept its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotEvicted {
    /// It has to be written first.
    Dirty,
    /// A thread holds its latch or writes it, or it is wanted again.
    Busy,
}

/// The policy for one shard's frames. Each frame with a page is in exactly one of the queues, or in the hands of the
/// thread that took it out.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Pages on probation, oldest first.
    small: VecDeque<u32>,
    /// Proven pages.
    main: VecDeque<u32>,
    /// Pages that would have been evicted if they had not been dirty.
    dirty: VecDeque<u32>,
    /// Length of `small` above which victims come from it.
    small_target: usize,
    /// Length of `dirty` at which there are no more victims. Without a bound clean pages, however hot, would be evicted
    /// in place of the dirty ones.
    dirty_most: usize,
    /// Evictions within which a page that comes back counts as proven.
    ghost_reach: usize,
}

impl Replacement {
    /// The policy for `frames` of a pool's `of` frames, of which `dirty_most` may wait to be written.
    pub(super) fn new(frames: usize, of: usize, dirty_most: usize) -> Replacement {
        let (small, main, dirty) = Default::default();
        Replacement { small, main, dirty, small_target: (frames / 10).max(1), dirty_most, ghost_reach: of / GHOST_PART }
    }

    /// A page has come into `frame`. True if it has come back soon after its eviction.
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

    /// The page that is to go next; looks at up to `looks` frames. None while as many pages as may wait for their
    /// writes do.
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

    /// No page is written any more: dirty ones, as many as there are, stay where they wait to be written, and clean ones go
    /// on making room for each other.
    pub(super) fn write_no_more(&mut self) {
        self.dirty_most = usize::MAX;
    }

    /// Pages that are not known to be dirty.
    pub(super) fn evictable(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// The dirty page that is to be written next, so that it can go.
    pub(super) fn next_to_write(&mut self) -> Option<Candidate> {
        self.dirty.pop_front().map(|frame| Candidate { frame, from: Queue::Dirty })
    }

    /// The victim has kept its page.
    pub(super) fn put_back(&mut self, pages: &(impl ResidentPages + ?Sized), victim: Candidate, why: NotEvicted) {
        let Candidate { frame, from } = victim;
        match (why, from) {
            (NotEvicted::Dirty, Queue::Dirty) => self.dirty.push_back(frame),
            (NotEvicted::Dirty, _) => {
                // Uses from now on keep the page in the pool.
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

    use super::*;
    use crate::base::rng::Rng;

    const NO_LIMIT: usize = usize::MAX;

    /// Frames of a cache without a pool. Pages above `INNER` are inner ones.
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

    /// A cache that the policy drives: what a pool is without its threads, latches and files.
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

        /// Uses a page, which comes in if it is not there; returns the page that went for it.
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

    /// The algorithm of the paper with the differences of the module's documentation, over lists of pages and uses.
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
            let mut rng = Rng(seed);
            for step in 0..3000 {
                // Small numbers are frequent.
                let range = 1 + rng.below(4 * size as u64);
                let page = rng.below(range) as u32 + if rng.below(20) == 0 { INNER } else { 0 };
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
        // The first pages to come move the hot ones out of probation; from then on a scan goes by them.
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
