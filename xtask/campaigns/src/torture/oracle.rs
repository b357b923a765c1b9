//! `oracle`: workers run concurrently. Their committed transactions, replayed serially in commit order, must give the same
//! answers and the same rows, also after a crash.

use storage::disk::{Crash, SimDisk};

use super::crash::faultless;
use super::report::{Progress, Report};
use super::seeds::{self, Tried};
use super::{CampaignPlan, Latches, latches_flag, loops_flag};
use crate::sim::model::TablesState;
use crate::sim::notes::Looped;
use crate::sim::rng::Rng;
use crate::sim::run::{self, Visit};
use crate::sim::script::{Ending, Script};
use crate::sim::workload::Profile;

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::each(plan, progress, |seed| {
        let mut tried = Tried { cases: 1, ..Tried::default() };
        let visit = Visit { seed, scheduler: plan.scheduler, latches: plan.latches.map(Latches::kind) };
        match one(visit, plan.speculate) {
            Ok(looped) => tried.looped = looped,
            Err(what) => {
                let name = format!("oracle{}{}", loops_flag(plan.speculate), latches_flag(plan.latches));
                tried.fail(&name, plan.scheduler, seed, what);
            }
        }
        tried
    })
}

/// A script with several workers and more transactions than in `crash`.
fn script(rng: &mut Rng, visit: Visit, speculate: bool) -> Script {
    let profile = Profile::draw(rng);
    let workers = 2 + rng.below(5) as usize;
    let profile = Profile { workers, transactions: 10 + rng.below(40), reads: 1 + rng.below(5), ..profile };
    // Pages that are allocated and freed during group lookups.
    let profile = if rng.once_in(3) {
        Profile { keys: 300, ahead: 10, statements: 25, deletes: 4, ..profile.large() }
    } else {
        profile
    };
    let ending = rng.pick(&[Ending::Close, Ending::Kill]);
    let Visit { scheduler, latches, .. } = visit;
    Script { seed: rng.next(), scheduler, profile, ending, cuts: 0, probe: false, speculate, latches }
}

fn one(visit: Visit, speculate: bool) -> Result<Looped, String> {
    let seed = visit.seed;
    let mut rng = Rng::new(seed);
    let script = script(&mut rng, visit, speculate);
    let disk = SimDisk::new(seed);
    let ran = faultless(&disk, &script)?;
    // The interleaving of a loop's threads depends on the machine.
    let repeats = seed.is_multiple_of(16) && !speculate;
    if repeats && faultless(&SimDisk::new(seed), &script)?.trace != ran.trace {
        return Err("the same seed gave another run".into());
    }
    let base = TablesState::default();
    let replayed = ran.history.replay(&base)?;
    let rows = ran.rows.as_ref().ok_or("the rows could not be read")?;
    if let Some(what) = replayed.last.difference(rows) {
        return Err(format!("when the workers had ended: {what}"));
    }
    for how in [Crash::All, Crash::Nothing, Crash::Random(rng.next())] {
        let found = run::look(&disk.crash(how), visit, true).map_err(|e| format!("{how:?}: {e}"))?;
        if replayed.find(ran.moment, TablesState::of(&found).hash()).is_none() {
            let possible = replayed.possible(ran.moment);
            let what = replayed.last.difference(&found).unwrap_or_default();
            return Err(format!("{how:?}: no prefix of the commits ({possible:?}); to the last: {what}"));
        }
    }
    Ok(ran.looped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn runs_equal_their_replay() {
        for (budget, scheduler) in [(300, Scheduler::Threads), (20, Scheduler::Steps)] {
            let report = run(&CampaignPlan::small(budget, scheduler), &Progress::hidden());
            assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        }
    }

    #[test]
    fn runs_with_speculative_loops_equal_their_replay() {
        let plan = CampaignPlan { speculate: true, ..CampaignPlan::small(10, Scheduler::Threads) };
        let report = run(&plan, &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.looped.loops >= 100, "{:?}", report.looped);
    }
}
