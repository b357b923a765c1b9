//! Scripted workload for the bytes after the end of the log. A short transaction, which increments a counter row, begins at
//! the start of each log block. If the log ends at a block boundary, a stale record follows: one from the previous use of a
//! recycled segment, or from a run that lost power. The stale record is complete, but not part of the log. If the log ends
//! elsewhere, the zeros that fill the last block separate its end from stale records.
//!
//! Each life begins after a crash of the previous life. The counter row includes the number of the life in which it was
//! written, so that rows of different lives differ. Sometimes a transaction that has changed a row stays open for a whole
//! life. The log must then not be truncated after the start of this transaction, and no restart may show its change.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use storage::disk::{Crash, SimDisk};
use storage::{Background, Database, Extremes, Lsn, Options, Table, TxnError};

use super::seeds::SeedResult;
use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;
use crate::sim::scheduler::Scheduler;
use crate::sim::sizes;

const LIVES: u64 = 40;
/// Block size of the log, in bytes. The log is written in units of this size.
const BLOCK: u64 = 4096;
/// Table with a counter row, and with a filler row whose updates write log records of a chosen length.
const ROWS: Table<u64, Vec<u8>> = Table::new("laps");
const COUNTER: u64 = 0;
const FILLER: u64 = 1;
/// Key of a row that is written only by transactions that do not end.
const OPEN: u64 = 2;
/// Maximum length of the filler row, in bytes. A log record contains the changed bytes once, as a difference.
const LONGEST: usize = 2200;
/// Number of log blocks between two checkpoints. It is small, so that segments are recycled.
const CHECKPOINT_EVERY: u64 = 10;

/// Counter row: the number of the life that wrote it, and the value of the counter in that life.
type Count = (u64, u64);

/// Runs all lives of a seed, one case each.
pub(super) fn run_seed(seed: u64, seed_result: &mut SeedResult) {
    let mut rng = Rng::new(seed ^ 0x1a95);
    let mut disk = SimDisk::new(seed);
    let mut last: Count = (0, 0);
    for life in 1..=LIVES {
        seed_result.cases += 1;
        let lived = run_caught(|| run_life(&disk, seed, life, last, &mut rng));
        let survived = lived.and_then(|(left, possible)| {
            let restarted = run_caught(|| open(&left.crash(Crash::All), seed).and_then(|db| count(&db)));
            let found = restarted.map_err(|what| format!("restart: {what}"))?;
            let known = possible.contains(&found);
            known.then_some((left, found)).ok_or_else(|| format!("{found:?} is there, not one of {possible:?}"))
        });
        match survived {
            Ok(next) => (disk, last) = next,
            Err(what) => return seed_result.fail("crash", Scheduler::Threads, seed, format!("lap {life}: {what}")),
        }
    }
}

/// Runs `f` and returns its result. A panic is returned as an error.
fn run_caught<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_panic(f)?.unwrap_or_else(|| Err("stopped".into()))
}

/// Runs one life, from a restart to a crash. Returns the disk after the crash, and the counter rows that recovery may find.
fn run_life(disk: &SimDisk, seed: u64, life: u64, last: Count, rng: &mut Rng) -> Result<(SimDisk, Vec<Count>), String> {
    let db = open(disk, seed)?;
    let found = count(&db)?;
    if found != last {
        return Err(format!("{found:?} at the second restart, {last:?} at the first"));
    }
    let mut open = rng.once_in(4).then(|| db.begin()).transpose().map_err(|e| e.to_string())?;
    if let Some(tx) = &mut open {
        tx.put(&ROWS, &OPEN, &vec![1; 100]).map_err(|e| e.to_string())?;
    }
    let mut writer = LogWriter { db: &db, life, number: 0, filler: vec![0; LONGEST], possible: vec![last] };
    writer.write(FILLER, &writer.filler)?;
    let mut at = writer.count()?;
    // Often no block is written. The log then ends directly after the restart's own records, before stale records of the
    // previous life.
    let blocks = if rng.once_in(3) { 1 + rng.below(40) } else { 0 };
    for block in 1..=blocks {
        writer.fill_block(at)?;
        at = writer.count()?;
        if block % CHECKPOINT_EVERY == 0 {
            db.checkpoint().map_err(|e| e.to_string())?;
            at = writer.count()?;
        }
    }
    at = writer.fill_block(at)?;
    writer.sync(at)?;
    if rng.once_in(2) {
        // These transactions are written but not synced, because the virtual clock does not advance.
        for _ in 0..1 + rng.below(6) {
            at = writer.count()?;
            writer.fill_block(at)?;
        }
        db.step().map_err(|e| e.to_string())?;
    }
    let possible = writer.possible;
    let how = match rng.below(6) {
        0 => Crash::All,
        1 => Crash::Nothing,
        _ => Crash::Random(rng.next()),
    };
    let left = disk.crash(how);
    // Closing the database must not write to the disk.
    disk.power_off_after(0);
    Ok((left, possible))
}

