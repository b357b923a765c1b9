//! The [`Speculator`], which runs loops, and its options.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::epoch::Epoch;
use crate::error::{BuildError, LoopError, MOST_WORKERS, OptionsError};
use crate::forward::{Directory, Site};
use crate::log::SubEpochs;
use crate::nesting::LoopGuard;
use crate::pool::Pool;
use crate::quiet::{discard, quietly};
use crate::shared::{Shared, StopGuard};
use crate::sites::{SiteStats, SourcePlace, WaitSites, Waiting};
use crate::stats::{Dependence, Profile, Stats};
use crate::store::Store;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::times::ns_between;
use crate::trace::{self, LoopTrace};
use crate::worker::{Feed, INJECT_ALL, InOrder, Loop, Worker};

/// Choice of the worker that confirms and writes an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committer {
    /// The worker that ran the epoch: the rows that the epoch read and wrote are in the caches of this worker's core.
    Owner,
    /// The worker that called the loop, for all epochs: the state of the transaction stays in the caches of one core. The
    /// other workers run their next epochs meanwhile.
    Caller,
}

/// Choice of the loops in which uncommitted writes are forwarded to later epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Forwards in loops that follow loops with many violations, and in loops with reads that wait for writes. Forwarding a
    /// write costs some hundred nanoseconds, because the value moves between cores; this cost does not pay if epochs rarely
    /// depend on each other.
    Adaptive,
    /// Always forwards. The profile of dependences names the site of a write only if the write was forwarded.
    Always,
    /// Never forwards. If an epoch reads a value too early, before an earlier epoch writes it, the violation is
    /// detected when the store confirms the epoch.
    Never,
}

/// Settings of a [`Speculator`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    workers: usize,
    grain: usize,
    sub_epochs: SubEpochs,
    speculate: bool,
    committer: Committer,
    forwarding: Forwarding,
    inject: f64,
    seed: u64,
    traces: usize,
    wait_at: &'static [&'static str],
    waiting: Waiting,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: 2,
            grain: 1,
            sub_epochs: SubEpochs { number: 8, operations: 8 },
            speculate: true,
            committer: Committer::Owner,
            forwarding: Forwarding::Adaptive,
            inject: 0.0,
            seed: 1,
            traces: 0,
            wait_at: &[],
            waiting: Waiting::Listed,
        }
    }
}

impl Options {
    /// Returns the default options: two workers, one iteration per epoch, eight sub-epochs of eight operations, and each
    /// epoch committed by the worker that ran it.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the number of threads that work on a loop, the calling thread included. More workers than cores are permitted,
    /// but do not help.
    #[must_use]
    pub fn workers(self, workers: usize) -> Options {
        Options { workers, ..self }
    }

    /// Sets the number of iterations per epoch. Handing an epoch to another core costs about a microsecond, so an epoch
    /// should take several microseconds.
    #[must_use]
    pub fn grain(self, iterations: usize) -> Options {
        Options { grain: iterations, ..self }
    }

    /// Sets the number of sub-epochs per epoch (paper: 8), and the number of operations per sub-epoch; the last sub-epoch
    /// takes all further operations. A violated epoch is rewound to the start of the sub-epoch that contains the wrong read.
    /// (1, 1) disables sub-epochs.
    #[must_use]
    pub fn sub_epochs(self, number: usize, operations: usize) -> Options {
        Options { sub_epochs: SubEpochs { number, operations }, ..self }
    }

    /// Enables or disables speculation. If `speculate` is false, each iteration runs in order, as in an ordinary loop.
    #[must_use]
    pub fn speculate(self, speculate: bool) -> Options {
        Options { speculate, ..self }
    }

    /// Sets the worker that commits the epochs.
    #[must_use]
    pub fn committer(self, committer: Committer) -> Options {
        Options { committer, ..self }
    }

    /// Sets the choice of the loops in which uncommitted writes are forwarded to later epochs.
    #[must_use]
    pub fn forwarding(self, forwarding: Forwarding) -> Options {
        Options { forwarding, ..self }
    }

