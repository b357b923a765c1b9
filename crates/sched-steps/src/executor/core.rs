//! The state of an executor; birth and death of its fibers.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::{Duration, Instant};

use super::idle::Callbacks;
use super::locals::Locals;
use super::order::Ordering;
use super::remote::{Remote, Waker};
use crate::context::{self, Driver, INERT, NO_INDEX, Node, Rest, Slab, Watch, Watched, local};
use crate::fifo::{Fifo, Links, NONE, UNLINKED, broken};
use crate::teams::{Membership, NO_OPERATION, Teams};

/// Where a fiber is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FiberState {
    /// Nowhere: the slot is free.
    Free,
    /// In the queue of those that may run on their own, or announced to the order and not chosen since.
    Ready,
    /// On its stack, outside of the ring.
    Running,
    /// In a team that waits.
    Team,
    /// In the ring.
    Ring,
    /// Suspended until it is woken.
    Parked,
    /// Suspended until another fiber has ended.
    Joining,
    /// Suspended until its condition holds.
    Polled,
    /// Suspended until a slot is free.
    Slot,
    /// At its end, on its stack for the last time.
    Ended,
}

/// What a fiber runs: told whether it was cancelled before it began, so that it only drops what it was to work with. It
/// catches all panics.
pub(super) type Task = Box<dyn FnOnce(bool)>;

/// What a switch does not need to know of a fiber.
pub(crate) struct Cold {
    pub(super) place: Cell<FiberState>,
    link: Cell<u32>,
    task: Cell<Option<Task>>,
    name: RefCell<String>,
    locals: Locals,
    /// The fiber whose end it waits for, while it does.
    pub(super) awaits_end_of: Cell<u32>,
    /// It has asked for its waker, which anything may hold now.
    pub(super) waker_given: Cell<bool>,
    /// A wake that came while the fiber was not parked.
    pub(super) pending: Cell<bool>,
    pub(super) cancelled: Cell<bool>,
    /// What it waits for while it is polled, on its own stack.
    pub(super) condition: Cell<Option<*const Condition<'static>>>,
    pub(super) operation: Cell<u8>,
    /// When it joined the team it is in, in launches.
    pub(super) joined: Cell<u64>,
    #[cfg(feature = "asan")]
    pub(super) shadow: Cell<*mut std::ffi::c_void>,
}

