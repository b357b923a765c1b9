//! Life of a database on real files, in a process of its own. The database is opened three times, with transactions, a load,
//! a checkpoint, a copy and a compaction in between. The process reports each operation that it attempts on stdout, and the
//! acknowledgement or refusal of the operation.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use storage::{Database, Durability, OpenTable, Options, Table, Transaction, TxnError};

use super::interposed::{self, CallPlan};
use crate::sim::rng::Rng;

/// Table that the transactions change.
pub(super) const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
/// Table for the bulk load.
const LOADED: Table<u64, Vec<u8>> = Table::new("loaded");

/// Number of keys of the transactions. The first key is 0.
const KEYS: u64 = 150;
/// Number of rows of the bulk load.
const LOAD: u64 = 400;
/// Number of transactions between two maintenance operations.
const TRANSACTIONS: u64 = 8;
/// Number of times that the database is opened.
const OPENS: u64 = 3;
/// Number of consecutive refused transactions after which the process reopens the database.
const PATIENCE: u32 = 2;

/// Name of the environment variable that contains a [`LifeTask`] as JSON.
pub(super) const TASK: &str = "LOCKSTEP_CALLS_TASK";

/// Task of a process that runs a life.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LifeTask {
    /// Directory for the database and its copy.
    pub(super) directory: PathBuf,
    pub(super) seed: u64,
    /// Call of the C library to change, if any.
    pub(super) call: Option<CallPlan>,
}

/// Event of a life: a line of the report.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LifeEvent {
    /// A transaction begins. Contains its number, and the keys under which it writes this number.
    Tries(u64, Vec<u64>),
    /// A transaction was acknowledged. Contains its number.
    Acknowledged(u64),
    /// An operation was refused. Contains the reason.
    Refused(String),
    /// An operation was refused, and failed again when it was retried.
    Stuck(String),
    /// The database was copied. The copy contains all acknowledged transactions with smaller numbers than this.
    Copied(u64),
    /// Number of calls of each function, and true if the planned call has occurred.
    Calls(Vec<u64>, bool),
}

/// Prefix of the lines of the report. The output may contain other lines.
pub(super) const MARK: &str = "> ";

fn report(event: &LifeEvent) {
    let text = serde_json::to_string(event).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // A write error means that the reader of the report has ended, so nothing is lost.
    let _ = writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush());
}

fn report_refusal(what: &str, error: &dyn Display) {
    report(&LifeEvent::Refused(format!("{what}: {error}")));
}

/// Runs the task that the environment variable describes.
pub fn child() {
    let task = std::env::var(TASK).ok().and_then(|text| serde_json::from_str::<LifeTask>(&text).ok());
    let Some(task) = task else {
        eprintln!("{TASK}: this is a part of `cargo xtask torture calls`, which sets it");
        return;
    };
    interposed::begin(task.call);
    Life::new(&task).run();
    let (calls, has_occurred) = interposed::end();
    report(&LifeEvent::Calls(calls.to_vec(), has_occurred));
}

/// Returns options with which pages are written, log files created and checkpoints taken after a few transactions.
fn options() -> Options {
    Options::new()
        .buffer_pool(storage::MIN_POOL_BYTES)
        .durability(Durability::Sync)
        .log_segment(64 << 10)
        .checkpoint_every(128 << 10)
}

/// Opens the database that a life has left in a directory.
pub(super) fn reopen(directory: &Path) -> Result<Database, storage::OpenError> {
    Database::open(directory, options())
}

struct Life<'a> {
    task: &'a LifeTask,
    rng: Rng,
    /// Number of transactions that have begun.
    begun: u64,
    /// Number of consecutive refused transactions.
    refused: u32,
}

