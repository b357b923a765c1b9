//! Shared by the integration tests: tables, settings, random numbers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use storage::disk::{Disk, SimDisk};
use storage::{Background, Database, Options, SecondaryIndex, Table};

/// Rows by number.
pub const NUMBERS: Table<u64, u64> = Table::new("numbers");
/// Rows of any length with keys of any length.
pub const ROWS: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByHead>();

/// Index on the first two bytes of a row, or fewer; empty rows are not indexed.
#[derive(Debug)]
pub struct ByHead;
impl SecondaryIndex for ByHead {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = Vec<u8>;
    const NAME: &'static str = "by_head";
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<Vec<u8>> {
        (!row.is_empty()).then(|| row[..row.len().min(2)].to_vec())
    }
}

/// Small sizes and no threads: for simulated disks.
pub fn small() -> Options {
    Options::new()
        .buffer_pool(1 << 20)
        .log_segment(64 << 10)
        .log_buffer(512 << 10)
        .checkpoint_every(1 << 20)
        .transactions(8)
        .background(Background::Inline)
}

/// Opens a simulated disk with [`small`] settings.
pub fn open(disk: &SimDisk) -> Database {
    small().open_on(on(disk)).unwrap()
}

/// Converts the disk to the argument type of `open`.
pub fn on(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Random number generator.
#[derive(Clone, Debug)]
pub struct Rng(fastrand::Rng);

impl Rng {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }

    /// Returns the next random number.
    pub fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a random number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.u64(..n)
    }

    /// Returns true with probability 1 in `n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.0.fill(&mut bytes);
        bytes
    }
}

/// Sets a flag when dropped, at the end of the scope or by a panic, to stop threads that run until the flag is set.
#[derive(Debug)]
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Sets a flag when dropped by a panic, to stop threads that wait for this thread and for the flag.
#[derive(Debug)]
pub struct StopOnPanic<'a>(pub &'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}
