//! Speculative loops within transactions: some statements of a transaction run as the iterations of a loop, on two threads.
//! Their answers and effects must equal the answers and effects of the same statements in sequence.
//!
//! A run with loops is not deterministic, because the order of engine calls from the threads of a loop depends on the
//! machine. The seed determines the script, the options of the loops, and the sequence of random numbers from which the
//! scheduler makes its choices. The number of choices, and the statements between them, depend on the threads.

use std::sync::Mutex;

use speculate::{Committer, Epoch, Forwarding, LoopError, Options, Speculator, Stats, Store};
use storage::{Database, Transaction, TxnError};

use super::loop_store::{LoopStore, RowPosition};
use super::model::{Op, RowDigest, counted};
use super::notes::{LoopCounters, lock};
use super::panics;
use super::rng::Rng;
use super::statements::StatementMaker;
use super::tables::{Tables, hash_of};
use super::workload::{key, row};

/// Maximum number of iterations of a loop.
const ITERATIONS: u64 = 10;
/// Maximum number of statements of an iteration.
const STATEMENTS: u64 = 6;

/// Executor and options for the loops of one worker.
pub(super) struct Loops<'d> {
    store: LoopStore<'d>,
    speculator: Speculator<LoopStore<'d>>,
    /// True if the writes of an iteration are passed to the engine in one call.
    batches_writes: bool,
}

/// Statement of an iteration.
enum Step {
    Get(RowPosition),
    /// Reads a row of this table. The key depends on the previous reads of the iteration.
    Follow(usize),
    Put(RowPosition, Vec<u8>),
    Insert(RowPosition, Vec<u8>),
    Update(RowPosition, Vec<u8>),
    Count(RowPosition),
    Delete(RowPosition),
    /// Deletes a row without reading it.
    DeleteBlindly(RowPosition),
    Scan(RowPosition, RowPosition),
    /// Reads the first rows of a range: its bounds, and the maximum number of rows.
    First(RowPosition, RowPosition, usize),
    TakeFirst(RowPosition, RowPosition),
    DeleteRange(RowPosition, RowPosition),
    /// Ends the loop if a number computed from the iteration's reads is divisible by 4.
    MayEnd,
}

/// Reason for which an iteration ended the loop.
enum LoopEnd {
    /// The loop was ended by [`Step::MayEnd`]. Contains the answers up to this step.
    Early(Vec<Op>),
    Refused(TxnError),
}

impl From<TxnError> for LoopEnd {
    fn from(error: TxnError) -> LoopEnd {
        LoopEnd::Refused(error)
    }
}

impl<'d> Loops<'d> {
    /// Creates the loops of a worker, with random options.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be created.
    pub(super) fn draw(db: &'d Database, tables: &Tables, rng: &mut Rng) -> Result<Loops<'d>, String> {
        let (number, operations) = rng.pick(&[(1, 1), (8, 4), (usize::MAX, 1)]);
        let options = Options::new()
            .workers(2)
            .grain(1 + rng.index(2))
            .sub_epochs(number, operations)
            .forwarding(rng.pick(&[Forwarding::Adaptive, Forwarding::Always, Forwarding::Never]))
            .committer(rng.pick(&[Committer::Owner, Committer::Caller]))
            .inject_violations(rng.pick(&[0.0, 0.1]), rng.next());
        let speculator = Speculator::new(options).map_err(|error| error.to_string())?;
        Ok(Loops { store: LoopStore::simulated(db, tables), speculator, batches_writes: rng.once_in(2) })
    }

    /// Runs a random loop within a transaction. Returns the answers of its statements, in order.
    ///
    /// # Errors
    /// Returns errors of the engine. Some of the statements may have taken effect nevertheless.
    pub(super) fn run(&mut self, maker: &mut StatementMaker<'_, 'd>) -> Result<Vec<Op>, TxnError> {
        let items = draw(maker);
        let keys = maker.profile.keys;
        let ops = Mutex::new(Vec::new());
        let body = |epoch: &mut Epoch<'_, LoopStore<'d>>, steps: &&Vec<Step>| iteration(epoch, steps, keys);
        maker.tx.hand_over();
        let (store, items) = (&self.store, &items);
        let ran = if self.batches_writes {
            self.speculator.collect(store, maker.tx, items, body, |new| lock(&ops).extend(new))
        } else {
            // Runs a statement outside the loop, between two iterations.
            let read_between = |tx: &mut Transaction<'d>, new: Vec<Op>| {
                lock(&ops).extend(new);
                let at = RowPosition { table: 0, key: key(0) };
                let found = store.read(tx, &at)?;
                lock(&ops).push(Op::Get { table: at.table, key: at.key, found });
                Ok(())
            };
            self.speculator.run(store, maker.tx, items, body, read_between)
        };
        if let Some(what) = store.take_panic() {
            panics::raise_finding(what);
        }
        let mut ops = ops.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match ran {
            Ok(()) => Ok(ops),
            Err(LoopError::Body(LoopEnd::Early(new))) => {
                ops.extend(new);
                Ok(ops)
            }
            Err(LoopError::Body(LoopEnd::Refused(error)) | LoopError::Store(error)) => Err(error),
            Err(LoopError::NotDeterministic { operation, site }) => {
                panics::raise_finding(format!("operation {operation} of an iteration, at {site}, differed"))
            }
            Err(error) => panics::raise_finding(format!("a loop ended so: {}", error_name(&error))),
        }
    }

