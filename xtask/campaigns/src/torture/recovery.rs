//! `recovery`: power is lost again during a restart, and again during the next restart.
//!
//! Each case takes a disk after a crash, interrupts its restart before one of its changing calls (and, at depth 3, also the
//! restart after it), and then restarts to the end. The rows must be those of one uninterrupted restart. Then the scripted
//! workload `lives` follows, with loads, copies and changes of tables, and up to three interrupted restarts in a row.

use storage::disk::{Crash, SimDisk};

use super::CampaignPlan;
use super::crash::{faultless, place};
use super::lives;
use super::report::{Progress, Report};
use super::seeds::{self, Tried};
use crate::sim::model::TablesState;
use crate::sim::rng::Rng;
use crate::sim::run::{self, Visit};
use crate::sim::script::Script;

/// Number of crashes of one run that are tested.
const CRASHES: usize = 6;
/// Number of points of interruption in a first restart, and in a second one.
const MOMENTS: [usize; 2] = [12, 3];

pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::each(plan, progress, |seed| {
        let mut tried = one(Visit { seed, scheduler: plan.scheduler, latches: None });
        if tried.failures.is_empty() {
            lives::one("recovery", seed, 3, &mut tried);
        }
        tried
    })
}

fn one(visit: Visit) -> Tried {
    let Visit { seed, scheduler, .. } = visit;
    let mut tried = Tried::default();
    let mut rng = Rng::new(seed);
    let script = Script { cuts: CRASHES, ..Script::draw(&mut rng, scheduler) };
    let result = faultless(&SimDisk::new(seed), &script).and_then(|ran| {
        for cut in ran.cuts {
            let visit = visit.of_case(rng.next());
            let found =
                run::look(&cut.disk.crash(Crash::All), visit, false).map_err(|e| format!("{}: {e}", place(&cut)))?;
            let restart = Restart { visit, want: TablesState::of(&found).hash() };
            restart.cut(&cut.disk, 0, &mut rng, &mut tried).map_err(|e| format!("{}; {e}", place(&cut)))?;
        }
        Ok(())
    });
    if let Err(what) = result {
        tried.cases = tried.cases.max(1);
        tried.fail("recovery", scheduler, seed, what);
    }
    tried
}

/// The restarts of one disk.
struct Restart {
    visit: Visit,
    /// Hash of the state after an uninterrupted restart.
    want: u64,
}

impl Restart {
    /// Interrupts the restart of `disk` at some points.
    fn cut(&self, disk: &SimDisk, depth: usize, rng: &mut Rng, tried: &mut Tried) -> Result<(), String> {
        for cut in run::restart(&disk.crash(Crash::All), self.visit, MOMENTS[depth])? {
            let deeper = (depth + 1 < MOMENTS.len() && rng.once_in(3)).then(|| cut.disk.crash(Crash::All));
            tried.cases += 1;
            let again = |e| format!("restart {}, {}: {e}", depth + 1, place(&cut));
            let found = run::look(&cut.disk, self.visit.of_case(tried.cases), false).map_err(again)?;
            if TablesState::of(&found).hash() != self.want {
                return Err(again("it holds other rows than after an undisturbed restart".into()));
            }
            if let Some(disk) = deeper {
                self.cut(&disk, depth + 1, rng, tried).map_err(again)?;
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
