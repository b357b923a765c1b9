//! Steps of a transaction as iterations of a speculative loop. Worker threads execute the steps speculatively. The
//! transaction then confirms their reads in order.
//!
//! Only the list-append form can run ahead: the register form draws a version while the row is locked, and an iteration
//! that runs ahead holds no lock. Only serializable isolation is supported: at lower levels nothing protects a row that was
//! found absent, and a list written in its place would overwrite the list of another transaction.

use std::fmt;
use std::ops::ControlFlow;

use speculate::{
    BuildError, Epoch, KeyAndValue, KeyRange, LoopError, Options, RangeRow, RangeStore, Seen, SeenRange, Speculator,
    Store, Written,
};
use storage::optimistic::{Peeker, Place};
use storage::{Database, OpenTable, Transaction, TxnError};

use super::shared_state::{decoded, encoded, numbers};
use super::{Op, SharedState};

/// Number of threads that execute the steps of a transaction.
const WORKERS: usize = 2;

/// Step of a list-append transaction, with the keys of its rows.
pub(super) enum ListStep {
    Append {
        key: u64,
        number: u64,
    },
    Read(u64),
    /// Read of a range of keys, both ends included.
    Range(u64, u64),
}

/// Store of the speculative loops: gives the loops access to the rows of a history run.
struct Lists<'db> {
    db: &'db Database,
    rows: OpenTable<u64, Vec<u8>>,
}

/// Executor that runs a session's steps ahead of their transaction.
pub(super) struct AheadSteps<'db> {
    lists: Lists<'db>,
    speculator: Speculator<Lists<'db>>,
}

impl fmt::Debug for AheadSteps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AheadSteps").finish_non_exhaustive()
    }
}

impl<'db> AheadSteps<'db> {
    /// Creates the executor.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn new(shared: &SharedState<'db>) -> Result<AheadSteps<'db>, BuildError> {
        let speculator = Speculator::new(Options::new().workers(WORKERS))?;
        Ok(AheadSteps { lists: Lists { db: shared.db, rows: shared.rows }, speculator })
    }

    /// Runs `steps`. Appends the operations of the steps, with the observed values, to `ops` in order.
    pub(super) fn run(
        &mut self,
        tx: &mut Transaction<'db>,
        steps: Vec<ListStep>,
        ops: &mut Vec<Op>,
    ) -> Result<(), TxnError> {
        // A transaction can move between threads: the thread that holds the token continues it.
        tx.hand_over();
        let then = |_: &mut Transaction<'db>, seen: Vec<Op>| {
            ops.extend(seen);
            Ok(())
        };
        self.speculator.run(&self.lists, tx, steps, step, then).map_err(|error| match error {
            LoopError::Body(error) | LoopError::Store(error) => error,
            other => unreachable!("a fault of this program: {other}"),
        })
    }
}

/// Executes one step in an epoch. The result depends only on the rows that the step reads.
fn step<'db>(epoch: &mut Epoch<'_, Lists<'db>>, step: &ListStep) -> Result<Vec<Op>, TxnError> {
    match *step {
        ListStep::Append { key, number } => {
            let mut list = epoch.get(&key)?.unwrap_or_default();
            list.extend_from_slice(&(number as u32).to_le_bytes());
            epoch.put(key, list);
            Ok(vec![Op::Append(key, number)])
        }
        ListStep::Read(key) => {
            Ok(vec![Op::List(key, epoch.view(&key, |row| row.map_or_else(Vec::new, |row| numbers(row)))?)])
        }
        ListStep::Range(from, to) => {
            let mut seen: Vec<Op> = (from..=to).map(|key| Op::List(key, Vec::new())).collect();
            epoch.each(from, to, usize::MAX, |key, row| {
                if let Some(Op::List(_, list)) = seen.get_mut((key - from) as usize) {
                    *list = numbers(row);
                }
                ControlFlow::Continue(())
            })?;
            Ok(seen)
        }
    }
}

impl<'db> Store for Lists<'db> {
    type Key = u64;
    type Value = Vec<u8>;
    type Stamp = Place;
    type Local = Peeker;
    type Order = Transaction<'db>;
    type Error = TxnError;

    fn size(&self, _: &u64, list: Option<&Vec<u8>>) -> usize {
        size_of::<u64>() + list.map_or(0, |list| size_of::<Vec<u8>>() + list.len())
    }

    fn peek(&self, peeker: &mut Peeker, key: &u64) -> Result<(Option<Vec<u8>>, Place), TxnError> {
        let (row, place) = self.db.raw().peek(peeker, &self.rows, &encoded(*key))?;
        Ok((row.map(<[u8]>::to_vec), place))
    }

    fn confirm(&self, tx: &mut Transaction<'db>, seen: Seen<'_, Self>) -> Result<bool, TxnError> {
        let row = seen.value.map(Vec::as_slice);
        tx.raw_mut().confirm(&self.rows, &encoded(*seen.key), seen.stamp, row, seen.to_write)
    }

    fn read(&self, tx: &mut Transaction<'db>, key: &u64) -> Result<Option<Vec<u8>>, TxnError> {
        tx.raw().read(&self.rows, &encoded(*key), <[u8]>::to_vec)
    }

    fn write(&self, tx: &mut Transaction<'db>, write: &Written<'_, Self>) -> Result<(), TxnError> {
        let key = encoded(*write.key);
        match write.value {
            Some(row) => tx.raw_mut().put(&self.rows, &key, row),
            None => tx.raw_mut().delete(&self.rows, &key).map(drop),
        }
    }
}

impl<'db> RangeStore for Lists<'db> {
    fn peek_range(
        &self,
        peeker: &mut Peeker,
        range: &KeyRange<u64>,
        most: usize,
    ) -> Result<Vec<RangeRow<Self>>, TxnError> {
        let mut rows = Vec::new();
        let ends = (encoded(range.first), encoded(range.last));
        self.db.raw().peek_range(peeker, &self.rows, (&ends.0, &ends.1), most, |key, row, stamp| {
            if let Some(key) = decoded(key) {
                rows.push(RangeRow { key, value: row.to_vec(), stamp });
            }
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn confirm_range(&self, tx: &mut Transaction<'db>, seen: SeenRange<'_, Self>) -> Result<bool, TxnError> {
        let (mut expected, mut same) = (seen.rows(), true);
        let ends = (encoded(seen.range.first), encoded(seen.range.last));
        tx.raw_mut().lock_range(&self.rows, (&ends.0, &ends.1), seen.most, seen.to_write, |key, row| {
            same = expected.next().is_some_and(|(seen, value)| decoded(key) == Some(*seen) && value == row);
            if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(same && expected.next().is_none())
    }

    fn read_range(
        &self,
        tx: &mut Transaction<'db>,
        range: &KeyRange<u64>,
        most: usize,
    ) -> Result<Vec<KeyAndValue<Self>>, TxnError> {
        let mut rows = Vec::new();
        let ends = (encoded(range.first), encoded(range.last));
        tx.raw_mut().lock_range(&self.rows, (&ends.0, &ends.1), most, false, |key, row| {
            if let Some(key) = decoded(key) {
                rows.push((key, row.to_vec()));
            }
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}
