//! Speculative loops over the storage engine: random ones against a sequential oracle, and loops beside ordinary transactions
//! that change the same rows.
//!
//! Threads run as the machine lets them, so a seed repeats the work and not the schedule.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use speculate::{
    Change, Committer, Epoch, Forwarding, KeyAndValue, KeyRange, LoopError, Options, RangeRow, RangeStore, Seen,
    SeenRange, Speculator, Store, Written,
};
use storage::disk::MemDisk;
use storage::optimistic::{Peeker, Place};
use storage::{Database, Durability, OpenTable, Raw, Table, Transaction, TxnError};

use super::Plan;
use super::report::{Progress, Report};
use super::seeds::{self, Tried};
use crate::sim::rng::Rng;

/// Loops of a seed.
const LOOPS: u64 = 20;
/// Keys are few, so that dependences are many.
const KEYS: u64 = 24;
/// What all rows of the second kind of loop hold together.
const TOTAL: u64 = 100 * KEYS;
const TABLE: Table<(), ()> = Table::new("rows");

/// Runs the campaign.
pub(super) fn run(plan: &Plan, progress: &Progress) -> Report {
    seeds::each(plan, progress, |seed| {
        let mut tried = Tried { cases: LOOPS, ..Tried::default() };
        let mut rng = Rng::new(seed);
        let ran = if seed % 2 == 0 { alone(&mut rng) } else { beside_others(&mut rng) };
        if let Err(what) = ran {
            tried.fail("speculate", plan.scheduler, seed, what);
        }
        tried
    })
}

/// One table, as loops see it: numbers under keys of one byte.
struct Numbers<'d> {
    db: &'d Database,
    table: OpenTable<Raw, Raw>,
}

fn number(row: &[u8]) -> u64 {
    row.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

impl<'d> Store for Numbers<'d> {
    type Key = u8;
    type Value = u64;
    type Stamp = Place;
    type Local = Peeker;
    type Order = Transaction<'d>;
    type Error = TxnError;

    fn announce(&self, peeker: &mut Peeker, keys: &[u8]) {
        self.db.announce_raw(peeker, keys.iter().map(|key| (self.table, std::slice::from_ref(key), 8)));
    }

    fn peek(&self, peeker: &mut Peeker, key: &u8) -> Result<(Option<u64>, Place), TxnError> {
        let (row, place) = self.db.peek_raw(peeker, &self.table, &[*key])?;
        Ok((row.map(number), place))
    }

    fn confirm(&self, tx: &mut Transaction<'d>, seen: Seen<'_, Self>) -> Result<bool, TxnError> {
        let row = seen.value.map(|value| value.to_le_bytes());
        tx.confirm_raw(&self.table, &[*seen.key], seen.stamp, row.as_ref().map(|row| &row[..]), seen.to_write)
    }

    fn read(&self, tx: &mut Transaction<'d>, key: &u8) -> Result<Option<u64>, TxnError> {
        tx.read_raw(&self.table, &[*key], number)
    }

    fn write(&self, tx: &mut Transaction<'d>, write: &Written<'_, Self>) -> Result<(), TxnError> {
        match write.value {
            Some(value) => tx.put_raw(&self.table, &[*write.key], &value.to_le_bytes()),
            None => tx.delete_raw(&self.table, &[*write.key]).map(drop),
        }
    }

    fn write_all(&self, tx: &mut Transaction<'d>, writes: &[Written<'_, Self>]) -> Result<(), TxnError> {
        let place = |write: &Written<'_, Self>| {
            let seen = write.seen.as_ref().filter(|seen| seen.value.is_some())?;
            Some((*write.key, *seen.stamp, write.value?.to_le_bytes()))
        };
        let replaced: Vec<_> = writes.iter().filter_map(place).collect();
        let rows = replaced.iter().map(|(key, place, row)| (std::slice::from_ref(key), *place, &row[..]));
        tx.replace_many_raw(&self.table, rows)?;
        writes.iter().filter(|write| place(write).is_none()).try_for_each(|write| self.write(tx, write))
    }
}

