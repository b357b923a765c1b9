//! Comparison of `storage` with other embedded engines, which do the same work in the same run: `cargo xtask peers`. The
//! rules are in `benches/PEERS.md`.
//!
//! Each engine has an adapter, one file that implements [`tpcc_core::peers::Peer`]. The standard mix uses the same trait.

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
use tpcc_core::peers::{Peer, PeerError};
pub use work::Operation;

/// Memory that an engine may use for its cache, in bytes. Not every engine has such a setting.
const CACHE_BYTES: u64 = 1 << 30;

/// Maximum time between an `async` commit and its durability.
const SYNC_EVERY: Duration = Duration::from_millis(20);

/// Engine that can be opened in any directory, with any tables.
trait Engine: Peer + Sized {
    /// Name of the engine on the command line and in the output.
    const NAME: &'static str;
    /// Description of the engine's settings, for the report.
    const SETTINGS: &'static str;

    /// Opens a new, empty database in an empty directory.
    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<Self, Self::Error>;
}

/// Error of an engine. Also states if a retry of the transaction may succeed.
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

    /// Returns the error for a write in a read-only transaction.
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

/// Names of the engines in this build, `storage` first.
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

/// Opens an engine by name. Its databases are in directories of its own below `directory`.
///
/// # Errors
/// Returns an error if this build does not contain the engine, or if the engine cannot be opened.
pub fn open(name: &str, directory: &Path, rows: u64) -> Result<Box<dyn Subject>, String> {
    match name {
        "storage" => Instance::<storage::StorageEngine>::open(directory, rows),
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
