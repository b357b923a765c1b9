//! `starvation`: checks the bounds of waits. Random loads run on the schedulers of crate `itas`, in virtual time.
//!
//! Fibers arrive, run, overrun their slices, wait, and end. Other fibers succeed them, in the same slots or in new slots.
//! Fibers belong to groups with random weights. While fibers run, the parameters of groups change, and so do the roles,
//! settings and policies of cores. One of the policies is adversarial: it always selects the same group. No wait may exceed
//! the bound that the scheduler reports.

use std::ops::RangeFrom;
use std::sync::Arc;
use std::time::Duration;

use itas::policy::{Choice, Fair, Itas, Policy, Tas, View};
use itas::virtual_time::{After, Run, VirtualCores};
use itas::{Aggregation, Board, CoreSettings, GroupId, Groups, Role, Scheduler};

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::order::nanos;
use crate::sim::rng::Rng;

/// Number of parts of a case. Parameters change between parts. The next constant is the number of slices of a part.
const PARTS: u64 = 6;
const SLICES: u64 = 500;

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        if let Err(what) = run_seed(&mut Rng::new(seed)) {
            seed_result.fail("starvation", plan.scheduler, seed, format!("seed {seed}: {what}"));
        }
        seed_result
    })
}

/// Policy that always selects one group, regardless of the waits of other groups.
struct Greedy(GroupId);

impl Policy for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        view.queue().first_of(self.0).map_or_else(|| Choice::highest(view), Choice::aggregate)
    }
}

fn policy(rng: &mut Rng, ids: &[GroupId]) -> Box<dyn Policy> {
    match rng.below(5) {
        0 => Box::new(Fair),
        1 => Box::new(Tas),
        2 | 3 => Box::new(Itas),
        _ => Box::new(Greedy(ids[rng.index(ids.len())])),
    }
}

fn aggregation(rng: &mut Rng, slice: u64) -> Aggregation {
    let slices = rng.pick(&[0, 1, 3, 10, 100, 10_000]);
    Aggregation { bonus: Duration::from_nanos(slices * slice), limit: rng.pick(&[0, 1, 2, 8, 32, 1000]) }
}

fn settings(rng: &mut Rng) -> CoreSettings {
    CoreSettings {
        slice: Duration::from_nanos(rng.pick(&[100, 1000, 5000])),
        sleeper_credit: Duration::from_nanos(rng.pick(&[0, 1000, 20_000])),
        paper_slaves: rng.once_in(4),
    }
}

/// Parameters of a load, from which the behaviour of each run of a fiber is drawn.
#[derive(Clone, Copy)]
struct FiberBehaviour {
    /// Average number of runs per run that exceeds its slice.
    overruns: u64,
    /// Average number of runs per run after which the fiber waits (`waits`) or ends (`ends`).
    waits: u64,
    ends: u64,
    /// Maximum length of a pause between two runs, in slices.
    pause: u64,
    /// True if runs take only a part of their slices.
    short: bool,
    /// True if a fiber that ends without a pause is succeeded by a fiber in an unused slot.
    fresh: bool,
}

fn run_seed(rng: &mut Rng) -> Result<(), String> {
    let cores = 1 + rng.index(4);
    let groups = Groups::new();
    let first = settings(rng);
    let slice = nanos(first.slice);
    let n = 1 + rng.below(6);
    let ids = (0..n)
        .map(|_| groups.add("group", rng.pick(&[1024, 1024, 15, 300, 9000]), aggregation(rng, slice)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let (groups, board) = (Arc::new(groups), Arc::new(Board::new(cores)));
    let schedulers = (0..cores)
        .map(|core| Scheduler::new(core, Arc::clone(&groups), Arc::clone(&board), policy(rng, &ids), first))
        .collect();
    let mut cores_in_time = VirtualCores::new(schedulers);
    let fibers = 1 + rng.below(30) as u32;
    for fiber in 0..fibers {
        for core in 0..cores {
            let at = rng.below(30 * slice);
            cores_in_time.arrive(core, fiber, ids[rng.index(ids.len())], at);
        }
    }
    let behaviour = FiberBehaviour {
        overruns: rng.pick(&[2, 20, u64::MAX]),
        waits: rng.pick(&[2, 5, 100, u64::MAX]),
        // With `ends` of 1 and no pause, the fibers of a slot follow each other directly, and each fiber is new to the core.
        ends: rng.pick(&[1, 3, 20, 1000]),
        pause: rng.pick(&[0, 1, 10, 200]),
        short: rng.once_in(2),
        fresh: rng.once_in(2),
    };
    let mut draws = rng.split();
    let mut unused = fibers..;
    for part in 0..PARTS {
        let mut model = |_: usize, _: u32, group: GroupId, slice: u64, _: u64| {
            draw_run(&mut draws, behaviour, group, &ids, slice, &mut unused)
        };
        cores_in_time.run(SLICES, &mut model).map_err(|error| error.to_string())?;
        for core in 0..cores {
            check_wait_bound(cores_in_time.scheduler(core))
                .map_err(|what| format!("core {core}, part {part}: {what}"))?;
            change(rng, core, &mut cores_in_time, &groups, &board, &ids)?;
        }
    }
    Ok(())
}

fn draw_run(
    rng: &mut Rng,
    of: FiberBehaviour,
    group: GroupId,
    ids: &[GroupId],
    slice: u64,
    unused: &mut RangeFrom<u32>,
) -> Run {
    let ns = if rng.once_in(of.overruns) {
        slice + rng.below(6 * slice)
    } else if of.short {
        1 + rng.below(slice)
    } else {
        slice
    };
    let pause = rng.below(of.pause * slice + 1);
    let after = if rng.once_in(of.waits) {
        After::Waits(pause)
    } else if rng.once_in(of.ends) {
        let next = if rng.once_in(2) { group } else { ids[rng.index(ids.len())] };
        match unused.next().filter(|_| of.fresh) {
            Some(slot) => After::EndsFor(next, slot),
            None => After::Ends(next, pause),
        }
    } else {
        After::GoesOn
    };
    Run { ns, after }
}

fn check_wait_bound(scheduler: &Scheduler) -> Result<(), String> {
    let (longest, bound) = (scheduler.longest_wait_ns(), scheduler.wait_bound().as_nanos());
    if u128::from(longest) <= bound {
        return Ok(());
    }
    Err(format!("a fiber waited for {longest} ns, and the bound is {bound} ns: {scheduler:?}"))
}

/// Changes parameters that a program may change while fibers run.
fn change(
    rng: &mut Rng,
    core: usize,
    cores: &mut VirtualCores,
    groups: &Groups,
    board: &Board,
    ids: &[GroupId],
) -> Result<(), String> {
    let slice = cores.scheduler(core).slice_ns();
    match rng.below(6) {
        0 => cores.scheduler_mut(core).set(settings(rng)),
        1 => cores.scheduler_mut(core).set_policy(policy(rng, ids)),
        2 => {
            let group = ids[rng.index(ids.len())];
            groups.set_aggregation(group, aggregation(rng, slice)).map_err(|error| error.to_string())?;
        }
        3 => {
            let master = rng.index(board.cores());
            board.set_role(core, if master == core { Role::Master } else { Role::SlaveOf(master) });
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn no_fiber_waits_beyond_the_bound() {
        let report = run(&CampaignPlan::small(300, Scheduler::Threads), &Progress::hidden());
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(report.tried >= 300);
    }
}
