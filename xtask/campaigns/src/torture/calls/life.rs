//! The life of a database on real files: it is opened three times, with transactions, a load, a checkpoint, a copy and a
//! compaction in between. It reports on stdout what it attempts, what was acknowledged, and what was refused.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use storage::{Database, Durability, OpenTable, Options, Table, Transaction, TxnError};

use super::interposed::{self, CallPlan};
use crate::sim::rng::Rng;

/// The table of the transactions.
pub(super) const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
/// The table of the load.
const LOADED: Table<u64, Vec<u8>> = Table::new("loaded");

/// Number of keys; the first is 0.
const KEYS: u64 = 150;
/// Number of rows of the load.
const LOAD: u64 = 400;
/// Number of transactions between two maintenance operations.
const TRANSACTIONS: u64 = 8;
/// Number of times that the database is opened.
const OPENS: u64 = 3;
/// Number of consecutive refused transactions after which the database is reopened.
const PATIENCE: u32 = 2;

/// The environment variable with a [`LifeTask`] as JSON.
pub(super) const TASK: &str = "LOCKSTEP_CALLS_TASK";

/// The task of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LifeTask {
    /// Directory of the database and its copy.
    pub(super) directory: PathBuf,
    pub(super) seed: u64,
    /// The call to change, if any.
    pub(super) call: Option<CallPlan>,
}

/// A line of the report of a life.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LifeEvent {
    /// The transaction with this number begins; it writes the number under these keys.
    Tries(u64, Vec<u64>),
    /// The transaction with this number was acknowledged.
    Acknowledged(u64),
    /// An operation was refused for this reason.
    Refused(String),
    /// A refused operation failed again later.
    Stuck(String),
    /// The database was copied. The copy contains the transactions with smaller numbers than this one.
    Copied(u64),
    /// The number of calls of each function, and true if the planned call has occurred.
    Calls(Vec<u64>, bool),
}

/// Prefix of a line of the report. Other lines may be in between.
pub(super) const MARK: &str = "> ";

fn report(event: &LifeEvent) {
    let text = serde_json::to_string(event).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // An error means that the reader has gone; it then judges nothing.
    let _ = writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush());
}

fn report_refusal(what: &str, error: &dyn Display) {
    report(&LifeEvent::Refused(format!("{what}: {error}")));
}

/// Runs the task in the environment variable.
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

/// Options for which pages are written, log files created, and checkpoints taken within a few transactions.
fn options() -> Options {
    Options::new()
        .buffer_pool(storage::MIN_POOL_BYTES)
        .durability(Durability::Sync)
        .log_segment(64 << 10)
        .checkpoint_every(128 << 10)
}

/// Opens the database that a life has left.
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
                // As if the process were killed.
                std::mem::forget(db);
            }
        }
    }

    /// Opens the database. The second attempt must succeed.
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

    /// Runs a transaction of three rows, some of them large.
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

    /// Runs the maintenance of a part of the life: a load, a checkpoint and a copy, or a compaction.
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

/// The row that transaction `number` writes.
fn row(number: u64, bytes: usize) -> Vec<u8> {
    let mut row = vec![number as u8; bytes];
    row[..8].copy_from_slice(&number.to_be_bytes());
    row
}

/// The transaction that has written a row; none if the row is not intact.
pub(super) fn written_by(row: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(row.get(..8)?.try_into().ok()?);
    row[8..].iter().all(|byte| *byte == number as u8).then_some(number)
}

/// Reads all rows in one group, from pages that are not in memory.
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
