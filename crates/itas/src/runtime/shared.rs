//! What the workers of a runtime share: work that waits for a core, and how many have none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use sched_steps::fiber::Waker;

use super::work::Work;
use crate::group::{Group, GroupError, GroupId, Groups};
use crate::placement::{Placement, PlacementWord};

/// Counts work that has not ended, and knows how to tell the workers that all has.
#[derive(Debug)]
pub(super) struct Tally {
    outstanding: AtomicUsize,
    /// No more work is handed in from outside.
    closed: AtomicBool,
    /// The run is given up: what has not begun does not begin.
    given_up: AtomicBool,
    /// Work that waits for a core.
    backlog: CachePadded<AtomicUsize>,
    /// Cores without a fiber that can run, a bit each, as far as 64 bits go.
    pub(super) hungry: CachePadded<AtomicU64>,
    /// By core: the waker of the fiber that brings in work.
    intakes: Box<[Mutex<Option<Waker>>]>,
}

impl Tally {
    pub(super) fn new(cores: usize) -> Tally {
        Tally {
            outstanding: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            backlog: CachePadded::default(),
            hungry: CachePadded::default(),
            intakes: (0..cores).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// All work that will ever be has ended, or the run is given up.
    pub(super) fn is_over(&self) -> bool {
        let all_ended = self.closed.load(Ordering::SeqCst) && self.outstanding.load(Ordering::SeqCst) == 0;
        all_ended || self.given_up.load(Ordering::SeqCst)
    }

    /// No more work comes from outside.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Ends the run after what has begun.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Core `core` brings work in by the fiber of this waker.
    pub(super) fn set_intake(&self, core: usize, waker: Option<Waker>) {
        *self.intakes[core].lock() = waker;
    }

    pub(super) fn wake(&self, core: usize) {
        if let Some(waker) = *self.intakes[core].lock() {
            waker.wake();
        }
    }

    pub(super) fn wake_all(&self) {
        (0..self.intakes.len()).for_each(|core| self.wake(core));
    }

    /// Work waits for a core, on any.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) > 0
    }
}

/// Counts one piece of work until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    tally: Arc<Tally>,
    group: Arc<Group>,
    pub(super) seat: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.group.live.fetch_sub(1, Ordering::AcqRel);
        if self.tally.outstanding.fetch_sub(1, Ordering::SeqCst) == 1 && self.tally.is_over() {
            self.tally.wake_all();
        }
    }
}

/// Work on its way to a core. What counts it is told when it is dropped, wherever that is.
pub(super) struct Job<'env> {
    pub(super) group: GroupId,
    pub(super) work: Box<dyn Work + 'env>,
    pub(super) ticket: Ticket,
}

/// See the module.
pub(super) struct Shared<'env> {
    pub(super) groups: Arc<Groups>,
    pub(super) tally: Arc<Tally>,
    pub(super) placement: Arc<PlacementWord>,
    queues: Box<[CachePadded<Mutex<VecDeque<Job<'env>>>>]>,
}

impl<'env> Shared<'env> {
    pub(super) fn new(groups: Arc<Groups>, cores: usize, placement: Arc<PlacementWord>) -> Shared<'env> {
        Shared {
            groups,
            tally: Arc::new(Tally::new(cores)),
            placement,
            queues: (0..cores).map(|_| CachePadded::default()).collect(),
        }
    }

    fn cores(&self) -> usize {
        self.queues.len()
    }

    /// New work of `group`.
    pub(super) fn submit(&self, group: GroupId, work: Box<dyn Work + 'env>) -> Result<(), GroupError> {
        let entered = self.groups.enter(group)?;
        self.tally.outstanding.fetch_add(1, Ordering::SeqCst);
        let seat = entered.next_seat();
        let ticket = Ticket { tally: Arc::clone(&self.tally), group: entered, seat };
        let core = self.placement.get().0.core(group, seat, self.cores());
        self.hand(core, Job { group, work, ticket });
        Ok(())
    }

    /// Gives work to a core.
    pub(super) fn hand(&self, core: usize, job: Job<'env>) {
        self.tally.backlog.fetch_add(1, Ordering::Relaxed);
        self.queues[core].lock().push_back(job);
        self.tally.wake(core);
    }

    /// The next work for `core`.
    pub(super) fn take(&self, core: usize) -> Option<Job<'env>> {
        let job = self.queues[core].lock().pop_front()?;
        self.tally.backlog.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    /// Work that waits for another core, for `core`, which has none: of group `preferred` if there is some, else the last
    /// of the longest queue.
    pub(super) fn steal(&self, core: usize, preferred: Option<GroupId>) -> Option<Job<'env>> {
        if !self.tally.has_backlog() {
            return None;
        }
        let others = || (0..self.cores()).filter(|&other| other != core);
        let sibling = preferred.and_then(|group| {
            others().find_map(|other| {
                let mut queue = self.queues[other].lock();
                let at = queue.iter().rposition(|job| job.group == group)?;
                queue.remove(at)
            })
        });
        let job = sibling.or_else(|| {
            let longest = others().max_by_key(|&other| self.queues[other].lock().len())?;
            self.queues[longest].lock().pop_back()
        })?;
        self.tally.backlog.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    /// Where work of `core` goes on after an operation, if not there: where the placement wants it, if that has changed
    /// `since`, or to a core that has nothing to do, if others wait here.
    pub(super) fn moves_to(
        &self,
        core: usize,
        job: &Job<'env>,
        since: u32,
        others_wait: impl FnOnce() -> bool,
    ) -> Option<usize> {
        let (placement, version) = self.placement.get();
        if version != since {
            let wanted = placement.core(job.group, job.ticket.seat, self.cores());
            if wanted != core {
                return Some(wanted);
            }
        }
        let hungry = self.tally.hungry.load(Ordering::Relaxed);
        if hungry == 0 || !others_wait() {
            return None;
        }
        let other = hungry.trailing_zeros() as usize;
        let bit = 1 << other;
        (other != core && self.tally.hungry.fetch_and(!bit, Ordering::AcqRel) & bit != 0).then_some(other)
    }

    /// Drops what waits for a core.
    pub(super) fn clear(&self) {
        for core in 0..self.cores() {
            while self.take(core).is_some() {}
        }
    }

    /// Where work is placed.
    pub(super) fn placement(&self) -> (Placement, u32) {
        self.placement.get()
    }
}
