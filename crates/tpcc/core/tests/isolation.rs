//! Short version of the campaign `isolation`: random histories at every level, on a disk in memory.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use tpcc_core::checkers::history::{Trial, check::Phenomenon};

/// Number of histories, and of transactions in each.
const HISTORIES: u64 = 50;
const TRANSACTIONS: u32 = 1600;

#[test]
fn fifty_histories_show_nothing_that_their_level_forbids() {
    histories(20_260_000, |trial| trial);
}

#[test]
fn fifty_histories_of_fibers_show_nothing_that_their_level_forbids() {
    histories(20_270_000, Trial::on_fibers);
}

#[test]
fn fifty_histories_of_steps_in_loops_are_serializable() {
    for seed in 20_280_000..20_280_000 + HISTORIES {
        let seen = history(seed, &Trial::of_seed(seed, TRANSACTIONS / 4).in_loops());
        assert_eq!(seen, [], "seed {seed}");
    }
}

fn histories(first: u64, how: impl Fn(Trial) -> Trial) {
    let mut permitted = BTreeSet::new();
    for seed in first..first + HISTORIES {
        permitted.extend(history(seed, &how(Trial::of_seed(seed, TRANSACTIONS))));
    }
    // A checker that never detects permitted phenomena would not detect forbidden ones.
    for kind in [Phenomenon::LostUpdate, Phenomenon::GSingle, Phenomenon::G2] {
        assert!(permitted.contains(&kind), "no {kind} at any weaker level: {permitted:?}");
    }
}

/// Runs a trial and checks that it shows no phenomenon that its level forbids; returns all phenomena that it shows.
fn history(seed: u64, trial: &Trial) -> Vec<Phenomenon> {
    let level = trial.params.isolation;
    let tried = trial.run().unwrap_or_else(|what| panic!("seed {seed}: {what}: {trial:?}"));
    if let Some(anomaly) = tried.findings.forbidden(level).next() {
        panic!("seed {seed}: {}: {}: {trial:?}", anomaly.kind, anomaly.what);
    }
    assert_eq!(tried.findings.undecided, None, "seed {seed}: {trial:?}");
    tried.findings.anomalies.iter().map(|a| a.kind).collect()
}
