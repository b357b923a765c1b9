//! Operations of a loop body on the data. The operations are recorded, and replayed if the body runs again.

use std::any::Any;
use std::cell::Cell;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::forward::{Site, Write, WriteId};
use crate::log::{Answer, Escape, Log, Op, Source, SubEpochs};
use crate::shared::{BYTES, Shared, count_change};
use crate::store::Store;
use crate::sync::atomic::Ordering;
use crate::sync::{Spin, TimeLimit};
use crate::times::Timing;

/// Number of operations after which a body is checked for an endless run. A homefree body is run again in order if it has
/// executed this number of operations, and then the same number again after it was found to be homefree. Such a body may
/// have read inconsistent values, and may never end.
const LONG_BODY: usize = 1024;

/// Maximum number of operations of a body between two checks for violations.
const CHECK_INTERVAL: usize = 64;

/// Maximum wait of a read for earlier epochs. The wait is bounded because the bodies of earlier epochs may themselves wait
/// for an event.
const MAX_WAIT: Duration = Duration::from_millis(10);

/// Panic payload that unwinds a body. After the unwinding the body runs again or is abandoned.
pub(crate) struct UnwindPayload;

/// Error: a body performed a different operation when it ran again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divergence {
    pub(crate) operation: usize,
    pub(crate) site: Site,
}

/// Waits of reads for earlier epochs, in one run of a body.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) number: u64,
    ns: u64,
    /// Start of the current wait.
    since: Option<Instant>,
    /// True if the worker commits for all workers, so that it must not wait for a commit.
    commits_for_all: bool,
    /// True if the body was ended and can only continue in order.
    pub(crate) gave_up: bool,
}

impl Waits {
    pub(crate) fn new(commits_for_all: bool) -> Waits {
        Waits { commits_for_all, ..Waits::default() }
    }

    /// Ends the current wait, if any; returns the total duration of all waits in nanoseconds.
    pub(crate) fn end(&mut self, now: Instant) -> u64 {
        if let Some(since) = self.since.take() {
            self.ns += u64::try_from(now.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
        }
        self.ns
    }
}

/// Closure that runs after its epoch has committed and passed the token on.
pub(crate) type AfterCommit = Box<dyn FnOnce() + Send>;

/// Access of a loop body to the store.
///
/// A body that is run again gets the recorded answers of its operations, up to the last checkpoint before the wrong value.
/// The body must be deterministic given its items and answers: it must not use a clock, random numbers, or shared state of
/// the program. Actions that must happen exactly once belong in the closure that is called in order, or in
/// [`Epoch::escape`].
///
/// A body with wrong answers is unwound at one of its operations (as by a panic that is not printed), so that the body
/// cannot run for ever. Destructors run; a body that catches all panics must resume the panics that it does not recognise.
pub struct Epoch<'a, S: Store> {
    pub(crate) store: &'a S,
    pub(crate) shared: &'a Shared<S>,
    pub(crate) number: u64,
    pub(crate) worker: usize,
    pub(crate) sub_epochs: SubEpochs,
    pub(crate) log: &'a mut Log<S>,
    pub(crate) local: &'a mut S::Local,
    /// Index of the next operation of the body.
    pub(crate) next: usize,
    /// Number of operations that get their recorded answers in this run.
    pub(crate) replayed: usize,
    /// In-order access to the store; `None` unless the epoch runs in order, holding the token.
    pub(crate) order: Option<&'a mut S::Order>,
    pub(crate) after_commit: &'a mut Vec<AfterCommit>,
    /// Value of `Shared::generation` at the last check of the reads.
    pub(crate) checked_generation: u64,
    /// Number of operations at which a long body was first found to be homefree.
    pub(crate) homefree_since: Option<usize>,
    pub(crate) diverged: Option<Divergence>,
    /// True if the store refused a locked read.
    pub(crate) refused: bool,
    pub(crate) waits: Waits,
    pub(crate) ids: &'a Cell<u64>,
    /// True if each iteration is followed by its `then`, which may replace values that this and earlier iterations have
    /// written.
    pub(crate) in_turn: bool,
    /// Index of the first operation of the current iteration.
    pub(crate) iteration_start: usize,
    /// Timer of this run of the body; `None` unless the loop is traced.
    pub(crate) timing: Option<Timing>,
}

