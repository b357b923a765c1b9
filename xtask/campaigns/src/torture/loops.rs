//! `loops`: loops of transactions that run on several threads (`Transaction::in_order`). Random loops are compared with a map,
//! run beside ordinary transactions on the same rows, or interrupted by a crash.
//!
//! The interleaving of the threads depends on the machine, so that a seed repeats the work, but not the schedule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use storage::disk::{Crash, MemDisk, SimDisk};
use storage::measure::LoopMeasurement;
use storage::{Background, Database, Durability, Options, Table, Transaction, TxnError};

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;

/// Number of transactions of a seed.
const TRANSACTIONS: u64 = 20;
/// Number of keys. It is small, so that there are many dependences between iterations.
const KEYS: u64 = 30;
/// Sum of all rows, in the runs with concurrent transactions.
const TOTAL: u64 = 100 * KEYS;
const ROWS: Table<u64, u64> = Table::new("rows");

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: TRANSACTIONS, ..SeedResult::default() };
        let mut rng = Rng::new(seed);
        let ran = catch_panic(|| match seed % 3 {
            0 => compare_with_map(&mut rng),
            1 => run_beside_transactions(&mut rng),
            _ => crash(&mut rng),
        });
        if let Err(what) = ran.and_then(|ran| ran.unwrap_or_else(|| Err("stopped".to_owned()))) {
            seed_result.fail("loops", plan.scheduler, seed, what);
        }
        seed_result
    })
}

/// Step of an iteration. Each iteration has an accumulator, which its reads update.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    /// Reads the key that the accumulator determines.
    Follow,
    Write(u64),
    /// Writes the key that the accumulator determines.
    WriteThere,
    Insert(u64),
    Delete(u64),
    Range(u64, u64),
    Backwards(u64, u64),
    DeleteRange(u64, u64),
    /// Undoes the writes of the iteration so far.
    Undo,
    /// Ends the iteration and the loop if the accumulator is divisible by 13.
    MayFail,
    Pause,
}

fn draw(rng: &mut Rng) -> Step {
    let (a, b) = (rng.below(KEYS), rng.below(KEYS));
    let (low, high) = (a.min(b), a.max(b).min(a.min(b) + 6));
    match rng.below(24) {
        0..5 => Step::Read(a),
        5..7 => Step::Follow,
        7..11 => Step::Write(a),
        11..13 => Step::WriteThere,
        13..15 => Step::Insert(a),
        15..17 => Step::Delete(a),
        17..19 => Step::Range(low, high),
        19 => Step::Backwards(low, high),
        20 => Step::DeleteRange(low, low + 2),
        21 => Step::Undo,
        22 => Step::MayFail,
        _ => Step::Pause,
    }
}

fn draw_loop(rng: &mut Rng) -> Vec<Vec<Step>> {
    let longest = 1 + rng.below(12);
    (0..rng.below(24)).map(|_| (0..rng.below(longest + 1)).map(|_| draw(rng)).collect()).collect()
}

fn mix(number: u64, more: Option<u64>) -> u64 {
    more.map_or(number ^ 0x55, |more| number.wrapping_mul(31).wrapping_add(more)) % 1_000_003
}

/// Reason for which an iteration ended the loop.
#[derive(Debug)]
enum IterationError {
    Failed(u64),
    Store(TxnError),
}

impl From<TxnError> for IterationError {
    fn from(error: TxnError) -> IterationError {
        IterationError::Store(error)
    }
}

/// Runs an iteration on a map.
fn run_on_map(rows: &mut BTreeMap<u64, u64>, item: u64, steps: &[Step]) -> Result<u64, u64> {
    let mut number = item;
    let before = rows.clone();
    for step in steps {
        match *step {
            Step::Read(key) => number = mix(number, rows.get(&key).copied()),
            Step::Follow => number = mix(number, rows.get(&(number % KEYS)).copied()),
            Step::Write(key) => drop(rows.insert(key, number)),
            Step::WriteThere => drop(rows.insert(number % KEYS, number)),
            Step::Insert(key) => {
                number = mix(number, rows.get(&key).map(|_| 1));
                rows.entry(key).or_insert(number);
            }
            Step::Delete(key) => number = mix(number, rows.remove(&key).map(|_| 2)),
            Step::Range(low, high) => {
                rows.range(low..=high).for_each(|(key, row)| number = mix(mix(number, Some(*row)), Some(*key)));
            }
            Step::Backwards(low, high) => {
                rows.range(low..=high).rev().for_each(|(key, row)| number = mix(mix(number, Some(*row)), Some(*key)));
            }
            Step::DeleteRange(low, high) => {
                let count = rows.len();
                rows.retain(|key, _| !(low..=high).contains(key));
                number = mix(number, Some((count - rows.len()) as u64));
            }
            Step::Undo => rows.clone_from(&before),
            Step::MayFail if number.is_multiple_of(13) => return Err(number),
            Step::MayFail | Step::Pause => {}
        }
    }
    Ok(number)
}

