//! An embedded, durable storage engine for many concurrent writers, serializable by locks.
//!
//! No other embedded Rust engine offers many concurrent writers, serializable by locks. Here any number of threads
//! write to one database at once; each transaction sees and leaves the data as if it ran alone, because it locks the
//! keys it touches and the gaps it looks into. No transaction queues for a single writer, none is validated at the end
//! and started over: a transaction waits for the one that holds what it needs, and only a deadlock makes one of its
//! members run again. Underneath are B+trees on 8 KiB pages, a buffer pool (databases may be many times larger than
//! memory), and a write-ahead log with ARIES recovery. No C, no unsafe in the interface.
//!
//! # Example
//!
//! ```
//! use storage::{Database, Options, Table, TxnError};
//!
//! /// Balances in cents.
//! const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
//!
//! /// Your own error type: whatever a [`TxnError`] turns into.
//! #[derive(Debug)]
//! enum BankError {
//!     Overdrawn { missing: i64 },
//!     Database(TxnError),
//! }
//! impl From<TxnError> for BankError {
//!     fn from(error: TxnError) -> BankError {
//!         BankError::Database(error)
//!     }
//! }
//! # impl std::fmt::Display for BankError {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") }
//! # }
//! # impl std::error::Error for BankError {}
//! # let directory = std::env::temp_dir().join(format!("lockstep-doc-{}", std::process::id()));
//!
//! let db = Database::open(&directory, Options::new())?; // sync, serializable
//! db.transact(|tx| tx.put(&ACCOUNTS, &1, &20))?;
//!
//! // Commits if the closure succeeds, rolls back if it fails, runs it again after a deadlock.
//! let left = db.transact(|tx| {
//!     let left = tx.get_for_update(&ACCOUNTS, &1)?.unwrap_or(0) - 5;
//!     if left < 0 {
//!         return Err(BankError::Overdrawn { missing: -left });
//!     }
//!     tx.put(&ACCOUNTS, &1, &left)?;
//!     Ok(left)
//! })?;
//! assert_eq!(left, 15);
//!
//! // The same by hand: a transaction that is dropped has not happened.
//! let mut tx = db.begin()?;
//! tx.put(&ACCOUNTS, &2, &100)?;
//! let all: Vec<(u64, i64)> = tx.range(&ACCOUNTS, ..)?.collect::<Result<_, _>>()?;
//! assert_eq!(all, [(1, 15), (2, 100)]);
//! drop(tx);
//! assert_eq!(db.begin()?.get(&ACCOUNTS, &2)?, None);
//!
//! db.close()?;
//! # std::fs::remove_dir_all(directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate's `examples/` show more: `open_write_read`, `scan` (ranges, secondary indexes), `crash_safe_counter`.
//!
//! # What is where
//!
//! [`Options`] opens a [`Database`]; [`Database::begin`] and [`Database::transact`] give a [`Transaction`]; a [`Table`]
//! is a constant that names a table and its types (a name that comes at run time: [`Table::named`]), [`OpenTable`] a
//! handle that saves the look-up by name.
//! [`SecondaryIndex`] declares another order of a table's rows, which the engine keeps. Types become bytes by [`Key`]
//! (which orders) and [`Row`]: integers, `bool`, strings, bytes, arrays, options and tuples have them, and [`record!`]
//! makes a struct one of them in one line; [`columns!`] names some columns of such a row, for statements that need no
//! others. The catalog keeps their names and versions, so that a table is never read
//! with other types. The statements whose names end in `_raw` take the bytes themselves. [`Database::drop_table`] and
//! [`Database::truncate`] remove all rows at once, [`Transaction::delete_range`] those of a range;
//! [`Database::alter_indexes`] gives a table that has rows other secondary indexes; [`Database::sizes`] returns the
//! space that tables take. [`Transaction::read_value`] and [`Transaction::write_value`] read and write long rows piece by
//! piece. [`BulkLoad`] fills an empty table fast. [`Database::copy_to`] makes a backup while
//! transactions run. Many small databases share the threads of their background work: [`Services`], which also tells what
//! one of them costs. [`disk`] holds the disks a database can live on: files, memory, and a simulated disk that crashes,
//! tears and fails from a seed, for tests. A program with a scheduler of its own gets every wait through a [`Hook`].
//!
//! # What is promised
//!
//! **Durability.** A failed write or sync of log or data closes the database to commits until it is reopened; a sync
//! is never tried again in the hope that it now works.
//!
//! | setting | when [`Transaction::commit`] returns | what a crash may take |
//! | --- | --- | --- |
//! | [`Durability::Sync`] (default) | the log is on disk (`fdatasync`) up to the commit, and up to every commit it read from | nothing that was acknowledged |
//! | [`Durability::Async`] | at once; the log follows within about 20 ms | the last commits: a suffix, never consistency |
//!
//! [`Transaction::commit_async`] gives a position in the log instead of waiting; [`Database::durable`] and
//! [`Database::wait_durable`] tell when an answer may leave. Locks are released before the flush (early lock release),
//! which is safe because of that rule: also a read-only answer waits for what it has read to be on disk.
//!
//! **Isolation.**
//!
//! | level | promise | what remains possible |
//! | --- | --- | --- |
//! | [`Isolation::Serializable`] (default) | as if transactions ran one after the other | nothing: no phantoms, no write skew |
//! | [`Isolation::RepeatableRead`] | rows read stay as they are until the end | new rows in a range read before (phantoms) |
//! | [`Isolation::ReadCommitted`] | only committed rows are read | rows read may change; updates computed from them may be lost |
//!
//! At every level a row that was written stays locked until the end. A deadlock is found when the last of its
//! transactions begins to wait; the youngest gets [`TxnError::Deadlock`], and [`Database::transact`] runs it again
//! with its age kept, so that it wins sooner or later.
//!
//! A transaction that waits for another one of its own thread would wait for ever; it gets [`TxnError::OwnTask`]
//! instead, at once. The engine detects this also across other transactions in between, and for fibers under a [`Hook`]
//! that numbers them ([`Hook::task`]). It does not detect a thread that waits by other means (a channel, a join) for a
//! thread that waits for its locks. [`Options::lock_timeout`] bounds every wait for a lock.
//!
//! **Recovery.** Opening after a crash repeats the logged changes and rolls back uncommitted transactions. Its progress
//! goes to [`Options::on_recovery`], which may also cancel it; the next open does it again. How long it takes is
//! bounded by [`Options::checkpoint_every`], the log written between two checkpoints (2 GiB by default), and by the
//! oldest transaction that was running. After [`Database::close`] there is nothing to recover.
//!
//! **Damage** is detected: every page and every log record has a CRC-32C; a page torn by a crash is restored from its
//! copy beside it. Other damage is an error that names file and page, never a wrong row.
//!
//! **A full disk** is [`StorageError::NoSpace`]: the transaction rolls back, for which space was reserved, and service
//! resumes when there is space again. A database whose process died there opens on the full disk: a restart needs no
//! room that was not reserved.
//!
//! # Limits
//!
//! | what | limit |
//! | --- | --- |
//! | key, encoded | 2,048 bytes |
//! | row, encoded | 4 GiB - 1 byte; above 3,968 bytes with its key it lies in pages of its own. A statement that names it keeps it in memory whole (but [`Transaction::read_value`] and [`Transaction::write_value`] do not), and what its transaction writes, once into the log and as much again kept for undo, is less than the log may take: four times [`Options::checkpoint_every`] |
//! | tables of a database | 1,048,574, names of 1 to 200 bytes; dropped ones count only while a transaction is open that began before |
//! | secondary indexes of a table | 8 |
//! | an entry of a secondary index (its value and, unless unique, the primary key) | 2,048 bytes; of a unique one 3,968 with the primary key |
//! | transactions at once | 128, 1 to 1,000 by [`Options::transactions`] |
//! | drops, truncations, changes of indexes and bulk loads at once | 64, none of which counts as a transaction |
//! | record locks of a transaction | 1,048,576; above 5,000 in one table it tries to lock the table instead |
//! | buffer pool | from [`MIN_POOL_BYTES`]; 256 MiB by default, taken from the system as it is used |
//! | data file | 2^28 pages of 8 KiB: 2 TiB |
//!
//! Tables beside each other cost two pages of 8 KiB in the file, some 200 bytes of memory while the database is open, and some
//! 600 more once they have been used. A transaction pays only for those that it uses: with 50,000 tables the database opens
//! in 0.3 s, and making one with its first row, or dropping one, takes less than 0.1 ms (durability `async`, two cores).
//!
//! One directory is one database, and one process at a time has it open. An empty one takes less than 64 MiB. The
//! directory is opened once: a relative path keeps the meaning it had then. Its files are regular ones; symbolic links
//! are refused. Other files there are left alone, and where no database exists yet, other files are a reason to refuse.
//!
//! # Format
//!
//! `control`, `pages.0`, `log.N`, `lock` while open, and `copying` in a copy that is not finished. Every file carries a
//! format number, now 5; a build reads exactly one, and says so in an error when it meets another. There are no
//! migrations yet. All numbers are little-endian, so files may move between machines.
//!
//! # What is not promised
//!
//! Snapshots of the past, reading from another process, and encryption are absent. So is a read-only snapshot of the
//! last commit, which would read without locks and block no writer: readers lock what they read, or read at
//! read-committed. Files do not shrink by themselves: what deleted rows took is used again soon after no transaction needs
//! them any more, and [`Database::compact`] gives the rest of the data file back to the system. A scan locks what it reads, if it must: long reports
//! make short writers wait, unless the reports run at read-committed. Transactions that wait for one lock get it first
//! come first served; no other order is guaranteed.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("storage runs on Linux and macOS: what it promises of files and syncs is theirs");

