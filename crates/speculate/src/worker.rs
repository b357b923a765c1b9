//! Worker of a loop: takes epochs in order, runs their bodies speculatively, waits for the token, and commits the epochs in
//! order.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::epoch::{AfterCommit, Divergence, Epoch, UnwindPayload, Waits};
use crate::error::LoopError;
use crate::log::{Log, Op, SubEpochs};
use crate::mailbox::Mailbox;
use crate::mutant::{Mutant, is_mutant};
use crate::quiet::{Quiet, QuietVec, drop_each, quietly};
use crate::shared::{Shared, StaleRead, StopGuard, count_change};
use crate::sites::ReadCounts;
use crate::stats::{Profile, Stats, Writer};
use crate::store::Store;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, Spin, thread};
use crate::times::{Timing, ns_between};
use crate::trace::{self, EpochTrace};

/// Data of a loop, shared by its workers.
pub(crate) struct Loop<'l, S: Store, I: Iterator, B, H, E, T> {
    pub(crate) store: &'l S,
    pub(crate) shared: &'l Shared<S>,
    pub(crate) grain: usize,
    pub(crate) sub_epochs: SubEpochs,
    /// True if each epoch waits for the token before its body runs, and does not speculate.
    pub(crate) sequential: bool,
    /// True if the writes of an epoch go to the store together, before `then` gets the results of the iterations. If false,
    /// each iteration is confirmed and written, and its `then` is called, before the next iteration is confirmed: `then` may
    /// write rows that the next iteration has read.
    pub(crate) together: bool,
    /// True if the epochs record traces.
    pub(crate) traced: bool,
    /// True if the reads at violated sites are counted.
    pub(crate) counts_reads: bool,
    /// Number of reads to violate on purpose, out of [`INJECT_ALL`] reads.
    pub(crate) inject: u64,
    pub(crate) feed: Mutex<Feed<I>>,
    pub(crate) body: B,
    pub(crate) in_order: Mutex<InOrder<'l, S, H>>,
    pub(crate) error: Mutex<Option<LoopError<E, S::Error>>>,
    /// Mailboxes in which the other workers post their epochs, if worker 0 commits all epochs.
    pub(crate) mail: Option<Mail<S, I::Item, T, E>>,
}

/// Mailboxes, one for each worker except worker 0.
pub(crate) type Mail<S, It, T, E> = Box<[CachePadded<Mailbox<PostedEpoch<S, It, T, E>>>]>;

/// Value of `Loop::inject` that violates every read.
pub(crate) const INJECT_ALL: u64 = 1 << 32;

/// Iterator over the items, advanced in order (the paper's pre-fork region).
pub(crate) struct Feed<I> {
    pub(crate) items: I,
    pub(crate) epochs: u64,
    pub(crate) over: bool,
}

/// State that only the holder of the token accesses.
pub(crate) struct InOrder<'l, S: Store, H> {
    pub(crate) order: &'l mut S::Order,
    pub(crate) then: H,
}

/// State of a worker, reused from one loop to the next.
pub(crate) struct Worker<S: Store> {
    pub(crate) log: Log<S>,
    /// Logs of uncommitted epochs that are set aside, for example while the worker commits another worker's epoch.
    waiting: Vec<Log<S>>,
    pub(crate) local: S::Local,
    /// Logs of committed epochs whose writes are still in the directory of forwarded writes.
    retired: VecDeque<(u64, Log<S>)>,
    spare: Vec<Log<S>>,
    ids: Cell<u64>,
    random: u64,
    pub(crate) stats: Stats,
    pub(crate) profile: Profile,
    /// Read counts of violated sites. Empty unless the speculator learns at which sites reads should wait.
    pub(crate) read_counts: ReadCounts,
    /// Traces of the epochs that this worker has committed in the current loop, if the loop is traced.
    pub(crate) traces: Vec<EpochTrace>,
}