/// Writer of the transactions of one life. No transaction waits until it is durable.
struct LogWriter<'a> {
    db: &'a Database,
    life: u64,
    number: u64,
    /// Current contents of the filler row.
    filler: Vec<u8>,
    /// Counter rows that recovery may find after a crash at this point, oldest first.
    possible: Vec<Count>,
}

impl LogWriter<'_> {
    /// Increments the counter row. Returns the end of the log.
    fn count(&mut self) -> Result<Lsn, String> {
        self.number += 1;
        self.possible.push((self.life, self.number));
        self.write(COUNTER, &[self.life.to_le_bytes(), self.number.to_le_bytes()].concat())
    }

    /// Pads the log from its end `at` to the next block boundary.
    fn fill_block(&mut self, mut at: Lsn) -> Result<Lsn, String> {
        // One attempt may not suffice: the filler row is shorter than a block, and a checkpoint may write records in between.
        for _ in 0..8 {
            if at.0.is_multiple_of(BLOCK) {
                return Ok(at);
            }
            let before = self.change(8)?;
            let after = self.change(8)?;
            let (shortest, left) = (after.0 - before.0, BLOCK - after.0 % BLOCK);
            let left = if left < shortest { left + BLOCK } else { left };
            at = self.change(8 + (left - shortest) as usize)?;
        }
        Err("no block of the log came to its end".into())
    }

    /// Changes the first `bytes` bytes of the filler row, or all of them. The log record contains the changed bytes once.
    fn change(&mut self, bytes: usize) -> Result<Lsn, String> {
        self.filler.iter_mut().take(bytes).for_each(|byte| *byte = byte.wrapping_add(1));
        self.write(FILLER, &self.filler)
    }

    fn write(&self, key: u64, row: &Vec<u8>) -> Result<Lsn, String> {
        let write = || {
            let mut tx = self.db.begin()?;
            tx.put(&ROWS, &key, row)?;
            tx.commit_async()
        };
        write().map_err(|e: TxnError| e.to_string())
    }

    /// Makes the log durable up to `at`. Afterwards only the newest counter row is possible.
    fn sync(&mut self, at: Lsn) -> Result<(), String> {
        let durable = if at.0.is_multiple_of(2) { self.db.sync() } else { self.db.wait_durable(at) };
        durable.map_err(|e| e.to_string())?;
        self.possible.drain(..self.possible.len() - 1);
        Ok(())
    }
}

fn open(disk: &SimDisk, seed: u64) -> Result<Database, String> {
    let mut rng = Rng::new(seed);
    // Segments must be small, because only then are they recycled.
    let sizes = Extremes { segment_bytes: rng.pick(&[16 << 10, 64 << 10]), ..sizes::draw(&mut rng) };
    let options = Options::new()
        .buffer_pool(storage::MIN_POOL_BYTES)
        .sizes(sizes)
        .transactions(3)
        .clock(Arc::new(AtomicU64::new(1)))
        .database_id(seed | 1)
        .background(Background::Inline);
    let db = options.open_on(Arc::new(disk.clone())).map_err(|e| e.to_string())?;
    db.table(&ROWS).map_err(|e| e.to_string())?;
    Ok(db)
}

fn count(db: &Database) -> Result<Count, String> {
    let read = |key| db.begin().and_then(|tx| tx.get(&ROWS, &key)).map_err(|e| e.to_string());
    if let Some(row) = read(OPEN)? {
        return Err(format!("a transaction that never ended is there: {row:?}"));
    }
    let Some(row) = read(COUNTER)? else { return Ok((0, 0)) };
    let word = |at: usize| row.get(at..at + 8).and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b));
    word(0).zip(word(8)).ok_or_else(|| format!("no row that anybody wrote: {row:?}"))
}
