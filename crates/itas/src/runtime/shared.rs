//! State shared by the workers of a run: work that waits for a core, and the set of idle cores.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use sched_steps::fiber::Waker;

use super::clock::now_ns;
use super::work::Work;
use crate::group::{GroupEntry, GroupError, GroupId, Groups};
use crate::placement::{Placement, PlacementWord};

/// Counts the work that has not ended, and wakes the workers when all work has ended.
#[derive(Debug)]
pub(super) struct OutstandingWork {
    count: AtomicUsize,
    /// True if no more work will be submitted from outside of the workers.
    closed: AtomicBool,
    /// True if the run is aborted: work that has not begun does not begin.
    aborted: AtomicBool,
    /// Number of pieces of work that have not begun.
    backlog: CachePadded<AtomicUsize>,
    /// Bit set of the cores without a fiber that can run (the first 64 cores).
    pub(super) idle_cores: CachePadded<AtomicU64>,
    /// Waker of each core's intake fiber, indexed by core.
    intakes: Box<[Mutex<Option<Waker>>]>,
}

impl OutstandingWork {
    pub(super) fn new(cores: usize) -> OutstandingWork {
        OutstandingWork {
            count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            backlog: CachePadded::default(),
            idle_cores: CachePadded::default(),
            intakes: (0..cores).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Returns true if all work has ended and no more can come, or if the run is aborted.
    pub(super) fn is_over(&self) -> bool {
        let all_ended = self.closed.load(Ordering::SeqCst) && self.count.load(Ordering::SeqCst) == 0;
        all_ended || self.aborted.load(Ordering::SeqCst)
    }

    /// Declares that no more work will be submitted from outside of the workers.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Aborts the run: work that has begun is run to its end, other work does not begin.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Sets the waker of the intake fiber of core `core`.
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

    /// Returns true if work that has not begun is queued on any core.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::SeqCst) > 0
    }

    fn count_begun(&self) {
        self.backlog.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes core `core` for new work. If the core is busy or is already being woken, also wakes an idle core.
    fn wake_for(&self, core: usize) {
        self.wake(core);
        let idle = self.idle_cores.load(Ordering::SeqCst);
        if idle != 0 && !(is_in(idle, core) && self.claim(core)) {
            let other = idle.trailing_zeros() as usize;
            if self.claim(other) {
                self.wake(other);
            }
        }
    }

    /// Removes core `core` from the set of idle cores. Returns true only for the caller that removed the core, which
    /// then wakes it.
    fn claim(&self, core: usize) -> bool {
        let bit = 1 << core;
        self.idle_cores.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }
}

/// Returns true if core `core` is in the bit set `cores`.
fn is_in(cores: u64, core: usize) -> bool {
    core < 64 && cores >> core & 1 == 1
}

/// Maximum time in nanoseconds for which work is reserved for its assigned core: one millisecond.
const MAX_RESERVATION_NS: u64 = 1_000_000;

/// Ticket of one piece of work, which counts as outstanding until its ticket is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    outstanding: Arc<OutstandingWork>,
    group: GroupEntry,
    pub(super) seat: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.outstanding.count.fetch_sub(1, Ordering::SeqCst) == 1 && self.outstanding.is_over() {
            self.outstanding.wake_all();
        }
    }
}

/// Work on its way to a core. Its ticket counts the work as outstanding until the job is dropped on any thread.
pub(super) struct Job<'env> {
    pub(super) group: GroupId,
    pub(super) work: Box<dyn Work + 'env>,
    pub(super) ticket: Ticket,
    /// Time at which the work was queued on its core, in nanoseconds.
    since_ns: u64,
}

/// Work with an assigned fiber on a core. It is removed when the fiber begins or another core takes the work.
pub(super) struct AssignedJob<'env>(Mutex<Option<Job<'env>>>);

/// Queue of the work of a core that has not begun.
#[derive(Default)]
struct CoreQueue<'env> {
    /// Work that has no fiber yet.
    waiting: VecDeque<Job<'env>>,
    /// Work that has a fiber. Includes entries whose work has begun meanwhile.
    assigned: VecDeque<Arc<AssignedJob<'env>>>,
}

impl<'env> CoreQueue<'env> {
    /// Records work that has a fiber but has not begun.
    fn record_assigned(&mut self, assigned: Arc<AssignedJob<'env>>) {
        let capacity = self.assigned.capacity();
        if self.assigned.len() == capacity {
            self.assigned.retain(|assigned| assigned.0.lock().is_some());
            // Growing the queue here bounds the number of times that each entry is visited by a constant.
            if self.assigned.len() > capacity / 2 {
                self.assigned.reserve(capacity);
            }
        }
        self.assigned.push_back(assigned);
    }