/// Runs the same iteration in a transaction.
fn run_in_order(tx: &mut Transaction<'_>, item: u64, steps: &[Step]) -> Result<u64, IterationError> {
    let mut number = item;
    let before = tx.savepoint();
    for step in steps {
        match *step {
            Step::Read(key) => number = mix(number, tx.get(&ROWS, &key)?),
            Step::Follow => number = mix(number, tx.get_for_update(&ROWS, &(number % KEYS))?),
            Step::Write(key) => tx.put(&ROWS, &key, &number)?,
            Step::WriteThere => tx.put(&ROWS, &(number % KEYS), &number)?,
            Step::Insert(key) => {
                let there = tx.get(&ROWS, &key)?.map(|_| 1);
                number = mix(number, there);
                if there.is_none() {
                    tx.insert(&ROWS, &key, &number)?;
                }
            }
            Step::Delete(key) => number = mix(number, tx.delete(&ROWS, &key)?.then_some(2)),
            Step::Range(low, high) => {
                for row in tx.range(&ROWS, low..=high)? {
                    let (key, row) = row?;
                    number = mix(mix(number, Some(row)), Some(key));
                }
            }
            Step::Backwards(low, high) => {
                for row in tx.range(&ROWS, low..=high)?.rev() {
                    let (key, row) = row?;
                    number = mix(mix(number, Some(row)), Some(key));
                }
            }
            Step::DeleteRange(low, high) => number = mix(number, Some(tx.delete_range(&ROWS, low..=high)?)),
            Step::Undo => tx.rollback_to(before)?,
            Step::MayFail if number.is_multiple_of(13) => return Err(IterationError::Failed(number)),
            Step::MayFail => {}
            Step::Pause => std::thread::yield_now(),
        }
    }
    Ok(number)
}

/// Results of the iterations of a loop, and the number with which it failed.
type LoopResults = (Vec<u64>, Option<u64>);

fn loop_on_map(rows: &mut BTreeMap<u64, u64>, items: &[Vec<Step>]) -> LoopResults {
    let mut results = Vec::new();
    for (item, steps) in items.iter().enumerate() {
        match run_on_map(rows, item as u64, steps) {
            Ok(result) => results.push(result),
            Err(number) => return (results, Some(number)),
        }
    }
    (results, None)
}

fn loop_in_order(tx: &mut Transaction<'_>, items: &[Vec<Step>]) -> Result<LoopResults, TxnError> {
    let mut results = Vec::new();
    let body = |tx: &mut Transaction<'_>, (item, steps): &(usize, &Vec<Step>)| run_in_order(tx, *item as u64, steps);
    match tx.in_order(items.iter().enumerate(), body, |result| results.push(result)) {
        Ok(()) => Ok((results, None)),
        Err(IterationError::Failed(number)) => Ok((results, Some(number))),
        Err(IterationError::Store(error)) => Err(error),
    }
}

fn all(db: &Database) -> Result<BTreeMap<u64, u64>, TxnError> {
    db.begin()?.range(&ROWS, ..)?.collect()
}

/// Sets random numbers of threads and of injected conflicts.
fn with_loops(options: Options, rng: &mut Rng) -> Options {
    let inject = rng.pick(&[0.0, 0.02, 0.2]);
    let measurement = LoopMeasurement { epochs_on_one_thread: true, trace: false, inject, seed: rng.next() };
    options.loop_threads(1 + rng.index(4)).measure_loops(measurement)
}

fn open_in_memory(rng: &mut Rng) -> Result<Database, String> {
    let options = Options::new().buffer_pool(4 << 20).transactions(32).durability(Durability::Async);
    with_loops(options, rng).open_on(Arc::new(MemDisk::new())).map_err(|error| error.to_string())
}