impl<S: Store> Worker<S> {
    pub(crate) fn new(number: usize, seed: u64) -> Worker<S> {
        Worker {
            log: Log::new(),
            waiting: Vec::new(),
            local: S::Local::default(),
            retired: VecDeque::new(),
            spare: Vec::new(),
            ids: Cell::new(number as u64),
            random: (seed ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            stats: Stats::default(),
            profile: Profile::default(),
            read_counts: ReadCounts::default(),
            traces: Vec::new(),
        }
    }

    /// Discards the logs of a loop that has ended, and undoes the escaped operations of uncommitted epochs. Calls
    /// `committed` for each epoch whose writes are still in the directory of forwarded writes.
    pub(crate) fn discard_logs(&mut self, mut committed: impl FnMut(u64, &Log<S>)) {
        self.log.rewind(0, |_| 0, |_, _| ());
        for mut log in self.waiting.drain(..) {
            log.rewind(0, |_| 0, |_, _| ());
            self.spare.push(log);
        }
        while let Some((epoch, mut log)) = self.retired.pop_front() {
            committed(epoch, &log);
            log.clear();
            self.spare.push(log);
        }
    }

    /// Discards all logs, because a panic may have left them in any state, and keeps the counters.
    pub(crate) fn reset(&mut self) {
        let logs = std::iter::once(std::mem::replace(&mut self.log, Log::new()));
        let logs = logs.chain(self.waiting.drain(..)).chain(self.retired.drain(..).map(|(_, log)| log));
        logs.chain(self.spare.drain(..)).for_each(|log| quietly(|| drop(log)));
        quietly(|| self.local = S::Local::default());
        self.read_counts = ReadCounts::default();
    }

    /// Retires the log of a committed epoch, and runs the epoch's after-commit closures.
    fn finish_epoch(&mut self, number: u64, mut after_commit: QuietVec<AfterCommit>) {
        let log = std::mem::replace(&mut self.log, self.spare.pop().unwrap_or_else(Log::new));
        self.count_reads(&log);
        self.retired.push_back((number, log));
        after_commit.0.drain(..).for_each(|run| run());
    }

    /// Counts the reads of a committed epoch at the violated sites.
    #[inline]
    fn count_reads(&mut self, log: &Log<S>) {
        if !self.read_counts.is_empty() {
            let is_read = |op: &&Op<S>| matches!(op, Op::Read { .. } | Op::Scan { .. });
            log.ops.iter().filter(is_read).for_each(|op| self.read_counts.count_correct(op.site()));
        }
    }

    /// Takes back the epoch of this worker after another worker has committed it.
    fn collect<It, T, E>(&mut self, mailbox: &Mailbox<PostedEpoch<S, It, T, E>>) {
        if let Some(epoch) = mailbox.collect() {
            self.finish_posted(epoch);
        }
    }

    fn finish_posted<It, T, E>(&mut self, epoch: PostedEpoch<S, It, T, E>) {
        let PostedEpoch { number, log, mut after_commit, mut items, .. } = epoch;
        self.count_reads(&log);
        self.retired.push_back((number, log));
        after_commit.0.drain(..).for_each(|run| run());
        drop_each(&mut items.0).unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Returns true if a read is to be violated on purpose. Draws from a xorshift generator, whose quality is not critical.
    pub(crate) fn injects_violation(&mut self, inject: u64) -> bool {
        if inject == 0 {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 32 < inject
    }
}

/// Result of an iteration, and the progress of the epoch at the end of the iteration.
pub(crate) struct IterationResult<T> {
    pub(crate) result: T,
    pub(crate) end: Progress,
}

/// Numbers of completed iterations, operations and after-commit closures of an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) iterations: usize,
    pub(crate) operations: usize,
    pub(crate) after_commit: usize,
}

/// Panic of the items' iterator that follows the last item of an epoch.
pub(crate) type IteratorPanic = Option<Quiet<Box<dyn Any + Send>>>;

/// Outcome of the body of an epoch.
pub(crate) enum Ending<E> {
    /// The body ran to the end of the last item.
    Done,
    /// An iteration returned this error.
    Failed(Quiet<E>),
    /// An iteration panicked.
    Panicked(Quiet<Box<dyn Any + Send>>),
    /// The body was unwound, because its answers were wrong or it has to continue in order.
    Unwound,
    Diverged(Divergence),
}

/// Epoch whose body has run. It is posted for another worker to commit, and is returned after the commit.
pub(crate) struct PostedEpoch<S: Store, It, T, E> {
    number: u64,
    items: QuietVec<It>,
    log: Log<S>,
    results: QuietVec<IterationResult<T>>,
    after_commit: QuietVec<AfterCommit>,
    checkpoint: usize,
    ran_ns: u64,
    ending: Ending<E>,
    iterator_panic: IteratorPanic,
    committed: bool,
}

/// Epoch that is being executed by a worker.
pub(crate) struct Attempt<'w, S: Store, It, T> {
    pub(crate) number: u64,
    pub(crate) items: &'w [It],
    pub(crate) worker: &'w mut Worker<S>,
    me: usize,
    pub(crate) results: &'w mut QuietVec<IterationResult<T>>,
    pub(crate) after_commit: QuietVec<AfterCommit>,
    /// Progress of the commit: the part of the epoch that the store and `then` have received.
    pub(crate) done: Progress,
    /// Number of operations that the next run replays.
    pub(crate) checkpoint: usize,
    checked_generation: u64,
    /// True if the store refused a locked read of the last run.
    pub(crate) refused: bool,
    /// True if the last run was ended because the epoch must continue in order.
    gave_up: bool,
    /// Duration of the last run of the body, in nanoseconds.
    ran_ns: u64,
    /// End time of the last run of the body.
    ended: Option<Instant>,
}

impl<'w, S: Store, It, T> Attempt<'w, S, It, T> {
    fn new(
        number: u64,
        items: &'w [It],
        worker: &'w mut Worker<S>,
        me: usize,
        results: &'w mut QuietVec<IterationResult<T>>,
    ) -> Attempt<'w, S, It, T> {
        Attempt {
            number,
            items,
            worker,
            me,
            results,
            after_commit: QuietVec(Vec::new()),
            done: Progress::default(),
            checkpoint: 0,
            checked_generation: 0,
            refused: false,
            gave_up: false,
            ran_ns: 0,
            ended: None,
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
    /// Runs and commits epochs on worker `me` until the loop is over.
    pub(crate) fn work(&self, me: usize, worker: &mut Worker<S>) {
        let (mut items, mut results) = (QuietVec(Vec::new()), QuietVec(Vec::new()));
        loop {
            let free_since = self.traced.then(Instant::now);
            let (number, iterator_panic) = self.take(me, &mut items);
            if items.0.is_empty() && iterator_panic.is_none() || self.shared.stopped.load(Ordering::Acquire) {
                if me == 0 && self.mail.is_some() {
                    self.commit_rest(worker);
                }
                return;
            }
            self.retire(worker, free_since);
            let mut attempt = Attempt::new(number, &items.0, &mut *worker, me, &mut results);
            if !self.run(&mut attempt, iterator_panic) {
                return;
            }
            let after_commit = attempt.after_commit;
            worker.finish_epoch(number, after_commit);
            while me == 0 && self.commit_posted(worker) == Some(true) {}
        }
    }

    /// Runs epochs on worker `me` and leaves the commits to worker 0. The worker has at most one posted epoch and one
    /// running epoch.
    pub(crate) fn help(&self, me: usize, worker: &mut Worker<S>, mailbox: &Mailbox<PostedEpoch<S, I::Item, T, E>>) {
        let mut posted = false;
        loop {
            let free_since = self.traced.then(Instant::now);
            let (mut items, mut results) = (QuietVec(Vec::new()), QuietVec(Vec::new()));
            let (number, iterator_panic) = self.take(me, &mut items);
            if items.0.is_empty() && iterator_panic.is_none() || self.shared.stopped.load(Ordering::Acquire) {
                break;
            }
            self.retire(worker, free_since);
            let mut attempt = Attempt::new(number, &items.0, &mut *worker, me, &mut results);
            let mut ending = if self.sequential { Ending::Unwound } else { self.speculate(&mut attempt) };
            self.report_given_up(&attempt);
            let waits_since = Instant::now();
            let mut spin = Spin::default();
            while posted && !mailbox.has_returned() {
                if self.shared.stopped.load(Ordering::Acquire) {
                    self.take_back(worker, mailbox);
                    return;
                }
                match self.rerun_if_violated(&mut attempt) {
                    Some(rerun) => {
                        ending = rerun;
                        self.report_given_up(&attempt);
                    }
                    None => spin.pause(),
                }
            }
            let Attempt { after_commit, checkpoint, ran_ns, .. } = attempt;
            worker.stats.waited_ns += ns_between(waits_since, Instant::now());
            if posted {
                worker.collect(mailbox);
            }
            let log = std::mem::replace(&mut worker.log, worker.spare.pop().unwrap_or_else(Log::new));
            let committed = false;
            let epoch = PostedEpoch {
                number,
                items,
                log,
                results,
                after_commit,
                checkpoint,
                ran_ns,
                ending,
                iterator_panic,
                committed,
            };
            // The body counts as ended even if it was unwound. This worker does no more work for the epoch, and worker 0, in
            // a body of its own, must not wait for it.
            self.shared.body_has_ended(me);
            mailbox.post(number, epoch);
            posted = true;
        }
        let mut spin = Spin::default();
        while posted && !mailbox.has_returned() {
            if self.shared.stopped.load(Ordering::Acquire) {
                self.take_back(worker, mailbox);
                return;
            }
            spin.pause();
        }
        if posted {
            worker.collect(mailbox);
        }
    }

    /// Records that a body that was given up has ended. Worker 0 continues the body at the commit, and must not wait for its
    /// end before that.
    fn report_given_up(&self, attempt: &Attempt<'_, S, I::Item, T>) {
        if attempt.gave_up {
            self.shared.body_has_ended(attempt.me);
        }
    }

    /// Takes back the posted epoch after an early end of the loop, unless the epoch is being committed.
    fn take_back(&self, worker: &mut Worker<S>, mailbox: &Mailbox<PostedEpoch<S, I::Item, T, E>>) {
        match mailbox.take() {
            Some(epoch) if epoch.committed => worker.finish_posted(epoch),
            Some(epoch) => worker.waiting.push(epoch.log),
            None => {}
        }
    }

    /// Commits the homefree epoch if another worker has posted it. Returns true if an epoch was committed, false if the
    /// homefree epoch is not posted, and `None` if the loop has ended with this epoch.
    fn commit_posted(&self, worker: &mut Worker<S>) -> Option<bool> {
        let Some(boxes) = &self.mail else { return Some(false) };
        let token = self.shared.token.load(Ordering::Relaxed);
        let Some(mailbox) = boxes.iter().find(|mailbox| mailbox.holds(token)) else { return Some(false) };
        let Some(mut posted) = mailbox.take() else { return Some(false) };
        let stop = StopGuard(self.shared);
        let homefree = Instant::now();
        worker.waiting.push(std::mem::replace(&mut worker.log, posted.log));
        let mut attempt = Attempt {
            number: posted.number,
            items: &posted.items.0,
            worker: &mut *worker,
            me: 0,
            results: &mut posted.results,
            after_commit: posted.after_commit,
            done: Progress::default(),
            checkpoint: posted.checkpoint,
            checked_generation: 0,
            refused: false,
            gave_up: false,
            ran_ns: posted.ran_ns,
            ended: None,
        };
        let committed = {
            let mut in_order = self.in_order.lock();
            self.commit(&mut attempt, &mut in_order, posted.ending, posted.iterator_panic)
        };
        let after_commit = attempt.after_commit;
        let in_order_ns = ns_between(homefree, Instant::now());
        worker.stats.in_order_ns += in_order_ns;
        worker.log.times.in_order_ns = in_order_ns;
        if let Err(error) = committed {
            *self.error.lock() = Some(error);
            return None;
        }
        self.shared.token.store(posted.number + 1, Ordering::Release);
        std::mem::forget(stop);
        let own = worker.waiting.pop().unwrap_or_else(Log::new);
        let log = std::mem::replace(&mut worker.log, own);
        let (ending, iterator_panic) = (Ending::Done, None);
        mailbox.give_back(PostedEpoch { log, after_commit, ending, iterator_panic, committed: true, ..posted });
        Some(true)
    }

    /// Commits the epochs that the other workers have posted or still run after the last item was taken.
    fn commit_rest(&self, worker: &mut Worker<S>) {
        let last = self.feed.lock().epochs;
        let mut spin = Spin::default();
        while self.shared.token.load(Ordering::Acquire) != last && !self.shared.stopped.load(Ordering::Acquire) {
            match self.commit_posted(worker) {
                Some(true) => spin = Spin::default(),
                Some(false) => spin.pause(),
                None => return,
            }
        }
    }

    /// Runs an epoch that waits for the token again if an earlier epoch has changed a row that the epoch has read. Returns
    /// the new outcome; `None` if the epoch was not run again.
    fn rerun_if_violated(&self, attempt: &mut Attempt<'_, S, I::Item, T>) -> Option<Ending<E>> {
        let generation = self.shared.generation();
        if generation == attempt.checked_generation || self.sequential {
            return None;
        }
        attempt.checked_generation = generation;
        let stale = attempt.worker.log.first_stale_read(self.shared, attempt.number)?;
        self.rewind(attempt, stale);
        Some(self.speculate(attempt))
    }

    /// Takes the items of the next epoch. Also returns the panic of the iterator if such a panic ends the loop.
    ///
    /// # Panics
    /// Resumes the panic of a destructor of the previous epoch's items; the previous epoch has committed.
    fn take(&self, me: usize, items: &mut QuietVec<I::Item>) -> (u64, IteratorPanic) {
        drop_each(&mut items.0).unwrap_or_else(|panic| resume_unwind(panic));
        let items = &mut items.0;
        let mut feed = self.feed.lock();
        let number = feed.epochs;
        let mut panic = None;
        while items.len() < self.grain && !feed.over {
            match catch_unwind(AssertUnwindSafe(|| feed.items.next())) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => feed.over = true,
                Err(iterator_panic) => (feed.over, panic) = (true, Some(Quiet::new(iterator_panic))),
            }
        }
        if !items.is_empty() || panic.is_some() {
            feed.epochs += 1;
            // The call is made with the lock held, so that the worker of a later epoch sees that this epoch runs.
            self.shared.body_begins(me, number);
        }
        (number, panic)
    }

