//! `tpcc run`: loads if needed, runs the workload, checks the database, and prints the results.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Outcome, check, load, verdict};
use crate::cli::flags::RunFlags;
use crate::cli::memory;
use crate::cli::resolve;
use tpcc_core::driver::ack::Sink;
use tpcc_core::driver::hardware::code::move_to_large_pages;
use tpcc_core::driver::pacing::results::DeliveryResults;
use tpcc_core::driver::runner::itas::ItasRunner;
use tpcc_core::driver::runner::steps::StepsRunner;
use tpcc_core::driver::{RunPlan, RunResult, Tick, in_process};
use tpcc_core::engines::floor::Floor;
use tpcc_core::engines::space;
use tpcc_core::engines::storage::fiber_hook::StoreHook;
use tpcc_core::engines::storage::in_order::LoopStore;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::files::RunFiles;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine};
use tpcc_core::report::progress::{self, Progress};
use tpcc_core::report::{self, text};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::{Error, command};
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::settings::{EngineKind, LargePages, ResolvedCounts, RunConfig, Scheduling, Speculate};
use tpcc_core::workload::streams::say;

pub(crate) fn run(flags: RunFlags) -> Result<Outcome, Error> {
    let config = resolve::run(flags)?;
    let code = (config.store.large_pages == LargePages::Code).then(move_to_large_pages).transpose()?;
    let large_stacks = config.store.large_pages != LargePages::Off;
    match (config.engine, &config.scheduling, config.speculate) {
        (EngineKind::Postgres, ..) => Err(Error::usage("--engine postgres: needs the URL of a server")),
        (EngineKind::Floor, ..) => run_on::<Floor>(&config, code, None, |database, loaded, plan, acks, look| {
            in_process::run_floor(database, loaded, plan, acks, look)
        }),
        (EngineKind::Storage, Scheduling::Threads, Speculate::Off) => {
            let results = open_delivery_results(&config)?;
            run_on::<Store>(&config, code, None, |database, loaded, plan, acks, look| {
                in_process::run_threads(database, loaded, plan, results.as_ref(), acks, look)
            })
        }
        (EngineKind::Storage, Scheduling::Threads, how) => {
            warn_of_threads(&config);
            let results = open_delivery_results(&config)?;
            run_on::<Store>(&config, code, None, |database, loaded, plan, acks, look| {
                let loops = LoopStore::new(database, how);
                in_process::run_loops(&loops, loaded, plan, results.as_ref(), acks, look)
            })
        }
        (EngineKind::Storage, Scheduling::Steps { team_size, teams_of, points }, _) => {
            let runner = StepsRunner::new(*team_size, *teams_of, points)?.large_stacks(large_stacks);
            let hook = runner.hook().map(|hook| hook as Arc<dyn StoreHook>);
            run_on::<Store>(&config, code, hook.as_ref(), |database, loaded, plan, acks, look| {
                in_process::run_steps(database, &runner, loaded, plan, acks, look)
            })
        }
        (EngineKind::Storage, Scheduling::Itas { fibers, policy, slice_us }, _) => {
            let hook = ItasRunner::hook();
            run_on::<Store>(&config, code, Some(&hook), |database, loaded, plan, acks, look| {
                let (mode, slice) = (policy.mode(), Duration::from_micros(*slice_us));
                let runner = ItasRunner::new(*fibers, mode, slice, plan.workers, plan.warehouses);
                let runner = runner.map_err(|error| error.to_string())?.large_stacks(large_stacks);
                in_process::run_itas(database, &runner, loaded, plan, acks, look)
            })
        }
    }
}

/// Opens the result file of deferred Deliveries, or returns `None` without pacing. Called before the load, which may take
/// hours. Warns if the warm-up is shorter than the ramp-up of the terminals.
fn open_delivery_results(config: &RunConfig) -> Result<Option<DeliveryResults>, Error> {
    let Some(path) = &config.delivery_results else { return Ok(None) };
    if config.length.warmup < RAMP_UP {
        say(format_args!(
            "warning: --warmup {}: terminals start within 21 s and need two more cycles to settle; figures are of the ramp-up, pass 60 or more",
            config.length.warmup.as_secs_f64()
        ));
    }
    DeliveryResults::open(path).map(Some).map_err(|e| {
        Error::failed(format!("{}: cannot be written: {e}", path.display()))
            .help("pass another file with --delivery-results; nothing was done")
    })
}

/// Ramp-up of paced terminals: after three cycles they are independent of their start times.
const RAMP_UP: Duration = Duration::from_secs(60);

/// Warns if loops have more threads than the machine has cores.
fn warn_of_threads(config: &RunConfig) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = config.store.workers * config.store.loop_threads;
    if config.speculate == Speculate::On && threads > cores {
        let (workers, each) = (config.store.workers, config.store.loop_threads);
        say(format_args!(
            "warning: {workers} workers with {each} threads each on {cores} cores; pass --workers {} or --speculate auto",
            (cores / each).max(1)
        ));
    }
}

