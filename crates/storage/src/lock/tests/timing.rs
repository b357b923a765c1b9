//! Measurements of the uncontended path. They are not tests and therefore ignored. Run them with `cargo test --release -p
//! storage lock::tests::timing -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::*;
use crate::lock::{InsertCheck, KeyMode};

/// Prints the minimum and the median time of `body` over many batches, in nanoseconds per unit (`per` units for each call).
#[allow(clippy::disallowed_methods)]
fn time(what: &str, per: u32, mut body: impl FnMut()) {
    let rounds = (20_000 / per).clamp(5, 500);
    let mut batches: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                body();
            }
            start.elapsed().as_nanos() as f64 / f64::from(rounds) / f64::from(per)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{what:<58} {:6.1} ns   median {:6.1}", batches[0], batches[100]);
}

#[test]
#[ignore = "prints timings"]
fn uncontended() {
    let locks = on_threads(LockOptions::default());
    let mut o = locks.attach(SlotId(0));
    let rows: Vec<[u8; 12]> =
        (0..50u32).map(|i| [1u32, i % 10, i].map(u32::to_be_bytes).concat().try_into().unwrap()).collect();
    let names: Vec<LockName> = rows.iter().map(|row| LockName::new(IndexId(3), row)).collect();
    let name = names[0];
    for i in 0..10 {
        o.intent(i, TableMode::IX).unwrap();
    }
    o.release_all();

    time("name of a 12-byte key", 50, || {
        for row in &rows {
            let _ = black_box(LockName::new(IndexId(3), black_box(row)));
        }
    });
    time("prefix of a 12-byte key", 50, || {
        for row in &rows {
            let _ = black_box(Prefix::of(black_box(row)));
        }
    });
    time("empty begin + release_all", 1, || {
        o.begin(1);
        o.release_all();
    });
    for (what, mode) in [("S", RecordMode::S), ("X", RecordMode::X), ("X+gap", RecordMode::X_GAP)] {
        time(&format!("{what}: try_acquire + release_one, one name"), 1, || {
            let _ = black_box(o.try_acquire(TABLE, name, mode, Prefix::MIN));
            o.release_one(TABLE, name);
        });
        time(&format!("{what}: try_acquire + release_all, one name"), 1, || {
            let _ = black_box(o.try_acquire(TABLE, name, mode, Prefix::MIN));
            o.release_all();
        });
        time(&format!("{what}: 50 names, each, with their release"), 50, || {
            for &name in &names {
                let _ = black_box(o.try_acquire(TABLE, name, mode, Prefix::MIN));
            }
            o.release_all();
        });
    }
    time("50 names with hashing, prefetch and release", 50, || {
        for row in &rows {
            let name = LockName::new(IndexId(3), row);
            locks.prefetch(name);
            let _ = black_box(o.try_acquire(TABLE, name, RecordMode::X, Prefix::MIN));
        }
        o.release_all();
    });
    let many: Vec<LockName> = (0..4000u32).map(|i| LockName::new(IndexId(5), &i.to_be_bytes())).collect();
    time("4000 names, beyond the nearest cache, with their release", 4000, || {
        for &name in &many {
            let _ = black_box(o.try_acquire(TABLE, name, RecordMode::X, Prefix::MIN));
        }
        o.release_all();
    });
    let _ = o.try_acquire(TABLE, name, RecordMode::X_GAP, Prefix::MIN);
    time("already held", 1, || {
        let _ = black_box(o.try_acquire(TABLE, black_box(name), RecordMode::S_GAP, Prefix::MIN));
    });
    time("held()", 1, || {
        let _ = black_box(o.held(black_box(name)));
    });
    let other = LockName::new(IndexId(4), b"free");
    time("check_insert, free", 1, || {
        assert_eq!(o.check_insert(TABLE, black_box(other), Prefix::MIN), InsertCheck::Granted)
    });
    time("try_instant_s, free", 1, || assert!(o.try_instant_s(TABLE, black_box(other))));
    time("is_referenced, free", 1, || assert!(!locks.is_referenced(black_box(other))));
    o.release_all();
    time("IX on 9 tables and release_all", 1, || {
        for table in 1..10 {
            let _ = black_box(o.intent(table, TableMode::IX));
        }
        o.release_all();
    });
    let _ = o.intent(TABLE, TableMode::IX);
    time("IX held already", 1, || {
        let _ = black_box(o.intent(black_box(TABLE), TableMode::IX));
    });
    time("covers", 1, || {
        let _ = black_box(o.covers(black_box(TABLE), KeyMode::S, true));
    });
    o.release_all();
    time("a transaction: IX on 9 tables, 50 X locks, release_all", 1, || {
        o.begin(1);
        for table in 1..10 {
            let _ = black_box(o.intent(table, TableMode::IX));
        }
        for (i, &name) in names.iter().enumerate() {
            let _ = black_box(o.try_acquire(1 + i as u32 % 9, name, RecordMode::X, Prefix::MIN));
        }
        o.release_all();
    });
}

#[test]
#[ignore = "prints timings"]
#[allow(clippy::disallowed_methods)]
fn two_threads() {
    for (what, shared) in [("two threads, 50 names each of its own", false), ("two threads, one name", true)] {
        let locks = on_threads(LockOptions::default());
        let rounds = 20_000u32;
        let mut times: Vec<f64> = Vec::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2u16)
                .map(|slot| {
                    let locks = &locks;
                    scope.spawn(move || {
                        let mut o = locks.attach(SlotId(slot));
                        let name = |i: u32| LockName::new(IndexId(1), &(i + 1000 * u32::from(slot)).to_be_bytes());
                        let names: Vec<LockName> = (0..50).map(name).collect();
                        let start = Instant::now();
                        for _ in 0..rounds {
                            for &name in &names {
                                let name = if shared { key(1) } else { name };
                                if o.try_acquire(TABLE, name, RecordMode::X, Prefix::MIN).is_err() {
                                    o.acquire_wait(TABLE, name, RecordMode::X, Prefix::MIN).unwrap();
                                }
                                if shared {
                                    o.release_all();
                                }
                            }
                            o.release_all();
                        }
                        start.elapsed().as_nanos() as f64 / f64::from(rounds * 50)
                    })
                })
                .collect();
            times.extend(workers.into_iter().map(|worker| worker.join().unwrap()));
        });
        println!("{what:<58} {:6.1} ns   and    {:6.1}   waits {}", times[0], times[1], locks.stats().waits);
    }
}
