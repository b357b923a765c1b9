//! Speculators, which run loops, and their options.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::epoch::Epoch;
use crate::error::{BuildError, LoopError, MOST_WORKERS, OptionsError};
use crate::forward::{Directory, Site};
use crate::log::SubEpochs;
use crate::nesting::AtWork;
use crate::pool::Pool;
use crate::quiet::{discard, quietly};
use crate::shared::{Shared, StopUnlessDone};
use crate::sites::{SourcePlace, Suspects, WaitSites, Waiting};
use crate::stats::{Dependence, Profile, Stats};
use crate::store::Store;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::times::ns_between;
use crate::trace::{self, LoopTrace};
use crate::worker::{Feed, INJECT_ALL, InOrder, Loop, Worker};

/// Which worker confirms and writes an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committer {
    /// The one that has run it: what the epoch has read and written is in the caches of its core.
    Owner,
    /// The one that runs the loop, for all: what a transaction has of its own stays in the caches of one core. The others go
    /// on with the next epoch meanwhile.
    Caller,
}

/// Whether epochs read what earlier ones have written and not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// In loops that follow others with many violations, and where reads wait for writes. To forward a write costs some hundred nanoseconds, because it goes
    /// from core to core; where epochs hardly depend on each other it does not pay.
    Adaptive,
    /// Always. The profile of dependences names the writers only then.
    Always,
    /// Never: a read of what an earlier epoch writes is found when the epoch is confirmed.
    Never,
}

/// How a speculator works.
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
    /// Two workers, one iteration an epoch, eight sub-epochs of eight operations, each committed by the worker that ran it.
    pub fn new() -> Options {
        Options::default()
    }

    /// Threads that work on a loop, the one that runs it included. More than the machine has cores work, and do not
    /// help.
    #[must_use]
    pub fn workers(self, workers: usize) -> Options {
        Options { workers, ..self }
    }

    /// Iterations of an epoch. Handing an epoch to another core costs about a microsecond, so an epoch should take
    /// several.
    #[must_use]
    pub fn grain(self, iterations: usize) -> Options {
        Options { grain: iterations, ..self }
    }

    /// How many sub-epochs an epoch has (paper: 8), and of how many operations each; the last one has all further
    /// operations. A violated epoch begins again with the sub-epoch of the read that was wrong. (1, 1) is none.
    #[must_use]
    pub fn sub_epochs(self, number: usize, operations: usize) -> Options {
        Options { sub_epochs: SubEpochs { number, operations }, ..self }
    }

    /// False: each iteration runs in order, as in an ordinary loop.
    #[must_use]
    pub fn speculate(self, speculate: bool) -> Options {
        Options { speculate, ..self }
    }

    /// Who commits epochs.
    #[must_use]
    pub fn committer(self, committer: Committer) -> Options {
        Options { committer, ..self }
    }

    /// Whether epochs read what earlier ones have written and not committed.
    #[must_use]
    pub fn forwarding(self, forwarding: Forwarding) -> Options {
        Options { forwarding, ..self }
    }

    /// Violates each read with this probability, although it was right: for tests and experiments.
    #[must_use]
    pub fn inject_violations(self, probability: f64, seed: u64) -> Options {
        Options { inject: probability, seed, ..self }
    }

    /// Keeps traces of so many loops, at most, until they are taken: [`Speculator::take_traces`]. To read the clock at each
    /// operation costs time.
    #[must_use]
    pub fn trace(self, most_loops: usize) -> Options {
        Options { traces: most_loops, ..self }
    }

    /// Has reads at these places wait until the earlier epochs that may write the key have written it or ended, instead of
    /// guessing that none will: for dependences that are there every time. A place is written as
    /// [`Speculator::profile`] prints it, `file:line:column`, or without the column. Where writes are not forwarded, such a
    /// read waits until its epoch is the oldest; [`Forwarding::Adaptive`] forwards them. A wait is bounded, and what is
    /// read is confirmed as any other read.
    #[must_use]
    pub fn wait_at(self, places: &'static [&'static str]) -> Options {
        Options { wait_at: places, ..self }
    }

    /// Which reads wait for earlier epochs.
    #[must_use]
    pub fn waiting(self, waiting: Waiting) -> Options {
        Options { waiting, ..self }
    }

    /// The places where reads wait.
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