    /// Removes the forwarded writes that no epoch in flight can have read. At most `window` epochs, counted from the token,
    /// are in flight. `free_since` is the time from which the worker was free for its next epoch, if the loop is traced.
    fn retire(&self, worker: &mut Worker<S>, free_since: Option<Instant>) {
        let token = self.shared.token.load(Ordering::Acquire);
        let mut tracing_ns = 0;
        while let Some((epoch, _)) = worker.retired.front()
            && epoch + self.shared.window <= token
            && let Some((epoch, mut log)) = worker.retired.pop_front()
        {
            if self.traced {
                // The trace is built now. If the log were kept for later, its memory would not be reused, which would change
                // the contents of the caches.
                let begun = Instant::now();
                worker.traces.push(trace::of_epoch(self.store, epoch, &log, |key| self.shared.directory.hash(key)));
                tracing_ns += ns_between(begun, Instant::now());
            }
            log.retire(self.shared, epoch);
            log.clear();
            worker.spare.push(log);
        }
        if let Some(free_since) = free_since {
            worker.log.times.before_ns = ns_between(free_since, Instant::now()).saturating_sub(tracing_ns);
        }
    }

    /// Runs an epoch until it has committed. Returns false if the loop has ended before the epoch or with it.
    fn run(&self, attempt: &mut Attempt<'_, S, I::Item, T>, iterator_panic: IteratorPanic) -> bool {
        let stop = StopGuard(self.shared);
        let mut ending = if self.sequential { Ending::Unwound } else { self.speculate(attempt) };
        let waits_since = attempt.ended.unwrap_or_else(Instant::now);
        let (mut homefree, mut waited, mut spin) = (waits_since, false, Spin::default());
        while self.shared.token.load(Ordering::Acquire) != attempt.number {
            waited = true;
            if self.shared.stopped.load(Ordering::Acquire) {
                return false;
            }
            match self.commit_posted(attempt.worker) {
                Some(false) => {}
                Some(true) => continue,
                None => return false,
            }
            // A violation that is detected during the wait for the token is repaired during the wait.
            match self.rerun_if_violated(attempt) {
                Some(rerun) => (ending, spin) = (rerun, Spin::default()),
                None => spin.pause(),
            }
        }
        // From here on, only a commit of another transaction can violate the epoch, and only until the epoch is confirmed.
        if waited {
            homefree = Instant::now();
            attempt.worker.stats.waited_ns += ns_between(waits_since, homefree);
        }
        if is_mutant(Mutant::TokenTooEarly) {
            self.shared.token.store(attempt.number + 1, Ordering::Release);
            thread::yield_now();
        }
        let committed = {
            let mut in_order = self.in_order.lock();
            self.commit(attempt, &mut in_order, ending, iterator_panic)
        };
        let in_order_ns = ns_between(homefree, Instant::now());
        attempt.worker.stats.in_order_ns += in_order_ns;
        attempt.worker.log.times.in_order_ns = in_order_ns;
        match committed {
            Ok(()) => {
                if !is_mutant(Mutant::TokenTooEarly) {
                    self.shared.token.store(attempt.number + 1, Ordering::Release);
                }
                std::mem::forget(stop);
                true
            }
            Err(error) => {
                *self.error.lock() = Some(error);
                false
            }
        }
    }

