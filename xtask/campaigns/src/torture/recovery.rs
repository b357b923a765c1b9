//! `recovery`: power is lost again during a restart, and again during the following restart.
//!
//! Each case takes a disk after a crash and interrupts its restart just before a changing call. Some cases also interrupt
//! the second restart. The last restart runs to its end. The rows must then be the same as after one uninterrupted restart.
//! The scripted workload `lives` follows, with loads, copies and changes of tables, and up to three interrupted restarts in
//! a row.

use storage::disk::{Crash, SimDisk};

use super::CampaignPlan;
use super::crash::{describe, run_faultless};
use super::lives;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::model::TablesState;
use crate::sim::rng::Rng;
use crate::sim::run::{self, RecoveryPlan};
use crate::sim::script::Script;

/// Number of sampled crashes of one run.
const CRASHES: usize = 6;
/// Maximum number of sampled interruptions of a first restart, and of a second restart.
const MAX_INTERRUPTIONS: [usize; 2] = [12, 3];

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = run_seed(RecoveryPlan { seed, scheduler: plan.scheduler, latches: None });
        if seed_result.failures.is_empty() {
            lives::run_seed("recovery", seed, 3, &mut seed_result);
        }
        seed_result
    })
}

fn run_seed(recovery: RecoveryPlan) -> SeedResult {
    let RecoveryPlan { seed, scheduler, .. } = recovery;
    let mut seed_result = SeedResult::default();
    let mut rng = Rng::new(seed);
    let script = Script { max_power_losses: CRASHES, ..Script::draw(&mut rng, scheduler) };
    let result = run_faultless(&SimDisk::new(seed), &script).and_then(|result| {
        for power_loss in result.power_losses {
            let recovery = recovery.of_case(rng.next());
            let found = run::recover_and_read(&power_loss.disk.crash(Crash::All), recovery, false)
                .map_err(|e| format!("{}: {e}", describe(&power_loss)))?;
            let restart = Restart { recovery, want: TablesState::of(&found).hash() };
            restart
                .interrupt(&power_loss.disk, 0, &mut rng, &mut seed_result)
                .map_err(|e| format!("{}; {e}", describe(&power_loss)))?;
        }
        Ok(())
    });
    if let Err(what) = result {
        seed_result.cases = seed_result.cases.max(1);
        seed_result.fail("recovery", scheduler, seed, what);
    }
    seed_result
}

/// Restarts of one disk after a crash.
struct Restart {
    recovery: RecoveryPlan,
    /// Expected hash of the state: the hash after an uninterrupted restart.
    want: u64,
}

impl Restart {
    /// Interrupts the restart of `disk` at some points, and checks the rows after the next restart.
    fn interrupt(
        &self,
        disk: &SimDisk,
        depth: usize,
        rng: &mut Rng,
        seed_result: &mut SeedResult,
    ) -> Result<(), String> {
        for power_loss in run::restart(&disk.crash(Crash::All), self.recovery, MAX_INTERRUPTIONS[depth])? {
            let deeper =
                (depth + 1 < MAX_INTERRUPTIONS.len() && rng.once_in(3)).then(|| power_loss.disk.crash(Crash::All));
            seed_result.cases += 1;
            let again = |e| format!("restart {}, {}: {e}", depth + 1, describe(&power_loss));
            let found = run::recover_and_read(&power_loss.disk, self.recovery.of_case(seed_result.cases), false)
                .map_err(again)?;
            if TablesState::of(&found).hash() != self.want {
                return Err(again("it holds other rows than after an undisturbed restart".into()));
            }
            if let Some(disk) = deeper {
                self.interrupt(&disk, depth + 1, rng, seed_result).map_err(again)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn two_hundred_restarts_that_are_cut_find_the_same() {
        for (budget, scheduler) in [(200, Scheduler::Threads), (100, Scheduler::Steps)] {
            let report = run(&CampaignPlan::small(budget, scheduler), &Progress::hidden());
            assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
            assert!(report.tried >= budget);
        }
    }
}
