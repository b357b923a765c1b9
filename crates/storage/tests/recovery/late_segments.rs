//! Log segments are not created ahead of need: each statement that finds none left creates the next one itself, and the
//! engine asserts that no page is latched then. The test also runs with a low escalation threshold, because lock
//! escalation visits all locks of a transaction and asserts the same.

use std::collections::BTreeMap;

use crate::common::{NUMBERS, ROWS, Rng, on, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, LatchKind, Table};

const LOADED: Table<u64, u64> = Table::new("loaded");
const DROPPED: Table<u64, Vec<u8>> = Table::new("dropped");

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows(db: &Database) -> Rows {
    let tx = db.begin().unwrap();
    tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect()
}

/// Runs a transaction with every kind of writing statement, some of which split leaves and roots.
fn transaction(db: &Database, rng: &mut Rng, expected: &mut Rows) {
    let mut tx = db.begin().unwrap();
    let mut after = expected.clone();
    for _ in 0..1 + rng.below(12) {
        let key = vec![rng.below(40) as u8, rng.below(20) as u8];
        let row = vec![rng.below(256) as u8; [9, 40, 700, 1900][rng.below(4) as usize]];
        match rng.below(4) {
            0 => {
                tx.delete(&ROWS, &key).unwrap();
                after.remove(&key);
            }
            1 if after.contains_key(&key) => {
                tx.update(&ROWS, &key, &row).unwrap();
                after.insert(key, row);
            }
            _ => {
                tx.put(&ROWS, &key, &row).unwrap();
                after.insert(key, row);
            }
        }
        tx.put(&NUMBERS, &rng.below(4000), &1).unwrap();
    }
    if rng.below(3) == 0 {
        tx.rollback().unwrap();
    } else {
        tx.commit().unwrap();
        *expected = after;
    }
}

#[test]
fn statements_that_are_ahead_of_the_maker_make_segments_unlatched() {
    for seed in 0..4 {
        let disk = SimDisk::new(seed);
        let latches = if seed % 2 == 0 { LatchKind::Optimistic } else { LatchKind::Plain };
        let options = || small().latches(latches).escalate_at(if seed < 2 { 5000 } else { 7 });
        let db = options().open_on(on(&disk)).unwrap();
        let (mut rng, mut expected) = (Rng::new(seed), Rows::new());
        for n in 0..150u64 {
            transaction(&db, &mut rng, &mut expected);
            if n % 50 == 0 {
                let dropped = db.table(&DROPPED).unwrap();
                let many: Vec<(u64, Vec<u8>)> = (0..100).map(|i| (i, vec![n as u8; 900])).collect();
                db.transact(|tx| many.iter().try_for_each(|(key, row)| tx.insert(&dropped, key, row))).unwrap();
                db.drop_table("dropped").unwrap();
            }
        }
        let loaded = db.table(&LOADED).unwrap();
        let mut load = db.bulk_load(&loaded).unwrap();
        (0..3000).try_for_each(|n| load.push(&n, &n)).unwrap();
        load.finish().unwrap();
        assert!(db.stats().log_bytes > 1 << 20, "seed {seed}: few segments were made");
        assert!(seed < 2 || db.stats().escalations > 0, "seed {seed}: no escalation");
        assert!(rows(&db) == expected, "seed {seed}");
        let after = disk.crash(Crash::All);
        std::mem::forget(db);
        let db = options().open_on(on(&after)).unwrap();
        assert!(rows(&db) == expected, "seed {seed}, after a crash");
        db.verify_pages().unwrap();
    }
}
