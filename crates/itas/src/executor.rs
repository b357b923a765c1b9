//! Scheduler of a core as the order of an executor that the embedder builds and drives, for programs with their own
//! worker threads. (The [runtime](crate::Runtime) has its own workers.)

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sched_steps::Order;

use crate::group::{GroupEntry, GroupError, GroupId};
use crate::scheduler::{Scheduler, Stops};

/// State shared by a [`CoreOrder`] and its handles.
struct Shared {
    scheduler: RefCell<Scheduler>,
    groups: Vec<GroupEntry>,
    clock: Box<dyn Fn() -> u64>,
    running: Cell<Option<usize>>,
    /// End of the running fiber's slice, in nanoseconds of the clock.
    ends_ns: Cell<u64>,
}

/// Scheduling order of an executor, to be passed to [`sched_steps::Builder::order`].
pub struct CoreOrder(Rc<Shared>);

/// Handle of a [`CoreOrder`], for the thread that drives the executor and for its fibers.
#[derive(Clone)]
pub struct CoreHandle(Rc<Shared>);

impl std::fmt::Debug for CoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreHandle").field("scheduler", &self.0.scheduler.borrow()).finish_non_exhaustive()
    }
}

/// Creates the order of an executor: fiber number `i` belongs to `groups[i % groups.len()]` until it changes its group.
/// `clock` returns nanoseconds; it may be simulated. The groups cannot be removed before the order and its handles are
/// dropped.
///
/// # Errors
/// A group that the scheduler does not know, or an empty list of groups.
pub fn core_order(
    scheduler: Scheduler,
    groups: Vec<GroupId>,
    clock: impl Fn() -> u64 + 'static,
) -> Result<(CoreOrder, CoreHandle), GroupError> {
    if groups.is_empty() {
        return Err(GroupError::Unknown(0));
    }
    let groups = groups.into_iter().map(|group| scheduler.enter(group)).collect::<Result<_, _>>()?;
    let shared = Rc::new(Shared {
        scheduler: RefCell::new(scheduler),
        groups,
        clock: Box::new(clock),
        running: Cell::new(None),
        ends_ns: Cell::new(0),
    });
    Ok((CoreOrder(Rc::clone(&shared)), CoreHandle(shared)))
}

impl Shared {
    fn stop(&self, stops: Stops) -> u64 {
        let now = (self.clock)();
        self.running.set(None);
        self.scheduler.borrow_mut().stop(now, stops);
        now
    }
}

impl Order for CoreOrder {
    fn ready(&mut self, fiber: usize) {
        let shared = &*self.0;
        if shared.running.get() == Some(fiber) {
            shared.stop(Stops::Preempted);
            return;
        }
        let now = (shared.clock)();
        let mut scheduler = shared.scheduler.borrow_mut();
        if scheduler.group_of(fiber as u32).is_some() {
            scheduler.wake(now, fiber as u32);
        } else if let Err(error) = scheduler.arrive(now, fiber as u32, shared.groups[fiber % shared.groups.len()].id())
        {
            unreachable!("its groups were known: {error}");
        }
    }

    fn next(&mut self) -> Option<usize> {
        let shared = &*self.0;
        let now = if shared.running.get().is_some() { shared.stop(Stops::Blocked) } else { (shared.clock)() };
        let mut scheduler = shared.scheduler.borrow_mut();
        let fiber = scheduler.pick(now)? as usize;
        shared.ends_ns.set(now + scheduler.slice_ns());
        shared.running.set(Some(fiber));
        Some(fiber)
    }

    fn ended(&mut self, _fiber: usize) {
        self.0.stop(Stops::Ended);
    }
}

impl CoreHandle {
    /// Returns true if the slice of the running fiber is over: the fiber should then yield.
    #[must_use]
    pub fn slice_is_over(&self) -> bool {
        (self.0.clock)() >= self.0.ends_ns.get()
    }

    /// Moves the running fiber to `group`. Returns true if this changes its group: the fiber should then yield, so that
    /// the new group waits for its turn.
    ///
    /// # Errors
    /// A group that the scheduler does not know.
    pub fn change_group(&self, group: GroupId) -> Result<bool, GroupError> {
        self.0.scheduler.borrow_mut().change_group(group)
    }

    /// Calls `with` with the scheduler, to read its state or to change its settings.
    ///
    /// # Panics
    /// If `with` accesses the scheduler through a handle again.
    pub fn with<R>(&self, with: impl FnOnce(&mut Scheduler) -> R) -> R {
        with(&mut self.0.scheduler.borrow_mut())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sched_steps::{Executor, fiber};

    use super::*;
    use crate::policy::Tas;
    use crate::{Aggregation, Board, CoreSettings, Groups};

    #[test]
    #[allow(unsafe_code)]
    fn an_executor_runs_siblings_one_after_the_other() {
        let groups = Groups::new();
        let ids: Vec<GroupId> =
            ["a", "b", "c"].iter().map(|name| groups.add(name, 1024, Aggregation::default()).unwrap()).collect();
        let board = Arc::new(Board::new(1));
        let scheduler = Scheduler::new(0, Arc::new(groups), board, Box::new(Tas), CoreSettings::default());
        let now = Rc::new(Cell::new(0));
        let clock = Rc::clone(&now);
        let (order, core) = core_order(scheduler, ids[..2].to_vec(), move || clock.get()).unwrap();
        // SAFETY: no thread-local scope is open.
        let mut executor = unsafe { Executor::builder().fibers(4).order(order).build() }.unwrap();
        let ran = RefCell::new(String::new());
        executor
            .scope(|s| {
                for fiber in 0..4 {
                    let (ran, now, core) = (&ran, &now, &core);
                    s.spawn(move || {
                        for _ in 0..3 {
                            ran.borrow_mut().push(if fiber % 2 == 0 { 'a' } else { 'b' });
                            assert!(!core.slice_is_over());
                            now.set(now.get() + 50_000);
                            assert!(core.slice_is_over());
                            fiber::yield_now();
                        }
                    });
                }
            })
            .unwrap();
        assert_eq!(*ran.borrow(), "aaaaaabbbbbb");
        assert!(core.with(|scheduler| scheduler.longest_wait_to_bound()) <= 1.0);
        assert!(core.change_group(GroupId::NONE).is_err());
        assert_eq!(core.change_group(ids[2]), Ok(false), "nothing runs");
    }
}