    /// Takes the newest queued work for which `wanted` returns true.
    fn take(&mut self, wanted: impl Fn(&Job<'env>) -> bool) -> Option<Job<'env>> {
        if let Some(at) = self.waiting.iter().rposition(&wanted) {
            return self.waiting.remove(at);
        }
        self.assigned.iter().rev().find_map(|assigned| assigned.0.lock().take_if(|job| wanted(job)))
    }
}

/// State shared by the workers of a run. See the module documentation.
pub(super) struct Shared<'env> {
    pub(super) groups: Arc<Groups>,
    pub(super) outstanding: Arc<OutstandingWork>,
    pub(super) placement: Arc<PlacementWord>,
    /// Time in nanoseconds for which work is reserved for its assigned core.
    pub(super) reservation_ns: u64,
    queues: Box<[CachePadded<Mutex<CoreQueue<'env>>>]>,
}

impl<'env> Shared<'env> {
    pub(super) fn new(groups: Arc<Groups>, cores: usize, placement: Arc<PlacementWord>, slice_ns: u64) -> Shared<'env> {
        Shared {
            groups,
            outstanding: Arc::new(OutstandingWork::new(cores)),
            placement,
            reservation_ns: slice_ns.min(MAX_RESERVATION_NS),
            queues: (0..cores).map(|_| CachePadded::default()).collect(),
        }
    }

    fn cores(&self) -> usize {
        self.queues.len()
    }

    /// Submits new work of group `group`.
    pub(super) fn submit(&self, group: GroupId, work: Box<dyn Work + 'env>) -> Result<(), GroupError> {
        let entered = self.groups.enter(group)?;
        self.outstanding.count.fetch_add(1, Ordering::SeqCst);
        let seat = entered.next_seat();
        let ticket = Ticket { outstanding: Arc::clone(&self.outstanding), group: entered, seat };
        let core = self.placement.get().0.core(group, seat, self.cores());
        self.enqueue(core, Job { group, work, ticket, since_ns: 0 });
        Ok(())
    }

    /// Queues `job` on core `core` and wakes a core for it.
    pub(super) fn enqueue(&self, core: usize, mut job: Job<'env>) {
        job.since_ns = now_ns();
        // The count precedes the search for idle cores: an idle core declares itself idle before it reads the count.
        self.outstanding.backlog.fetch_add(1, Ordering::SeqCst);
        self.queues[core].lock().waiting.push_back(job);
        // The core may be occupied by a fiber that does not give up the CPU.
        self.outstanding.wake_for(core);
    }

    /// Takes the next work for `core`, which is about to spawn a fiber for it. Enters the group of the work on behalf
    /// of the fiber.
    pub(super) fn take(&self, core: usize) -> Option<(GroupEntry, Arc<AssignedJob<'env>>)> {
        let mut queue = self.queues[core].lock();
        let job = queue.waiting.pop_front()?;
        let group = job.ticket.group.clone();
        let assigned = Arc::new(AssignedJob(Mutex::new(Some(job))));
        queue.record_assigned(Arc::clone(&assigned));
        Some((group, assigned))
    }

    /// Takes the work that was assigned to a fiber that begins; `None` if another core has taken the work.
    pub(super) fn begin(&self, assigned: &AssignedJob<'env>) -> Option<Job<'env>> {
        let job = assigned.0.lock().take()?;
        self.outstanding.count_begun();
        Some(job)
    }

    /// Takes work from another core for the idle core `core`, if the work has waited there for `reservation_ns` (a
    /// slice, at most a millisecond). Prefers work of group `preferred`.
    pub(super) fn steal(&self, core: usize, preferred: Option<GroupId>) -> Option<Job<'env>> {
        if !self.outstanding.has_backlog() {
            return None;
        }
        let queued_before = now_ns().saturating_sub(self.reservation_ns);
        let is_old = |job: &Job<'_>| job.since_ns <= queued_before;
        let from_others = |wanted: &dyn Fn(&Job<'env>) -> bool| {
            let others = (core + 1..self.cores()).chain(0..core);
            others.into_iter().find_map(|other| self.queues[other].lock().take(wanted))
        };
        let sibling = preferred.and_then(|group| from_others(&|job| job.group == group && is_old(job)));
        let job = sibling.or_else(|| from_others(&is_old))?;
        self.outstanding.count_begun();
        Some(job)
    }

    /// Returns the core to which work of `core` moves after an operation; `None` if the work stays. This is the core
    /// that the placement assigns, if the placement has changed since version `since`. Otherwise it is an idle core, if
    /// other work waits on this core.
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
        let idle = self.outstanding.idle_cores.load(Ordering::Relaxed);
        if idle == 0 || !others_wait() {
            return None;
        }
        let other = idle.trailing_zeros() as usize;
        (other != core && self.outstanding.claim(other)).then_some(other)
    }

    /// Drops all queued work that has not begun.
    pub(super) fn clear(&self) {
        for queue in &self.queues {
            let CoreQueue { waiting, assigned } = std::mem::take(&mut *queue.lock());
            drop(waiting);
            for assigned in assigned {
                let job = assigned.0.lock().take();
                drop(job);
            }
        }
    }

    /// Returns the current placement and its version.
    pub(super) fn placement(&self) -> (Placement, u32) {
        self.placement.get()
    }
}
