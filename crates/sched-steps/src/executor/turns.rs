//! Which fiber runs next: the ring, the queues, and the moves of the running fiber.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr;
use std::thread::panicking;
use std::time::{Duration, Instant};

use super::core::{Condition, Core, FiberState};
use super::order::Asked;
use crate::context::{self, INERT, Node, local, outside};
use crate::fifo::{Links, NONE, UNLINKED, broken};
use crate::point::OperationId;
use crate::teams::{Member, Membership, NO_OPERATION, Statistics, add};

/// How long a destructor may wait for its condition in the middle of a panic, whatever the executor's limit is.
const IN_PLACE_AT_LEAST: Duration = Duration::from_secs(1);
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
            Asked::Failed => self.queue_what_the_order_knew(),
            Asked::Gone => self.ready.push(self, index),
        }
    }

    /// The running fiber, number `index`, has ended.
    pub(super) fn announce_end(&self, index: u32) {
        if let Asked::Failed = self.ordering.ask(|order| order.ended(index as usize)) {
            self.queue_what_the_order_knew();
        }
    }

    /// The order has panicked: fibers that were announced and not chosen since wait for their turn in the queue instead.
    #[cold]
    fn queue_what_the_order_knew(&self) {
        (0..self.fibers())
            .filter(|&index| self.cold(index).place.get() == FiberState::Ready && self.link(index).get() == UNLINKED)
            .for_each(|index| self.ready.push(self, index));
    }

    /// After the ring has grown under the fiber on the stack: it may have a mate now.
    fn refresh_hold(&self) {
        if self.ring_len.get() > 1
            && let Some((index, hold)) = self.on_stack()
            && self.cold(index).place.get() == FiberState::Ring
        {
            hold.set(hold.get() & !INERT);
        }
    }

    fn join_ring(&self, index: u32) {
        let node = self.node(index);
        if !node.next.get().is_null() {
            broken("a fiber is twice in the ring");
        }
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
            self.cold(index).place.set(FiberState::Running);
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
    /// Takes in wakes.
    fn take_wakes(&self) {
        if self.remote.has_wakes() {
            self.remote.drain(self.fibers() as usize, |index| self.wake_fiber(index));
        }
    }

    /// Takes in wakes and asks the conditions.
    fn attend(&self) {
        self.take_wakes();
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
                    // SAFETY: the condition lives on the stack of the fiber, which waits in `block_until`: only what
                    // follows here lets it return from there.
                    let condition = unsafe { &*condition };
                    outside(condition.holds).unwrap_or_else(|payload| {
                        condition.raise.set(Some(payload));
                        true
                    })
                });
            // The condition itself may have cancelled it.
            if holds || cold.cancelled.get() {
                cold.condition.set(None);
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

    /// A fiber has ended that fiber `index` waited for when it was last asked.
    pub(super) fn end_wait_of(&self, index: u32) {
        if self.cold(index).place.get() == FiberState::Joining {
            self.make_ready(index);
        }
    }
}

/// The choice.
impl Core {
    /// The context to run next, chosen on the stack of a fiber that gives way; the thread's if nothing can run, or if it has
    /// to serve.
    #[inline]
    pub(super) fn choose(&self) -> *const Node {
        if self.callbacks.count() {
            return &raw const self.main;
        }
        self.choosing.set(true);
        let next = self.pick();
        self.choosing.set(false);
        next
    }