impl Cold {
    fn new() -> Cold {
        Cold {
            place: Cell::new(FiberState::Free),
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

    /// Makes it that of a new fiber, whatever the last one in its slot has left. Place and link are those of a free slot.
    fn renew(&self, name: &str, new_task: Task) {
        // Each field has its line: the compiler asks for one of a field that is added.
        let Cold {
            place: _,
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
        locals.begin_anew();
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

/// What the driving thread waits for while fibers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// That nothing can run.
    Rest,
    /// A free slot.
    Slot,
    /// The end of one fiber.
    End(u32),
}

/// The executor, at a fixed address, touched by its thread alone (but for `remote`).
pub(crate) struct Core {
    pub(super) nodes: Box<[Node]>,
    colds: Box<[Cold]>,
    /// The context of the thread that drives.
    pub(super) main: Node,
    watch: Watch,
    pub(crate) slab: Slab,
    pub(crate) remote: &'static Remote,
    pub(super) free: Fifo,
    pub(super) ready: Fifo,
    /// How many of `ready` may still run before a team is launched; `None` before a count is taken.
    pub(super) turn: Cell<Option<u32>>,
    pub(super) polled: Fifo,
    /// Fibers that wait for a free slot.
    pub(super) spawners: Fifo,
    /// How long none may run while some wait for wakes or conditions.
    pub(super) limit: Option<Duration>,
    /// Since when none has run, as far as that was looked at.
    pub(super) rests_since: Cell<Option<Instant>>,
    /// A member of the ring, or null.
    pub(super) ring: Cell<*const Node>,
    pub(super) ring_len: Cell<u32>,
    pub(super) team_size: u32,
    pub(super) membership: Membership,
    pub(super) ordering: Ordering,
    pub(super) teams: Teams,
    /// Operations begun in a ring since the conditions were last asked.
    pub(super) unasked: Cell<u32>,
    live: Cell<u32>,
    pub(super) awaits: Cell<Awaits>,
    pub(super) driving: Cell<bool>,
    /// The fiber on the stack gives way, and what runs next is being chosen there.
    pub(super) choosing: Cell<bool>,
    /// The fiber on the stack, if it was cancelled: it ends, or unwinds at each wait. Its hops lead to the thread.
    pub(super) condemned: Cell<u32>,
    pub(super) callbacks: Callbacks,
    #[cfg(feature = "asan")]
    pub(super) shadow: context::tools::asan::MainStack,
}

/// What an executor is made of.
pub(super) struct Parts {
    pub(super) fibers: u32,
    pub(super) team_size: u32,
    pub(super) slab: Slab,
    pub(super) remote: &'static Remote,
    pub(super) membership: Membership,
    pub(super) ordering: Ordering,
    pub(super) teams: Teams,
    pub(super) callbacks: Callbacks,
    pub(super) limit: Option<Duration>,
}

impl Links for Core {
    fn link(&self, index: u32) -> &Cell<u32> {
        &self.cold(index).link
    }
}

impl Core {
    pub(super) fn new(parts: Parts) -> Core {
        let watch = Watched::watch(parts.slab.layout(), parts.slab.usable(), parts.fibers as usize);
        let core = Core {
            watch,
            nodes: (0..parts.fibers).map(Node::new).collect(),
            colds: (0..parts.fibers).map(|_| Cold::new()).collect(),
            main: Node::new(NO_INDEX),
            slab: parts.slab,
            remote: parts.remote,
            free: Fifo::new(),
            ready: Fifo::new(),
            turn: Cell::new(None),
            polled: Fifo::new(),
            spawners: Fifo::new(),
            limit: parts.limit,
            rests_since: Cell::new(None),
            ring: Cell::new(ptr::null()),
            ring_len: Cell::new(0),
            team_size: parts.team_size,
            membership: parts.membership,
            ordering: parts.ordering,
            teams: parts.teams,
            unasked: Cell::new(0),
            live: Cell::new(0),
            awaits: Cell::new(Awaits::Rest),
            driving: Cell::new(false),
            choosing: Cell::new(false),
            condemned: Cell::new(NONE),
            callbacks: parts.callbacks,
            #[cfg(feature = "asan")]
            shadow: context::tools::asan::MainStack::default(),
        };
        (0..parts.fibers).for_each(|index| core.free.push(&core, index));
        core
    }

    /// Calls `with` with the executor that drives this thread; `None` if there is none.
    #[inline]
    pub(crate) fn current<R>(with: impl FnOnce(&Core) -> R) -> Option<R> {
        let driver = local().driver.get()?;
        // SAFETY: set by `drive` of an executor, the only kind of driver, which outlives its drive; restored after it.
        Some(with(unsafe { driver.cast::<Core>().as_ref() }))
    }

    pub(super) fn cold(&self, index: u32) -> &Cold {
        &self.colds[index as usize]
    }

    pub(super) fn colds(&self) -> &[Cold] {
        &self.colds
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

    /// The fiber of this executor that runs; `None` on the context of a thread, or if another executor's runs.
    #[inline]
    pub(crate) fn running(&self) -> Option<u32> {
        Some(self.running_node()?.index.get())
    }

    /// Its node.
    #[inline]
    pub(crate) fn running_node(&self) -> Option<&Node> {
        let local = local();
        if !ptr::addr_eq(local.driver.get()?.as_ptr(), self) {
            return None;
        }
        // SAFETY: `current` is a node of the executor that `driver` names.
        let node = unsafe { &*local.current.get() };
        (node.index.get() != NO_INDEX).then_some(node)
    }

    /// The fiber of this executor whose frames lie on the running stack, and its `hold`: also while another executor drives,
    /// or code of the embedder runs that is outside of fibers.
    pub(super) fn on_stack(&self) -> Option<(u32, &Cell<u32>)> {
        let (node, hold) = local().seat_of(ptr::from_ref(self).cast())?;
        // SAFETY: the context of a driver is one of its nodes.
        let index = unsafe { (*node).index.get() };
        (index != NO_INDEX).then_some((index, hold))
    }

    /// What to call fiber `index` in a message.
    pub(super) fn name(&self, index: u32) -> String {
        match self.cold(index).name.borrow() {
            name if name.is_empty() => index.to_string(),
            name => name.clone(),
        }
    }

    /// What to call the running fiber.
    pub(super) fn running_name(&self) -> String {
        self.running().map(|index| self.name(index)).unwrap_or_default()
    }

    /// What belongs to fiber `index`.
    pub(crate) fn locals(&self, index: u32) -> &Locals {
        &self.cold(index).locals
    }

    pub(crate) fn waker(&self, index: u32) -> Waker {
        Waker::new(self.remote, index)
    }

    /// The waker of the running fiber, which from now on may be held anywhere.
    pub(crate) fn give_waker(&self) -> Option<Waker> {
        let index = self.running()?;
        self.cold(index).waker_given.set(true);
        Some(self.waker(index))
    }

    /// Puts `task` into a free slot; gives it back if there is none.
    pub(super) fn spawn(&self, name: &str, task: Task) -> Result<u32, Task> {
        let Some(index) = self.free.pop(self) else { return Err(task) };
        self.cold(index).renew(name, task);
        self.watch.name(index as usize, name);
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

    /// The end of the running fiber: frees its slot and never comes back.
    fn finish(&self, index: u32) {
        self.end_operation();
        self.leave_ring(index);
        if self.condemned.get() == index {
            self.condemned.set(NONE);
            self.node(index).next.set(ptr::null());
        }
        self.cold(index).place.set(FiberState::Ended);
        if self.ordering.replaces_teams() {
            self.announce_end(index);
        }
        if let Some(spawner) = self.spawners.pop(self) {
            self.make_ready(spawner);
        }
        let awaited = match self.awaits.get() {
            Awaits::Rest => false,
            Awaits::Slot => true,
            Awaits::End(awaited) => awaited == index,
        };
        let next = if awaited { &raw const self.main } else { self.choose() };
        // Not before: a condition asked above may spawn, and this stack is still in use.
        self.cold(index).place.set(FiberState::Free);
        self.free.push(self, index);
        self.live.set(self.live.get() - 1);
        context::conclude(self.node(index));
        // Nothing refers to this context any more, so only the back end of threads comes back, to end the thread.
        self.switch(next, true);
    }

    /// Marks a live fiber to unwind when it next runs, and lets it run. One that runs unwinds when it next waits or hops.
    pub(crate) fn cancel(&self, index: u32) {
        let cold = self.cold(index);
        if matches!(cold.place.get(), FiberState::Free | FiberState::Ended) || cold.cancelled.replace(true) {
            return;
        }
        if self.on_stack().is_some_and(|(on_stack, _)| on_stack == index) {
            // One that gives way looks when it goes on.
            if !self.choosing.get() {
                return self.condemn(index);
            }
        } else if context::rest(self.node(index)) == Rest::Hopped {
            // SAFETY: a hop suspended it, and `cancelled` says that it is diverted once only.
            unsafe { context::divert(self.node(index)) };
        }
        // The condition of one that is polled is forgotten when the poll finds it cancelled.
        match cold.place.get() {
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

    /// Fiber `index`, on the stack, was cancelled. It has no mates any more; a hop leads to the thread, which sends it back to
    /// unwind, so that a point need not look.
    fn condemn(&self, index: u32) {
        self.leave_ring(index);
        self.cold(index).place.set(FiberState::Running);
        self.node(index).next.set(&raw const self.main);
        self.condemned.set(index);
        if let Some((_, hold)) = self.on_stack() {
            hold.set(hold.get() & !INERT);
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
            self.arrived(node);
        }
        let cold = self.cold(index);
        let task = cold.task.take();
        if cold.place.get() == FiberState::Ready {
            broken("a fiber begins that is in a queue");
        }
        // One that was cancelled before it began only drops what it was to work with, which may wait.
        let is_cancelled = cold.cancelled.replace(false);
        let run = || task.into_iter().for_each(|task| task(is_cancelled));
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            broken("a panic has left a fiber");
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
        self.condemn(index);
    }

    #[cfg(any(
        feature = "asan",
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))
    ))]
    fn pass(&self) {
        let Some(index) = self.running() else { return };
        self.heed_cancellation(index);
        self.switch(self.node(index).next.get(), false);
        self.heed_cancellation(index);
    }
}

/// The condition of a fiber that waits for it, and what it has panicked with.
pub(super) struct Condition<'a> {
    pub(super) holds: &'a dyn Fn() -> bool,
    pub(super) raise: Cell<Option<Box<dyn std::any::Any + Send>>>,
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Everything that a fiber may have left in its slot, and nothing of it for the next one.
    #[test]
    fn a_slot_keeps_nothing_of_its_last_fiber() {
        let dropped = Rc::new(());
        let held = Rc::clone(&dropped);
        let waits_for = Condition { holds: &|| true, raise: Cell::new(None) };
        let Cold {
            place,
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
        } = &Cold::new();
        let cold = Cold {
            place: Cell::new(place.get()),
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
        cold.renew("next", Box::new(|_| ()));
        assert_eq!(Rc::strong_count(&dropped), 1, "the task");
        assert_eq!((cold.place.get(), cold.link.get()), (FiberState::Free, UNLINKED));
        assert!(cold.task.take().is_some() && task.take().is_none());
        assert_eq!((&cold.name.borrow()[..], name.borrow().len()), ("next", 0));
        assert!(cold.locals.is_empty() && locals.is_empty());
        assert_eq!(cold.awaits_end_of.get(), awaits_end_of.get());
        assert_eq!(cold.waker_given.get(), waker_given.get());
        assert_eq!(cold.pending.get(), pending.get());
        assert_eq!(cold.cancelled.get(), cancelled.get());
        assert!(cold.condition.get().is_none() && condition.get().is_none());
        assert_eq!(cold.operation.get(), operation.get());
        assert_eq!(cold.joined.get(), joined.get());
        #[cfg(feature = "asan")]
        assert_eq!(cold.shadow.get(), shadow.get());
    }
}