    /// Runs the body concurrently with earlier epochs, until its answers appear to be correct.
    fn speculate(&self, attempt: &mut Attempt<'_, S, I::Item, T>) -> Ending<E> {
        loop {
            let ending = self.execute(attempt, None);
            if !matches!(ending, Ending::Unwound) || self.shared.stopped.load(Ordering::Relaxed) {
                return ending;
            }
            if attempt.gave_up || self.shared.token.load(Ordering::Acquire) == attempt.number {
                return ending;
            }
            match attempt.worker.log.first_stale_read(self.shared, attempt.number) {
                Some(stale) => self.rewind(attempt, stale),
                // The earlier epoch has withdrawn the write that a read missed: the answers are correct after all.
                None => attempt.checkpoint = attempt.worker.log.ops.len(),
            }
        }
    }

    /// Runs the remaining iterations of an epoch, or only the next iteration if iterations are committed one by one in
    /// order. Operations before the checkpoint get their recorded answers.
    pub(crate) fn execute(&self, attempt: &mut Attempt<'_, S, I::Item, T>, order: Option<&mut S::Order>) -> Ending<E> {
        let done = attempt.done;
        let mut items = &attempt.items[done.iterations..];
        if order.is_some() && !self.together {
            items = &items[..1];
        }
        attempt.results.clear();
        drop(QuietVec(attempt.after_commit.0.split_off(done.after_commit)));
        let worker = &mut *attempt.worker;
        let begun = Instant::now();
        if attempt.checkpoint == 0 && order.is_none() {
            worker.log.prefetch();
        }
        let timing = self.traced.then(|| Timing::begin(&mut worker.log.times, done.iterations > 0, attempt.checkpoint));
        let mut epoch = Epoch {
            store: self.store,
            shared: self.shared,
            number: attempt.number,
            worker: attempt.me,
            sub_epochs: self.sub_epochs,
            log: &mut worker.log,
            local: &mut worker.local,
            next: done.operations,
            replayed: attempt.checkpoint,
            order,
            after_commit: &mut attempt.after_commit.0,
            checked_generation: attempt.checked_generation,
            homefree_since: None,
            diverged: None,
            refused: false,
            waits: Waits::new(attempt.me == 0 && self.mail.is_some()),
            ids: &worker.ids,
            in_turn: !self.together,
            iteration_start: done.operations,
            timing,
        };
        let results = &mut *attempt.results;
        let run = catch_unwind(AssertUnwindSafe(|| {
            for (item, iterations) in items.iter().zip(done.iterations + 1..) {
                epoch.iteration_start = epoch.next;
                let result = (self.body)(&mut epoch, item)?;
                let end = Progress { iterations, operations: epoch.next, after_commit: epoch.after_commit.len() };
                results.0.push(IterationResult { result, end });
            }
            Ok(())
        }));
        worker.stats.replayed += epoch.next.min(epoch.replayed).saturating_sub(done.operations) as u64;
        let unfinished = (epoch.next < epoch.replayed).then_some(epoch.next);
        if let Some(timing) = epoch.timing.take() {
            timing.end(&mut epoch.log.times);
        }
        let diverged = epoch.diverged;
        attempt.checked_generation = epoch.checked_generation;
        attempt.refused = epoch.refused;
        let ended = Instant::now();
        if epoch.waits.number > 0 {
            worker.stats.waits += epoch.waits.number;
            worker.stats.waits_ns += epoch.waits.end(ended);
        }
        attempt.gave_up = epoch.waits.gave_up;
        (attempt.ran_ns, attempt.ended) = (ns_between(begun, ended), Some(ended));
        let diverged = diverged.or(match (&run, unfinished) {
            // The body ended before it had repeated all recorded operations, although their answers were the same.
            (Ok(_), Some(operation)) => Some(Divergence { operation, site: worker.log.ops[operation].site() }),
            _ => None,
        });
        let ending = match (run, diverged) {
            (run, Some(diverged)) => {
                quietly(|| drop(run));
                Ending::Diverged(diverged)
            }
            (Ok(Ok(())), None) => Ending::Done,
            (Ok(Err(error)), None) => Ending::Failed(Quiet::new(error)),
            (Err(unwound), None) if unwound.is::<UnwindPayload>() => Ending::Unwound,
            (Err(panic), None) => Ending::Panicked(Quiet::new(panic)),
        };
        // If iterations are committed one by one, further iterations of the epoch may follow this run.
        let is_whole = done.iterations + items.len() == attempt.items.len() || !matches!(ending, Ending::Done);
        if is_whole && !matches!(ending, Ending::Unwound) {
            self.shared.body_has_ended(attempt.me);
        }
        ending
    }

