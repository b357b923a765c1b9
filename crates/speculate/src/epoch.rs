//! What the body of a loop does to the data: operations that are recorded, answered, and answered again.

use std::any::Any;
use std::cell::Cell;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::forward::{Site, Write, WriteId};
use crate::log::{Answer, Escape, Log, Op, Source, SubEpochs};
use crate::shared::{BYTES, Shared, changed};
use crate::store::Store;
use crate::sync::atomic::Ordering;
use crate::sync::{Patience, Spin};
use crate::times::Timing;

/// A body that is homefree and has so many operations behind it, and so many more, is run again in order: it may have read
/// what is not so, and never end.
const LONG: usize = 1024;

/// A body looks after at most so many operations whether its answers are still right.
const LOOK_AROUND: usize = 64;

/// A read waits for earlier epochs at most so long: their bodies may wait for something themselves.
const MOST_WAIT: Duration = Duration::from_millis(10);

/// Unwinds a body that is to run again, or not at all.
pub(crate) struct Unwind;

/// A body did something else when it ran again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diverged {
    pub(crate) operation: usize,
    pub(crate) site: Site,
}

/// How the reads of a run of a body have waited for earlier epochs.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) number: u64,
    ns: u64,
    /// When the one that waits began to.
    since: Option<Instant>,
    /// The worker commits for all, so it must not wait for a commit.
    commits_for_all: bool,
    /// The body ended where it can only go on in order.
    pub(crate) gave_up: bool,
}

impl Waits {
    pub(crate) fn new(commits_for_all: bool) -> Waits {
        Waits { commits_for_all, ..Waits::default() }
    }

    /// Ends the wait that is on, if there is one; returns how long all have taken, in nanoseconds.
    pub(crate) fn end(&mut self, now: Instant) -> u64 {
        if let Some(since) = self.since.take() {
            self.ns += u64::try_from(now.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
        }
        self.ns
    }
}

/// A closure that runs when its epoch has passed the token on.
pub(crate) type AfterCommit = Box<dyn FnOnce() + Send>;

/// The operations of the body of a speculative loop.
///
/// A body that is run again gets the answers it got before, up to the last checkpoint before the value that was wrong.
/// It must be deterministic given its items and answers: no clock, no random numbers, no shared state of the program.
/// What has to happen exactly once belongs into the closure that is called in order, or into [`Epoch::escape`].
///
/// A body whose answers were wrong is unwound at one of its operations (as by a panic that is not printed), so that it
/// cannot go on for ever. Destructors run; a body that catches all panics must let those on that it does not know.
pub struct Epoch<'a, S: Store> {
    pub(crate) store: &'a S,
    pub(crate) shared: &'a Shared<S>,
    pub(crate) number: u64,
    pub(crate) worker: usize,
    pub(crate) sub_epochs: SubEpochs,
    pub(crate) log: &'a mut Log<S>,
    pub(crate) local: &'a mut S::Local,
    /// Where the next operation goes.
    pub(crate) next: usize,
    /// Operations before this one get their recorded answers.
    pub(crate) replayed: usize,
    /// The in-order side, while the epoch runs holding the token.
    pub(crate) order: Option<&'a mut S::Order>,
    pub(crate) after_commit: &'a mut Vec<AfterCommit>,
    /// The generation at which the reads were last looked at.
    pub(crate) looked_at: u64,
    /// The operation at which a long body was first seen to be homefree.
    pub(crate) homefree_since: Option<usize>,
    pub(crate) diverged: Option<Diverged>,
    /// The store has refused a read in order.
    pub(crate) refused: bool,
    pub(crate) waits: Waits,
    pub(crate) ids: &'a Cell<u64>,
    /// Each iteration is followed by its `then`, which may replace what the iteration and those before have written.
    pub(crate) in_turn: bool,
    /// Where the operations of the iteration begin.
    pub(crate) begun_at: usize,
    /// None unless the loop is traced.
    pub(crate) timing: Option<Timing>,
}

