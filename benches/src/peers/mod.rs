//! Other embedded engines and ours under the same work, in the same run: `cargo xtask peers`. The rules are in
//! `benches/PEERS.md`.
//!
//! Each engine is an adapter of one file that implements [`tpcc_core::doors::peers::Peer`], the door through which the standard mix
//! enters as well.

mod fjall;
#[cfg(feature = "peers-lmdb")]
mod lmdb;
mod redb;
pub mod report;
#[cfg(feature = "peers-rocksdb")]
mod rocksdb;
#[cfg(feature = "peers-sqlite")]
mod sqlite;
mod storage;
mod subject;
mod syncer;
mod work;

use std::path::Path;
use std::time::Duration;

use ::storage::Durability;
use subject::Instance;
pub use subject::Subject;
use tpcc_core::doors::peers::{Peer, PeerError};
pub use work::Operation;

/// Bytes that an engine may keep in memory, where that can be set.
const CACHE_BYTES: u64 = 1 << 30;

/// An engine whose commits are not durable when they return makes what was committed durable after at most so long.
const SYNC_EVERY: Duration = Duration::from_millis(20);

/// An engine that can be opened anywhere, with any tables.
trait Rival: Peer + Sized {
    /// As typed and as printed.
    const NAME: &'static str;
    /// How it was set, for the report.
    const SETTINGS: &'static str;

    /// Opens an empty engine in an empty directory.
    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<Self, Self::Error>;
}

/// Why an engine could not do something: its own error, and whether running the transaction again may succeed.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct Failure {
    source: Box<dyn std::error::Error + Send + Sync>,
    is_conflict: bool,
}

impl Failure {
    fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure { source: source.into(), is_conflict: false }
    }

    /// A write in a transaction that was begun to read.
    fn read_only() -> Failure {
        Failure::new("a transaction that only reads cannot write")
    }

    fn conflict(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure { source: source.into(), is_conflict: true }
    }
}

impl PeerError for Failure {
    fn is_conflict(&self) -> bool {
        self.is_conflict
    }
}

/// Names of the engines that this build has, ours first.
pub const ENGINES: &[&str] = &[
    "storage",
    "redb",
    "fjall",
    #[cfg(feature = "peers-lmdb")]
    "lmdb",
    #[cfg(feature = "peers-rocksdb")]
    "rocksdb",
    #[cfg(feature = "peers-sqlite")]
    "sqlite",
];

/// Opens an engine by its name, with its databases in directories of its own below `directory`.
///
/// # Errors
/// When this build has no such engine, or it could not be opened.
pub fn open(name: &str, directory: &Path, rows: u64) -> Result<Box<dyn Subject>, String> {
    match name {
        "storage" => Instance::<storage::Ours>::open(directory, rows),
        "redb" => Instance::<redb::Redb>::open(directory, rows),
        "fjall" => Instance::<fjall::Fjall>::open(directory, rows),
        #[cfg(feature = "peers-lmdb")]
        "lmdb" => Instance::<lmdb::Lmdb>::open(directory, rows),
        #[cfg(feature = "peers-rocksdb")]
        "rocksdb" => Instance::<rocksdb::RocksDb>::open(directory, rows),
        #[cfg(feature = "peers-sqlite")]
        "sqlite" => Instance::<sqlite::Sqlite>::open(directory, rows),
        _ => Err(format!("{name}: no such engine in this build; one of {}", ENGINES.join(", "))),
    }
}
