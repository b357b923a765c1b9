//! Cost of locks: the same statement with different locks. Locks are measured indirectly, through the public interface.

use std::hint::black_box;
use std::time::Duration;

use benches::{Fixture, HOT_ROWS, PER_TRANSACTION, inside};
use criterion::{Criterion, criterion_group, criterion_main};
use storage::{Isolation, TableLock};

/// Measures record locks: reads of a hot row inside an open transaction, with different locks.
fn record(c: &mut Criterion) {
    let (fixture, rows) = Fixture::with_rows(HOT_ROWS);
    let db = fixture.db();
    let key_at = |i: u64| i * 617 % HOT_ROWS;
    c.bench_function("lock/record/shared", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.get(&rows, &key_at(i)).expect("a row"));
            })
        });
    });
    c.bench_function("lock/record/update", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.get_for_update(&rows, &key_at(i)).expect("a row"));
            })
        });
    });
    // The update does not change the row, so nothing is logged.
    c.bench_function("lock/record/exclusive", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.raw_mut().update(&rows, &key_at(i).to_be_bytes(), |row| row[0]).expect("a row"));
            })
        });
    });
    // Two statements on a row: the lock of the first already suffices for the second, or is converted.
    c.bench_function("lock/record/shared-again", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.get(&rows, &key_at(i / 2)).expect("a row"));
            })
        });
    });
    c.bench_function("lock/record/shared-then-exclusive", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                black_box(tx.get(&rows, &key_at(i)).expect("a row"));
                black_box(tx.raw_mut().update(&rows, &key_at(i).to_be_bytes(), |row| row[0]).expect("a row"));
            })
        });
    });
    c.bench_function("lock/record/gap", |b| {
        // A key with one more byte lies between two rows, so its read locks the gap.
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                let key = key_at(i).to_be_bytes();
                let absent = [key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7], 1];
                assert!(tx.raw().read(&rows, &absent, |_| ()).expect("no error").is_none());
            })
        });
    });
    c.bench_function("lock/record/read-committed", |b| {
        b.iter_custom(|n| {
            let mut spent = Duration::ZERO;
            let mut left = n;
            while left > 0 {
                let tx = db.begin_at(Isolation::ReadCommitted).expect("a free slot");
                let start = std::time::Instant::now();
                for i in 0..left.min(PER_TRANSACTION) {
                    black_box(tx.get(&rows, &key_at(i)).expect("a row"));
                }
                spent += start.elapsed();
                tx.commit_async().expect("a read-only commit");
                left -= left.min(PER_TRANSACTION);
            }
            spent
        });
    });
    c.bench_function("lock/record/under-table-lock", |b| {
        b.iter_custom(|n| {
            inside(db, n, |tx, i| {
                if i == 0 {
                    tx.lock_table(&rows, TableLock::Shared).expect("no other transaction");
                }
                black_box(tx.get(&rows, &key_at(i)).expect("a row"));
            })
        });
    });
}

/// Measures table locks: begin, lock, commit. `none` is the baseline without a table lock.
fn table(c: &mut Criterion) {
    let (fixture, rows) = Fixture::with_rows(HOT_ROWS);
    let db = fixture.db();
    let modes = [
        ("none", None),
        ("intent-shared", Some(TableLock::IntentShared)),
        ("intent-exclusive", Some(TableLock::IntentExclusive)),
        ("shared", Some(TableLock::Shared)),
        ("shared-intent-exclusive", Some(TableLock::SharedIntentExclusive)),
        ("exclusive", Some(TableLock::Exclusive)),
    ];
    for (name, mode) in modes {
        c.bench_function(&format!("lock/table/{name}"), |b| {
            b.iter(|| {
                let mut tx = db.begin().expect("a free slot");
                if let Some(mode) = mode {
                    tx.lock_table(&rows, mode).expect("no other transaction");
                }
                tx.commit_async().expect("an empty commit")
            });
        });
    }
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_secs(1))
        .warm_up_time(Duration::from_millis(300))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = record, table }
criterion_main!(benches);
