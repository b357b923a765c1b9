//! Lookups in a B+tree: in a tree that the processor's caches hold and in a larger one, one by one and announced in groups.
//!
//! A lookup is a read of one row in a transaction of sixteen reads, with begin and commit included. The lock of a row is as
//! likely to be in a cache as the row.

use std::time::Duration;

use benches::{Fixture, HOT_ROWS, ROW, Rows, cold_rows};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use storage::Database;

/// Number of lookups per transaction.
const GROUP: usize = 16;

/// Reads sixteen random rows in one transaction. Announces them first if `announce` is true.
fn lookups(db: &Database, rows: &Rows, random: &mut Rng, n: u64, announce: bool) -> u32 {
    let keys: [[u8; 8]; GROUP] = std::array::from_fn(|_| random.u64(..n).to_be_bytes());
    let tx = db.begin().expect("a free slot");
    if announce {
        tx.raw().prefetch(keys.iter().map(|k| (*rows, &k[..], ROW)));
    }
    let mut sum = 0;
    for key in &keys {
        let first = tx.raw().read(rows, key, |row| row[0]).expect("no deadlock");
        sum += u32::from(first.expect("a row"));
    }
    tx.commit_async().expect("a read-only commit");
    sum
}

fn lookup(c: &mut Criterion) {
    let sizes = [("hot", HOT_ROWS), ("cold", cold_rows())];
    for (size, n) in sizes {
        let (fixture, rows) = Fixture::with_rows(n);
        let mut group = c.benchmark_group("btree/lookup");
        group.throughput(Throughput::Elements(GROUP as u64));
        for (variant, announce) in [("", false), ("-prefetched", true)] {
            let mut random = Rng::with_seed(5);
            group.bench_function(format!("{size}{variant}"), |b| {
                b.iter(|| lookups(fixture.db(), &rows, &mut random, n, announce));
            });
        }
        group.finish();
    }
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_secs(3))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = lookup }
criterion_main!(benches);