    /// Injects violations: treats each correct read as violated with the probability `probability`, for tests and
    /// experiments.
    #[must_use]
    pub fn inject_violations(self, probability: f64, seed: u64) -> Options {
        Options { inject: probability, seed, ..self }
    }

    /// Keeps traces of at most `most_loops` loops until [`Speculator::take_traces`] takes them. A traced loop is slower,
    /// because it reads the clock at each operation.
    #[must_use]
    pub fn trace(self, most_loops: usize) -> Options {
        Options { traces: most_loops, ..self }
    }

    /// Makes reads at these places wait until the earlier epochs that may write the key have written it or have ended,
    /// instead of speculating that no earlier epoch will write it. This option is for dependences that always occur. A place
    /// has the form that [`Speculator::profile`] prints, `file:line:column`, or omits the column. If writes are not
    /// forwarded, such a read waits until its epoch is the oldest; [`Forwarding::Adaptive`] forwards writes in this case. A
    /// wait is bounded, and the value is confirmed like the value of any other read.
    #[must_use]
    pub fn wait_at(self, places: &'static [&'static str]) -> Options {
        Options { wait_at: places, ..self }
    }

    /// Sets the choice of the reads that wait for earlier epochs.
    #[must_use]
    pub fn waiting(self, waiting: Waiting) -> Options {
        Options { waiting, ..self }
    }

    /// Parses the listed places at which reads wait.
    fn places(&self) -> Result<Vec<SourcePlace>, OptionsError> {
        self.wait_at.iter().map(|text| SourcePlace::parse(text).ok_or(OptionsError::NoSite(text))).collect()
    }

    fn check(&self) -> Result<(), OptionsError> {
        let SubEpochs { number, operations } = self.sub_epochs;
        if self.workers == 0 {
            return Err(OptionsError::NoWorkers);
        }
        if self.workers > MOST_WORKERS {
            return Err(OptionsError::TooManyWorkers(self.workers));
        }
        if self.grain == 0 {
            return Err(OptionsError::NoGrain);
        }
        if number == 0 || operations == 0 {
            return Err(OptionsError::NoSubEpoch { number, operations });
        }
        if !(0.0..=1.0).contains(&self.inject) {
            return Err(OptionsError::NoProbability(self.inject));
        }
        Ok(())
    }
}

/// Runs loops over a store of type `S` on several threads, with the same result as on one thread.
///
/// The threads live as long as the speculator. Between loops the threads spin for a while, because waking a thread takes
/// longer than most loops, and then sleep.
pub struct Speculator<S: Store> {
    options: Options,
    pool: Pool,
    shared: Shared<S>,
    workers: Box<[CachePadded<Mutex<Worker<S>>>]>,
    profile: Profile,
    stats: Stats,
    violation_rate: ViolationRate,
    /// Places at which reads wait, as listed by the program.
    listed: Vec<SourcePlace>,
    site_stats: SiteStats,
    traces: Vec<LoopTrace>,
}

/// Recent rate of violations, by which adaptive forwarding is switched on.
#[derive(Debug, Default)]
struct ViolationRate {
    /// Number of further loops in which writes are forwarded.
    forwarding: u32,
    /// Number of epochs. This and the number of violations are halved repeatedly, so that older loops weigh less.
    epochs: u64,
    violations: u64,
}

/// Number of loops in which writes are forwarded after the rate of violations was too high.
const FORWARDING_LOOPS: u32 = 256;

impl ViolationRate {
    /// Adds the numbers of epochs and violations of a loop.
    fn add(&mut self, epochs: u64, violations: u64) {
        self.epochs += epochs;
        self.violations += violations;
        self.forwarding = self.forwarding.saturating_sub(1);
        if self.epochs >= 64 {
            if 8 * self.violations > self.epochs {
                self.forwarding = FORWARDING_LOOPS;
            }
            (self.epochs, self.violations) = (self.epochs / 2, self.violations / 2);
        }
    }
}