impl<S: Store> Epoch<'_, S> {
    /// Returns the value of a key that a sequential run would read here; `None` if the key has no value.
    ///
    /// # Errors
    /// Returns an error of the store.
    #[track_caller]
    pub fn get(&mut self, key: &S::Key) -> Result<Option<S::Value>, S::Error> {
        self.view(key, |value| value.cloned())
    }

    /// Passes the value of a key to `show`, without a copy. The value is the same as for [`Epoch::get`].
    ///
    /// # Errors
    /// Returns an error of the store.
    #[track_caller]
    pub fn view<R>(&mut self, key: &S::Key, show: impl FnOnce(Option<&S::Value>) -> R) -> Result<R, S::Error> {
        let site = Location::caller();
        if self.must_execute() {
            self.read(key, site)?;
        } else if !self.is_read_of(key) {
            self.diverge(self.next);
        }
        self.next += 1;
        Ok(show(self.log.value(self.next - 1)))
    }

    /// Returns true if the next recorded operation is a read of this key.
    fn is_read_of(&self, key: &S::Key) -> bool {
        let op = match &self.log.ops[self.next] {
            Op::RepeatedRead { of, .. } => &self.log.ops[*of],
            op @ Op::Read { .. } => op,
            _ => return false,
        };
        matches!(op, Op::Read { key: read, .. } | Op::Write { key: read, .. } if read == key)
    }

    /// Reads a key and records the answer in the log.
    fn read(&mut self, key: &S::Key, site: Site) -> Result<(), S::Error> {
        let hash = self.shared.directory.hash(key);
        if let Some(of) = self.log.last_op(key, hash).filter(|of| *of >= self.first_unwritten()) {
            self.log.push_repeated_read(of, if self.in_turn { self.iteration_start } else { 0 }, site);
            return Ok(());
        }
        self.wait_at(site, Some((key, hash)));
        let last = self.last_before();
        let forwarded = last.and_then(|last| {
            let first = self.shared.first_concurrent(self.number);
            self.shared.directory.newest((key, hash), first, last, |write| (write.value.clone(), write.id))
        });
        let (value, source) = match (forwarded, &mut self.order) {
            (Some((value, id)), _) => (value.into(), Source::Epoch(id)),
            (None, Some(order)) => {
                let read = self.store.read(order, key).inspect_err(|_| self.refused = true);
                (read?.into(), Source::Locked)
            }
            (None, None) => match self.store.peek(self.local, key) {
                Ok((value, stamp)) => (value.into(), Source::Store(stamp)),
                Err(error) => {
                    let (key, source) = (key.clone(), Source::Failed);
                    self.log.push(
                        self.store,
                        Op::Read { key, hash, value: Answer::Absent, source, to_write: false, site },
                        hash,
                    );
                    self.next += 1;
                    return Err(error);
                }
            },
        };
        self.log.push(self.store, Op::Read { key: key.clone(), hash, value, source, to_write: false, site }, hash);
        Ok(())
    }

    /// Returns the index of the epoch's first operation whose write may not be in the store yet.
    pub(crate) fn first_unwritten(&self) -> usize {
        if self.in_turn && self.order.is_some() { self.iteration_start } else { 0 }
    }

    /// Returns the last earlier epoch whose forwarded writes may not be in the store yet.
    pub(crate) fn last_before(&self) -> Option<u64> {
        if self.in_turn && self.order.is_some() { None } else { self.shared.last_before(self.number) }
    }

    /// Announces that the body will soon read these keys: a hint that lets a store search for many keys at a time.
    pub fn announce(&mut self, keys: &[S::Key]) {
        if self.next >= self.replayed {
            self.store.announce(self.local, keys);
        }
    }

    /// Writes a value. If the write is forwarded, later epochs see it at once; the store receives the write at the commit.
    #[track_caller]
    pub fn put(&mut self, key: S::Key, value: S::Value) {
        self.write(key, Some(value), None, Location::caller());
    }

    /// Deletes the value of a key, if any.
    #[track_caller]
    pub fn delete(&mut self, key: S::Key) {
        self.write(key, None, None, Location::caller());
    }

    /// Writes or deletes a value. If the caller knows the row that the key had in a range read of the store, `of` is the
    /// index of the range read and of the row.
    pub(crate) fn write(&mut self, key: S::Key, value: Option<S::Value>, of: Option<(usize, usize)>, site: Site) {
        let recorded = self.replay(|op| match op {
            Op::Write { key: recorded, .. } if *recorded == key => Some(()),
            _ => None,
        });
        if recorded.is_some() {
            // The write has already been forwarded.
            return;
        }
        let hash = self.shared.directory.hash(&key);
        let previous = self.log.prepare_write(&key, hash, of);
        if self.shared.forwards {
            let id = WriteId(self.ids.get());
            self.ids.set(id.0 + self.shared.changes.len() as u64);
            let shared = value.map(Arc::new);
            let write =
                Write { id, epoch: self.number, operation: self.next, value: shared.clone(), site, stamp: None };
            self.shared.directory.publish((&key, hash), write);
            count_change(self.shared, self.worker);
            self.checked_generation += 1;
            self.log.push(self.store, Op::Write { key, value: shared.into(), previous, read_later: false, site }, hash);
        } else {
            self.log.push(self.store, Op::Write { key, value: value.into(), previous, read_later: false, site }, hash);
        }
        self.next += 1;
    }

    /// Runs `operation` at once, outside speculation. If the epoch is rewound to before the operation, or never commits,
    /// `undo` runs. This function is for isolated operations that can be undone: allocating memory, pinning a page, opening
    /// a cursor. A body that is run again from a later checkpoint gets a copy of the result.
    #[track_caller]
    pub fn escape<R: Clone + Send + 'static>(
        &mut self,
        operation: impl FnOnce() -> R,
        undo: impl FnOnce(R) + Send + 'static,
    ) -> R {
        let recorded = self.replay(|op| match op {
            Op::Escape { escape, .. } => escape.result.downcast_ref::<R>().cloned(),
            _ => None,
        });
        if let Some(result) = recorded {
            return result;
        }
        let result = operation();
        let (kept, undone): (Box<dyn Any + Send>, R) = (Box::new(result.clone()), result.clone());
        let escape = Escape { result: kept, undo: Some(Box::new(move || undo(undone))) };
        self.record(Op::Escape { escape, site: Location::caller() });
        result
    }

    /// Registers `run`, to be called after the epoch has committed and passed the token on, concurrently with later epochs.
    pub fn after_commit(&mut self, run: impl FnOnce() + Send + 'static) {
        self.after_commit.push(Box::new(run));
    }

    /// Returns the recorded answer of the next operation; `None` if the operation must be executed, after a check for
    /// violations. `answer` extracts the answer from the recorded operation, and returns `None` if the recorded operation is
    /// a different one: the body is then unwound.
    #[inline]
    pub(crate) fn replay<R>(&mut self, answer: impl FnOnce(&Op<S>) -> Option<R>) -> Option<R> {
        if self.must_execute() {
            return None;
        }
        let answer = answer(&self.log.ops[self.next]);
        if answer.is_none() {
            self.diverge(self.next);
        }
        self.next += 1;
        answer
    }

    /// Returns false if the next operation is replayed. If the operation must be executed, checks for violations and returns
    /// true.
    #[inline]
    fn must_execute(&mut self) -> bool {
        let must = self.next >= self.replayed;
        if must {
            if self.log.bytes > BYTES && self.order.is_none() {
                self.check_bytes();
            }
            self.check_violations();
            if let Some(timing) = &mut self.timing {
                timing.operation(&mut self.log.times);
            }
        }
        must
    }

    fn record(&mut self, op: Op<S>) {
        self.log.ops.push(op);
        self.next += 1;
    }

    /// Checks for violations at regular intervals, at least as often as there are checkpoints. A body with wrong answers is
    /// unwound.
    #[inline]
    fn check_violations(&mut self) {
        if self.order.is_none() && self.next.is_multiple_of(self.sub_epochs.operations.min(CHECK_INTERVAL)) {
            self.check_violations_now();
        }
    }

    /// Ends the body if its log exceeds the limit of bytes.
    #[cold]
    fn check_bytes(&mut self) {
        if self.log.bytes > self.shared.bytes_budget() {
            self.give_up();
        }
    }

    /// Ends the body; the epoch continues in order.
    fn give_up(&mut self) -> ! {
        self.waits.gave_up = true;
        resume_unwind(Box::new(UnwindPayload));
    }

    fn check_violations_now(&mut self) {
        if self.shared.stopped.load(Ordering::Relaxed) {
            resume_unwind(Box::new(UnwindPayload));
        }
        let generation = self.shared.generation();
        if generation != self.checked_generation {
            self.checked_generation = generation;
            if self.log.first_stale_read(self.shared, self.number).is_some() {
                resume_unwind(Box::new(UnwindPayload));
            }
        }
        if self.next >= self.shared.budget() {
            self.give_up();
        }
        // A long body may run for ever because it has read inconsistent values, and no other check would end it. If this
        // worker commits for all workers, the epoch does not become the oldest before the body ends.
        if self.next >= LONG_BODY
            && (self.waits.commits_for_all || self.shared.token.load(Ordering::Acquire) == self.number)
        {
            let since = *self.homefree_since.get_or_insert(self.next);
            if self.next - since >= LONG_BODY {
                self.waits.gave_up = self.waits.commits_for_all;
                resume_unwind(Box::new(UnwindPayload));
            }
        }
    }

    /// If reads at this site wait, waits until no earlier epoch is expected to write the key any more. If `key` is `None`,
    /// waits until no earlier epoch is expected to write any key.
    #[inline]
    pub(crate) fn wait_at(&mut self, site: Site, key: Option<(&S::Key, u64)>) {
        if !self.shared.wait_sites.is_empty() && self.order.is_none() && self.shared.wait_sites.contains(site) {
            self.wait_for(key);
        }
    }

    /// Waits until no earlier epoch is expected to write the key any more. An epoch waits only for earlier epochs, and each
    /// wait ends at the latest when the earlier epochs or the loop have ended.
    #[cold]
    fn wait_for(&mut self, key: Option<(&S::Key, u64)>) {
        if !self.may_be_written(key) {
            return;
        }
        self.waits.number += 1;
        if !self.shared.forwards && self.waits.commits_for_all {
            // The other epochs wait for commits by this worker. This epoch continues in order when it is the oldest.
            self.give_up();
        }
        self.waits.since = Some(Instant::now());
        // Under shuttle the wait has no limit, so that its models find epochs that wait for each other.
        let (mut spin, time_limit) = (Spin::default(), TimeLimit::begin(MAX_WAIT, u32::MAX));
        while self.may_be_written(key) && !(spin.is_long() && time_limit.is_over()) {
            self.check_violations_now();
            spin.pause();
        }
        self.waits.end(Instant::now());
    }

    /// Returns true if an earlier epoch that may still write the key is running. Only epochs after the newest epoch that has
    /// written the key are considered.
    fn may_be_written(&self, key: Option<(&S::Key, u64)>) -> bool {
        let token = self.shared.token.load(Ordering::Acquire);
        if token >= self.number || !self.shared.forwards {
            // Without forwarding, a write becomes visible when it is committed, so this epoch waits for all earlier commits.
            return token < self.number;
        }
        let newest = key.zip(self.number.checked_sub(1)).and_then(|(key, last)| {
            self.shared.directory.newest(key, self.shared.first_concurrent(self.number), last, |write| write.epoch)
        });
        let first = newest.map_or(token, |epoch| token.max(epoch + 1));
        self.shared.is_any_running(first, self.number)
    }

    #[cold]
    fn diverge(&mut self, operation: usize) -> ! {
        self.diverged = Some(Divergence { operation, site: self.log.ops[operation].site() });
        resume_unwind(Box::new(UnwindPayload));
    }
}

impl<S: Store> std::fmt::Debug for Epoch<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoch").field("number", &self.number).field("operations", &self.next).finish_non_exhaustive()
    }
}