    /// The context to run next; the thread's if nothing can run.
    #[inline]
    pub(super) fn pick(&self) -> *const Node {
        let ring = self.ring.get();
        if self.membership == Membership::PerOperation && !ring.is_null() { ring } else { self.pick_anew() }
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
                self.begin_turn(index)
            }
            Asked::Answer(None) => &raw const self.main,
            Asked::Failed => {
                self.queue_what_the_order_knew();
                &raw const self.main
            }
            Asked::Gone => self.ready.pop(self).map_or(&raw const self.main, |index| self.begin_turn(index)),
        }
    }

    /// Fiber `index`, which is in no queue any more, runs next.
    #[inline]
    fn begin_turn(&self, index: u32) -> *const Node {
        self.cold(index).place.set(FiberState::Running);
        self.node(index)
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
                return self.begin_turn(index);
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
        // SAFETY: a node of this executor.
        let in_ring = unsafe { !(*to).next.get().is_null() };
        local().hold.set(if in_ring && self.ring_len.get() > 1 { 0 } else { INERT });
        self.go_to(to, last);
    }

    /// The thread has control: a cancelled fiber that hops brings it here, and goes back to unwind, until it has ended.
    pub(super) fn send_back_condemned(&self) {
        while self.condemned.get() != NONE {
            let node = self.node(self.condemned.get());
            // SAFETY: a hop suspended it: at each other wait it has unwound, and at its end it is condemned no more.
            unsafe { context::divert(node) };
            local().hold.set(0);
            self.go_to(node, false);
        }
    }

    /// The same as [`Core::switch`], with `hold` as the fiber finds it.
    fn go_to(&self, to: *const Node, last: bool) {
        let local = local();
        let from = local.current.get();
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

    /// Lets the next context run. A fiber that gives way looks afterwards whether it was cancelled.
    fn give_way(&self) {
        let latches = local().hold.get() & !INERT;
        self.switch(self.choose(), false);
        local().hold.set(local().hold.get() + latches);
    }

    /// What each wait of the running fiber does before it is put anywhere: a panic finds it where it was. One that was
    /// cancelled unwinds.
    ///
    /// False in the middle of a panic, where no other fiber may run.
    #[inline]
    fn may_suspend(&self, index: u32) -> bool {
        if panicking() {
            return false;
        }
        self.heed_cancellation(index);
        debug_assert!(local().hold.get() & !INERT == 0, "a fiber gives up the CPU while it holds a latch");
        true
    }

    pub(super) fn heed_cancellation(&self, index: u32) {
        if self.cold(index).cancelled.get() && !panicking() {
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
            Membership::PerOperation if self.may_suspend(index) => self.change_team(index, operation),
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
        self.give_way();
        self.heed_cancellation(index);
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
        if panicking() {
            // No condition of another fiber is asked in the middle of a panic.
        } else if self.remote.has_wakes() {
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
                cold.place.set(FiberState::Running);
                let hold = &local().hold;
                hold.set(hold.get() | INERT);
            }
        }
    }

    pub(crate) fn yield_now(&self) {
        let Some(index) = self.running() else { return };
        if !self.may_suspend(index) {
            return;
        }
        if self.cold(index).operation.get() == NO_OPERATION {
            self.leave_ring(index)
        } else {
            self.go_astray(index)
        }
        self.wait_turn(index);
        self.give_way();
        self.heed_cancellation(index);
    }

    pub(crate) fn park(&self) {
        let Some(index) = self.running() else { return std::thread::park() };
        let cold = self.cold(index);
        if !self.may_suspend(index) {
            self.take_wakes();
            if !cold.pending.replace(false) {
                self.idle_in_place();
                self.take_wakes();
                cold.pending.set(false);
            }
            return;
        }
        if self.remote.has_wakes() {
            self.attend();
            self.heed_cancellation(index);
        }
        if !cold.pending.replace(false) {
            self.suspend(index, FiberState::Parked);
            self.heed_cancellation(index);
        }
    }

    /// The running fiber waits for the end of fiber `other`. Wakes that come meanwhile are kept for a [`Core::park`].
    pub(super) fn await_end(&self, other: u32) {
        let Some(index) = self.running() else { return };
        if self.may_suspend(index) {
            let cold = self.cold(index);
            cold.awaits_end_of.set(other);
            self.suspend(index, FiberState::Joining);
            cold.awaits_end_of.set(NONE);
            self.heed_cancellation(index);
        }
    }

    /// The running fiber waits until another one has ended.
    pub(super) fn park_for_slot(&self) {
        let Some(index) = self.running() else { return };
        if self.may_suspend(index) {
            self.spawners.push(self, index);
            self.suspend(index, FiberState::Slot);
            self.heed_cancellation(index);
        }
    }

    pub(crate) fn block_until(&self, is_ready: &dyn Fn() -> bool) {
        let Some(index) = self.running() else {
            while !is_ready() {
                std::thread::yield_now();
            }
            return;
        };
        if !self.may_suspend(index) {
            return self.block_in_place(is_ready);
        }
        let waits_for = Condition { holds: is_ready, raise: Cell::new(None) };
        let condition: *const Condition<'_> = &raw const waits_for;
        let cold = self.cold(index);
        // Only the lifetime changes; the pointer is used while this frame is suspended: see `ask`.
        cold.condition.set(Some(condition.cast::<Condition<'static>>()));
        self.polled.push(self, index);
        self.suspend(index, FiberState::Polled);
        if cold.condition.get().is_some() {
            broken("a fiber goes on whose condition may still be asked");
        }
        if let Some(payload) = waits_for.raise.take() {
            resume_unwind(payload);
        }
        self.heed_cancellation(index);
    }

    /// The same in a destructor that runs in the middle of a panic, where nothing else of the executor may run.
    #[cold]
    fn block_in_place(&self, is_ready: &dyn Fn() -> bool) {
        let limit = self.limit.map(|limit| limit.max(IN_PLACE_AT_LEAST));
        let begun = Instant::now();
        while !is_ready() {
            self.idle_in_place();
            assert!(
                limit.is_none_or(|limit| begun.elapsed() < limit),
                "a destructor has waited for {limit:?} in the middle of a panic, where no other fiber may run"
            );
        }
    }

    fn suspend(&self, index: u32, place: FiberState) {
        let cold = self.cold(index);
        if let Some(counts) = self.teams.counts(cold.operation.get()) {
            add(&counts.waits, 1);
        }
        self.go_astray(index);
        cold.place.set(place);
        self.give_way();
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.teams.statistics()
    }

    pub(crate) fn reset_statistics(&self) {
        self.teams.reset_statistics();
    }
}
