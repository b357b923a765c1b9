//! Which fiber runs next: the ring, the queues, and the moves of the running fiber.
#![allow(unsafe_code)]

use std::panic::resume_unwind;
use std::ptr;

use super::core::{Core, FiberState};
use super::order::Asked;
use crate::context::{self, INERT, Node, local, outside};
use crate::fifo::NONE;
use crate::point::OperationId;
use crate::teams::{Member, Membership, NO_OPERATION, Statistics, add};

/// In a ring, conditions are asked at the begin of one operation in so many.
const ASK_EVERY: u32 = 16;

/// The ring.
impl Core {
    /// A fiber can run that could not.
    pub(super) fn make_ready(&self, index: u32) {
        let room = self.ready.len() == 0 && self.ring_len.get() < self.team_size;
        if room && self.membership == Membership::Ring && !self.ordering.replaces_teams() {
            self.join_ring(index);
            self.refresh_hold();
        } else {
            self.wait_turn(index);
        }
    }

    fn wait_turn(&self, index: u32) {
        self.cold(index).place.set(FiberState::Ready);
        if !self.ordering.replaces_teams() {
            return self.ready.push(self, index);
        }
        match self.ordering.ask(|order| order.ready(index as usize)) {
            Asked::Answer(()) => self.ordering.holds(1),
            Asked::Failed => self.queue_what_the_order_knew(Some(index)),
            Asked::Gone => self.ready.push(self, index),
        }
    }

    /// The running fiber, number `index`, has ended.
    pub(super) fn announce_end(&self, index: u32) {
        if let Asked::Failed = self.ordering.ask(|order| order.ended(index as usize)) {
            self.queue_what_the_order_knew(None);
        }
    }

    /// The order has panicked: fibers that can run wait for their turn in the queue instead. The running fiber does not,
    /// unless it has just been `announced`.
    #[cold]
    fn queue_what_the_order_knew(&self, announced: Option<u32>) {
        let running = self.running();
        (0..self.fibers())
            .filter(|&index| self.cold(index).place.get() == FiberState::Ready)
            .filter(|&index| running != Some(index) || announced == Some(index))
            .for_each(|index| self.ready.push(self, index));
    }

