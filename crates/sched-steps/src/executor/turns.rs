//! Scheduling: the ring, the queues, and the calls by which the running fiber gives up the CPU.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr;
use std::thread::panicking;
use std::time::{Duration, Instant};

use super::core::{Condition, Core, FiberState};
use super::order::OrderReply;
use crate::context::{self, NO_MATE_FLAG, Node, call_outside, local};
use crate::fifo::{Links, NONE, UNLINKED, abort_with};
use crate::point::OperationId;
use crate::teams::{Member, Membership, NO_OPERATION, Statistics, add};

/// Minimum time that a destructor may wait for its condition during a panic, whatever the executor's limit is.
const MIN_IN_PLACE_LIMIT: Duration = Duration::from_secs(1);
/// Number of operations begun in a ring per poll of the conditions.
const POLL_EVERY: u32 = 16;

/// Insertion into and removal from the ring and the ready queue.
impl Core {
    /// Makes a fiber ready to run.
    pub(super) fn make_ready(&self, index: u32) {
        let fits_ring = self.ready.len() == 0 && self.ring_len.get() < self.team_size;
        if fits_ring && self.membership == Membership::Ring && !self.order.replaces_teams() {
            self.join_ring(index);
            self.update_hop_block();
        } else {
            self.enqueue_ready(index);
        }
    }

    fn enqueue_ready(&self, index: u32) {
        self.record(index).state.set(FiberState::Ready);
        if !self.order.replaces_teams() {
            return self.ready.push(self, index);
        }
        match self.order.call(|order| order.ready(index as usize)) {
            OrderReply::Value(()) => self.order.add_announced(1),
            OrderReply::Panicked => self.queue_announced_fibers(),
            OrderReply::Absent => self.ready.push(self, index),
        }
    }

    /// Reports to the order that the running fiber `index` has ended.
    pub(super) fn announce_end(&self, index: u32) {
        if let OrderReply::Panicked = self.order.call(|order| order.ended(index as usize)) {
            self.queue_announced_fibers();
        }
    }

    /// Moves the fibers that were announced and not chosen since into the ready queue. It is called after a panic of
    /// the order.
    #[cold]
    fn queue_announced_fibers(&self) {
        (0..self.fibers())
            .filter(|&index| self.record(index).state.get() == FiberState::Ready && self.link(index).get() == UNLINKED)
            .for_each(|index| self.ready.push(self, index));
    }

    /// Updates `hop_block_word` of the fiber on the stack after its ring has grown: the fiber may have a team mate now.
    fn update_hop_block(&self) {
        if self.ring_len.get() > 1
            && let Some((index, hop_block_word)) = self.on_stack()
            && self.record(index).state.get() == FiberState::Ring
        {
            hop_block_word.set(hop_block_word.get() & !NO_MATE_FLAG);
        }
    }

    fn join_ring(&self, index: u32) {
        let node = self.node(index);
        if !node.next.get().is_null() {
            abort_with("a fiber is twice in the ring");
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
        self.record(index).state.set(FiberState::Ring);
    }

    /// Removes a fiber from the ring, if it is a member. Its successor runs next, which is the paper's hint to the
    /// scheduler (4.1.3, step 4).
    pub(super) fn leave_ring(&self, index: u32) {
        if self.record(index).state.get() == FiberState::Ring {
            self.unlink(self.node(index));
            self.record(index).state.set(FiberState::Running);
        }
    }

    /// Unlinks the node of a member from the ring.
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

    /// Removes the fiber from the ring inside an operation, which makes it a stray.
    fn become_stray(&self, index: u32) {
        let record = self.record(index);
        if record.state.get() == FiberState::Ring {
            if let Some(counts) = self.teams.counts(record.operation.get()) {
                add(&counts.strays, 1);
            }
            self.leave_ring(index);
        }
    }
}

/// Processing of wakes and polling of conditions.
impl Core {
    /// Processes pending wakes.
    fn take_wakes(&self) {
        if self.remote.has_wakes() {
            self.remote.drain(self.fibers() as usize, |index| self.wake_fiber(index));
        }
    }

    /// Processes pending wakes and polls the conditions.
    fn process_events(&self) {
        self.take_wakes();
        if self.polled.len() > 0 {
            self.poll_conditions();
        }
    }

