//! Record of a run, written by its workers and its disk: commits, errors, and points of possible power loss.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Crash, SimDisk};
use storage::{Lsn, StorageError, TxnError};

use super::history::{History, Moment};
use super::rng::Rng;
use super::sample::Sample;
use super::tables::{Rows, TABLES};

/// Point of a possible power loss, and one state of the disk that the power loss may leave.
#[derive(Debug)]
pub(crate) struct PowerLoss {
    /// Disk after the power loss.
    pub(crate) disk: SimDisk,
    /// Time of the power loss.
    pub(crate) when: PowerLossTime,
    /// Part of the unsynced data that survives the power loss.
    pub(crate) how: Crash,
    /// Point in time of the history. It determines the commits that recovery may find, and the commits that it must find.
    pub(crate) moment: Moment,
}

/// Time of a power loss in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PowerLossTime {
    /// Before a changing call of the disk. Contains the number and kind of the call.
    Before(u64, Call),
    /// Just after a commit that waits for its durability was acknowledged. Contains the number of changing calls before this
    /// time.
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

/// Error of a run, by the operation that returned it.
#[derive(Clone, Debug)]
pub(crate) enum RunError {
    /// Error of opening the database.
    Open(String),
    /// Error of a transaction.
    Txn(TxnError),
    /// Error of a background service, or of closing the database.
    Service(StorageError),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Open(error) => write!(f, "open: {error}"),
            RunError::Txn(error) => write!(f, "transaction: {error}"),
            RunError::Service(error) => write!(f, "service: {error}"),
        }
    }
}

/// Counters of the loops that have ended, with or without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct LoopCounters {
    pub(crate) loops: u64,
    /// Number of epochs. An epoch is an iteration.
    pub(crate) epochs: u64,
    /// Number of times that an epoch was rolled back and ran again.
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
    /// Counters of all loops that have ended.
    pub(super) loop_counters: Mutex<LoopCounters>,
    pub(super) probe: Mutex<Option<Result<(), TxnError>>>,
}

/// Random sample of the points of possible power loss.
#[derive(Debug)]
struct PowerLossSample {
    /// Number of changing calls of the disk so far.
    calls: u64,
    chosen: Sample<PowerLoss>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
    /// Creates an empty record with a random sample of at most `power_losses` points of possible power loss.
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

    /// Takes the sampled points of possible power loss, in the order of the run.
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

    /// Offers the possible disk states after a power loss just before this call to the sample.
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

    /// Offers the disk state after a power loss just after an acknowledged commit to the sample. All unsynced data is lost,
    /// but the commit must survive.
    pub(super) fn offer_after_commit(&self, disk: &SimDisk) {
        let moment = self.moment();
        let mut power_losses = lock(&self.power_losses);
        let (when, how) = (PowerLossTime::AfterCommit(power_losses.calls), Crash::Nothing);
        power_losses.chosen.offer(|| PowerLoss { disk: disk.crash(how), when, how, moment });
    }
}
