//! `tpcc run`, `load` and `check` on a server that speaks PostgreSQL's protocol.

use std::time::Instant;

use super::load::{confirm_deletion, terminal};
use super::run::{line, plan};
use super::{Outcome, load_line, run_with_progress, verdict};
use crate::cli::flags::{CheckFlags, LoadFlags};
use crate::cli::memory;
use tpcc_core::driver::runner::threads::ThreadsRunner;
use tpcc_core::driver::{self, Clock};
use tpcc_core::report::files::RunFiles;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine, peak_rss_bytes};
use tpcc_core::report::progress::{self, Progress};
use tpcc_core::report::text::check_line;
use tpcc_core::report::{self, model, text};
use tpcc_core::workload::check::Audit;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::load as loader;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::schema::Scale;
use tpcc_core::workload::settings::RunConfig;
use tpcc_core::workload::streams::say;
use tpcc_core::workload::words::{counted, grouped};
use tpcc_pg::{Postgres, QueriesDone, RemoteConfig};

pub(super) fn run(config: &RunConfig, remote: &RemoteConfig) -> Result<Outcome, Error> {
    let json = JsonOut::open(config.json.as_deref())?;
    let files = RunFiles::open(super::page_of(config), config.csv.as_deref(), config.hdr.as_deref())?;
    let cpu = CpuTime::now();
    let postgres = Postgres::connect(remote)?;
    let loaded = match postgres.open()? {
        Some(loaded) => loaded,
        None => {
            let _ = config.resolve_counts(config.warehouses_to_load())?;
            load_with_progress(&postgres, remote, config.warehouses_to_load(), config.seed)?.0
        }
    };
    if let Some(warehouses) = config.warehouses.filter(|&asked| asked > loaded.warehouses) {
        let (held, shown) = (loaded.warehouses, remote.shown());
        let fewer = remote.command("run", &format!("--warehouses {held}"));
        return Err(Error::usage(format!("--warehouses {warehouses}: {shown} holds {held}"))
            .help(format!("{fewer}, or load {warehouses} into another database")));
    }
    let counts = config.resolve_counts(loaded.warehouses)?;
    memory::of_run(config, Some(counts.warehouses)).check()?;
    let plan = plan(config, &counts);
    if let Some(warning) = postgres.durability_warning() {
        say(warning);
    }
    let mut shown = Progress::start();
    let look = |tick: &driver::Tick| shown.show(|| line(&plan, tick));
    let measured = driver::run(&postgres, &ThreadsRunner, &loaded, &plan, None, look).map_err(Error::failed)?;
    drop(shown);
    let checked = match config.check && !measured.interrupted && measured.failure.is_none() {
        true => Some(check_with_progress(&postgres, &loaded)?),
        false => None,
    };
    let server = tpcc_pg::report::remote_config("run", remote, postgres.server().version());
    let has_async = remote.dialect.has_async_commit();
    let settings = model::Config {
        server: server.server,
        server_version: server.server_version,
        sql_dialect: server.sql_dialect,
        connections: Some(counts.workers),
        durability: has_async.then(|| remote.durability.name().to_owned()),
        isolation: Some(remote.isolation.name().to_owned()),
        ..report::run_config(config, &counts, &loaded)
    };
    let report = report::run(settings, Machine::describe(cpu), &measured, None, checked.as_ref());
    let (named, files_written) = files.write(&report, &measured.stats);
    let written = conclude(json, &report, text::run(&report, checked.as_ref()) + &named, false);
    if let Some(why) = measured.failure {
        let again = remote.command("check", "");
        return Err(
            Error::failed(why).help(format!("the figures are of the time until then; {again} looks at the rows"))
        );
    }
    written?;
    files_written?;
    Ok(verdict(checked.as_ref()))
}

