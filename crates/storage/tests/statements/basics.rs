//! The public statements, on a disk in memory.

use std::sync::Arc;

use storage::disk::{Crash, MemDisk, SimDisk};
use storage::{Background, Database, Durability, Isolation, LatchKind, Options, SecondaryIndex, Table, TxnError};

struct ByOwner;
impl SecondaryIndex for ByOwner {
    type Key = u64;
    type Row = String;
    type By = String;
    const NAME: &'static str = "by_owner";
    fn by(_: &u64, row: &String) -> Option<String> {
        (!row.is_empty()).then(|| row.chars().take(3).collect())
    }
}

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const CARS: Table<u64, String> = Table::new("cars").with_index::<ByOwner>();

fn options() -> Options {
    Options::new().buffer_pool(8 << 20).log_segment(1 << 20)
}

fn open(disk: &Arc<MemDisk>) -> Database {
    options().open_on(disk.clone()).unwrap()
}

#[test]
fn rows_come_and_go() {
    for latches in [LatchKind::Optimistic, LatchKind::Plain] {
        let db = options().latches(latches).open_on(Arc::new(MemDisk::new())).unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get(&NUMBERS, &1).unwrap(), None);
        tx.insert(&NUMBERS, &1, &10).unwrap();
        assert!(matches!(tx.insert(&NUMBERS, &1, &11), Err(TxnError::DuplicateKey { .. })));
        assert_eq!(tx.get(&NUMBERS, &1).unwrap(), Some(10));
        tx.put(&NUMBERS, &1, &12).unwrap();
        tx.put(&NUMBERS, &2, &20).unwrap();
        assert!(tx.delete(&NUMBERS, &1).unwrap());
        assert!(!tx.delete(&NUMBERS, &1).unwrap());
        tx.insert(&NUMBERS, &1, &13).unwrap();
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&NUMBERS, &1, &99).unwrap();
        tx.delete(&NUMBERS, &2).unwrap();
        tx.insert(&NUMBERS, &3, &30).unwrap();
        drop(tx);
        let tx = db.begin().unwrap();
        let all: Vec<_> = tx.range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(all, [(1, 13), (2, 20)]);
    }
}

#[test]
fn many_rows_split_pages_and_are_found_from_both_ends() {
    for latches in [LatchKind::Optimistic, LatchKind::Plain] {
        let db = options().latches(latches).open_on(Arc::new(MemDisk::new())).unwrap();
        let n = 20_000u64;
        // Neither ascending nor local order.
        for chunk in (0..n).map(|i| i * 7919 % n).collect::<Vec<_>>().chunks(500) {
            db.transact(|tx| {
                for key in chunk {
                    tx.insert(&NUMBERS, key, &(key * 2))?;
                }
                Ok::<_, TxnError>(())
            })
            .unwrap();
        }
        let tx = db.begin().unwrap();
        let mut next = 0;
        for row in tx.range(&NUMBERS, ..).unwrap() {
            assert_eq!(row.unwrap(), (next, next * 2));
            next += 1;
        }
        assert_eq!(next, n);
        let back: Vec<u64> = tx.range(&NUMBERS, 100..200).unwrap().rev().map(|r| r.unwrap().0).collect();
        assert_eq!(back, (100..200).rev().collect::<Vec<_>>());
        let mut both = tx.range(&NUMBERS, 100..=109).unwrap();
        let (mut front, mut rear) = (Vec::new(), Vec::new());
        while let Some(row) = both.next() {
            front.push(row.unwrap().0);
            if let Some(row) = both.next_back() {
                rear.push(row.unwrap().0);
            }
        }
        assert_eq!(front, (100..105).collect::<Vec<_>>());
        assert_eq!(rear, (105..110).rev().collect::<Vec<_>>());
    }
}

