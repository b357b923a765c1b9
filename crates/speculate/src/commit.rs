//! Commit of an epoch, in loop order: the store confirms the reads, the parts with wrong reads run again, and the store
//! receives the writes.
//!
//! [`Speculator::collect`](crate::Speculator::collect) commits an epoch as a whole. In
//! [`Speculator::run`](crate::Speculator::run), `then` may write to the store. Therefore each iteration is confirmed and
//! written, and its `then` is called, before the next iteration is confirmed. If an iteration has read a value from an
//! earlier, uncommitted iteration, the value is confirmed like a value from the store. Its stamp is taken after the store
//! has received the write and before `then` runs.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use smallvec::SmallVec;

use crate::epoch::{Divergence, Epoch};
use crate::error::LoopError;
use crate::forward::Write;
use crate::log::{Op, Source};
use crate::mutant::{Mutant, is_mutant};
use crate::quiet::{Quiet, QuietVec, quietly};
use crate::shared::StaleRead;
use crate::store::{Seen, Store, Written};
use crate::worker::{Attempt, Ending, InOrder, IterationResult, IteratorPanic, Loop, Worker};

/// Number of writes of an epoch that are passed to the store without a heap allocation.
const WRITES: usize = 64;

/// Outcome of the body of an epoch, and of the epoch's last write to the store.
type CommitOutcome<E, F> = (Ending<E>, Result<(), LoopError<E, F>>);

impl<E> Ending<E> {
    /// Returns an error if the body has not repeated its recorded operations when it ran again.
    fn deterministic<F>(self) -> Result<Ending<E>, LoopError<E, F>> {
        match self {
            Ending::Diverged(Divergence { operation, site }) => Err(LoopError::NotDeterministic { operation, site }),
            ending => Ok(ending),
        }
    }
}

