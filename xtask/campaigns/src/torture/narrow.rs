//! Scripted workload for restarts with a buffer pool that is too small. More pages change between two checkpoints than the
//! pool has frames, so redo evicts pages that it has changed. For each eviction, redo first saves the older copy from which
//! the page may have been repaired, and reads the page again later. Each statement changes many rows, in any order of keys.
//!
//! In some cases, the workload itself had a pool for all pages, and only the restart has a small one. Redo then evicts the
//! pages that it changed first.
//!
//! The restart is interrupted at a random call, and then once more, before a restart may complete. The completed restart
//! must find every commit.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use storage::disk::{Crash, SimDisk};
use storage::{Background, Database, Extremes, Options, Table, Transaction, TxnError};

use super::seeds::SeedResult;
use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;
use crate::sim::scheduler::Scheduler;

const ROWS: Table<u64, Vec<u8>> = Table::new("narrow");
/// Number of rows. With rows of `BYTES` bytes, they take about three times the smallest pool.
const COUNT: u64 = 3000;
const BYTES: usize = 1000;
/// Number of rows that one statement changes.
const TOGETHER: u64 = 12;

/// Number of committed increments of each row.
type Increments = Vec<u8>;

/// Cases of a seed. True if the workload's pool has room for all pages.
const ROOMY: [bool; 3] = [false, true, true];

/// Runs all cases of a seed.
pub(super) fn run_seed(seed: u64, seed_result: &mut SeedResult) {
    let mut rng = Rng::new(seed ^ 0x0a22);
    for roomy in ROOMY {
        seed_result.cases += 1;
        let survived =
            catch_panic(|| run_case(seed, roomy, &mut rng)).and_then(|r| r.unwrap_or_else(|| Err("stopped".into())));
        if let Err(what) = survived {
            let pool = if roomy { "a pool smaller than before" } else { "a small pool" };
            return seed_result.fail("crash", Scheduler::Threads, seed, format!("in {pool}: {what}"));
        }
    }
}

fn run_case(seed: u64, roomy: bool, rng: &mut Rng) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let sizes = Sizes::draw(roomy, rng);
    let db = open(&disk, seed, sizes.at_work, sizes)?;
    let expected = work(&db, rng).map_err(|e| e.to_string())?;
    let how = if rng.once_in(2) { Crash::Nothing } else { Crash::Random(rng.next()) };
    let mut left = disk.crash(how);
    disk.power_off_after(0);
    drop(db);
    for _ in 0..rng.below(3) {
        left.power_off_after(rng.below(200));
        let interrupted = open(&left, seed, storage::MIN_POOL_BYTES, sizes);
        if let (Err(what), false) = (&interrupted, left.is_off()) {
            return Err(format!("restart: {what}"));
        }
        let next = left.crash(if rng.once_in(2) { Crash::All } else { Crash::Random(rng.next()) });
        left.power_off_after(0);
        drop(interrupted);
        left = next;
    }
    let db = open(&left, seed, storage::MIN_POOL_BYTES, sizes).map_err(|what| format!("restart: {what}"))?;
    let found = read(&db).map_err(|e| e.to_string())?;
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    left.power_off_after(0);
    match wrong {
        None => Ok(()),
        Some(key) => Err(format!("row {key} was counted {} times, of {}", found[key], expected[key])),
    }
}

/// Increments rows of the whole table in transactions. Returns the durable increments.
fn work(db: &Database, rng: &mut Rng) -> Result<Increments, TxnError> {
    db.transact(|tx| (0..COUNT).try_for_each(|key| tx.insert(&ROWS, &key, &vec![0; BYTES])))?;
    db.checkpoint()?;
    let mut counts = vec![0; COUNT as usize];
    // There are few transactions, so that redo's read-ahead has the last segment of the log in memory before the first
    // eviction.
    for _ in 0..10 + rng.below(70) {
        let keys: Vec<u64> = (0..TOGETHER).map(|_| rng.below(COUNT)).collect();
        let mut tx = db.begin()?;
        count(&mut tx, &keys)?;
        if rng.once_in(5) {
            tx.rollback()?;
        } else {
            tx.commit_async()?;
            keys.iter().for_each(|key| counts[*key as usize] += 1);
        }
    }
    let mut unfinished = db.begin()?;
    count(&mut unfinished, &[rng.below(COUNT), rng.below(COUNT)])?;
    let last = db.begin()?.commit_async()?;
    db.wait_durable(last)?;
    std::mem::forget(unfinished);
    Ok(counts)
}

fn count(tx: &mut Transaction<'_>, keys: &[u64]) -> Result<(), TxnError> {
    let keys: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    tx.raw_mut().update_heads(&ROWS, &keys, 1, |_, head, _| head[0] += 1).map(drop)
}

fn read(db: &Database) -> Result<Increments, TxnError> {
    let tx = db.begin()?;
    let rows = tx.range(&ROWS, ..)?;
    rows.map(|row| row.map(|(_, row)| row.first().copied().unwrap_or(u8::MAX))).collect()
}

#[derive(Clone, Copy)]
struct Sizes {
    /// Size of the buffer pool of the workload, in bytes. Restarts have the smallest pool.
    at_work: u64,
    segment: u64,
    /// Size of redo's reads from the log, in bytes.
    piece: usize,
}

impl Sizes {
    fn draw(roomy: bool, rng: &mut Rng) -> Sizes {
        let piece = rng.pick(&[20_000, 100_000, 512 << 10, 512 << 10]);
        let (at_work, segment) = if roomy { (8 << 20, 4 << 20) } else { (storage::MIN_POOL_BYTES, 64 << 10) };
        Sizes { at_work, segment, piece }
    }
}

fn open(disk: &SimDisk, seed: u64, pool: u64, sizes: Sizes) -> Result<Database, String> {
    let sizes = Extremes {
        segment_bytes: sizes.segment,
        ring_bytes: 128 << 10,
        reader_bytes: sizes.piece,
        lock_buckets: 16,
        shard_frames: 2048,
        contended_at: 32,
    };
    let options = Options::new()
        .buffer_pool(pool)
        .sizes(sizes)
        .checkpoint_every(1 << 30)
        .transactions(3)
        .clock(Arc::new(AtomicU64::new(1)))
        .database_id(seed | 1)
        .background(Background::Inline);
    options.open_on(Arc::new(disk.clone())).map_err(|e| e.to_string())
}
