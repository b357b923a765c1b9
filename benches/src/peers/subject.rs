//! Engine under measurement: a type-erased engine with its databases.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use storage::Durability;
use tpcc_core::peers::{self, MixPlan};

use super::work::{self, INSERTS, ROWS, TABLES, measure_batches};
use super::{Engine, Operation};

/// Engine under measurement.
pub trait Subject {
    /// Returns the name of the engine on the command line and in the output.
    fn name(&self) -> &'static str;

    /// Returns a description of the engine's settings, for the report.
    fn settings(&self) -> &'static str;

    /// Measures `operation` in round `round` for about `limit`. Returns the nanoseconds per operation.
    ///
    /// # Errors
    /// Returns the error of the engine, if there is one.
    fn measure(&mut self, operation: Operation, round: u64, limit: Duration) -> Result<f64, String>;

    /// Returns the number of transactions of the standard mix that were rolled back because of conflicts, and retried.
    fn conflicts(&self) -> u64;

    /// Checks that all rows are present, and that the standard mix left a consistent database. Returns the number of the
    /// twelve consistency conditions that hold, or `None` if the mix was not run.
    ///
    /// # Errors
    /// Returns an error if rows are missing or a condition is violated, or an error of the engine.
    fn check(&self) -> Result<Option<usize>, String>;
}

/// Engine with three databases: one for `async` commits, one for `sync` commits, and one for the standard mix.
pub(super) struct Instance<E> {
    directory: PathBuf,
    rows: u64,
    async_peer: E,
    sync_peer: E,
    mix: Option<E>,
    /// Key of the next insert.
    next: u64,
    /// Number of transactions of the standard mix that were retried.
    aborted: u64,
}

impl<E: Engine + 'static> Instance<E> {
    pub(super) fn open(directory: &Path, rows: u64) -> Result<Box<dyn Subject>, String> {
        let directory = directory.join(E::NAME);
        let opened = |name: &str, durability| {
            let peer = new::<E>(&directory.join(name), durability, &TABLES)?;
            work::load(&peer, rows).map_err(|error| error_message::<E>(&error))?;
            Ok::<E, String>(peer)
        };
        let (async_peer, sync_peer) = (opened("async", Durability::Async)?, opened("sync", Durability::Sync)?);
        Ok(Box::new(Instance { directory, rows, async_peer, sync_peer, mix: None, next: 0, aborted: 0 }))
    }

    /// Returns the database of the standard mix, with one warehouse. Loads the database at the first call.
    fn mix(&mut self) -> Result<&E, String> {
        let mix = match self.mix.take() {
            Some(mix) => mix,
            None => {
                let mix = new::<E>(&self.directory.join("mix"), Durability::Async, &peers::TABLES)?;
                peers::load(&mix, 1, 7).map_err(|error| error_message::<E>(&error))?;
                mix
            }
        };
        Ok(self.mix.insert(mix))
    }

    fn standard_mix(&mut self, workers: usize, round: u64, limit: Duration) -> Result<f64, String> {
        // The standard mix runs longer than the other operations, so that the result includes checkpoints and compactions.
        let plan = MixPlan { workers, duration: 8 * limit, seed: round };
        let done = peers::standard_mix(self.mix()?, &plan).map_err(|error| error_message::<E>(&error))?;
        self.aborted += done.aborted;
        Ok(1e9 / done.throughput_per_s)
    }

    /// Loads a table into a new database in bulk, and then removes the database. Returns the nanoseconds per row.
    fn bulk_load(&self, round: u64) -> Result<f64, String> {
        let directory = self.directory.join(format!("bulk-{round}"));
        let peer = new::<E>(&directory, Durability::Sync, &TABLES)?;
        let loaded = measure_batches(Duration::ZERO, || work::load(&peer, self.rows))
            .map_err(|error| error_message::<E>(&error));
        drop(peer);
        // The parent directory is removed later together with files that cannot be removed here.
        let _ = std::fs::remove_dir_all(&directory);
        loaded
    }
}

fn error_message<E: Engine>(error: &impl std::fmt::Display) -> String {
    format!("{}: {error}", E::NAME)
}

fn new<E: Engine>(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<E, String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    E::open(directory, durability, tables).map_err(|error| error_message::<E>(&error))
}

impl<E: Engine + 'static> Subject for Instance<E> {
    fn name(&self) -> &'static str {
        E::NAME
    }

    fn settings(&self) -> &'static str {
        E::SETTINGS
    }

    fn measure(&mut self, operation: Operation, round: u64, limit: Duration) -> Result<f64, String> {
        let seed = 100 * round + operation as u64;
        let mut random = Rng::with_seed(seed);
        let rows = self.rows;
        match operation {
            Operation::Mix => return self.standard_mix(1, round, limit),
            Operation::MixTwo => return self.standard_mix(2, 1_000 + round, limit),
            Operation::BulkLoad => return self.bulk_load(round),
            Operation::TwoWriters => return work::two_writers(&self.async_peer, rows, limit, seed),
            Operation::TwoWritersSync => return work::two_writers(&self.sync_peer, rows, limit, seed),
            _ => {}
        }
        let peer = if operation == Operation::CommitSync { &self.sync_peer } else { &self.async_peer };
        let next = &mut self.next;
        let measured = peer.session().and_then(|session| {
            let session = &session;
            measure_batches(limit, || match operation {
                Operation::Read => work::read(session, random.u64(..rows)),
                Operation::ReadMany => work::read_many(session, rows, &mut random),
                Operation::Update => work::update(session, || random.u64(..rows), crate::PER_TRANSACTION),
                Operation::Insert => work::insert(session, next),
                Operation::Scan => work::scan(session, random.u64(..rows - 100)),
                _ => work::update(session, || random.u64(..rows), 1),
            })
        });
        measured.map_err(|error| error_message::<E>(&error))
    }

    fn conflicts(&self) -> u64 {
        self.aborted
    }

    fn check(&self) -> Result<Option<usize>, String> {
        let expected = [
            (&self.async_peer, ROWS, self.rows),
            (&self.async_peer, INSERTS, self.next),
            (&self.sync_peer, ROWS, self.rows),
        ];
        for (peer, table, rows) in expected {
            let found = work::count(peer, table).map_err(|error| error_message::<E>(&error))?;
            if found != rows {
                return Err(error_message::<E>(&format!("{}: holds {found} rows, not {rows}", TABLES[table])));
            }
        }
        let Some(mix) = &self.mix else { return Ok(None) };
        match peers::conditions(mix).map_err(|error| error_message::<E>(&error))? {
            (held, true) => Ok(Some(held)),
            (held, false) => {
                Err(error_message::<E>(&format!("{held} of 12 consistency conditions hold after the mix")))
            }
        }
    }
}
