//! An embedded, durable storage engine: many concurrent writers, serializable by locks.
#![doc = ""]

mod base;
mod btree;
mod buffer;
mod db;
mod io;
mod latch;
mod lock;
mod log;
mod page;
mod recovery;
mod table;
mod txn;

pub use base::config::{Background, Durability, Isolation, LatchKind};
pub use base::error::{OpenError, StorageError, TxnError};
pub use base::hook::{BlockReason, Hook, ThreadHook, WaitToken};
pub use base::ids::{IndexId, Lsn, PAGE_SIZE, PageId, TxnId};
pub use db::bulk::{BulkLoad, BulkPart, Part};
pub use db::cursor::Cursor;
pub use db::database::{Database, Stats};
pub use db::options::{MIN_POOL_BYTES, Options, Recovery, RecoveryPass};
pub use db::table::{AsTable, OpenTable, SecondaryIndex, Table};
pub use db::transaction::{TableLock, Transaction};
pub use table::codec::{Key, Row};

/// Disks: real, in memory, simulated.
pub mod disk {
    pub use crate::io::*;
}
