//! `crash`: power is lost just before any changing call of the disk. The database must recover to a permitted state.
//!
//! Each seed runs up to three lives of a database on one disk. Each life begins on a disk that a crash of the previous life
//! left. For each changing call there are four cases: all unsynced data survives, none of it survives, and two random
//! subsets with torn sectors survive. For each acknowledgement of a commit that waits for its durability there is one case:
//! no unsynced data survives. After the restart, the rows must result from a prefix of the commits in log order that
//! contains every acknowledged commit, and every index must agree with its table. Three scripted workloads follow: `laps`,
//! `narrow` and `lives`.

use storage::disk::Crash;

use super::laps;
use super::lives;
use super::narrow;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use super::{CampaignPlan, Latches, latches_flag, loops_flag};
use crate::sim::history::Replay;
use crate::sim::model::TablesState;
use crate::sim::notes::PowerLoss;
use crate::sim::rng::Rng;
use crate::sim::run::{self, RecoveryPlan, RunResult};
use crate::sim::script::Script;
use crate::sim::tables::{Rows, TABLES};
use storage::disk::SimDisk;

/// Maximum number of points of power loss in one life: for normal profiles, and for wide profiles. The numbers limit the
/// time of a life to a minute.
const MAX_POWER_LOSSES: [usize; 2] = [1500, 150];
/// Number of cases after which idle cores are counted again, to share the next cases with them.
const BATCH: usize = 64;
/// One case in this number is checked with more reads and transactions.
const DEEP: u64 = 8;

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = run_seed(plan, seed, SimDisk::new(seed), progress);
        if seed_result.failures.is_empty() {
            laps::run_seed(seed, &mut seed_result);
            narrow::run_seed(seed, &mut seed_result);
            lives::run_seed("crash", seed, 1, &mut seed_result);
        }
        seed_result
    })
}

/// Runs all cases of one seed, beginning on an empty disk.
fn run_seed(plan: &CampaignPlan, seed: u64, mut disk: SimDisk, progress: &Progress) -> SeedResult {
    let (scheduler, speculate, latches) = (plan.scheduler, plan.speculate, plan.latches.map(Latches::kind));
    let recovery = RecoveryPlan { seed, scheduler, latches };
    let name = format!("crash{}{}", loops_flag(speculate), latches_flag(plan.latches));
    let mut seed_result = SeedResult::default();
    let mut rng = Rng::new(seed);
    let mut base = TablesState::default();
    for life in 0..1 + rng.below(3) {
        let mut script = Script { speculate, latches, ..Script::draw(&mut rng, scheduler) };
        script.max_power_losses = MAX_POWER_LOSSES[usize::from(script.profile.wide)];
        let result = match run_faultless(&disk, &script) {
            Ok(result) => result,
            Err(what) => {
                seed_result.cases += 1;
                seed_result.fail(&name, scheduler, seed, format!("life {life}: {what}"));
                return seed_result;
            }
        };
        seed_result.loop_counters += result.loop_counters;
        let replay = match result.history.replay(&base) {
            Ok(replay) => replay,
            Err(what) => {
                seed_result.cases += 1;
                seed_result.fail(&name, scheduler, seed, format!("life {life}: {what}"));
                return seed_result;
            }
        };
        if let Some(what) = result.rows.as_ref().and_then(|rows| replay.last.difference(rows)) {
            seed_result.fail(&name, scheduler, seed, format!("life {life}: when the workers had ended: {what}"));
        }
        let onward = rng.below(result.power_losses.len() as u64) as usize;
        let mut next = None;
        // A check changes its disk, so the next life begins on a copy.
        let Some(again) = result.power_losses.get(onward).map(|power_loss| power_loss.disk.crash(Crash::All)) else {
            break;
        };
        for (batch, power_losses) in result.power_losses.chunks(BATCH).enumerate() {
            let first = seed_result.cases + 1;
            seed_result.cases += power_losses.len() as u64;
            let found = seeds::share_cases(power_losses, progress, |at, power_loss| {
                let case = first + at as u64;
                let found =
                    judge(power_loss, recovery.of_case(case), &result, &base, &replay, case.is_multiple_of(DEEP))?;
                Ok((batch * BATCH + at == onward).then(|| TablesState::of(&found)))
            });
            for (power_loss, found) in power_losses.iter().zip(found) {
                match found {
                    Ok(state) => next = state.or(next),
                    Err::<_, String>(what) => {
                        seed_result.fail(
                            &name,
                            scheduler,
                            seed,
                            format!("life {life}, {}: {what}", describe(power_loss)),
                        );
                        return seed_result;
                    }
                }
            }
        }
        let Some(state) = next else { break };
        (disk, base) = (again, state);
    }
    seed_result
}

/// Runs a script on a disk without faults. Returns any error other than a deadlock as a failure.
pub(super) fn run_faultless(disk: &SimDisk, script: &Script) -> Result<RunResult, String> {
    let result = run::run(disk, script)?;
    if let Some(error) = result.errors.first() {
        return Err(format!("an error without a cause: {error}"));
    }
    if let Some(what) = result.forbidden.first() {
        return Err(what.clone());
    }
    Ok(result)
}

/// Describes the time of a power loss and the data that survives it.
pub(super) fn describe(power_loss: &PowerLoss) -> String {
    format!("power lost {}, {:?} survives", power_loss.when, power_loss.how)
}

/// Restarts the database after a crash, and compares its rows with the permitted states.
fn judge(
    power_loss: &PowerLoss,
    recovery: RecoveryPlan,
    result: &RunResult,
    base: &TablesState,
    replay: &Replay,
    deep: bool,
) -> Result<[Rows; TABLES], String> {
    let found = run::recover_and_read(&power_loss.disk, recovery, deep)?;
    let hash = TablesState::of(&found).hash();
    if replay.find(power_loss.moment, hash).is_some() {
        return Ok(found);
    }
    let possible = replay.possible(power_loss.moment);
    Err(match replay.find_any(hash) {
        Some(n) if n < *possible.start() => {
            format!("acknowledged commits are lost: {n} of {possible:?} are there")
        }
        Some(n) => format!("commits that had not begun are there: {n}, of {possible:?}"),
        None => {
            let nearest = possible.clone().map(|n| result.history.state_after(base, replay, n));
            let differences: Vec<String> = nearest.filter_map(|state| state.difference(&found)).collect();
            format!("no prefix of the commits ({possible:?}): {}", differences.join("; "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn two_thousand_crashes_lose_nothing() {
        let report = run(&CampaignPlan::small(2000, Scheduler::Threads), &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.tried >= 2000);
    }

    #[test]
    fn crashes_with_speculative_loops_lose_nothing() {
        let plan = CampaignPlan { speculate: true, ..CampaignPlan::small(300, Scheduler::Threads) };
        let report = run(&plan, &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.tried >= 300 && report.loop_counters.loops > 0, "{:?}", report.loop_counters);
    }

    #[test]
    fn a_thousand_crashes_of_a_team_lose_nothing() {
        let report = run(&CampaignPlan::small(1000, Scheduler::Steps), &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.tried >= 1000);
    }

    /// The campaign must detect a disk whose syncs have no effect.
    #[test]
    fn a_disk_that_lies_is_found_out() {
        for scheduler in [Scheduler::Threads, Scheduler::Steps] {
            let lied = |seed: &u64| {
                let disk = SimDisk::new(*seed);
                disk.drop_syncs(true);
                !run_seed(&CampaignPlan::small(1, scheduler), *seed, disk, &Progress::hidden()).failures.is_empty()
            };
            assert!((0..6).filter(lied).count() >= 4, "{scheduler:?}");
        }
    }
}
