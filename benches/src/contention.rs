//! Two threads that write beside each other, and one thread that does the same work alone.
//!
//! Rows have [`ROW`] bytes. Each transaction commits without waiting for the disk. `cargo xtask contention` measures these
//! operations in interleaved rounds, and `cargo bench -p benches -- contention` measures them with criterion.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use storage::{Database, Durability, OpenTable, RunTimeName, Table, TxnError};

use super::Fixture;

/// Size of a row, in bytes.
pub const ROW: usize = 88;
/// Number of rows of a loaded table.
const ROWS: u64 = 100_000;
/// Maximum number of rows of one update statement.
const STATEMENT: usize = 16;
/// Number of rows that are updated or inserted in one operation of [`Contention::scattered_updates`] and
/// [`Contention::runs_into_one_leaf`], by all threads together.
const TOGETHER: usize = 100;
/// Distance of the rows of [`Contention::scattered_updates`].
const STRIDE: u64 = 97;

type Rows = OpenTable<u64, [u8; ROW]>;

/// Row of one thread for [`Contention::updates`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The threads' rows are neighbours on one leaf.
    SameLeaf,
    /// The threads' rows are on leaves far apart.
    FarLeaves,
}

/// A database for the measurements.
#[derive(Debug)]
pub struct Contention {
    fixture: Fixture,
    tables: AtomicUsize,
}

impl Contention {
    /// Opens an empty database.
    ///
    /// # Errors
    /// Message for the user if the database cannot be opened.
    pub fn open() -> Result<Contention, String> {
        Ok(Contention { fixture: Fixture::open(Durability::Async, 1 << 30)?, tables: AtomicUsize::new(0) })
    }

    fn db(&self) -> &Database {
        self.fixture.db()
    }

    /// Creates a table with rows of the keys `0..rows`. Each measurement uses a table of its own, so that it also measures
    /// the adaptation of the table to its writers.
    fn table(&self, rows: u64) -> Result<(String, Rows), TxnError> {
        let name = format!("rows {}", self.tables.fetch_add(1, Ordering::Relaxed));
        let table = self.db().table(&Table::<u64, [u8; ROW], RunTimeName>::named(name.clone()))?;
        let mut load = self.db().bulk_load(&table)?;
        for key in 0..rows {
            load.push_raw(&key.to_be_bytes(), &[b'.'; ROW])?;
        }
        load.finish()?;
        Ok((name, table))
    }

    /// Runs `operation` on a table of `rows` rows and drops the table.
    fn on_table<T>(&self, rows: u64, operation: impl FnOnce(&Rows) -> Result<T, TxnError>) -> Result<T, TxnError> {
        let (name, table) = self.table(rows)?;
        let result = operation(&table);
        self.db().drop_table(&name)?;
        result
    }

    /// Measures transactions that update one row each, on `threads` threads with a row of their own, for `duration`.
    /// Returns the number of transactions per second, of all threads.
    ///
    /// # Errors
    /// Error of a transaction.
    pub fn updates(&self, threads: u64, placement: Placement, duration: Duration) -> Result<f64, TxnError> {
        let distance = match placement {
            Placement::SameLeaf => 1,
            Placement::FarLeaves => ROWS / 4,
        };
        self.on_table(ROWS, |table| {
            self.for_duration(threads, duration, |thread, number| {
                let key = ROWS / 3 + thread * distance;
                let mut tx = self.db().begin()?;
                tx.raw_mut().update_heads(table, &[&key.to_be_bytes()], 8, |_, head, _| {
                    head.copy_from_slice(&number.to_le_bytes());
                })?;
                tx.commit_async().map(drop)
            })
        })
    }

    /// Measures transactions that insert one row each with the next key, on `threads` threads, for `duration`. Returns the
    /// number of transactions per second, of all threads.
    ///
    /// # Errors
    /// Error of a transaction.
    pub fn appends(&self, threads: u64, duration: Duration) -> Result<f64, TxnError> {
        let next = AtomicU64::new(ROWS);
        self.on_table(ROWS, |table| {
            self.for_duration(threads, duration, |_, _| {
                let key = next.fetch_add(1, Ordering::Relaxed);
                let mut tx = self.db().begin()?;
                tx.raw_mut().insert(table, &key.to_be_bytes(), &[b'a'; ROW])?;
                tx.commit_async().map(drop)
            })
        })
    }

