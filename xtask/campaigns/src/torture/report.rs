//! Result of a campaign, on the terminal and as JSON. Also the progress of a campaign.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{CampaignPlan, loops_flag};
use crate::record::RunRecord;
use crate::sim::notes::LoopCounters;
use crate::sim::order::nanos;
use crate::sim::panics;
use crate::sim::scheduler::Scheduler;

/// Maximum number of failures that are printed in full.
const SHOWN: usize = 10;

/// Result of the campaigns for one mutant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MutantResult {
    pub(super) name: &'static str,
    /// True if a campaign has detected the mutant.
    pub(super) killed: bool,
    /// Name of the campaign that has detected the mutant.
    pub(super) by: Option<&'static str>,
    /// Description of the finding. For a mutant that survived: the reasons for which campaigns had no result, if any.
    pub(super) found: String,
    pub(super) seconds: f64,
}

/// Result of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Number of cases.
    pub(crate) tried: u64,
    /// Number of cases that the checker could not decide. They never count as passed.
    pub(crate) undecided: u64,
    /// Counters of the loops; zero without `--speculate on`.
    pub(crate) loop_counters: LoopCounters,
    /// Findings, each with the command that repeats it.
    pub(crate) failures: Vec<String>,
    /// Reasons for which the campaign has no result: a panic of its own code, or a case that did not end in time. They never
    /// count as passed, and are not findings.
    pub(crate) broken: Vec<String>,
    /// Results of all mutants; `Some` only for the campaign `mutants`.
    pub(crate) mutants: Option<Vec<MutantResult>>,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    campaign: &'a str,
    tried: u64,
    /// Number of findings.
    failures: u64,
    /// First findings, in full.
    findings: &'a [String],
    /// Number of cases without a result.
    broken: u64,
    undecided: u64,
    seed: u64,
    scheduler: Scheduler,
    seconds: f64,
    /// Counters of the loops; `Some` only with `--speculate on`.
    #[serde(skip_serializing_if = "Option::is_none")]
    speculative: Option<LoopCounters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    killed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutants: Option<&'a [MutantResult]>,
}

impl Report {
    /// Returns the result of a campaign that failed before its first case.
    pub(crate) fn of_failure(what: String) -> Report {
        let mut report = Report { tried: 1, ..Report::default() };
        report.fail(what);
        report
    }

    /// Returns the record of the run, for the result table of the campaign.
    pub(super) fn run_record(&self, plan: &CampaignPlan, elapsed: Duration) -> RunRecord {
        let remark = match (self.undecided, self.broken.len()) {
            (0, 0) => String::new(),
            (undecided, broken) => format!("{undecided} undecided {broken} not judged"),
        };
        RunRecord {
            flags: format!("{}{}", plan.scheduler.flag(), loops_flag(plan.speculate)).trim().to_owned(),
            seed: Some(plan.seed),
            tried: self.tried,
            failures: self.failures.len() as u64,
            elapsed,
            remark,
        }
    }

    /// Adds a failure to the findings. A panic of the campaign's own code is added to `broken` instead.
    pub(crate) fn fail(&mut self, what: String) {
        let kind = if panics::is_own(&what) { &mut self.broken } else { &mut self.failures };
        kind.push(what);
    }

    /// Returns all failures that prevent a pass.
    pub(crate) fn wrong(&self) -> impl Iterator<Item = &String> {
        self.failures.iter().chain(&self.broken)
    }

    fn is_pass(&self) -> bool {
        self.tried > 0
            && self.wrong().next().is_none()
            && self.undecided == 0
            && self.mutants.as_ref().is_none_or(|results| results.iter().all(|result| result.killed))
    }

