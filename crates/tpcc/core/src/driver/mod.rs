//! Runs terminals on an engine and measures them.
//!
//! Each worker is a thread with terminals of its own; a [`Runner`] defines how their transactions share the thread. A
//! worker does not wait for its commits to reach the disk: a response is sent once its ticket is durable, and meanwhile the
//! worker serves other terminals. The main thread only supervises: it switches the phases, and samples the counters of the
//! workers once per second.

pub mod ack;
mod admission;
mod attempt;
pub mod counters;
pub mod hardware;
pub mod in_process;
mod latency_histogram;
pub mod measure;
pub mod pacing;
pub mod runner;
pub mod terminal;
#[cfg(test)]
mod tests;
mod worker_terminals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sched_steps::team::Statistics;

use crate::workload::counters::LeafCounters;
use crate::workload::database::RegionReport;
use crate::workload::engine::{Engine, EngineFigures, OpenTransaction, Session};
use crate::workload::generate::Random;
use crate::workload::generate::deck::Mix;
use crate::workload::generate::input::InputSpace;
use crate::workload::generate::nurand::Constants;
use crate::workload::interrupt;
use crate::workload::loaded::{Fact, Loaded};
use crate::workload::ops::Ops;
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::tables::Meta;
use crate::workload::settings::{Admission, ClockKind, Length};
use crate::workload::threads;
use crate::workload::time::nanos;
use crate::workload::txn::StepOrder;
use ack::Sink;
use admission::{ByKind, Fifo};
use counters::EventCounts;
use latency_histogram::{HistogramSnapshot, LatencyHistogram};
use measure::Stats;
use pacing::figures::PacedFigures;
use runner::itas::SiblingFigures;
use runner::{Runner, Workplace};
use terminal::Terminal;
use worker_terminals::WorkerTerminals;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    /// Number of warehouses in use. Warehouses are numbered from 1.
    pub warehouses: u32,
    /// Number of worker threads.
    pub workers: usize,
    /// Total number of terminals.
    pub terminals: u32,
    /// Transaction mix.
    pub mix: Mix,
    /// Order of the steps in a transaction.
    pub steps: StepOrder,
    /// Admission order of terminal transactions.
    pub admission: Admission,
    /// Placement of a warehouse's terminals: on one worker, or spread over all workers.
    pub placement: itas::Placement,
    /// True if each worker is pinned to a core of its own.
    pub pin: bool,
    /// True if hardware and operating system counters of the workers are read.
    pub counters: bool,
    /// Duration of the warm-up, and end condition of the measurement.
    pub length: Length,
    /// Source of dates: real time or transaction numbers.
    pub clock: ClockKind,
    /// Seed of the random number generators.
    pub seed: u64,
}

impl RunPlan {
    /// Returns true if the concurrent transactions of a worker must be of different warehouses. This requires batched
    /// admission and at least [`LEAST_APART`] warehouses per worker.
    fn apart(&self) -> bool {
        self.admission == Admission::Batched && self.warehouses as usize / self.workers >= LEAST_APART
    }

    /// Returns the maximum number of concurrent transactions of a worker with these terminals and a team of `size`.
    fn team_of(&self, size: usize, terminals: &[Terminal]) -> usize {
        let size = size.min(terminals.len());
        if size > 1 && self.apart() {
            let own: BTreeSet<u32> = terminals.iter().map(Terminal::warehouse).collect();
            return size.min(own.len());
        }
        size
    }
}

/// Minimum number of warehouses per worker for the limit of one concurrent transaction per warehouse. With fewer warehouses,
/// this limit would make a team too small.
const LEAST_APART: usize = 8;

/// Number of transactions of one kind that a worker without a team admits in a row: the usual size of a team.
const BATCH: usize = 16;

