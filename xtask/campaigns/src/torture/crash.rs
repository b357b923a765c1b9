//! `crash`: power is lost before any changing call of the disk, and the database must recover to a permitted state.
//!
//! Each seed runs up to three lives of a database on one disk; each later life begins on the disk that a crash of the
//! earlier one left. Each changing call has four cases: all of the unsynced data survives, none of it, and two random
//! subsets with torn sectors. Each acknowledgement of a waiting commit has one case: no unsynced data survives. After the
//! restart, the rows must result from a prefix of the commits in log order that contains every acknowledged commit, and
//! every index must agree with its table. Then three scripted workloads follow: `laps`, `narrow` and `lives`.

use storage::disk::Crash;

use super::laps;
use super::lives;
use super::narrow;
use super::report::{Progress, Report};
use super::seeds::{self, Tried};
use super::{CampaignPlan, Latches, latches_flag, loops_flag};
use crate::sim::history::Replayed;
use crate::sim::model::TablesState;
use crate::sim::notes::Cut;
use crate::sim::rng::Rng;
use crate::sim::run::{self, Ran, Visit};
use crate::sim::script::Script;
use crate::sim::tables::{Rows, TABLES};
use storage::disk::SimDisk;

/// Maximum number of points of power loss in one life, for normal and for wide profiles. These are sufficient, and take at
/// most a minute.
const MOMENTS: [usize; 2] = [1500, 150];
/// Number of cases between two checks for idle cores.
const BATCH: usize = 64;
/// One in this number of cases is checked more thoroughly.
const DEEP: u64 = 8;

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::each(plan, progress, |seed| {
        let mut tried = one(plan, seed, SimDisk::new(seed), progress);
        if tried.failures.is_empty() {
            laps::one(seed, &mut tried);
            narrow::one(seed, &mut tried);
            lives::one("crash", seed, 1, &mut tried);
        }
        tried
    })
}

/// Runs all cases of one seed on a new disk.
fn one(plan: &CampaignPlan, seed: u64, mut disk: SimDisk, progress: &Progress) -> Tried {
    let (scheduler, speculate, latches) = (plan.scheduler, plan.speculate, plan.latches.map(Latches::kind));
    let visit = Visit { seed, scheduler, latches };
    let name = format!("crash{}{}", loops_flag(speculate), latches_flag(plan.latches));
    let mut tried = Tried::default();
    let mut rng = Rng::new(seed);
    let mut base = TablesState::default();
    for life in 0..1 + rng.below(3) {
        let mut script = Script { speculate, latches, ..Script::draw(&mut rng, scheduler) };
        script.cuts = MOMENTS[usize::from(script.profile.wide)];
        let ran = match faultless(&disk, &script) {
            Ok(ran) => ran,
            Err(what) => {
                tried.cases += 1;
                tried.fail(&name, scheduler, seed, format!("life {life}: {what}"));
                return tried;
            }
        };
        tried.looped += ran.looped;
        let replayed = match ran.history.replay(&base) {
            Ok(replayed) => replayed,
            Err(what) => {
                tried.cases += 1;
                tried.fail(&name, scheduler, seed, format!("life {life}: {what}"));
                return tried;
            }
        };
        if let Some(what) = ran.rows.as_ref().and_then(|rows| replayed.last.difference(rows)) {
            tried.fail(&name, scheduler, seed, format!("life {life}: when the workers had ended: {what}"));
        }
        let onward = rng.below(ran.cuts.len() as u64) as usize;
        let mut next = None;
        // The check of a disk changes it, so the next life needs a copy.
        let Some(again) = ran.cuts.get(onward).map(|cut| cut.disk.crash(Crash::All)) else { break };
        for (batch, cuts) in ran.cuts.chunks(BATCH).enumerate() {
            let first = tried.cases + 1;
            tried.cases += cuts.len() as u64;
            let found = seeds::shared(cuts, progress, |at, cut| {
                let case = first + at as u64;
                let found = judge(cut, visit.of_case(case), &ran, &base, &replayed, case.is_multiple_of(DEEP))?;
                Ok((batch * BATCH + at == onward).then(|| TablesState::of(&found)))
            });
            for (cut, found) in cuts.iter().zip(found) {
                match found {
                    Ok(state) => next = state.or(next),
                    Err::<_, String>(what) => {
                        tried.fail(&name, scheduler, seed, format!("life {life}, {}: {what}", place(cut)));
                        return tried;
                    }
                }
            }
        }
        let Some(state) = next else { break };
        (disk, base) = (again, state);
    }
    tried
}

/// Runs a script on a disk without faults: only deadlocks may occur.
pub(super) fn faultless(disk: &SimDisk, script: &Script) -> Result<Ran, String> {
    let ran = run::run(disk, script)?;
    if let Some(error) = ran.errors.first() {
        return Err(format!("an error without a cause: {error}"));
    }
    if let Some(what) = ran.forbidden.first() {
        return Err(what.clone());
    }
    Ok(ran)
}

/// Describes the time of a power loss and the surviving data.
pub(super) fn place(cut: &Cut) -> String {
    format!("power lost {}, {:?} survives", cut.when, cut.how)
}

/// Restarts after a crash, and compares the rows with the permitted states.
fn judge(
    cut: &Cut,
    visit: Visit,
    ran: &Ran,
    base: &TablesState,
    replayed: &Replayed,
    deep: bool,
) -> Result<[Rows; TABLES], String> {
    let found = run::look(&cut.disk, visit, deep)?;
    let hash = TablesState::of(&found).hash();
    if replayed.find(cut.moment, hash).is_some() {
        return Ok(found);
    }
    let possible = replayed.possible(cut.moment);
    Err(match replayed.find_any(hash) {
        Some(n) if n < *possible.start() => {
            format!("acknowledged commits are lost: {n} of {possible:?} are there")
        }
        Some(n) => format!("commits that had not begun are there: {n}, of {possible:?}"),
        None => {
            let nearest = possible.clone().map(|n| ran.history.state_after(base, replayed, n));
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
        assert!(report.tried >= 300 && report.looped.loops > 0, "{:?}", report.looped);
    }

    #[test]
    fn a_thousand_crashes_of_a_team_lose_nothing() {
        let report = run(&CampaignPlan::small(1000, Scheduler::Steps), &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.tried >= 1000);
    }

    /// The campaign must detect a disk with ineffective syncs.
    #[test]
    fn a_disk_that_lies_is_found_out() {
        for scheduler in [Scheduler::Threads, Scheduler::Steps] {
            let lied = |seed: &u64| {
                let disk = SimDisk::new(*seed);
                disk.drop_syncs(true);
                !one(&CampaignPlan::small(1, scheduler), *seed, disk, &Progress::hidden()).failures.is_empty()
            };
            assert!((0..6).filter(lied).count() >= 4, "{scheduler:?}");
        }
    }
}