impl<S: Store> Epoch<'_, S> {
    /// The value of a key, as a sequential run would find it here; `None` if it has none.
    ///
    /// # Errors
    /// Those of the store.
    #[track_caller]
    pub fn get(&mut self, key: &S::Key) -> Result<Option<S::Value>, S::Error> {
        self.view(key, |value| value.cloned())
    }

    /// Shows the value of a key to `show`, as [`Epoch::get`] returns it, without a copy.
    ///
    /// # Errors
    /// Those of the store.
    #[track_caller]
    pub fn view<R>(&mut self, key: &S::Key, show: impl FnOnce(Option<&S::Value>) -> R) -> Result<R, S::Error> {
        let site = Location::caller();
        if self.must_do() {
            self.read(key, site)?;
        } else if !self.is_read_of(key) {
            self.diverge(self.next);
        }
        self.next += 1;
        Ok(show(self.log.value(self.next - 1)))
    }

    /// Whether the next recorded operation is a read of this key.
    fn is_read_of(&self, key: &S::Key) -> bool {
        let op = match &self.log.ops[self.next] {
            Op::Again { of, .. } => &self.log.ops[*of],
            op @ Op::Read { .. } => op,
            _ => return false,
        };
        matches!(op, Op::Read { key: read, .. } | Op::Write { key: read, .. } if read == key)
    }

    /// Reads a key and records what came of it.
    fn read(&mut self, key: &S::Key, site: Site) -> Result<(), S::Error> {
        let hash = self.shared.directory.hash(key);
        if let Some(of) = self.log.last(key, hash).filter(|of| *of >= self.own_from()) {
            self.log.push_again(of, if self.in_turn { self.begun_at } else { 0 }, site);
            return Ok(());
        }
        self.wait_at(site, Some((key, hash)));
        let last = self.last_before();
        let forwarded = last.and_then(|last| {
            let first = self.shared.first_beside(self.number);
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

    /// The first of the epoch's operations whose writes may not be in the store yet.
    pub(crate) fn own_from(&self) -> usize {
        if self.in_turn && self.order.is_some() { self.begun_at } else { 0 }
    }

    /// The last epoch whose writes may not be in the store yet, and are forwarded.
    pub(crate) fn last_before(&self) -> Option<u64> {
        if self.in_turn && self.order.is_some() { None } else { self.shared.last_before(self.number) }
    }

    /// Says that the body will soon get these keys: a hint, by which a store may search for many at a time.
    pub fn announce(&mut self, keys: &[S::Key]) {
        if self.next >= self.replayed {
            self.store.announce(self.local, keys);
        }
    }

    /// Writes a value. Later epochs see it at once, the store in order.
    #[track_caller]
    pub fn put(&mut self, key: S::Key, value: S::Value) {
        self.write(key, Some(value), None, Location::caller());
    }

    /// Deletes a value, if there is one.
    #[track_caller]
    pub fn delete(&mut self, key: S::Key) {
        self.write(key, None, None, Location::caller());
    }

    /// Writes or deletes. `of` is a read of a range and the row of the key in it, as the store had it, where that is known.
    pub(crate) fn write(&mut self, key: S::Key, value: Option<S::Value>, of: Option<(usize, usize)>, site: Site) {
        let recorded = self.replay(|op| match op {
            Op::Write { key: recorded, .. } if *recorded == key => Some(()),
            _ => None,
        });
        if recorded.is_some() {
            // It has been forwarded already.
            return;
        }
        let hash = self.shared.directory.hash(&key);
        let before = self.log.written(&key, hash, of);
        if self.shared.forwards {
            let id = WriteId(self.ids.get());
            self.ids.set(id.0 + self.shared.changes.len() as u64);
            let shared = value.map(Arc::new);
            let write =
                Write { id, epoch: self.number, operation: self.next, value: shared.clone(), site, stamp: None };
            self.shared.directory.publish((&key, hash), write);
            changed(self.shared, self.worker);
            self.looked_at += 1;
            self.log.push(self.store, Op::Write { key, value: shared.into(), before, read_later: false, site }, hash);
        } else {
            self.log.push(self.store, Op::Write { key, value: value.into(), before, read_later: false, site }, hash);
        }
        self.next += 1;
    }

    /// Runs `operation` at once, outside speculation, and `undo` if the epoch is rewound to before it or never commits.
    /// For what is isolated and can be undone: memory taken, a page pinned, a cursor opened. When the body is run again
    /// from a later checkpoint, it gets a copy of the result.
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

    /// Has `run` called when the epoch has committed and passed the token on, beside later epochs.
    pub fn after_commit(&mut self, run: impl FnOnce() + Send + 'static) {
        self.after_commit.push(Box::new(run));
    }

    /// The recorded answer of the next operation, if it is to get that; `answer` gives none for an operation that is
    /// another one than was recorded. An operation that has to be done looks around first.
    #[inline]
    pub(crate) fn replay<R>(&mut self, answer: impl FnOnce(&Op<S>) -> Option<R>) -> Option<R> {
        if self.must_do() {
            return None;
        }
        let answer = answer(&self.log.ops[self.next]);
        if answer.is_none() {
            self.diverge(self.next);
        }
        self.next += 1;
        answer
    }

    /// Whether the next operation has to be done, after a look around; if not, it was recorded.
    #[inline]
    fn must_do(&mut self) -> bool {
        let must = self.next >= self.replayed;
        if must {
            if self.log.bytes > BYTES && self.order.is_none() {
                self.look_at_bytes();
            }
            self.look_around();
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

    /// Now and then, at least at each checkpoint: ends a body whose answers are known to be wrong.
    #[inline]
    fn look_around(&mut self) {
        if self.order.is_none() && self.next.is_multiple_of(self.sub_epochs.operations.min(LOOK_AROUND)) {
            self.look_around_now();
        }
    }

    /// Ends the body if its log exceeds the budget of bytes.
    #[cold]
    fn look_at_bytes(&mut self) {
        if self.log.bytes > self.shared.bytes_budget() {
            self.give_up();
        }
    }

    /// Ends the body here: it goes on in order.
    fn give_up(&mut self) -> ! {
        self.waits.gave_up = true;
        resume_unwind(Box::new(Unwind));
    }

    fn look_around_now(&mut self) {
        if self.shared.stopped.load(Ordering::Relaxed) {
            resume_unwind(Box::new(Unwind));
        }
        let generation = self.shared.generation();
        if generation != self.looked_at {
            self.looked_at = generation;
            if self.log.first_stale(self.shared, self.number).is_some() {
                resume_unwind(Box::new(Unwind));
            }
        }
        if self.next >= self.shared.budget() {
            self.give_up();
        }
        // Nothing else tells whether a long body goes on for ever because it has read what is not so. Where this worker
        // commits for all, the body does not become the oldest before it ends.
        if self.next >= LONG && (self.waits.commits_for_all || self.shared.token.load(Ordering::Acquire) == self.number)
        {
            let since = *self.homefree_since.get_or_insert(self.next);
            if self.next - since >= LONG {
                self.waits.gave_up = self.waits.commits_for_all;
                resume_unwind(Box::new(Unwind));
            }
        }
    }

    /// Waits, where reads of a site do, until no earlier epoch is expected to write the key any more (no key: any key).
    #[inline]
    pub(crate) fn wait_at(&mut self, site: Site, key: Option<(&S::Key, u64)>) {
        if !self.shared.wait_sites.is_empty() && self.order.is_none() && self.shared.wait_sites.contains(site) {
            self.wait_for(key);
        }
    }

    /// An epoch waits only for earlier ones, and each wait ends when they have ended or the loop has.
    #[cold]
    fn wait_for(&mut self, key: Option<(&S::Key, u64)>) {
        if !self.may_be_written(key) {
            return;
        }
        self.waits.number += 1;
        if !self.shared.forwards && self.waits.commits_for_all {
            // The other epochs wait for this worker. This one goes on when it is the oldest.
            self.give_up();
        }
        self.waits.since = Some(Instant::now());
        // Under shuttle there is no bound, so that its models find epochs that wait for each other.
        let (mut spin, patience) = (Spin::default(), Patience::begin(MOST_WAIT, u32::MAX));
        while self.may_be_written(key) && !(spin.is_long() && patience.is_over()) {
            self.look_around_now();
            spin.pause();
        }
        self.waits.end(Instant::now());
    }

    /// Whether an earlier epoch is at work that may write the key: one after the newest that has written it.
    fn may_be_written(&self, key: Option<(&S::Key, u64)>) -> bool {
        let token = self.shared.token.load(Ordering::Acquire);
        if token >= self.number || !self.shared.forwards {
            // A write that is not forwarded is seen when it is committed.
            return token < self.number;
        }
        let newest = key.zip(self.number.checked_sub(1)).and_then(|(key, last)| {
            self.shared.directory.newest(key, self.shared.first_beside(self.number), last, |write| write.epoch)
        });
        let first = newest.map_or(token, |epoch| token.max(epoch + 1));
        self.shared.runs_any(first, self.number)
    }

    #[cold]
    fn diverge(&mut self, operation: usize) -> ! {
        self.diverged = Some(Diverged { operation, site: self.log.ops[operation].site() });
        resume_unwind(Box::new(Unwind));
    }
}

impl<S: Store> std::fmt::Debug for Epoch<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoch").field("number", &self.number).field("operations", &self.next).finish_non_exhaustive()
    }
}
