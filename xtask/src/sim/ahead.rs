//! Statements as the iterations of a loop that runs ahead of its transaction, by speculation.
//!
//! The simulated workers pass a baton, so a loop has one worker, the simulated one itself, and what its seed determines is
//! exact. Epochs still read without locks, are confirmed in order, and run again: reads are violated on purpose, and other
//! simulated workers write between a read and its confirmation. Loops on several threads, against an oracle, are what
//! `torture speculate` is for.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use speculate::{
    Epoch, KeyAndValue, KeyRange, LoopError, Options, RangeRow, RangeStore, Seen, SeenRange, Speculator, Store, Written,
};
use storage::optimistic::{Peeker, Place};
use storage::{Database, Transaction, TxnError};

use super::caught::find;
use super::model::Op;
use super::statements::Hand;
use super::tables::{Tables, UNIQUE, hash_of};
use super::workload::{key, row};

/// Loops of this process that have run to their ends.
static LOOPS: AtomicU64 = AtomicU64::new(0);

/// How many loops have run to their ends.
pub(crate) fn loops() -> u64 {
    LOOPS.load(Ordering::Relaxed)
}

/// The simulated tables, as loops see them.
struct AllRows<'a, 'db> {
    db: &'a Database,
    tables: &'a Tables,
    /// Of the transaction.
    order: PhantomData<fn(&'db ())>,
}

/// Table and key.
type RowKey = (usize, Vec<u8>);

impl<'db> Store for AllRows<'_, 'db> {
    type Key = RowKey;
    type Value = Vec<u8>;
    type Stamp = Place;
    type Local = Peeker;
    type Order = Transaction<'db>;
    type Error = TxnError;

    fn announce(&self, peeker: &mut Peeker, keys: &[RowKey]) {
        self.db.announce_raw(peeker, keys.iter().map(|(table, key)| (self.tables[*table], key.as_slice(), 64)));
    }

    fn peek(&self, peeker: &mut Peeker, (table, key): &RowKey) -> Result<(Option<Vec<u8>>, Place), TxnError> {
        let (row, place) = self.db.peek_raw(peeker, &self.tables[*table], key)?;
        Ok((row.map(<[u8]>::to_vec), place))
    }

    fn confirm(&self, tx: &mut Transaction<'db>, seen: Seen<'_, Self>) -> Result<bool, TxnError> {
        let (table, key) = seen.key;
        tx.confirm_raw(&self.tables[*table], key, seen.stamp, seen.value.map(Vec::as_slice), seen.to_write)
    }

    fn read(&self, tx: &mut Transaction<'db>, (table, key): &RowKey) -> Result<Option<Vec<u8>>, TxnError> {
        tx.read_raw(&self.tables[*table], key, <[u8]>::to_vec)
    }

    fn write(&self, tx: &mut Transaction<'db>, write: &Written<'_, Self>) -> Result<(), TxnError> {
        let (table, key) = write.key;
        match write.value {
            Some(row) => tx.put_raw(&self.tables[*table], key, row),
            None => tx.delete_raw(&self.tables[*table], key).map(drop),
        }
    }

    fn write_all(&self, tx: &mut Transaction<'db>, writes: &[Written<'_, Self>]) -> Result<(), TxnError> {
        for (table, handle) in self.tables.iter().enumerate() {
            let replaced = writes.iter().filter_map(|write| {
                let seen = write.seen.as_ref().filter(|seen| write.key.0 == table && seen.value.is_some())?;
                Some((write.key.1.as_slice(), *seen.stamp, write.value?.as_slice()))
            });
            tx.replace_many_raw(handle, replaced)?;
        }
        let replaces = |write: &Written<'_, Self>| {
            write.value.is_some() && write.seen.as_ref().is_some_and(|seen| seen.value.is_some())
        };
        writes.iter().filter(|write| !replaces(write)).try_for_each(|write| self.write(tx, write))
    }
}

