//! Random loops against the same loops on one thread.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::{Rng, SeedableRng};
use storage::{Database, Options, SecondaryIndex, Table, Transaction, TxnError};

const ROWS: Table<u64, u64> = Table::new("rows").with_index::<ByRow>();
const LOG: Table<(u64, u64), u64> = Table::new("log");

/// Index of rows by their value modulo 4.
struct ByRow;

impl SecondaryIndex for ByRow {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "by_row";

    fn by(_: &u64, row: &u64) -> Option<u64> {
        Some(row % 4)
    }
}

/// An operation of an iteration. Values depend on what the iteration has read before.
#[derive(Clone, Debug)]
enum Op {
    Get(u64),
    GetForUpdate(u64),
    Put(u64),
    Insert(u64),
    Delete(u64),
    Sum(u64, u64),
    SumBackwards(u64, u64),
    ByIndex(u64),
    TakeFirst(u64, u64),
    DeleteRange(u64, u64),
    PutSeveral(Vec<u64>),
    Undone(Vec<Op>),
    Pause,
    Fail,
    Panic,
}

fn op(rng: &mut rand_pcg::Pcg64Mcg, keys: u64, depth: u32) -> Op {
    let key = rng.random_range(0..keys);
    let to = key + rng.random_range(0..4_u64);
    match rng.random_range(0..120) {
        0..=22 => Op::Get(key),
        23..=30 => Op::GetForUpdate(key),
        31..=50 => Op::Put(key),
        51..=62 => Op::Insert(key),
        63..=72 => Op::Delete(key),
        73..=80 => Op::Sum(key, to),
        81..=84 => Op::SumBackwards(key, to),
        85..=90 => Op::ByIndex(key % 4),
        91..=95 => Op::TakeFirst(key, to),
        96..=98 => Op::DeleteRange(key, to),
        99..=104 => Op::PutSeveral((0..rng.random_range(2..6)).map(|_| rng.random_range(0..keys)).collect()),
        105..=108 if depth == 0 => Op::Undone((0..3).map(|_| op(rng, keys, 1)).collect()),
        109 => Op::Fail,
        110 => Op::Panic,
        _ => Op::Pause,
    }
}

#[derive(Debug, PartialEq)]
enum LoopEnd {
    Refused(u64),
    Other(String),
}

impl From<TxnError> for LoopEnd {
    fn from(error: TxnError) -> LoopEnd {
        LoopEnd::Other(error.to_string())
    }
}

/// Runs an operation. Returns the number that it contributes to the result.
fn run_op(tx: &mut Transaction<'_>, op: &Op, item: u64, seen: u64) -> Result<u64, LoopEnd> {
    let mixed = |of: Option<u64>| of.map_or(7, |row| row.wrapping_mul(31) + 1);
    let new = seen % 1000 + item;
    Ok(match op {
        Op::Get(key) => mixed(tx.get(&ROWS, key)?),
        Op::GetForUpdate(key) => mixed(tx.get_for_update(&ROWS, key)?),
        Op::Put(key) => {
            tx.put(&ROWS, key, &new)?;
            0
        }
        Op::Insert(key) => match tx.insert(&ROWS, key, &new) {
            Err(TxnError::DuplicateKey { .. }) => 1,
            done => done.map(|()| 2)?,
        },
        Op::Delete(key) => u64::from(tx.delete(&ROWS, key)?),
        Op::Sum(from, to) => {
            let rows: Result<Vec<(u64, u64)>, TxnError> = tx.range(&ROWS, *from..=*to)?.collect();
            rows?.iter().fold(3, |sum, (key, row)| (sum * 17 + key * 5 + row) % 1_000_003)
        }
        Op::SumBackwards(from, to) => {
            let rows: Result<Vec<(u64, u64)>, TxnError> = tx.range(&ROWS, *from..=*to)?.rev().collect();
            rows?.iter().fold(4, |sum, (key, row)| (sum * 13 + key * 5 + row) % 1_000_003)
        }
        Op::ByIndex(of) => {
            let rows: Result<Vec<(u64, u64)>, TxnError> = tx.range_by::<ByRow>(&ROWS, *of..=*of)?.collect();
            rows?.iter().fold(5, |sum, (key, row)| (sum * 11 + key * 5 + row) % 1_000_003)
        }
        Op::TakeFirst(from, to) => {
            let first = tx.raw_mut().take_first(&ROWS, &from.to_be_bytes(), &to.to_be_bytes())?;
            first.map_or(0, |key| key.iter().fold(6, |sum, byte| (sum * 3 + u64::from(*byte)) % 1_000_003))
        }
        Op::DeleteRange(from, to) => tx.delete_range(&ROWS, *from..=*to)?,
        Op::PutSeveral(keys) => {
            let rows: Vec<(u64, u64)> = keys.iter().map(|key| (*key, new)).collect();
            tx.put_many(&ROWS, &rows)?;
            0
        }
        Op::Undone(ops) => {
            let before = tx.savepoint();
            let mut sum = 0;
            for op in ops {
                sum += run_op(tx, op, item, seen)?;
            }
            tx.rollback_to(before)?;
            sum
        }
        Op::Pause => {
            std::thread::yield_now();
            0
        }
        Op::Fail => return Err(LoopEnd::Refused(item)),
        Op::Panic => std::panic::resume_unwind(Box::new(item)),
    })
}