    /// Polls the conditions of blocked fibers. The conditions run as if outside of a fiber, so that they cannot switch
    /// while this function changes the lists.
    fn poll_conditions(&self) {
        self.begun_since_poll.set(0);
        for _ in 0..self.polled.len() {
            let Some(index) = self.polled.pop(self) else { break };
            let record = self.record(index);
            let holds = record.cancelled.get()
                || record.condition.get().is_none_or(|condition| {
                    // SAFETY: the condition is on the stack of the fiber, which waits in `block_until`: only the code
                    // below lets the fiber return from there.
                    let condition = unsafe { &*condition };
                    call_outside(condition.holds).unwrap_or_else(|payload| {
                        condition.raise.set(Some(payload));
                        true
                    })
                });
            // The condition itself may have cancelled its fiber.
            if holds || record.cancelled.get() {
                record.condition.set(None);
                self.make_ready(index);
            } else {
                self.polled.push(self, index);
            }
        }
    }

    pub(super) fn wake_fiber(&self, index: u32) {
        let record = self.record(index);
        match record.state.get() {
            FiberState::Parked => self.make_ready(index),
            FiberState::Free | FiberState::Ended => {}
            _ => record.pending.set(true),
        }
    }

    /// Makes fiber `index` ready after the fiber that it joined has ended. Does nothing if fiber `index` no longer
    /// waits in a join.
    pub(super) fn end_wait_of(&self, index: u32) {
        if self.record(index).state.get() == FiberState::Joining {
            self.make_ready(index);
        }
    }
}

/// Choice of the next context.
impl Core {
    /// Chooses the next context, on the stack of a fiber that is being suspended. Returns the thread's context if no
    /// fiber can run, or if the service callback is due.
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

    /// Chooses the next context. Returns the thread's context if no fiber can run.
    #[inline]
    pub(super) fn pick(&self) -> *const Node {
        let ring = self.ring.get();
        if self.membership == Membership::PerOperation && !ring.is_null() { ring } else { self.pick_without_team() }
    }

    /// Chooses the next context if no team is running.
    fn pick_without_team(&self) -> *const Node {
        let main = &raw const self.main;
        match self.membership {
            Membership::Ring if self.order.replaces_teams() => self.pick_in_order(),
            Membership::Ring => {
                self.process_events();
                while self.ring_len.get() < self.team_size {
                    let Some(index) = self.ready.pop(self) else { break };
                    self.join_ring(index);
                }
                if self.ring.get().is_null() { main } else { self.ring.get() }
            }
            Membership::PerOperation => self.pick_team(),
        }
    }

    /// Requests the next fiber from the embedder's order. If the order panics, the thread gets control and unwinds all
    /// fibers.
    fn pick_in_order(&self) -> *const Node {
        self.process_events();
        let choice = self.order.call(|order| {
            let Some(choice) = order.next() else {
                let held = self.order.announced();
                assert!(held == 0, "the order of an executor chooses none of the {held} fibers that can run");
                return None;
            };
            let can_run = self.records().get(choice).is_some_and(|record| record.state.get() == FiberState::Ready);
            assert!(can_run, "the order of an executor chose fiber {choice}, which cannot run");
            Some(choice as u32)
        });
        match choice {
            OrderReply::Value(Some(index)) => {
                self.order.add_announced(-1);
                self.begin_turn(index)
            }
            OrderReply::Value(None) => &raw const self.main,
            OrderReply::Panicked => {
                self.queue_announced_fibers();
                &raw const self.main
            }
            OrderReply::Absent => self.ready.pop(self).map_or(&raw const self.main, |index| self.begin_turn(index)),
        }
    }

    /// Marks fiber `index`, which is no longer in any queue, as the fiber to run next.
    #[inline]
    fn begin_turn(&self, index: u32) -> *const Node {
        self.record(index).state.set(FiberState::Running);
        self.node(index)
    }

