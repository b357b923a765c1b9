//! An embedded, durable storage engine with many concurrent writers and serializable two-phase locking.
//!
//! No other embedded Rust engine combines many concurrent writers with serializable locking. Any number of threads
//! write to one database concurrently. Each transaction has the effect of running alone, because it locks the keys that
//! it reads or writes and the gaps between keys in the ranges that it reads. Transactions do not queue for a single
//! writer, and no transaction is validated and restarted at its commit. A transaction waits for the holder of the lock
//! that it needs; only a deadlock aborts a transaction, which then runs again. The engine consists of B+trees on 8 KiB
//! pages, a buffer pool (databases may be many times larger than memory), and a write-ahead log with ARIES recovery. It
//! contains no C, and its interface has no `unsafe`.
//!
//! # Example
//!
//! ```
//! use storage::{Database, Options, Table, TxnError};
//!
//! /// Balances in cents.
//! const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
//!
//! /// Your own error type, with a conversion from [`TxnError`].
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
//! // Without a closure: dropping a transaction rolls it back.
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
//! # Overview
//!
//! [`Options`] opens a [`Database`]; [`Database::begin`] and [`Database::transact`] give a [`Transaction`]; a [`Table`]
//! is a constant that names a table and its types (for names known at run time only: [`Table::named`]); [`OpenTable`]
//! is a handle of a table, which avoids the lookup by name. [`SecondaryIndex`] declares an index of a table's rows by
//! another key, maintained by the engine. The traits [`Key`] (order-preserving) and [`Row`] encode types as bytes.
//! Integers, `bool`, strings, bytes, arrays, options and tuples implement them, and [`record!`] implements them for a
//! struct in one line. [`columns!`] defines a struct of those columns of a row that a statement needs. The catalog
//! stores the names and versions of the codecs, so that a table is never read with other types. [`Transaction::raw`]
//! and [`Transaction::raw_mut`] give access to statements on encoded bytes. [`Transaction::prefix`] scans the keys that
//! begin with a text or with the first parts of a tuple. [`Transaction::modify`] and
//! [`Transaction::compare_and_swap`] write a row depending on what it was. [`Database::begin_owned`] gives a transaction
//! that a struct can store. [`Transaction::in_order`] runs a loop of a transaction on several threads.
//! [`Database::drop_table`] removes a table
//! and [`Database::truncate`] all its rows; [`Transaction::delete_range`] removes the rows of a range;
//! [`Database::alter_indexes`] changes the secondary indexes of a table that has rows; [`Database::sizes`] returns the
//! space that tables occupy. [`Transaction::read_value`] and [`Transaction::write_value`] stream long rows in pieces.
//! [`BulkLoad`] loads an empty table fast. [`Database::copy_to`] makes a backup while transactions run. Many small
//! databases can share their background threads through [`Services`], which also documents the cost of one database.
//! [`disk`] contains the disks that a database can use: files, memory, and, for tests, a simulated disk that crashes,
//! tears sectors and fails calls, all from a seed. A program with its own scheduler handles every wait in a [`Hook`].
//!
//! # Guarantees
//!
//! **Durability.** A failed write or sync of log or data closes the database to commits until it is reopened; a sync is
//! never retried after a failure.
//!
//! | setting | state when [`Transaction::commit`] returns | loss after a crash |
//! | --- | --- | --- |
//! | [`Durability::Sync`] (default) | the log is on disk (`fdatasync`) up to the commit and up to every commit that it read from | no acknowledged commit |
//! | [`Durability::Async`] | the log follows within about 20 ms | the last commits: a suffix of them; the data stays consistent |
//!
//! [`Transaction::commit_async`] returns a log position instead of waiting; [`Database::durable`] and
//! [`Database::wait_durable`] report when an answer may leave the program. Locks are released before the flush (early
//! lock release). This is safe because every answer, a read-only one too, waits until the commits that it read from are
//! on disk.
//!
//! **Isolation.**
//!
//! | level | guarantee | possible anomalies |
//! | --- | --- | --- |
//! | [`Isolation::Serializable`] (default) | equivalent to a serial execution | none: no phantoms, no write skew |
//! | [`Isolation::RepeatableRead`] | rows that were read do not change until the end | new rows in a range that was read (phantoms) |
//! | [`Isolation::ReadCommitted`] | only committed rows are read | rows that were read may change; updates computed from them may be lost |
//!
//! At every level a written row stays locked until the end. A deadlock is detected when the last of its transactions
//! begins to wait. The youngest transaction gets [`TxnError::Deadlock`]; [`Database::transact`] runs the transaction
//! again with its original age, so that it is eventually the oldest and commits.
//!
//! A transaction that waits for another transaction of the same thread would wait forever; it gets
//! [`TxnError::OwnTask`] at once. The engine also detects such waits through a chain of other transactions, and for
//! fibers under a [`Hook`] that numbers them ([`Hook::task`]). The engine does not detect a deadlock in which a thread
//! waits by other means (a channel, a join) for a thread that waits for its locks. [`Options::lock_timeout`] bounds
//! every wait for a lock.
//!
//! **Recovery.** Opening after a crash redoes the logged changes and rolls back uncommitted transactions.
//! [`Options::on_recovery`] receives the progress and may cancel the restart; the next open repeats it. The duration is
//! bounded by [`Options::checkpoint_every`], the log written between two checkpoints (2 GiB by default), and by the
//! oldest transaction that was running. After [`Database::close`] no recovery is needed.
//!
//! **Damage** is detected: every page and every log record has a CRC-32C; a page torn by a crash is restored from its
//! copy. Other damage is reported as an error that names the file and the page; a wrong row is never returned.
//!
//! **A full disk** is reported as [`StorageError::NoSpace`]. The transaction rolls back in space reserved for this, and
//! service resumes when there is space again. A database whose process died on a full disk also opens there: a restart
//! needs only reserved space.
//!
//! # Limits
//!
//! | item | limit |
//! | --- | --- |
//! | key, encoded | 2,048 bytes |
//! | row, encoded | 4 GiB - 1 byte; above 3,968 bytes with its key it is stored in pages of its own. A statement that names such a row holds it in memory whole (except [`Transaction::read_value`] and [`Transaction::write_value`]). The bytes that a transaction writes, counted once for the log and once for undo, must be fewer than the log may take: four times [`Options::checkpoint_every`] |
//! | tables of a database | 1,048,574, names of 1 to 200 bytes; dropped tables count only while a transaction is open that began before the drop |
//! | secondary indexes of a table | 8 |
//! | an entry of a secondary index (its value and, unless unique, the primary key) | 2,048 bytes; of a unique one 3,968 with the primary key |
//! | concurrent transactions | 128, 1 to 1,000 by [`Options::transactions`] |
//! | concurrent drops, truncations, index changes and bulk loads | 64, none of which counts as a transaction |
//! | record locks of a transaction | 1,048,576; above 5,000 in one table it tries to lock the table instead (lock escalation) |
//! | buffer pool | from [`MIN_POOL_BYTES`]; 256 MiB by default, allocated by the system on first use |
//! | data file | 2^28 pages of 8 KiB: 2 TiB |
//!
//! Each table costs two pages of 8 KiB in the file, about 200 bytes of memory while the database is open, and about 600
//! more after its first use. A transaction pays only for the tables that it uses.
//!
//! A directory holds one database, which one process at a time may open. An empty database takes less than 64 MiB. The
//! directory is opened once: a relative path keeps its meaning if the working directory changes later. The database's
//! files are regular files; symbolic links are refused. Other files in the directory of a database are left alone; no
//! database is created in a directory that has other files.
//!
//! # Format
//!
//! The files are `control`, `pages.0`, `log.N`, `lock` (while the database is open), and `copying` (in an unfinished
//! copy). Every file contains a format number, currently 5. A build reads exactly one format and reports an error for
//! any other. Migration between formats is not supported yet. All integers are little-endian, so files may move between
//! machines.
//!
//! # Not supported
//!
//! Snapshots of the past, reads from another process, and encryption are not supported. A read-only snapshot of the
//! last commit, which would read without locks and block no writer, is not supported either: readers lock the rows that
//! they read, or read at read-committed. Files do not shrink by themselves: the space of deleted rows is reused soon
//! after no transaction needs them any more, and [`Database::compact`] returns free space of the data file to the
//! system. A scan above read-committed locks the rows that it reads, so a long report makes short writers wait. A lock
//! is granted in the order of the requests; no other order is guaranteed.

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

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use base::config::{Background, Durability, FrameHomes, Isolation, LargePages, LatchKind, Service};
pub use base::error::{CopyError, LockHolder, LogHolder, OpenError, StorageError, TxnError};
pub use base::hook::{BlockReason, Hook, Operation, OperationKind, ThreadHook, WaitToken, thread_number};
pub use base::ids::{Age, IndexId, Lsn, PAGE_SIZE, PageId, TxnId};
pub use base::sites::{PointKind, PointSite, points};
pub use base::waits::Wait;
pub use db::bulk::{BulkLoad, BulkPart, Part};
pub use db::compact::Compacted;
pub use db::copy::{Copied, Copying};
pub use db::cursor::Cursor;
pub use db::database::{Database, Stats};
pub use db::memory::{LargePagesGiven, MemoryRegion};
pub use db::options::{MAX_LOOP_THREADS, MIN_POOL_BYTES, Options};
pub use db::owned::OwnedTransaction;
pub use db::raw::{RawDatabase, RawReader, RawWriter};
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
pub use table::codec::{BorrowedKey, Codec, Columns, Key, KeyPrefix, Row};
pub use table::contended::TableContention;
pub use table::waits::{TableWaits, Waits};