/// Results of a run.
pub struct RunResult {
    /// Merged counts of all workers.
    pub stats: Stats,
    /// Team statistics of each worker; empty without teams.
    pub teams: Vec<Statistics>,
    /// Maximum number of concurrent transactions of a worker.
    pub team_size: usize,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// One sample per full second of the measurement.
    pub series: Vec<Sample>,
    /// True if the user ended the run.
    pub interrupted: bool,
    /// Error message for the user if a failure ended the run early. The other fields then cover the time before the
    /// failure.
    pub failure: Option<String>,
    /// Counters of the engine over the measurement.
    pub figures: EngineFigures,
    /// Counters of contended leaves by table, since the engine was opened. Empty for an engine without leaves.
    pub leaves: BTreeMap<String, LeafCounters>,
    /// Statistics of sibling groups; `None` without sibling groups.
    pub siblings: Option<SiblingFigures>,
    /// Hardware and operating system counts of the workers; `None` unless requested.
    pub counted: Option<EventCounts>,
    /// Memory usage of the stacks of all fibers; `None` without fibers.
    pub stacks: Option<RegionReport>,
    /// Figures of paced terminals; `None` without pacing.
    pub paced: Option<PacedFigures>,
}

/// Results of a worker of a run.
pub struct WorkerResult {
    stats: Stats,
    /// Team statistics of the worker; `None` without teams.
    teams: Option<Statistics>,
    /// Hardware and operating system counts of the worker's thread; `None` unless requested.
    counted: Option<EventCounts>,
    /// Memory usage of the stacks of the worker's fibers; `None` without fibers.
    stacks: Option<RegionReport>,
    /// Error message if a failure ended the worker early.
    failure: Option<String>,
}

impl WorkerResult {
    /// Creates the result of a worker that failed before its first transaction.
    fn failed(why: String) -> WorkerResult {
        WorkerResult { stats: Stats::new(), teams: None, counted: None, stacks: None, failure: Some(why) }
    }
}

/// Figures of one second of the measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// End of the second, in seconds since the start of the measurement.
    pub t_s: f64,
    /// Completed transactions per second.
    pub throughput_per_s: f64,
    /// 99th percentile of the service times (paced terminals: response times), rounded up by at most 1/8. `None` without
    /// transactions.
    pub p99_us: Option<f64>,
    /// Number of aborts during this second.
    pub aborted: u64,
    /// Counters of the engine over this second.
    pub figures: EngineFigures,
}

/// Progress figures of a run, reported once per second.
pub struct Tick {
    /// Seconds since the start of the phase.
    pub elapsed: f64,
    /// True during the warm-up.
    pub is_warmup: bool,
    /// Completed transactions per second, over the last second.
    pub throughput_per_s: f64,
    /// Number of transactions completed since the workers started.
    pub completed: u64,
    /// Number of aborts since the workers started.
    pub aborted: u64,
    /// 99th percentile over the last second of the service times (paced terminals: response times), rounded up by at most
    /// 1/8. `None` without transactions.
    pub p99_us: Option<f64>,
    /// Counters of the engine over the last second.
    pub figures: EngineFigures,
}

/// Clock of a run: nanoseconds since its start, and the corresponding date.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_unix_us: u64,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), start_unix_us: nanos(since) / 1_000 }
    }

    /// Returns the nanoseconds since the start of the clock.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Converts a reading of [`Self::now_ns`] to a date of the run.
    #[inline]
    pub fn date(&self, ns: u64) -> Timestamp {
        Timestamp::at(self.unix_us(ns))
    }

    /// Converts a reading of [`Self::now_ns`] to microseconds since 1970.
    #[inline]
    pub fn unix_us(&self, ns: u64) -> u64 {
        self.start_unix_us + ns / 1_000
    }
}

/// Phase of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Warm-up: transactions are not counted.
    Warmup,
    /// Measurement: transactions are counted.
    Measure,
    /// End of the run: no further transaction starts.
    Stop,
}

impl Phase {
    /// Returns the first phase of a run.
    fn first(length: &Length) -> Phase {
        if length.warmup.is_zero() { Phase::Measure } else { Phase::Warmup }
    }
}

