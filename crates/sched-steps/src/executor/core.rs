//! The state of an executor and the moves of its fibers.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::time::{Duration, Instant};

use super::fifo::{Fifo, Links, NONE};
use crate::fiber::{self, INERT, Node, Remote, Rest, Slab, Waker, local};

/// How long an idle executor looks for wakes before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// How long it sleeps at most while a condition has to be asked for.
const POLL: Duration = Duration::from_micros(50);

/// Where a fiber is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: the slot is free.
    Free,
    /// In the queue of those that may run on their own, or running on its own.
    Ready,
    /// In the ring.
    Ring,
    /// Suspended until it is woken.
    Parked,
    /// Suspended until its condition holds.
    Polled,
    /// At its end, on its stack for the last time.
    Ended,
}

/// What a switch does not need to know of a fiber.
pub(crate) struct Cold {
    pub(crate) place: Cell<Place>,
    link: Cell<u32>,
    task: Cell<Option<Box<dyn FnOnce()>>>,
    pub(crate) name: RefCell<String>,
    /// A wake that came while the fiber was not parked.
    pending: Cell<bool>,
    pub(crate) cancelled: Cell<bool>,
    /// It has begun to unwind because it was cancelled.
    unwinding: Cell<bool>,
    condition: Cell<Option<*const dyn Fn() -> bool>>,
    /// What its condition panicked with.
    raise: Cell<Option<Box<dyn Any + Send>>>,
    #[cfg(feature = "asan")]
    shadow: Cell<*mut std::ffi::c_void>,
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
    nodes: Box<[Node]>,
    colds: Box<[Cold]>,
    /// The context of the thread that drives.
    main: Node,
    slab: Slab,
    pub(crate) remote: &'static Remote,
    free: Fifo,
    ready: Fifo,
    polled: Fifo,
    /// A member of the ring, or null.
    ring: Cell<*const Node>,
    ring_len: Cell<u32>,
    team_size: u32,
    live: Cell<u32>,
    awaits: Cell<Awaits>,
    driving: Cell<bool>,
    #[cfg(feature = "asan")]
    main_shadow: Cell<*mut std::ffi::c_void>,
    #[cfg(feature = "asan")]
    main_stack: Cell<(usize, usize)>,
}

impl Links for Core {
    fn link(&self, index: u32) -> &Cell<u32> {
        &self.cold(index).link
    }
}

impl Core {
    pub(crate) fn new(fibers: u32, team_size: u32, slab: Slab, remote: &'static Remote) -> Core {
        let core = Core {
            nodes: (0..fibers).map(Node::new).collect(),
            colds: (0..fibers)
                .map(|_| Cold {
                    place: Cell::new(Place::Free),
                    link: Cell::new(NONE),
                    task: Cell::new(None),
                    name: RefCell::default(),
                    pending: Cell::new(false),
                    cancelled: Cell::new(false),
                    unwinding: Cell::new(false),
                    raise: Cell::new(None),
                    condition: Cell::new(None),
                    #[cfg(feature = "asan")]
                    shadow: Cell::new(ptr::null_mut()),
                })
                .collect(),
            main: Node::new(NONE),
            slab,
            remote,
            free: Fifo::new(),
            ready: Fifo::new(),
            polled: Fifo::new(),
            ring: Cell::new(ptr::null()),
            ring_len: Cell::new(0),
            team_size,
            live: Cell::new(0),
            awaits: Cell::new(Awaits::Rest),
            driving: Cell::new(false),
            #[cfg(feature = "asan")]
            main_shadow: Cell::new(ptr::null_mut()),
            #[cfg(feature = "asan")]
            main_stack: Cell::new((0, 0)),
        };
        (0..fibers).for_each(|index| core.free.push(&core, index));
        core
    }

    /// Calls `with` with the executor whose fiber runs; `None` outside of a fiber.
    #[inline]
    pub(crate) fn current<R>(with: impl FnOnce(&Core) -> R) -> Option<R> {
        let core = local().core.get();
        // SAFETY: set by `drive` of an executor that outlives its drive, and null or restored after it.
        if core.is_null() { None } else { Some(with(unsafe { &*core })) }
    }

