//! `io-errors`: the disk refuses the n-th call of a kind, only once or also all later calls of this kind. Or the disk is
//! full.
//!
//! A seed has several thousand cases, sometimes more than 20,000: each n of each kind of call. Their number is printed. With
//! a budget above this number, all cases are run. With a smaller budget, the seed selects a sample.
//!
//! There are five workloads. Some run on a new disk, and some on a disk after a crash, so that the restart gets errors too.
//! The cases of each workload cover all n, all kinds of calls, the errors EIO, ENOSPC and EMFILE, and short transfers. In
//! every case, there must be no panic and no hang, no sync may be repeated after a failure, and every error must have a
//! type. When the disk is repaired, a transaction must either succeed or report that the database is closed. The next open
//! must find every acknowledged commit, and no commit partially.

use storage::disk::{Call, Crash, Fault, SimDisk, When};
use storage::{StorageError, TxnError};

use super::crash::run_faultless;
use super::full;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use super::{CampaignPlan, loops_flag};
use crate::sim::model::TablesState;
use crate::sim::notes::{LoopCounters, RunError};
use crate::sim::rng::Rng;
use crate::sim::run::{self, RecoveryPlan, RunResult};
use crate::sim::script::{Ending, Script};
use crate::sim::workload::Profile;

const CALLS: [Call; 10] = [
    Call::Open,
    Call::List,
    Call::Read,
    Call::Write,
    Call::Sync,
    Call::SetLen,
    Call::Allocate,
    Call::Remove,
    Call::Rename,
    Call::SyncDir,
];

/// Workload and its initial disk.
struct Workload {
    name: &'static str,
    script: Script,
    disk: SimDisk,
    base: TablesState,
    /// Number of calls in a run without faults, by kind of call.
    counts: [u64; CALLS.len()],
}

/// Number of cases of a full disk per seed.
const FULL: u64 = 200;

/// Case of the campaign.
#[derive(Clone, Copy, Debug)]
enum Case {
    Fault(InjectedFault),
    /// Full disk. Contains the seed of the case.
    Full(u64),
}

/// Fault in one run of a workload.
#[derive(Clone, Copy, Debug)]
struct InjectedFault {
    workload: usize,
    call: Call,
    when: When,
    fault: Fault,
}

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    let workloads = match workloads(plan) {
        Ok(workloads) => workloads,
        Err(what) => {
            let mut seed_result = SeedResult::default();
            seed_result.fail("io-errors", plan.scheduler, plan.seed, what);
            return Report::of_failure(seed_result.failures.concat());
        }
    };
    let full = (0..FULL).map(|n| Case::Full(plan.seed ^ n << 32));
    let cases = seeds::select_cases("io-errors", plan, all_faults(&workloads).map(Case::Fault).chain(full));
    let name = |(number, _): &(u64, Case)| format!("--seed {} --case {number}", plan.seed);
    seeds::run_cases(&cases, progress, name, |(number, case)| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        let (named, result) = match case {
            Case::Full(seed) => ("full disk".into(), full::run_seed(*seed).map(|()| LoopCounters::default())),
            Case::Fault(case) => {
                let workload = &workloads[case.workload];
                let named = format!("workload {}, {:?} {:?} {:?}", workload.name, case.call, case.when, case.fault);
                (named, run_case(workload, case))
            }
        };
        match result {
            Ok(loop_counters) => seed_result.loop_counters = loop_counters,
            Err(what) => seed_result.failures.push(format!(
                "{named}: {what}\n  again: cargo xtask torture io-errors{}{} --seed {} --case {number}",
                loops_flag(plan.speculate),
                plan.scheduler.flag(),
                plan.seed
            )),
        }
        seed_result
    })
}

/// Creates the five workloads of a seed. Runs each of them once without faults.
fn workloads(plan: &CampaignPlan) -> Result<Vec<Workload>, String> {
    let (seed, scheduler) = (plan.seed, plan.scheduler);
    let mut rng = Rng::new(seed);
    let profile = |rng: &mut Rng, workers, keys, deletes, loaded| Profile {
        workers,
        transactions: 6 / workers as u64 + 1,
        statements: 8,
        keys,
        deletes,
        reads: 2,
        announces: 3,
        aborts: 3,
        sync: 5,
        loaded,
        ..Profile::draw(rng)
    };
    let named = [
        ("small, new", true, 1, 60, 2, 0),
        ("large", false, 1, 300, 1, 250),
        ("shrinking", false, 2, 60, 6, 100),
        ("bulk, new", true, 1, 300, 2, 300),
        ("many", false, 4, 200, 3, 0),
    ];
    let mut workloads = Vec::new();
    for (name, new, workers, keys, deletes, loaded) in named {
        let mut profile = profile(&mut rng, workers, keys, deletes, loaded);
        if name == "large" {
            profile = profile.large();
        }
        let ending = if rng.once_in(2) { Ending::Close } else { Ending::Kill };
        let script = Script {
            seed: rng.next(),
            scheduler,
            profile,
            ending,
            max_power_losses: 0,
            probe: true,
            speculate: plan.speculate,
            latches: None,
        };
        let mut disk = SimDisk::new(rng.next());
        let mut base = TablesState::default();
        if !new {
            let before = Script { seed: rng.next(), ending: Ending::Kill, probe: false, ..script.clone() };
            let result = run_faultless(&disk, &before).map_err(|e| format!("before workload {name}: {e}"))?;
            let replay = result.history.replay(&base).map_err(|e| format!("before workload {name}: {e}"))?;
            disk = disk.crash(Crash::Random(rng.next()));
            let found = run::recover_and_read(
                &disk.crash(Crash::All),
                RecoveryPlan { seed: script.seed, scheduler, latches: None },
                false,
            )?;
            base = TablesState::of(&found);
            if replay.find(result.moment, base.hash()).is_none() {
                return Err(format!("before workload {name}: no prefix of the commits"));
            }
        }
        let sound = disk.crash(Crash::All);
        let result = run_faultless(&sound, &script).map_err(|e| format!("workload {name}: {e}"))?;
        result.history.replay(&base).map_err(|e| format!("workload {name}: {e}"))?;
        let counts = CALLS.map(|call| sound.count(call));
        workloads.push(Workload { name, script, disk, base, counts });
    }
    Ok(workloads)
}

