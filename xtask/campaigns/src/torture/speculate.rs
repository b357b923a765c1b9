//! `speculate`: speculative loops over the storage engine. Random loops are compared with a sequential oracle, or run
//! concurrently with ordinary transactions on the same rows.
//!
//! The interleaving of the threads depends on the machine, so that a seed repeats the work, but not the schedule.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use speculate::{Change, Committer, Epoch, Forwarding, LoopError, Options, Speculator};
use storage::disk::MemDisk;
use storage::{Database, Durability, OpenTable, Table, TxnError};

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::loop_store::{LoopStore, RowPosition};
use crate::sim::rng::Rng;
use crate::sim::tables::Bytes;

/// Number of loops of a seed.
const LOOPS: u64 = 20;
/// Number of keys. It is small, so that there are many dependences between iterations.
const KEYS: u64 = 24;
/// Sum of all rows, in the runs with concurrent transactions.
const TOTAL: u64 = 100 * KEYS;
const TABLE: Table<Bytes, Vec<u8>> = Table::new("rows");

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: LOOPS, ..SeedResult::default() };
        let mut rng = Rng::new(seed);
        let ran = if seed % 2 == 0 { compare_with_oracle(&mut rng) } else { run_beside_transactions(&mut rng) };
        if let Err(what) = ran {
            seed_result.fail("speculate", plan.scheduler, seed, what);
        }
        seed_result
    })
}

/// Table of numbers with keys of one byte.
struct Numbers<'d> {
    db: &'d Database,
    table: OpenTable<Bytes, Vec<u8>>,
    ahead: LoopStore<'d>,
}

impl<'d> Numbers<'d> {
    fn open(db: &'d Database) -> Result<Numbers<'d>, String> {
        let table = db.table(&TABLE).map_err(|error| error.to_string())?;
        Ok(Numbers { db, table, ahead: LoopStore::new(db, &[table]) })
    }
}

/// Number of escaped effects that have not been undone, by item and step.
type EscapedEffects = Arc<Mutex<BTreeMap<(u64, usize), i32>>>;

/// Counts an escaped effect (`times` is 1) or its undo (`times` is -1).
fn count_effect(held: &EscapedEffects, at: (u64, usize), times: i32) {
    *held.lock().unwrap_or_else(PoisonError::into_inner).entry(at).or_default() += times;
}

/// Returns the position of a key in the only table.
fn at(key: u8) -> RowPosition {
    RowPosition { table: 0, key: vec![key] }
}

/// Returns the row that represents a number.
fn row(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// Returns the key and the number that the sequential part writes after an iteration with this result; `None` if the
/// sequential part writes nothing.
fn sequential_write(result: u64) -> Option<(u8, u64)> {
    result.is_multiple_of(3).then_some(((result / 3 % KEYS) as u8, result + 1))
}

fn number(row: &[u8]) -> u64 {
    row.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads a number within an iteration.
fn get(epoch: &mut Epoch<'_, LoopStore<'_>>, key: u8) -> Result<Option<u64>, TxnError> {
    epoch.view(&at(key), |row| row.map(|row| number(row)))
}

/// Step of an iteration. Each iteration has an accumulator, which its reads update.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u8),
    /// Reads the key that the accumulator determines.
    Follow,
    Write(u8),
    /// Writes the key that the accumulator determines.
    WriteThere,
    Delete(u8),
    Range(u8, u8, usize),
    /// Deletes the first row at or after a key.
    TakeFirst(u8),
    /// Has an effect outside the store, which must be undone if the iteration is rolled back.
    Escape,
    /// Ends the iteration and the loop if the accumulator is divisible by 13.
    MayFail,
}

fn draw(rng: &mut Rng) -> Step {
    let (a, b) = (rng.below(KEYS) as u8, rng.below(KEYS) as u8);
    match rng.below(19) {
        0..5 => Step::Read(a),
        5..7 => Step::Follow,
        7..11 => Step::Write(a),
        11 => Step::Delete(a),
        12..14 => Step::Range(a.min(b), a.max(b), rng.below(KEYS + 2) as usize),
        14 => Step::TakeFirst(a),
        15 => Step::Escape,
        16..18 => Step::WriteThere,
        _ => Step::MayFail,
    }
}

fn mix(number: u64, more: Option<u64>) -> u64 {
    more.map_or(number ^ 0x55, |more| number.wrapping_mul(31).wrapping_add(more)) % 1_000_003
}

/// Runs an iteration on the map of the sequential oracle.
fn run_on_map(rows: &mut BTreeMap<u8, u64>, held: &EscapedEffects, item: u64, steps: &[Step]) -> Result<u64, u64> {
    let mut number = item;
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Read(key) => number = mix(number, rows.get(&key).copied()),
            Step::Follow => number = mix(number, rows.get(&((number % KEYS) as u8)).copied()),
            Step::Write(key) => drop(rows.insert(key, number)),
            Step::WriteThere => drop(rows.insert((number % KEYS) as u8, number)),
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
            Step::Escape => count_effect(held, (item, at), 1),
            Step::MayFail if number.is_multiple_of(13) => return Err(number),
            Step::MayFail => {}
        }
    }
    Ok(number)
}