    /// Prints the result, writes it to the file `json` if requested, and returns the exit status.
    pub(super) fn conclude(
        &self,
        campaign: &str,
        plan: &CampaignPlan,
        elapsed: Duration,
        json: Option<&Path>,
    ) -> ExitCode {
        for failure in self.failures.iter().take(SHOWN) {
            println!("FAILED {failure}");
        }
        if self.failures.len() > SHOWN {
            println!("... and {} more", self.failures.len() - SHOWN);
        }
        for broken in self.broken.iter().take(SHOWN) {
            println!("BROKEN {broken}");
        }
        let seconds = elapsed.as_secs_f64();
        let broken = match self.broken.len() {
            0 => String::new(),
            n => format!(" {n} not judged,"),
        };
        println!(
            "{campaign}: {} tried, {} failures,{broken} {} undecided in {seconds:.1} s ({:.0}/s), seed {}{}{}",
            self.tried,
            self.failures.len(),
            self.undecided,
            self.tried as f64 / seconds.max(1e-3),
            plan.seed,
            plan.scheduler.flag(),
            loops_flag(plan.speculate)
        );
        if plan.speculate {
            let LoopCounters { loops, epochs, violations } = self.loop_counters;
            println!("{campaign}: {loops} loops of {epochs} epochs, {violations} violations");
        }
        let killed = self.mutants.as_ref().map(|results| results.iter().filter(|result| result.killed).count());
        if let (Some(killed), Some(results)) = (killed, &self.mutants) {
            println!("{campaign}: {killed} of {} mutants killed", results.len());
        }
        let written = JsonReport {
            campaign,
            tried: self.tried,
            failures: self.failures.len() as u64,
            findings: &self.failures[..self.failures.len().min(SHOWN)],
            broken: self.broken.len() as u64,
            undecided: self.undecided,
            seed: plan.seed,
            scheduler: plan.scheduler,
            seconds,
            speculative: plan.speculate.then_some(self.loop_counters),
            killed,
            mutants: self.mutants.as_deref(),
        };
        if let Some(path) = json
            && let Err(e) = serde_json::to_vec(&written).map_err(Into::into).and_then(|text| std::fs::write(path, text))
        {
            eprintln!("{}: {e}", path.display());
            return ExitCode::FAILURE;
        }
        // A campaign with `--speculate on` that ran no loop has tested nothing, so it fails.
        if self.is_pass() && (!plan.speculate || self.loop_counters.loops > 0) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Progress of a campaign on stderr: a progress bar on a terminal, otherwise a line per minute.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Last reported minute; `None` on a terminal.
    minutes: Option<AtomicU64>,
    start: Instant,
    fail_fast: bool,
    failed: AtomicBool,
    /// Number of cores that have no more seeds to run.
    idle: AtomicUsize,
}

impl Progress {
    pub(super) fn start(campaign: &str, plan: &CampaignPlan, fail_fast: bool) -> Progress {
        println!(
            "{campaign}: at least {} cases, seed {}{}{}",
            plan.budget,
            plan.seed,
            plan.scheduler.flag(),
            loops_flag(plan.speculate)
        );
        let bar = ProgressBar::new(plan.budget);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec} {eta}") {
            bar.set_style(style);
        }
        bar.set_message(campaign.to_owned());
        let minutes = (!std::io::stderr().is_terminal()).then(AtomicU64::default);
        let (failed, idle) = (AtomicBool::new(false), AtomicUsize::new(0));
        Progress { bar, minutes, start: Instant::now(), fail_fast, failed, idle }
    }

    /// Returns a progress without output.
    #[cfg(test)]
    pub(super) fn hidden() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
            minutes: None,
            start: Instant::now(),
            fail_fast: false,
            failed: AtomicBool::new(false),
            idle: AtomicUsize::new(0),
        }
    }

    /// Adds the number of completed cases.
    pub(crate) fn add(&self, cases: u64) {
        self.bar.inc(cases);
        if let Some(reported) = &self.minutes {
            let minute = self.start.elapsed().as_secs() / 60;
            if reported.fetch_max(minute, Ordering::Relaxed) < minute {
                eprintln!("{minute:>5} min  {} of {} cases", self.bar.position(), self.bar.length().unwrap_or(0));
            }
        }
    }

    /// Records a failure.
    pub(crate) fn failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the campaign must end because of a failure.
    pub(crate) fn is_over(&self) -> bool {
        self.fail_fast && self.failed.load(Ordering::Relaxed)
    }

    /// Records that a core has no more seeds to run.
    pub(super) fn add_idle_core(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of cores that have no more seeds to run.
    pub(super) fn idle_cores(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Returns a seed that is derived from the clock.
pub(super) fn seed_of_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| nanos(d) & 0xffff_ffff)
}