/// Returns all faults for all workloads.
fn all_faults(workloads: &[Workload]) -> impl Iterator<Item = InjectedFault> {
    let mut cases = Vec::new();
    for (workload, of) in workloads.iter().enumerate() {
        for (call, count) in CALLS.into_iter().zip(of.counts) {
            let no_file = (call == Call::Open).then_some(Fault::Emfile);
            let short = matches!(call, Call::Read | Call::Write).then_some(Fault::Short);
            for n in 1..=count {
                for fault in [Some(Fault::Eio), Some(Fault::Enospc), no_file, short].into_iter().flatten() {
                    cases.extend([When::Once(n), When::From(n)].map(|when| InjectedFault {
                        workload,
                        call,
                        when,
                        fault,
                    }));
                }
            }
        }
    }
    cases.into_iter()
}

fn run_case(workload: &Workload, case: &InjectedFault) -> Result<LoopCounters, String> {
    let disk = workload.disk.crash(Crash::All);
    disk.plan(Some(case.call), case.when, case.fault);
    let result = run::run(&disk, &workload.script)?;
    disk.heal();
    if let Some(what) = result.forbidden.first() {
        return Err(what.clone());
    }
    check_errors(case, &result)?;
    check_probe(case, &result)?;
    let replay = result.history.replay(&workload.base)?;
    let random = Rng::new(workload.script.seed ^ disk.count(Call::Write)).next();
    for how in [Crash::All, Crash::Nothing, Crash::Random(random)] {
        let recovery = RecoveryPlan { seed: workload.script.seed, scheduler: workload.script.scheduler, latches: None };
        let found = run::recover_and_read(&disk.crash(how), recovery, how == Crash::All)
            .map_err(|e| format!("reopened, {how:?} survives: {e}"))?;
        if replay.find(result.moment, TablesState::of(&found).hash()).is_none() {
            let possible = replay.possible(result.moment);
            let what = replay.last.difference(&found).unwrap_or_default();
            return Err(format!(
                "reopened, {how:?} survives: no prefix of the commits ({possible:?}); to the last: {what}"
            ));
        }
    }
    Ok(result.loop_counters)
}

/// Returns the storage error that an error contains, if any.
fn storage_error(error: &RunError) -> Option<&StorageError> {
    match error {
        RunError::Txn(TxnError::Storage(error)) | RunError::Service(error) => Some(error),
        _ => None,
    }
}

/// Checks that each error is a permitted consequence of the fault.
fn check_errors(case: &InjectedFault, result: &RunResult) -> Result<(), String> {
    for error in &result.errors {
        if case.fault == Fault::Short {
            return Err(format!("a short transfer became an error: {error}"));
        }
        if let Some(StorageError::CorruptPage { .. } | StorageError::CorruptFile { .. }) = storage_error(error) {
            return Err(format!("a refused call was taken for damage: {error}"));
        }
    }
    Ok(())
}

/// Checks that the database on the repaired disk is open or closed, as the fault requires.
fn check_probe(case: &InjectedFault, result: &RunResult) -> Result<(), String> {
    let closed = match &result.probe {
        None => return Ok(()),
        Some(Ok(())) => false,
        Some(Err(TxnError::Storage(StorageError::Poisoned { .. }))) => true,
        Some(Err(error)) => return Err(format!("on the sound disk again: {error}")),
    };
    if case.fault == Fault::Enospc && matches!(case.call, Call::Allocate | Call::SetLen) && closed {
        return Err("a full disk closed the instance for good".into());
    }
    if case.fault == Fault::Emfile && closed {
        return Err("a lack of file descriptors closed the instance for good".into());
    }
    let met = result.errors.iter().filter_map(storage_error);
    let mut broken = met.filter(|e| matches!(e, StorageError::Io { op: "write" | "sync", .. }));
    if !closed && let Some(error) = broken.next() {
        return Err(format!("still open to commits after: {error}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn refused_calls_are_survived() {
        for (budget, scheduler) in [(200, Scheduler::Threads), (50, Scheduler::Steps)] {
            let report = run(&CampaignPlan::small(budget, scheduler), &Progress::hidden());
            assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
            assert_eq!(report.tried, budget);
        }
    }

    #[test]
    fn refused_calls_in_loops_are_survived() {
        let plan = CampaignPlan { speculate: true, ..CampaignPlan::small(100, Scheduler::Threads) };
        let report = run(&plan, &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.loop_counters.loops > 0, "{:?}", report.loop_counters);
    }
}
