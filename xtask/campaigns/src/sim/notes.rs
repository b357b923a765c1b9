//! Record of a run by its workers and its disk: commits, errors, and points of possible power loss.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Crash, SimDisk};
use storage::{Lsn, StorageError, TxnError};

use super::history::{History, Moment};
use super::rng::Rng;
use super::sample::Sample;
use super::tables::{Rows, TABLES};

/// A point of possible power loss, and one state of the disk that it may leave.
#[derive(Debug)]
pub(crate) struct PowerLoss {
    /// The disk after the power loss.
    pub(crate) disk: SimDisk,
    /// Time of the power loss.
    pub(crate) when: PowerLossTime,
    /// The part of the unsynced data that survives.
    pub(crate) how: Crash,
    /// Determines the commits that recovery may find and those that it must find.
    pub(crate) moment: Moment,
}

/// Time of a power loss.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PowerLossTime {
    /// Before this changing call of the disk: its number and kind.
    Before(u64, Call),
    /// Just after the acknowledgement of a waiting commit; the number of changing calls up to then.
    AfterCommit(u64),
}

impl std::fmt::Display for PowerLossTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PowerLossTime::Before(number, call) => write!(f, "before call {number} ({call:?})"),
            PowerLossTime::AfterCommit(number) => write!(f, "when a commit had been answered, after call {number}"),
        }
    }
}

/// An error of a run, and its origin.
#[derive(Clone, Debug)]
pub(crate) enum RunError {
    /// From opening the database.
    Open(String),
    /// From a transaction.
    Txn(TxnError),
    /// From a background service or from closing.
    Service(StorageError),
    /// From the creation of threads for speculative loops.
    Loops(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Open(error) => write!(f, "open: {error}"),
            RunError::Txn(error) => write!(f, "transaction: {error}"),
            RunError::Service(error) => write!(f, "service: {error}"),
            RunError::Loops(error) => write!(f, "loops: {error}"),
        }
    }
}

/// Counters of the speculative loops that have run, to their end or to an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct LoopCounters {
    pub(crate) loops: u64,
    /// Number of committed epochs: iterations, or groups of them.
    pub(crate) epochs: u64,
    /// Number of violations: epochs that were undone and retried.
    pub(crate) violations: u64,
}

impl std::ops::AddAssign for LoopCounters {
    fn add_assign(&mut self, other: LoopCounters) {
        let LoopCounters { loops, epochs, violations } = other;
        self.loops += loops;
        self.epochs += epochs;
        self.violations += violations;
    }
}

/// Record of a run by its workers and its disk.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) history: Arc<History>,
    /// Log position up to which all commits are acknowledged.
    pub(super) acknowledged: AtomicU64,
    power_losses: Mutex<PowerLossSample>,
    pub(super) errors: Mutex<Vec<RunError>>,
    pub(super) rows: Mutex<Option<[Rows; TABLES]>>,
    /// Counters of the speculative loops so far.
    pub(super) loop_counters: Mutex<LoopCounters>,
    pub(super) probe: Mutex<Option<Result<(), TxnError>>>,
}

/// The points of possible power loss.
#[derive(Debug)]
struct PowerLossSample {
    /// Number of changing calls so far.
    calls: u64,
    chosen: Sample<PowerLoss>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
    /// An empty record, for a random sample of at most `power_losses` points of possible power loss.
    pub(super) fn new(power_losses: usize, seed: u64) -> Notes {
        Notes {
            history: Arc::default(),
            acknowledged: AtomicU64::default(),
            power_losses: Mutex::new(PowerLossSample {
                calls: 0,
                chosen: Sample::new(power_losses, Rng::new(seed ^ 0x5a_3b1e)),
            }),
            errors: Mutex::default(),
            rows: Mutex::default(),
            loop_counters: Mutex::default(),
            probe: Mutex::default(),
        }
    }

    /// The sampled points, in the order of the run.
    pub(super) fn take_power_losses(&self) -> Vec<PowerLoss> {
        lock(&self.power_losses).chosen.take()
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { begun: self.history.begun(), acknowledged: self.acknowledged.load(Ordering::SeqCst) }
    }

    pub(super) fn acknowledge(&self, lsn: Lsn) {
        self.acknowledged.fetch_max(lsn.0, Ordering::SeqCst);
    }

    pub(super) fn error(&self, error: RunError) {
        lock(&self.errors).push(error);
    }

    /// Offers the states of the disk after a power loss before this call to the sample.
    pub(super) fn offer_power_losses(&self, disk: &SimDisk, call: Call) {
        let moment = self.moment();
        let mut power_losses = lock(&self.power_losses);
        power_losses.calls += 1;
        let number = power_losses.calls;
        let one = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for how in [Crash::All, Crash::Nothing, Crash::Random(one), Crash::Random(!one)] {
            power_losses.chosen.offer(|| PowerLoss {
                disk: disk.crash(how),
                when: PowerLossTime::Before(number, call),
                how,
                moment,
            });
        }
    }

    /// Offers the state of the disk after a power loss just after an acknowledged commit to the sample. The unsynced data is
    /// lost, but that commit must survive.
    pub(super) fn offer_after_commit(&self, disk: &SimDisk) {
        let moment = self.moment();
        let mut power_losses = lock(&self.power_losses);
        let (when, how) = (PowerLossTime::AfterCommit(power_losses.calls), Crash::Nothing);
        power_losses.chosen.offer(|| PowerLoss { disk: disk.crash(how), when, how, moment });
    }
}