/// Runs random transactions with loops and compares them with a map.
fn compare_with_map(rng: &mut Rng) -> Result<(), String> {
    let db = open_in_memory(rng)?;
    let mut rows = BTreeMap::new();
    for of in 0..TRANSACTIONS {
        let before = rows.clone();
        let mut told = Vec::new();
        let failed = |told: &[String], what: String| format!("transaction {of}: {}: {what}", told.join("; "));
        let mut tx = db.begin().map_err(|error| error.to_string())?;
        let (mut saved, mut saved_rows) = (tx.savepoint(), rows.clone());
        for _ in 0..1 + rng.below(4) {
            let done: Result<(), TxnError> = match rng.below(6) {
                0 => {
                    (saved, saved_rows) = (tx.savepoint(), rows.clone());
                    told.push("savepoint".to_owned());
                    Ok(())
                }
                1 => {
                    rows.clone_from(&saved_rows);
                    told.push("back".to_owned());
                    tx.rollback_to(saved)
                }
                2 => {
                    let (key, row) = (rng.below(KEYS), rng.below(1000));
                    rows.insert(key, row);
                    told.push(format!("put {key} {row}"));
                    tx.put(&ROWS, &key, &row)
                }
                _ => {
                    let items = draw_loop(rng);
                    told.push(format!("{items:?}"));
                    let expected = loop_on_map(&mut rows, &items);
                    match loop_in_order(&mut tx, &items) {
                        Ok(found) if found == expected => Ok(()),
                        Ok(found) => return Err(failed(&told, format!("{found:?}, not {expected:?}"))),
                        Err(error) => Err(error),
                    }
                }
            };
            done.map_err(|error| failed(&told, error.to_string()))?;
        }
        if rng.once_in(4) {
            rows = before;
            tx.rollback().map_err(|error| failed(&told, error.to_string()))?;
        } else {
            tx.commit_async().map_err(|error| failed(&told, error.to_string()))?;
        }
        let found = all(&db).map_err(|error| error.to_string())?;
        if found != rows {
            return Err(failed(&told, format!("{found:?}, not {rows:?}")));
        }
    }
    Ok(())
}

/// Moves an amount from one row to another, by a row that is removed and comes back if it is empty.
fn transfer(tx: &mut Transaction<'_>, &(from, to, amount): &(u64, u64, u64)) -> Result<(), TxnError> {
    let has = tx.get(&ROWS, &from)?.unwrap_or(0);
    if from != to && has >= amount {
        if has == amount {
            tx.delete(&ROWS, &from)?;
        } else {
            tx.put(&ROWS, &from, &(has - amount))?;
        }
        let other = tx.get_for_update(&ROWS, &to)?.unwrap_or(0);
        tx.put(&ROWS, &to, &(other + amount))?;
    }
    Ok(())
}

fn draw_transfer(rng: &mut Rng) -> (u64, u64, u64) {
    (rng.below(KEYS), rng.below(KEYS), rng.below(120))
}

/// Runs loops of transfers and sums concurrently with transactions of transfers. No amount may be lost, and each sum must
/// equal the total.
fn run_beside_transactions(rng: &mut Rng) -> Result<(), String> {
    let db = open_in_memory(rng)?;
    let start: Result<(), TxnError> =
        db.transact(|tx| (0..KEYS).try_for_each(|key| tx.put(&ROWS, &key, &(TOTAL / KEYS))));
    start.map_err(|error| error.to_string())?;
    let done = AtomicBool::new(false);
    let mut others = rng.split();
    std::thread::scope(|scope| {
        let (db, done) = (&db, &done);
        let writer = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let moved = draw_transfer(&mut others);
                db.transact(|tx| transfer(tx, &moved)).map_err(|error: TxnError| error.to_string())?;
            }
            Ok::<(), String>(())
        });
        let ran = (0..TRANSACTIONS).try_for_each(|of| {
            let moves: Vec<_> = (0..rng.below(16)).map(|_| draw_transfer(rng)).collect();
            let sums: Result<Vec<u64>, TxnError> = db.transact(|tx| {
                let mut sums = Vec::new();
                let body = |tx: &mut Transaction<'_>, moved: &&(u64, u64, u64)| {
                    transfer(tx, moved)?;
                    tx.range(&ROWS, ..)?.map(|row| row.map(|(_, row)| row)).sum::<Result<u64, TxnError>>()
                };
                tx.in_order(&moves, body, |sum| sums.push(sum))?;
                Ok(sums)
            });
            let sums = sums.map_err(|error| format!("loop {of}, {moves:?}: {error}"))?;
            let wrong = sums.iter().any(|sum| *sum != TOTAL);
            if wrong { Err(format!("loop {of}, {moves:?} saw {sums:?} and not {TOTAL}")) } else { Ok(()) }
        });
        done.store(true, Ordering::Relaxed);
        let wrote = writer.join().map_err(|_| "the other thread panicked".to_owned())?;
        ran.and(wrote)
    })?;
    let found = all(&db).map_err(|error| error.to_string())?;
    if found.values().sum::<u64>() == TOTAL { Ok(()) } else { Err(format!("left {found:?}")) }
}

