//! `tpcc history`: runs a random concurrent workload and records its operations with their answers.

use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use super::Outcome;
use crate::cli::flags::lab::HistoryFlags;
use crate::cli::resolve::lab::{self, HistoryConfig};
use tpcc_core::checkers::history::{self, RunError, RunRecord, SharedState};
use tpcc_core::engines::storage::advice::{cannot_open, transaction_error};
use tpcc_core::engines::storage::database::{announce, options};
use tpcc_core::report::named;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::streams::print;
use tpcc_core::workload::words::grouped;

pub(crate) fn run(flags: HistoryFlags) -> Result<Outcome, Error> {
    let config = lab::history(flags)?;
    let is_new = !config.out.exists();
    let file = open_out(&config.out)?;
    let outcome = record(&config, file);
    // A failed run leaves no empty file.
    if outcome.is_err() && is_new && fs::metadata(&config.out).is_ok_and(|m| m.is_file() && m.len() == 0) {
        let _ = fs::remove_file(&config.out);
    }
    outcome
}

fn record(config: &HistoryConfig, file: File) -> Result<Outcome, Error> {
    let shown = config.store.shown();
    let options = options(&config.store, None)?.on_recovery(announce(&shown));
    let options = match config.kind.hook() {
        Some(hook) => options.hook(hook),
        None => options,
    };
    let db = options.open(&config.store.data).map_err(|error| cannot_open(&error, &shown))?;
    if !SharedState::has_only_history_tables(&db) {
        return Err(Error::failed(format!("{shown}: holds tables of something else; nothing was changed"))
            .help("choose another directory with --data"));
    }
    let start = Instant::now();
    let ran = history::run(&db, &config.params, &config.kind, &interrupt::requested);
    let ran = ran.map_err(|error| match error {
        RunError::Txn(error) => transaction_error(&error, &shown),
        error @ RunError::Fibers(_) => {
            Error::failed(error.to_string()).help("pass a smaller --team-size or --sessions")
        }
        RunError::Threads(error) => error.into(),
    })?;
    let seconds = start.elapsed().as_secs_f64();
    write_out(&config.out, file, &ran)?;
    db.close().map_err(|e| transaction_error(&e.into(), &shown))?;
    print(&summary(config, &ran, seconds));
    match ran.error {
        Some(error) => Err(transaction_error(&error, &shown)),
        None => Ok(Outcome::Success),
    }
}

fn summary(config: &HistoryConfig, ran: &RunRecord, seconds: f64) -> String {
    let count = |outcome| grouped(ran.txns.iter().filter(|t| t.outcome == outcome).count() as u64);
    let p = &config.params;
    format!(
        "load      {} sessions of {} transactions, {} rows, {}, seed {}\n\
         engine    {}, {}\n\
         scheduler {}\n\
         history   {} ok, {} fail, {} info in {seconds:.2} s{}\n\
         written   {}\n",
        p.sessions,
        p.transactions,
        p.keys,
        config.form.name(),
        p.seed,
        config.store.isolation.name(),
        config.store.durability.name(),
        config.scheduler,
        count(history::Outcome::Ok),
        count(history::Outcome::Fail),
        count(history::Outcome::Info),
        if ran.interrupted { " (interrupted)" } else { "" },
        config.out.display(),
    )
}

/// Opens the output file. Called before the run, which would be in vain if the file cannot be written.
fn open_out(path: &Path) -> Result<File, Error> {
    drop(named::to_write(path, "--out")?);
    OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|e| {
        Error::failed(format!("{}: cannot be written: {e}", path.display()))
            .help("pass another file with --out; nothing was done")
    })
}

fn write_out(path: &Path, file: File, ran: &RunRecord) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::failed(format!("{}: cannot be written: {e}", path.display()));
    // The length of a pipe or a terminal cannot be set.
    if fs::metadata(path).is_ok_and(|m| m.is_file()) {
        file.set_len(0).map_err(failed)?;
    }
    history::write(&ran.txns, &mut BufWriter::new(file)).map_err(failed)
}