/// Reason for which an iteration ended the loop.
enum IterationError {
    Failed(u64),
    Store(TxnError),
}

impl From<TxnError> for IterationError {
    fn from(error: TxnError) -> IterationError {
        IterationError::Store(error)
    }
}

/// Runs the same iteration speculatively.
fn run_speculatively(
    epoch: &mut Epoch<'_, LoopStore<'_>>,
    held: &EscapedEffects,
    item: u64,
    steps: &[Step],
) -> Result<u64, IterationError> {
    let mut number = item;
    for (nth, step) in steps.iter().enumerate() {
        match *step {
            Step::Read(key) => number = mix(number, get(epoch, key)?),
            Step::Follow => number = mix(number, get(epoch, (number % KEYS) as u8)?),
            Step::Write(key) => epoch.put(at(key), row(number)),
            Step::WriteThere => epoch.put(at((number % KEYS) as u8), row(number)),
            Step::Delete(key) => epoch.delete(at(key)),
            Step::Range(first, last, most) => {
                epoch.each(at(first), at(last), most, |spot, row| {
                    number = mix(mix(number, Some(self::number(row))), Some(u64::from(spot.key[0])));
                    ControlFlow::Continue(())
                })?;
            }
            Step::TakeFirst(from) => {
                epoch.change_each(at(from), at(u8::MAX), 1, |_, row| {
                    number = mix(number, Some(self::number(row)));
                    Change::Delete
                })?;
            }
            Step::Escape => {
                let undone = Arc::clone(held);
                epoch.escape(|| count_effect(held, (item, nth), 1), move |()| count_effect(&undone, (item, nth), -1));
            }
            Step::MayFail if number.is_multiple_of(13) => return Err(IterationError::Failed(number)),
            Step::MayFail => {}
        }
    }
    Ok(number)
}