#[cfg(feature = "testing")]
#[doc(hidden)]
pub use db::options::Extremes;

/// Engines with a deliberate defect, for mutation campaigns.
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants {
    pub use crate::base::mutant::{Mutant, VARIABLE, chosen};
}

/// Items used by the expansions of [`record!`] and of `columns!`.
#[doc(hidden)]
pub mod record_parts {
    pub use crate::table::codec::{
        Fields, place_of, put_column, put_part, size_of_all, span_of, take_column, take_part,
    };
}

/// Optimistic reads: rows are read without locks, then locked and compared. For programs that compute ahead of their
/// transactions.
///
/// [`RawDatabase::peek`] reads from any thread; [`RawWriter::confirm`] locks and compares.
pub mod optimistic {
    pub use crate::db::optimistic::{Peeker, Place};
}

/// Cost of shared reads of one page under each latch kind, the layout of shared cache lines, the record locks of a
/// transaction, and its loops: for benchmarks and reports.
#[cfg(feature = "measure")]
pub mod measure {
    pub use crate::base::holds::{FrameLayout, HeldLock};
    pub use crate::base::lines::SharedLines;
    pub use crate::db::loop_measurement::LoopMeasurement;
    pub use crate::latch::measure::MeasuredPage;
}

/// Disks: real, in memory, simulated.
pub mod disk {
    pub use crate::io::*;
}
