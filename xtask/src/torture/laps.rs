//! Laps: a scripted workload for what lies behind the log's end. One small row is written again and again, by records
//! of equal length, so that what is left there from before (from the last lap through a recycled segment, or by a run
//! that lost its power) often begins just where the log ends; whole, and not part of it.
//!
//! Each crash is survived by the next life. A row says in which life it was written, so that it is never taken for one
//! of another.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use storage::disk::{Crash, SimDisk};
use storage::{Background, Database, Options, Table, TxnError};

use super::seeds::Tried;
use crate::sim::caught::caught;
use crate::sim::rng::Rng;

const LIVES: u64 = 24;
/// The row that counts, and rows that fill segments.
const ROWS: Table<u64, Vec<u8>> = Table::new("laps");
const COUNTER: u64 = 0;
const FILLER: usize = 3900;

/// The life that wrote a row, and how many of that life's came before.
type Count = (u64, u64);

/// All lives of a seed, a case each.
pub(super) fn one(seed: u64, tried: &mut Tried) {
    let mut rng = Rng::new(seed ^ 0x1a95);
    let mut disk = SimDisk::new(seed);
    let mut last: Count = (0, 0);
    for life in 1..=LIVES {
        tried.cases += 1;
        let lived = caught(|| live(&disk, seed, life, last, &mut rng));
        match lived.and_then(|lived| lived.unwrap_or_else(|| Err("stopped".into()))) {
            Ok((left, possible)) => {
                let found = caught(|| open(&left.crash(Crash::All), seed).and_then(|db| count(&db)));
                match found.and_then(|found| found.unwrap_or_else(|| Err("stopped".into()))) {
                    Ok(found) if possible.contains(&found) => (disk, last) = (left, found),
                    Ok(found) => return tried.fail("crash", seed, format!("lap {life}: {found:?}, not {possible:?}")),
                    Err(what) => return tried.fail("crash", seed, format!("lap {life}: restart: {what}")),
                }
            }
            Err(what) => return tried.fail("crash", seed, format!("lap {life}: {what}")),
        }
    }
}

/// One life, from a restart to a crash: the disk that it leaves, and what may be found there.
fn live(disk: &SimDisk, seed: u64, life: u64, last: Count, rng: &mut Rng) -> Result<(SimDisk, Vec<Count>), String> {
    let db = open(disk, seed)?;
    let found = count(&db)?;
    if found != last {
        return Err(format!("{found:?} at the second restart, {last:?} at the first"));
    }
    let mut possible = vec![last];
    for number in 0..rng.below(30) {
        let sync = rng.once_in(6);
        // What is begun may be found.
        possible.push((life, number));
        write(&db, (life, number), sync).map_err(|e| e.to_string())?;
        if sync {
            possible.drain(..possible.len() - 1);
        } else if rng.once_in(3) {
            // Written, and not synced: time stands still.
            db.step().map_err(|e| e.to_string())?;
        }
    }
    if rng.once_in(2) {
        for n in 0..rng.below(16) {
            fill(&db, 1 + n % 4, n as u8).map_err(|e| e.to_string())?;
        }
        db.checkpoint().map_err(|e| e.to_string())?;
        possible.drain(..possible.len() - 1);
    }
    for number in 100..100 + rng.below(12) {
        possible.push((life, number));
        write(&db, (life, number), false).map_err(|e| e.to_string())?;
        db.step().map_err(|e| e.to_string())?;
    }
    let how = [Crash::All, Crash::Nothing, Crash::Random(rng.next()), Crash::Random(rng.next())];
    let left = disk.crash(rng.pick(&how));
    // Nothing that closing does reaches the disk.
    disk.power_off_after(0);
    Ok((left, possible))
}

fn open(disk: &SimDisk, seed: u64) -> Result<Database, String> {
    let options = Options::new()
        .buffer_pool(storage::MIN_POOL_BYTES)
        .log_segment(64 << 10)
        .log_buffer(64 << 10)
        .transactions(2)
        .clock(Arc::new(AtomicU64::new(1)))
        .database_id(seed | 1)
        .background(Background::Inline);
    let db = options.open_on(Arc::new(disk.clone())).map_err(|e| e.to_string())?;
    db.table(&ROWS).map_err(|e| e.to_string())?;
    Ok(db)
}

fn count(db: &Database) -> Result<Count, String> {
    let row = db.begin().and_then(|mut tx| tx.get(&ROWS, &COUNTER)).map_err(|e| e.to_string())?;
    let Some(row) = row else { return Ok((0, 0)) };
    let word =
        |at: usize| row.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(u64::MAX, |b| u64::from_le_bytes(*b));
    Ok((word(0), word(8)))
}

fn write(db: &Database, (life, number): Count, sync: bool) -> Result<(), TxnError> {
    let mut tx = db.begin()?;
    // The last byte changes every time, so that records are equally long.
    let row = [life.to_le_bytes(), number.to_le_bytes(), (life << 32 | number).to_be_bytes()].concat();
    tx.put(&ROWS, &COUNTER, &row)?;
    if sync { tx.commit() } else { tx.commit_async().map(drop) }
}

fn fill(db: &Database, key: u64, byte: u8) -> Result<(), TxnError> {
    db.transact(|tx| tx.put(&ROWS, &key, &vec![byte; FILLER]))
}
