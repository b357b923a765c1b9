//! The order of a loop: its items, the epochs that are not settled, and the end.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::{InPlaceStats, InPlaceStore};
use crate::quiet::discard;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::times::ns_between;
use crate::trace::{EpochTrace, LoopTrace};

/// Reason for which a loop ends before its last item.
pub(super) enum LoopEnding<E> {
    Error(E),
    NoMember,
    Panic(Box<dyn Any + Send>),
}

/// Result of a body.
pub(super) enum Outcome<R, E> {
    Done(R),
    Ends(LoopEnding<E>),
}

/// An epoch that is not settled.
struct OpenEpoch<N, R, E> {
    name: N,
    /// Result of the body, once it has ended.
    outcome: Option<Outcome<R, E>>,
    /// Trace of the epoch up to the end of its body, in a traced loop.
    trace: Option<EpochTrace>,
}

/// Part of the order that one thread at a time changes.
struct Progress<S: InPlaceStore, I, R, T> {
    items: I,
    /// The epochs that are not settled, in order.
    open: VecDeque<OpenEpoch<S::Name, R, S::Error>>,
    ending: Option<LoopEnding<S::Error>>,
    then: T,
    /// Trace of the settled epochs, in a traced loop.
    trace: Option<LoopTrace>,
}

/// The shared state of a loop.
pub(super) struct LoopOrder<'s, S: InPlaceStore, I, R, T> {
    pub(super) store: &'s S,
    /// Begin of the loop, if it is traced.
    traced_since: Option<Instant>,
    progress: CachePadded<Mutex<Progress<S, I, R, T>>>,
    /// Number of settled epochs, which is the place of the last of them.
    settled: CachePadded<AtomicU64>,
    /// Number of members that threads have.
    members: AtomicUsize,
    /// Number of epochs that were rolled back to run again.
    repeats: AtomicU64,
    /// True if there are no more items.
    over: AtomicBool,
    /// True if no more epochs begin, and those that are not settled are rolled back.
    stopped: AtomicBool,
}

