//! Runs on the engines in this process.
//!
//! [`run`] is generic, so its code is generated in the crate that calls it. The functions of this module are not generic:
//! the code of each engine and runner is generated once, in this package, whatever the callers are compiled with.

use super::ack::Sink;
use super::pacing::results::DeliveryResults;
use super::runner::itas::ItasRunner;
use super::runner::steps::StepsRunner;
use super::runner::threads::ThreadsRunner;
use super::{RunPlan, RunResult, Tick, pacing, run};
use crate::engines::floor::Floor;
use crate::engines::storage::in_order::LoopStore;
use crate::engines::storage::store::Store;
use crate::workload::engine::Engine;
use crate::workload::loaded::Loaded;

/// Callback for the progress of a run, called once per second.
pub type Look<'a> = &'a mut dyn FnMut(&Tick);

/// Runs `plan` on the floor, on threads.
///
/// # Errors
/// Those of [`run`].
pub fn run_floor(
    floor: &Floor,
    loaded: &Loaded,
    plan: &RunPlan,
    acks: Option<&Sink>,
    look: Look<'_>,
) -> Result<RunResult, String> {
    run(floor, &ThreadsRunner, loaded, plan, acks, look)
}

/// Runs `plan` on threads. The terminals are paced if `results` is given.
///
/// # Errors
/// Those of [`run`].
pub fn run_threads(
    store: &Store,
    loaded: &Loaded,
    plan: &RunPlan,
    results: Option<&DeliveryResults>,
    acks: Option<&Sink>,
    look: Look<'_>,
) -> Result<RunResult, String> {
    run_on_threads(store, loaded, plan, results, acks, look)
}

/// Runs `plan` with loops on several threads. The terminals are paced if `results` is given.
///
/// # Errors
/// Those of [`run`].
pub fn run_loops(
    store: &LoopStore<'_>,
    loaded: &Loaded,
    plan: &RunPlan,
    results: Option<&DeliveryResults>,
    acks: Option<&Sink>,
    look: Look<'_>,
) -> Result<RunResult, String> {
    run_on_threads(store, loaded, plan, results, acks, look)
}

/// Runs `plan` with the fibers of `runner`, which must have made the hook of `store`.
///
/// # Errors
/// Those of [`run`].
pub fn run_steps(
    store: &Store,
    runner: &StepsRunner,
    loaded: &Loaded,
    plan: &RunPlan,
    acks: Option<&Sink>,
    look: Look<'_>,
) -> Result<RunResult, String> {
    run(store, runner, loaded, plan, acks, look)
}

/// Runs `plan` with the sibling groups of `runner`. `store` must have [`ItasRunner::hook`].
///
/// # Errors
/// Those of [`run`].
pub fn run_itas(
    store: &Store,
    runner: &ItasRunner,
    loaded: &Loaded,
    plan: &RunPlan,
    acks: Option<&Sink>,
    look: Look<'_>,
) -> Result<RunResult, String> {
    let measured = run(store, runner, loaded, plan, acks, look)?;
    Ok(RunResult { siblings: Some(runner.figures()), ..measured })
}

fn run_on_threads<E: Engine>(
    engine: &E,
    loaded: &Loaded,
    plan: &RunPlan,
    results: Option<&DeliveryResults>,
    acks: Option<&Sink>,
    look: Look<'_>,
) -> Result<RunResult, String> {
    match results {
        Some(results) => pacing::run(engine, loaded, plan, results, pacing::AS_SPECIFIED, look),
        None => run(engine, &ThreadsRunner, loaded, plan, acks, look),
    }
}
