//! Building and dropping indexes of a table that has rows, with crashes and errors in the middle, while other
//! transactions use the table.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{ByHead, ROWS, Rng, on, small};
use storage::disk::{Call, Crash, Fault, MemDisk, SimDisk, When};
use storage::{Database, Options, Raw, Rule, SecondaryIndex, StorageError, Table, TxnError};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The table `ROWS` without an index, with another index, and with both.
const PLAIN: Table<Vec<u8>, Vec<u8>> = Table::new("rows");
const LONG: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByLength>();
const BOTH: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByHead>().with_index::<ByLength>();
const TURNED: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByLength>().with_index::<ByHead>();
const ALL: [&Table<Vec<u8>, Vec<u8>>; 5] = [&PLAIN, &ROWS, &LONG, &BOTH, &TURNED];

struct ByLength;
impl SecondaryIndex for ByLength {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = u32;
    const NAME: &'static str = "by_length";
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<u32> {
        Some(row.len() as u32)
    }
}

/// Returns the rows in the order of an index: by index key, then by key.
fn ordered<I>(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)>
where
    I: SecondaryIndex<Key = Vec<u8>, Row = Vec<u8>, By: Ord>,
{
    let mut rows: Vec<_> = model.iter().filter_map(|(k, v)| Some((I::by(k, v)?, k.clone(), v.clone()))).collect();
    rows.sort();
    rows.into_iter().map(|(_, key, row)| (key, row)).collect()
}

/// Checks that the table has these rows and indexes, and that every other declaration of it is refused.
fn is(db: &Database, table: &Table<Vec<u8>, Vec<u8>>, at: usize, model: &Model) {
    let tx = db.begin().unwrap();
    let rows: Model = tx.range(table, ..).unwrap().map(Result::unwrap).collect();
    assert!(rows == *model, "{} rows, not {}", rows.len(), model.len());
    if [1, 3, 4].contains(&at) {
        let found: Vec<_> = tx.range_by::<ByHead>(table, ..).unwrap().map(Result::unwrap).collect();
        assert!(found == ordered::<ByHead>(model), "by head");
    }
    if [2, 3, 4].contains(&at) {
        let found: Vec<_> = tx.range_by::<ByLength>(table, ..).unwrap().map(Result::unwrap).collect();
        assert!(found == ordered::<ByLength>(model), "by length");
        let most = found.iter().map(|(_, row)| row.len() as u32).max().unwrap_or(0);
        let back = tx.range_by::<ByLength>(table, most..).unwrap().next_back().transpose().unwrap();
        assert!(back.as_ref() == found.last());
    }
    drop(tx);
    for (other, table) in ALL.iter().enumerate().filter(|(other, _)| *other != at) {
        assert!(matches!(db.table(table), Err(TxnError::Schema { .. })), "{other} instead of {at}");
    }
}

fn is_whole(db: &Database) {
    assert_eq!(orphans(db), 0);
}

/// Returns the number of pages that belong to no tree; all other pages must pass the check.
fn orphans(db: &Database) -> usize {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    let (orphans, other): (Vec<_>, Vec<_>) = structure.findings.iter().partition(|f| f.rule == Rule::Orphan);
    assert!(other.is_empty(), "{other:?}");
    db.verify_pages().unwrap();
    orphans.len()
}

/// Returns a long key, so that a few hundred rows make several levels in both trees.
fn key(n: u64) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(300, 7);
    key
}

fn fill(db: &Database, table: &Table<Vec<u8>, Vec<u8>>, rows: u64, seed: u64) -> Model {
    let mut rng = Rng::new(seed);
    let model: Model = (0..rows)
        .map(|n| {
            let size = rng.below(400) as usize;
            (key(n), rng.bytes(size))
        })
        .collect();
    for part in model.iter().collect::<Vec<_>>().chunks(40) {
        db.transact(|tx| part.iter().try_for_each(|(key, row)| tx.put(table, key, row))).unwrap();
    }
    model
}

