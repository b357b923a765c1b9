//! The commands, one per file, and their common functions.

pub(crate) mod check;
pub(crate) mod compact;
#[cfg(feature = "lab")]
pub(crate) mod compare;
pub(crate) mod copy;
#[cfg(feature = "lab")]
pub(crate) mod footprint;
#[cfg(feature = "lab")]
pub(crate) mod history;
#[cfg(feature = "lab")]
pub(crate) mod index_fetch;
#[cfg(feature = "lab")]
pub(crate) mod latency;
pub(crate) mod load;
#[cfg(feature = "postgres")]
mod remote;
#[cfg(feature = "lab")]
pub(crate) mod report;
#[cfg(feature = "lab")]
pub(crate) mod reproduce;
pub(crate) mod run;
#[cfg(feature = "lab")]
pub(crate) mod shell;
#[cfg(feature = "lab")]
pub(crate) mod tenants;
pub(crate) mod verify;

use std::path::Path;
use std::time::Duration;

use crate::cli::flags::{CheckFlags, LoadFlags, RunFlags};
#[cfg(feature = "postgres")]
use crate::cli::resolve;
use tpcc_core::driver::Clock;
use tpcc_core::report::files::RenderPage;
use tpcc_core::report::progress::{self, Progress};
use tpcc_core::report::text::broken_rules;
use tpcc_core::workload::check::{self as checker, Audit};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::engine::Engine;
use tpcc_core::workload::error::{Error, command};
use tpcc_core::workload::interrupt;
use tpcc_core::workload::load as loader;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::schema::Scale;
use tpcc_core::workload::settings::{RunConfig, StoreConfig};
use tpcc_core::workload::streams::say_text;
use tpcc_core::workload::threads;

/// Outcome of a command that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Outcome {
    /// The command succeeded.
    Success,
    /// A check failed: a consistency rule is violated, the structure is damaged, an acknowledged transaction is missing, or
    /// copies differ. The details have been printed.
    CheckFailed,
}

/// Executes `tpcc run`, on an engine of this program or on a server.
pub(crate) fn run_anywhere(flags: RunFlags) -> Result<Outcome, Error> {
    #[cfg(feature = "postgres")]
    if let Some(server) = resolve::remote::of_run(&flags)? {
        return remote::run(&resolve::run(flags)?, &server);
    }
    run::run(flags)
}

/// Executes `tpcc load`, into a directory or a server.
pub(crate) fn load_anywhere(flags: &LoadFlags) -> Result<Outcome, Error> {
    #[cfg(feature = "postgres")]
    if let Some(server) = resolve::remote::of_load(flags)? {
        return remote::load(flags, &server);
    }
    load::run(flags)
}

/// Executes `tpcc check`, on a directory or a server.
pub(crate) fn check_anywhere(flags: &CheckFlags) -> Result<Outcome, Error> {
    #[cfg(feature = "postgres")]
    if let Some(server) = resolve::remote::of_check(flags)? {
        return remote::check(flags, &server);
    }
    check::run(flags)
}

/// Returns the file and the renderer of the page of a run, if a page was requested.
#[cfg(feature = "lab")]
fn page_of(config: &RunConfig) -> Option<(&Path, RenderPage)> {
    config.report.as_deref().map(|path| (path, tpcc_lab::page::run::run_page as RenderPage))
}

/// Returns `None`: without the laboratory there are no pages.
#[cfg(not(feature = "lab"))]
fn page_of(_: &RunConfig) -> Option<(&Path, RenderPage)> {
    None
}

/// Returns the outcome of a command with this check, and prints the violated rules. An interrupted check is not a failure.
fn verdict(checked: Option<&Audit>) -> Outcome {
    match checked {
        Some(checked) if !checked.passed() && !checked.interrupted => {
            say_text(broken_rules(checked));
            Outcome::CheckFailed
        }
        _ => Outcome::Success,
    }
}

/// Interval between updates of the progress display.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Runs `work` on another thread. Until `work` ends, the calling thread calls `update` at every [`PROGRESS_INTERVAL`], to
/// show the progress and to check for signals.
fn run_with_progress<R: Send>(work: impl FnOnce() -> R + Send, mut update: impl FnMut()) -> Result<R, Error> {
    let main = std::thread::current();
    std::thread::scope(|scope| {
        let worker = threads::spawn(scope, "work", move || {
            let result = work();
            main.unpark();
            result
        })?;
        while !worker.is_finished() {
            std::thread::park_timeout(PROGRESS_INTERVAL);
            update();
        }
        worker.join().map_err(|_| Error::failed("a thread panicked; this is a fault of the program"))
    })
}

/// Loads `warehouses` warehouses and shows the progress.
fn load<D: Database>(
    config: &StoreConfig,
    hook: Option<&D::Hook>,
    warehouses: u32,
    seed: u64,
) -> Result<(D, Loaded, u64), Error> {
    let plan = loader::Population::new(warehouses, Scale::FULL, seed, Clock::start().date(0));
    let (done, mut shown) = (loader::RowsDone::default(), Progress::start());
    let start = std::time::Instant::now();
    let database = run_with_progress(
        || D::load(config, hook, &plan, &done),
        || {
            if interrupt::requested() {
                done.cancel();
            }
            shown.show(|| load_line(&plan, done.rows(), start.elapsed()));
        },
    )??;
    drop(shown);
    let database = database.ok_or_else(|| {
        let shown = config.shown();
        let again = format!("--warehouses {warehouses} --replace");
        Error::failed(format!("{shown}: incomplete load (interrupted)"))
            .help(format!("{} deletes it and loads again", command("load", &shown, &again)))
    })?;
    Ok((database, plan.loaded(), done.rows()))
}

/// Formats the progress of a load: "load  warehouse 7/20 [#######.............] 35%  412k rows/s  14 s left".
fn load_line(plan: &loader::Population, rows: u64, elapsed: Duration) -> String {
    // `plan.rows()` is an expected value: the number of lines of an order is random.
    let share = (rows as f64 / plan.rows() as f64).min(1.0);
    let warehouse = ((share * f64::from(plan.warehouses)).ceil() as u32).max(1);
    let rate = rows as f64 / elapsed.as_secs_f64().max(1e-3);
    let left = plan.rows().saturating_sub(rows) as f64 / rate.max(1.0);
    format!(
        "load  warehouse {warehouse}/{} {} {:.0}%  {} rows/s  {left:.0} s left",
        plan.warehouses,
        progress::bar(share),
        100.0 * share,
        progress::short(rate)
    )
}

/// Checks all consistency rules and shows the progress.
fn check<E: Engine>(engine: &E, loaded: &Loaded, threads: usize) -> Result<Audit, Error> {
    let (done, mut shown) = (checker::WarehousesDone::default(), Progress::start());
    let checked = run_with_progress(
        || checker::check(engine, loaded, threads, &done),
        || {
            shown.show(|| {
                let (done, all) = (done.warehouses(), loaded.warehouses);
                let share = done as f64 / f64::from(all);
                format!("check warehouse {done}/{all} {} {:.0}%", progress::bar(share), 100.0 * share)
            });
        },
    )?;
    checked.map_err(|error| error.into_error(|error| Error::failed(error.to_string())))
}