    pub(crate) fn cold(&self, index: u32) -> &Cold {
        &self.colds[index as usize]
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub(crate) fn live(&self) -> u32 {
        self.live.get()
    }

    /// The fiber that runs; `None` on the context of the thread.
    #[inline]
    pub(crate) fn running(&self) -> Option<u32> {
        let local = local();
        if !ptr::eq(local.core.get(), self) {
            return None;
        }
        // SAFETY: `current` is a node of the executor that `core` names.
        let index = unsafe { (*local.current.get()).index.get() };
        (index != NONE).then_some(index)
    }

    /// What to call fiber `index` in a message.
    pub(crate) fn name(&self, index: u32) -> String {
        match self.cold(index).name.borrow() {
            name if name.is_empty() => index.to_string(),
            name => name.clone(),
        }
    }

    pub(crate) fn waker(&self, index: u32) -> Waker {
        Waker::new(self.remote, index)
    }
}

/// Birth and death.
impl Core {
    /// Puts `task` into a free slot; `None` if there is none.
    pub(crate) fn spawn(&self, name: &str, task: Box<dyn FnOnce()>) -> Result<u32, Box<dyn FnOnce()>> {
        let Some(index) = self.free.pop(self) else { return Err(task) };
        let cold = self.cold(index);
        cold.task.set(Some(task));
        cold.pending.set(false);
        cold.cancelled.set(false);
        cold.unwinding.set(false);
        let mut own = cold.name.borrow_mut();
        own.clear();
        own.push_str(name);
        drop(own);
        let node = self.node(index);
        // SAFETY: the slot was free, so nobody runs on its stack.
        unsafe { fiber::prepare(node, self.slab.get(index as usize).top) };
        self.live.set(self.live.get() + 1);
        self.make_ready(index);
        Ok(index)
    }

    /// The end of the running fiber: frees its slot and never comes back.
    fn finish(&self, index: u32) -> ! {
        self.leave_ring(index);
        self.cold(index).place.set(Place::Ended);
        let awaited = match self.awaits.get() {
            Awaits::Rest => false,
            Awaits::Slot => true,
            Awaits::End(awaited) => awaited == index,
        };
        let next = if awaited { &raw const self.main } else { self.pick() };
        // Not before: a condition asked above may spawn, and this stack is still in use.
        self.cold(index).place.set(Place::Free);
        self.free.push(self, index);
        self.live.set(self.live.get() - 1);
        fiber::retire(self.node(index));
        self.switch(next, true);
        // Nobody holds this context any more.
        std::process::abort()
    }

    /// Marks a live fiber to unwind when it next runs, and lets it run.
    pub(crate) fn cancel(&self, index: u32) {
        let cold = self.cold(index);
        if matches!(cold.place.get(), Place::Free | Place::Ended) || cold.cancelled.replace(true) {
            return;
        }
        if fiber::rest(self.node(index)) == Rest::Hopped && self.running() != Some(index) {
            // SAFETY: a hop suspended it, and `cancelled` says that it is diverted once only.
            unsafe { fiber::divert(self.node(index)) };
        }
        // The condition of one that is polled is forgotten when the poll finds it cancelled.
        if cold.place.get() == Place::Parked {
            self.make_ready(index);
        }
    }

    pub(crate) fn cancel_all(&self) {
        (0..self.nodes.len() as u32).for_each(|index| self.cancel(index));
    }
}

/// The ring.
impl Core {
    fn make_ready(&self, index: u32) {
        if self.ready.len() == 0 && self.ring_len.get() < self.team_size {
            self.join_ring(index);
            self.refresh_hold();
        } else {
            self.wait_turn(index);
        }
    }

    fn wait_turn(&self, index: u32) {
        self.cold(index).place.set(Place::Ready);
        self.ready.push(self, index);
    }

    /// After the ring has grown under the running fiber: it may have a mate now.
    fn refresh_hold(&self) {
        let local = local();
        if ptr::eq(local.core.get(), self) && self.ring_len.get() > 1 {
            if let Some(index) = self.running() && self.cold(index).place.get() == Place::Ring {
                local.hold.set(local.hold.get() & !INERT);
            }
        }
    }

    fn join_ring(&self, index: u32) {
        let node = self.node(index);
        let at = self.ring.get();
        if at.is_null() {
            node.next.set(node);
            node.prev.set(node);
            self.ring.set(node);
        } else {
            // SAFETY: members of the ring are nodes of this executor.
            unsafe {
                let before = (*at).prev.get();
                node.next.set(at);
                node.prev.set(before);
                (*before).next.set(node);
                (*at).prev.set(node);
            }
        }
        self.ring_len.set(self.ring_len.get() + 1);
        self.cold(index).place.set(Place::Ring);
    }

