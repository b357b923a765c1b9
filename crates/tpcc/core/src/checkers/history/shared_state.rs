//! Shared state of the sessions of a history run: the table, the clock, the rows in use, and the versions of absent rows.
//!
//! **The version of an absent row.** A deleted row cannot store the version of its absence. A second table could store it,
//! but the locks of that table would add to the locks under test and hide their faults. Therefore a deleter stores the
//! version in memory, in [`Absence`], without any lock of the engine:
//!
//! - The deleter stores the version after its delete, while it has exclusive access to the row. If it does not commit, it
//!   restores the previous version before it rolls back, while it still has exclusive access.
//! - A reader loads the entry before and after its read of the absent row. If the entry did not change, it contains the
//!   version of the absence that the reader observed: a correct engine does not return while another transaction that
//!   deleted this row is still in progress. If the entry changed, the reader reads again.
//!
//! This detects an engine that returns a wrong state: the reader then records the version of an uncommitted delete, or a
//! version that is too old.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use storage::{Database, Isolation, Key, OpenTable, Row, Table, TxnError};

use super::{Form, Params};
use crate::workload::time::nanos;

/// Table of the rows of all histories. A row is a list of numbers, or a version number with padding.
const ROWS: Table<u64, Vec<u8>> = Table::new("history_rows");
/// Number of keys after the last written key that range reads include. Their rows are absent.
const MARGIN: u64 = 4;
/// Number of rows that one transaction deletes while the table is emptied.
const AT_ONCE: usize = 1000;

/// Absence entry of a row: version that the last delete stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Absence {
    /// Number of changes of the entry.
    changes: u64,
    /// Version of the last delete; `None` before the first delete.
    pub(super) version: Option<u64>,
}

/// Shared state of the sessions of a run.
#[derive(Debug)]
pub struct SharedState<'db> {
    pub(super) db: &'db Database,
    pub(super) rows: OpenTable<u64, Vec<u8>>,
    pub(super) params: Params,
    clock: Instant,
    /// Number of appends begun at each position. This number determines the key of the list that the position uses.
    appends: Vec<AtomicU32>,
    /// Number of register versions drawn so far.
    versions: AtomicU64,
    absent: Vec<Mutex<Absence>>,
}

impl<'db> SharedState<'db> {
    /// Returns true if the database contains no table other than the table of histories.
    pub fn has_only_history_tables(db: &Database) -> bool {
        db.table_names().iter().all(|name| name == ROWS.name())
    }

    /// Creates the state with an empty table. Deletes the rows of an earlier run.
    ///
    /// # Errors
    /// Error of the deleting transactions.
    pub fn new(db: &'db Database, params: &Params) -> Result<SharedState<'db>, TxnError> {
        let rows = db.table(&ROWS)?;
        loop {
            let deleted = db.transact(|tx| {
                let keys = tx.range(&rows, ..)?.map(|row| row.map(|(key, _)| key)).take(AT_ONCE);
                let keys = keys.collect::<Result<Vec<u64>, TxnError>>()?;
                keys.iter().try_for_each(|key| tx.delete(&rows, key).map(drop))?;
                Ok::<_, TxnError>(keys.len())
            })?;
            if deleted == 0 {
                break;
            }
        }
        let places = (params.keys + MARGIN) as usize;
        Ok(SharedState {
            db,
            rows,
            params: params.clone(),
            clock: Instant::now(),
            appends: (0..params.keys).map(|_| AtomicU32::new(0)).collect(),
            versions: AtomicU64::new(1),
            absent: (0..places).map(|_| Mutex::default()).collect(),
        })
    }

    /// Returns the nanoseconds since the creation of the state.
    pub(super) fn now(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.params.isolation
    }

    /// Counts `appends` new appends at a position. Returns the key of the list in use there.
    pub(super) fn key_at(&self, place: u64, appends: u32) -> u64 {
        if self.params.form == Form::Register {
            return place;
        }
        let before = self.appends[place as usize].fetch_add(appends, Ordering::Relaxed);
        self.key_of(place, before)
    }

    /// Returns the key of the list in use at a position after `appends` appends. A full list is replaced by the list of the
    /// next key that is congruent to the position modulo the number of positions.
    fn key_of(&self, place: u64, appends: u32) -> u64 {
        place + self.params.keys * u64::from(appends / self.params.list_full.max(1))
    }

    /// Returns the end of a range read up to `key`, limited to the rows that the form of the history uses.
    pub(super) fn range_end(&self, key: u64) -> u64 {
        match self.params.form {
            Form::ListAppend => key,
            Form::Register => key.min(self.params.keys + MARGIN - 1),
        }
    }

    /// Returns the last key of a read of all rows, which is a few keys after the last written key.
    pub(super) fn last_key(&self) -> u64 {
        let lists = self.appends.iter().enumerate();
        let used = lists.map(|(place, n)| self.key_of(place as u64, n.load(Ordering::Relaxed))).max();
        match self.params.form {
            Form::ListAppend => used.unwrap_or(0) + MARGIN - 1,
            Form::Register => self.params.keys + MARGIN - 1,
        }
    }

    /// Draws the next version number, for a write or a delete. The caller must have exclusive access to the row.
    pub(super) fn draw(&self, delete: bool) -> u64 {
        2 * self.versions.fetch_add(1, Ordering::Relaxed) + u64::from(delete)
    }

    /// Returns the absence entry of `key`.
    pub(super) fn absence(&self, key: u64) -> Absence {
        *self.absent[key as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a version in the absence entry of `key`. Returns the version that the entry had before.
    pub(super) fn store_absence(&self, key: u64, version: Option<u64>) -> Option<u64> {
        let mut absence = self.absent[key as usize].lock().unwrap_or_else(PoisonError::into_inner);
        absence.changes += 1;
        std::mem::replace(&mut absence.version, version)
    }
}

/// Encodes a key in the key format of the table.
pub(super) fn encoded(key: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<u64>());
    Key::encode(&key, &mut bytes);
    bytes
}

/// Decodes a key of the table.
pub(super) fn decoded(mut key: &[u8]) -> Option<u64> {
    <u64 as Key>::decode(&mut key)
}

/// Decodes the numbers of a list. Replaces an incomplete number by a number that no transaction wrote.
pub(super) fn numbers(row: &[u8]) -> Vec<u64> {
    row.chunks(size_of::<u32>()).map(|bytes| <u32 as Row>::decode(bytes).map_or(u64::MAX, u64::from)).collect()
}