#[test]
fn any_change_of_indexes_gives_those_declared() {
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let mut db = crate::common::open(&disk);
        let mut rng = Rng::new(seed);
        let mut at = rng.below(5) as usize;
        db.alter_indexes(ALL[at]).unwrap();
        let mut model = fill(&db, ALL[at], 250, seed);
        is(&db, ALL[at], at, &model);
        for _ in 0..6 {
            let before = (at, db.table(ALL[at]).unwrap());
            at = rng.below(5) as usize;
            let handle = db.alter_indexes(ALL[at]).unwrap();
            is(&db, ALL[at], at, &model);
            is_whole(&db);
            let tx = db.begin().unwrap();
            match tx.get(&before.1, &key(1)) {
                Ok(row) => assert!(at == before.0 && row.as_ref() == model.get(&key(1))),
                Err(TxnError::Dropped { .. }) => assert!(at != before.0),
                Err(error) => panic!("{error}"),
            }
            drop(tx);
            // From here on the engine maintains the indexes.
            let mut tx = db.begin().unwrap();
            for _ in 0..60 {
                let (key, size) = (key(rng.below(300)), rng.below(300) as usize);
                let row = rng.bytes(size);
                if rng.once_in(3) {
                    tx.delete(&handle, &key).unwrap();
                    model.remove(&key);
                } else {
                    tx.put(&handle, &key, &row).unwrap();
                    model.insert(key, row);
                }
            }
            tx.commit().unwrap();
            is(&db, ALL[at], at, &model);
            let sizes = db.sizes().unwrap();
            assert_eq!(sizes.tables[0].indexes.len(), [0, 1, 1, 2, 2][at]);
            if rng.once_in(3) {
                db.close().unwrap();
                db = crate::common::open(&disk);
                is(&db, ALL[at], at, &model);
            }
        }
        is_whole(&db);
        assert_eq!(db.table_names(), ["rows"]);
        assert!(db.truncate("rows").unwrap());
        is(&db, ALL[at], at, &Model::new());
        assert!(db.drop_table("rows").unwrap());
        is_whole(&db);
    }
}

#[test]
fn indexes_that_come_and_go_leave_no_pages_behind() {
    let disk = SimDisk::new(3);
    let db = crate::common::open(&disk);
    let model = fill(&db, &PLAIN, 300, 3);
    let mut size = 0;
    for round in 0..12 {
        db.alter_indexes(&BOTH).unwrap();
        db.alter_indexes(&PLAIN).unwrap();
        is_whole(&db);
        let now = db.sizes().unwrap().data_file;
        assert!(round < 2 || now <= size, "round {round}: {now} bytes, {size} before");
        size = now;
    }
    is(&db, &PLAIN, 0, &model);
}

/// Power loss after each call of the disk, and again during the restart: the indexes are the old ones or the new ones.
fn crashes(from: usize, to: usize) {
    let (mut before, mut after, mut lost) = (0, 0, 0);
    let (mut calls, mut tries) = (0, 0);
    loop {
        tries += 1;
        if tries % 4 == 1 {
            calls += 1 + calls / 8;
        }
        assert!(calls < 20_000, "it never ends");
        let disk = SimDisk::new(tries);
        let db = crate::common::open(&disk);
        db.table(ALL[from]).unwrap();
        // The four tries of a number of calls have the same rows, so all of them end or none.
        let model = fill(&db, ALL[from], 400, calls);
        disk.power_off_after(calls);
        let result = db.alter_indexes(ALL[to]);
        let how = [Crash::All, Crash::Nothing, Crash::Random(tries), Crash::Random(!tries)][tries as usize % 4];
        let mut disk = disk.crash(how);
        std::mem::forget(db);
        let mut rng = Rng::new(tries);
        for _ in 0..rng.below(3) {
            disk.power_off_after(1 + rng.below(60));
            if let Ok(open) = small().open_on(on(&disk)) {
                std::mem::forget(open);
            }
            disk = disk.crash(Crash::Random(rng.next()));
        }
        let db = crate::common::open(&disk);
        let at = if db.table(ALL[to]).is_ok() { to } else { from };
        assert!(result.is_err() || at == to, "after {calls} calls: it had been done");
        is(&db, ALL[at], at, &model);
        // A tree whose creation was the last record of the log may lose its page.
        let lose = orphans(&db);
        assert!(lose <= 1, "after {calls} calls: {lose} pages");
        lost += lose;
        if at == to {
            after += 1
        } else {
            before += 1
        }
        // The database stays usable.
        db.alter_indexes(ALL[to]).unwrap();
        is(&db, ALL[to], to, &model);
        assert_eq!(orphans(&db), lose);
        if result.is_ok() && tries % 4 == 0 {
            break;
        }
    }
    assert!(before > 0 && after > 3 && lost <= 2, "{from} to {to}: {before} before, {after} after, {lost} pages lost");
}

#[test]
fn a_crash_leaves_no_half_of_an_index() {
    crashes(0, 1);
}

#[test]
fn a_crash_while_an_index_is_dropped_leaves_it_or_none() {
    crashes(1, 0);
}

#[test]
fn a_crash_while_an_index_takes_the_place_of_another_leaves_one() {
    crashes(1, 2);
}