#[test]
fn indexes_follow_their_rows() {
    let disk = Arc::new(MemDisk::new());
    let db = open(&disk);
    db.transact(|tx| {
        for (key, owner) in [(1u64, "anna"), (2, "bert"), (3, "annette"), (4, "")] {
            tx.insert(&CARS, &key, &owner.to_owned())?;
        }
        Ok::<_, TxnError>(())
    })
    .unwrap();
    let by = |db: &Database, owner: &str| -> Vec<u64> {
        let tx = db.begin().unwrap();
        tx.range_by::<ByOwner>(&CARS, owner.to_owned()..=owner.to_owned()).unwrap().map(|r| r.unwrap().0).collect()
    };
    assert_eq!(by(&db, "ann"), [1, 3]);
    db.transact(|tx| {
        tx.put(&CARS, &3, &"bertha".to_owned())?;
        tx.put(&CARS, &4, &"anton".to_owned())?;
        tx.delete(&CARS, &1)
    })
    .unwrap();
    assert_eq!(by(&db, "ann"), [] as [u64; 0]);
    assert_eq!(by(&db, "ant"), [4]);
    assert_eq!(by(&db, "ber"), [2, 3]);
    let mut tx = db.begin().unwrap();
    tx.put(&CARS, &2, &"zoe".to_owned()).unwrap();
    drop(tx);
    assert_eq!(by(&db, "ber"), [2, 3]);
    db.close().unwrap();
    assert_eq!(by(&open(&disk), "ber"), [2, 3]);
}

#[test]
fn closing_and_opening_keeps_everything() {
    let disk = Arc::new(MemDisk::new());
    for round in 0..5u64 {
        let db = open(&disk);
        let mut tx = db.begin().unwrap();
        let all: Vec<_> = tx.range(&NUMBERS, ..).unwrap().map(|r| r.unwrap().0).collect();
        assert_eq!(all, (0..round * 1000).collect::<Vec<_>>());
        for key in round * 1000..(round + 1) * 1000 {
            tx.insert(&NUMBERS, &key, &round).unwrap();
        }
        tx.commit().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_crash_keeps_what_was_acknowledged_and_nothing_else() {
    for seed in 0..20 {
        let disk = Arc::new(SimDisk::new(seed));
        let db = options().background(Background::Inline).open_on(disk.clone()).unwrap();
        for key in 0..300u64 {
            db.transact(|tx| tx.put(&NUMBERS, &(key % 100), &key)).unwrap();
        }
        let mut open_tx = db.begin().unwrap();
        open_tx.put(&NUMBERS, &5, &1_000_000).unwrap();
        open_tx.put(&NUMBERS, &500, &1_000_000).unwrap();
        let after = Arc::new(disk.crash(Crash::Random(seed)));
        std::mem::forget(open_tx);
        std::mem::forget(db);
        let db = options().background(Background::Inline).open_on(after).unwrap();
        let tx = db.begin().unwrap();
        let all: Vec<_> = tx.range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(all, (0..100).map(|k| (k, 200 + k)).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn bulk_loading_builds_table_and_index() {
    let disk = Arc::new(MemDisk::new());
    let db = open(&disk);
    let cars = db.table(&CARS).unwrap();
    let mut load = db.bulk_load(&cars).unwrap();
    for key in 0..30_000u64 {
        load.push(&key, &format!("{:03}-{key}", key % 500)).unwrap();
    }
    assert_eq!(load.finish().unwrap(), 30_000);
    db.transact(|tx| {
        for key in (0..30_000).step_by(7) {
            tx.put(&cars, &key, &format!("new {key}"))?;
        }
        for key in 30_000..32_000 {
            tx.insert(&cars, &key, &"late".to_owned())?;
        }
        Ok::<_, TxnError>(())
    })
    .unwrap();
    db.close().unwrap();
    let db = open(&disk);
    let tx = db.begin().unwrap();
    assert_eq!(tx.range(&CARS, ..).unwrap().count(), 32_000);
    let seventeen = "017".to_owned();
    let found: Vec<u64> =
        tx.range_by::<ByOwner>(&CARS, seventeen.clone()..=seventeen).unwrap().map(|r| r.unwrap().0).collect();
    assert_eq!(found, (0..30_000).filter(|k| k % 500 == 17 && k % 7 != 0).collect::<Vec<_>>());
}

#[test]
fn async_commits_are_told_when_they_are_durable() {
    let db = options()
        .durability(Durability::Async)
        .isolation(Isolation::ReadCommitted)
        .open_on(Arc::new(MemDisk::new()))
        .unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &1, &1).unwrap();
    let at = tx.commit_async().unwrap();
    db.wait_durable(at).unwrap();
    assert!(db.durable() >= at);
}