    /// Chooses the next context in the mode with a team per operation, after the running team has dissolved. Every
    /// other ready fiber first gets one turn, so that strays can rejoin a team; then the next team is launched.
    fn pick_team(&self) -> *const Node {
        self.process_events();
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
                    let record = self.record(index);
                    Member { operation: record.operation.get(), joined: record.joined.get() }
                };
                self.teams.launch(self, self.team_size, ready, member, |index| self.join_ring(index));
                return self.ring.get();
            }
            if self.ready.len() == 0 {
                return &raw const self.main;
            }
        }
    }

    /// Switches to `to`, a context of this executor. Returns when another context switches back to the caller.
    pub(super) fn switch(&self, to: *const Node, last: bool) {
        // SAFETY: `to` is a node of this executor.
        let in_ring = unsafe { !(*to).next.get().is_null() };
        local().hop_block_word.set(if in_ring && self.ring_len.get() > 1 { 0 } else { NO_MATE_FLAG });
        self.switch_context(to, last);
    }

    /// Resumes a cancelled fiber that hopped to the thread, so that the fiber unwinds, until it has ended.
    pub(super) fn unwind_cancelled_running(&self) {
        while self.cancelled_running.get() != NONE {
            let node = self.node(self.cancelled_running.get());
            // SAFETY: a hop suspended the fiber: it has unwound at each other kind of wait, and its end resets
            // `cancelled_running`.
            unsafe { context::make_unwind(node) };
            local().hop_block_word.set(0);
            self.switch_context(node, false);
        }
    }

    /// Switches like [`Core::switch`], but the caller has set `hop_block_word`.
    fn switch_context(&self, to: *const Node, last: bool) {
        let local = local();
        let from = local.current.get();
        if ptr::eq(from, to) {
            return;
        }
        local.current.set(to);
        // SAFETY: `to` is a node of this executor.
        self.remote.record_switch(unsafe { (*to).index.get() });
        // SAFETY: `to` is suspended or fresh: it came from a queue or the ring, or is the thread's context. It is not
        // the context that runs now.
        unsafe {
            #[cfg(feature = "asan")]
            self.announce(from, to, last);
            context::switch(from, to);
            #[cfg(feature = "asan")]
            self.complete_announcement(from);
        }
        let _ = last;
    }

    /// Switches to the next context. The caller must test afterwards whether the fiber was cancelled.
    fn switch_to_next(&self) {
        let latches = local().hop_block_word.get() & !NO_MATE_FLAG;
        self.switch(self.choose(), false);
        local().hop_block_word.set(local().hop_block_word.get() + latches);
    }

    /// Performs the checks that precede each wait of the running fiber. They precede the fiber's entry into any queue,
    /// so that a panic leaves the state of the fiber unchanged. A cancelled fiber unwinds here.
    ///
    /// Returns false during a panic, when no other fiber may run.
    #[inline]
    fn may_suspend(&self, index: u32) -> bool {
        if panicking() {
            return false;
        }
        self.unwind_if_cancelled(index);
        debug_assert!(
            local().hop_block_word.get() & !NO_MATE_FLAG == 0,
            "a fiber gives up the CPU while it holds a latch"
        );
        true
    }

    pub(super) fn unwind_if_cancelled(&self, index: u32) {
        if self.record(index).cancelled.get() && !panicking() {
            context::panic::unwind_now();
        }
    }
}

/// Calls by which the running fiber begins and ends operations, and gives up the CPU.
impl Core {
    pub(crate) fn begin_operation(&self, operation: OperationId) {
        let Some(index) = self.running() else { return };
        assert!(self.teams.contains(operation), "operation {} is not one of this executor's", operation.index());
        match self.membership {
            Membership::PerOperation if self.may_suspend(index) => self.change_team(index, operation),
            // In a destructor during a panic, the fiber begins the operation without waiting for a team.
            Membership::PerOperation => self.begin_in_place(index, operation),
            Membership::Ring => {
                self.begin_in_place(index, operation);
                self.begin_in_ring(operation);
            }
        }
    }

    /// Begins `operation` on the running fiber without waiting for a team.
    fn begin_in_place(&self, index: u32, operation: OperationId) {
        self.end_operation();
        self.record(index).operation.set(operation.0);
        self.node(index).mask.set(operation.bit());
        self.teams.count_begun(operation.0);
    }

