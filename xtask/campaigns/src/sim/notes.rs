//! Notes of workers and of the disk while a run goes on: commits, errors, and the moments at which power may be lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Crash, SimDisk};
use storage::{Lsn, StorageError, TxnError};

use super::history::{History, Moment};
use super::rng::Rng;
use super::sample::Sample;
use super::tables::{Rows, TABLES};

/// A moment at which power may be lost, and one state that the disk may then have.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The disk that is found when power is back.
    pub(crate) disk: SimDisk,
    /// When power was lost.
    pub(crate) when: When,
    /// The part of the unsynced data that survived.
    pub(crate) how: Crash,
    /// The commits that may and that must be found.
    pub(crate) moment: Moment,
}

/// When power is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Before a changing call of the disk: its number and kind.
    Before(u64, Call),
    /// When a commit that waited has just been answered, after so many changing calls.
    Answered(u64),
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            When::Before(number, call) => write!(f, "before call {number} ({call:?})"),
            When::Answered(number) => write!(f, "when a commit had been answered, after call {number}"),
        }
    }
}

/// An error of a run, and where it occurred.
#[derive(Clone, Debug)]
pub(crate) enum RunError {
    /// When opening.
    Open(String),
    /// From a transaction.
    Txn(TxnError),
    /// From a service or from closing.
    Service(StorageError),
    /// When a worker was to get threads for its loops.
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

/// How many speculative loops have run, to their ends or to an error, and what they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Looped {
    pub(crate) loops: u64,
    /// Iterations, or groups of them, that committed.
    pub(crate) epochs: u64,
    /// How often one of them was taken back and run again.
    pub(crate) violations: u64,
}

impl std::ops::AddAssign for Looped {
    fn add_assign(&mut self, other: Looped) {
        let Looped { loops, epochs, violations } = other;
        self.loops += loops;
        self.epochs += epochs;
        self.violations += violations;
    }
}

/// Notes of workers and of the disk while a run goes on.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) history: Arc<History>,
    /// Everything before this position in the log was acknowledged.
    pub(super) acknowledged: AtomicU64,
    cuts: Mutex<Cuts>,
    pub(super) errors: Mutex<Vec<RunError>>,
    pub(super) rows: Mutex<Option<[Rows; TABLES]>>,
    /// The speculative loops so far.
    pub(super) looped: Mutex<Looped>,
    pub(super) probe: Mutex<Option<Result<(), TxnError>>>,
}

/// The moments at which power may be lost.
#[derive(Debug)]
struct Cuts {
    /// Changing calls so far.
    calls: u64,
    chosen: Sample<Cut>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
    /// None yet; of the moments at which power may be lost at most `cuts` will be kept, chosen at random from the seed.
    pub(super) fn new(cuts: usize, seed: u64) -> Notes {
        Notes {
            history: Arc::default(),
            acknowledged: AtomicU64::default(),
            cuts: Mutex::new(Cuts { calls: 0, chosen: Sample::new(cuts, Rng::new(seed ^ 0x5a_3b1e)) }),
            errors: Mutex::default(),
            rows: Mutex::default(),
            looped: Mutex::default(),
            probe: Mutex::default(),
        }
    }

    /// The moments that were kept, in the order of the run.
    pub(super) fn take_cuts(&self) -> Vec<Cut> {
        lock(&self.cuts).chosen.take()
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

    /// Power may be lost before this call: keeps the disk as it may then be, if chance has it.
    pub(super) fn cut(&self, disk: &SimDisk, call: Call) {
        let moment = self.moment();
        let mut cuts = lock(&self.cuts);
        cuts.calls += 1;
        let number = cuts.calls;
        let one = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for how in [Crash::All, Crash::Nothing, Crash::Random(one), Crash::Random(!one)] {
            cuts.chosen.offer(|| Cut { disk: disk.crash(how), when: When::Before(number, call), how, moment });
        }
    }

    /// A commit that waited has just been answered: a power loss may take the unsynced data, but not that commit.
    pub(super) fn answered(&self, disk: &SimDisk) {
        let moment = self.moment();
        let mut cuts = lock(&self.cuts);
        let (when, how) = (When::Answered(cuts.calls), Crash::Nothing);
        cuts.chosen.offer(|| Cut { disk: disk.crash(how), when, how, moment });
    }
}