impl<S: Store> Speculator<S> {
    /// Creates a speculator and starts its threads.
    ///
    /// # Errors
    /// Returns an error if an option is out of range or a thread cannot be started.
    pub fn new(options: Options) -> Result<Speculator<S>, BuildError> {
        if cfg!(panic = "abort") {
            return Err(BuildError::PanicAbort);
        }
        options.check()?;
        let Options { workers, seed, .. } = options;
        let (listed, site_stats) = (options.places()?, SiteStats::default());
        Ok(Speculator {
            options,
            pool: Pool::new(workers - 1).map_err(BuildError::Thread)?,
            shared: Shared {
                directory: Directory::new(),
                token: CachePadded::default(),
                most_operations: CachePadded::default(),
                most_bytes: CachePadded::default(),
                stopped: AtomicBool::new(false),
                window: 1,
                forwards: false,
                changes: (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
                wait_sites: WaitSites::of(&listed, &site_stats),
                running: (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            },
            workers: (0..workers).map(|i| CachePadded::new(Mutex::new(Worker::new(i, seed)))).collect(),
            profile: Profile::default(),
            stats: Stats::default(),
            violation_rate: ViolationRate::default(),
            listed,
            site_stats,
            traces: Vec::new(),
        })
    }

    /// Runs `body` for each item, and then `then` with its result. The outcome is the same as the outcome of
    ///
    /// ```text
    /// for item in items { then(order, body(item)?)?; }
    /// ```
    ///
    /// `items` is advanced in order, possibly some epochs ahead (the paper's pre-fork region). Bodies run speculatively on
    /// several threads. `then` runs in order, holding the token (the post-homefree region), so all later epochs wait for it.
    /// If `then` writes a row that a later body has already read, the body runs again. If an epoch has several iterations
    /// ([`Options::grain`]), each iteration is confirmed and written before its `then` runs. A closure given to
    /// [`Epoch::after_commit`] runs concurrently with later epochs.
    ///
    /// # Errors
    /// Returns the first error in loop order; the iterations after it then have no effect. See [`LoopError`].
    ///
    /// # Panics
    /// Panics with the first panic in loop order, under the same conditions as for an error. Panics in violated epochs are
    /// discarded (but printed by the program's panic hook), and so are panics of the destructors and undo closures of
    /// violated epochs. A panic in another call into the embedder's code (a destructor, a comparison of keys, the store)
    /// ends the loop as well. In each case the next loop starts from a clean state.
    pub fn run<I, T, E, B, H>(
        &mut self,
        store: &S,
        order: &mut S::Order,
        items: I,
        body: B,
        then: H,
    ) -> Result<(), LoopError<E, S::Error>>
    where
        I: IntoIterator<Item: Send>,
        I::IntoIter: Send,
        T: Send,
        B: Fn(&mut Epoch<'_, S>, &I::Item) -> Result<T, E> + Sync,
        H: FnMut(&mut S::Order, T) -> Result<(), E> + Send,
        E: Send,
    {
        self.run_loop(store, order, items, body, then, false)
    }

    /// Like [`Speculator::run`], for loops in which only the writes must happen in order. `take` receives the results of the
    /// bodies in order, has no access to the store, and cannot fail. The store therefore receives all writes of an epoch at
    /// once ([`Store::write_all`]), which may be cheaper.
    ///
    /// # Errors
    /// As for [`Speculator::run`].
    ///
    /// # Panics
    /// As for [`Speculator::run`]. If `take` panics, later iterations may already be written.
    pub fn collect<I, T, E, B>(
        &mut self,
        store: &S,
        order: &mut S::Order,
        items: I,
        body: B,
        mut take: impl FnMut(T) + Send,
    ) -> Result<(), LoopError<E, S::Error>>
    where
        I: IntoIterator<Item: Send>,
        I::IntoIter: Send,
        T: Send,
        B: Fn(&mut Epoch<'_, S>, &I::Item) -> Result<T, E> + Sync,
        E: Send,
    {
        let then = |_: &mut S::Order, result| {
            take(result);
            Ok(())
        };
        self.run_loop(store, order, items, body, then, true)
    }

    fn run_loop<I, T, E, B, H>(
        &mut self,
        store: &S,
        order: &mut S::Order,
        items: I,
        body: B,
        then: H,
        together: bool,
    ) -> Result<(), LoopError<E, S::Error>>
    where
        I: IntoIterator<Item: Send>,
        I::IntoIter: Send,
        T: Send,
        B: Fn(&mut Epoch<'_, S>, &I::Item) -> Result<T, E> + Sync,
        H: FnMut(&mut S::Order, T) -> Result<(), E> + Send,
        E: Send,
    {
        if !self.pool.is_here() {
            return Err(LoopError::Forked);
        }
        let Some(_loop_guard) = LoopGuard::begin() else { return Err(LoopError::Nested) };
        let begun = Instant::now();
        let Speculator { options, pool, shared, workers, violation_rate, listed, site_stats, traces, .. } = self;
        let totals = |workers: &mut [CachePadded<Mutex<Worker<S>>>]| {
            let counts = |worker: &mut CachePadded<Mutex<Worker<S>>>| worker.get_mut().stats.epochs_and_violations();
            workers.iter_mut().map(counts).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
        };
        let before = totals(workers);
        shared.reset();
        shared.forwards = workers.len() > 1
            && match options.forwarding {
                Forwarding::Always => true,
                Forwarding::Never => false,
                Forwarding::Adaptive => violation_rate.forwarding > 0 || !shared.wait_sites.is_empty(),
            };
        let others = workers.len() - 1;
        let by_caller = options.committer == Committer::Caller && others > 0;
        // If one worker commits all epochs, each other worker has one posted epoch and one running epoch.
        shared.window = if by_caller { 2 * others as u64 + 1 } else { workers.len() as u64 };
        let work = Loop {
            store,
            shared,
            grain: options.grain,
            sub_epochs: options.sub_epochs,
            sequential: !options.speculate,
            together,
            traced: traces.len() < options.traces,
            counts_reads: options.waiting == Waiting::Adaptive,
            inject: (options.inject * INJECT_ALL as f64).round() as u64,
            feed: Mutex::new(Feed { items: items.into_iter(), epochs: 0, over: false }),
            body,
            in_order: Mutex::new(InOrder { order, then }),
            error: Mutex::new(None),
            mail: by_caller.then(|| (0..others).map(|_| CachePadded::default()).collect()),
        };
        let setup_ns = ns_between(begun, Instant::now());
        let ran = catch_unwind(AssertUnwindSafe(|| {
            pool.broadcast(&|me| {
                let _loop_guard = if me > 0 { LoopGuard::begin() } else { None };
                // Stops the loop if any embedder code panics, so that no other worker waits for this one.
                let stop = StopGuard(work.shared);
                let worker = &mut workers[me].lock();
                match &work.mail {
                    Some(boxes) if me > 0 => work.help(me, worker, &boxes[me - 1]),
                    _ => work.work(me, worker),
                }
                std::mem::forget(stop);
            });
        }));
        let ended = Instant::now();
        let traced = work.traced;
        let Loop { feed, body, in_order, error, mail, .. } = work;
        // Drops the epochs that were posted but not committed; panics of their destructors are not reported.
        drop(mail);
        let error = error.into_inner();
        // These are the values that an ordinary loop would drop at its end.
        let mut dropped = catch_unwind(AssertUnwindSafe(|| drop((feed, body, in_order))));
        let after = totals(workers);
        violation_rate.add(after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        if options.waiting == Waiting::Adaptive {
            workers.iter_mut().for_each(|worker| site_stats.add(&mut worker.get_mut().read_counts));
            site_stats.update_states();
            workers.iter_mut().for_each(|worker| site_stats.start_counting(&mut worker.get_mut().read_counts));
        }
        let mut whole = ran.is_ok() && !*shared.stopped.get_mut();
        let mut epochs = Vec::new();
        for worker in workers {
            let worker = worker.get_mut();
            epochs.append(&mut worker.traces);
            let discarded = catch_unwind(AssertUnwindSafe(|| {
                worker.discard_logs(|epoch, log| {
                    if whole {
                        log.retire(shared, epoch);
                    }
                    if whole && traced {
                        epochs.push(trace::of_epoch(store, epoch, log, |key| shared.directory.hash(key)));
                    }
                });
            }));
            if discarded.is_err() || ran.is_err() {
                // A panic may have left the worker in any state, so no state of this loop is kept for the next loop.
                worker.reset();
            }
            whole &= discarded.is_ok();
            dropped = match dropped {
                Ok(()) => discarded,
                Err(first) => {
                    discarded.unwrap_or_else(discard);
                    Err(first)
                }
            };
        }
        if whole && traced {
            epochs.sort_by_key(|epoch| epoch.number);
            let (elapsed_ns, tracing_ns) = (ns_between(begun, ended), ns_between(ended, Instant::now()));
            traces.push(LoopTrace { epochs, setup_ns, elapsed_ns, tracing_ns });
        }
        if !whole {
            shared.directory.clear();
        }
        if options.waiting == Waiting::Adaptive {
            shared.wait_sites = WaitSites::of(listed, site_stats);
        }
        match (ran, error, dropped) {
            (Ok(()), None, Ok(())) => Ok(()),
            (Ok(()), None, Err(panic)) => resume_unwind(panic),
            // The error occurred first, so it is reported instead of a later panic of a destructor.
            (Ok(()), Some(error), dropped) => {
                dropped.unwrap_or_else(discard);
                Err(error)
            }
            (Err(panic), error, dropped) => {
                quietly(|| drop(error));
                dropped.unwrap_or_else(discard);
                resume_unwind(panic)
            }
        }
    }

    /// Makes reads at this site wait in the following loops, like the reads at the places of [`Options::wait_at`]. The site
    /// is a [`Dependence::read`] of the [profile](Speculator::profile).
    pub fn wait_at(&mut self, read: Site) {
        if !self.listed.contains(&read.into()) {
            self.listed.push(read.into());
            self.shared.wait_sites = WaitSites::of(&self.listed, &self.site_stats);
        }
    }

    /// Returns the places at which reads wait in the next loop, in the format of a profile.
    pub fn waits_at(&self) -> Vec<String> {
        self.shared.wait_sites.iter().map(ToString::to_string).collect()
    }

    /// Keeps the threads awake until the guard is dropped, for a transaction with several loops.
    pub fn stay_awake(&self) -> StayAwake<'_> {
        self.pool.stay_awake();
        StayAwake(&self.pool)
    }

    /// Returns the counters of all loops since the last call of this function.
    pub fn take_stats(&mut self) -> Stats {
        for worker in &mut self.workers {
            self.stats += std::mem::take(&mut worker.get_mut().stats);
        }
        std::mem::take(&mut self.stats)
    }

    /// Returns the traces of the loops that have completed since the last call of this function; see [`Options::trace`].
    pub fn take_traces(&mut self) -> Vec<LoopTrace> {
        std::mem::take(&mut self.traces)
    }

    /// Returns the dependences that have rewound epochs so far, the most expensive one first.
    pub fn profile(&mut self) -> Vec<Dependence> {
        for worker in &mut self.workers {
            self.profile.merge(&mut worker.get_mut().profile);
        }
        self.profile.sorted()
    }
}

impl<S: Store> fmt::Debug for Speculator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speculator").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Guard that keeps the threads of a speculator awake until it is dropped.
pub struct StayAwake<'a>(&'a Pool);

impl Drop for StayAwake<'_> {
    fn drop(&mut self) {
        self.0.may_sleep();
    }
}

impl fmt::Debug for StayAwake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StayAwake").finish_non_exhaustive()
    }
}