/// Control variables shared by the workers and the main thread. They change only a few times in a run, so they stay in the
/// cache of each worker's core.
pub struct Control {
    phase: AtomicU8,
    finished: AtomicUsize,
}

impl Control {
    /// Creates the control variables of a run in this phase.
    fn of(phase: Phase) -> Control {
        Control { phase: AtomicU8::new(phase as u8), finished: AtomicUsize::new(0) }
    }

    #[inline]
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Warmup,
            1 => Phase::Measure,
            _ => Phase::Stop,
        }
    }

    fn set(&self, phase: Phase) {
        // The phase never returns to an earlier one: a worker that failed may have set `Stop` already.
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
    }
}

/// Progress counters that a worker writes and the main thread reads, in cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub struct Board {
    completed: AtomicU64,
    aborted: AtomicU64,
    times: LatencyHistogram,
}

impl Board {
    #[inline]
    fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

/// Returns the number of bytes of a worker's counters. Excludes the worker's terminals and stacks.
pub fn worker_bytes() -> u64 {
    (size_of::<Board>() + Stats::bytes()) as u64
}

/// Returns the number of bytes of a terminal without pacing, including its entries in the queues of its worker.
pub fn terminal_bytes(mix: Mix) -> u64 {
    (Terminal::bytes(mix) + worker_terminals::place_bytes()) as u64
}

/// Returns the number of bytes recorded per second of a run.
pub fn second_bytes() -> u64 {
    size_of::<Sample>() as u64
}

/// Creates the terminals of each worker.
fn terminals_by_worker(plan: &RunPlan, terminal: impl Fn(u32) -> Terminal) -> Vec<Vec<Terminal>> {
    // Counts the terminals first, so that each worker's list has the exact capacity.
    let mut numbers = vec![0; plan.workers];
    (0..plan.terminals).for_each(|number| numbers[Terminal::worker_of(number, plan)] += 1);
    let mut terminals: Vec<Vec<Terminal>> = numbers.into_iter().map(Vec::with_capacity).collect();
    for number in 0..plan.terminals {
        terminals[Terminal::worker_of(number, plan)].push(terminal(number));
    }
    terminals
}

/// Increments the run number in the database and returns it. The update is durable on return.
pub fn next_run<E: Engine>(engine: &E) -> Result<u32, E::Error> {
    let mut session = engine.session(0)?;
    let mut transaction = session.begin()?;
    let run = transaction.update::<Meta, _>(&Fact::Runs.key(), |hot, ()| {
        hot.value.set(hot.value.get() + 1);
        hot.value.get()
    })?;
    let ticket = transaction.commit()?;
    session.wait_for(ticket)?;
    Ok(run.unwrap_or(1) as u32)
}

/// Runs `plan` on a loaded engine. `runner` defines how transactions share workers. Acknowledgements go to `acks`, if
/// given. `look` is called once per second.
///
/// # Errors
/// A message for the user if the run cannot start. A later failure is in [`RunResult::failure`], with the figures up to the
/// failure.
pub fn run<E: Engine>(
    engine: &E,
    runner: &impl Runner,
    loaded: &Loaded,
    plan: &RunPlan,
    acks: Option<&Sink>,
    mut look: impl FnMut(&Tick),
) -> Result<RunResult, String> {
    runner.keep_apart(plan.apart());
    let run = next_run(engine).map_err(|e| e.to_string())?;
    if acks.is_some() {
        ack::prepare(engine, run, plan.terminals).map_err(|e| e.to_string())?;
    }
    let constants = Constants::for_run(&mut Random::stream(plan.seed, u64::MAX), loaded.c_load);
    let world = InputSpace { scale: loaded.scale, warehouses: plan.warehouses, constants };
    let clock = Clock::start();
    let control = Control::of(Phase::first(&plan.length));
    let boards: Vec<Board> = (0..plan.workers).map(|_| Board::default()).collect();
    let terminals = terminals_by_worker(plan, |number| Terminal::new(number, run, plan, &loaded.scale));
    let quotas = quotas(plan.length.transactions, &terminals);
    let team_size = terminals.iter().map(|own| plan.team_of(runner.team_size(), own)).max().unwrap_or(1);
    let main = std::thread::current();

    std::thread::scope(|scope| {
        let (control, boards, world, main) = (&control, &boards, &world, &main);
        let works = terminals.into_iter().zip(quotas).enumerate().map(|(number, (terminals, quota))| {
            move || {
                let _end = EndGuard { control, main };
                if let Err(why) = pin_worker(plan, number) {
                    control.set(Phase::Stop);
                    return WorkerResult::failed(why);
                }
                serve(engine, runner, number, terminals, acks, quota, plan, world, control, &boards[number], clock)
            }
        });
        let workers = threads::spawn_all(scope, "worker", works).map_err(|error| error.to_string())?;
        let mut failure = None;
        let (series, interrupted, figures) = supervise(engine, plan, control, boards, clock, &mut look, |_| {});
        let mut stats = Stats::new();
        let (mut teams, mut stacks) = (Vec::new(), None);
        let mut counted: Option<EventCounts> = None;
        for worker in workers {
            match worker.join() {
                Ok(result) => {
                    stats.merge(&result.stats);
                    teams.extend(result.teams);
                    stacks = RegionReport::sum(stacks, result.stacks);
                    match (&mut counted, result.counted) {
                        (Some(all), Some(more)) => all.merge(more),
                        (none, more) => *none = none.take().or(more),
                    }
                    failure = failure.or(result.failure);
                }
                Err(_) => failure = failure.or(Some("a worker panicked; this is a fault of the program".to_owned())),
            }
        }
        Ok(RunResult {
            seconds: stats.seconds(),
            stats,
            teams,
            team_size,
            series,
            interrupted,
            failure,
            figures,
            leaves: engine.leaves(),
            siblings: None,
            counted,
            stacks,
            paced: None,
        })
    })
}

/// Pins the calling worker thread to its core, if pinning is requested.
fn pin_worker(plan: &RunPlan, number: usize) -> Result<(), String> {
    if !plan.pin {
        return Ok(());
    }
    let cores = hardware::cores::allowed();
    let core =
        cores.get(number).ok_or_else(|| format!("--pin: no core for worker {number}; pass a smaller --workers"))?;
    hardware::cores::pin_to(*core)
}

/// Runs a worker on the calling thread, until the run ends.
#[allow(clippy::too_many_arguments)]
fn serve<E: Engine>(
    engine: &E,
    runner: &impl Runner,
    number: usize,
    terminals: Vec<Terminal>,
    acks: Option<&Sink>,
    quota: Option<u64>,
    plan: &RunPlan,
    world: &InputSpace,
    control: &Control,
    board: &Board,
    clock: Clock,
) -> WorkerResult {
    let size = plan.team_of(runner.team_size(), &terminals);
    let place = Workplace { engine, number, size, steps: plan.steps, counters: plan.counters, control };
    match plan.admission {
        Admission::Fifo => {
            let terminals = WorkerTerminals::new(Fifo::default(), terminals, acks, quota, world, control, board, clock);
            runner.serve(&place, terminals)
        }
        Admission::Batched => {
            let batch = if size > 1 { size } else { BATCH };
            let ready = ByKind::new(batch, plan.apart().then_some(plan.warehouses));
            let terminals = WorkerTerminals::new(ready, terminals, acks, quota, world, control, board, clock);
            runner.serve(&place, terminals)
        }
    }
}

/// Divides the number of transactions of a run among the workers that have terminals.
fn quotas(transactions: Option<u64>, terminals: &[Vec<Terminal>]) -> Vec<Option<u64>> {
    let Some(all) = transactions else { return vec![None; terminals.len()] };
    let busy = terminals.iter().filter(|t| !t.is_empty()).count().max(1) as u64;
    let mut rest = all % busy;
    terminals
        .iter()
        .map(|t| {
            if t.is_empty() {
                return Some(0);
            }
            let one_more = u64::from(rest > 0);
            rest -= one_more;
            Some(all / busy + one_more)
        })
        .collect()
}

/// Reports the end of a worker to the main thread on drop, also after a panic.
struct EndGuard<'a> {
    control: &'a Control,
    main: &'a std::thread::Thread,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.set(Phase::Stop);
        }
        self.control.finished.fetch_add(1, Ordering::Release);
        self.main.unpark();
    }
}

