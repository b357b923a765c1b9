//! Calls of a database that are no statements of a transaction: checkpoints, counters, checks, tables, refused bulk
//! loads. Any worker may make any of them at any time, so the workers of a run do. A call must not stop another fiber
//! of its thread, fail, or change a row.

use std::ops::ControlFlow;
use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{CopyError, Database, Isolation, Lsn, StorageError, Table, TxnError};

use super::caught::find;
use super::notes::RunError;
use super::rng::Rng;
use super::tables::Tables;

/// Tables that the calls create and that stay empty.
const EXTRA: [Table<u64, Vec<u8>>; 3] = [Table::new("extra one"), Table::new("extra two"), Table::new("extra three")];

/// The same tables as another program might declare them: none of these opens.
const OTHER_KEYS: [Table<u32, Vec<u8>>; 3] =
    [Table::new(EXTRA[0].name()), Table::new(EXTRA[1].name()), Table::new(EXTRA[2].name())];

/// The calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Checkpoint,
    Stats,
    Names,
    VerifyPages,
    CheckStructure,
    Preload,
    /// A transaction of its own, at any isolation level, that does nothing.
    Begin,
    CreateTable,
    /// A table that has rows takes none in bulk.
    RefusedLoad,
    /// An online copy, onto a disk of its own.
    Copy,
    /// Pages move together, and the file is cut. Shares tables, and so waits for those that are locked as a whole.
    Compact,
    /// Arguments at their ends, which are refused and change nothing.
    Ends,
}

/// Calls that may be made in the middle of a transaction: they take no locks.
const AMID: [Call; 9] = [
    Call::Checkpoint,
    Call::Checkpoint,
    Call::Stats,
    Call::Names,
    Call::VerifyPages,
    Call::CheckStructure,
    Call::Preload,
    Call::Copy,
    Call::Ends,
];
/// Calls between two transactions.
const BETWEEN: [Call; 6] =
    [Call::Checkpoint, Call::Stats, Call::Begin, Call::CreateTable, Call::RefusedLoad, Call::Compact];

impl Call {
    /// Each once.
    #[cfg(test)]
    pub(crate) const ALL: [Call; 12] = [
        Call::Checkpoint,
        Call::Stats,
        Call::Names,
        Call::VerifyPages,
        Call::CheckStructure,
        Call::Preload,
        Call::Begin,
        Call::CreateTable,
        Call::RefusedLoad,
        Call::Copy,
        Call::Compact,
        Call::Ends,
    ];

    /// A call for the middle of a transaction.
    pub(crate) fn amid(rng: &mut Rng) -> Call {
        rng.pick(&AMID)
    }

    /// A call for between two.
    pub(crate) fn between(rng: &mut Rng) -> Call {
        if rng.once_in(2) { rng.pick(&BETWEEN) } else { Call::amid(rng) }
    }

    /// Makes the call.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn make(self, db: &Database, tables: &Tables, rng: &mut Rng) -> Result<(), RunError> {
        match self {
            Call::Checkpoint => db.checkpoint().map_err(RunError::Service),
            Call::Stats => {
                let (one, two) = (db.stats(), db.stats());
                assert!(two.log_bytes >= one.log_bytes && two.checkpoints >= one.checkpoints, "counters go back");
                Ok(())
            }
            Call::Names => {
                assert!(db.table_names().len() >= tables.len(), "tables are forgotten");
                assert!(!db.directory().is_empty(), "a database without a place");
                assert!(db.indexes().len() >= tables.len(), "indexes are forgotten");
                db.request_flush(db.durable());
                Ok(())
            }
            Call::VerifyPages => db.verify_pages().map(drop).map_err(RunError::Service),
            // While other workers write its findings mean nothing; the call must only come to an end.
            Call::CheckStructure => {
                db.check_structure(|_, _| ControlFlow::Continue(())).map(drop).map_err(RunError::Service)
            }
            Call::Copy => match db.copy_on(Arc::new(MemDisk::new()), |_| ControlFlow::Continue(())) {
                Ok(_) => Ok(()),
                Err(CopyError::Storage(error)) => Err(RunError::Service(error)),
                Err(other) => Err(RunError::Open(format!("copy: {other}"))),
            },
            Call::Compact => unless_victim(db.compact().map(drop)),
            Call::Ends => {
                let end = db.durable();
                for beyond in [Lsn::MAX, Lsn(u64::MAX - rng.below(1 << 62))] {
                    db.request_flush(beyond);
                    match db.wait_durable(beyond) {
                        Err(StorageError::BeyondLog { .. } | StorageError::Poisoned { .. }) => {}
                        answer => find(format!("a position beyond the log: {answer:?}")),
                    }
                }
                db.wait_durable(Lsn(rng.below(end.0 + 1))).map_err(RunError::Service)
            }
            Call::Preload => db.preload().map(drop).map_err(RunError::Service),
            Call::Begin => {
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
            Call::CreateTable => {
                let which = rng.below(3) as usize;
                let opened = match rng.below(3) {
                    0 => db.table(&EXTRA[which]).map(drop),
                    // It has the types that it was made with, however it is opened; it needs no change.
                    1 => db.table(&EXTRA[which]).and_then(|_| db.raw_table(&EXTRA[which])).map(drop),
                    _ => db.table(&EXTRA[which]).and_then(|_| db.alter_indexes_raw(&EXTRA[which])).map(drop),
                };
                unless_victim(opened.and_then(|()| refuses_other_keys(db, which)))
            }
            Call::RefusedLoad => unless_victim(match db.bulk_load(&tables[rng.below(2) as usize]) {
                // Empty, if its rows were deleted or rolled back.
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

/// A table whose keys are of one type opens with no other.
fn refuses_other_keys(db: &Database, which: usize) -> Result<(), TxnError> {
    match db.table(&OTHER_KEYS[which]) {
        Ok(_) => find(format!("table {:?} opens with other types of keys", EXTRA[which].name())),
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
