//! State of an executor, and the start and end of its fibers.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::{Duration, Instant};

use super::idle::Callbacks;
use super::locals::Locals;
use super::order::ExecutorOrder;
use super::remote::{Remote, Waker};
use crate::context::{
    self, Driver, NO_INDEX, NO_MATE_FLAG, Node, RegionRegistration, Slab, StackRegion, SuspendedState, local,
};
use crate::fifo::{Fifo, Links, NONE, UNLINKED, abort_with};
use crate::teams::{Membership, NO_OPERATION, Teams};

/// State of a fiber: its location, or the event that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FiberState {
    /// The slot is free.
    Free,
    /// The fiber is in the queue of fibers ready to run outside of the ring, or was announced to the order and not
    /// chosen since.
    Ready,
    /// The fiber runs on its stack, outside of the ring.
    Running,
    /// The fiber is in a waiting team.
    Team,
    /// The fiber is in the ring.
    Ring,
    /// The fiber is suspended until it is woken.
    Parked,
    /// The fiber is suspended until another fiber has ended.
    Joining,
    /// The fiber is suspended until its condition holds.
    Polled,
    /// The fiber is suspended until a slot is free.
    Slot,
    /// The fiber is at its end and runs on its stack for the last time.
    Ended,
}

/// Body of a fiber. The argument is true if the fiber was cancelled before it began: then the task only drops its
/// captured values. The task catches all panics.
pub(super) type Task = Box<dyn FnOnce(bool)>;

/// Fields of a fiber that a switch does not access.
pub(crate) struct FiberRecord {
    pub(super) state: Cell<FiberState>,
    link: Cell<u32>,
    task: Cell<Option<Task>>,
    name: RefCell<String>,
    locals: Locals,
    /// Fiber whose end this fiber waits for; `NONE` otherwise.
    pub(super) awaits_end_of: Cell<u32>,
    /// True if the fiber has requested its waker, so that any thread may hold it now.
    pub(super) waker_given: Cell<bool>,
    /// True if a wake came while the fiber was not parked; the next park then returns at once.
    pub(super) pending: Cell<bool>,
    pub(super) cancelled: Cell<bool>,
    /// Condition of a polled fiber; the condition is on the fiber's stack.
    pub(super) condition: Cell<Option<*const Condition<'static>>>,
    pub(super) operation: Cell<u8>,
    /// Launch count at the time when the fiber joined its team.
    pub(super) joined: Cell<u64>,
    #[cfg(feature = "asan")]
    pub(super) shadow: Cell<*mut std::ffi::c_void>,
}

impl FiberRecord {
    fn new() -> FiberRecord {
        FiberRecord {
            state: Cell::new(FiberState::Free),
            link: Cell::new(UNLINKED),
            task: Cell::new(None),
            name: RefCell::default(),
            locals: Locals::default(),
            awaits_end_of: Cell::new(NONE),
            waker_given: Cell::new(false),
            pending: Cell::new(false),
            cancelled: Cell::new(false),
            condition: Cell::new(None),
            operation: Cell::new(NO_OPERATION),
            joined: Cell::new(0),
            #[cfg(feature = "asan")]
            shadow: Cell::new(ptr::null_mut()),
        }
    }

    /// Resets the record of a slot for a new fiber. `state` and `link` already have the values of a free slot.
    fn reset(&self, name: &str, new_task: Task) {
        // The exhaustive pattern makes the compiler reject a new field that is not reset here.
        let FiberRecord {
            state: _,
            link: _,
            task,
            name: own_name,
            locals,
            awaits_end_of,
            waker_given,
            pending,
            cancelled,
            condition,
            operation,
            joined,
            #[cfg(feature = "asan")]
            shadow,
        } = self;
        task.set(Some(new_task));
        let mut own_name = own_name.borrow_mut();
        own_name.clear();
        own_name.push_str(name);
        locals.clear();
        awaits_end_of.set(NONE);
        waker_given.set(false);
        pending.set(false);
        cancelled.set(false);
        condition.set(None);
        operation.set(NO_OPERATION);
        joined.set(0);
        #[cfg(feature = "asan")]
        shadow.set(ptr::null_mut());
    }
}

