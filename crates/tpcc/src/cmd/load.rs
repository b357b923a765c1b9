//! `tpcc load`: fill a directory.

use std::time::Instant;

use super::{Ended, load, print};
use crate::config::{self, LoadConfig};
use crate::database::Database;
use crate::error::Error;
use crate::flags;
use crate::glue::storage::Store;
use crate::report::machine::{CpuTime, Machine, peak_rss_bytes};
use crate::report::output::JsonFile;
use crate::report::summary::{counted, grouped};
use crate::report::{self, json};

/// Carries the command out.
pub(crate) fn run(flags: flags::Load) -> Result<Ended, Error> {
    let config = config::load(flags)?;
    load_into::<Store>(&config)
}

fn load_into<D: Database>(config: &LoadConfig) -> Result<Ended, Error> {
    let file = config.json.as_deref().map(JsonFile::open).transpose()?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    let (database, loaded, rows) = load::<D>(&config.store, config.warehouses, config.seed, config.replace)?;
    database.close()?;
    let seconds = start.elapsed().as_secs_f64();
    let settings = json::Config {
        warehouses: Some(loaded.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        seed: Some(loaded.seed),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..report::store_config("load", &config.store)
    };
    let report = json::Load {
        schema: json::SCHEMA.to_owned(),
        notice: report::NOTICE.to_owned(),
        provenance: json::Provenance::here(),
        machine: Machine::describe(cpu),
        config: settings,
        interrupted: false,
        load_s: seconds,
        loaded_rows: rows,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let written = file.map(|file| file.write(&report)).transpose()?;
    let mut text = format!(
        "{}\nloaded    {} in {seconds:.2} s, {} rows, into {}; seed {}\n",
        report::NOTICE,
        counted(u64::from(loaded.warehouses), "warehouse"),
        grouped(rows),
        config.store.shown(),
        loaded.seed,
    );
    if let Some(path) = written {
        text += &format!("written   {}\n", path.display());
    }
    print(&text);
    Ok(Ended::Well)
}