fn run_item(tx: &mut Transaction<'_>, item: u64, ops: &[Op]) -> Result<u64, LoopEnd> {
    let mut seen = item;
    for op in ops {
        seen = seen.wrapping_mul(3) % 100_003 + run_op(tx, op, item, seen)? % 100_003;
    }
    tx.insert(&LOG, &(item % 3, item), &seen)?;
    Ok(seen)
}

/// State of a database after a loop, and what the loop returned.
#[derive(Debug, PartialEq)]
struct LoopOutcome {
    results: Vec<u64>,
    end: Result<(), Result<LoopEnd, u64>>,
    rows: BTreeMap<u64, u64>,
    log: BTreeMap<(u64, u64), u64>,
}

struct Program {
    items: Vec<Vec<Op>>,
    keys: u64,
    /// True if the loop is undone to a savepoint before it; a second loop follows.
    undone: bool,
}

fn run(db: &Database, program: &Program) -> LoopOutcome {
    let mut tx = db.begin().unwrap();
    for key in (0..program.keys).step_by(3) {
        tx.put(&ROWS, &key, &key).unwrap();
    }
    let before = tx.savepoint();
    let mut results = Vec::new();
    let mut end = Ok(());
    for round in 0..2 {
        let items = program.items.iter().enumerate().map(|(n, ops)| (round * 1000 + n as u64, ops));
        let looped = catch_unwind(AssertUnwindSafe(|| {
            tx.in_order(items, |tx, (item, ops)| run_item(tx, *item, ops), |result| results.push(result))
        }));
        end = looped.map_err(|panic| Err(*panic.downcast::<u64>().unwrap())).and_then(|end| end.map_err(Ok));
        if round == 0 && program.undone {
            tx.rollback_to(before).unwrap();
        } else if round == 0 {
            // The transaction goes on between its loops.
            tx.put(&ROWS, &1, &77).unwrap();
            tx.delete(&ROWS, &2).unwrap();
        }
    }
    tx.commit().unwrap();
    let tx = db.begin().unwrap();
    let rows = tx.range(&ROWS, ..).unwrap().collect::<Result<_, _>>().unwrap();
    let log = tx.range(&LOG, ..).unwrap().collect::<Result<_, _>>().unwrap();
    drop(tx);
    db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    LoopOutcome { results, end, rows, log }
}

fn database(threads: usize) -> (storage::disk::MemDisk, Database) {
    let disk = storage::disk::MemDisk::new();
    let options = Options::new().buffer_pool(4 << 20).loop_threads(threads);
    let db = options.open_on(std::sync::Arc::new(disk.clone())).unwrap();
    (disk, db)
}

#[test]
fn a_loop_on_several_threads_does_what_it_does_on_one() {
    let seeds = std::env::var("LOOPS").map_or(120, |loops| loops.parse().unwrap());
    for seed in 0..seeds {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        let keys = rng.random_range(4..60);
        let items = rng.random_range(1..40);
        let most = rng.random_range(1..12);
        let items =
            (0..items).map(|_| (0..rng.random_range(0..=most)).map(|_| op(&mut rng, keys, 0)).collect()).collect();
        let program = Program { items, keys, undone: rng.random() };
        let (_one_disk, one) = database(1);
        let (_many_disk, many) = database(rng.random_range(2..5));
        let (expected, found) = (run(&one, &program), run(&many, &program));
        assert_eq!(found, expected, "seed {seed}");
        many.close().unwrap();
    }
}
