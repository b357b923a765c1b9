//! Ghosts that a transaction need not scan twice.
//!
//! A transaction that takes the first row of a range again and again (a queue) leaves a ghost each time, and its ghosts
//! cannot be removed before it ends. So a scan notes how far it met nothing but ghosts, and the next one from there
//! begins behind them. That is sound where scans lock gaps: the transaction holds locks on all keys and gaps of such a
//! run until its end, so no row can come into it but by the transaction's own insert, which makes it forget the run, or
//! by a rollback to a savepoint, which makes it forget all runs.

use crate::base::ids::IndexId;

/// A run of at least so many ghosts in one scan is noted.
pub(crate) const WORTH: usize = 16;
/// Runs that are remembered.
const MOST: usize = 4;

/// From this key on, and before that one, an index holds nothing but ghosts.
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
    /// The run that is replaced when there are too many.
    oldest: usize,
}

impl GhostRuns {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all runs.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.runs.clear();
        }
    }

    /// Forgets the runs of an index: a row may have come into it.
    #[cold]
    pub(crate) fn forget(&mut self, index: IndexId) {
        self.runs.retain(|run| run.index != index);
    }

    /// The end of the run that `key` lies in.
    pub(crate) fn end_of(&self, index: IndexId, key: &[u8]) -> Option<&[u8]> {
        let holds = |run: &&Run| run.index == index && run.from.as_slice() <= key && key < run.to.as_slice();
        self.runs.iter().find(holds).map(|run| run.to.as_slice())
    }

    /// Notes that a scan from `from` has met nothing but ghosts before `to`, or nothing else since it began behind a
    /// run.
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
        if self.runs.len() < MOST {
            self.runs.push(run);
        } else {
            self.oldest = (self.oldest + 1) % MOST;
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

    /// Ghosts that the last scan visited.
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
        // Its own insert.
        tx.insert(&QUEUE, &40, &0).unwrap();
        assert_eq!(first(&mut tx, 0), Some(40));
        tx.delete(&QUEUE, &40).unwrap();
        take(&mut tx, 100..120);
        // A statement that is undone.
        let savepoint = tx.txn.get_mut().savepoint();
        take(&mut tx, 120..160);
        tx.txn.get_mut().rollback_to(savepoint).unwrap();
        assert_eq!(first(&mut tx, 0), Some(120));
        drop(tx);
        // The next transaction in the slot, which did not leave these ghosts.
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