    /// Measures updates of 100 scattered rows, 16 a statement: by one transaction, or by one transaction on each of
    /// `threads` threads, which begin together. Returns the mean duration of all of them, in microseconds.
    ///
    /// # Errors
    /// Error of a transaction.
    pub fn scattered_updates(&self, threads: usize, repeats: usize) -> Result<f64, TxnError> {
        self.on_table(ROWS, |table| {
            let each = TOGETHER / threads;
            self.together(threads, repeats, |thread, turn| {
                let first = (turn * TOGETHER + thread * each) as u64;
                let keys: Vec<[u8; 8]> =
                    (first..first + each as u64).map(|i| (i * STRIDE % ROWS).to_be_bytes()).collect();
                let mut keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                // All transactions lock rows in one order.
                keys.sort_unstable();
                let mut tx = self.db().begin()?;
                for keys in keys.chunks(STATEMENT) {
                    tx.raw_mut().update_heads(table, keys, 8, |_, head, _| {
                        head.copy_from_slice(&(turn as u64 + 1).to_le_bytes());
                    })?;
                }
                tx.commit_async().map(drop)
            })
        })
    }

    /// Measures the insert of 100 rows with adjacent keys: as one run by one transaction, or as a run of one transaction on
    /// each of `threads` threads, which begin together. Returns the mean duration of all of them, in microseconds.
    ///
    /// # Errors
    /// Error of a transaction.
    pub fn runs_into_one_leaf(&self, threads: usize, repeats: usize) -> Result<f64, TxnError> {
        self.on_table(ROWS, |table| {
            let each = TOGETHER / threads;
            self.together(threads, repeats, |thread, turn| {
                let first = ROWS + (turn * TOGETHER + thread * each) as u64;
                let keys: Vec<[u8; 8]> = (first..first + each as u64).map(u64::to_be_bytes).collect();
                let rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &[b'r'; ROW][..])).collect();
                let mut tx = self.db().begin()?;
                tx.raw_mut().insert_run(table, &rows)?;
                tx.commit_async().map(drop)
            })
        })
    }

    /// Calls `operation` with the number of the thread and of the call, on each thread, until `duration` has passed. Returns
    /// the number of calls per second.
    fn for_duration(
        &self,
        threads: u64,
        duration: Duration,
        operation: impl Fn(u64, u64) -> Result<(), TxnError> + Sync,
    ) -> Result<f64, TxnError> {
        const BETWEEN_LOOKS: u64 = 64;
        let line = StartLine::new(threads as usize);
        std::thread::scope(|scope| {
            let run = |thread| {
                let (operation, line) = (&operation, &line);
                move || {
                    line.wait(0);
                    let begin = Instant::now();
                    let mut number = 0;
                    while number % BETWEEN_LOOKS != 0 || begin.elapsed() < duration {
                        operation(thread, number)?;
                        number += 1;
                    }
                    Ok(number as f64 / begin.elapsed().as_secs_f64())
                }
            };
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("operations do not panic")).sum()
        })
    }

    /// Calls `operation` with the number of the thread and of the turn, on each thread, in `repeats` turns. All threads
    /// begin a turn together. Returns the mean duration of a turn in microseconds.
    fn together(
        &self,
        threads: usize,
        repeats: usize,
        operation: impl Fn(usize, usize) -> Result<(), TxnError> + Sync,
    ) -> Result<f64, TxnError> {
        let line = StartLine::new(threads);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let run = |thread| {
                let (operation, line) = (&operation, &line);
                move || {
                    let mut result = Ok(());
                    for turn in 0..repeats {
                        line.wait(turn);
                        // A thread that fails keeps waiting at the line, so that the others end.
                        result = result.and_then(|()| operation(thread, turn));
                    }
                    line.wait(repeats);
                    result
                }
            };
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("operations do not panic"))
        })?;
        Ok(begin.elapsed().as_secs_f64() * 1e6 / repeats as f64)
    }
}

/// Line at which threads wait for each other at each turn. They spin: parking costs more than what is measured.
struct StartLine {
    threads: usize,
    arrived: AtomicUsize,
}

impl StartLine {
    fn new(threads: usize) -> StartLine {
        StartLine { threads, arrived: AtomicUsize::new(0) }
    }

    /// Waits until all threads have arrived in this turn, counted from 0.
    fn wait(&self, turn: usize) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut rounds = 0_u32;
        while self.arrived.load(Ordering::Acquire) < (turn + 1) * self.threads {
            std::hint::spin_loop();
            rounds += 1;
            if rounds.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
        }
    }
}