fn open_simulated(disk: &SimDisk, rng: &mut Rng) -> Result<Database, String> {
    let options = Options::new()
        .buffer_pool(1 << 20)
        .log_segment(64 << 10)
        .log_buffer(512 << 10)
        .checkpoint_every(1 << 20)
        .transactions(32)
        .background(Background::Inline);
    with_loops(options, rng).open_on(Arc::new(disk.clone())).map_err(|error| error.to_string())
}

/// Runs transactions with loops until the disk fails at a random call, and restarts after a crash. The rows must be those
/// after the last acknowledged commit, or after the one that was interrupted.
fn crash(rng: &mut Rng) -> Result<(), String> {
    let mut disk = SimDisk::new(rng.next());
    let mut rows = BTreeMap::new();
    for life in 0..TRANSACTIONS / 4 {
        let failed = |what: String| format!("life {life}: {what}");
        let db = open_simulated(&disk, rng).map_err(failed)?;
        let found = all(&db).map_err(|error| failed(error.to_string()))?;
        if found != rows {
            return Err(failed(format!("{found:?} after the second restart, {rows:?} after the first")));
        }
        if rng.once_in(2) {
            disk.power_off_after(rng.below(60));
        }
        // The rows after an interrupted commit.
        let mut possible = None;
        'life: for _ in 0..rng.below(6) {
            let Ok(mut tx) = db.begin() else { break };
            let mut after = rows.clone();
            for _ in 0..1 + rng.below(3) {
                let items = draw_loop(rng);
                let expected = loop_on_map(&mut after, &items);
                match loop_in_order(&mut tx, &items) {
                    Ok(found) if found == expected => {}
                    Ok(found) => return Err(failed(format!("{items:?}: {found:?}, not {expected:?}"))),
                    Err(error) if disk.is_off() => drop(error),
                    Err(error) => return Err(failed(format!("{items:?}: {error}"))),
                }
                if disk.is_off() || (rng.once_in(3) && db.checkpoint().is_err()) {
                    break 'life;
                }
            }
            match rng.below(6) {
                0 => drop(tx),
                // The crash finds the transaction open.
                1 => {
                    let _ = db.checkpoint();
                    let left = disk.crash(draw_crash(rng));
                    drop(tx);
                    drop(db);
                    rows = restarted(&left, &[&rows]).map_err(failed)?;
                    disk = left;
                    return crash_again(disk, rows, rng);
                }
                _ => match tx.commit() {
                    Ok(()) => rows = after,
                    Err(_) => {
                        possible = Some(after);
                        break;
                    }
                },
            }
        }
        let left = disk.crash(draw_crash(rng));
        // Closing the database must not write to the disk.
        disk.power_off_after(0);
        drop(db);
        let wanted: Vec<&BTreeMap<u64, u64>> = [&rows].into_iter().chain(&possible).collect();
        rows = restarted(&left, &wanted).map_err(failed)?;
        disk = left;
    }
    Ok(())
}

fn draw_crash(rng: &mut Rng) -> Crash {
    match rng.below(4) {
        0 => Crash::All,
        1 => Crash::Nothing,
        _ => Crash::Random(rng.next()),
    }
}

/// Restarts a copy of the disk, which is interrupted now and then by the next restart. Returns its rows, which must be among
/// `wanted`.
fn restarted(disk: &SimDisk, wanted: &[&BTreeMap<u64, u64>]) -> Result<BTreeMap<u64, u64>, String> {
    let copy = disk.crash(Crash::All);
    // No loop runs on the copy.
    let db = open_simulated(&copy, &mut Rng::new(0))?;
    let found = all(&db).map_err(|error| error.to_string())?;
    if wanted.contains(&&found) { Ok(found) } else { Err(format!("{found:?} is there, not one of {wanted:?}")) }
}

/// Interrupts the undo of a transaction that a crash has left open: restarts until the rows are there, with a power failure
/// at a later call each time.
fn crash_again(disk: SimDisk, rows: BTreeMap<u64, u64>, rng: &mut Rng) -> Result<(), String> {
    let mut disk = disk;
    for calls in 1..12 {
        disk.power_off_after(calls * 2);
        drop(open_simulated(&disk, rng));
        disk = disk.crash(draw_crash(rng));
        restarted(&disk, &[&rows])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn a_few_seeds_hold() {
        let report = run(&CampaignPlan::small(12 * TRANSACTIONS, Scheduler::default()), &Progress::hidden());
        assert_eq!(report.wrong().next(), None);
        assert!(report.tried >= 12 * TRANSACTIONS, "a budget is met: {}", report.tried);
    }
}
