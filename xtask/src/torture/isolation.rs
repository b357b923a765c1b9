//! `isolation`: random concurrent histories at every level, each judged by what its level forbids.
//!
//! The seeds of a campaign's histories follow each other, and each says all about its history but the order in which
//! the machine ran the sessions. What levels permit is counted, too: who never sees that would not see the rest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use storage::Isolation;
use tpcc::history::check::Kind;
use tpcc::history::{self, Trial, Tried};

use super::Plan;
use super::report::{Progress, Report};

/// Transactions of a history, of all sessions: eight of 500.
const TRANSACTIONS: u32 = 4000;
/// Where histories are kept that show what they should not.
const KEPT: &str = "target/torture";
/// Transactions of an anomaly that are shown in full.
const SHOWN: usize = 6;

/// What histories of a level showed although, or because, it is permitted.
#[derive(Default)]
struct Seen {
    histories: u64,
    committed: usize,
    edges: usize,
    kinds: BTreeMap<Kind, u64>,
}

pub(super) fn run(plan: &Plan, progress: &Progress) -> Report {
    let mut report = Report::default();
    let mut seen: BTreeMap<&str, Seen> = BTreeMap::new();
    let seeds = match plan.case {
        Some(case) => plan.seed + case..plan.seed + case + 1,
        None => plan.seed..plan.seed + plan.budget,
    };
    for seed in seeds {
        if progress.is_over() {
            break;
        }
        let trial = Trial::of_seed(seed, TRANSACTIONS);
        report.tried += 1;
        match trial.run() {
            Ok(tried) => {
                let level = seen.entry(name(trial.params.isolation)).or_default();
                level.histories += 1;
                level.committed += tried.findings.committed;
                level.edges += tried.findings.edges;
                for kind in Kind::ALL.into_iter().filter(|kind| tried.findings.has(*kind)) {
                    *level.kinds.entry(kind).or_default() += 1;
                }
                if tried.findings.forbidden(trial.params.isolation).next().is_some() {
                    report.failures.push(failure(seed, &trial, &tried));
                } else if tried.findings.undecided.is_some() {
                    report.undecided += 1;
                }
            }
            Err(what) => report.failures.push(format!("seed {seed}: {what}\n{}", again(seed, &trial))),
        }
        if !report.failures.is_empty() {
            progress.failed();
        }
        progress.add(1);
    }
    for (level, seen) in seen {
        println!("isolation: {level}: {}", summary(&seen));
    }
    report
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

fn again(seed: u64, trial: &Trial) -> String {
    format!(
        "  {} {:?}\n  again: cargo xtask torture isolation --budget 1 --seed {seed} (threads may run in another order)",
        name(trial.params.isolation),
        trial.params
    )
}

/// All it takes to see what happened: the anomalies, their transactions, and where the whole history is.
fn failure(seed: u64, trial: &Trial, tried: &Tried) -> String {
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
    text + "\n" + &again(seed, trial)
}