/// Runs loops over a kind of store on several threads, as if on one.
///
/// Its threads live as long as it does. Between loops they spin for a while, because waking a thread takes longer than
/// most loops, and then sleep.
pub struct Speculator<S: Store> {
    options: Options,
    pool: Pool,
    shared: Shared<S>,
    workers: Box<[CachePadded<Mutex<Worker<S>>>]>,
    profile: Profile,
    stats: Stats,
    heat: Heat,
    /// Places where reads wait on request.
    listed: Vec<SourcePlace>,
    suspects: Suspects,
    traces: Vec<LoopTrace>,
}

/// How much the loops of late have suffered from dependences.
#[derive(Debug, Default)]
struct Heat {
    /// Loops that still forward.
    forwarding: u32,
    /// Epochs and violations, older ones counted less.
    epochs: u64,
    violations: u64,
}

/// Loops that forward after some that had too many violations.
const FORWARD_FOR: u32 = 256;

impl Heat {
    /// Takes a loop into account.
    fn add(&mut self, epochs: u64, violations: u64) {
        self.epochs += epochs;
        self.violations += violations;
        self.forwarding = self.forwarding.saturating_sub(1);
        if self.epochs >= 64 {
            if 8 * self.violations > self.epochs {
                self.forwarding = FORWARD_FOR;
            }
            (self.epochs, self.violations) = (self.epochs / 2, self.violations / 2);
        }
    }
}

