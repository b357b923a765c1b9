//! Terminals with the keying and think times of clause 5.2, in front of the workers.
//!
//! Each terminal is a tokio task, ten per warehouse. The tasks of all terminals share one thread. Workers are plain threads,
//! as without pacing. A worker takes requests from an inbox, sleeps if there are none, and responds through the channel of
//! the request once its ticket is durable. No thread is parked for a waiting terminal. Deliveries are deferred (2.7): the
//! terminal gets its response when its request is queued, a worker executes the Delivery when no terminal waits, and a line
//! of the result file records the outcome. The menu (5.2.5.1) takes no time.

pub mod figures;
mod inbox;
pub mod results;
mod terminals;
pub mod times;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use tokio::sync::Notify;

use super::measure::Stats;
use super::terminal::Terminal;
use super::{Board, Clock, Control, EndGuard, Phase, RunPlan, RunResult, Tick, next_run, pin_worker, supervise};
use crate::workload::engine::Engine;
use crate::workload::generate::Random;
use crate::workload::generate::deck::Mix;
use crate::workload::generate::input::InputSpace;
use crate::workload::generate::nurand::Constants;
use crate::workload::loaded::Loaded;
use crate::workload::threads;
use figures::{Deferrals, PacedFigures};
use inbox::Inbox;
use results::DeliveryResults;
use terminals::{CountedCycles, TerminalContext, TerminalSlot, Workers};
use worker::{PacedWorkerResult, WorkerPlace};

/// Speed factor of terminals with the times of the specification. Tests use larger factors.
pub const AS_SPECIFIED: u32 = 1;

/// Runs `plan` on a loaded engine with paced terminals. `look` is called once per second.
///
/// # Errors
/// A message for the user if the run cannot start. A later failure is in [`RunResult::failure`], with the figures up to the
/// failure.
pub fn run<E: Engine>(
    engine: &E,
    loaded: &Loaded,
    plan: &RunPlan,
    results: &DeliveryResults,
    speed: u32,
    mut look: impl FnMut(&Tick),
) -> Result<RunResult, String> {
    results.begin()?;
    let run = next_run(engine).map_err(|e| e.to_string())?;
    let constants = Constants::for_run(&mut Random::stream(plan.seed, u64::MAX), loaded.c_load);
    let world = InputSpace { scale: loaded.scale, warehouses: plan.warehouses, constants };
    let clock = Clock::start();
    let control = Arc::new(Control::of(Phase::first(&plan.length)));
    let slots: Vec<TerminalSlot> = (0..plan.terminals)
        .map(|number| {
            let terminal = Terminal::new(number, run, plan, &loaded.scale);
            let worker = terminal.worker(plan);
            TerminalSlot { terminal, worker }
        })
        .collect();
    let terminals_of = |worker| slots.iter().filter(|slot| slot.worker == worker).count();
    let inboxes: Arc<[Inbox]> = (0..plan.workers).map(|worker| Inbox::new(terminals_of(worker))).collect();
    // One board of progress counters per worker, and one for the thread of the terminals.
    let boards: Arc<[Board]> = (0..=plan.workers).map(|_| Board::default()).collect();
    let stop = Notify::new();
    let context = TerminalContext {
        server: Workers { inboxes: Arc::clone(&inboxes), clock },
        control: Arc::clone(&control),
        boards: Arc::clone(&boards),
        clock,
        world,
        seed: plan.seed,
        speed,
        main: std::thread::current(),
    };
    let main = std::thread::current();

    std::thread::scope(|scope| {
        let (control, inboxes, boards, main, stop) = (&*control, &*inboxes, &*boards, &main, &stop);
        let mut works: Vec<Box<dyn FnOnce() -> PacedEnd + Send>> = Vec::new();
        for (number, inbox) in inboxes.iter().enumerate() {
            let (steps, dates, board) = (plan.steps, plan.clock, &boards[number]);
            let place = WorkerPlace { engine, number, steps, dates, inbox, results, control, board, clock };
            let work = move || {
                let _end = EndGuard { control, main };
                PacedEnd::Worker(match pin_worker(plan, number) {
                    Ok(()) => worker::serve(&place),
                    Err(why) => {
                        control.set(Phase::Stop);
                        PacedWorkerResult::failed(why)
                    }
                })
            };
            works.push(Box::new(work));
        }
        let run_terminals = move || {
            let _end = EndGuard { control, main };
            PacedEnd::Terminals(terminals::run(context, slots, stop).map_err(|e| {
                control.set(Phase::Stop);
                format!("the terminals cannot be started: {e}")
            }))
        };
        works.push(Box::new(run_terminals));
        let threads = threads::spawn_all(scope, "worker", works).map_err(|error| error.to_string())?;
        let mut failure = None;
        let (mut began, mut ended) = (None, None);
        let (series, interrupted, figures) = supervise(engine, plan, control, boards, clock, &mut look, |phase| {
            let now = (clock.now_ns(), processor_time());
            match phase {
                Phase::Warmup => {}
                Phase::Measure => began = Some(now),
                Phase::Stop => {
                    ended = Some(now);
                    inboxes.iter().for_each(Inbox::close);
                    stop.notify_one();
                }
            }
        });
        let (mut stats, mut deferrals) = (Stats::new(), Deferrals::default());
        let panicked = || Some("a thread panicked; this is a fault of the program".to_owned());
        let mut cycles = figures::Cycles::default();
        for thread in threads {
            match thread.join() {
                Ok(PacedEnd::Worker(result)) => {
                    stats.merge(&result.stats);
                    deferrals.merge(&result.deferrals);
                    failure = failure.or(result.failure);
                }
                Ok(PacedEnd::Terminals(Ok(CountedCycles { stats: own, cycles: all }))) => {
                    stats.merge(&own);
                    cycles = all;
                }
                Ok(PacedEnd::Terminals(Err(why))) => failure = failure.or(Some(why)),
                Err(_) => failure = failure.or_else(panicked),
            }
        }
        // Deliveries that are still queued will not be executed.
        inboxes.iter().flat_map(Inbox::left).for_each(|queued| deferrals.left(queued.elapsed()));
        let mut cpu = None;
        if let (Some((from, cpu_before)), Some((to, cpu_after))) = (began, ended) {
            stats.measured(from, to);
            cpu = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
        }
        let paced = PacedFigures { cycles, deferrals, cpu, results: results.path().to_owned() };
        Ok(RunResult {
            seconds: stats.seconds(),
            stats,
            teams: Vec::new(),
            team_size: 1,
            series,
            interrupted,
            failure,
            figures,
            leaves: engine.leaves(),
            siblings: None,
            counted: None,
            stacks: None,
            paced: Some(paced),
        })
    })
}

/// Returns the number of bytes of a paced terminal, including its task and its entries in the inbox of its worker.
pub fn terminal_bytes() -> u64 {
    (Terminal::bytes(Mix::Standard) + terminals::task_bytes() + inbox::place_bytes()) as u64
}

/// Result of a thread of the run.
enum PacedEnd {
    Worker(PacedWorkerResult),
    /// Result of the thread that runs all terminals.
    Terminals(Result<CountedCycles, String>),
}

/// Returns the CPU time of the whole process so far. `None` if the system does not report it.
fn processor_time() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().max(0) as u64) + Duration::from_micros(time.tv_usec().max(0) as u64)
    };
    Some(of(usage.user_time()) + of(usage.system_time()))
}

#[cfg(test)]
mod tests;