    /// Takes the loop counters since the last call.
    pub(super) fn take_counters(&mut self) -> LoopCounters {
        let Stats { epochs, violations, .. } = self.speculator.take_stats();
        LoopCounters { loops: 1, epochs, violations }
    }
}

/// Returns the name of an error, without further data.
fn error_name(error: &LoopError<LoopEnd, TxnError>) -> &'static str {
    match error {
        LoopError::Nested => "nested",
        LoopError::Forked => "forked",
        _ => "unknown",
    }
}

/// Returns random iterations of a loop, usually on adjacent keys.
fn draw(maker: &mut StatementMaker<'_, '_>) -> Vec<Vec<Step>> {
    let keys = maker.profile.keys;
    let (begin, reach) = (maker.rng.below(keys), maker.rng.pick(&[4, 30, keys]));
    let iterations = 1 + maker.rng.below(ITERATIONS);
    let step = |maker: &mut StatementMaker<'_, '_>| {
        let n = (begin + maker.rng.below(reach)) % keys;
        let table = maker.rng.index(maker.tables.len());
        let at = |n: u64| RowPosition { table, key: key(n) };
        let until = at(n + maker.rng.below(8));
        match maker.rng.below(20) {
            0..3 => Step::Get(at(n)),
            3..5 => Step::Follow(table),
            5..7 => Step::Put(at(n), row(maker.rng, maker.profile)),
            7..9 => Step::Insert(at(n), row(maker.rng, maker.profile)),
            9..11 => Step::Update(at(n), row(maker.rng, maker.profile)),
            11..14 => Step::Count(at(n)),
            14 => Step::Delete(at(n)),
            15 => Step::DeleteBlindly(at(n)),
            16 => Step::Scan(at(n), until),
            17 => Step::First(at(n), until, maker.rng.index(6)),
            18 if maker.rng.once_in(2) => Step::DeleteRange(at(n), until),
            18 => Step::TakeFirst(at(n), until),
            _ => Step::MayEnd,
        }
    };
    (0..iterations).map(|_| (0..1 + maker.rng.below(STATEMENTS)).map(|_| step(maker)).collect()).collect()
}

/// Runs the statements of an iteration. Returns the statements with their answers.
fn iteration(epoch: &mut Epoch<'_, LoopStore<'_>>, steps: &[Step], keys: u64) -> Result<Vec<Op>, LoopEnd> {
    let (mut ops, mut number) = (Vec::new(), 0u64);
    for step in steps {
        let op = match step {
            Step::Get(at) => {
                let found = epoch.get(at)?;
                number = number.wrapping_add(number_of(at, found.as_deref()));
                get(at.clone(), found)
            }
            Step::Follow(table) => {
                let at = RowPosition { table: *table, key: key(number % keys) };
                let found = epoch.get(&at)?;
                number = number.wrapping_add(number_of(&at, found.as_deref()));
                get(at, found)
            }
            Step::MayEnd if number.is_multiple_of(4) => return Err(LoopEnd::Early(ops)),
            Step::MayEnd => continue,
            Step::Scan(..) | Step::First(..) | Step::TakeFirst(..) | Step::DeleteRange(..) => range(epoch, step)?,
            _ => write(epoch, step)?,
        };
        ops.push(op);
    }
    Ok(ops)
}