    fn leave_ring(&self, index: u32) {
        if self.cold(index).place.get() != Place::Ring {
            return;
        }
        let node = self.node(index);
        let (next, prev) = (node.next.get(), node.prev.get());
        if ptr::eq(next, node) {
            self.ring.set(ptr::null());
        } else {
            // SAFETY: as in `join_ring`.
            unsafe {
                (*prev).next.set(next);
                (*next).prev.set(prev);
            }
            self.ring.set(next);
        }
        self.ring_len.set(self.ring_len.get() - 1);
        node.next.set(ptr::null());
        node.prev.set(ptr::null());
    }
}

/// Who runs next.
impl Core {
    /// Takes in wakes and asks the conditions.
    fn attend(&self) {
        if self.remote.has_wakes() {
            self.remote.drain(self.nodes.len(), |index| self.wake(index));
        }
        if self.polled.len() > 0 {
            self.ask();
        }
    }

    /// Asks the conditions of the polled. What they call finds itself outside of a fiber, so that it cannot
    /// switch in the middle of our lists.
    fn ask(&self) {
        let local = local();
        let (hold, core) = (local.hold.replace(INERT), local.core.replace(ptr::null()));
        let mut hold_now = Vec::new();
        for _ in 0..self.polled.len() {
            let Some(index) = self.polled.pop(self) else { break };
            let cold = self.cold(index);
            let holds = cold.condition.get().is_none_or(|condition| {
                // SAFETY: the condition lives on the stack of the fiber, which is suspended in `block_until`.
                catch_unwind(AssertUnwindSafe(|| unsafe { (*condition)() })).unwrap_or_else(|payload| {
                    cold.raise.set(Some(payload));
                    true
                })
            });
            if holds || cold.cancelled.get() {
                hold_now.push(index);
            } else {
                self.polled.push(self, index);
            }
        }
        local.core.set(core);
        local.hold.set(hold);
        hold_now.into_iter().for_each(|index| self.make_ready(index));
    }

    fn wake(&self, index: u32) {
        let cold = self.cold(index);
        match cold.place.get() {
            Place::Parked => self.make_ready(index),
            Place::Free => {}
            _ => cold.pending.set(true),
        }
    }

    /// Wakes one of our own fibers without touching shared memory; false if it is not ours.
    pub(crate) fn wake_here(&self, executor: u32, index: u32) -> bool {
        let ours = Waker::is_of(self.remote, executor);
        if ours && (index as usize) < self.nodes.len() {
            self.wake(index);
        }
        ours
    }

    /// The context to run next; the thread's if nothing can run.
    fn pick(&self) -> *const Node {
        self.attend();
        while self.ring_len.get() < self.team_size {
            let Some(index) = self.ready.pop(self) else { break };
            self.join_ring(index);
        }
        if self.ring.get().is_null() { &raw const self.main } else { self.ring.get() }
    }

    /// Runs `to`, a context of this executor; returns when someone switches back.
    fn switch(&self, to: *const Node, last: bool) {
        let local = local();
        let from = local.current.get();
        // SAFETY: both are nodes of this executor.
        let in_ring = unsafe { !(*to).next.get().is_null() };
        local.hold.set(if in_ring && self.ring_len.get() > 1 { 0 } else { INERT });
        if ptr::eq(from, to) {
            return;
        }
        local.current.set(to);
        // SAFETY: `to` is suspended or fresh: it came from a queue, the ring, or is the thread's context,
        // and is not the running one.
        unsafe {
            #[cfg(feature = "asan")]
            self.announce(from, to, last);
            fiber::switch(from, to);
            #[cfg(feature = "asan")]
            self.arrived(from);
        }
        let _ = last;
    }

    /// Gives way, then unwinds if the fiber was cancelled meanwhile.
    fn give_way(&self, index: u32, to: *const Node) {
        let hold = local().hold.get();
        debug_assert_eq!(hold & !INERT, 0, "a fiber gives up the CPU while it holds a latch");
        self.switch(to, false);
        let latches = hold & !INERT;
        local().hold.set(local().hold.get() + latches);
        let cold = self.cold(index);
        if cold.cancelled.get() && !(cold.unwinding.get() && std::thread::panicking()) {
            fiber::panic::unwind_now();
        }
    }

