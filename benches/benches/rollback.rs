//! Duration of the rollback of a long transaction, relative to the duration of the transaction itself.
//!
//! Each round inserts small rows in one transaction and then rolls it back. The result is the ratio of the two durations.
//! Both durations are measured within the same minute. Criterion cannot measure such a ratio, so this program prints one
//! line per round, and the median. `ROLLBACK_ROWS` (default: 1,000,000) and `ROLLBACK_ROUNDS` (default: 7) set the size.

use std::time::Instant;

use benches::{Fixture, is_smoke};
use fastrand::Rng;
use storage::{Database, Durability, Table};

const SMALL: Table<u64, u64> = Table::new("small");

/// Inserts rows in a transaction and rolls it back. Returns the seconds of the inserts and the seconds of the rollback.
fn round(db: &Database, keys: impl Iterator<Item = u64>) -> (f64, f64) {
    let rows = db.table(&SMALL).expect("a new table");
    let mut tx = db.begin().expect("a free slot");
    let start = Instant::now();
    for key in keys {
        tx.put(&rows, &key, &key).expect("space");
    }
    let inserted = start.elapsed().as_secs_f64();
    let start = Instant::now();
    tx.rollback().expect("pages in memory");
    (inserted, start.elapsed().as_secs_f64())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn main() {
    let (rows, rounds) = if is_smoke() {
        (2_000, 1)
    } else {
        (setting("ROLLBACK_ROWS", 1_000_000), setting("ROLLBACK_ROUNDS", 7).max(1))
    };
    for variant in ["ascending", "random"] {
        let id = format!("txn/rollback/inserts-{variant}");
        if std::env::args().skip(1).any(|arg| !arg.starts_with('-') && !id.contains(&arg)) {
            continue;
        }
        let mut ratios = Vec::new();
        for round_number in 0..rounds {
            // Each round uses an empty database, because ghost records of the previous round would change the workload.
            let fixture = Fixture::new(Durability::Async);
            let mut random = Rng::with_seed(round_number);
            let (inserted, undone) = match variant {
                "ascending" => round(fixture.db(), 0..rows),
                _ => round(fixture.db(), (0..rows).map(|_| random.u64(..u64::MAX))),
            };
            println!(
                "{id}: {rows} rows inserted in {inserted:.3} s, rolled back in {undone:.3} s: {:.2}",
                undone / inserted
            );
            ratios.push(undone / inserted);
        }
        ratios.sort_by(f64::total_cmp);
        println!("{id}: median ratio {:.2}", ratios[ratios.len() / 2]);
    }
}