impl<'s, S: InPlaceStore, I: Iterator, R, T: FnMut(R)> LoopOrder<'s, S, I, R, T> {
    pub(super) fn new(store: &'s S, items: I, then: T, traced: bool) -> Self {
        let trace = traced.then(LoopTrace::default);
        LoopOrder {
            store,
            traced_since: traced.then(Instant::now),
            progress: CachePadded::new(Mutex::new(Progress {
                items,
                open: VecDeque::new(),
                ending: None,
                then,
                trace,
            })),
            settled: CachePadded::default(),
            members: AtomicUsize::new(0),
            repeats: AtomicU64::new(0),
            over: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns a new member for a thread.
    pub(super) fn member(&self, thread: usize) -> Result<Option<S::Member>, S::Error> {
        // Counted before, so that a thread without a member never misses one that another thread is about to get.
        self.members.fetch_add(1, Ordering::AcqRel);
        let member = self.store.member(thread);
        if !matches!(member, Ok(Some(_))) {
            self.members.fetch_sub(1, Ordering::AcqRel);
        }
        member
    }

    /// Takes a member back from a thread.
    pub(super) fn give_back(&self, member: S::Member) {
        self.store.give_back(member);
        self.members.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns true if the epochs of the loop are traced.
    pub(super) fn is_traced(&self) -> bool {
        self.traced_since.is_some()
    }

    /// Returns true if a thread has a member.
    pub(super) fn has_members(&self) -> bool {
        self.members.load(Ordering::Acquire) > 0
    }

    /// Returns the place of the last settled epoch.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Returns true if the epochs that are not settled have to be rolled back.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Begins the next epoch with this member. Returns its place and its item, or `None` if no epoch can begin. `begin` tells
    /// the store.
    // Never inlined: experiments count its instructions under this name.
    #[inline(never)]
    pub(super) fn next(&self, name: S::Name, begin: impl FnOnce(u64)) -> Option<(u64, I::Item)> {
        let mut progress = self.progress.lock();
        if self.is_over() || self.is_stopped() {
            return None;
        }
        let item = match catch_unwind(AssertUnwindSafe(|| progress.items.next())) {
            Ok(Some(item)) => item,
            Ok(None) => {
                self.over.store(true, Ordering::Relaxed);
                return None;
            }
            Err(panic) => {
                self.stop(&mut progress, LoopEnding::Panic(panic));
                return None;
            }
        };
        let order = self.settled.load(Ordering::Relaxed) + progress.open.len() as u64 + 1;
        begin(order);
        progress.open.push_back(OpenEpoch { name, outcome: None, trace: None });
        Some((order, item))
    }

    /// Returns true if all items have been given out.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Notes that the body of an epoch has ended, and settles the epochs that can be settled. Returns false if the epoch has
    /// been wounded: it must be rolled back and run again.
    // Never inlined: experiments count its instructions under this name.
    #[inline(never)]
    pub(super) fn end(
        &self,
        order: u64,
        name: S::Name,
        outcome: Outcome<R, S::Error>,
        trace: Option<EpochTrace>,
    ) -> bool {
        let mut awaited = Vec::new();
        {
            let mut progress = self.progress.lock();
            if self.store.is_wounded(name) || self.is_stopped() {
                drop_outcome(outcome);
                return false;
            }
            if let Outcome::Ends(LoopEnding::Error(error)) = &outcome
                && self.store.is_fatal(error)
            {
                if let Outcome::Ends(ending) = outcome {
                    self.stop(&mut progress, ending);
                }
                return false;
            }
            let at = (order - self.settled.load(Ordering::Relaxed) - 1) as usize;
            progress.open[at].outcome = Some(outcome);
            progress.open[at].trace = trace;
            while let Some(OpenEpoch { name, outcome: Some(_), .. }) = progress.open.front() {
                let begun = self.is_traced().then(Instant::now);
                let name = *name;
                // All earlier epochs have ended, so none can wound this one any more. One may have done so since it ended: its
                // thread rolls it back and runs it again.
                if self.store.is_wounded(name) {
                    break;
                }
                if self.store.settle(name) {
                    awaited.push(name);
                }
                let Some(epoch) = progress.open.pop_front() else { break };
                self.settled.fetch_add(1, Ordering::Release);
                let ending = match epoch.outcome {
                    Some(Outcome::Done(result)) => {
                        let then = &mut progress.then;
                        catch_unwind(AssertUnwindSafe(|| then(result))).err().map(LoopEnding::Panic)
                    }
                    Some(Outcome::Ends(ending)) => Some(ending),
                    None => None,
                };
                if let (Some(begun), Some(mut of_epoch)) = (begun, epoch.trace)
                    && let Some(trace) = &mut progress.trace
                {
                    of_epoch.in_order_ns = ns_between(begun, Instant::now());
                    trace.epochs.push(of_epoch);
                }
                if let Some(ending) = ending {
                    self.stop(&mut progress, ending);
                    break;
                }
            }
        }
        awaited.into_iter().for_each(|name| self.store.wake(name));
        true
    }

    /// Takes back the end of an epoch that has been wounded since.
    pub(super) fn reopen(&self, order: u64) {
        let mut progress = self.progress.lock();
        let Some(at) = (order - 1).checked_sub(self.settled.load(Ordering::Relaxed)) else { return };
        if let Some(epoch) = progress.open.get_mut(at as usize)
            && let Some(outcome) = epoch.outcome.take()
        {
            drop_outcome(outcome);
        }
    }

    /// Counts epochs that were rolled back to run again.
    pub(super) fn count_repeats(&self, epochs: usize) {
        self.repeats.fetch_add(epochs as u64, Ordering::Relaxed);
    }

    /// Returns the counters of the loop.
    pub(super) fn stats(&self) -> InPlaceStats {
        InPlaceStats { epochs: self.settled(), repeats: self.repeats.load(Ordering::Relaxed) }
    }

    /// Ends the loop because a thread has no member, or because the store has failed.
    pub(super) fn fail(&self, ending: LoopEnding<S::Error>) {
        self.stop(&mut self.progress.lock(), ending);
    }

    fn stop(&self, progress: &mut Progress<S, I, R, T>, ending: LoopEnding<S::Error>) {
        if progress.ending.is_none() {
            progress.ending = Some(ending);
        } else if let LoopEnding::Panic(panic) = ending {
            discard(panic);
        }
        self.stopped.store(true, Ordering::Release);
        for epoch in &progress.open {
            self.store.interrupt(epoch.name);
        }
    }

    /// Returns the reason for which the loop has ended before its last item, and the trace of a traced loop.
    pub(super) fn into_ending(self) -> (Option<LoopEnding<S::Error>>, Option<LoopTrace>) {
        let Progress { ending, mut trace, .. } = CachePadded::into_inner(self.progress).into_inner();
        if let (Some(since), Some(trace)) = (self.traced_since, &mut trace) {
            trace.elapsed_ns = ns_between(since, Instant::now());
        }
        (ending, trace)
    }
}

fn drop_outcome<R, E>(outcome: Outcome<R, E>) {
    crate::quiet::quietly(|| match outcome {
        Outcome::Ends(LoopEnding::Panic(panic)) => discard(panic),
        outcome => drop(outcome),
    });
}