    pub(crate) fn yield_now(&self) {
        let Some(index) = self.running() else { return };
        self.leave_ring(index);
        self.wait_turn(index);
        let next = self.pick();
        self.give_way(index, next);
    }

    /// The running fiber is about to unwind because it was cancelled. It has no mates from here on: a
    /// destructor that passes a point must not run others in the middle of a panic.
    pub(crate) fn begin_unwinding(&self) {
        let Some(index) = self.running() else { return };
        self.cold(index).unwinding.set(true);
        self.leave_ring(index);
        self.cold(index).place.set(Place::Ready);
        let hold = &local().hold;
        hold.set(hold.get() | INERT);
    }

    /// Waits until a slot is free.
    pub(crate) fn await_slot(&self) {
        if ptr::eq(local().core.get(), self) && self.running().is_some() {
            self.yield_now();
        } else {
            self.drive(Awaits::Slot, || self.free.len() > 0);
        }
    }

    pub(crate) fn park(&self) {
        let Some(index) = self.running() else { return std::thread::park() };
        let cold = self.cold(index);
        if self.remote.has_wakes() {
            self.attend();
        }
        if cold.pending.replace(false) {
            return;
        }
        if std::thread::panicking() {
            return self.idle();
        }
        self.leave_ring(index);
        cold.place.set(Place::Parked);
        let next = self.pick();
        self.give_way(index, next);
        cold.pending.set(false);
    }

    pub(crate) fn block_until(&self, is_ready: &dyn Fn() -> bool) {
        let Some(index) = self.running() else { return };
        if std::thread::panicking() {
            while !is_ready() {
                self.idle();
            }
            return;
        }
        self.leave_ring(index);
        let cold = self.cold(index);
        cold.place.set(Place::Polled);
        let condition: *const (dyn Fn() -> bool + '_) = is_ready;
        // SAFETY: only the lifetime changes; the pointer is used while this frame is suspended, and taken
        // back below.
        cold.condition.set(Some(unsafe { std::mem::transmute::<*const (dyn Fn() -> bool + '_), *const (dyn Fn() -> bool + 'static)>(condition) }));
        self.polled.push(self, index);
        let next = self.pick();
        self.give_way(index, next);
        cold.condition.set(None);
        if let Some(payload) = cold.raise.take() {
            resume_unwind(payload);
        }
    }
}

/// The thread's side.
impl Core {
    /// Runs fibers until `done`, which is asked each time the thread gets control, or until none is left.
    pub(crate) fn drive(&self, awaits: Awaits, mut done: impl FnMut() -> bool) {
        assert!(!self.driving.replace(true), "an executor is driven from inside of one of its own fibers or conditions");
        let local = local();
        let before = (local.core.get(), local.current.get(), local.hold.get());
        local.core.set(self);
        local.current.set(&raw const self.main);
        local.hold.set(INERT);
        while !done() && self.live.get() > 0 {
            self.awaits.set(awaits);
            let next = self.pick();
            if ptr::eq(next, &raw const self.main) {
                self.idle();
            } else {
                self.switch(next, false);
            }
        }
        self.awaits.set(Awaits::Rest);
        self.driving.set(false);
        local.core.set(before.0);
        local.current.set(before.1);
        local.hold.set(before.2);
    }

    /// Waits until something may have become ready.
    fn idle(&self) {
        let begun = Instant::now();
        loop {
            if self.remote.has_wakes() || self.polled.len() > 0 && begun.elapsed() > SPIN / 4 {
                return;
            }
            if begun.elapsed() > SPIN {
                break;
            }
            std::hint::spin_loop();
        }
        self.remote.park((self.polled.len() > 0).then_some(POLL));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.remote.release();
    }
}

/// Where a fiber begins, on its own stack.
pub(crate) extern "C" fn fiber_main(node: *const Node) -> ! {
    // SAFETY: the node of a fiber of the executor that drives this thread.
    let (core, index) = unsafe { (&*local().core.get(), (*node).index.get()) };
    #[cfg(feature = "asan")]
    // SAFETY: the switch to this stack was announced.
    unsafe {
        core.arrived(node);
    }
    let cold = core.cold(index);
    let task = cold.task.take();
    if cold.cancelled.get() {
        drop(task);
    } else if let Some(task) = task {
        // The task reports its own panics; what escapes it is the destructor of a result.
        if catch_unwind(AssertUnwindSafe(task)).is_err() {
            std::process::abort();
        }
    }
    core.finish(index)
}
