//! `tpcc check`: the consistency conditions, on their own.

use super::{Ended, check, print};
use crate::config::{self, CheckConfig};
use crate::database::Database;
use crate::error::Error;
use crate::flags;
use crate::glue::storage::Store;
use crate::report::machine::{CpuTime, Machine, peak_rss_bytes};
use crate::report::output::JsonFile;
use crate::report::summary::{broken_rules, check_line, grouped};
use crate::report::{self, json};

/// Carries the command out.
pub(crate) fn run(flags: flags::Check) -> Result<Ended, Error> {
    let config = config::check(flags)?;
    check_in::<Store>(&config)
}

fn check_in<D: Database>(config: &CheckConfig) -> Result<Ended, Error> {
    let file = config.json.as_deref().map(JsonFile::open).transpose()?;
    let cpu = CpuTime::now();
    let Some((database, loaded)) = D::open(&config.store)? else {
        return Err(Error::failed(format!("{}: no database there", config.store.shown()))
            .help("'tpcc load' makes one; --data names its directory"));
    };
    database.verify()?;
    let checked = check(&database, &loaded, config.store.workers)?;
    database.close()?;
    if checked.interrupted {
        return Err(Error::failed("check: interrupted; nothing is proved").help("let it run to its end"));
    }
    let settings = json::Config {
        warehouses: Some(loaded.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..report::store_config("check", &config.store)
    };
    let rows = report::rows(&checked);
    let report = json::Checked {
        schema: json::SCHEMA.to_owned(),
        notice: report::NOTICE.to_owned(),
        provenance: json::Provenance::here(),
        machine: Machine::describe(cpu),
        config: settings,
        interrupted: false,
        check: report::check(&checked),
        rows: rows.clone(),
        peak_rss_bytes: peak_rss_bytes(),
    };
    let written = file.map(|file| file.write(&report)).transpose()?;
    let rows: Vec<String> =
        rows.into_iter().flatten().map(|(table, rows)| format!("{table} {}", grouped(rows))).collect();
    let mut text = format!("{}\ncheck     {}\nrows      {}\n", report::NOTICE, check_line(&checked), rows.join(", "));
    if let Some(path) = written {
        text += &format!("written   {}\n", path.display());
    }
    print(&text);
    if checked.passed() {
        return Ok(Ended::Well);
    }
    eprint!("{}", broken_rules(&checked));
    Ok(Ended::CheckFailed)
}