impl<S, I, B, H, E, T> Loop<'_, S, I, B, H, E, T>
where
    S: Store,
    I: Iterator,
    B: Fn(&mut Epoch<'_, S>, &I::Item) -> Result<T, E>,
    H: FnMut(&mut S::Order, T) -> Result<(), E>,
{
    /// Commits an epoch: confirms its reads, runs the parts with wrong reads again, and writes to the store. If the loop
    /// ends in the middle of the epoch, this function runs the closures that the committed iterations gave to
    /// [`Epoch::after_commit`].
    ///
    /// # Panics
    /// Resumes the panic that ends the loop.
    pub(crate) fn commit(
        &self,
        attempt: &mut Attempt<'_, S, I::Item, T>,
        in_order: &mut InOrder<'_, S, H>,
        ending: Ending<E>,
        iterator_panic: IteratorPanic,
    ) -> Result<(), LoopError<E, S::Error>> {
        let committing = AssertUnwindSafe(|| self.commit_iterations(attempt, in_order, ending, iterator_panic));
        let ended = catch_unwind(committing);
        if !matches!(ended, Ok(Ok(()))) {
            attempt.after_commit.0.drain(..attempt.done.after_commit).for_each(quietly);
        }
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn commit_iterations(
        &self,
        attempt: &mut Attempt<'_, S, I::Item, T>,
        in_order: &mut InOrder<'_, S, H>,
        ending: Ending<E>,
        iterator_panic: IteratorPanic,
    ) -> Result<(), LoopError<E, S::Error>> {
        let (ending, written) = if self.together {
            self.commit_together(attempt, in_order, ending)?
        } else {
            self.commit_in_turn(attempt, in_order, ending)?
        };
        let (failed, panicked) = match ending {
            Ending::Failed(error) => (error.take(), None),
            Ending::Panicked(panic) => (None, panic.take()),
            // In order, no answer is wrong, so a body that runs in order is not unwound.
            Ending::Done | Ending::Unwound | Ending::Diverged(_) => (None, None),
        };
        if let Some(panic) = panicked {
            quietly(|| drop(written));
            resume_unwind(panic);
        }
        match (written, failed) {
            // The store refused a read, and a later failure of the body may be a consequence, so the store's error is
            // reported.
            (written, Some(error)) if attempt.refused => {
                quietly(|| drop(written));
                return Err(LoopError::Body(error));
            }
            // The store refused a write that the body made before the body failed, so the store's error is reported.
            (Err(error), failed) => {
                quietly(|| drop(failed));
                return Err(error);
            }
            (Ok(()), Some(failed)) => return Err(LoopError::Body(failed)),
            (Ok(()), None) => {}
        }
        if let Some(panic) = iterator_panic.and_then(Quiet::take) {
            resume_unwind(panic);
        }
        let Worker { stats, log, .. } = &mut *attempt.worker;
        stats.epochs += 1;
        stats.operations += log.ops.len() as u64;
        self.shared.record_size(log.ops.len(), log.bytes);
        Ok(())
    }

    /// Commits an epoch as a whole; `then` has no effect that the iterations of the epoch could observe. Returns the
    /// outcomes of the body and of the last write.
    fn commit_together(
        &self,
        attempt: &mut Attempt<'_, S, I::Item, T>,
        in_order: &mut InOrder<'_, S, H>,
        mut ending: Ending<E>,
    ) -> Result<CommitOutcome<E, S::Error>, LoopError<E, S::Error>> {
        let stale = self.confirm(attempt, 0..attempt.worker.log.ops.len(), in_order.order)?;
        if stale.is_some() || matches!(ending, Ending::Unwound) {
            ending = self.run_in_order(attempt, stale, in_order.order);
        }
        let ending = ending.deterministic()?;
        let all = 0..attempt.worker.log.ops.len();
        let written = self.write(&mut attempt.worker.log.ops, all, in_order.order);
        if written.is_ok() {
            // The results are reversed, so that the first result is popped first. Results that are left after a panic are
            // ignored.
            attempt.results.0.reverse();
            while let Some(IterationResult { result, end }) = attempt.results.0.pop() {
                (in_order.then)(in_order.order, result).map_err(LoopError::Body)?;
                attempt.done.after_commit = end.after_commit;
            }
        }
        Ok((ending, written))
    }

    /// Commits the iterations of an epoch one by one. From the first iteration with a wrong read on, the iterations run in
    /// order. Returns the outcomes of the body and of the last write.
    fn commit_in_turn(
        &self,
        attempt: &mut Attempt<'_, S, I::Item, T>,
        in_order: &mut InOrder<'_, S, H>,
        mut ending: Ending<E>,
    ) -> Result<CommitOutcome<E, S::Error>, LoopError<E, S::Error>> {
        let mut results = std::mem::replace(attempt.results, QuietVec(Vec::new()));
        results.0.reverse();
        while attempt.done.iterations < attempt.items.len() {
            let returned = results.0.last();
            let end = returned.map_or(attempt.worker.log.ops.len(), |returned| returned.end.operations);
            let has_ended = returned.is_some() || !matches!(ending, Ending::Unwound);
            let stale = self.confirm(attempt, attempt.done.operations..end, in_order.order)?;
            if stale.is_some() || !has_ended {
                results.clear();
                ending = self.run_in_order(attempt, stale, in_order.order);
                std::mem::swap(&mut results, attempt.results);
                if matches!(ending, Ending::Done) {
                    // The iterations after this one have not run yet.
                    ending = Ending::Unwound;
                }
            }
            let Some(IterationResult { result, end }) = results.0.pop() else { break };
            let written = attempt.done.operations..end.operations;
            self.write(&mut attempt.worker.log.ops, written.clone(), in_order.order)?;
            self.stamp(attempt, written);
            (in_order.then)(in_order.order, result).map_err(LoopError::Body)?;
            attempt.done = end;
        }
        *attempt.results = results;
        let ending = ending.deterministic()?;
        // These are the writes that an iteration made before it failed.
        let rest = attempt.done.operations..attempt.worker.log.ops.len();
        let written = self.write(&mut attempt.worker.log.ops, rest, in_order.order);
        Ok((ending, written))
    }

    /// Runs an epoch again in order, with locked reads, from a wrong read on or from the end of its last run on.
    fn run_in_order(
        &self,
        attempt: &mut Attempt<'_, S, I::Item, T>,
        stale: Option<StaleRead>,
        order: &mut S::Order,
    ) -> Ending<E> {
        match stale {
            Some(stale) => self.rewind(attempt, stale),
            None => attempt.checkpoint = attempt.worker.log.ops.len(),
        }
        self.execute(attempt, Some(order))
    }

    /// Locks and confirms the rows that the operations in `operations` have read, in the order of the reads, up to the first
    /// changed row.
    fn confirm(
        &self,
        attempt: &mut Attempt<'_, S, I::Item, T>,
        operations: Range<usize>,
        order: &mut S::Order,
    ) -> Result<Option<StaleRead>, LoopError<E, S::Error>> {
        for at in operations.clone() {
            if let Some(stale) = attempt.worker.log.stale_read(self.shared, attempt.number, at) {
                return Ok(Some(stale));
            }
            let op = &attempt.worker.log.ops[at];
            // An earlier epoch or iteration may have changed the row in the store, so waiting for it could have helped.
            let may_wait = matches!(op, Op::Read { source: Source::Store(_) | Source::Failed, .. } | Op::Scan { .. });
            let is_right = match op {
                Op::Read { source: Source::Store(_), .. } | Op::Scan { .. } if is_mutant(Mutant::SkipValidation) => {
                    true
                }
                Op::Read { source: Source::Epoch(_), .. } if self.together || is_mutant(Mutant::ForgetThen) => true,
                Op::Read { source: Source::Locked, .. } => true,
                Op::Read { .. } => self.store_has(attempt, at, order)?,
                Op::Scan { scan, .. } => scan.confirm(self.store, order)?,
                // `then` may have replaced a value that an earlier iteration has read or written.
                Op::RepeatedRead { of, .. } if *of < operations.start => {
                    is_mutant(Mutant::ForgetThen) || self.store_has(attempt, *of, order)?
                }
                Op::Write { .. } | Op::RepeatedRead { .. } | Op::Escape { .. } => continue,
            };
            let injected = is_right && attempt.worker.injects_violation(self.inject);
            attempt.worker.stats.injected += u64::from(injected);
            if injected || !is_right {
                return Ok(Some(StaleRead { at, writer: None, may_wait, injected }));
            }
        }
        Ok(None)
    }

    /// Locks the key of operation `at` of this epoch. Returns true if the store still has the value that the operation read
    /// or wrote.
    fn store_has(
        &self,
        attempt: &Attempt<'_, S, I::Item, T>,
        at: usize,
        order: &mut S::Order,
    ) -> Result<bool, LoopError<E, S::Error>> {
        let log = &attempt.worker.log;
        let mut confirm = |key, value, stamp, to_write| {
            self.store.confirm(order, Seen { key, value, stamp, to_write }).map_err(LoopError::Store)
        };
        match &log.ops[at] {
            Op::Read { key, value, source: Source::Store(stamp), to_write, .. } => {
                confirm(key, value.get(), stamp, *to_write)
            }
            Op::Read { key, hash, value, source: Source::Epoch(id), to_write, .. } => {
                let (directory, is_it) = (&self.shared.directory, |write: &Write<_, _>| write.id == *id);
                let Some(stamp) = directory.replace_stamp((key, *hash), is_it, None) else { return Ok(false) };
                let confirmed = confirm(key, value.get(), &stamp, *to_write);
                directory.replace_stamp((key, *hash), is_it, Some(stamp));
                confirmed
            }
            Op::Write { key, value, .. } => {
                let Ok(found) = log.stamps.binary_search_by_key(&at, |(of, _)| *of) else { return Ok(false) };
                confirm(key, value.get(), &log.stamps[found].1, true)
            }
            _ => Ok(false),
        }
    }

    /// Records the stamps of the writes that the store has just received, for the epochs and iterations that have read these
    /// writes. If a peek fails, no stamp is recorded: an iteration that has read the write then runs again, in order.
    fn stamp(&self, attempt: &mut Attempt<'_, S, I::Item, T>, written: Range<usize>) {
        let number = attempt.number;
        let Worker { log, local, .. } = &mut *attempt.worker;
        let directory = &self.shared.directory;
        for at in written {
            let Op::Write { key, read_later, .. } = &log.ops[at] else { continue };
            if *read_later && let Ok((_, stamp)) = self.store.peek(local, key) {
                log.stamps.push((at, stamp));
            }
            if !self.shared.forwards {
                continue;
            }
            // Of the writes of an epoch to a key, later epochs read only the last one.
            let hash = directory.hash(key);
            if log.last_op(key, hash) == Some(at)
                && let Ok((_, stamp)) = self.store.peek(local, key)
            {
                let is_it = |write: &Write<_, _>| write.epoch == number && write.operation == at;
                directory.replace_stamp((key, hash), is_it, Some(stamp));
            }
        }
    }

    /// Passes the writes in the operations `range` to the store. The escaped operations in the range become permanent,
    /// regardless of the later end of the loop.
    fn write(
        &self,
        ops: &mut [Op<S>],
        range: Range<usize>,
        order: &mut S::Order,
    ) -> Result<(), LoopError<E, S::Error>> {
        if range.is_empty() {
            return Ok(());
        }
        for op in &mut ops[range.clone()] {
            if let Op::Escape { escape, .. } = op {
                escape.undo = None;
            }
        }
        let (ops, first) = (&*ops, range.start);
        let writes: SmallVec<[Written<'_, S>; WRITES]> =
            ops[range].iter().filter_map(|op| op.store_write(ops, first)).collect();
        self.store.write_all(order, &writes).map_err(LoopError::Store)
    }
}
