//! `tpcc check`: checks the consistency conditions, and the structure if requested.

use std::ops::ControlFlow;

use super::{Outcome, check};
use crate::cli::flags::CheckFlags;
use crate::cli::resolve::on_disk;
use tpcc_core::checkers::structure;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine, peak_rss_bytes};
use tpcc_core::report::progress::Progress;
use tpcc_core::report::text::{broken_rules, check_line};
use tpcc_core::report::{self, model};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::{Error, command};
use tpcc_core::workload::interrupt;
use tpcc_core::workload::streams::say_text;
use tpcc_core::workload::words::grouped;

pub(crate) fn run(flags: &CheckFlags) -> Result<Outcome, Error> {
    let config = on_disk("check", flags.directory.data.as_deref(), &flags.engine, flags.machine.workers)?;
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let cpu = CpuTime::now();
    let Some((database, loaded)) = Store::open(&config, None)? else {
        let shown = config.shown();
        return Err(Error::failed(format!("{shown}: no database there"))
            .help(format!("{} makes one; or name another directory with --data", command("load", &shown, ""))));
    };
    let structure = flags.structure.then(|| structure::check(&database)).transpose()?;
    // A check of the rows of a damaged tree would prove nothing.
    let broken = structure.as_ref().is_some_and(|structure| !structure.passed());
    let checked = if broken {
        None
    } else {
        database.verify()?;
        Some(check(&database, &loaded, config.workers)?)
    };
    let digest = if flags.fingerprint && !broken { Some(fingerprint(&database)?) } else { None };
    let closed = Database::close(database);
    if !broken {
        closed?;
    }
    if checked.as_ref().is_some_and(|checked| checked.interrupted) {
        return Err(Error::failed("check: interrupted; nothing is proved").help("let it run to its end"));
    }
    let settings = model::Config {
        warehouses: Some(loaded.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..report::store_config("check", &config)
    };
    let rows = checked.as_ref().and_then(report::rows);
    let report = model::Checked {
        schema: model::schema_of("check"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: settings,
        interrupted: false,
        check: checked.as_ref().map(report::check).unwrap_or_default(),
        structure: structure.as_ref().map(|structure| structure.json.clone()),
        fingerprint: digest.clone(),
        rows: rows.clone(),
        peak_rss_bytes: peak_rss_bytes(),
    };
    let rows: Vec<String> =
        rows.into_iter().flatten().map(|(table, rows)| format!("{table} {}", grouped(rows))).collect();
    let mut text = format!("{}\n", report::NOTICE);
    if let Some(checked) = &checked {
        text += &format!("check     {}\nrows      {}\n", check_line(checked), rows.join(", "));
    }
    if let Some(structure) = &structure {
        text += &format!("{}\n", structure.line());
    }
    if let Some(digest) = &digest {
        text += &format!("fingerprint {digest}\n");
    }
    conclude(json, &report, text, false)?;
    if let Some(structure) = structure.filter(|structure| !structure.passed()) {
        say_text(structure.findings());
    }
    match checked {
        Some(checked) if checked.passed() => Ok(Outcome::Success),
        Some(checked) => {
            say_text(broken_rules(&checked));
            Ok(Outcome::CheckFailed)
        }
        None => Ok(Outcome::CheckFailed),
    }
}

/// Computes the digest of all rows and shows the progress.
fn fingerprint<D: Database>(database: &D) -> Result<String, Error> {
    let mut shown = Progress::start();
    let digest = database.fingerprint(&mut |rows| {
        shown.show(|| format!("fingerprint  {} rows", grouped(rows)));
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    digest.ok_or_else(|| Error::failed("check: interrupted; there is no fingerprint").help("let it run to its end"))
}
