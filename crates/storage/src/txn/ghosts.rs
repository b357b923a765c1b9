//! Runs of ghosts that a transaction need not scan twice.
//!
//! A transaction that repeatedly takes the first row of a range (a queue) leaves a ghost each time, and its ghosts cannot be
//! removed before it ends. So a scan records a range in which it found only ghosts, and the next scan that begins there
//! skips the range. This is sound if scans lock gaps: the transaction holds locks on all keys and gaps of such a run until
//! its end. So a row can enter the run only by the transaction's own insert, which discards the run, or by a rollback to a
//! savepoint, which discards all runs.

use crate::base::ids::IndexId;

/// Minimum number of ghosts that one scan must find in a run to record the run.
pub(crate) const MIN_GHOSTS: usize = 16;
/// Maximum number of recorded runs of a transaction.
const MAX_RUNS: usize = 4;

/// Key range of an index, from `from` up to but not including `to`, that contains only ghosts.
#[derive(Debug, Default)]
struct Run {
    index: IndexId,
    from: Vec<u8>,
    to: Vec<u8>,
}

/// Runs of ghosts that a transaction has locked.
#[derive(Debug, Default)]
pub(crate) struct GhostRuns {
    runs: Vec<Run>,
    /// Position in `runs` of the run that will be replaced next.
    oldest: usize,
}

impl GhostRuns {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Discards all runs.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.runs.clear();
        }
    }

    /// Discards the runs in an index, because a row may have been added to the index.
    #[cold]
    pub(crate) fn forget(&mut self, index: IndexId) {
        self.runs.retain(|run| run.index != index);
    }

    /// Returns the end of the run that contains `key`. `None` if no run contains it.
    pub(crate) fn end_of(&self, index: IndexId, key: &[u8]) -> Option<&[u8]> {
        let holds = |run: &&Run| run.index == index && run.from.as_slice() <= key && key < run.to.as_slice();
        self.runs.iter().find(holds).map(|run| run.to.as_slice())
    }

    /// Records that a scan from `from` found only ghosts before `to`. If `from` is inside or at the end of a run, the run is
    /// extended.
    #[cold]
    pub(crate) fn note(&mut self, index: IndexId, from: &[u8], to: &[u8]) {
        let goes_on = |run: &&mut Run| run.index == index && run.from.as_slice() <= from && from <= run.to.as_slice();
        if let Some(run) = self.runs.iter_mut().find(goes_on) {
            if run.to.as_slice() < to {
                run.to.clear();
                run.to.extend_from_slice(to);
            }
            return;
        }
        let run = Run { index, from: from.to_vec(), to: to.to_vec() };
        if self.runs.len() < MAX_RUNS {
            self.runs.push(run);
        } else {
            self.oldest = (self.oldest + 1) % MAX_RUNS;
            self.runs[self.oldest] = run;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::io::MemDisk;
    use crate::{Database, Isolation, Options, Table, Transaction, TxnError};

    const QUEUE: Table<u64, u64> = Table::new("queue");
    const ROWS: u64 = 2_500;

    fn filled() -> Database {
        let db = Options::new().open_on(Arc::new(MemDisk::new())).unwrap();
        db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&QUEUE, &key, &key))).unwrap();
        db
    }

    fn first(tx: &mut Transaction<'_>, from: u64) -> Option<u64> {
        let first = tx.range(&QUEUE, from..).unwrap().next();
        first.map(|row| row.unwrap().0)
    }

    /// Returns the number of ghosts that the last scan visited.
    fn passed(tx: &mut Transaction<'_>) -> usize {
        tx.txn.get_mut().slot.state().batch.ghosts
    }

    #[test]
    fn who_takes_the_first_row_again_and_again_passes_few_ghosts() {
        let db = filled();
        let mut tx = db.begin_at(Isolation::Serializable).unwrap();
        let mut met = 0;
        for key in 0..ROWS {
            assert_eq!(first(&mut tx, 0), Some(key));
            met += passed(&mut tx);
            tx.delete(&QUEUE, &key).unwrap();
        }
        assert!(met < 20 * ROWS as usize, "{met} ghosts met for {ROWS} rows");
        assert_eq!(first(&mut tx, 0), None);
        tx.commit().unwrap();
        let mut tx = db.begin_at(Isolation::Serializable).unwrap();
        assert_eq!(first(&mut tx, 0), None);
    }

    #[test]
    fn rows_that_come_back_among_the_ghosts_are_found() {
        let db = filled();
        let mut tx = db.begin_at(Isolation::Serializable).unwrap();
        let take = |tx: &mut Transaction<'_>, keys: std::ops::Range<u64>| {
            for key in keys {
                assert_eq!(first(tx, 0), Some(key));
                tx.delete(&QUEUE, &key).unwrap();
            }
        };
        take(&mut tx, 0..100);
        assert_eq!((first(&mut tx, 0), first(&mut tx, 50), first(&mut tx, 200)), (Some(100), Some(100), Some(200)));
        let within: Vec<_> = tx.range(&QUEUE, 10..90).unwrap().collect::<Result<_, TxnError>>().unwrap();
        assert_eq!(within, []);
        let up_to: Vec<_> = tx.range(&QUEUE, 10..=100).unwrap().collect::<Result<_, TxnError>>().unwrap();
        assert_eq!(up_to, [(100, 100)]);
        // The transaction makes an insert of its own.
        tx.insert(&QUEUE, &40, &0).unwrap();
        assert_eq!(first(&mut tx, 0), Some(40));
        tx.delete(&QUEUE, &40).unwrap();
        take(&mut tx, 100..120);
        // A statement is undone.
        let savepoint = tx.txn.get_mut().savepoint();
        take(&mut tx, 120..160);
        tx.txn.get_mut().rollback_to(savepoint).unwrap();
        assert_eq!(first(&mut tx, 0), Some(120));
        drop(tx);
        // The next transaction in the slot did not create these ghosts.
        let mut tx = db.begin_at(Isolation::Serializable).unwrap();
        assert_eq!(first(&mut tx, 0), Some(0));
    }

    #[test]
    fn where_gaps_are_not_locked_others_rows_are_seen() {
        let db = filled();
        let mut tx = db.begin_at(Isolation::ReadCommitted).unwrap();
        db.transact(|other| (0..100).try_for_each(|key| other.delete(&QUEUE, &key).map(drop))).unwrap();
        assert_eq!(first(&mut tx, 0), Some(100));
        db.transact(|other| other.insert(&QUEUE, &7, &7)).unwrap();
        assert_eq!(first(&mut tx, 0), Some(7));
    }
}