/// The disk refuses one call: the table has its old indexes or its new ones, at once and after a restart.
fn refused(call: Call, fault: Fault, first: u64, step: u64) {
    let mut n = first;
    let mut failed = 0;
    loop {
        let disk = SimDisk::new(n);
        let db = crate::common::open(&disk);
        let model = fill(&db, &ROWS, 400, n);
        disk.plan(Some(call), When::Once(n), fault);
        let result = db.alter_indexes(&LONG).map(drop);
        disk.heal();
        let db = match &result {
            Err(TxnError::Storage(StorageError::Poisoned { .. } | StorageError::Io { .. })) if call != Call::Read => {
                drop(db);
                crate::common::open(&disk)
            }
            Err(TxnError::Storage(StorageError::Io { .. } | StorageError::NoSpace { .. })) | Ok(()) => db,
            Err(error) => panic!("{call:?} {n}: {error}"),
        };
        failed += u64::from(result.is_err());
        let at = if db.table(&LONG).is_ok() { 2 } else { 1 };
        assert!(result.is_err() || at == 2);
        is(&db, ALL[at], at, &model);
        db.transact(|tx| tx.put(ALL[at], &[1], &vec![2])).unwrap();
        let model = [(vec![1], vec![2])].into_iter().chain(model).collect();
        db.close().unwrap();
        let db = crate::common::open(&disk);
        is(&db, ALL[at], at, &model);
        is_whole(&db);
        db.alter_indexes(&LONG).unwrap();
        is(&db, &LONG, 2, &model);
        is_whole(&db);
        if result.is_ok() {
            break;
        }
        n += step + n / 10;
    }
    assert!(failed > 3, "{call:?}: it failed {failed} times");
}

#[test]
fn a_read_that_fails_leaves_the_table_as_it_was() {
    refused(Call::Read, Fault::Eio, 1, 3);
}

#[test]
fn a_write_that_fails_leaves_the_table_whole() {
    refused(Call::Write, Fault::Eio, 1, 2);
}

#[test]
fn a_full_disk_leaves_the_table_as_it_was() {
    let disk = SimDisk::new(8);
    let db = crate::common::open(&disk);
    let model = fill(&db, &PLAIN, 600, 8);
    disk.set_capacity(disk.used() + (64 << 10));
    let error = db.alter_indexes(&BOTH).unwrap_err();
    assert!(matches!(error, TxnError::Storage(StorageError::NoSpace { .. })), "{error}");
    is(&db, &PLAIN, 0, &model);
    disk.set_capacity(u64::MAX);
    db.close().unwrap();
    let db = crate::common::open(&disk);
    is_whole(&db);
    db.alter_indexes(&BOTH).unwrap();
    is(&db, &BOTH, 3, &model);
    is_whole(&db);
}

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const SINGLE: Table<u64, u64> = Table::new("numbers").with_index::<Single>();

/// Unique index: no two rows may be equal.
struct Single;
impl SecondaryIndex for Single {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "single";
    const UNIQUE: bool = true;
    fn by(_: &u64, row: &u64) -> Option<u64> {
        (*row < u64::MAX).then_some(*row)
    }
}

/// Equal rows within one sorted run, and in two runs.
#[test]
fn a_unique_index_is_not_built_over_rows_that_are_equal() {
    let db = Options::new().buffer_pool(2 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    for n in 0..10_000 {
        db.transact(|tx| tx.put(&NUMBERS, &n, &(n * 7 % 10_000))).unwrap();
    }
    for (one, other) in [(3, 4), (5, 9_998)] {
        let same = db.transact(|tx| {
            let same = tx.get(&NUMBERS, &one)?;
            tx.put(&NUMBERS, &other, &same.unwrap())?;
            Ok::<_, TxnError>(same)
        });
        let error = db.alter_indexes(&SINGLE).unwrap_err();
        let TxnError::NotUnique { table, index, rows } = &error else { panic!("{error}") };
        assert_eq!((&**table, &**index), ("numbers", "single"));
        let keys = rows.each_ref().map(|key| u64::from_be_bytes(key[..].try_into().unwrap()));
        assert!(keys == [one, other] || keys == [other, one], "{keys:?}: {error}");
        assert!(error.to_string().contains("\\x00\\x03") || one != 3, "{error}");
        is_whole(&db);
        assert_eq!(db.begin().unwrap().get(&NUMBERS, &other).unwrap(), same.unwrap());
        db.transact(|tx| tx.put(&NUMBERS, &other, &u64::MAX)).unwrap();
    }
    db.alter_indexes(&SINGLE).unwrap();
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.insert(&SINGLE, &20_000, &7), Err(TxnError::DuplicateKey { .. })));
    assert_eq!(tx.range_by::<Single>(&SINGLE, 7..8).unwrap().next().transpose().unwrap(), Some((1, 7)));
    assert_eq!(tx.range_by::<Single>(&SINGLE, ..).unwrap().count(), 9_998);
    tx.commit().unwrap();
    is_whole(&db);
}

