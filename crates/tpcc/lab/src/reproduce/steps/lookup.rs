//! Lookups in groups, in a table of 1.5 GiB with random keys. Each lookup reads a row under its lock; a transaction makes
//! 48.

use std::time::{Duration, Instant};

use fastrand::Rng;
use storage::{Database, Durability, OpenTable, Options, Raw, Table, TxnError};

use crate::reproduce::Results;
use crate::reproduce::child::interrupted;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::report::machine::available_memory_bytes;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;

const ROW: usize = 100;
const ROWS: Table<(), ()> = Table::new("rows");
/// Size of the rows in bytes, far larger than the caches of any processor.
const BYTES: u64 = 1536 << 20;
/// Number of lookups of a transaction, a multiple of every group size.
const LOOKUPS: usize = 48;
/// Group sizes: numbers of lookups announced at a time; 0 announces none.
const GROUPS: [usize; 6] = [0, 2, 4, 8, 12, 16];
/// Required free memory of the system, in bytes.
const NEEDED: u64 = 3 << 30;
/// Duration of one measurement of a variant.
const SLICE: Duration = Duration::from_millis(400);

/// Measures lookups by group size, and adds the series and the claim.
pub(super) fn lookup(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    if let Some(free) = available_memory_bytes().filter(|free| *free < NEEDED) {
        let why = format!("needs {} MiB of memory; {} are free", NEEDED >> 20, free >> 20);
        findings.add_claim(claims::LOOKUP.missing(why));
        return Ok(());
    }
    lab.say("lookups in groups: loading 1.5 GiB of rows");
    let directory = lab.scratch().join("lookup");
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("{}: {e}", directory.display()));
    // An interrupted run may have left files in a directory that the user named.
    let _ = std::fs::remove_dir_all(&directory);
    let rounds = if lab.quick { 5 } else { 15 };
    let times = measure(&directory, rounds).map_err(|e| failed(&e))?;
    std::fs::remove_dir_all(&directory).map_err(|e| failed(&e))?;
    let Some(times) = times else { return Err(interrupted()) };
    let mut series = Series::new("steps-lookup", "lookups announced at once", "ns a lookup");
    for (group, ns) in GROUPS.iter().zip(&times) {
        series.push(*group as u32, Spread::of(ns.iter().copied()));
    }
    findings.series.push(series);
    let ratio = |group: usize| {
        let at = GROUPS.iter().position(|size| *size == group)?;
        Spread::of(times.first()?.iter().zip(times.get(at)?).map(|(alone, grouped)| alone / grouped))
    };
    let best = [8, 12, 16].into_iter().filter_map(|group| Some((group, ratio(group)?)));
    let best = best.max_by(|a, b| a.1.mid.total_cmp(&b.1.mid));
    findings.add_claim(match best {
        Some((group, ratio)) => {
            let note = format!("groups of {group}; {} MiB of rows, serializable, rounds interleaved", BYTES >> 20);
            claims::LOOKUP.measured(Some(ratio), note)
        }
        None => claims::LOOKUP.missing("nothing was measured"),
    });
    Ok(())
}

/// Measures a lookup in nanoseconds by group size, round by round. Returns `None` if the user has interrupted.
fn measure(directory: &std::path::Path, rounds: usize) -> Result<Option<Vec<Vec<f64>>>, Box<dyn std::error::Error>> {
    let options = Options::new().buffer_pool(BYTES * 2).durability(Durability::Async).checkpoint_every(256 << 20);
    let db = options.open(directory)?;
    let rows = db.raw_table(&ROWS)?;
    let count = BYTES / ROW as u64;
    let mut load = db.bulk_load(&rows)?;
    let mut row = [b'.'; ROW];
    for key in 0..count {
        row[..8].copy_from_slice(&key.to_le_bytes());
        load.push_raw(&key.to_be_bytes(), &row)?;
        if key % 65_536 == 0 && interrupt::requested() {
            return Ok(None);
        }
    }
    load.finish()?;
    db.preload()?;
    let mut random = Rng::with_seed(SEED);
    let mut times = vec![Vec::new(); GROUPS.len()];
    for _ in 0..rounds {
        for (times, group) in times.iter_mut().zip(GROUPS) {
            let (start, mut done) = (Instant::now(), 0);
            while start.elapsed() < SLICE {
                for _ in 0..16 {
                    run_transaction(&db, &rows, &mut random, count, group)?;
                    done += LOOKUPS;
                }
            }
            times.push(start.elapsed().as_nanos() as f64 / done as f64);
            if interrupt::requested() {
                return Ok(None);
            }
        }
    }
    db.close()?;
    Ok(Some(times))
}

fn run_transaction(
    db: &Database,
    rows: &OpenTable<Raw, Raw>,
    random: &mut Rng,
    count: u64,
    group: usize,
) -> Result<(), TxnError> {
    let keys: [[u8; 8]; LOOKUPS] = std::array::from_fn(|_| random.u64(..count).to_be_bytes());
    let tx = db.begin()?;
    let mut sum = 0;
    for keys in keys.chunks(group.max(1)) {
        if group > 0 {
            tx.raw().prefetch(keys.iter().map(|key| (*rows, &key[..], ROW)));
        }
        for key in keys {
            sum += tx.raw().read(rows, key, |row| u64::from(row[0]))?.unwrap_or(0);
        }
    }
    std::hint::black_box(sum);
    tx.commit_async()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_divide_a_transaction() {
        assert!(GROUPS.iter().all(|group| LOOKUPS.is_multiple_of((*group).max(1))));
    }
}
