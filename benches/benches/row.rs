//! Statements on rows: read, update, insert, delete, scan.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use benches::{Fixture, HOT_ROWS, PER_TRANSACTION, ROWS, Rows, inside, is_smoke, row};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use storage::{Durability, Transaction};

/// Measures reads of hot rows in pseudo-random order.
fn read(c: &mut Criterion) {
    let (fixture, rows) = Fixture::with_rows(HOT_ROWS);
    let db = fixture.db();
    let mut random = Rng::with_seed(1);
    c.bench_function("row/read/begin-to-commit", |b| {
        b.iter(|| {
            let key = random.u64(..HOT_ROWS).to_be_bytes();
            let tx = db.begin().expect("a free slot");
            let sum = tx.raw().read(&rows, &key, |row| row[0]).expect("a row");
            tx.commit_async().expect("a read-only commit");
            sum
        });
    });
    c.bench_function("row/read/begin-to-commit-typed", |b| {
        b.iter(|| {
            let key = random.u64(..HOT_ROWS);
            let tx = db.begin().expect("a free slot");
            let row = tx.get(&rows, &key).expect("a row");
            tx.commit().expect("a read-only commit");
            row
        });
    });
    // This permutation of the keys reads, and locks, each row once per transaction.
    let key_at = |i: u64| i * 617 % HOT_ROWS;
    c.bench_function("row/read/open-transaction", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.raw().read(&rows, &key_at(i).to_be_bytes(), |row| row[0]).expect("a row"));
            })
        });
    });
    c.bench_function("row/read/open-transaction-typed", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.get(&rows, &key_at(i)).expect("a row"));
            })
        });
    });
    c.bench_function("row/read/open-transaction-by-name", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.get(&ROWS, &key_at(i)).expect("a row"));
            })
        });
    });
}

/// Number of rows that a transaction reads in `row/read/16-cold`.
const GROUP: u64 = 16;

/// Measures reads of sixteen typed rows of a table larger than the processor's caches, one by one and together.
fn read_cold(c: &mut Criterion) {
    let n = if is_smoke() { HOT_ROWS } else { 2_000 * HOT_ROWS };
    let (fixture, rows) = Fixture::with_rows(n);
    let db = fixture.db();
    let mut group = c.benchmark_group("row/read");
    group.throughput(Throughput::Elements(GROUP));
    for (id, together) in [("16-cold", false), ("16-cold-together", true)] {
        let mut random = Rng::with_seed(3);
        group.bench_function(id, |b| {
            b.iter(|| {
                let keys: [u64; GROUP as usize] = std::array::from_fn(|_| random.u64(..n));
                let tx = db.begin().expect("a free slot");
                if together {
                    black_box(tx.get_many(&rows, &keys).expect("rows"));
                } else {
                    for key in &keys {
                        black_box(tx.get(&rows, key).expect("a row"));
                    }
                }
                tx.commit().expect("a read-only commit");
            });
        });
    }
    group.finish();
}

/// Measures in-place updates of eight bytes of a hot row of a hundred bytes. A transaction updates each row once.
fn update(c: &mut Criterion) {
    let (fixture, rows) = Fixture::with_rows(HOT_ROWS);
    let db = fixture.db();
    let key_at = |i: u64| i * 617 % HOT_ROWS;
    let mut stamp = 0u64;
    c.bench_function("row/update/open-transaction", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                stamp += 1;
                let key = key_at(i).to_be_bytes();
                tx.raw_mut().update(&rows, &key, |row| row[..8].copy_from_slice(&stamp.to_le_bytes())).expect("a row");
            })
        });
    });
    c.bench_function("row/update/open-transaction-head", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                stamp += 1;
                let key = key_at(i).to_be_bytes();
                let change = |head: &mut [u8], _: &[u8]| head.copy_from_slice(&stamp.to_le_bytes());
                tx.raw_mut().update_head(&rows, &key, 8, change).expect("a row");
            })
        });
    });
    c.bench_function("row/update/open-transaction-typed", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                stamp += 1;
                tx.update(&rows, &key_at(i), &row(stamp)).expect("a row");
            })
        });
    });
    c.bench_function("row/update/open-transaction-whole-row", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                stamp += 1;
                tx.raw_mut().update(&rows, &key_at(i).to_be_bytes(), |row| row.fill(stamp as u8)).expect("a row");
            })
        });
    });
}

