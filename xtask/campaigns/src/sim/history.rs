//! What was committed, in commit order, replayed on the model: the states that a database may be found in.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::{Op, TablesState};

/// A commit's position in the log while it is unknown.
const UNDER_WAY: u64 = u64::MAX;

#[derive(Debug)]
struct Commit {
    /// Its end in the log; [`UNDER_WAY`] at first.
    lsn: u64,
    ops: Vec<Op>,
}

/// Transactions as they commit.
#[derive(Debug, Default)]
pub(crate) struct History {
    commits: Mutex<Vec<Option<Commit>>>,
}

/// The history up to a moment: the states in which a database that stops there may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Commits begun.
    pub(crate) begun: usize,
    /// Everything before this position in the log was acknowledged.
    pub(crate) acknowledged: u64,
}

impl History {
    fn commits(&self) -> MutexGuard<'_, Vec<Option<Commit>>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction is about to commit: from now on it may be found. Returns its number.
    pub(crate) fn begin(&self, ops: Vec<Op>) -> usize {
        let mut commits = self.commits();
        commits.push(Some(Commit { lsn: UNDER_WAY, ops }));
        commits.len() - 1
    }

    /// It has committed, up to this position in the log.
    pub(crate) fn committed(&self, number: usize, lsn: u64) {
        if let Some(Some(commit)) = self.commits().get_mut(number) {
            commit.lsn = lsn;
        }
    }

    /// It has not committed, and never will.
    pub(crate) fn withdraw(&self, number: usize) {
        if let Some(commit) = self.commits().get_mut(number) {
            *commit = None;
        }
    }

    /// Commits begun so far.
    pub(crate) fn begun(&self) -> usize {
        self.commits().len()
    }

    /// Replays everything on `base`, in commit order.
    ///
    /// # Errors
    /// A statement gave another answer than a serial run would have.
    pub(crate) fn replay(&self, base: &TablesState) -> Result<Replayed, String> {
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
        Ok(Replayed { order, hashes, last: state })
    }

    /// The state after the first `n` commits in order, for messages.
    pub(crate) fn state_after(&self, base: &TablesState, replayed: &Replayed, n: usize) -> TablesState {
        let commits = self.commits();
        let mut state = base.clone();
        for (_, number) in &replayed.order[..n.min(replayed.order.len())] {
            for op in commits[*number].iter().flat_map(|c| &c.ops) {
                // Replay has applied it before, so it succeeds.
                let _ = state.apply(op);
            }
        }
        state
    }
}

/// A history in order.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Place in the log and number of each commit.
    order: Vec<(u64, usize)>,
    /// Hash of the state before all, after the first, after the second ...
    hashes: Vec<u64>,
    /// The state after all.
    pub(crate) last: TablesState,
}

impl Replayed {
    /// How many commits a database may hold that stopped at `moment`.
    pub(crate) fn possible(&self, moment: Moment) -> RangeInclusive<usize> {
        let least = self.order.iter().take_while(|(lsn, _)| *lsn <= moment.acknowledged).count();
        let most = self.order.iter().take_while(|(_, number)| *number < moment.begun).count();
        // A commit that only reads takes the log's end, which may have been durable long before.
        least.min(most)..=most
    }

    /// Which of the possible states has this hash: the one with most commits.
    pub(crate) fn find(&self, moment: Moment, hash: u64) -> Option<usize> {
        self.possible(moment).rev().find(|n| self.hashes[*n] == hash)
    }

    /// How many commits make a state of this hash, possible or not: for messages.
    pub(crate) fn find_any(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().rposition(|h| *h == hash)
    }
}
