//! `fibers`: random safe programs of fibers, compared with a model. See [`sched_steps::testing`].
//!
//! A case is one program of about a hundred steps.

use sched_steps::testing;

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;

/// Number of programs of a seed.
const PROGRAMS: u64 = 20;

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: PROGRAMS, ..SeedResult::default() };
        for program in 0..PROGRAMS {
            let drawn = Rng::of_case(seed, program).next();
            let ran = catch_panic(|| testing::program(drawn));
            if let Err(what) = ran.and_then(|ran| ran.unwrap_or(Ok(0))) {
                seed_result.fail("fibers", plan.scheduler, seed, format!("seed {seed}, program {drawn}: {what}"));
            }
        }
        seed_result
    })
}
