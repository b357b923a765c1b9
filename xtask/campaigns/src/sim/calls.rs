//! Calls of a database that are not statements of a transaction: checkpoints, counters, checks, tables, refused bulk loads.
//! Any thread may make any of these calls at any time, and the workers of a run do so. A call must not block another fiber
//! of its thread, fail, or change a row.

use std::ops::ControlFlow;
use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{CopyError, Database, Isolation, Lsn, StorageError, Table, TxnError};

use super::notes::RunError;
use super::panics::raise_finding;
use super::rng::Rng;
use super::tables::Tables;

/// Tables that the calls create. They never get any rows.
const EXTRA: [Table<u64, Vec<u8>>; 3] = [Table::new("extra one"), Table::new("extra two"), Table::new("extra three")];

/// Declarations of the same tables with another key type, as another program might have them. To open a table with such a
/// declaration must fail.
const OTHER_KEYS: [Table<u32, Vec<u8>>; 3] =
    [Table::new(EXTRA[0].name()), Table::new(EXTRA[1].name()), Table::new(EXTRA[2].name())];

/// Call of a database that is not a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseCall {
    Checkpoint,
    Stats,
    Names,
    VerifyPages,
    CheckStructure,
    Preload,
    /// Begins and ends an empty transaction at a random isolation level.
    Begin,
    CreateTable,
    /// Begins a bulk load into a table, which the engine refuses if the table has rows.
    RefusedLoad,
    /// Makes an online copy of the database on another disk.
    Copy,
    /// Compacts the database: moves pages together and truncates the file. A compaction locks tables in shared mode, so it
    /// waits for exclusive locks on tables.
    Compact,
    /// Passes log positions at the end of their range and beyond it. The engine must refuse them without any change.
    Ends,
}

/// Calls that are permitted in the middle of a transaction, because they acquire no locks.
const IN_TRANSACTION: [DatabaseCall; 9] = [
    DatabaseCall::Checkpoint,
    DatabaseCall::Checkpoint,
    DatabaseCall::Stats,
    DatabaseCall::Names,
    DatabaseCall::VerifyPages,
    DatabaseCall::CheckStructure,
    DatabaseCall::Preload,
    DatabaseCall::Copy,
    DatabaseCall::Ends,
];
/// Calls that are permitted only between two transactions.
const BETWEEN_TRANSACTIONS: [DatabaseCall; 6] = [
    DatabaseCall::Checkpoint,
    DatabaseCall::Stats,
    DatabaseCall::Begin,
    DatabaseCall::CreateTable,
    DatabaseCall::RefusedLoad,
    DatabaseCall::Compact,
];

impl DatabaseCall {
    /// All calls.
    #[cfg(test)]
    pub(crate) const ALL: [DatabaseCall; 12] = [
        DatabaseCall::Checkpoint,
        DatabaseCall::Stats,
        DatabaseCall::Names,
        DatabaseCall::VerifyPages,
        DatabaseCall::CheckStructure,
        DatabaseCall::Preload,
        DatabaseCall::Begin,
        DatabaseCall::CreateTable,
        DatabaseCall::RefusedLoad,
        DatabaseCall::Copy,
        DatabaseCall::Compact,
        DatabaseCall::Ends,
    ];

    /// Returns a random call for the middle of a transaction.
    pub(crate) fn in_transaction(rng: &mut Rng) -> DatabaseCall {
        rng.pick(&IN_TRANSACTION)
    }

    /// Returns a random call for the time between two transactions.
    pub(crate) fn between_transactions(rng: &mut Rng) -> DatabaseCall {
        if rng.once_in(2) { rng.pick(&BETWEEN_TRANSACTIONS) } else { DatabaseCall::in_transaction(rng) }
    }

