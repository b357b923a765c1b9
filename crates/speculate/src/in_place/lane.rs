//! The epochs of one thread of a loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::order::{LoopEnding, LoopOrder, Outcome};
use super::{DEPTH, InPlaceStore};
use crate::sync::Spin;
use crate::times::ns_between;
use crate::trace::EpochTrace;

/// An epoch that is not known to be settled, with its member.
struct LaneEpoch<S: InPlaceStore, I> {
    order: u64,
    member: S::Member,
    name: S::Name,
    item: I,
    /// True if the body has run since the epoch began or was rolled back.
    has_run: bool,
    has_ended: bool,
}

/// Epochs of a thread in order, and its members without an epoch.
pub(super) struct Lane<'o, 's, S: InPlaceStore, I: Iterator, R, T: FnMut(R)> {
    order: &'o LoopOrder<'s, S, I, R, T>,
    thread: usize,
    epochs: Vec<LaneEpoch<S, I::Item>>,
    idle: Vec<S::Member>,
    /// True if the store has refused a member while no other thread had one.
    is_refused: bool,
}

/// Result of an attempt to begin an epoch.
enum Begun {
    Yes,
    /// No epoch can begin now.
    NotNow,
    /// No epoch can begin any more.
    Never,
}

impl<'o, 's, S: InPlaceStore, I: Iterator, R, T: FnMut(R)> Lane<'o, 's, S, I, R, T> {
    pub(super) fn new(order: &'o LoopOrder<'s, S, I, R, T>, thread: usize) -> Self {
        Lane { order, thread, epochs: Vec::with_capacity(DEPTH), idle: Vec::new(), is_refused: false }
    }

    /// Runs epochs until the loop ends.
    pub(super) fn run(mut self, body: &(impl Fn(&mut S::Member, &I::Item) -> Result<R, S::Error> + Sync)) {
        let mut spin = Spin::default();
        loop {
            self.retire_settled();
            if self.order.is_stopped() {
                // Since then no epoch is settled any more.
                self.retire_settled();
                return self.roll_back_from(0);
            }
            if let Some(first) = self.epochs.iter().position(|epoch| self.order.store.is_wounded(epoch.name)) {
                self.order.count_repeats(self.epochs[first..].iter().filter(|epoch| epoch.has_run).count());
                self.roll_back_from(first);
                continue;
            }
            if let Some(at) = self.epochs.iter().position(|epoch| !epoch.has_ended) {
                self.run_epoch(at, body);
                spin = Spin::default();
                continue;
            }
            match self.begin() {
                Begun::Yes => {}
                Begun::NotNow => spin.pause(),
                Begun::Never if self.epochs.is_empty() => return,
                Begun::Never => spin.pause(),
            }
        }
    }

    /// Removes the epochs that are settled.
    fn retire_settled(&mut self) {
        let settled = self.order.settled();
        while self.epochs.first().is_some_and(|epoch| epoch.order <= settled) {
            let epoch = self.epochs.remove(0);
            self.idle.push(epoch.member);
        }
    }

    /// Undoes the epochs from number `first` of this thread on, the latest first.
    fn roll_back_from(&mut self, first: usize) {
        for epoch in self.epochs[first..].iter_mut().rev() {
            epoch.has_run = false;
            if std::mem::take(&mut epoch.has_ended) {
                self.order.reopen(epoch.order);
            }
            if let Err(error) = self.order.store.roll_back(&mut epoch.member) {
                self.order.fail(LoopEnding::Error(error));
            }
        }
    }

    fn run_epoch(&mut self, at: usize, body: &(impl Fn(&mut S::Member, &I::Item) -> Result<R, S::Error> + Sync)) {
        let LaneEpoch { order, member, name, item, has_run, has_ended } = &mut self.epochs[at];
        *has_run = true;
        let begun = self.order.is_traced().then(Instant::now);
        let outcome = match catch_unwind(AssertUnwindSafe(|| body(member, item))) {
            Ok(Ok(result)) => Outcome::Done(result),
            Ok(Err(error)) => Outcome::Ends(LoopEnding::Error(error)),
            Err(panic) => Outcome::Ends(LoopEnding::Panic(panic)),
        };
        let trace = begun.map(|begun| {
            let body_ns = ns_between(begun, Instant::now());
            let operations = self.order.store.operations(member, body_ns);
            EpochTrace { number: *order - 1, operations, body_ns, in_order_ns: 0 }
        });
        *has_ended = self.order.end(*order, *name, outcome, trace);
    }

    fn begin(&mut self) -> Begun {
        if self.epochs.len() == DEPTH {
            return Begun::NotNow;
        }
        if self.order.is_over() {
            return Begun::Never;
        }
        let store = self.order.store;
        let mut member = match self.idle.pop() {
            Some(member) if store.is_spent(&member) => {
                self.order.give_back(member);
                return Begun::NotNow;
            }
            Some(member) => member,
            None => match self.order.member(self.thread) {
                Ok(Some(member)) => member,
                Ok(None) if !self.epochs.is_empty() => return Begun::NotNow,
                // Other threads have all members, and the caller's thread waits for them. Another thread may also have given its
                // members back in the meantime: the second refusal counts.
                Ok(None) if self.thread == 0 && (self.order.has_members() || !self.is_refused) => {
                    self.is_refused = !self.order.has_members();
                    return Begun::NotNow;
                }
                Ok(None) => {
                    if self.thread == 0 {
                        self.order.fail(LoopEnding::NoMember);
                    }
                    return Begun::Never;
                }
                Err(error) => {
                    self.order.fail(LoopEnding::Error(error));
                    return Begun::NotNow;
                }
            },
        };
        let name = store.name(&member);
        match self.order.next(name, |order| store.begin(&mut member, order)) {
            Some((order, item)) => {
                self.epochs.push(LaneEpoch { order, member, name, item, has_run: false, has_ended: false });
                Begun::Yes
            }
            None => {
                self.idle.push(member);
                Begun::Never
            }
        }
    }
}

impl<S: InPlaceStore, I: Iterator, R, T: FnMut(R)> Drop for Lane<'_, '_, S, I, R, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic of this thread ends the loop. The other threads must not wait for its epochs.
            self.order.fail(LoopEnding::NoMember);
        }
        let epochs = self.epochs.drain(..).map(|epoch| epoch.member);
        epochs.chain(self.idle.drain(..)).for_each(|member| self.order.give_back(member));
    }
}