pub(super) fn load(flags: &LoadFlags, remote: &RemoteConfig) -> Result<Outcome, Error> {
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    let warehouses = flags.loaded.warehouses.unwrap_or(1);
    let postgres = Postgres::connect(remote)?;
    let shown = remote.shown();
    if flags.replace {
        let again = remote.command("load", &format!("--warehouses {warehouses} --replace --yes"));
        postgres.clear(&mut |description| match flags.yes {
            true => Ok(()),
            false => confirm_deletion(&shown, warehouses, &again, description, terminal()),
        })?;
    }
    let begun = Instant::now();
    let (loaded, rows) = load_with_progress(&postgres, remote, warehouses, flags.random.seed)?;
    let (load_s, elapsed_s) = (begun.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
    let settings = model::Config { seed: Some(loaded.seed), ..report_config(&loaded, &postgres, "load") };
    let report = model::Load {
        schema: model::schema_of("load"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: settings,
        interrupted: false,
        load_s,
        elapsed_s,
        loaded_rows: rows,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let text = format!(
        "{}\nloaded    {} in {load_s:.2} s, {} rows, into {shown}; seed {}\n",
        report::NOTICE,
        counted(u64::from(loaded.warehouses), "warehouse"),
        grouped(rows),
        loaded.seed,
    );
    conclude(json, &report, text, false)?;
    Ok(Outcome::Success)
}

pub(super) fn check(flags: &CheckFlags, remote: &RemoteConfig) -> Result<Outcome, Error> {
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let cpu = CpuTime::now();
    let postgres = Postgres::connect(remote)?;
    let Some(loaded) = postgres.open()? else {
        return Err(Error::failed(format!("{}: no database there", remote.shown()))
            .help(format!("{} makes one; or name another with --engine", remote.command("load", ""))));
    };
    let checked = check_with_progress(&postgres, &loaded)?;
    if checked.interrupted {
        return Err(Error::failed("check: interrupted; nothing is proved").help("let it run to its end"));
    }
    let rows = report::rows(&checked);
    let report = model::Checked {
        schema: model::schema_of("check"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: report_config(&loaded, &postgres, "check"),
        interrupted: false,
        check: report::check(&checked),
        structure: None,
        fingerprint: None,
        rows: rows.clone(),
        peak_rss_bytes: peak_rss_bytes(),
    };
    let rows: Vec<String> =
        rows.into_iter().flatten().map(|(table, rows)| format!("{table} {}", grouped(rows))).collect();
    let text = format!("{}\ncheck     {}\nrows      {}\n", report::NOTICE, check_line(&checked), rows.join(", "));
    conclude(json, &report, text, false)?;
    Ok(verdict(Some(&checked)))
}

/// Returns the settings in the report of `command` that describe a loaded database and its server.
fn report_config(loaded: &Loaded, postgres: &Postgres, command: &str) -> model::Config {
    model::Config {
        warehouses: Some(loaded.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..tpcc_pg::report::remote_config(command, postgres.server().config(), postgres.server().version())
    }
}

/// Loads the warehouses and shows the progress.
fn load_with_progress(
    postgres: &Postgres,
    remote: &RemoteConfig,
    warehouses: u32,
    seed: u64,
) -> Result<(Loaded, u64), Error> {
    let plan = loader::Population::new(warehouses, Scale::FULL, seed, Clock::start().date(0));
    let (done, mut shown) = (loader::RowsDone::default(), Progress::start());
    let start = Instant::now();
    let whole = run_with_progress(
        || postgres.load(&plan, remote.connections, &done),
        || {
            if interrupt::requested() {
                done.cancel();
            }
            shown.show(|| load_line(&plan, done.rows(), start.elapsed()));
        },
    )??;
    drop(shown);
    if !whole {
        let again = remote.command("load", &format!("--warehouses {warehouses} --replace"));
        return Err(Error::failed(format!("{}: incomplete load (interrupted)", remote.shown()))
            .help(format!("{again} deletes it and loads again")));
    }
    Ok((plan.loaded(), done.rows()))
}

/// Checks the consistency conditions and shows the progress.
fn check_with_progress(postgres: &Postgres, loaded: &Loaded) -> Result<Audit, Error> {
    let (done, mut shown) = (QueriesDone::default(), Progress::start());
    run_with_progress(
        || postgres.check(loaded, &done),
        || {
            shown.show(|| {
                let (done, all) = done.of();
                let share = done as f64 / all as f64;
                format!("check query {done}/{all} {} {:.0}%", progress::bar(share), 100.0 * share)
            });
        },
    )?
}