/// Switches the phases and samples the counters until all workers have ended. Calls `look` with the progress once per
/// second, and `begins` at the start of each phase. Returns the samples, true if the user ended the run, and the engine's
/// counters of the measurement.
fn supervise<E: Engine>(
    engine: &E,
    plan: &RunPlan,
    control: &Control,
    boards: &[Board],
    clock: Clock,
    look: &mut impl FnMut(&Tick),
    mut begins: impl FnMut(Phase),
) -> (Vec<Sample>, bool, EngineFigures) {
    const SECOND: u64 = 1_000_000_000;
    /// Maximum time between two checks for signals.
    const LOOK: Duration = Duration::from_millis(50);
    let sum = |counter: fn(&Board) -> &AtomicU64| -> u64 {
        boards.iter().map(|board| counter(board).load(Ordering::Relaxed)).sum()
    };
    let mut series = Vec::new();
    let mut interrupted = false;
    let mut figures_at_start = engine.figures();
    let mut figures_before = figures_at_start.clone();
    let mut phase_start = clock.now_ns();
    let (mut last_ns, mut last_count, mut last_aborted) = (phase_start, 0, 0);
    let mut is_warmup = control.phase() == Phase::Warmup;
    let mut snapshot = HistogramSnapshot::default();
    begins(control.phase());
    loop {
        let phase_ends = if is_warmup { Some(plan.length.warmup) } else { plan.length.duration }
            .map(|d| phase_start.saturating_add(nanos(d)));
        let now = clock.now_ns();
        let wake = phase_ends.unwrap_or(u64::MAX).min(last_ns + SECOND);
        if control.finished.load(Ordering::Acquire) == boards.len() || control.phase() == Phase::Stop {
            break;
        }
        if interrupt::requested() {
            interrupted = true;
            control.set(Phase::Stop);
            break;
        }
        if now < wake {
            std::thread::park_timeout(Duration::from_nanos(wake - now).min(LOOK));
            continue;
        }
        if now >= last_ns + SECOND {
            let count = sum(|b| &b.completed);
            let throughput_per_s = (count - last_count) as f64 * 1e9 / (now - last_ns) as f64;
            let t_s = (now - phase_start) as f64 / 1e9;
            let (aborted, all_figures) = (sum(|b| &b.aborted), engine.figures());
            let figures = all_figures.since(&figures_before);
            let p99_us = snapshot.quantile_ns(boards.iter().map(|b| &b.times), 0.99).map(|ns| ns as f64 / 1e3);
            if !is_warmup {
                let (aborted, figures) = (aborted - last_aborted, figures.clone());
                series.push(Sample { t_s, throughput_per_s, p99_us, aborted, figures });
            }
            look(&Tick { elapsed: t_s, is_warmup, throughput_per_s, completed: count, aborted, p99_us, figures });
            figures_before = all_figures;
            (last_ns, last_count, last_aborted) = (now, count, aborted);
        }
        if phase_ends.is_some_and(|end| now >= end) {
            if !is_warmup {
                control.set(Phase::Stop);
                break;
            }
            control.set(Phase::Measure);
            begins(Phase::Measure);
            is_warmup = false;
            figures_at_start = engine.figures();
            phase_start = now;
            (last_ns, last_count, last_aborted) = (now, sum(|b| &b.completed), sum(|b| &b.aborted));
            figures_before = figures_at_start.clone();
        }
    }
    begins(Phase::Stop);
    while control.finished.load(Ordering::Acquire) < boards.len() {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    (series, interrupted, engine.figures().since(&figures_at_start))
}