impl RangeStore for AllRows<'_, '_> {
    fn peek_range(
        &self,
        peeker: &mut Peeker,
        range: &KeyRange<RowKey>,
        most: usize,
    ) -> Result<Vec<RangeRow<Self>>, TxnError> {
        let (table, mut rows) = (range.first.0, Vec::new());
        let ends = (&range.first.1[..], &range.last.1[..]);
        self.db.peek_range_raw(peeker, &self.tables[table], ends, most, |key, row, stamp| {
            rows.push(RangeRow { key: (table, key.to_vec()), value: row.to_vec(), stamp });
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn confirm_range(&self, tx: &mut Self::Order, seen: SeenRange<'_, Self>) -> Result<bool, TxnError> {
        let (mut expected, mut same) = (seen.rows(), true);
        let ends = (&seen.range.first.1[..], &seen.range.last.1[..]);
        tx.lock_range_raw(&self.tables[seen.range.first.0], ends, seen.most, seen.to_write, |key, row| {
            same = expected.next().is_some_and(|((_, k), value)| k == key && value == row);
            if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(same && expected.next().is_none())
    }

    fn read_range(
        &self,
        tx: &mut Self::Order,
        range: &KeyRange<RowKey>,
        most: usize,
    ) -> Result<Vec<KeyAndValue<Self>>, TxnError> {
        let (table, mut rows) = (range.first.0, Vec::new());
        let ends = (&range.first.1[..], &range.last.1[..]);
        tx.lock_range_raw(&self.tables[table], ends, most, false, |key, row| {
            rows.push(((table, key.to_vec()), row.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

/// What an iteration does.
#[derive(Clone, Debug)]
enum Step {
    Get(RowKey),
    Put(RowKey, Vec<u8>),
    Delete(RowKey),
    /// All rows between two keys of a table.
    Scan(usize, Vec<u8>, Vec<u8>),
}

/// Iterations of a loop, at most.
const ITERATIONS: u64 = 5;
/// Steps of an iteration, at most.
const STEPS: u64 = 4;

impl Hand<'_, '_> {
    /// A loop of random statements on rows; returns their answers, and none if what it did could not be undone after an
    /// error, so that the transaction must not go on.
    ///
    /// # Errors
    /// Those of the engine. The loop has had no effect then.
    pub(crate) fn run_ahead(&mut self) -> Result<Option<Vec<Op>>, TxnError> {
        let items: Vec<Vec<Step>> = (0..1 + self.rng.below(ITERATIONS))
            .map(|_| (0..self.rng.below(STEPS)).map(|_| self.step()).collect())
            .collect();
        let (number, operations) = self.rng.pick(&[(1, 1), (8, 2), (usize::MAX, 1)]);
        let options = Options::new()
            .workers(1)
            .grain(1 + self.rng.index(3))
            .sub_epochs(number, operations)
            .inject_violations(self.rng.pick(&[0.0, 0.05, 0.3]), self.rng.next());
        let announces = self.rng.once_in(2);
        let Ok(mut speculator) = Speculator::new(options) else {
            find("a speculator of one worker needs no thread".to_owned())
        };
        let savepoint = self.tx.savepoint();
        let rows = AllRows { db: self.db, tables: self.tables, order: PhantomData };
        let mut answers = Vec::new();
        let body = |epoch: &mut Epoch<'_, AllRows<'_, '_>>, steps: &Vec<Step>| iterate(epoch, steps, announces);
        let ran = speculator.collect(&rows, self.tx, items, body, |ops: Vec<Op>| answers.extend(ops));
        match ran {
            Ok(()) => {
                LOOPS.fetch_add(1, Ordering::Relaxed);
                Ok(Some(answers))
            }
            Err(LoopError::Store(error) | LoopError::Body(error)) => {
                let is_victim = matches!(error, TxnError::Deadlock { .. });
                if !is_victim && self.tx.rollback_to(savepoint).is_err() {
                    return Ok(None);
                }
                Err(error)
            }
            Err(other) => find(format!("a loop of deterministic bodies: {other:?}")),
        }
    }

    fn step(&mut self) -> Step {
        // A duplicate in the unique index would be an answer in the middle of an epoch.
        let table = self.rng.index(UNIQUE);
        let n = self.rng.below(self.profile.keys);
        match self.rng.below(10) {
            0..3 => Step::Get((table, key(n))),
            3 => Step::Delete((table, key(n))),
            4 => Step::Scan(table, key(n), key(n + self.rng.below(12))),
            _ => Step::Put((table, key(n)), row(self.rng, self.profile)),
        }
    }
}

fn iterate(epoch: &mut Epoch<'_, AllRows<'_, '_>>, steps: &[Step], announces: bool) -> Result<Vec<Op>, TxnError> {
    if announces {
        let keys: Vec<RowKey> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Get(key) | Step::Put(key, _) | Step::Delete(key) => Some(key.clone()),
                Step::Scan(..) => None,
            })
            .collect();
        epoch.announce(&keys);
    }
    let answer = |step: &Step| -> Result<Op, TxnError> {
        Ok(match step.clone() {
            Step::Get((table, key)) => {
                let found = epoch.get(&(table, key.clone()))?;
                Op::Get { table, key, found }
            }
            Step::Put((table, key), row) => {
                epoch.put((table, key.clone()), row.clone());
                Op::Put { table, key, row, done: true }
            }
            Step::Delete((table, key)) => {
                let done = epoch.get(&(table, key.clone()))?.is_some();
                epoch.delete((table, key.clone()));
                Op::Delete { table, key, done }
            }
            Step::Scan(table, from, to) => {
                let mut found = (0, 0u64);
                epoch.each((table, from.clone()), (table, to.clone()), usize::MAX, |(_, key), row| {
                    found = (found.0 + 1, found.1.wrapping_add(hash_of(table, key, row)));
                    ControlFlow::Continue(())
                })?;
                Op::Scan { table, from, to, found }
            }
        })
    };
    steps.iter().map(answer).collect()
}