mod base;
mod btree;
mod buffer;
mod db;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod fuzzing;
mod io;
mod latch;
mod lock;
mod log;
mod page;
mod recovery;
mod table;
mod txn;

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The example of the workspace's README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct WorkspaceReadme;

pub use base::config::{Background, Durability, FrameHomes, Isolation, LargePages, LatchKind, Service};
pub use base::error::{CopyError, LockHolder, LogHolder, OpenError, StorageError, TxnError};
pub use base::hook::{BlockReason, Hook, Operation, OperationKind, ThreadHook, WaitToken, thread_number};
pub use base::ids::{Age, IndexId, Lsn, PAGE_SIZE, PageId, TxnId};
pub use base::sites::{PointKind, PointSite, points};
pub use db::bulk::{BulkLoad, BulkPart, Part};
pub use db::compact::Compacted;
pub use db::copy::{Copied, Copying};
pub use db::cursor::Cursor;
pub use db::database::{Database, Stats};
pub use db::memory::{LargePagesGiven, MemoryRegion};
pub use db::options::{MIN_POOL_BYTES, Options};
pub use db::remove::DatabaseFiles;
pub use db::savepoint::Savepoint;
pub use db::services::{ServiceThreads, Services};
pub use db::sizes::{Sizes, TableSize};
pub use db::structure::{Finding, Rule, Structure};
pub use db::table::{AsTable, OpenTable, Raw, RunTimeName, SecondaryIndex, Table, TableName};
pub use db::transaction::{TableLock, Transaction};
pub use db::values::ValueReader;
pub use io::memory::{MemoryGiven, MemoryMap, large_pages_available};
pub use io::topology::Nodes;
pub use recovery::progress::{Recovery, RecoveryPass};
pub use table::codec::{BorrowedKey, Codec, Columns, Key, Row};

#[cfg(feature = "testing")]
#[doc(hidden)]
pub use db::options::Extremes;

/// Engines with a deliberate defect, for campaigns to detect.
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants {
    pub use crate::base::mutant::{Mutant, VARIABLE, chosen};
}

/// The parts that [`record!`] expands to.
#[doc(hidden)]
pub mod record_parts {
    pub use crate::table::codec::{
        Fields, place_of, put_column, put_part, size_of_all, span_of, take_column, take_part,
    };
}

/// Reading without locks, and locking later what was read: for programs that compute ahead of their transactions.
///
/// [`Database::peek_raw`] reads from any thread; [`Transaction::confirm_raw`] locks and compares.
pub mod optimistic {
    pub use crate::db::optimistic::{Peeker, Place};
}

/// What readers of one page cost each other under each kind of latch, and where shared lines lie: for benchmarks and reports.
#[cfg(feature = "measure")]
pub mod measure {
    pub use crate::base::lines::SharedLines;
    pub use crate::latch::measure::MeasuredPage;
}

/// Disks: real, in memory, simulated.
pub mod disk {
    pub use crate::io::*;
}
