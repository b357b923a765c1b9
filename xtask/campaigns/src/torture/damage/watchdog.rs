//! Runs cases on all cores, and detects cases that panic, do not end, or use too much memory.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::thread;
use std::time::Duration;

use super::memory;
use crate::sim::panics;
use crate::torture::CampaignPlan;
use crate::torture::report::{Progress, Report};

/// Interval between two checks of the watchdog.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Number of checks after which an unchanged case counts as hanging: 10 s during which this process ran.
const MAX_POLLS: u32 = 50;
/// Maximum number of failures. The campaign ends when it is exceeded.
const MAX_FAILURES: usize = 1000;
/// Maximum number of hanging cases. The campaign ends when it is exceeded, because each hanging case occupies a core.
const MAX_HANGING: u32 = 4;

/// Result of a case that ended by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseResult {
    /// Kind of the case and class of its outcome, for statistics.
    pub(crate) class: String,
    /// Description of the failure, if any.
    pub(crate) failure: Option<String>,
}

/// Cases of a campaign. A case is determined by its number.
pub(crate) trait Cases: Send + Sync + 'static {
    /// Name of the campaign on the command line.
    const CAMPAIGN: &'static str;
    /// Returns the maximum number of bytes of memory that a case may use.
    fn memory_limit(&self) -> u64;
    /// Runs a case.
    fn run(&self, case: u64) -> CaseResult;
    /// Describes a case, for a message about a case that did not end.
    fn describe(&self, case: u64) -> String;
}

thread_local! {
    /// Message of this thread's last panic, empty before a panic; `None` while the thread runs no case.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook that records the message of a panic within a case for the report. Other panics are printed as
/// usual.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let first = PANIC.with(|panic| {
                let mut panic = panic.borrow_mut();
                let first = panic.as_ref().is_some_and(String::is_empty);
                first.then(|| *panic = Some(panics::message(info))).is_some()
            });
            // A second panic during the unwinding of the first one aborts the process, so both messages are printed at once.
            if !first {
                PANIC.with(|panic| eprintln!("{}", panic.borrow().as_deref().unwrap_or_default()));
                usual(info);
            }
        }));
    });
}

/// Runs one case. Catches a panic, and checks the memory use.
fn attempt<C: Cases>(cases: &C, case: u64) -> CaseResult {
    PANIC.with(|panic| *panic.borrow_mut() = Some(String::new()));
    let (ended, most) = memory::peak_during(|| catch_unwind(AssertUnwindSafe(|| cases.run(case))));
    let panic = PANIC.with(|panic| panic.borrow_mut().take()).unwrap_or_default();
    let mut ending = ended.unwrap_or_else(|_| CaseResult {
        class: "panic".into(),
        failure: Some(format!("{}: {panic}", cases.describe(case))),
    });
    if most > cases.memory_limit() && ending.failure.is_none() {
        let what = cases.describe(case);
        ending.failure = Some(format!("{what}: took {most} bytes of memory, more than {}", cases.memory_limit()));
    }
    ending
}

/// Case that a thread runs.
#[derive(Default)]
struct RunningCase {
    /// Number of the current case plus one; 0 for none.
    case: AtomicU64,
}

/// Runs the cases 0 to `plan.budget`, exclusive. If the plan has a case, runs only that case.
pub(crate) fn run<C: Cases>(cases: C, plan: &CampaignPlan, progress: &Progress) -> Report {
    install_panic_hook();
    let (first, end) = plan.case.map_or((0, plan.budget), |case| (case, case + 1));
    let (cases, next) = (Arc::new(cases), Arc::new(AtomicU64::new(first)));
    let (send, endings) = mpsc::channel::<(u64, CaseResult)>();
    let start = || {
        let place = Arc::new(RunningCase::default());
        let (cases, next, send, mine) = (Arc::clone(&cases), Arc::clone(&next), send.clone(), Arc::clone(&place));
        thread::spawn(move || {
            loop {
                let case = next.fetch_add(1, Ordering::Relaxed);
                if case >= end {
                    return;
                }
                mine.case.store(case + 1, Ordering::Relaxed);
                let ending = attempt(&*cases, case);
                mine.case.store(0, Ordering::Relaxed);
                if send.send((case, ending)).is_err() {
                    return;
                }
            }
        });
        (place, 0u64, 0u32)
    };
    let mut places: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| start()).collect();
    let mut report = Report::default();
    let mut classes = std::collections::BTreeMap::<String, u64>::new();
    let mut last_poll = std::time::Instant::now();
    let mut hanging = 0;
    while report.tried < end - first && hanging < MAX_HANGING && !progress.is_over() {
        if let Ok((case, ending)) = endings.recv_timeout(POLL_INTERVAL) {
            report.tried += 1;
            progress.add(1);
            *classes.entry(ending.class).or_default() += 1;
            if ending.failure.is_some() {
                progress.failed();
            }
            if let Some(what) = ending.failure {
                report.fail(failure_text::<C>(case, plan, &what));
            }
            if report.failures.len() >= MAX_FAILURES {
                break;
            }
        }
        if last_poll.elapsed() < POLL_INTERVAL {
            continue;
        }
        last_poll = std::time::Instant::now();
        for place in &mut places {
            let now = place.0.case.load(Ordering::Relaxed);
            place.2 = if now != 0 && now == place.1 { place.2 + 1 } else { 0 };
            place.1 = now;
            if place.2 == MAX_POLLS {
                // A hanging thread cannot be ended. It is left behind, and another thread replaces it.
                let what = format!("{}: has not ended after 10 s", cases.describe(now - 1));
                report.broken.push(failure_text::<C>(now - 1, plan, &what));
                progress.failed();
                report.tried += 1;
                hanging += 1;
                *place = start();
            }
        }
    }
    for (class, cases) in &classes {
        println!("{cases:>10}  {class}");
    }
    report
}

/// Formats a failure together with the command that repeats it.
fn failure_text<C: Cases>(case: u64, plan: &CampaignPlan, what: &str) -> String {
    let (name, how, seed) = (C::CAMPAIGN, plan.scheduler.flag(), plan.seed);
    format!("case {case}: {what}\n       cargo xtask torture {name}{how} --seed {seed} --case {case}")
}
