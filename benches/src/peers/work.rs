//! Operations of the comparison. Each operation is written once, on a trait that all engines implement.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tpcc_core::peers::{Access, Peer, PeerError, PeerSession, PeerTransaction};

use crate::{PER_TRANSACTION, ROW, row};

/// Names of the tables of all operations except the standard mix, by table number.
pub(super) const TABLES: [&str; 2] = ["rows", "inserts"];
pub(super) const ROWS: usize = 0;
pub(super) const INSERTS: usize = 1;

/// Operation to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads one row in a transaction of its own.
    Read,
    /// Reads one row, in a transaction of a thousand reads.
    ReadMany,
    /// Updates eight bytes of a row in place, in a transaction of a thousand updates.
    Update,
    /// Inserts a row with the next key, in a transaction of a thousand inserts.
    Insert,
    /// Scans a hundred adjacent rows in a transaction of its own.
    Scan,
    /// Runs a transaction of one update with an `async` commit.
    CommitAsync,
    /// Runs a transaction of one update with a `sync` commit.
    CommitSync,
    /// Loads one row, in a bulk load of a whole table in key order. The load is durable at its end.
    BulkLoad,
    /// Runs [`Operation::CommitAsync`] on two threads. Each thread updates rows of its own.
    TwoWriters,
    /// Runs [`Operation::CommitSync`] on two threads. Each thread updates rows of its own.
    TwoWritersSync,
    /// Runs a transaction of the standard mix on one thread, with `async` commits.
    Mix,
    /// Runs transactions of the standard mix on two threads, with `async` commits.
    MixTwo,
}

impl Operation {
    /// All operations, in the order of the report.
    pub const ALL: [Operation; 12] = [
        Operation::Read,
        Operation::ReadMany,
        Operation::Update,
        Operation::Insert,
        Operation::Scan,
        Operation::CommitAsync,
        Operation::CommitSync,
        Operation::BulkLoad,
        Operation::TwoWriters,
        Operation::TwoWritersSync,
        Operation::Mix,
        Operation::MixTwo,
    ];

    /// Returns the identifier of the operation in the output.
    pub fn id(self) -> &'static str {
        match self {
            Operation::Read => "point-read",
            Operation::ReadMany => "point-read-of-1000",
            Operation::Update => "update-of-1000",
            Operation::Insert => "insert-of-1000",
            Operation::Scan => "scan-100",
            Operation::CommitAsync => "commit-async",
            Operation::CommitSync => "commit-sync",
            Operation::BulkLoad => "bulk-load",
            Operation::TwoWriters => "two-writers-async",
            Operation::TwoWritersSync => "two-writers-sync",
            Operation::Mix => "standard-mix",
            Operation::MixTwo => "standard-mix-two-workers",
        }
    }
}

/// Calls `batch` repeatedly for about `limit`. `batch` returns the number of units of work that it did. Returns the
/// nanoseconds per unit.
pub(super) fn measure_batches<E>(limit: Duration, mut batch: impl FnMut() -> Result<u64, E>) -> Result<f64, E> {
    let start = Instant::now();
    let mut units = 0;
    loop {
        units += batch()?;
        let elapsed = start.elapsed();
        if elapsed >= limit {
            return Ok(elapsed.as_nanos() as f64 / units as f64);
        }
    }
}

/// Reads one row in a transaction.
pub(super) fn read<S: PeerSession>(session: &S, key: u64) -> Result<u64, S::Error> {
    let mut tx = session.begin(Access::Read)?;
    let first = tx.read(ROWS, &key.to_be_bytes(), |row| row[0])?;
    tx.commit()?;
    std::hint::black_box(first);
    Ok(1)
}

/// Reads a thousand rows in a transaction.
pub(super) fn read_many<S: PeerSession>(session: &S, rows: u64, random: &mut Rng) -> Result<u64, S::Error> {
    let mut tx = session.begin(Access::Read)?;
    for _ in 0..PER_TRANSACTION {
        std::hint::black_box(tx.read(ROWS, &random.u64(..rows).to_be_bytes(), |row| row[0])?);
    }
    tx.commit()?;
    Ok(PER_TRANSACTION)
}

/// Updates `count` rows in a transaction.
pub(super) fn update<S: PeerSession>(session: &S, mut key: impl FnMut() -> u64, count: u64) -> Result<u64, S::Error> {
    let mut tx = session.begin(Access::Write)?;
    for _ in 0..count {
        let key = key();
        tx.update(ROWS, &key.to_be_bytes(), |row| row[8..16].copy_from_slice(&key.wrapping_mul(count).to_le_bytes()))?;
    }
    tx.commit()?;
    Ok(count)
}

/// Inserts a thousand rows in a transaction. Their keys are consecutive, beginning with `next`.
pub(super) fn insert<S: PeerSession>(session: &S, next: &mut u64) -> Result<u64, S::Error> {
    let mut tx = session.begin(Access::Write)?;
    for _ in 0..PER_TRANSACTION {
        tx.insert(INSERTS, &next.to_be_bytes(), &row(*next))?;
        *next += 1;
    }
    tx.commit()?;
    Ok(PER_TRANSACTION)
}

/// Reads a hundred adjacent rows in a transaction.
pub(super) fn scan<S: PeerSession>(session: &S, from: u64) -> Result<u64, S::Error> {
    let mut tx = session.begin(Access::Read)?;
    let mut sum = 0u64;
    tx.scan(ROWS, &from.to_be_bytes(), &(from + 99).to_be_bytes(), false, |_, row| {
        sum += u64::from(row[0]);
        ControlFlow::Continue(())
    })?;
    tx.commit()?;
    std::hint::black_box(sum);
    Ok(1)
}

/// Loads the table of rows.
pub(super) fn load<P: Peer>(peer: &P, rows: u64) -> Result<u64, P::Error> {
    let all: Vec<([u8; 8], [u8; ROW])> = (0..rows).map(|key| (key.to_be_bytes(), row(key))).collect();
    peer.load(ROWS, &mut all.iter().map(|(key, row)| (&key[..], &row[..])))?;
    Ok(rows)
}

/// Runs two threads for about `limit`. Each thread commits updates of rows of its own. Returns the nanoseconds per commit.
pub(super) fn two_writers<P: Peer>(peer: &P, rows: u64, limit: Duration, seed: u64) -> Result<f64, String> {
    let start = Instant::now();
    let writer = |number: u64| -> Result<u64, P::Error> {
        let session = peer.session()?;
        let mut random = Rng::with_seed(seed + number);
        let half = rows / 2;
        let mut commits = 0;
        while start.elapsed() < limit {
            let key = number * half + random.u64(..half);
            match update(&session, || key, 1) {
                Ok(_) => commits += 1,
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(commits)
    };
    let commits = std::thread::scope(|scope| {
        let threads = [0, 1].map(|number| scope.spawn(move || writer(number)));
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(commits) => commits.map_err(|error| error.to_string()),
                Err(_) => Err("a writer panicked".to_owned()),
            })
            .sum::<Result<u64, String>>()
    })?;
    Ok(start.elapsed().as_nanos() as f64 / commits.max(1) as f64)
}

/// Counts the rows of a table.
pub(super) fn count<P: Peer>(peer: &P, table: usize) -> Result<u64, P::Error> {
    let session = peer.session()?;
    let mut tx = session.begin(Access::Read)?;
    let mut rows = 0;
    tx.scan(table, &[0; 8], &[0xFF; 8], false, |key, row| {
        rows += u64::from(key.len() == 8 && row.len() == ROW);
        ControlFlow::Continue(())
    })?;
    tx.commit()?;
    Ok(rows)
}
