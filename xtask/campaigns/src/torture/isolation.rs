//! `isolation`: random concurrent histories at every level. Each is checked for the anomalies that its level forbids.
//!
//! The histories of a campaign have consecutive seeds. A seed determines its history except the interleaving of the
//! sessions, which depends on the machine. Permitted anomalies are also counted: a checker that never detects them might
//! miss the others as well.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use storage::Isolation;
use tpcc_core::checkers::history::check::Phenomenon;
use tpcc_core::checkers::history::{self, Trial};

use super::report::{Progress, Report};
use super::seeds::{self, Tried};
use super::{CampaignPlan, latches_flag};
use crate::sim::scheduler::Scheduler;

/// Number of transactions of a history over all sessions: eight sessions with 500 each.
const TRANSACTIONS: u32 = 4000;
/// Directory of histories with forbidden anomalies.
const KEPT: &str = "target/torture";
/// Maximum number of transactions of an anomaly that are shown in full.
const SHOWN: usize = 6;

/// Permitted anomalies in the histories of a level.
#[derive(Default)]
struct Seen {
    histories: u64,
    committed: usize,
    edges: usize,
    kinds: BTreeMap<Phenomenon, u64>,
}

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    let seen: Mutex<BTreeMap<&str, Seen>> = Mutex::default();
    let report = seeds::each(plan, progress, |seed| one(seed, plan, &seen));
    for (level, seen) in seen.into_inner().unwrap_or_else(PoisonError::into_inner) {
        println!("isolation: {level}: {}", summary(&seen));
    }
    report
}

fn one(seed: u64, plan: &CampaignPlan, seen: &Mutex<BTreeMap<&str, Seen>>) -> Tried {
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
                let mut tried = Tried { cases: 1, ..Tried::default() };
                tried.fail(&campaign, scheduler, seed, what);
                return tried;
            }
        },
    };
    let level = trial.params.isolation;
    let mut tried = Tried { cases: 1, ..Tried::default() };
    let history = match trial.run() {
        Ok(history) => history,
        Err(what) => {
            tried.fail(&campaign, scheduler, seed, format!("seed {seed}: {what}\n  {:?}", trial.params));
            return tried;
        }
    };
    let findings = &history.findings;
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let of_level = seen.entry(name(level)).or_default();
    of_level.histories += 1;
    of_level.committed += findings.committed;
    of_level.edges += findings.edges;
    for kind in Phenomenon::ALL.into_iter().filter(|kind| findings.has(*kind)) {
        *of_level.kinds.entry(kind).or_default() += 1;
    }
    if findings.forbidden(level).next().is_some() {
        tried.fail(&campaign, scheduler, seed, failure(seed, &trial, &history));
    } else if let Some(why) = &findings.undecided {
        tried.undecided = 1;
        println!("UNDECIDED seed {seed}: {why}\n  {:?}", trial.params);
    }
    tried
}

fn name(level: Isolation) -> &'static str {
    match level {
        Isolation::Serializable => "serializable",
        Isolation::RepeatableRead => "repeatable-read",
        Isolation::ReadCommitted => "read-committed",
    }
}

fn summary(seen: &Seen) -> String {
    let mut text = format!(
        "{} histories, {} transactions committed, {} edges between them; anomalies in histories:",
        seen.histories, seen.committed, seen.edges
    );
    for (kind, n) in &seen.kinds {
        let _ = write!(text, " {kind} {n},");
    }
    if seen.kinds.is_empty() { text + " none" } else { text.trim_end_matches(',').to_owned() }
}

/// Describes a failure: the anomalies, their transactions, and the file of the whole history.
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
    let path = PathBuf::from(KEPT).join(format!("isolation-{seed}.jsonl"));
    let kept = std::fs::create_dir_all(KEPT).and_then(|()| {
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
