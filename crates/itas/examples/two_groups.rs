//! Two groups of fibers: clients that look up keys in two large tables. If the clients of one table run one after the
//! other, each finds in the cache the data that the previous one loaded.
//!
//! `cargo run --release -p itas --example two_groups`
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use itas::policy::{Fair, Policy, Tas};
use itas::{Progress, Runtime};

/// Number of entries in a table of 1 MiB.
const ENTRIES: usize = 1 << 17;
const CLIENTS: usize = 8;

/// Creates a table whose entries form a chain through the whole table: each entry is the index of the next lookup.
fn table(seed: u64) -> Vec<u64> {
    let mut next: Vec<u64> = (0..ENTRIES as u64).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    for last in (1..ENTRIES).rev() {
        next.swap(last, random.usize(..last));
    }
    next
}

/// Runs lookups for a fixed time. Returns the lookups per second, and the number of changes of table per second.
fn measure(
    tables: &[Vec<u64>; 2],
    policy: impl Policy + Clone + Sync + 'static,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let builder = Runtime::builder().workers(1).policy(policy).slice(Duration::from_micros(20));
    // SAFETY: the clients below use no thread-local, so none is open where they are suspended.
    let mut runtime = unsafe { builder.build() }?;
    let groups = [runtime.group("clients of the first table")?, runtime.group("clients of the second")?];
    let (stop, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    let (_, report) = runtime.run(|spawner| {
        for client in 0..2 * CLIENTS {
            let (table, stop, lookups) = (&tables[client % 2], &stop, &lookups);
            let mut at = client as u64;
            // One operation is 100 lookups. Between two operations the fiber may be suspended, and may be moved to
            // another core.
            let work = move || {
                for _ in 0..100 {
                    at = table[at as usize];
                }
                lookups.fetch_add(100, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) { Progress::Done } else { Progress::More }
            };
            if spawner.spawn_work(groups[client % 2], work).is_err() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(400));
        stop.store(true, Ordering::Relaxed);
    })?;
    let seconds = report.elapsed.as_secs_f64();
    Ok((lookups.into_inner() as f64 / seconds, report.total().switches_between as f64 / seconds))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tables = [table(1), table(2)];
    let (fair, fair_switches) = measure(&tables, Fair)?;
    let (tas, tas_switches) = measure(&tables, Tas)?;
    println!("fair: {:.1} million lookups a second, {fair_switches:.0} changes of table a second", fair / 1e6);
    println!("tas:  {:.1} million lookups a second, {tas_switches:.0} changes of table a second", tas / 1e6);
    println!("tas / fair: {:.2}", tas / fair);
    Ok(())
}
