//! What the sessions of a run share: the table, the clock, which rows are in use, and what deletes have left.
//!
//! **The version of an absent row.** A row that was deleted can no longer say which version its absence is. A second
//! table could, but its locks would stand beside those that are on trial and hide their faults. So the deleter leaves
//! the version in memory, in [`Absence`], without any lock of the engine:
//!
//! - It does so once its delete was carried out, that is, while it has the row to itself; if it does not commit, it
//!   takes it back before it rolls back, so while it still has the row to itself.
//! - A reader looks at it before and after it has read that the row is absent. If it did not change, this is the
//!   version that was absent when the engine answered: an engine that shows only what it should has at that moment no
//!   deleter of this row between its delete and its end. If it did change, the reader reads again.
//!
//! An engine that shows what it should not is seen by this: the reader is told the version of a delete that
//! was not committed, or one that is older than it should be.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use storage::{Database, Isolation, Key, OpenTable, Row, Table, TxnError};

use super::{Form, Params};
use crate::workload::time::nanos;

/// The rows: lists, or versions with padding.
const ROWS: Table<u64, Vec<u8>> = Table::new("history_rows");
/// Rows behind the last that is written, which range reads find absent.
const MARGIN: u64 = 4;
/// Rows deleted in one transaction when the table is emptied.
const AT_ONCE: usize = 1000;

/// What the last delete of a row has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Absence {
    /// How often this changed.
    changes: u64,
    /// The delete's version; none before the first.
    pub(super) version: Option<u64>,
}

/// What the sessions of a run share.
#[derive(Debug)]
pub struct World<'db> {
    pub(super) db: &'db Database,
    pub(super) rows: OpenTable<u64, Vec<u8>>,
    pub(super) params: Params,
    clock: Instant,
    /// Appends that were begun at each place: what decides which list is in use there.
    appends: Vec<AtomicU32>,
    /// Versions drawn.
    versions: AtomicU64,
    absent: Vec<Mutex<Absence>>,
}

impl<'db> World<'db> {
    /// Whether the tables of a database are those of histories.
    pub fn is_at_home(db: &Database) -> bool {
        db.table_names().iter().all(|name| name == ROWS.name())
    }

    /// An empty table to run in; what an earlier run has left is deleted.
    ///
    /// # Errors
    /// Those of the transactions that do that.
    pub fn new(db: &'db Database, params: &Params) -> Result<World<'db>, TxnError> {
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
        Ok(World {
            db,
            rows,
            params: params.clone(),
            clock: Instant::now(),
            appends: (0..params.keys).map(|_| AtomicU32::new(0)).collect(),
            versions: AtomicU64::new(1),
            absent: (0..places).map(|_| Mutex::default()).collect(),
        })
    }

    /// Nanoseconds since the world began.
    pub(super) fn now(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.params.isolation
    }

    /// The key now in use at a place; `appends` of them are announced.
    pub(super) fn key_at(&self, place: u64, appends: u32) -> u64 {
        if self.params.form == Form::Register {
            return place;
        }
        let before = self.appends[place as usize].fetch_add(appends, Ordering::Relaxed);
        self.key_of(place, before)
    }

    /// A full list's place is taken by the next key that is congruent to it.
    fn key_of(&self, place: u64, appends: u32) -> u64 {
        place + self.params.keys * u64::from(appends / self.params.list_full.max(1))
    }

    /// Where a range read ends that asks for the keys up to `key`.
    pub(super) fn range_end(&self, key: u64) -> u64 {
        match self.params.form {
            Form::ListAppend => key,
            Form::Register => key.min(self.params.keys + MARGIN - 1),
        }
    }

    /// The last key that was written, and some behind it.
    pub(super) fn last_key(&self) -> u64 {
        let lists = self.appends.iter().enumerate();
        let used = lists.map(|(place, n)| self.key_of(place as u64, n.load(Ordering::Relaxed))).max();
        match self.params.form {
            Form::ListAppend => used.unwrap_or(0) + MARGIN - 1,
            Form::Register => self.params.keys + MARGIN - 1,
        }
    }

    /// A version for a write, or for a delete. Only for a writer that has the row to itself.
    pub(super) fn draw(&self, delete: bool) -> u64 {
        2 * self.versions.fetch_add(1, Ordering::Relaxed) + u64::from(delete)
    }

    /// What the last delete of `key` has left.
    pub(super) fn absence(&self, key: u64) -> Absence {
        *self.absent[key as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a version for an absent row; returns the one before.
    pub(super) fn leave(&self, key: u64, version: Option<u64>) -> Option<u64> {
        let mut absence = self.absent[key as usize].lock().unwrap_or_else(PoisonError::into_inner);
        absence.changes += 1;
        std::mem::replace(&mut absence.version, version)
    }
}

/// A key as the table has it.
pub(super) fn encoded(key: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<u64>());
    Key::encode(&key, &mut bytes);
    bytes
}

/// The key that the table has so.
pub(super) fn decoded(mut key: &[u8]) -> Option<u64> {
    <u64 as Key>::decode(&mut key)
}

/// The numbers of a list. What is no number is shown as one that no transaction wrote.
pub(super) fn numbers(row: &[u8]) -> Vec<u64> {
    row.chunks(size_of::<u32>()).map(|bytes| <u32 as Row>::decode(bytes).map_or(u64::MAX, u64::from)).collect()
}
