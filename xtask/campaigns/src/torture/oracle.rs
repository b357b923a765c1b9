//! `oracle`: workers run concurrently. A serial replay of their committed transactions in commit order must give the same
//! answers and the same rows. The rows must also be the same after a crash.

use storage::disk::{Crash, SimDisk};

use super::crash::run_faultless;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use super::{CampaignPlan, Latches, latches_flag, loops_flag};
use crate::sim::model::TablesState;
use crate::sim::notes::LoopCounters;
use crate::sim::rng::Rng;
use crate::sim::run::{self, RecoveryPlan};
use crate::sim::script::{Ending, Script};
use crate::sim::workload::Profile;

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        let recovery = RecoveryPlan { seed, scheduler: plan.scheduler, latches: plan.latches.map(Latches::kind) };
        match run_seed(recovery, plan.speculate) {
            Ok(loop_counters) => seed_result.loop_counters = loop_counters,
            Err(what) => {
                let name = format!("oracle{}{}", loops_flag(plan.speculate), latches_flag(plan.latches));
                seed_result.fail(&name, plan.scheduler, seed, what);
            }
        }
        seed_result
    })
}

/// Returns a script with several workers, and with more transactions than in `crash`.
fn script(rng: &mut Rng, recovery: RecoveryPlan, speculate: bool) -> Script {
    let profile = Profile::draw(rng);
    let workers = 2 + rng.below(5) as usize;
    let profile = Profile { workers, transactions: 10 + rng.below(40), reads: 1 + rng.below(5), ..profile };
    // Pages are then allocated and freed during group lookups.
    let profile = if rng.once_in(3) {
        Profile { keys: 300, announces: 10, statements: 25, deletes: 4, ..profile.large() }
    } else {
        profile
    };
    let ending = rng.pick(&[Ending::Close, Ending::Kill]);
    let RecoveryPlan { scheduler, latches, .. } = recovery;
    Script { seed: rng.next(), scheduler, profile, ending, max_power_losses: 0, probe: false, speculate, latches }
}

fn run_seed(recovery: RecoveryPlan, speculate: bool) -> Result<LoopCounters, String> {
    let seed = recovery.seed;
    let mut rng = Rng::new(seed);
    let script = script(&mut rng, recovery, speculate);
    let disk = SimDisk::new(seed);
    let result = run_faultless(&disk, &script)?;
    let repeats = seed.is_multiple_of(16);
    if repeats && run_faultless(&SimDisk::new(seed), &script)?.trace != result.trace {
        return Err("the same seed gave another run".into());
    }
    let base = TablesState::default();
    let replay = result.history.replay(&base)?;
    let rows = result.rows.as_ref().ok_or("the rows could not be read")?;
    if let Some(what) = replay.last.difference(rows) {
        return Err(format!("when the workers had ended: {what}"));
    }
    for how in [Crash::All, Crash::Nothing, Crash::Random(rng.next())] {
        let found = run::recover_and_read(&disk.crash(how), recovery, true).map_err(|e| format!("{how:?}: {e}"))?;
        if replay.find(result.moment, TablesState::of(&found).hash()).is_none() {
            let possible = replay.possible(result.moment);
            let what = replay.last.difference(&found).unwrap_or_default();
            return Err(format!("{how:?}: no prefix of the commits ({possible:?}); to the last: {what}"));
        }
    }
    Ok(result.loop_counters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn runs_equal_their_replay() {
        for (budget, scheduler) in [(60, Scheduler::Threads), (10, Scheduler::Steps)] {
            let report = run(&CampaignPlan::small(budget, scheduler), &Progress::hidden());
            assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        }
    }

    #[test]
    fn runs_with_loops_equal_their_replay() {
        let plan = CampaignPlan { speculate: true, ..CampaignPlan::small(10, Scheduler::Threads) };
        let report = run(&plan, &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert!(report.loop_counters.loops >= 100, "{:?}", report.loop_counters);
    }
}