/// Event that the driving thread waits for while fibers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedEvent {
    /// No fiber can run.
    NoneReady,
    /// A slot is free.
    Slot,
    /// The fiber with this index has ended.
    End(u32),
}

/// State of an executor, at a fixed address. Only the executor's thread accesses it, except for `remote`.
pub(crate) struct Core {
    pub(super) nodes: Box<[Node]>,
    records: Box<[FiberRecord]>,
    /// Context of the driving thread.
    pub(super) main: Node,
    stack_registration: RegionRegistration,
    pub(crate) slab: Slab,
    pub(crate) remote: &'static Remote,
    pub(super) free: Fifo,
    pub(super) ready: Fifo,
    /// Number of fibers in `ready` that may still run before a team is launched; `None` before the count is taken.
    pub(super) turn: Cell<Option<u32>>,
    pub(super) polled: Fifo,
    /// Fibers that wait for a free slot.
    pub(super) spawners: Fifo,
    /// Maximum time without a running fiber while some fibers wait for wakes or conditions.
    pub(super) limit: Option<Duration>,
    /// Start of the time without a running fiber, if it has been recorded.
    pub(super) idle_since: Cell<Option<Instant>>,
    /// A member of the ring, or null.
    pub(super) ring: Cell<*const Node>,
    pub(super) ring_len: Cell<u32>,
    pub(super) team_size: u32,
    pub(super) membership: Membership,
    pub(super) order: ExecutorOrder,
    pub(super) teams: Teams,
    /// Number of operations begun in a ring since the conditions were last polled.
    pub(super) begun_since_poll: Cell<u32>,
    live: Cell<u32>,
    pub(super) awaited_event: Cell<AwaitedEvent>,
    pub(super) is_driving: Cell<bool>,
    /// True while the fiber on the stack is being suspended and the next context is being chosen on that stack.
    pub(super) choosing: Cell<bool>,
    /// Index of the fiber on the stack if it was cancelled, else `NONE`. The cancelled fiber ends, or unwinds at each
    /// wait. Its hops lead to the thread's context.
    pub(super) cancelled_running: Cell<u32>,
    pub(super) callbacks: Callbacks,
    #[cfg(feature = "asan")]
    pub(super) shadow: context::tools::asan::MainStack,
}

/// Parts from which an executor is built.
pub(super) struct Parts {
    pub(super) fibers: u32,
    pub(super) team_size: u32,
    pub(super) slab: Slab,
    pub(super) remote: &'static Remote,
    pub(super) membership: Membership,
    pub(super) order: ExecutorOrder,
    pub(super) teams: Teams,
    pub(super) callbacks: Callbacks,
    pub(super) limit: Option<Duration>,
}

impl Links for Core {
    fn link(&self, index: u32) -> &Cell<u32> {
        &self.record(index).link
    }
}

impl Core {
    pub(super) fn new(parts: Parts) -> Core {
        let stack_registration = StackRegion::register(parts.slab.layout(), parts.slab.usable(), parts.fibers as usize);
        let core = Core {
            stack_registration,
            nodes: (0..parts.fibers).map(Node::new).collect(),
            records: (0..parts.fibers).map(|_| FiberRecord::new()).collect(),
            main: Node::new(NO_INDEX),
            slab: parts.slab,
            remote: parts.remote,
            free: Fifo::new(),
            ready: Fifo::new(),
            turn: Cell::new(None),
            polled: Fifo::new(),
            spawners: Fifo::new(),
            limit: parts.limit,
            idle_since: Cell::new(None),
            ring: Cell::new(ptr::null()),
            ring_len: Cell::new(0),
            team_size: parts.team_size,
            membership: parts.membership,
            order: parts.order,
            teams: parts.teams,
            begun_since_poll: Cell::new(0),
            live: Cell::new(0),
            awaited_event: Cell::new(AwaitedEvent::NoneReady),
            is_driving: Cell::new(false),
            choosing: Cell::new(false),
            cancelled_running: Cell::new(NONE),
            callbacks: parts.callbacks,
            #[cfg(feature = "asan")]
            shadow: context::tools::asan::MainStack::default(),
        };
        (0..parts.fibers).for_each(|index| core.free.push(&core, index));
        core
    }