    /// Makes the call on a database.
    ///
    /// # Errors
    /// Returns errors of the engine.
    pub(crate) fn make(self, db: &Database, tables: &Tables, rng: &mut Rng) -> Result<(), RunError> {
        match self {
            DatabaseCall::Checkpoint => db.checkpoint().map_err(RunError::Service),
            DatabaseCall::Stats => {
                let (one, two) = (db.stats(), db.stats());
                assert!(two.log_bytes >= one.log_bytes && two.checkpoints >= one.checkpoints, "counters go back");
                let split_unreported = db.contention().iter().any(|of| of.leaves_contended < of.splits_for_contention);
                assert!(!split_unreported, "a leaf was split that no writer reported");
                let (waits, by_table) = (db.waits(), |of: &storage::TableWaits| of.lock.count);
                let in_tables: u64 = waits.tables.iter().map(by_table).sum();
                assert!(in_tables <= db.stats().lock_waits, "waits for the locks of a table that are not in the total");
                Ok(())
            }
            DatabaseCall::Names => {
                assert!(db.table_names().len() >= tables.len(), "tables are forgotten");
                assert!(!db.directory().is_empty(), "a database without a place");
                assert!(db.indexes().len() >= tables.len(), "indexes are forgotten");
                db.request_flush(db.durable());
                Ok(())
            }
            DatabaseCall::VerifyPages => db.verify_pages().map(drop).map_err(RunError::Service),
            // Findings are ignored, because they are meaningless while other workers write. The test is only that the call
            // returns.
            DatabaseCall::CheckStructure => {
                db.check_structure(|_, _| ControlFlow::Continue(())).map(drop).map_err(RunError::Service)
            }
            DatabaseCall::Copy => match db.copy_on(Arc::new(MemDisk::new()), |_| ControlFlow::Continue(())) {
                Ok(_) => Ok(()),
                Err(CopyError::Storage(error)) => Err(RunError::Service(error)),
                Err(other) => Err(RunError::Open(format!("copy: {other}"))),
            },
            DatabaseCall::Compact => unless_victim(db.compact().map(drop)),
            DatabaseCall::Ends => {
                let end = db.durable();
                for beyond in [Lsn::MAX, Lsn(u64::MAX - rng.below(1 << 62))] {
                    db.request_flush(beyond);
                    match db.wait_durable(beyond) {
                        Err(StorageError::BeyondLog { .. } | StorageError::Poisoned { .. }) => {}
                        answer => raise_finding(format!("a position beyond the log: {answer:?}")),
                    }
                }
                db.wait_durable(Lsn(rng.below(end.0 + 1))).map_err(RunError::Service)
            }
            DatabaseCall::Preload => db.preload().map(drop).map_err(RunError::Service),
            DatabaseCall::Begin => {
                let levels = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];
                if rng.once_in(3) {
                    return unless_victim(db.transact_at(rng.pick(&levels), |_| Ok(())));
                }
                let tx = db.begin_at(rng.pick(&levels)).map_err(RunError::Txn)?;
                if rng.once_in(2) {
                    return tx.commit().map_err(RunError::Txn);
                }
                drop(tx);
                Ok(())
            }
            DatabaseCall::CreateTable => {
                let which = rng.below(3) as usize;
                let opened = match rng.below(3) {
                    0 => db.table(&EXTRA[which]).map(drop),
                    // The raw table has the types of its declaration, although it is opened without types.
                    1 => db.table(&EXTRA[which]).and_then(|_| db.raw_table(&EXTRA[which])).map(drop),
                    _ => db.table(&EXTRA[which]).and_then(|_| db.raw().alter_indexes(&EXTRA[which])).map(drop),
                };
                unless_victim(opened.and_then(|()| refuses_other_keys(db, which)))
            }
            DatabaseCall::RefusedLoad => unless_victim(match db.bulk_load(&tables[rng.below(2) as usize]) {
                // The load is permitted if all rows of the table were deleted or rolled back.
                Ok(load) => {
                    drop(load);
                    Ok(())
                }
                Err(TxnError::Schema { .. }) => Ok(()),
                Err(error) => Err(error),
            }),
        }
    }
}

/// Checks that a table that exists with one key type cannot be opened with another key type.
fn refuses_other_keys(db: &Database, which: usize) -> Result<(), TxnError> {
    match db.table(&OTHER_KEYS[which]) {
        Ok(_) => raise_finding(format!("table {:?} opens with other types of keys", EXTRA[which].name())),
        Err(TxnError::OtherCodec { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn unless_victim(result: Result<(), TxnError>) -> Result<(), RunError> {
    match result {
        Err(TxnError::Deadlock { .. }) => Ok(()),
        other => other.map_err(RunError::Txn),
    }
}
