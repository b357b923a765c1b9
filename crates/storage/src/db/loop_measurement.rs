//! Measurement of loops: epochs on one thread, traces, injected conflicts. `loop_figures` has the results.

use parking_lot::Mutex;
use speculate::{LoopTrace, OpKind, TracedOp};

use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::lock::EpochLock;

/// What an experiment changes about the loops of a database ([`Transaction::in_order`](crate::Transaction::in_order)).
#[cfg_attr(not(feature = "measure"), allow(unreachable_pub, reason = "exported with the feature"))]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopMeasurement {
    /// If true, the loop of a single thread runs in epochs too. It runs without them otherwise.
    pub epochs_on_one_thread: bool,
    /// If true, loops are traced: see [`Database::take_loop_traces`](crate::Database::take_loop_traces).
    pub trace: bool,
    /// Probability, for each record lock of an epoch, that the epoch is rolled back after it has run, and runs again. An epoch
    /// is rolled back at most once for this reason.
    pub inject: f64,
    /// Seed of the random numbers that decide this.
    pub seed: u64,
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

    #[cfg(feature = "measure")]
    pub(super) fn take_traces(&self) -> Vec<LoopTrace> {
        std::mem::take(&mut self.traces.lock())
    }

    /// Returns the number of epochs that were rolled back on purpose.
    #[cfg(feature = "measure")]
    pub(super) fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
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
