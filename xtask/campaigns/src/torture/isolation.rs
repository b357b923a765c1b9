//! `isolation`: random concurrent histories at every isolation level. Each history is checked for the anomalies that its
//! level forbids.
//!
//! The histories of a campaign have consecutive seeds. A seed determines its history, except for the interleaving of the
//! sessions, which depends on the machine. Permitted anomalies are counted too, because a checker that never detects them
//! might also miss forbidden ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use storage::Isolation;
use tpcc_core::checkers::history::check::Phenomenon;
use tpcc_core::checkers::history::{self, Trial};

use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use super::{CampaignPlan, latches_flag};
use crate::sim::scheduler::Scheduler;

/// Number of transactions of a history: eight sessions with 500 transactions each.
const TRANSACTIONS: u32 = 4000;
/// Directory for the histories with forbidden anomalies.
const OUTPUT_DIR: &str = "target/torture";
/// Maximum number of transactions that are printed for an anomaly.
const SHOWN: usize = 6;

/// Numbers of histories, committed transactions, dependences and permitted anomalies at one isolation level.
#[derive(Default)]
struct AnomalyCounts {
    histories: u64,
    committed: usize,
    edges: usize,
    kinds: BTreeMap<Phenomenon, u64>,
}

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    let counts: Mutex<BTreeMap<&str, AnomalyCounts>> = Mutex::default();
    let report = seeds::run_seeds(plan, progress, |seed| run_seed(seed, plan, &counts));
    for (level, counts) in counts.into_inner().unwrap_or_else(PoisonError::into_inner) {
        println!("isolation: {level}: {}", summary(&counts));
    }
    report
}

fn run_seed(seed: u64, plan: &CampaignPlan, counts: &Mutex<BTreeMap<&str, AnomalyCounts>>) -> SeedResult {
    let (scheduler, campaign) = (plan.scheduler, format!("isolation{}", latches_flag(plan.latches)));
    let trial = Trial::of_seed(seed, TRANSACTIONS);
    let trial = match plan.latches {
        Some(latches) => trial.with_latches(latches.kind()),
        None => trial,
    };
    let trial = match scheduler {
        Scheduler::Threads => trial,
        Scheduler::Steps => trial.on_fibers(),
        Scheduler::Itas => match trial.on_siblings() {
            Ok(trial) => trial,
            Err(what) => {
                let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
                seed_result.fail(&campaign, scheduler, seed, what);
                return seed_result;
            }
        },
    };
    let level = trial.params.isolation;
    let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
    let history = match trial.run() {
        Ok(history) => history,
        Err(what) => {
            seed_result.fail(&campaign, scheduler, seed, format!("seed {seed}: {what}\n  {:?}", trial.params));
            return seed_result;
        }
    };
    let findings = &history.findings;
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let of_level = counts.entry(name(level)).or_default();
    of_level.histories += 1;
    of_level.committed += findings.committed;
    of_level.edges += findings.edges;
    for kind in Phenomenon::ALL.into_iter().filter(|kind| findings.has(*kind)) {
        *of_level.kinds.entry(kind).or_default() += 1;
    }
    if findings.forbidden(level).next().is_some() {
        seed_result.fail(&campaign, scheduler, seed, failure(seed, &trial, &history));
    } else if let Some(why) = &findings.undecided {
        seed_result.undecided = 1;
        println!("UNDECIDED seed {seed}: {why}\n  {:?}", trial.params);
    }
    seed_result
}

fn name(level: Isolation) -> &'static str {
    match level {
        Isolation::Serializable => "serializable",
        Isolation::RepeatableRead => "repeatable-read",
        Isolation::ReadCommitted => "read-committed",
    }
}

fn summary(counts: &AnomalyCounts) -> String {
    let mut text = format!(
        "{} histories, {} transactions committed, {} edges between them; anomalies in histories:",
        counts.histories, counts.committed, counts.edges
    );
    for (kind, n) in &counts.kinds {
        let _ = write!(text, " {kind} {n},");
    }
    if counts.kinds.is_empty() { text + " none" } else { text.trim_end_matches(',').to_owned() }
}

/// Describes a failure: the anomalies, their transactions, and the path of the file with the whole history.
fn failure(seed: u64, trial: &Trial, tried: &history::TrialResult) -> String {
    let mut text = format!("seed {seed}:");
    for anomaly in tried.findings.forbidden(trial.params.isolation) {
        let _ = write!(text, "\n  {}: {}", anomaly.kind, anomaly.what);
        for id in anomaly.txns.iter().take(SHOWN) {
            if let Some(txn) = tried.txns.iter().find(|txn| txn.id == *id) {
                let _ = write!(text, "\n    {}", txn.line());
            }
        }
    }
    let path = PathBuf::from(OUTPUT_DIR).join(format!("isolation-{seed}.jsonl"));
    let kept = std::fs::create_dir_all(OUTPUT_DIR).and_then(|()| {
        let file = std::fs::File::create(&path)?;
        history::write(&tried.txns, &mut std::io::BufWriter::new(file))
    });
    let _ = match kept {
        Ok(()) => write!(text, "\n  history: {}", path.display()),
        Err(e) => write!(text, "\n  {}: cannot be written: {e}", path.display()),
    };
    let _ = write!(text, "\n  {:?} (threads may run in another order)", trial.params);
    text
}
