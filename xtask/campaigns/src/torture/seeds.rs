//! Runs seeds or cases on all cores until the budget of cases is reached.

use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::CampaignPlan;
use super::report::{Progress, Report};
use crate::sim::notes::LoopCounters;
use crate::sim::rng::Rng;
use crate::sim::scheduler::Scheduler;

/// Result of one seed.
#[derive(Debug, Default)]
pub(super) struct SeedResult {
    /// Number of cases that were run.
    pub(super) cases: u64,
    /// Number of cases that the checker could not decide.
    pub(super) undecided: u64,
    /// Counters of the loops of all runs; zero without `--speculate on`.
    pub(super) loop_counters: LoopCounters,
    /// Descriptions of the failures.
    pub(super) failures: Vec<String>,
}

impl SeedResult {
    /// Adds the description of a failure, with the command that repeats it.
    pub(super) fn fail(&mut self, campaign: &str, scheduler: Scheduler, seed: u64, what: impl std::fmt::Display) {
        let how = scheduler.flag();
        self.failures.push(format!("{what}\n  again: cargo xtask torture {campaign}{how} --seed {seed} --budget 1"));
    }
}

/// Runs `one` with consecutive seeds, beginning with the plan's seed, until the number of cases reaches the budget. A seed
/// that has begun is completed, so that `--budget 1` runs all cases of one seed.
pub(super) fn run_seeds(plan: &CampaignPlan, progress: &Progress, one: impl Fn(u64) -> SeedResult + Sync) -> Report {
    let name = |at| format!("--seed {}", plan.seed.wrapping_add(at));
    on_all_cores(plan.budget, progress, name, |at, done| (done < plan.budget).then(|| one(plan.seed.wrapping_add(at))))
}

/// Selects cases of a seed: the plan's case if set, otherwise a random sample of at most `budget` cases. Returns the cases
/// with their numbers, in random order.
pub(super) fn select_cases<T>(campaign: &str, plan: &CampaignPlan, all: impl Iterator<Item = T>) -> Vec<(u64, T)> {
    let mut cases: Vec<(u64, T)> = (0..).zip(all).collect();
    if let Some(case) = plan.case {
        cases.retain(|(number, _)| *number == case);
    }
    let mut rng = Rng::new(plan.seed);
    for at in (1..cases.len()).rev() {
        cases.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let of = cases.len();
    if let (Some(case), true) = (plan.case, cases.is_empty()) {
        println!("{campaign}: seed {} has no case {case}", plan.seed);
    }
    cases.truncate(usize::try_from(plan.budget).unwrap_or(usize::MAX));
    println!("{campaign}: {} of {of} cases", cases.len());
    cases
}

/// Runs `one` with each of `cases`, on all cores.
pub(super) fn run_cases<T: Sync>(
    cases: &[T],
    progress: &Progress,
    name: impl Fn(&T) -> String + Sync,
    one: impl Fn(&T) -> SeedResult + Sync,
) -> Report {
    let case = |at| cases.get(usize::try_from(at).ok()?);
    on_all_cores(u64::MAX, progress, |at| case(at).map(&name).unwrap_or_default(), |at, _| case(at).map(&one))
}

/// Calls `one` with the index and the value of each of `cases`, on this core and on cores that have no more seeds to run.
pub(super) fn share_cases<T: Sync, R: Send>(
    cases: &[T],
    progress: &Progress,
    one: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    report_progress();
    let share = cases.len().div_ceil(1 + progress.idle_cores()).max(1);
    let part = |(number, cases): (usize, &[T])| {
        cases.iter().enumerate().map(|(at, case)| one(number * share + at, case)).collect::<Vec<R>>()
    };
    thread::scope(|scope| {
        let (part, mut parts) = (&part, cases.chunks(share).enumerate());
        let first = parts.next();
        let others: Vec<_> = parts.map(|other| scope.spawn(move || part(other))).collect();
        let mut done = first.map_or_else(Vec::new, part);
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    })
}

/// Interval between two checks of the watchdog.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of the watchdog's checks between two reports of progress. They take 120 s during which this process ran,
/// far more than any machine needs. Simulated hangs are detected in simulated time; this limit detects all other hangs.
const MAX_POLLS: u32 = 120 * 20;

/// Exit status of a campaign without a result, which is neither a pass nor a finding.
const BROKEN: i32 = 3;

thread_local! {
    /// Number of the watchdog's checks since the last report of progress on this core.
    static POLLS: Arc<AtomicU32> = Arc::default();
}

/// Reports progress of this core's seed to the watchdog.
pub(super) fn report_progress() {
    POLLS.with(|polls| polls.store(0, Ordering::Relaxed));
}

/// Name of the current seed of a core, if any, and the core's counter of the watchdog's checks.
#[derive(Default)]
struct CoreProgress {
    name: Mutex<Option<String>>,
    polls: OnceLock<Arc<AtomicU32>>,
}

impl CoreProgress {
    /// Sets the name of the current seed of this core; `None` if the core runs no seed.
    fn set_seed(&self, name: Option<String>) {
        POLLS.with(|polls| drop(self.polls.set(Arc::clone(polls))));
        report_progress();
        *lock(&self.name) = name;
    }
}

/// Ends the process if a seed hangs, and prints the name of the seed. The thread of the seed cannot be ended alone.
fn exit_if_hanging(cores: &[CoreProgress]) {
    for core in cores {
        if let (Some(at), Some(polls)) = (&*lock(&core.name), core.polls.get())
            && polls.fetch_add(1, Ordering::Relaxed) > MAX_POLLS
        {
            // A test's harness would withhold what `println` prints, because the test does not end.
            let _ = writeln!(std::io::stdout(), "BROKEN {at} has not ended for {:?}", POLL_INTERVAL * MAX_POLLS);
            std::process::exit(BROKEN);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `next` with 0, 1, 2, ... and the number of completed cases, until it returns `None`. The calls are made on all
/// cores, but on at most `most` of them.
fn on_all_cores(
    most: u64,
    progress: &Progress,
    name: impl Fn(u64) -> String + Sync,
    next: impl Fn(u64, u64) -> Option<SeedResult> + Sync,
) -> Report {
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    let count = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let report = Mutex::new(Report::default());
    let core_progress: Vec<CoreProgress> = (0..cores.min(most)).map(|_| CoreProgress::default()).collect();
    let left = AtomicU64::new(core_progress.len() as u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                exit_if_hanging(&core_progress);
                thread::park_timeout(POLL_INTERVAL);
            }
        });
        for core in &core_progress {
            scope.spawn(|| {
                // The number of completed cases is 0 in the first call, so the plan's seed is always run.
                while !progress.is_over() {
                    let at = count.fetch_add(1, Ordering::Relaxed);
                    core.set_seed(Some(name(at)));
                    let Some(seed_result) = next(at, done.load(Ordering::Relaxed)) else { break };
                    if !seed_result.failures.is_empty() {
                        progress.failed();
                    }
                    done.fetch_add(seed_result.cases.max(1), Ordering::Relaxed);
                    progress.add(seed_result.cases);
                    let mut report = lock(&report);
                    report.tried += seed_result.cases;
                    report.undecided += seed_result.undecided;
                    report.loop_counters += seed_result.loop_counters;
                    seed_result.failures.into_iter().for_each(|what| report.fail(what));
                }
                core.set_seed(None);
                progress.add_idle_core();
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}