fn get(RowPosition { table, key }: RowPosition, found: Option<Vec<u8>>) -> Op {
    Op::Get { table, key, found }
}

/// Returns a hash of a row.
fn number_of(at: &RowPosition, row: Option<&[u8]>) -> u64 {
    row.map_or(1, |row| hash_of(at.table, &at.key, row))
}

/// Runs a statement that writes one row.
fn write(epoch: &mut Epoch<'_, LoopStore<'_>>, step: &Step) -> Result<Op, TxnError> {
    let is_there = |epoch: &mut Epoch<'_, LoopStore<'_>>, at: &RowPosition| epoch.view(at, |row| row.is_some());
    Ok(match step {
        Step::Insert(at, row) => {
            let done = !is_there(epoch, at)?;
            if done {
                epoch.put(at.clone(), row.clone());
            }
            Op::Insert { table: at.table, key: at.key.clone(), row: row.clone(), done }
        }
        Step::Update(at, row) => {
            let done = is_there(epoch, at)?;
            if done {
                epoch.put(at.clone(), row.clone());
            }
            Op::Update { table: at.table, key: at.key.clone(), row: row.clone(), done: Some(done) }
        }
        Step::Count(at) => {
            let counted = epoch.get(at)?.and_then(counted);
            let done = counted.is_some();
            if let Some(row) = counted {
                epoch.put(at.clone(), row);
            }
            Op::Count { table: at.table, key: at.key.clone(), done }
        }
        Step::Delete(at) => {
            let done = is_there(epoch, at)?;
            if done {
                epoch.delete(at.clone());
            }
            Op::Delete { table: at.table, key: at.key.clone(), done }
        }
        Step::Put(at, row) => {
            epoch.put(at.clone(), row.clone());
            Op::Put { table: at.table, key: at.key.clone(), row: row.clone(), done: true }
        }
        Step::DeleteBlindly(at) => {
            epoch.delete(at.clone());
            Op::DeleteBlindly { table: at.table, key: at.key.clone() }
        }
        _ => unreachable!("a statement that writes one row"),
    })
}

/// Runs a statement on a range.
fn range(epoch: &mut Epoch<'_, LoopStore<'_>>, step: &Step) -> Result<Op, TxnError> {
    Ok(match step {
        Step::Scan(from, to) => {
            let mut found = (0, 0u64);
            for (at, row) in epoch.range(from.clone(), to.clone(), usize::MAX)?.iter() {
                found = (found.0 + 1, found.1.wrapping_add(hash_of(at.table, &at.key, row)));
            }
            Op::Scan { table: from.table, from: from.key.clone(), to: to.key.clone(), found }
        }
        Step::First(from, to, most) => {
            let mut found = RowDigest::default();
            for (at, row) in epoch.range(from.clone(), to.clone(), *most)?.iter() {
                found.add(at.table, &at.key, row);
            }
            // The model excludes the end of the range, but the loop includes it. The model's end is therefore the smallest
            // byte string after the last key, which is itself not a key.
            let end = [&to.key[..], &[0]].concat();
            Op::Ends { table: from.table, from: from.key.clone(), to: end, back: vec![false; *most], found }
        }
        Step::TakeFirst(from, to) => {
            let first = epoch.range(from.clone(), to.clone(), 1)?.first().map(|(at, _)| at.clone());
            if let Some(at) = &first {
                epoch.delete(at.clone());
            }
            let taken = first.map(|at| at.key);
            Op::TakeFirst { table: from.table, from: from.key.clone(), to: to.key.clone(), taken }
        }
        Step::DeleteRange(from, to) => {
            let rows = epoch.range(from.clone(), to.clone(), usize::MAX)?;
            rows.iter().for_each(|(at, _)| epoch.delete(at.clone()));
            Op::DeleteRange { table: from.table, from: from.key.clone(), to: to.key.clone(), done: rows.len() as u64 }
        }
        _ => unreachable!("a statement on a range"),
    })
}