#[test]
fn other_types_and_other_names_are_refused() {
    let db = Options::new().buffer_pool(2 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    const SIGNED: Table<u64, i64> = Table::new("numbers");
    assert!(matches!(db.alter_indexes(&SIGNED), Err(TxnError::OtherCodec { .. })));
    const TWICE: Table<u64, u64> = Table::new("numbers").with_index::<Single>().with_index::<Single>();
    assert!(matches!(db.alter_indexes(&TWICE), Err(TxnError::Schema { .. })));
    // Indexes on encoded bytes, computed by a function.
    fn last(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&row[row.len() - 1..]);
        true
    }
    const BYTES: Table<Raw, Raw> = Table::new("numbers").with_raw_index("last", false, 0, last);
    let raw = db.raw().alter_indexes(&BYTES).unwrap();
    let mut tx = db.begin().unwrap();
    tx.raw_mut().put(&raw, &2u64.to_be_bytes(), &[0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
    let mut found = 0;
    tx.raw()
        .scan_index(&raw, 0, &[1], &[1, 255], false, |_, _| {
            found += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(found, 1);
    tx.commit().unwrap();
    db.alter_indexes(&SINGLE).unwrap();
    is_whole(&db);
}

/// Gate at which an index function waits for the test: 1 requests the wait, 2 confirms it.
static GATE: AtomicU32 = AtomicU32::new(0);

struct Slow;
impl SecondaryIndex for Slow {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "slow";
    fn by(_: &u64, row: &u64) -> Option<u64> {
        if *row == 500 && GATE.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            while GATE.load(Ordering::SeqCst) == 2 {
                std::thread::yield_now();
            }
        }
        assert!(*row != 6_660, "a row that the program does not like");
        Some(*row / 10)
    }
}

/// A change of indexes waits for the transactions that have used the table. A statement that begins while an index is
/// built waits, and is then refused. A copy during the change has the table with the old indexes.
#[test]
fn others_wait_for_a_change_of_indexes_and_it_for_them() {
    const SLOW: Table<u64, u64> = Table::new("numbers").with_index::<Slow>();
    let (disk, target) = (SimDisk::new(1), SimDisk::new(2));
    let db = Options::new().buffer_pool(2 << 20).open_on(on(&disk)).unwrap();
    for n in 0..1000 {
        db.transact(|tx| tx.put(&NUMBERS, &n, &n)).unwrap();
    }
    let reader = db.begin().unwrap();
    assert_eq!(reader.count(&NUMBERS, ..).unwrap(), 1000);
    let waits = |n: u64| {
        while db.stats().lock_waits < n {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        GATE.store(1, Ordering::SeqCst);
        let change = scope.spawn(|| db.alter_indexes(&SLOW).map(drop));
        waits(1);
        // No index is being built yet.
        assert_eq!(reader.get(&NUMBERS, &500).unwrap(), Some(500));
        assert_eq!(GATE.load(Ordering::SeqCst), 1);
        reader.commit().unwrap();
        while GATE.load(Ordering::SeqCst) == 1 {
            std::thread::yield_now();
        }
        db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap();
        let writer = scope.spawn(|| db.transact(|tx| tx.put(&NUMBERS, &1, &7)));
        waits(2);
        assert!(!change.is_finished() && !writer.is_finished());
        // Other tables are not affected, nor is the creation of a table.
        db.transact(|tx| tx.put(&PLAIN, &[1], &vec![2])).unwrap();
        GATE.store(0, Ordering::SeqCst);
        change.join().unwrap().unwrap();
        let error = writer.join().unwrap().unwrap_err();
        assert!(matches!(error, TxnError::Dropped { .. }), "{error}");
    });
    assert!(matches!(db.begin().unwrap().get(&NUMBERS, &1), Err(TxnError::Schema { .. })));
    assert_eq!(db.begin().unwrap().range_by::<Slow>(&SLOW, 5..6).unwrap().count(), 10);
    is_whole(&db);

    let copy = Options::new().buffer_pool(2 << 20).open_on(on(&target)).unwrap();
    assert_eq!(copy.begin().unwrap().count(&NUMBERS, ..).unwrap(), 1000);
    is_whole(&copy);

    // The index function panics in the middle.
    db.alter_indexes(&NUMBERS).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &999, &6_660)).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| db.alter_indexes(&SLOW).map(drop)));
    assert!(caught.is_err());
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &999).unwrap(), Some(6_660));
    is_whole(&db);
}

#[test]
fn a_transaction_of_the_same_thread_is_not_waited_for() {
    let db = Options::new().buffer_pool(2 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &1, &1).unwrap();
    assert!(matches!(db.alter_indexes(&SINGLE), Err(TxnError::OwnTask { .. })));
    tx.commit().unwrap();
    db.alter_indexes(&SINGLE).unwrap();
    assert_eq!(db.begin().unwrap().get(&SINGLE, &1).unwrap(), Some(1));
    is_whole(&db);
}