impl<'d> RangeStore for Numbers<'d> {
    fn peek_range(
        &self,
        peeker: &mut Peeker,
        range: &KeyRange<u8>,
        most: usize,
    ) -> Result<Vec<RangeRow<Self>>, TxnError> {
        let mut rows = Vec::new();
        self.db.peek_range_raw(peeker, &self.table, (&[range.first], &[range.last]), most, |key, row, stamp| {
            rows.push(RangeRow { key: key[0], value: number(row), stamp });
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn confirm_range(&self, tx: &mut Transaction<'d>, seen: SeenRange<'_, Self>) -> Result<bool, TxnError> {
        let (mut expected, mut same) = (seen.rows(), true);
        let range = (&[seen.range.first][..], &[seen.range.last][..]);
        tx.lock_range_raw(&self.table, range, seen.most, seen.to_write, |key, row| {
            same = expected.next() == Some((&key[0], &number(row)));
            if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(same && expected.next().is_none())
    }

    fn read_range(
        &self,
        tx: &mut Transaction<'d>,
        range: &KeyRange<u8>,
        most: usize,
    ) -> Result<Vec<KeyAndValue<Self>>, TxnError> {
        let mut rows = Vec::new();
        tx.lock_range_raw(&self.table, (&[range.first], &[range.last]), most, false, |key, row| {
            rows.push((key[0], number(row)));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

/// A step of an iteration, which has a number that its reads change.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u8),
    /// Reads where the number says.
    Follow,
    Write(u8),
    Delete(u8),
    Range(u8, u8, usize),
    /// Deletes the first row from a key on.
    TakeFirst(u8),
    /// Ends the iteration, and the loop, if the number is divisible by 13.
    MayFail,
}

fn draw(rng: &mut Rng) -> Step {
    let (a, b) = (rng.below(KEYS) as u8, rng.below(KEYS) as u8);
    match rng.below(16) {
        0..5 => Step::Read(a),
        5..7 => Step::Follow,
        7..11 => Step::Write(a),
        11 => Step::Delete(a),
        12..14 => Step::Range(a.min(b), a.max(b), rng.below(KEYS + 2) as usize),
        14 => Step::TakeFirst(a),
        _ => Step::MayFail,
    }
}

fn mix(number: u64, more: Option<u64>) -> u64 {
    more.map_or(number ^ 0x55, |more| number.wrapping_mul(31).wrapping_add(more)) % 1_000_003
}

/// An iteration of the oracle.
fn on_map(rows: &mut BTreeMap<u8, u64>, item: u64, steps: &[Step]) -> Result<u64, u64> {
    let mut number = item;
    for step in steps {
        match *step {
            Step::Read(key) => number = mix(number, rows.get(&key).copied()),
            Step::Follow => number = mix(number, rows.get(&((number % KEYS) as u8)).copied()),
            Step::Write(key) => drop(rows.insert(key, number)),
            Step::Delete(key) => drop(rows.remove(&key)),
            Step::Range(first, last, most) => {
                for (key, value) in rows.range(first..=last).take(most) {
                    number = mix(mix(number, Some(*value)), Some(u64::from(*key)));
                }
            }
            Step::TakeFirst(from) => {
                if let Some((&key, &value)) = rows.range(from..).next() {
                    number = mix(number, Some(value));
                    rows.remove(&key);
                }
            }
            Step::MayFail if number.is_multiple_of(13) => return Err(number),
            Step::MayFail => {}
        }
    }
    Ok(number)
}

/// Why an iteration ended the loop.
enum Broken {
    Failed(u64),
    Store(TxnError),
}

impl From<TxnError> for Broken {
    fn from(error: TxnError) -> Broken {
        Broken::Store(error)
    }
}

/// The same iteration ahead of a transaction.
fn ahead(epoch: &mut Epoch<'_, Numbers<'_>>, item: u64, steps: &[Step]) -> Result<u64, Broken> {
    let mut number = item;
    for step in steps {
        match *step {
            Step::Read(key) => number = mix(number, epoch.get(&key)?),
            Step::Follow => number = mix(number, epoch.get(&((number % KEYS) as u8))?),
            Step::Write(key) => epoch.put(key, number),
            Step::Delete(key) => epoch.delete(key),
            Step::Range(first, last, most) => {
                epoch.each(first, last, most, |key, value| {
                    number = mix(mix(number, Some(*value)), Some(u64::from(*key)));
                    ControlFlow::Continue(())
                })?;
            }
            Step::TakeFirst(from) => {
                epoch.change_each(from, u8::MAX, 1, |_, value| {
                    number = mix(number, Some(*value));
                    Change::Delete
                })?;
            }
            Step::MayFail if number.is_multiple_of(13) => return Err(Broken::Failed(number)),
            Step::MayFail => {}
        }
    }
    Ok(number)
}

fn options(rng: &mut Rng) -> Options {
    let forwarding = [Forwarding::Adaptive, Forwarding::Always, Forwarding::Never][rng.index(3)];
    let committer = [Committer::Owner, Committer::Caller][rng.index(2)];
    let (number, operations) = [(1, 1), (8, 4), (usize::MAX, 1)][rng.index(3)];
    let inject = [0.0, 0.0, 0.1][rng.index(3)];
    Options::new()
        .workers(1 + rng.index(3))
        .grain(1 + rng.index(3))
        .sub_epochs(number, operations)
        .forwarding(forwarding)
        .committer(committer)
        .inject_violations(inject, rng.next())
}

fn open() -> Result<Database, String> {
    storage::Options::new()
        .buffer_pool(4 << 20)
        .transactions(8)
        .durability(Durability::Async)
        .open_on(Arc::new(MemDisk::new()))
        .map_err(|error| error.to_string())
}

fn all(numbers: &Numbers<'_>) -> Result<BTreeMap<u8, u64>, TxnError> {
    let mut rows = BTreeMap::new();
    numbers.db.begin()?.scan_raw(&numbers.table, &[], &[u8::MAX; 2], |key, row| {
        rows.insert(key[0], number(row));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Loops against the oracle.
fn alone(rng: &mut Rng) -> Result<(), String> {
    let db = open()?;
    let table = db.raw_table(&TABLE).map_err(|error| error.to_string())?;
    let numbers = Numbers { db: &db, table };
    let options = options(rng);
    let mut speculator = Speculator::new(options).map_err(|error| error.to_string())?;
    let mut rows = BTreeMap::new();
    for of in 0..LOOPS {
        let failed = |what: String| format!("loop {of}, {options:?}: {what}");
        let items: Vec<Vec<Step>> =
            (0..rng.below(20)).map(|_| (0..rng.below(16)).map(|_| draw(rng)).collect()).collect();
        let before = rows.clone();
        let (mut results, mut end) = (Vec::new(), None);
        for (item, steps) in items.iter().enumerate() {
            match on_map(&mut rows, item as u64, steps) {
                Ok(result) => results.push(result),
                Err(number) => {
                    end = Some(number);
                    break;
                }
            }
        }
        let mut tx = db.begin().map_err(|error| failed(error.to_string()))?;
        tx.hand_over();
        let mut got = Vec::new();
        let body =
            |epoch: &mut Epoch<'_, Numbers<'_>>, (item, steps): &(usize, &Vec<Step>)| ahead(epoch, *item as u64, steps);
        let ran = speculator.collect(&numbers, &mut tx, items.iter().enumerate(), body, |result| got.push(result));
        let ended = match ran {
            Ok(()) => None,
            Err(LoopError::Body(Broken::Failed(number))) => Some(number),
            Err(LoopError::Body(Broken::Store(error)) | LoopError::Store(error)) => {
                return Err(failed(error.to_string()));
            }
            Err(error) => {
                return Err(failed(match error {
                    LoopError::NotDeterministic { operation, site } => {
                        format!("operation {operation} at {site} differed")
                    }
                    _ => "nested".to_owned(),
                }));
            }
        };
        if rng.once_in(4) {
            rows = before;
            tx.rollback().map_err(|error| failed(error.to_string()))?;
        } else {
            tx.commit_async().map_err(|error| failed(error.to_string()))?;
        }
        let found = all(&numbers).map_err(|error| failed(error.to_string()))?;
        if (&ended, &got, &found) != (&end, &results, &rows) {
            return Err(failed(format!("{items:?}: {ended:?} {got:?} {found:?}, not {end:?} {results:?} {rows:?}")));
        }
    }
    Ok(())
}

/// What an ordinary transaction does: moves some from one row to another.
fn transfer(numbers: &Numbers<'_>, rng: &mut Rng) -> Result<(), TxnError> {
    let (from, to, amount) = (rng.below(KEYS) as u8, rng.below(KEYS) as u8, rng.below(9));
    let mut tx = numbers.db.begin()?;
    let has = tx.read_for_update_raw(&numbers.table, &[from], number)?.unwrap_or(0);
    if from != to && has >= amount {
        tx.put_raw(&numbers.table, &[from], &(has - amount).to_le_bytes())?;
        let other = tx.read_for_update_raw(&numbers.table, &[to], number)?.unwrap_or(0);
        tx.put_raw(&numbers.table, &[to], &(other + amount).to_le_bytes())?;
    }
    tx.commit_async().map(drop)
}

/// Loops that transfer and add up, beside transactions that transfer: nothing is lost, and each sum is the whole.
fn beside_others(rng: &mut Rng) -> Result<(), String> {
    let db = open()?;
    let table = db.raw_table(&TABLE).map_err(|error| error.to_string())?;
    let numbers = Numbers { db: &db, table };
    let start: Result<(), TxnError> =
        db.transact(|tx| (0..KEYS as u8).try_for_each(|key| tx.put_raw(&table, &[key], &(TOTAL / KEYS).to_le_bytes())));
    start.map_err(|error| error.to_string())?;
    let options = options(rng);
    let mut speculator = Speculator::new(options).map_err(|error| error.to_string())?;
    let done = AtomicBool::new(false);
    let mut others = rng.split();
    std::thread::scope(|scope| {
        let (numbers, done) = (&numbers, &done);
        let writer = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                match transfer(numbers, &mut others) {
                    Ok(()) | Err(TxnError::Deadlock { .. }) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            Ok(())
        });
        let ran = (0..LOOPS).try_for_each(|of| {
            let moves: Vec<(u8, u8, u64)> =
                (0..rng.below(12)).map(|_| (rng.below(KEYS) as u8, rng.below(KEYS) as u8, rng.below(9))).collect();
            sums(&mut speculator, numbers, &moves).map_err(|what| format!("loop {of}, {options:?}: {what}"))
        });
        done.store(true, Ordering::Relaxed);
        let wrote = writer.join().map_err(|_| "the other thread panicked".to_owned())?;
        ran.and(wrote)
    })?;
    let found = all(&numbers).map_err(|error| error.to_string())?;
    if found.values().sum::<u64>() == TOTAL { Ok(()) } else { Err(format!("{options:?}: left {found:?}")) }
}

/// A loop of transfers, each of which adds all rows up, in one transaction; again if it is a deadlock's victim.
fn sums<'d>(
    speculator: &mut Speculator<Numbers<'d>>,
    numbers: &Numbers<'d>,
    moves: &[(u8, u8, u64)],
) -> Result<(), String> {
    loop {
        let mut tx = numbers.db.begin().map_err(|error| error.to_string())?;
        tx.hand_over();
        let mut wrong = Vec::new();
        let body = |epoch: &mut Epoch<'_, Numbers<'d>>, &&(from, to, amount): &&(u8, u8, u64)| {
            let has = epoch.get(&from)?.unwrap_or(0);
            if from != to && has >= amount {
                epoch.put(from, has - amount);
                let other = epoch.get(&to)?.unwrap_or(0);
                epoch.put(to, other + amount);
            }
            Ok::<u64, TxnError>(epoch.range(0, u8::MAX, usize::MAX)?.iter().map(|(_, value)| value).sum())
        };
        let take = |sum| {
            if sum != TOTAL {
                wrong.push(sum);
            }
        };
        match speculator.collect(numbers, &mut tx, moves, body, take) {
            Ok(()) => {}
            Err(LoopError::Store(TxnError::Deadlock { .. }) | LoopError::Body(TxnError::Deadlock { .. })) => continue,
            Err(error) => return Err(error.to_string()),
        }
        if !wrong.is_empty() {
            return Err(format!("{moves:?} saw {wrong:?} and not {TOTAL}"));
        }
        return tx.commit_async().map(drop).map_err(|error| error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn a_few_seeds_hold() {
        let report = run(&Plan::small(10 * LOOPS, Scheduler::default()), &Progress::hidden());
        assert_eq!(report.wrong().next(), None);
        assert!(report.tried >= 10 * LOOPS, "a budget is met: {}", report.tried);
    }
}
