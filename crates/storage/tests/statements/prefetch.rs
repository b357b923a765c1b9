//! `prefetch` changes no result: an announced row is read like any other.

use std::sync::Arc;

use crate::common::{ROWS, Rng};
use storage::disk::MemDisk;
use storage::{Database, OpenTable, Options, Transaction};

/// Many tenants with the same numbers, each in one or two separate leaves, whose slots have the same bytes.
const TENANTS: u64 = 500;
const NUMBERS: u64 = 500;

/// The keys of tenants are far apart, in random order.
fn key(tenant: u64, number: u64) -> Vec<u8> {
    let name = tenant << 22 | Rng::new(tenant).next() >> 42;
    [(name as u32).to_be_bytes(), (number as u32).to_be_bytes()].concat()
}

fn row(tenant: u64, number: u64) -> Vec<u8> {
    [&key(tenant, number)[..], &[7; 4]].concat()
}

fn loaded() -> Database {
    let options = Options::new().buffer_pool(16 << 20).log_segment(1 << 20).transactions(8);
    let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
    let mut load = db.bulk_load(&db.table(&ROWS).unwrap()).unwrap();
    for tenant in 0..TENANTS {
        for number in 0..NUMBERS {
            load.push_raw(&key(tenant, number), &row(tenant, number)).unwrap();
        }
    }
    load.finish().unwrap();
    db
}

/// Announces rows of random tenants and numbers below the given bounds, and reads them: `is_there` says which ones
/// exist.
fn announce_and_read(
    tx: &mut Transaction<'_>,
    rows: OpenTable<Vec<u8>, Vec<u8>>,
    rng: &mut Rng,
    (tenants, numbers): (u64, u64),
    is_there: impl Fn(u64, u64) -> bool,
) {
    let wanted: Vec<(u64, u64)> = (0..16).map(|_| (rng.next() % tenants, rng.next() % numbers)).collect();
    let keys: Vec<Vec<u8>> = wanted.iter().map(|(tenant, number)| key(*tenant, *number)).collect();
    tx.raw().prefetch(keys.iter().map(|key| (rows, key.as_slice(), 64)));
    for ((tenant, number), key) in wanted.into_iter().zip(&keys) {
        let found = tx.raw().read(&rows, key, <[u8]>::to_vec).unwrap();
        let expected = is_there(tenant, number).then(|| row(tenant, number));
        assert_eq!(found, expected, "tenant {tenant}, number {number}");
    }
}

/// Regression: a shortcut led to the wrong leaf and confused keys that are equal after the prefixes of their leaves:
/// orders of one district were delivered for another.
#[test]
fn announced_rows_are_those_of_their_keys() {
    let db = loaded();
    let rows = db.table(&ROWS).unwrap();
    let mut rng = Rng::new(1);
    for _ in 0..3000 {
        let mut tx = db.begin().unwrap();
        let some_beyond = (TENANTS + 1, NUMBERS + 3);
        announce_and_read(&mut tx, rows, &mut rng, some_beyond, |tenant, number| tenant < TENANTS && number < NUMBERS);
        tx.commit().unwrap();
    }
}

/// The same while rows are inserted and deleted, so that leaves split, merge and move.
#[test]
fn announced_rows_are_found_wherever_they_have_gone() {
    let db = loaded();
    let rows = db.table(&ROWS).unwrap();
    let mut rng = Rng::new(2);
    let mut there = vec![true; (TENANTS * NUMBERS) as usize];
    for _ in 0..2000 {
        let mut tx = db.begin().unwrap();
        // One tenant at a time loses or gets its rows.
        let (tenant, from) = (rng.next() % TENANTS, rng.next() % NUMBERS);
        for number in from..(from + 100).min(NUMBERS) {
            let known = &mut there[(tenant * NUMBERS + number) as usize];
            if *known {
                assert!(tx.raw_mut().delete(&rows, &key(tenant, number)).unwrap());
            } else {
                tx.raw_mut().insert(&rows, &key(tenant, number), &row(tenant, number)).unwrap();
            }
            *known = !*known;
        }
        announce_and_read(&mut tx, rows, &mut rng, (TENANTS, NUMBERS), |tenant, number| {
            there[(tenant * NUMBERS + number) as usize]
        });
        tx.commit().unwrap();
    }
}