impl Life<'_> {
    fn new(task: &LifeTask) -> Life<'_> {
        Life { task, rng: Rng::new(task.seed), begun: 0, refused: 0 }
    }

    fn run(mut self) {
        for part in 0..OPENS {
            let Some(mut db) = self.open() else { return };
            read(&db);
            for half in 0..2 {
                for _ in 0..TRANSACTIONS {
                    self.transact(&db);
                    if self.refused >= PATIENCE {
                        self.close(db);
                        self.refused = 0;
                        let Some(again) = self.open() else { return };
                        db = again;
                        self.transact(&db);
                        if self.refused > 0 {
                            return report(&LifeEvent::Stuck(
                                "a transaction is refused after the database was opened anew".into(),
                            ));
                        }
                    }
                }
                if half == 0 {
                    self.maintain(&db, part);
                }
            }
            if part + 1 < OPENS || self.rng.once_in(2) {
                self.close(db);
            } else {
                // The database is leaked, as if the process were killed.
                std::mem::forget(db);
            }
        }
    }

    /// Opens the database. Tries twice, and the second attempt must succeed.
    fn open(&self) -> Option<Database> {
        let directory = self.task.directory.join("database");
        for last in [false, true] {
            match Database::open(&directory, options()) {
                Ok(db) => return Some(db),
                Err(error) if last => report(&LifeEvent::Stuck(format!("opening again: {error}"))),
                Err(error) => report_refusal("opening", &error),
            }
        }
        None
    }

    fn close(&self, db: Database) {
        if let Err(error) = db.close() {
            report_refusal("closing", &error);
        }
    }

    /// Runs a transaction that writes three rows, some of them large.
    fn transact(&mut self, db: &Database) {
        self.begun += 1;
        let (number, keys) = (self.begun, [(); 3].map(|()| self.rng.below(KEYS)));
        let bytes = [100, 2_000, 20_000][self.rng.index(3)];
        report(&LifeEvent::Tries(number, keys.to_vec()));
        match db.transact::<_, TxnError>(|tx| keys.iter().try_for_each(|key| tx.put(&ROWS, key, &row(number, bytes)))) {
            Ok(()) => {
                self.refused = 0;
                report(&LifeEvent::Acknowledged(number));
            }
            Err(error) => {
                self.refused += 1;
                report_refusal("a transaction", &error);
            }
        }
    }

    /// Runs the maintenance of a part of the life: a bulk load, a checkpoint and a copy, or a compaction.
    fn maintain(&mut self, db: &Database, part: u64) {
        let ended = match part {
            0 => load(db).map_err(|error| format!("a load: {error}")),
            1 => db.checkpoint().map_err(|error| format!("a checkpoint: {error}")).and_then(|()| self.copy(db)),
            _ => db.compact().map(drop).map_err(|error| format!("a compaction: {error}")),
        };
        if let Err(text) = ended {
            report(&LifeEvent::Refused(text));
        }
    }

    fn copy(&self, db: &Database) -> Result<(), String> {
        let before = self.begun + 1;
        db.copy_to(self.task.directory.join("copy")).map_err(|error| format!("a copy: {error}"))?;
        report(&LifeEvent::Copied(before));
        Ok(())
    }
}

/// Returns the row that transaction `number` writes.
fn row(number: u64, bytes: usize) -> Vec<u8> {
    let mut row = vec![number as u8; bytes];
    row[..8].copy_from_slice(&number.to_be_bytes());
    row
}

/// Returns the number of the transaction that has written a row; `None` if the row is not intact.
pub(super) fn written_by(row: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(row.get(..8)?.try_into().ok()?);
    row[8..].iter().all(|byte| *byte == number as u8).then_some(number)
}

/// Reads all rows as one group, mostly from pages that are not in memory.
fn read(db: &Database) {
    let keys: Vec<u64> = (0..KEYS).collect();
    let ahead = |tx: &mut Transaction<'_>| tx.prefetch(&ROWS, &keys).and_then(|()| tx.get_many(&ROWS, &keys));
    match db.transact(ahead) {
        Ok(rows) if rows.iter().flatten().all(|row| written_by(row).is_some()) => {}
        Ok(_) => report(&LifeEvent::Stuck("a row is of no transaction".into())),
        Err::<_, TxnError>(error) => report_refusal("a read", &error),
    }
}

fn load(db: &Database) -> Result<(), TxnError> {
    let table: OpenTable<u64, Vec<u8>> = db.table(&LOADED)?;
    let mut load = db.bulk_load(&table)?;
    (0..LOAD).try_for_each(|key| load.push(&key, &row(key, 500)))?;
    load.finish().map(drop)
}