/// Number of rows to insert before a new empty database replaces the current one.
const INSERTS: u64 = 200_000;

/// Measures `n` inserts into tables that start empty, at most [`INSERTS`] per table.
fn inserts(n: u64, insert: impl Fn(&mut Transaction<'_>, &Rows, u64)) -> Duration {
    let mut spent = Duration::ZERO;
    let mut done = 0;
    while done < n {
        let fixture = Fixture::new(Durability::Async);
        let rows = fixture.db().table(&ROWS).expect("a new table");
        let mut key = 0;
        spent += inside(fixture.db(), (n - done).min(INSERTS), |tx, _| {
            insert(tx, &rows, key);
            key += 1;
        });
        done += INSERTS;
    }
    spent
}

/// Measures inserts of rows of 100 bytes, page splits included.
fn insert(c: &mut Criterion) {
    c.bench_function("row/insert/open-transaction", |b| {
        b.iter_custom(|n| {
            inserts(n, |tx, rows, i| tx.raw_mut().insert(rows, &i.to_be_bytes(), &row(i)).expect("a new key"))
        });
    });
    c.bench_function("row/insert/open-transaction-typed", |b| {
        b.iter_custom(|n| inserts(n, |tx, rows, i| tx.insert(rows, &i, &row(i)).expect("a new key")));
    });
    c.bench_function("row/insert/open-transaction-random", |b| {
        b.iter_custom(|n| {
            inserts(n, |tx, rows, i| {
                // Multiplication by an odd number is a permutation of the 64-bit numbers, so all keys are distinct.
                let key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                tx.raw_mut().insert(rows, &key.to_be_bytes(), &row(i)).expect("a new key");
            })
        });
    });
}

/// Measures scans of 100 rows and of all rows, begin and commit included.
fn scan(c: &mut Criterion) {
    const RANGE: u64 = 100;
    let n = if is_smoke() { HOT_ROWS } else { 20 * HOT_ROWS };
    let (fixture, rows) = Fixture::with_rows(n);
    let db = fixture.db();
    let mut random = Rng::with_seed(2);
    let mut group = c.benchmark_group("row/scan");
    group.throughput(Throughput::Elements(RANGE));
    group.bench_function("100-rows", |b| {
        b.iter(|| {
            let from = random.u64(..n - RANGE);
            let tx = db.begin().expect("a free slot");
            let mut sum = 0;
            let (first, last) = (from.to_be_bytes(), (from + RANGE - 1).to_be_bytes());
            tx.raw()
                .scan(&rows, &first, &last, |_, row| {
                    sum += u32::from(row[0]);
                    ControlFlow::Continue(())
                })
                .expect("rows");
            tx.commit_async().expect("a read-only commit");
            sum
        });
    });
    for (id, backward) in [("100-rows-cursor", false), ("100-rows-cursor-backward", true)] {
        group.bench_function(id, |b| {
            b.iter(|| {
                let from = random.u64(..n - RANGE);
                let tx = db.begin().expect("a free slot");
                let cursor = tx.range(&rows, from..from + RANGE).expect("a table");
                let first = |row: Result<(u64, [u8; benches::ROW]), _>| u32::from(row.expect("a row").1[0]);
                let sum: u32 = if backward { cursor.rev().map(first).sum() } else { cursor.map(first).sum() };
                tx.commit().expect("a read-only commit");
                sum
            });
        });
    }
    group.throughput(Throughput::Elements(n));
    group.bench_function("all-rows-cursor", |b| {
        b.iter(|| {
            let tx = db.begin().expect("a free slot");
            let rows = tx.range(&rows, ..).expect("a table");
            let sum: u64 = rows.map(|row| u64::from(row.expect("a row").1[0])).sum();
            tx.commit().expect("a read-only commit");
            sum
        });
    });
    group.finish();
}

fn settings() -> Criterion {
    const { assert!(PER_TRANSACTION <= HOT_ROWS, "each row once in a transaction") };
    Criterion::default()
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = read, read_cold, update, insert, scan }
criterion_main!(benches);