    /// Calls `with` with the executor that drives this thread; `None` if no executor drives it.
    #[inline]
    pub(crate) fn current<R>(with: impl FnOnce(&Core) -> R) -> Option<R> {
        let driver = local().driver.get()?;
        // SAFETY: the pointer was set by `drive` of an executor, the only type of driver. The executor outlives its
        // drive, after which the earlier pointer is restored.
        Some(with(unsafe { driver.cast::<Core>().as_ref() }))
    }

    pub(super) fn record(&self, index: u32) -> &FiberRecord {
        &self.records[index as usize]
    }

    pub(super) fn records(&self) -> &[FiberRecord] {
        &self.records
    }

    pub(super) fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub(super) fn fibers(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub(crate) fn live(&self) -> u32 {
        self.live.get()
    }

    /// Returns the running fiber of this executor; `None` on the context of a thread, or if a fiber of another executor
    /// runs.
    #[inline]
    pub(crate) fn running(&self) -> Option<u32> {
        Some(self.running_node()?.index.get())
    }

    /// Returns the node of the running fiber.
    #[inline]
    pub(crate) fn running_node(&self) -> Option<&Node> {
        let local = local();
        if !ptr::addr_eq(local.driver.get()?.as_ptr(), self) {
            return None;
        }
        // SAFETY: `current` is a node of the executor to which `driver` points.
        let node = unsafe { &*local.current.get() };
        (node.index.get() != NO_INDEX).then_some(node)
    }

    /// Returns the fiber of this executor whose frames are on the running stack, and its `hop_block_word`. Also finds
    /// this fiber while another executor drives the thread, or while code of the embedder runs outside of fibers.
    pub(super) fn on_stack(&self) -> Option<(u32, &Cell<u32>)> {
        let (node, hop_block_word) = local().context_of(ptr::from_ref(self).cast())?;
        // SAFETY: the current context of a driver is one of its nodes.
        let index = unsafe { (*node).index.get() };
        (index != NO_INDEX).then_some((index, hop_block_word))
    }

    /// Returns the name of fiber `index` for messages, or its number if it has no name.
    pub(super) fn name(&self, index: u32) -> String {
        match self.record(index).name.borrow() {
            name if name.is_empty() => index.to_string(),
            name => name.clone(),
        }
    }

    /// Returns the name of the running fiber for messages.
    pub(super) fn running_name(&self) -> String {
        self.running().map(|index| self.name(index)).unwrap_or_default()
    }

    /// Returns the fiber-local values of fiber `index`.
    pub(crate) fn locals(&self, index: u32) -> &Locals {
        &self.record(index).locals
    }

    pub(crate) fn waker(&self, index: u32) -> Waker {
        Waker::new(self.remote, index)
    }

    /// Returns the waker of the running fiber and records that any thread may hold it from now on.
    pub(crate) fn give_waker(&self) -> Option<Waker> {
        let index = self.running()?;
        self.record(index).waker_given.set(true);
        Some(self.waker(index))
    }

    /// Starts `task` on a fiber in a free slot; returns the task as an error if no slot is free.
    pub(super) fn spawn(&self, name: &str, task: Task) -> Result<u32, Task> {
        let Some(index) = self.free.pop(self) else { return Err(task) };
        self.record(index).reset(name, task);
        self.stack_registration.set_name(index as usize, name);
        let node = self.node(index);
        node.mask.set(u64::MAX);
        #[cfg(feature = "asan")]
        self.clean(index);
        // SAFETY: the slot was free, so no fiber runs on its stack.
        unsafe { context::prepare(node, self.slab.get(index as usize).top) };
        self.live.set(self.live.get() + 1);
        self.make_ready(index);
        Ok(index)
    }

    /// Ends the running fiber: frees its slot and never returns.
    fn finish(&self, index: u32) {
        self.end_operation();
        self.leave_ring(index);
        if self.cancelled_running.get() == index {
            self.cancelled_running.set(NONE);
            self.node(index).next.set(ptr::null());
        }
        self.record(index).state.set(FiberState::Ended);
        if self.order.replaces_teams() {
            self.announce_end(index);
        }
        if let Some(spawner) = self.spawners.pop(self) {
            self.make_ready(spawner);
        }
        let awaited = match self.awaited_event.get() {
            AwaitedEvent::NoneReady => false,
            AwaitedEvent::Slot => true,
            AwaitedEvent::End(awaited) => awaited == index,
        };
        let next = if awaited { &raw const self.main } else { self.choose() };
        // The slot is freed only here, because the conditions polled above may spawn a fiber while this stack is still
        // in use.
        self.record(index).state.set(FiberState::Free);
        self.free.push(self, index);
        self.live.set(self.live.get() - 1);
        context::mark_last_switch(self.node(index));
        // No reference to this context is left. Only if fibers are OS threads does the switch return, to end the
        // thread.
        self.switch(next, true);
    }

    /// Marks a live fiber as cancelled and makes it ready. A suspended fiber unwinds when it next runs; the running
    /// fiber unwinds when it next waits or hops.
    pub(crate) fn cancel(&self, index: u32) {
        let record = self.record(index);
        if matches!(record.state.get(), FiberState::Free | FiberState::Ended) || record.cancelled.replace(true) {
            return;
        }
        if self.on_stack().is_some_and(|(on_stack, _)| on_stack == index) {
            // A fiber that is being suspended tests for the cancellation when it resumes.
            if !self.choosing.get() {
                return self.isolate_cancelled(index);
            }
        } else if context::suspended_state(self.node(index)) == SuspendedState::Hopped {
            // SAFETY: the fiber was suspended by a hop, and `cancelled` ensures that `make_unwind` is called only once.
            unsafe { context::make_unwind(self.node(index)) };
        }
        // The condition of a polled fiber is dropped when the next poll finds the fiber cancelled.
        match record.state.get() {
            FiberState::Parked | FiberState::Joining => self.make_ready(index),
            FiberState::Slot => {
                for _ in 0..self.spawners.len() {
                    let Some(spawner) = self.spawners.pop(self) else { break };
                    if spawner == index { self.make_ready(index) } else { self.spawners.push(self, spawner) }
                }
            }
            _ => {}
        }
    }

    /// Isolates the cancelled fiber `index`, which is on the stack: the fiber leaves the ring, and its hops lead to the
    /// thread's context, which resumes the fiber to unwind. So a point need not test for cancellation.
    pub(super) fn isolate_cancelled(&self, index: u32) {
        self.leave_ring(index);
        self.record(index).state.set(FiberState::Running);
        self.node(index).next.set(&raw const self.main);
        self.cancelled_running.set(index);
        if let Some((_, hop_block_word)) = self.on_stack() {
            hop_block_word.set(hop_block_word.get() & !NO_MATE_FLAG);
        }
    }

    pub(super) fn cancel_all(&self) {
        (0..self.fibers()).for_each(|index| self.cancel(index));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.nodes.iter().chain([&self.main]).for_each(context::dispose);
        self.remote.release();
    }
}

impl Driver for Core {
    fn run(&self, node: &Node) {
        let index = node.index.get();
        #[cfg(feature = "asan")]
        // SAFETY: the switch to this stack was announced.
        unsafe {
            self.complete_announcement(node);
        }
        let record = self.record(index);
        let task = record.task.take();
        if record.state.get() == FiberState::Ready {
            abort_with("a fiber begins that is in a queue");
        }
        // A fiber that was cancelled before it began only drops its captured values; their destructors may wait.
        let is_cancelled = record.cancelled.replace(false);
        let run = || task.into_iter().for_each(|task| task(is_cancelled));
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            abort_with("a panic has left a fiber");
        }
        self.finish(index);
    }