fn run_on<D: Database>(
    config: &RunConfig,
    code: Option<Range<usize>>,
    hook: Option<&D::Hook>,
    drive: impl FnOnce(&D, &Loaded, &RunPlan, Option<&Sink>, &mut dyn FnMut(&Tick)) -> Result<RunResult, String>,
) -> Result<Outcome, Error> {
    let json = JsonOut::open(config.json.as_deref())?;
    let files = RunFiles::open(super::page_of(config), config.csv.as_deref(), config.hdr.as_deref())?;
    if config.acks && matches!(json, Some(JsonOut::Stdout)) {
        return Err(
            Error::usage("--json -: stdout has the acknowledgements").help("pass a file, or leave out --ack-stdout")
        );
    }
    if config.engine == EngineKind::Storage {
        space::check(&config.store.data, 0, 0)?;
    }
    let cpu = CpuTime::now();
    let (database, loaded) = match D::open(&config.store, hook)? {
        Some(opened) => opened,
        None => {
            // Wrong settings are refused before the load, which may take hours.
            let _ = config.resolve_counts(config.warehouses_to_load())?;
            let (database, loaded, _) = load::<D>(&config.store, hook, config.warehouses_to_load(), config.seed)?;
            (database, loaded)
        }
    };
    let counts = config.resolve_counts(loaded.warehouses)?;
    memory::of_run(config, Some(counts.warehouses)).check()?;
    if config.engine == EngineKind::Storage
        && let Some(warning) = space::may_fill(&config.store, counts.workers, &config.length)
    {
        say(warning);
    }
    if config.store.preload {
        database.preload()?;
    }
    let plan = plan(config, &counts);
    let acks = config.acks.then(|| Sink::new(Box::new(std::io::stdout())));
    let mut shown = Progress::start();
    let measured = drive(&database, &loaded, &plan, acks.as_ref(), &mut |tick| shown.show(|| line(&plan, tick)))
        .map_err(Error::failed)?;
    drop(shown);
    let checked = match config.check && !measured.interrupted && measured.failure.is_none() {
        true => Some(check(&database, &loaded, config.store.workers)?),
        false => None,
    };
    let memory = database.memory().map(|engine| report::large_pages(config.store.large_pages, engine, code, &measured));
    let settings = report::run_config(config, &counts, &loaded);
    let report = report::run(settings, Machine::describe(cpu), &measured, memory, checked.as_ref());
    let (named, files_written) = files.write(&report, &measured.stats);
    let written = conclude(json, &report, text::run(&report, checked.as_ref()) + &named, acks.is_some());
    let closed = database.close();
    if let Some(why) = measured.failure {
        // The failure that ended the run may also prevent a clean close. The next open recovers the database.
        let again = command("check", &config.store.shown(), "");
        return Err(Error::failed(why).help(format!("the figures are of the time until then; {again} opens it again")));
    }
    written?;
    files_written?;
    closed?;
    Ok(verdict(checked.as_ref()))
}

/// Returns the driver's plan of a run.
pub(super) fn plan(config: &RunConfig, counts: &ResolvedCounts) -> RunPlan {
    RunPlan {
        warehouses: counts.warehouses,
        workers: counts.workers,
        terminals: counts.terminals,
        mix: config.mix,
        steps: config.steps,
        admission: config.admission,
        placement: config.placement(),
        pin: config.pin,
        counters: config.counters,
        length: config.length,
        clock: config.clock,
        seed: config.seed,
    }
}

/// Formats the progress of a run: "run   12/30 s  181.4k/s  p99 33 us  aborted 0.0002%  log 115 MB/s  hits 99.99%".
pub(super) fn line(plan: &RunPlan, tick: &Tick) -> String {
    let (name, of) = match tick.is_warmup {
        true => ("warm", Some(plan.length.warmup)),
        false => ("run ", plan.length.duration),
    };
    let mut line = format!("{name}  {:.0}", tick.elapsed);
    if let Some(of) = of {
        line += &format!("/{:.0}", of.as_secs_f64());
    }
    line += &format!(" s  {}/s", progress::short(tick.throughput_per_s));
    if !tick.is_warmup && plan.length.duration.is_none() {
        line += &format!("  {} done", progress::short(tick.completed as f64));
    }
    if let Some(p99) = tick.p99_us {
        line += &format!("  p99 {p99:.0} us");
    }
    line += &format!("  aborted {:.4}%", 100.0 * tick.aborted as f64 / tick.completed.max(1) as f64);
    if let Some(log) = tick.figures.log {
        line += &format!("  log {:.0} MB/s", log.bytes as f64 / 1e6);
    }
    if let Some(hits) = tick.figures.pool.and_then(|pool| report::hit_rate(&pool)) {
        line += &format!("  hits {:.2}%", 100.0 * hits);
    }
    line
}