    /// After the ring has grown under the running fiber: it may have a mate now.
    fn refresh_hold(&self) {
        if self.ring_len.get() > 1
            && let Some(index) = self.running()
            && self.cold(index).place.get() == FiberState::Ring
        {
            let hold = &local().hold;
            hold.set(hold.get() & !INERT);
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
        self.cold(index).place.set(FiberState::Ring);
    }

    /// Takes a fiber out of the ring, if it is in it. Its successor runs next: the paper's hint to the
    /// scheduler (4.1.3, step 4).
    pub(super) fn leave_ring(&self, index: u32) {
        if self.cold(index).place.get() == FiberState::Ring {
            self.unlink(self.node(index));
        }
    }

    /// Takes a node of the ring out of it.
    #[inline]
    fn unlink(&self, node: &Node) {
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

    /// Leaves the ring inside an operation.
    fn go_astray(&self, index: u32) {
        let cold = self.cold(index);
        if cold.place.get() == FiberState::Ring {
            if let Some(counts) = self.teams.counts(cold.operation.get()) {
                add(&counts.strays, 1);
            }
            self.leave_ring(index);
        }
    }
}

/// Wakes and conditions.
impl Core {
    /// Takes in wakes and asks the conditions.
    fn attend(&self) {
        if self.remote.has_wakes() {
            self.remote.drain(self.fibers() as usize, |index| self.wake_fiber(index));
        }
        if self.polled.len() > 0 {
            self.ask();
        }
    }

    /// Asks the conditions of the polled. What they call finds itself outside of a fiber, so that it cannot
    /// switch in the middle of our lists.
    fn ask(&self) {
        self.unasked.set(0);
        for _ in 0..self.polled.len() {
            let Some(index) = self.polled.pop(self) else { break };
            let cold = self.cold(index);
            let holds = cold.cancelled.get()
                || cold.condition.get().is_none_or(|condition| {
                    // SAFETY: the condition lives on the stack of the fiber, which is suspended in `block_until`.
                    outside(|| unsafe { (*condition)() }).unwrap_or_else(|payload| {
                        cold.raise.set(Some(payload));
                        true
                    })
                });
            if holds {
                self.make_ready(index);
            } else {
                self.polled.push(self, index);
            }
        }
    }

    pub(super) fn wake_fiber(&self, index: u32) {
        let cold = self.cold(index);
        match cold.place.get() {
            FiberState::Parked => self.make_ready(index),
            FiberState::Free | FiberState::Ended => {}
            _ => cold.pending.set(true),
        }
    }
}

/// The choice.
impl Core {
    /// The context to run next; the thread's if nothing can run.
    #[inline]
    pub(super) fn pick(&self) -> *const Node {
        let ring = self.ring.get();
        if self.callbacks.is_due() {
            &raw const self.main
        } else if self.membership == Membership::PerOperation && !ring.is_null() {
            ring
        } else {
            self.pick_anew()
        }
    }

    /// The choice where no team runs.
    fn pick_anew(&self) -> *const Node {
        let main = &raw const self.main;
        match self.membership {
            Membership::Ring if self.ordering.replaces_teams() => self.pick_in_order(),
            Membership::Ring => {
                self.attend();
                while self.ring_len.get() < self.team_size {
                    let Some(index) = self.ready.pop(self) else { break };
                    self.join_ring(index);
                }
                if self.ring.get().is_null() { main } else { self.ring.get() }
            }
            Membership::PerOperation => self.pick_team(),
        }
    }

    /// The choice of the embedder's order. When that has panicked, the thread is told, which unwinds all fibers.
    fn pick_in_order(&self) -> *const Node {
        self.attend();
        let choice = self.ordering.ask(|order| {
            let Some(choice) = order.next() else {
                let held = self.ordering.held();
                assert!(held == 0, "the order of an executor chooses none of the {held} fibers that can run");
                return None;
            };
            let can_run = self.colds().get(choice).is_some_and(|cold| cold.place.get() == FiberState::Ready);
            assert!(can_run, "the order of an executor chose fiber {choice}, which cannot run");
            Some(choice as u32)
        });
        match choice {
            Asked::Answer(Some(index)) => {
                self.ordering.holds(-1);
                self.node(index)
            }
            Asked::Answer(None) => &raw const self.main,
            Asked::Failed => {
                // A fiber that still runs, and is not parked, has given way.
                self.queue_what_the_order_knew(self.running());
                &raw const self.main
            }
            Asked::Gone => self.ready.pop(self).map_or(&raw const self.main, |index| self.node(index)),
        }
    }

    /// With a team per operation, when the running team has dissolved: everyone else who can run has a turn, so that
    /// strays may join; then the next team is launched.
    fn pick_team(&self) -> *const Node {
        self.attend();
        loop {
            let turn = self.turn.get().unwrap_or_else(|| self.ready.len());
            if turn > 0
                && let Some(index) = self.ready.pop(self)
            {
                self.turn.set(Some(turn - 1));
                return self.node(index);
            }
            self.turn.set(None);
            if !self.teams.is_empty() {
                let ready = self.teams.waiting().map(|team| team.members as u32).sum::<u32>() + self.ready.len();
                let member = |index: u32| {
                    let cold = self.cold(index);
                    Member { operation: cold.operation.get(), joined: cold.joined.get() }
                };
                self.teams.launch(self, self.team_size, ready, member, |index| self.join_ring(index));
                return self.ring.get();
            }
            if self.ready.len() == 0 {
                return &raw const self.main;
            }
        }
    }

    /// Runs `to`, a context of this executor; returns when someone switches back.
    pub(super) fn switch(&self, to: *const Node, last: bool) {
        let local = local();
        let from = local.current.get();
        // SAFETY: both are nodes of this executor.
        let in_ring = unsafe { !(*to).next.get().is_null() };
        local.hold.set(if in_ring && self.ring_len.get() > 1 { 0 } else { INERT });
        if ptr::eq(from, to) {
            return;
        }
        local.current.set(to);
        // SAFETY: as above.
        self.remote.beat(unsafe { (*to).index.get() });
        // SAFETY: `to` is suspended or fresh: it came from a queue, the ring, or is the thread's context,
        // and is not the running one.
        unsafe {
            #[cfg(feature = "asan")]
            self.announce(from, to, last);
            context::switch(from, to);
            #[cfg(feature = "asan")]
            self.arrived(from);
        }
        let _ = last;
    }

    /// Lets the next context run, and unwinds if the fiber was cancelled meanwhile.
    fn give_way(&self, index: u32) {
        let latches = local().hold.get() & !INERT;
        self.switch(self.pick(), false);
        local().hold.set(local().hold.get() + latches);
        self.heed_cancellation(index);
    }

    /// Asked before a fiber that gives way is put anywhere: a panic must find it where it was.
    #[inline]
    fn assert_no_latch(&self) {
        debug_assert!(
            std::thread::panicking() || local().hold.get() & !INERT == 0,
            "a fiber gives up the CPU while it holds a latch"
        );
    }

    pub(super) fn heed_cancellation(&self, index: u32) {
        let cold = self.cold(index);
        if cold.cancelled.get() && !(cold.unwinding.get() && std::thread::panicking()) {
            context::panic::unwind_now();
        }
    }
}

/// Moves of the running fiber.
impl Core {
    pub(crate) fn begin_operation(&self, operation: OperationId) {
        let Some(index) = self.running() else { return };
        assert!(self.teams.knows(operation), "operation {} is not one of this executor's", operation.index());
        match self.membership {
            Membership::PerOperation if !std::thread::panicking() => self.change_team(index, operation),
            // A destructor of a panic goes through on its own.
            Membership::PerOperation => self.begin_in_place(index, operation),
            Membership::Ring => {
                self.begin_in_place(index, operation);
                self.begin_in_ring(operation);
            }
        }
    }

    /// The next operation, without waiting for anybody.
    fn begin_in_place(&self, index: u32, operation: OperationId) {
        self.end_operation();
        self.cold(index).operation.set(operation.0);
        self.node(index).mask.set(operation.bit());
        self.teams.begun(operation.0);
    }

    #[inline]
    pub(crate) fn current_operation(&self) -> Option<OperationId> {
        let operation = self.cold(self.running()?).operation.get();
        (operation != NO_OPERATION).then_some(OperationId(operation))
    }

    #[inline]
    pub(crate) fn current_part(&self) -> Option<OperationId> {
        let mask = self.running_node()?.mask.get();
        (mask != u64::MAX).then(|| OperationId(mask.trailing_zeros() as u8))
    }

    #[inline]
    pub(crate) fn go_on_as(&self, part: OperationId) {
        if let Some(node) = self.running_node() {
            node.mask.set(part.bit());
        }
    }

    /// Out of the team that runs and into the one that waits for `operation`; on with the next fiber. The path of every
    /// operation of every fiber, so it does not go by way of [`Core::end_operation`]: a fiber that joins a team needs no turn.
    fn change_team(&self, index: u32, operation: OperationId) {
        self.assert_no_latch();
        let (cold, node) = (self.cold(index), self.node(index));
        let before = cold.operation.replace(operation.0);
        if cold.place.get() == FiberState::Ring {
            self.leave_team(node, before);
        }
        node.mask.set(operation.bit());
        cold.joined.set(self.teams.now());
        cold.place.set(FiberState::Team);
        self.teams.begun(operation.0);
        self.teams.join(self, index, operation);
        self.give_way(index);
    }

    /// Out of the team that runs `operation`, at its end.
    #[inline]
    fn leave_team(&self, node: &Node, operation: u8) {
        if let Some(counts) = self.teams.counts(operation) {
            add(&counts.size_out, 1);
        }
        self.unlink(node);
    }

    #[inline]
    fn begin_in_ring(&self, operation: OperationId) {
        if let Some(counts) = self.teams.counts(operation.0) {
            add(&counts.teams, 1);
            add(&counts.size_in, u64::from(self.ring_len.get()));
        }
        if self.remote.has_wakes() {
            self.attend();
        } else if self.polled.len() > 0 {
            self.unasked.set(self.unasked.get() + 1);
            if self.unasked.get() >= ASK_EVERY {
                self.ask();
            }
        }
    }

    pub(crate) fn end_operation(&self) {
        let Some(index) = self.running() else { return };
        let cold = self.cold(index);
        let operation = cold.operation.replace(NO_OPERATION);
        self.node(index).mask.set(u64::MAX);
        if operation == NO_OPERATION {
            return;
        }
        if cold.place.get() != FiberState::Ring {
            return;
        }
        match self.membership {
            Membership::Ring => {
                if let Some(counts) = self.teams.counts(operation) {
                    add(&counts.size_out, u64::from(self.ring_len.get()));
                }
            }
            Membership::PerOperation => {
                self.leave_team(self.node(index), operation);
                cold.place.set(FiberState::Ready);
                let hold = &local().hold;
                hold.set(hold.get() | INERT);
            }
        }
    }

    pub(crate) fn yield_now(&self) {
        let Some(index) = self.running() else { return };
        if std::thread::panicking() {
            return;
        }
        self.assert_no_latch();
        if self.cold(index).operation.get() == NO_OPERATION {
            self.leave_ring(index)
        } else {
            self.go_astray(index)
        }
        self.wait_turn(index);
        self.give_way(index);
    }

    pub(crate) fn park(&self) {
        self.park_for(NONE);
    }

    /// The running fiber waits for the end of fiber `other`, or for anything that wakes it.
    pub(super) fn park_for(&self, other: u32) {
        let Some(index) = self.running() else { return std::thread::park() };
        self.assert_no_latch();
        let cold = self.cold(index);
        if self.remote.has_wakes() {
            self.attend();
        }
        if cold.pending.replace(false) {
            return;
        }
        if std::thread::panicking() {
            return self.idle_in_place();
        }
        cold.awaits_end_of.set(other);
        self.suspend(index, FiberState::Parked);
        cold.pending.set(false);
    }

    /// The running fiber waits until another one has ended.
    pub(super) fn park_for_slot(&self) {
        let Some(index) = self.running() else { return };
        if std::thread::panicking() {
            return;
        }
        self.assert_no_latch();
        self.spawners.push(self, index);
        self.suspend(index, FiberState::Slot);
    }

    pub(crate) fn block_until(&self, is_ready: &dyn Fn() -> bool) {
        let Some(index) = self.running() else {
            while !is_ready() {
                std::thread::yield_now();
            }
            return;
        };
        if std::thread::panicking() {
            while !is_ready() {
                self.idle_in_place();
            }
            return;
        }
        self.assert_no_latch();
        let condition: *const (dyn Fn() -> bool + '_) = is_ready;
        // SAFETY: only the lifetime changes; the pointer is used while this frame is suspended, and no
        // poll asks once the fiber is no longer among the polled.
        let condition = unsafe {
            std::mem::transmute::<*const (dyn Fn() -> bool + '_), *const (dyn Fn() -> bool + 'static)>(condition)
        };
        let cold = self.cold(index);
        cold.condition.set(Some(condition));
        self.polled.push(self, index);
        self.suspend(index, FiberState::Polled);
        if let Some(payload) = cold.raise.take() {
            resume_unwind(payload);
        }
    }

    fn suspend(&self, index: u32, place: FiberState) {
        let cold = self.cold(index);
        if let Some(counts) = self.teams.counts(cold.operation.get()) {
            add(&counts.waits, 1);
        }
        self.go_astray(index);
        cold.place.set(place);
        self.give_way(index);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.teams.statistics()
    }

    pub(crate) fn reset_statistics(&self) {
        self.teams.reset_statistics();
    }
}