    #[inline]
    pub(crate) fn current_operation(&self) -> Option<OperationId> {
        let operation = self.record(self.running()?).operation.get();
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

    /// Moves the running fiber from its team to the waiting team of `operation`, and switches to the next fiber. Every
    /// operation of every fiber calls this function, so it bypasses [`Core::end_operation`]: a fiber that joins a team
    /// needs no turn in the ready queue.
    fn change_team(&self, index: u32, operation: OperationId) {
        let (record, node) = (self.record(index), self.node(index));
        let before = record.operation.replace(operation.0);
        if record.state.get() == FiberState::Ring {
            self.leave_team(node, before);
        }
        node.mask.set(operation.bit());
        record.joined.set(self.teams.now());
        record.state.set(FiberState::Team);
        self.teams.count_begun(operation.0);
        self.teams.join(self, index, operation);
        self.switch_to_next();
        self.unwind_if_cancelled(index);
    }

    /// Removes a fiber from the running team at the end of `operation`.
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
            // Conditions of other fibers are not polled during a panic.
        } else if self.remote.has_wakes() {
            self.process_events();
        } else if self.polled.len() > 0 {
            self.begun_since_poll.set(self.begun_since_poll.get() + 1);
            if self.begun_since_poll.get() >= POLL_EVERY {
                self.poll_conditions();
            }
        }
    }

    pub(crate) fn end_operation(&self) {
        let Some(index) = self.running() else { return };
        let record = self.record(index);
        let operation = record.operation.replace(NO_OPERATION);
        self.node(index).mask.set(u64::MAX);
        if operation == NO_OPERATION {
            return;
        }
        if record.state.get() != FiberState::Ring {
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
                record.state.set(FiberState::Running);
                let hop_block_word = &local().hop_block_word;
                hop_block_word.set(hop_block_word.get() | NO_MATE_FLAG);
            }
        }
    }

    pub(crate) fn yield_now(&self) {
        let Some(index) = self.running() else { return };
        if !self.may_suspend(index) {
            return;
        }
        if self.record(index).operation.get() == NO_OPERATION {
            self.leave_ring(index)
        } else {
            self.become_stray(index)
        }
        self.enqueue_ready(index);
        self.switch_to_next();
        self.unwind_if_cancelled(index);
    }

    pub(crate) fn park(&self) {
        let Some(index) = self.running() else { return std::thread::park() };
        let record = self.record(index);
        if !self.may_suspend(index) {
            self.take_wakes();
            if !record.pending.replace(false) {
                self.idle_in_place();
                self.take_wakes();
                record.pending.set(false);
            }
            return;
        }
        if self.remote.has_wakes() {
            self.process_events();
            self.unwind_if_cancelled(index);
        }
        if !record.pending.replace(false) {
            self.suspend(index, FiberState::Parked);
            self.unwind_if_cancelled(index);
        }
    }

    /// Suspends the running fiber until fiber `other` ends. Wakes that come meanwhile are kept for a later
    /// [`Core::park`].
    pub(super) fn await_end(&self, other: u32) {
        let Some(index) = self.running() else { return };
        if self.may_suspend(index) {
            let record = self.record(index);
            record.awaits_end_of.set(other);
            self.suspend(index, FiberState::Joining);
            record.awaits_end_of.set(NONE);
            self.unwind_if_cancelled(index);
        }
    }

    /// Suspends the running fiber until a slot is free.
    pub(super) fn park_for_slot(&self) {
        let Some(index) = self.running() else { return };
        if self.may_suspend(index) {
            self.spawners.push(self, index);
            self.suspend(index, FiberState::Slot);
            self.unwind_if_cancelled(index);
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
        let record = self.record(index);
        // Only the lifetime changes; the pointer is used only while this frame is suspended: see `poll_conditions`.
        record.condition.set(Some(condition.cast::<Condition<'static>>()));
        self.polled.push(self, index);
        self.suspend(index, FiberState::Polled);
        if record.condition.get().is_some() {
            abort_with("a fiber goes on whose condition may still be asked");
        }
        if let Some(payload) = waits_for.raise.take() {
            if record.cancelled.get() {
                // The fiber unwinds by the panic of its condition. If it catches this panic, its next hop unwinds it.
                self.isolate_cancelled(index);
            }
            resume_unwind(payload);
        }
        self.unwind_if_cancelled(index);
    }

    /// Blocks like [`Core::block_until`], in a destructor during a panic, when no other code of the executor may run.
    #[cold]
    fn block_in_place(&self, is_ready: &dyn Fn() -> bool) {
        let limit = self.limit.map(|limit| limit.max(MIN_IN_PLACE_LIMIT));
        let begun = Instant::now();
        while !is_ready() {
            self.idle_in_place();
            assert!(
                limit.is_none_or(|limit| begun.elapsed() < limit),
                "a destructor has waited for {limit:?} in the middle of a panic, where no other fiber may run"
            );
        }
    }

    fn suspend(&self, index: u32, state: FiberState) {
        let record = self.record(index);
        if let Some(counts) = self.teams.counts(record.operation.get()) {
            add(&counts.waits, 1);
        }
        self.become_stray(index);
        record.state.set(state);
        self.switch_to_next();
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.teams.statistics()
    }

    pub(crate) fn reset_statistics(&self) {
        self.teams.reset_statistics();
    }
}