    /// Rewinds an epoch to the checkpoint before the wrong read of the violation `stale`.
    pub(crate) fn rewind(&self, attempt: &mut Attempt<'_, S, I::Item, T>, stale: StaleRead) {
        let Attempt { number, me, worker, .. } = attempt;
        let site = worker.log.ops[stale.at].site();
        // Operations that the store and `then` have received are not rewound.
        let checkpoint = self.sub_epochs.checkpoint(stale.at).max(attempt.done.operations);
        let len = worker.log.ops.len();
        let shared = self.shared;
        shared.body_begins(*me, *number);
        let replayed = checkpoint + usize::from(is_mutant(Mutant::ReplayPastCheckpoint));
        worker.log.rewind(
            replayed,
            |key| shared.directory.hash(key),
            |key, at| {
                if shared.forwards && !is_mutant(Mutant::SkipChain) {
                    shared.directory.withdraw(key, *number, at);
                    count_change(shared, *me);
                }
            },
        );
        worker.log.count_bytes(self.store);
        let rewound = len - checkpoint;
        // Replayed operations take almost no time, so the duration of the run is divided among the executed operations.
        let lost = attempt.ran_ns * rewound as u64 / (len - attempt.checkpoint).max(rewound) as u64;
        worker.stats.violations += 1;
        worker.stats.rewound += rewound as u64;
        worker.stats.rewound_ns += lost;
        let writer = stale.writer.map_or(Writer::Other, Writer::Epoch);
        worker.profile.record(site, writer, rewound as u64, lost);
        if self.counts_reads && stale.may_wait && !stale.injected {
            worker.read_counts.count_violated(site);
        }
        attempt.checkpoint = replayed;
    }
}