impl<S: Store> Speculator<S> {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the options are none that can be served, or a thread cannot be started.
    pub fn new(options: Options) -> Result<Speculator<S>, BuildError> {
        options.check()?;
        let Options { workers, seed, .. } = options;
        let (listed, suspects) = (options.places()?, Suspects::default());
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
                wait_sites: WaitSites::of(&listed, &suspects),
                running: (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            },
            workers: (0..workers).map(|i| CachePadded::new(Mutex::new(Worker::new(i, seed)))).collect(),
            profile: Profile::default(),
            stats: Stats::default(),
            heat: Heat::default(),
            listed,
            suspects,
            traces: Vec::new(),
        })
    }

    /// Runs `body` for each item, and then `then` with what it returned, so that the result is that of
    ///
    /// ```text
    /// for item in items { then(order, body(item)?)?; }
    /// ```
    ///
    /// `items` is advanced in order, perhaps some epochs ahead (the paper's pre-fork region). Bodies run speculatively, on
    /// several threads. `then` runs in order, holding the token (the post-homefree region): what it takes, all epochs
    /// wait for. What it writes to the store, later bodies read: one that has missed it runs again. Where several iterations
    /// are an epoch ([`Options::grain`]), each is confirmed and written before its `then`. What a body gives to
    /// [`Epoch::after_commit`] runs beside later epochs.
    ///
    /// # Errors
    /// The first error in the order of the loop; later iterations have done nothing then. See [`LoopError`].
    ///
    /// # Panics
    /// With the first panic in the order of the loop, on the terms of an error. Panics in violated epochs are forgotten
    /// (but printed by the program's panic hook), those of what such epochs drop or undo included. A panic of another call into
    /// the embedder's code (a destructor, a comparison of keys, the store) ends the loop as well. Either way the next loop
    /// begins anew.
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

    /// As [`Speculator::run`], for loops in which nothing but the writes has to happen in order: `take` gets what the bodies
    /// return, in order, and neither sees the store nor fails. So the store gets all writes of an epoch at once
    /// ([`Store::write_all`]), which may be cheaper.
    ///
    /// # Errors
    /// As for [`Speculator::run`].
    ///
    /// # Panics
    /// As [`Speculator::run`]; when `take` panics, later iterations may have written.
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
        let Some(_at_work) = AtWork::begin() else { return Err(LoopError::Nested) };
        let begun = Instant::now();
        let Speculator { options, pool, shared, workers, heat, listed, suspects, traces, .. } = self;
        let done = |workers: &mut [CachePadded<Mutex<Worker<S>>>]| {
            let done = |worker: &mut CachePadded<Mutex<Worker<S>>>| worker.get_mut().stats.done();
            workers.iter_mut().map(done).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
        };
        let before = done(workers);
        shared.begin();
        shared.forwards = workers.len() > 1
            && match options.forwarding {
                Forwarding::Always => true,
                Forwarding::Never => false,
                Forwarding::Adaptive => heat.forwarding > 0 || !shared.wait_sites.is_empty(),
            };
        let others = workers.len() - 1;
        let by_caller = options.committer == Committer::Caller && others > 0;
        // Where one worker commits for all, each of the others has an epoch posted beside the one in work.
        shared.window = if by_caller { 2 * others as u64 + 1 } else { workers.len() as u64 };
        let work = Loop {
            store,
            shared,
            grain: options.grain,
            sub_epochs: options.sub_epochs,
            sequential: !options.speculate,
            together,
            traced: traces.len() < options.traces,
            learns: options.waiting == Waiting::Adaptive,
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
                let _at_work = if me > 0 { AtWork::begin() } else { None };
                // A panic of what belongs to the embedder, wherever it is called: no worker waits for this one then.
                let stop = StopUnlessDone(work.shared);
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
        // What was posted and not committed goes quietly.
        drop(mail);
        let error = error.into_inner();
        // What an ordinary loop would drop at its end.
        let mut dropped = catch_unwind(AssertUnwindSafe(|| drop((feed, body, in_order))));
        let after = done(workers);
        heat.add(after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        if options.waiting == Waiting::Adaptive {
            workers.iter_mut().for_each(|worker| suspects.add(&mut worker.get_mut().violated));
            suspects.judge();
            workers.iter_mut().for_each(|worker| suspects.have_counted(&mut worker.get_mut().violated));
        }
        let mut whole = ran.is_ok() && !*shared.stopped.get_mut();
        let mut epochs = Vec::new();
        for worker in workers {
            let worker = worker.get_mut();
            epochs.append(&mut worker.traces);
            let forgotten = catch_unwind(AssertUnwindSafe(|| {
                worker.forget(|epoch, log| {
                    if whole {
                        log.retire(shared, epoch);
                    }
                    if whole && traced {
                        epochs.push(trace::of_epoch(store, epoch, log, |key| shared.directory.hash(key)));
                    }
                });
            }));
            if forgotten.is_err() || ran.is_err() {
                // The next loop finds nothing of this one, in whichever state a panic has left it.
                worker.begin_anew();
            }
            whole &= forgotten.is_ok();
            dropped = match dropped {
                Ok(()) => forgotten,
                Err(first) => {
                    forgotten.unwrap_or_else(discard);
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
            shared.wait_sites = WaitSites::of(listed, suspects);
        }
        match (ran, error, dropped) {
            (Ok(()), None, Ok(())) => Ok(()),
            (Ok(()), None, Err(panic)) => resume_unwind(panic),
            // The first of what has happened is told.
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

    /// Iterations of an epoch in the loops that follow.
    ///
    /// # Errors
    /// If there are none.
    pub fn set_grain(&mut self, iterations: usize) -> Result<(), OptionsError> {
        let options = self.options.grain(iterations);
        options.check()?;
        self.options = options;
        Ok(())
    }

    /// Has reads at this site wait in the loops that follow, as those of [`Options::wait_at`] do: for a
    /// [`Dependence::read`] of the [profile](Speculator::profile).
    pub fn wait_at(&mut self, read: Site) {
        if !self.listed.contains(&read.into()) {
            self.listed.push(read.into());
            self.shared.wait_sites = WaitSites::of(&self.listed, &self.suspects);
        }
    }

    /// The places at which reads of the next loop wait, as a profile prints them.
    pub fn waits_at(&self) -> Vec<String> {
        self.shared.wait_sites.iter().map(ToString::to_string).collect()
    }

    /// Keeps the threads awake until the guard is dropped: for a transaction with several loops.
    pub fn stay_awake(&self) -> StayAwake<'_> {
        self.pool.stay_awake();
        StayAwake(&self.pool)
    }

    /// What the loops have done since the last call.
    pub fn take_stats(&mut self) -> Stats {
        for worker in &mut self.workers {
            self.stats += std::mem::take(&mut worker.get_mut().stats);
        }
        std::mem::take(&mut self.stats)
    }

    /// The traces of loops that have run to their ends since the last call: see [`Options::trace`].
    pub fn take_traces(&mut self) -> Vec<LoopTrace> {
        std::mem::take(&mut self.traces)
    }

    /// The dependences that have rewound epochs so far, the one that cost most first.
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

/// Keeps the threads of a speculator awake while it lives.
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