    fn wake(&self, executor: u32, index: u32) -> bool {
        let ours = Waker::is_of(self.remote, executor);
        if ours && index < self.fibers() {
            self.wake_fiber(index);
        }
        ours
    }

    fn begin_unwinding(&self) {
        let Some(index) = self.running() else { return };
        self.isolate_cancelled(index);
    }

    #[cfg(any(
        feature = "asan",
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))
    ))]
    fn hop(&self) {
        let Some(index) = self.running() else { return };
        self.unwind_if_cancelled(index);
        self.switch(self.node(index).next.get(), false);
        self.unwind_if_cancelled(index);
    }
}

/// Condition of a polled fiber, and the panic payload if the condition has panicked.
pub(super) struct Condition<'a> {
    pub(super) holds: &'a dyn Fn() -> bool,
    pub(super) raise: Cell<Option<Box<dyn std::any::Any + Send>>>,
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// No field of a slot passes state of its previous fiber on to the next fiber.
    #[test]
    fn a_slot_keeps_nothing_of_its_last_fiber() {
        let dropped = Rc::new(());
        let held = Rc::clone(&dropped);
        let waits_for = Condition { holds: &|| true, raise: Cell::new(None) };
        let FiberRecord {
            state,
            link,
            task,
            name,
            locals,
            awaits_end_of,
            waker_given,
            pending,
            cancelled,
            condition,
            operation,
            joined,
            #[cfg(feature = "asan")]
            shadow,
        } = &FiberRecord::new();
        let record = FiberRecord {
            state: Cell::new(state.get()),
            link: Cell::new(link.get()),
            task: Cell::new(Some(Box::new(move |_| drop(held)))),
            name: RefCell::new("last".into()),
            locals: Locals::of_one(7),
            awaits_end_of: Cell::new(awaits_end_of.get() - 5),
            waker_given: Cell::new(!waker_given.get()),
            pending: Cell::new(!pending.get()),
            cancelled: Cell::new(!cancelled.get()),
            condition: Cell::new(Some((&raw const waits_for).cast())),
            operation: Cell::new(operation.get() - 1),
            joined: Cell::new(joined.get() + 1),
            #[cfg(feature = "asan")]
            shadow: Cell::new(shadow.get().wrapping_byte_add(1)),
        };
        record.reset("next", Box::new(|_| ()));
        assert_eq!(Rc::strong_count(&dropped), 1, "the task");
        assert_eq!((record.state.get(), record.link.get()), (FiberState::Free, UNLINKED));
        assert!(record.task.take().is_some() && task.take().is_none());
        assert_eq!((&record.name.borrow()[..], name.borrow().len()), ("next", 0));
        assert!(record.locals.is_empty() && locals.is_empty());
        assert_eq!(record.awaits_end_of.get(), awaits_end_of.get());
        assert_eq!(record.waker_given.get(), waker_given.get());
        assert_eq!(record.pending.get(), pending.get());
        assert_eq!(record.cancelled.get(), cancelled.get());
        assert!(record.condition.get().is_none() && condition.get().is_none());
        assert_eq!(record.operation.get(), operation.get());
        assert_eq!(record.joined.get(), joined.get());
        #[cfg(feature = "asan")]
        assert_eq!(record.shadow.get(), shadow.get());
    }
}
