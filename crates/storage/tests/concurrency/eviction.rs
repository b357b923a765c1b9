//! A database many times larger than its pool: cached positions must not outlive their pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::disk::MemDisk;
use storage::{Durability, OpenTable, Options, Table, TxnError};

const ROWS: Table<u64, [u8; 400]> = Table::new("rows");
const COUNT: u64 = 8_000;

fn counter(row: &[u8]) -> u64 {
    u64::from_le_bytes(row[..8].try_into().unwrap())
}

/// Several writers announce rows and then add to them; every addition must be there at the end.
#[test]
fn no_update_is_lost_when_pages_come_and_go() {
    let db = Options::new()
        .buffer_pool(1 << 20)
        .durability(Durability::Async)
        .log_segment(1 << 20)
        .open_on(Arc::new(MemDisk::new()))
        .unwrap();
    let rows: OpenTable<u64, [u8; 400]> = db.table(&ROWS).unwrap();
    let mut load = db.bulk_load(&rows).unwrap();
    for key in 0..COUNT {
        load.push(&key, &[0; 400]).unwrap();
    }
    load.finish().unwrap();
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (db, added) = (&db, &added);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..1500 {
                    let mut keys: Vec<[u8; 8]> = (0..10).map(|_| rng.u64(..COUNT).to_be_bytes()).collect();
                    keys.sort_unstable();
                    let keys: Vec<&[u8]> = keys.iter().map(|k| k.as_slice()).collect();
                    let together = rng.bool();
                    db.transact(|tx| {
                        tx.raw().prefetch(keys.iter().map(|key| (rows, *key, 400)));
                        let add = |head: &mut [u8]| {
                            let next = counter(head) + 1;
                            head.copy_from_slice(&next.to_le_bytes());
                        };
                        if together {
                            assert_eq!(tx.raw_mut().update_heads(&rows, &keys, 8, |_, head, _| add(head))?, 10);
                        } else {
                            for key in &keys {
                                tx.raw_mut().update_head(&rows, key, 8, |head, _| add(head))?.unwrap();
                            }
                        }
                        Ok::<_, TxnError>(())
                    })
                    .unwrap();
                    added.fetch_add(10, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(db.stats().pool_evictions > 10_000, "the pool was too large to test anything");
    let mut sum = 0;
    let tx = db.begin().unwrap();
    for row in tx.range(&ROWS, ..).unwrap() {
        sum += counter(&row.unwrap().1);
    }
    assert_eq!(sum, added.load(Ordering::Relaxed));
}
