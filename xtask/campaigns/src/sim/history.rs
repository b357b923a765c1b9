//! The committed transactions in commit order, replayed on the model: the valid states of a database after a crash.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::{Op, TablesState};

/// Position in the log of a commit that is in progress.
const IN_PROGRESS: u64 = u64::MAX;

#[derive(Debug)]
struct Commit {
    /// End of the commit in the log; [`IN_PROGRESS`] at first.
    lsn: u64,
    ops: Vec<Op>,
}

/// The transactions in the order in which their commits begin.
#[derive(Debug, Default)]
pub(crate) struct History {
    commits: Mutex<Vec<Option<Commit>>>,
}

/// A point in time of the history. It determines the valid states of a database that stops there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Number of commits that have begun.
    pub(crate) begun: usize,
    /// Log position up to which all commits are acknowledged.
    pub(crate) acknowledged: u64,
}

impl History {
    fn commits(&self) -> MutexGuard<'_, Vec<Option<Commit>>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a commit begins: from now on a recovered database may contain it. Returns its number.
    pub(crate) fn begin(&self, ops: Vec<Op>) -> usize {
        let mut commits = self.commits();
        commits.push(Some(Commit { lsn: IN_PROGRESS, ops }));
        commits.len() - 1
    }

    /// Records that a commit has succeeded, and its end in the log.
    pub(crate) fn committed(&self, number: usize, lsn: u64) {
        if let Some(Some(commit)) = self.commits().get_mut(number) {
            commit.lsn = lsn;
        }
    }

    /// Records that a commit has failed, and will never take effect.
    pub(crate) fn withdraw(&self, number: usize) {
        if let Some(commit) = self.commits().get_mut(number) {
            *commit = None;
        }
    }

    /// Number of commits that have begun.
    pub(crate) fn begun(&self) -> usize {
        self.commits().len()
    }

    /// Replays all commits on `base`, in commit order.
    ///
    /// # Errors
    /// The answer of a statement differs from the answer in a serial run.
    pub(crate) fn replay(&self, base: &TablesState) -> Result<Replay, String> {
        let commits = self.commits();
        let mut order: Vec<(u64, usize)> =
            commits.iter().enumerate().filter_map(|(number, c)| Some((c.as_ref()?.lsn, number))).collect();
        order.sort_unstable();
        let mut state = base.clone();
        let mut hashes = vec![state.hash()];
        for (at, (_, number)) in order.iter().enumerate() {
            for op in commits[*number].iter().flat_map(|c| &c.ops) {
                state.apply(op).map_err(|e| format!("commit {at} of {}: {e}", order.len()))?;
            }
            hashes.push(state.hash());
        }
        Ok(Replay { order, hashes, last: state })
    }

    /// The state after the first `n` commits in commit order, for messages.
    pub(crate) fn state_after(&self, base: &TablesState, replay: &Replay, n: usize) -> TablesState {
        let commits = self.commits();
        let mut state = base.clone();
        for (_, number) in &replay.order[..n.min(replay.order.len())] {
            for op in commits[*number].iter().flat_map(|c| &c.ops) {
                // `replay` has applied the statement before, so it succeeds.
                let _ = state.apply(op);
            }
        }
        state
    }
}

/// A history in commit order.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Position in the log and number of each commit.
    order: Vec<(u64, usize)>,
    /// Hashes of the state before the first commit, after the first, after the second ...
    hashes: Vec<u64>,
    /// The state after all commits.
    pub(crate) last: TablesState,
}

impl Replay {
    /// Valid numbers of commits in a database that stopped at `moment`.
    pub(crate) fn possible(&self, moment: Moment) -> RangeInclusive<usize> {
        let least = self.order.iter().take_while(|(lsn, _)| *lsn <= moment.acknowledged).count();
        let most = self.order.iter().take_while(|(_, number)| *number < moment.begun).count();
        // A read-only commit takes the end of the log, which may have been durable long before.
        least.min(most)..=most
    }

    /// Finds the largest valid number of commits that results in a state with this hash.
    pub(crate) fn find(&self, moment: Moment, hash: u64) -> Option<usize> {
        self.possible(moment).rev().find(|n| self.hashes[*n] == hash)
    }

    /// Finds a number of commits that results in a state with this hash, valid or not. For messages.
    pub(crate) fn find_any(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().rposition(|h| *h == hash)
    }
}