fn options(rng: &mut Rng) -> Options {
    let forwarding = [Forwarding::Adaptive, Forwarding::Always, Forwarding::Always, Forwarding::Never][rng.index(4)];
    let committer = [Committer::Owner, Committer::Caller][rng.index(2)];
    let (number, operations) = [(1, 1), (8, 4), (usize::MAX, 1)][rng.index(3)];
    let inject = [0.0, 0.0, 0.1][rng.index(3)];
    Options::new()
        .workers(1 + rng.index(4))
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
    numbers.db.begin()?.raw().scan(&numbers.table, &[], &[u8::MAX; 2], |key, row| {
        rows.insert(key[0], number(row));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Runs random loops and compares them with the sequential oracle.
fn compare_with_oracle(rng: &mut Rng) -> Result<(), String> {
    let db = open()?;
    let numbers = Numbers::open(&db)?;
    let options = options(rng);
    let mut speculator = Speculator::new(options).map_err(|error| error.to_string())?;
    let mut rows = BTreeMap::new();
    for of in 0..LOOPS {
        let failed = |what: String| format!("loop {of}, {options:?}: {what}");
        let items: Vec<Vec<Step>> =
            (0..rng.below(20)).map(|_| (0..rng.below(16)).map(|_| draw(rng)).collect()).collect();
        let (before, writes) = (rows.clone(), rng.once_in(2));
        let (mut results, mut end) = (Vec::new(), None);
        let (to_hold, held) = (EscapedEffects::default(), EscapedEffects::default());
        for (item, steps) in items.iter().enumerate() {
            match run_on_map(&mut rows, &to_hold, item as u64, steps) {
                Ok(result) => {
                    results.push(result);
                    if let Some((key, number)) = sequential_write(result).filter(|_| writes) {
                        rows.insert(key, number);
                    }
                }
                Err(number) => {
                    end = Some(number);
                    break;
                }
            }
        }
        let mut tx = db.begin().map_err(|error| failed(error.to_string()))?;
        tx.hand_over();
        let mut got = Vec::new();
        let body = |epoch: &mut Epoch<'_, LoopStore<'_>>, (item, steps): &(usize, &Vec<Step>)| {
            run_speculatively(epoch, &held, *item as u64, steps)
        };
        let (ahead, items_in_order) = (&numbers.ahead, items.iter().enumerate());
        let ran = if writes {
            speculator.run(ahead, &mut tx, items_in_order, body, |tx, result| {
                got.push(result);
                let write = sequential_write(result);
                write.map_or(Ok(()), |(key, number)| tx.raw_mut().put(&numbers.table, &[key], &row(number)))?;
                Ok(())
            })
        } else {
            speculator.collect(ahead, &mut tx, items_in_order, body, |result| got.push(result))
        };
        let ended = match ran {
            Ok(()) => None,
            Err(LoopError::Body(IterationError::Failed(number))) => Some(number),
            Err(LoopError::Body(IterationError::Store(error)) | LoopError::Store(error)) => {
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
        let taken = |held: &EscapedEffects| -> Vec<_> {
            let held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.iter().filter(|(_, times)| **times != 0).map(|(at, times)| (*at, *times)).collect()
        };
        if taken(&held) != taken(&to_hold) {
            return Err(failed(format!("{items:?}: escaped {:?}, not {:?}", taken(&held), taken(&to_hold))));
        }
        let found = all(&numbers).map_err(|error| failed(error.to_string()))?;
        if (&ended, &got, &found) != (&end, &results, &rows) {
            return Err(failed(format!("{items:?}: {ended:?} {got:?} {found:?}, not {end:?} {results:?} {rows:?}")));
        }
    }
    Ok(())
}

/// Runs an ordinary transaction that moves an amount from one row to another.
fn transfer(numbers: &Numbers<'_>, rng: &mut Rng) -> Result<(), TxnError> {
    let (from, to, amount) = (rng.below(KEYS) as u8, rng.below(KEYS) as u8, rng.below(9));
    let mut tx = numbers.db.begin()?;
    let has = tx.raw().read_for_update(&numbers.table, &[from], number)?.unwrap_or(0);
    if from != to && has >= amount {
        tx.raw_mut().put(&numbers.table, &[from], &(has - amount).to_le_bytes())?;
        let other = tx.raw().read_for_update(&numbers.table, &[to], number)?.unwrap_or(0);
        tx.raw_mut().put(&numbers.table, &[to], &(other + amount).to_le_bytes())?;
    }
    tx.commit_async().map(drop)
}

/// Runs loops of transfers and sums concurrently with transactions of transfers. No amount may be lost, and each sum must
/// equal the total.
fn run_beside_transactions(rng: &mut Rng) -> Result<(), String> {
    let db = open()?;
    let numbers = Numbers::open(&db)?;
    let start: Result<(), TxnError> = db.transact(|tx| {
        (0..KEYS as u8).try_for_each(|key| tx.raw_mut().put(&numbers.table, &[key], &(TOTAL / KEYS).to_le_bytes()))
    });
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

/// Runs a loop of transfers in one transaction. Each iteration also computes the sum of all rows. Retries after a deadlock.
fn sums<'d>(
    speculator: &mut Speculator<LoopStore<'d>>,
    numbers: &Numbers<'d>,
    moves: &[(u8, u8, u64)],
) -> Result<(), String> {
    loop {
        let mut tx = numbers.db.begin().map_err(|error| error.to_string())?;
        tx.hand_over();
        let mut wrong = Vec::new();
        let body = |epoch: &mut Epoch<'_, LoopStore<'d>>, &&(from, to, amount): &&(u8, u8, u64)| {
            let has = get(epoch, from)?.unwrap_or(0);
            if from != to && has >= amount {
                epoch.put(at(from), row(has - amount));
                let other = get(epoch, to)?.unwrap_or(0);
                epoch.put(at(to), row(other + amount));
            }
            Ok::<u64, TxnError>(epoch.range(at(0), at(u8::MAX), usize::MAX)?.iter().map(|(_, row)| number(row)).sum())
        };
        let take = |sum| {
            if sum != TOTAL {
                wrong.push(sum);
            }
        };
        match speculator.collect(&numbers.ahead, &mut tx, moves, body, take) {
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
        let report = run(&CampaignPlan::small(10 * LOOPS, Scheduler::default()), &Progress::hidden());
        assert_eq!(report.wrong().next(), None);
        assert!(report.tried >= 10 * LOOPS, "a budget is met: {}", report.tried);
    }
}
