//! Measurement of loops: epochs on one thread, traces, injected conflicts.

use parking_lot::Mutex;
use speculate::{LoopTrace, OpKind, TracedOp};

#[cfg(feature = "measure")]
use super::database::Database;
#[cfg(feature = "measure")]
use super::options::Options;
use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::lock::EpochLock;

/// What an experiment changes about the loops of a database ([`Transaction::in_order`](crate::Transaction::in_order)).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopMeasurement {
    /// If true, the loop of a single thread runs in epochs too. It runs without them otherwise.
    pub epochs_on_one_thread: bool,
    /// If true, loops are traced: see [`Database::take_loop_traces`].
    pub trace: bool,
    /// Probability, for each record lock of an epoch, that the epoch is rolled back after it has run, and runs again. An epoch
    /// is rolled back at most once for this reason.
    pub inject: f64,
    /// Seed of the random numbers that decide this.
    pub seed: u64,
}

#[cfg(feature = "measure")]
impl Options {
    /// Measures or disturbs the loops of the database. For experiments.
    #[must_use]
    pub fn measure_loops(mut self, measurement: LoopMeasurement) -> Options {
        self.loop_measurement = measurement;
        self
    }
}

#[cfg(feature = "measure")]
impl Database {
    /// Returns the traces of the loops that have ended since the last call. The operations of an epoch are its requests for
    /// record locks, spread evenly over its time.
    pub fn take_loop_traces(&self) -> Vec<LoopTrace> {
        std::mem::take(&mut self.loops.measured.traces.lock())
    }

    /// Returns the number of epochs that were rolled back because of [`LoopMeasurement::inject`].
    pub fn injected_repeats(&self) -> u64 {
        self.loops.measured.injected.load(Ordering::Relaxed)
    }
}

/// State of measured loops.
pub(super) struct MeasuredLoops {
    pub(super) how: LoopMeasurement,
    random: Mutex<fastrand::Rng>,
    injected: AtomicU64,
    traces: Mutex<Vec<LoopTrace>>,
}

impl MeasuredLoops {
    pub(super) fn new(how: LoopMeasurement) -> MeasuredLoops {
        let random = Mutex::new(fastrand::Rng::with_seed(how.seed));
        MeasuredLoops { how, random, injected: AtomicU64::new(0), traces: Mutex::new(Vec::new()) }
    }

    pub(super) fn add_traces(&self, traces: Vec<LoopTrace>) {
        if !traces.is_empty() {
            self.traces.lock().extend(traces);
        }
    }

    /// Decides whether an epoch that has taken `locks` record locks is rolled back, and counts it if so.
    pub(super) fn injects(&self, locks: impl FnOnce() -> usize) -> bool {
        if self.how.inject <= 0.0 {
            return false;
        }
        let spared = (1.0 - self.how.inject).powf(locks() as f64);
        let injects = self.random.lock().f64() >= spared;
        self.injected.fetch_add(injects.into(), Ordering::Relaxed);
        injects
    }
}

/// Returns the operations of an epoch of `body_ns` nanoseconds that has taken the record locks `locks`.
pub(super) fn operations_of(locks: impl ExactSizeIterator<Item = EpochLock>, body_ns: u64) -> Vec<TracedOp> {
    let number = locks.len().max(1) as u64;
    let operation = |(i, lock): (usize, EpochLock)| TracedOp {
        at_ns: body_ns * i as u64 / number,
        kind: if lock.is_exclusive { OpKind::Write } else { OpKind::Read },
        keys: vec![lock.name],
        group: u64::from(lock.table),
    };
    locks.enumerate().map(operation).collect()
}

#[cfg(all(test, feature = "measure"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::io::MemDisk;
    use crate::{Database, Options, Table, TxnError};

    const ROWS: Table<u64, u64> = Table::new("rows");

    /// Runs a loop over 20 rows that are already there, and returns the database.
    fn after_loop(threads: usize, measurement: LoopMeasurement) -> Database {
        let options = Options::new().buffer_pool(64 << 20).loop_threads(threads).measure_loops(measurement);
        let db = options.open_on(Arc::new(MemDisk::new())).expect("a database in memory opens");
        db.transact(|tx| (0..20).try_for_each(|key| tx.put(&ROWS, &key, &key))).expect("no conflict");
        let mut tx = db.begin().expect("a slot is free");
        let mut sum = 0;
        let ran = tx.in_order(
            0..20_u64,
            |tx, key| {
                let row = tx.get(&ROWS, key)?.unwrap_or_default();
                tx.put(&ROWS, key, &(row + 1))?;
                Ok::<_, TxnError>(row)
            },
            |row| sum += row,
        );
        ran.expect("no conflict with another transaction");
        tx.commit().expect("the disk is in memory");
        assert_eq!(sum, 190);
        let tx = db.begin().expect("a slot is free");
        assert!((0..20).all(|key| tx.get(&ROWS, &key).expect("no conflict") == Some(key + 1)));
        drop(tx);
        db
    }

    #[test]
    fn one_thread_runs_epochs_if_asked() {
        assert_eq!(after_loop(1, LoopMeasurement::default()).stats().loop_epochs, 0);
        let measurement = LoopMeasurement { epochs_on_one_thread: true, ..LoopMeasurement::default() };
        assert_eq!(after_loop(1, measurement).stats().loop_epochs, 20);
    }

    #[test]
    fn a_traced_loop_tells_the_locks_of_each_epoch() {
        for threads in [1, 2] {
            let measurement = LoopMeasurement { epochs_on_one_thread: true, trace: true, ..LoopMeasurement::default() };
            let traces = after_loop(threads, measurement).take_loop_traces();
            let [trace] = &traces[..] else { panic!("{} traces of one loop", traces.len()) };
            assert!(trace.epochs.iter().map(|epoch| epoch.number).eq(0..20), "{trace:?}");
            let written = |epoch: &speculate::EpochTrace| {
                let written = epoch.operations.iter().filter(|op| op.kind == OpKind::Write);
                written.flat_map(|op| op.keys.clone()).collect::<Vec<_>>()
            };
            assert!(trace.epochs.iter().all(|epoch| written(epoch).len() == 1), "{trace:?}");
            assert_ne!(written(&trace.epochs[0]), written(&trace.epochs[1]));
            assert!(trace.epochs.iter().all(|epoch| epoch.body_ns > 0 && epoch.body_ns <= trace.elapsed_ns));
        }
    }

    #[test]
    fn an_injected_conflict_runs_an_epoch_once_more() {
        let always = LoopMeasurement { epochs_on_one_thread: true, inject: 1.0, seed: 1, ..LoopMeasurement::default() };
        let db = after_loop(2, always);
        assert_eq!(db.injected_repeats(), 20);
        assert!(db.stats().loop_repeats >= 20);
        assert_eq!(db.stats().loop_epochs, 20);
        let sometimes = LoopMeasurement { inject: 0.2, ..always };
        let injected = after_loop(2, sometimes).injected_repeats();
        assert!((1..20).contains(&injected), "{injected}");
    }
}
