//! History of a run: its committed transactions. Their replay on the model in commit order yields the valid states of a
//! database after a crash.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::{Op, TablesState};

/// Log position of a commit that is in progress.
const IN_PROGRESS: u64 = u64::MAX;

#[derive(Debug)]
struct Commit {
    /// Log position of the end of the commit; [`IN_PROGRESS`] until the commit succeeds.
    lsn: u64,
    ops: Vec<Op>,
}

/// Committed transactions, in the order in which their commits began.
#[derive(Debug, Default)]
pub(crate) struct History {
    commits: Mutex<Vec<Option<Commit>>>,
}

/// Point in time of a history. It determines the valid states of a database that stops at this point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Number of commits that have begun before this point.
    pub(crate) begun: usize,
    /// Log position up to which all commits have been acknowledged before this point.
    pub(crate) acknowledged: u64,
}

impl History {
    fn commits(&self) -> MutexGuard<'_, Vec<Option<Commit>>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a commit begins. From now on, a recovered database may contain the transaction. Returns the number of
    /// the commit.
    pub(crate) fn begin(&self, ops: Vec<Op>) -> usize {
        let mut commits = self.commits();
        commits.push(Some(Commit { lsn: IN_PROGRESS, ops }));
        commits.len() - 1
    }

    /// Records that a commit has succeeded, and the log position of its end.
    pub(crate) fn committed(&self, number: usize, lsn: u64) {
        if let Some(Some(commit)) = self.commits().get_mut(number) {
            commit.lsn = lsn;
        }
    }

    /// Records that a commit has failed and will never take effect.
    pub(crate) fn withdraw(&self, number: usize) {
        if let Some(commit) = self.commits().get_mut(number) {
            *commit = None;
        }
    }

    /// Returns the number of commits that have begun.
    pub(crate) fn begun(&self) -> usize {
        self.commits().len()
    }

    /// Replays all commits on the state `base`, in commit order.
    ///
    /// # Errors
    /// Returns an error if the answer of a statement differs from its answer in the replay.
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

    /// Returns the state after the first `n` commits in commit order, for messages.
    pub(crate) fn state_after(&self, base: &TablesState, replay: &Replay, n: usize) -> TablesState {
        let commits = self.commits();
        let mut state = base.clone();
        for (_, number) in &replay.order[..n.min(replay.order.len())] {
            for op in commits[*number].iter().flat_map(|c| &c.ops) {
                // `replay` has already applied the statement successfully, so no error occurs.
                let _ = state.apply(op);
            }
        }
        state
    }
}

/// Result of a replay: the order of the commits, and the states after them.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Log position and number of each commit, in commit order.
    order: Vec<(u64, usize)>,
    /// Hashes of the states: before the first commit, after the first, after the second, and so on.
    hashes: Vec<u64>,
    /// State after all commits.
    pub(crate) last: TablesState,
}

impl Replay {
    /// Returns the range of valid numbers of commits in a database that stopped at `moment`.
    pub(crate) fn possible(&self, moment: Moment) -> RangeInclusive<usize> {
        let least = self.order.iter().take_while(|(lsn, _)| *lsn <= moment.acknowledged).count();
        let most = self.order.iter().take_while(|(_, number)| *number < moment.begun).count();
        // The log position of a read-only commit is the end of the log, which may have been durable before the commit began.
        // So `least` may exceed `most`.
        least.min(most)..=most
    }

    /// Finds the largest valid number of commits after which the state has this hash.
    pub(crate) fn find(&self, moment: Moment, hash: u64) -> Option<usize> {
        self.possible(moment).rev().find(|n| self.hashes[*n] == hash)
    }

    /// Finds the largest number of commits after which the state has this hash, valid or not. For messages.
    pub(crate) fn find_any(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().rposition(|h| *h == hash)
    }
}
