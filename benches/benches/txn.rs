//! Cost of transactions: begin, commit, rollback. Also the cost of a commit's log records by their size.

use std::time::Duration;

use benches::{Fixture, HOT_ROWS, ROWS, row};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use storage::{Durability, Table};

/// Measures transactions from begin to commit.
fn commit(c: &mut Criterion) {
    let (fixture, rows) = Fixture::with_rows(HOT_ROWS);
    let db = fixture.db();
    let mut random = Rng::with_seed(3);
    c.bench_function("txn/commit/empty", |b| {
        b.iter(|| db.begin().expect("a free slot").commit_async().expect("an empty commit"));
    });
    let mut stamp = 0u64;
    c.bench_function("txn/commit/one-update", |b| {
        b.iter(|| {
            stamp += 1;
            let key = random.u64(..HOT_ROWS).to_be_bytes();
            let mut tx = db.begin().expect("a free slot");
            tx.raw_mut().update(&rows, &key, |row| row[..8].copy_from_slice(&stamp.to_le_bytes())).expect("a row");
            tx.commit_async().expect("an open log")
        });
    });
    c.bench_function("txn/commit/one-update-typed", |b| {
        b.iter(|| {
            stamp += 1;
            let key = random.u64(..HOT_ROWS);
            let mut tx = db.begin().expect("a free slot");
            tx.update(&rows, &key, &row(stamp)).expect("a row");
            tx.commit().expect("an open log");
        });
    });
    c.bench_function("txn/rollback/one-update", |b| {
        b.iter(|| {
            stamp += 1;
            let key = random.u64(..HOT_ROWS).to_be_bytes();
            let mut tx = db.begin().expect("a free slot");
            tx.raw_mut().update(&rows, &key, |row| row[..8].copy_from_slice(&stamp.to_le_bytes())).expect("a row");
            tx.rollback().expect("pages in memory")
        });
    });
}

/// Measures commits of a single writer that waits for the disk: the cost of one sync.
fn commit_sync(c: &mut Criterion) {
    let fixture = Fixture::new(Durability::Sync);
    let db = fixture.db();
    let rows = db.table(&ROWS).expect("a new table");
    let mut stamp = 0u64;
    c.bench_function("txn/commit/one-put-sync", |b| {
        b.iter(|| {
            stamp += 1;
            let mut tx = db.begin().expect("a free slot");
            tx.put(&rows, &(stamp % 100), &row(stamp)).expect("space");
            tx.commit().expect("an open log");
        });
    });
}

/// Measures commits that log an update of `bytes` bytes. The log record contains the old and the new value.
fn append(c: &mut Criterion) {
    const WIDE: Table<u64, Vec<u8>> = Table::new("wide");
    const N: u64 = 100;
    let fixture = Fixture::new(Durability::Async);
    let db = fixture.db();
    let wide = db.table(&WIDE).expect("a new table");
    db.transact(|tx| (0..N).try_for_each(|key| tx.insert(&wide, &key, &vec![0; 3000]))).expect("space");
    let mut random = Rng::with_seed(4);
    let mut stamp = 0u8;
    let mut group = c.benchmark_group("log/append");
    for bytes in [8usize, 128, 1024, 3000] {
        group.throughput(Throughput::Bytes(2 * bytes as u64));
        group.bench_function(BenchmarkId::from_parameter(format!("update-{bytes}")), |b| {
            b.iter(|| {
                stamp = stamp.wrapping_add(1);
                let key = random.u64(..N).to_be_bytes();
                let mut tx = db.begin().expect("a free slot");
                tx.raw_mut().update(&wide, &key, |row| row[..bytes].fill(stamp)).expect("a row");
                tx.commit_async().expect("an open log")
            });
        });
    }
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = commit, commit_sync, append }
criterion_main!(benches);
