//! `tpcc verify`: checks that every acknowledged transaction is present, and that the database is undamaged and consistent.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::{Outcome, check};
use crate::cli::flags::VerifyFlags;
use crate::cli::resolve::on_disk;
use tpcc_core::checkers::ack::{AckComparison, CompareError, compare};
use tpcc_core::checkers::structure;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine, peak_rss_bytes};
use tpcc_core::report::text::{broken_rules, check_line};
use tpcc_core::report::{self, model};
use tpcc_core::workload::check::Audit;
use tpcc_core::workload::database::Database;
use tpcc_core::workload::engine::Engine;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::streams::{say, say_text};
use tpcc_core::workload::words::{counted, grouped};

pub(crate) fn run(flags: &VerifyFlags) -> Result<Outcome, Error> {
    let config = on_disk("verify", flags.directory.data.as_deref(), &flags.engine, flags.machine.workers)?;
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let cpu = CpuTime::now();
    let shown = flags.acks.display().to_string();
    let acks = File::open(&flags.acks).map_err(|error| unreadable(&shown, &error))?;
    let Some((database, loaded)) = Store::open(&config, None)? else {
        return Err(Error::failed(format!("{}: no database there", config.shown()))
            .help("--data names the directory of the run whose acknowledgements these are"));
    };
    let mut reader = database.reader().map_err(|error| Error::failed(error.to_string()))?;
    let compared = compare(&mut reader, BufReader::new(acks)).map_err(|error| match error {
        CompareError::File(error) => unreadable(&shown, &error),
        CompareError::Line(number, line) => not_an_ack(&flags.acks, number, &line),
        CompareError::Interrupted(number) => Error::failed(format!(
            "{shown}: broken off at line {number}, by a signal or for too many runs; nothing is proved"
        ))
        .help("--acks names what 'tpcc run --ack-stdout' wrote to its stdout"),
        CompareError::Engine(error) => Error::failed(error.to_string()),
    })?;
    drop(reader);
    let structure = structure::check(&database)?;
    // A check of the rows of a damaged tree would prove nothing.
    let checked = if structure.passed() {
        database.verify()?;
        let checked = check(&database, &loaded, config.workers)?;
        Database::close(database)?;
        if checked.interrupted {
            return Err(Error::failed("verify: interrupted; nothing is proved").help("let it run to its end"));
        }
        Some(checked)
    } else {
        None
    };
    let nothing = compared.read_write + compared.read_only + compared.rolled_back == 0;
    let passed = !nothing && compared.missing == 0 && checked.as_ref().is_some_and(Audit::passed);
    let report = model::Verified {
        schema: model::schema_of("verify"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: model::Config {
            warehouses: Some(loaded.warehouses),
            warehouses_loaded: Some(loaded.warehouses),
            load_seed: Some(loaded.seed),
            c_load: Some(loaded.c_load),
            ..report::store_config("verify", &config)
        },
        passed,
        acks: model::Acks {
            file: shown.clone(),
            runs: compared.runs.iter().copied().collect(),
            read_write: compared.read_write,
            read_only: compared.read_only,
            rolled_back: compared.rolled_back,
            torn: compared.torn,
            missing: compared.missing,
            first_missing: compared.first_missing.clone(),
        },
        structure: structure.json.clone(),
        check: checked.as_ref().map(report::check).unwrap_or_default(),
        rows: checked.as_ref().and_then(report::rows),
        peak_rss_bytes: peak_rss_bytes(),
    };
    let mut text = format!("{}\nacks      {}\n", report::NOTICE, acks_line(&compared));
    if let Some(checked) = &checked {
        text += &format!("check     {}\n", check_line(checked));
    }
    text += &format!("{}\n", structure.line());
    conclude(json, &report, text, false)?;
    if passed {
        return Ok(Outcome::Success);
    }
    if nothing {
        say(format_args!("verify: {shown}: holds no acknowledgement; nothing is proved"));
    }
    for missing in &compared.first_missing {
        say(format_args!("verify: {shown}: {missing}"));
    }
    let more = compared.missing - compared.first_missing.len() as u64;
    if more > 0 {
        say(format_args!("verify: {shown}: {} more that are not there", grouped(more)));
    }
    say_text(format_args!("{}{}", structure.findings(), checked.as_ref().map(broken_rules).unwrap_or_default()));
    Ok(Outcome::CheckFailed)
}

/// Formats the result: "12,345 of 12,345 acknowledged that wrote are there; 901 only read, 55 were rolled back; 1 run".
fn acks_line(compared: &AckComparison) -> String {
    let mut line = format!(
        "{} of {} acknowledged that wrote are there; {} only read, {} were rolled back; {}",
        grouped(compared.read_write - compared.missing),
        grouped(compared.read_write),
        grouped(compared.read_only),
        grouped(compared.rolled_back),
        counted(compared.runs.len() as u64, "run"),
    );
    if compared.torn {
        line += "; a torn last line passed over";
    }
    line
}

fn unreadable(shown: &str, error: &std::io::Error) -> Error {
    Error::failed(format!("{shown}: cannot be read: {error}"))
        .help("--acks names what 'tpcc run --ack-stdout' wrote to its stdout")
}

fn not_an_ack(path: &Path, number: u64, line: &str) -> Error {
    let mut line: String = line.chars().take(60).flat_map(char::escape_debug).collect();
    if line.is_empty() {
        line = "an empty line".to_owned();
    }
    Error::failed(format!("{}: line {number} is no acknowledgement: {line}", path.display()))
        .help("a line is 'ack RUN TERMINAL SEQUENCE KIND', as 'tpcc run --ack-stdout' writes it")
}
