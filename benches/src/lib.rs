//! Fixtures for the benchmarks: a database in its own directory, tables of known size, keys.
//!
//! The benchmarks use the engine only through its public interface, as a program would.

pub mod contention;
#[cfg(feature = "peers")]
pub mod peers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use storage::{Database, Durability, OpenTable, Options, Table, Transaction};

/// Size of a row, in bytes.
pub const ROW: usize = 100;
/// Table that most benchmarks use.
pub const ROWS: Table<u64, [u8; ROW]> = Table::new("rows");
/// Number of rows of a table that fits into the processor's caches.
pub const HOT_ROWS: u64 = 1000;
/// Number of operations per transaction, in benchmarks that measure inside a transaction. The number is too small for a lock
/// escalation from row locks to a table lock.
pub const PER_TRANSACTION: u64 = 1000;

/// Handle of [`ROWS`].
pub type Rows = OpenTable<u64, [u8; ROW]>;

/// Returns true if this run only tests that the benchmarks work (`cargo bench -- --test`).
pub fn is_smoke() -> bool {
    std::env::args().any(|a| a == "--test")
}

/// Returns the number of rows of a table far larger than any cache: about 270 MB.
pub fn cold_rows() -> u64 {
    if is_smoke() { 5_000 } else { 2_000_000 }
}

/// Database in a temporary directory of its own, which is removed on drop.
#[derive(Debug)]
pub struct Fixture {
    db: Option<Database>,
    directory: PathBuf,
}

impl Fixture {
    /// Opens an empty database.
    ///
    /// # Panics
    /// Panics if the database cannot be opened.
    pub fn new(durability: Durability) -> Fixture {
        Fixture::open(durability, 1 << 30).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Opens an empty database with a buffer pool of `pool_bytes` bytes.
    ///
    /// # Errors
    /// Message for the user, with the directory, if the database cannot be opened.
    pub fn open(durability: Durability, pool_bytes: u64) -> Result<Fixture, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("lockstep-bench-{}-{number}", std::process::id()));
        let options = Options::new().buffer_pool(pool_bytes).durability(durability).checkpoint_every(256 << 20);
        let db = options.open(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Fixture { db: Some(db), directory })
    }

    /// Opens a database with `n` rows. Their keys are the numbers below `n`; commits are `async`.
    ///
    /// # Panics
    /// Panics if the database cannot be opened or loaded.
    pub fn with_rows(n: u64) -> (Fixture, Rows) {
        Fixture::with_rows_in(n, 1 << 30)
    }

    /// Like [`Fixture::with_rows`], with a buffer pool of `pool_bytes` bytes.
    ///
    /// # Panics
    /// Panics if the database cannot be opened or loaded.
    pub fn with_rows_in(n: u64, pool_bytes: u64) -> (Fixture, Rows) {
        let fixture = Fixture::open(Durability::Async, pool_bytes).unwrap_or_else(|why| panic!("{why}"));
        let rows = fixture.db().table(&ROWS).expect("a new table");
        let mut load = fixture.db().bulk_load(&rows).expect("an empty table");
        for key in 0..n {
            load.push_raw(&key.to_be_bytes(), &row(key)).expect("keys ascend");
        }
        load.finish().expect("space on the disk");
        fixture.db().preload().expect("pages that were just written");
        (fixture, rows)
    }

    /// Returns the database.
    ///
    /// # Panics
    /// Never panics, because the database is present until the fixture is dropped.
    pub fn db(&self) -> &Database {
        self.db.as_ref().expect("open until dropped")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.db.take());
        // Files that cannot be removed stay in the system's temporary directory, so an error is ignored.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns the row with a key.
pub fn row(key: u64) -> [u8; ROW] {
    let mut row = [b'.'; ROW];
    row[..8].copy_from_slice(&key.to_le_bytes());
    row
}

/// Measures `iterations` calls of `operation`, inside transactions of [`PER_TRANSACTION`] calls each. The duration excludes
/// the begin and the commit of the transactions. The argument of `operation` is the number of the call within its
/// transaction.
///
/// # Panics
/// Panics if a transaction cannot begin or commit.
pub fn inside(db: &Database, iterations: u64, mut operation: impl FnMut(&mut Transaction<'_>, u64)) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = iterations;
    while left > 0 {
        let n = left.min(PER_TRANSACTION);
        let mut tx = db.begin().expect("a free slot");
        let start = Instant::now();
        for i in 0..n {
            operation(&mut tx, i);
        }
        spent += start.elapsed();
        tx.commit_async().expect("an open log");
        left -= n;
    }
    spent
}
