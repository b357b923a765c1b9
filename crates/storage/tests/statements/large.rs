//! Rows and keys that do not fit a page: every statement compared with a model, with rollbacks and crashes, and checks
//! of the space left behind.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    clippy::single_range_in_vec_init,
    reason = "a test: a failure is told where it happens"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{ByHead, ROWS, Rng, on, open, small};
use storage::disk::{Crash, MemDisk, SimDisk};
use storage::optimistic::Peeker;
use storage::{Background, Database, Isolation, Options, Raw, SecondaryIndex, Table, TxnError};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const PLAIN: Table<Vec<u8>, Vec<u8>> = Table::new("plain");

/// Returns lengths of values around each limit: of slots, of chunks and of leaves.
fn len(rng: &mut Rng) -> usize {
    let border = [0, 2, 16, 1900, 3968, 2 * 3968, 4 * 3968, 8192, 9 * 3968][rng.below(9) as usize];
    match rng.below(4) {
        0 => (border + rng.below(9) as usize).saturating_sub(4),
        1 => border,
        2 => rng.below(300) as usize,
        _ => rng.below(40_000) as usize,
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let (len, first) = (len(rng), rng.next() as u8);
    (0..len).map(|i| first.wrapping_add((i / 7) as u8)).collect()
}

/// Returns keys of few bytes and of up to 2,046, some with a long common prefix, some without.
fn key(n: u64) -> Vec<u8> {
    let mut key = vec![1 + (n % 7) as u8];
    match n % 5 {
        0 => key.resize(1990, 9),
        1 => key.resize(40 + (n as usize * 37) % 1900, 0xFF),
        2 => key.extend((0..(n as usize * 131) % 2000).map(|i| 1 + (i as u64 * n * 7 % 200) as u8)),
        _ => {}
    }
    key.extend([1 + (n / 200) as u8, 1 + (n % 200) as u8]);
    key
}

fn rows(db: &Database, table: &Table<Vec<u8>, Vec<u8>>) -> Model {
    let tx = db.begin().unwrap();
    let all: Model = tx.range(table, ..).unwrap().map(Result::unwrap).collect();
    let back: Model = tx.range(table, ..).unwrap().rev().map(Result::unwrap).collect();
    assert!(all == back);
    all
}

fn check(db: &Database, model: &Model) {
    assert!(rows(db, &ROWS) == *model);
    let tx = db.begin().unwrap();
    for (key, row) in model {
        assert!(tx.get(&ROWS, key).unwrap().as_ref() == Some(row));
    }
    let by: Vec<_> = tx.range_by::<ByHead>(&ROWS, ..).unwrap().map(|row| row.unwrap().0).collect();
    assert_eq!(by.len(), model.values().filter(|row| !row.is_empty()).count());
    drop(tx);
    db.verify_pages().unwrap();
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", &structure.findings[..structure.findings.len().min(5)]);
}

/// Runs one transaction of random statements. Returns the content of the table if it commits.
fn statements(db: &Database, model: &Model, rng: &mut Rng) -> (bool, Model) {
    let mut tx = db.begin().unwrap();
    let mut now = model.clone();
    let mut saved = None;
    for _ in 0..rng.below(9) {
        let key = key(rng.below(60));
        match rng.below(13) {
            0..=3 => {
                let row = value(rng);
                tx.put(&ROWS, &key, &row).unwrap();
                now.insert(key, row);
            }
            4 => {
                let row = value(rng);
                match tx.insert(&ROWS, &key, &row) {
                    Ok(()) => assert!(now.insert(key, row).is_none()),
                    Err(TxnError::DuplicateKey { .. }) => assert!(now.contains_key(&key)),
                    Err(error) => panic!("{error}"),
                }
            }
            5 => assert_eq!(tx.delete(&ROWS, &key).unwrap(), now.remove(&key).is_some()),
            6 => {
                let row = value(rng);
                assert_eq!(tx.update(&ROWS, &key, &row).unwrap(), now.contains_key(&key));
                if let Some(old) = now.get_mut(&key) {
                    *old = row;
                }
            }
            7 => assert!(tx.get(&ROWS, &key).unwrap().as_ref() == now.get(&key)),
            8 => {
                let keys: Vec<_> = (0..20).map(|_| self::key(rng.below(60))).collect();
                let found = tx.get_many(&ROWS, &keys).unwrap();
                assert!(found.iter().zip(&keys).all(|(found, key)| found.as_ref() == now.get(key)));
            }
            9 => {
                let (a, b) = (self::key(rng.below(60)), self::key(rng.below(60)));
                let (from, to) = (a.clone().min(b.clone()), a.max(b));
                let gone = now.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect::<Vec<_>>();
                if from < to {
                    assert_eq!(tx.delete_range(&ROWS, from..to).unwrap(), gone.len() as u64);
                    gone.iter().for_each(|key| drop(now.remove(key)));
                }
            }
            10 => saved = Some((tx.savepoint(), now.clone())),
            11 => {
                if let Some((savepoint, then)) = &saved {
                    tx.rollback_to(*savepoint).unwrap();
                    now = then.clone();
                }
            }
            _ => {
                let rows: Vec<_> = (0..3).map(|_| (self::key(rng.below(60)), value(rng))).collect();
                tx.put_many(&ROWS, &rows).unwrap();
                now.extend(rows);
            }
        }
    }
    if rng.once_in(3) {
        tx.rollback().unwrap();
        return (false, model.clone());
    }
    tx.commit().unwrap();
    (true, now)
}

#[test]
fn statements_equal_a_map() {
    for seed in 0..6 {
        let disk = Arc::new(MemDisk::new());
        let isolation = [Isolation::Serializable, Isolation::ReadCommitted][seed as usize % 2];
        let open = || {
            let options = Options::new().buffer_pool(2 << 20).log_segment(1 << 20).log_buffer(1 << 20);
            // No service changes pages during the check.
            options.isolation(isolation).transactions(4).background(Background::Inline).open_on(disk.clone()).unwrap()
        };
        let (mut db, mut rng, mut model) = (open(), Rng::new(seed), Model::new());
        db.table(&ROWS).unwrap();
        for round in 0..150 {
            model = statements(&db, &model, &mut rng).1;
            if round % 50 == 49 {
                check(&db, &model);
                db.close().unwrap();
                db = open();
                check(&db, &model);
            }
        }
    }
}

/// Crashes at any time: committed values are complete, and nothing of the others is left.
#[test]
fn crashes_lose_nothing_and_leave_nothing() {
    for seed in 0..25 {
        let (disk, mut rng, mut model) = (SimDisk::new(seed), Rng::new(seed), Model::new());
        let mut disk = disk;
        let mut db = open(&disk);
        db.table(&ROWS).unwrap();
        for _ in 0..3 {
            for _ in 0..1 + rng.below(12) {
                model = statements(&db, &model, &mut rng).1;
            }
            // A transaction that does not end before the crash.
            let mut open_one = db.begin().unwrap();
            for _ in 0..4 {
                let (key, row) = (key(rng.below(60)), value(&mut rng));
                if rng.once_in(3) {
                    open_one.delete(&ROWS, &key).unwrap();
                } else {
                    open_one.put(&ROWS, &key, &row).unwrap();
                }
            }
            if rng.once_in(2) {
                db.checkpoint().unwrap();
            }
            let after = disk.crash(Crash::Random(rng.next()));
            std::mem::forget(open_one);
            std::mem::forget(db);
            disk = after;
            db = open(&disk);
            check(&db, &model);
        }
    }
}

/// Space of replaced, deleted or rolled back values is reused.
#[test]
fn space_is_used_again() {
    let disk = Arc::new(MemDisk::new());
    let db = small().open_on(disk).unwrap();
    let pages = |db: &Database| {
        let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
        assert!(structure.passed(), "{:?}", structure.findings);
        structure.pages - structure.free
    };
    // Unneeded values are freed in the background, which pauses between its steps.
    let comes_to = |db: &Database, most: u64| {
        for _ in 0..500 {
            if pages(db) <= most {
                break;
            }
            db.step().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        pages(db)
    };
    db.table(&PLAIN).unwrap();
    db.transact(|tx| tx.put(&PLAIN, &[1], &vec![1; 100_000])).unwrap();
    let least = pages(&db);
    assert!(least < 45, "{least} pages for 100,000 bytes");
    for round in 0..30u8 {
        db.transact(|tx| tx.put(&PLAIN, &[1], &vec![round; 100_000])).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&PLAIN, &[2], &vec![round; 300_000]).unwrap();
        tx.put(&PLAIN, &[1], &vec![round; 50_000]).unwrap();
        let savepoint = tx.savepoint();
        tx.put(&PLAIN, &[1], &vec![round; 70_000]).unwrap();
        tx.delete(&PLAIN, &[2]).unwrap();
        tx.rollback_to(savepoint).unwrap();
        assert_eq!(tx.get(&PLAIN, &[2]).unwrap().map(|row| row.len()), Some(300_000));
        tx.rollback().unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&PLAIN, &[3], &vec![round; 20_000]).unwrap();
        tx.put(&PLAIN, &[3], &vec![round; 30_000]).unwrap();
        tx.delete(&PLAIN, &[3]).unwrap();
        tx.commit().unwrap();
    }
    let now = comes_to(&db, least + 4);
    assert!(now <= least + 4, "{now} pages instead of {least}");
    assert!(db.sizes().unwrap().tables[0].large_values <= (least + 4) * 8192);
    db.transact(|tx| tx.delete(&PLAIN, &[1])).unwrap();
    let now = comes_to(&db, 19);
    assert!(now < 20, "{now} pages for nothing");
    assert!(db.transact(|tx| tx.put(&PLAIN, &[1], &vec![1; 100_000])).is_ok());
    assert!(db.truncate("plain").unwrap());
    assert!(rows(&db, &PLAIN).is_empty() && pages(&db) < 10);
    db.transact(|tx| tx.put(&PLAIN, &[1], &vec![1; 100_000])).unwrap();
    assert!(db.drop_table("plain").unwrap());
    assert!(pages(&db) < 6);
    db.close().unwrap();
}

/// Raw statements: parts of a row, updates in place, runs, optimistic reads, index entries that are too long for a
/// slot.
#[test]
fn statements_on_bytes() {
    let db = small().open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.raw_table(&Table::<Raw, Raw>::new("bytes")).unwrap();
    let big: Vec<u8> = (0..30_000u32).map(|i| (i / 3) as u8).collect();
    let mut tx = db.begin().unwrap();
    tx.raw_mut().insert_run(&table, &[(b"a", b"small"), (b"b", &big), (b"c", &big[..5000]), (b"d", b"small")]).unwrap();
    tx.commit().unwrap();
    let mut tx = db.begin().unwrap();
    let part = |tx: &storage::Transaction<'_>, columns: &[std::ops::Range<usize>]| {
        tx.raw().read_columns(&table, b"b", columns, <[u8]>::to_vec).unwrap().unwrap()
    };
    assert_eq!(part(&tx, &[5..9, 3960..4000, 29_999..30_000]), [&big[5..9], &big[3960..4000], &big[29_999..]].concat());
    assert_eq!(part(&tx, &[29_990..usize::MAX]), big[29_990..]);
    assert!(part(&tx, &[30_001..30_002]).is_empty() && part(&tx, &[]).is_empty());
    let mut seen = Vec::new();
    tx.raw()
        .read_columns_of(&table, &[b"a", b"b", b"x", b"c"], &[0..3], |i, row| seen.push((i, row.to_vec())))
        .unwrap();
    assert_eq!(seen, [(0, b"sma".to_vec()), (1, big[..3].to_vec()), (3, big[..3].to_vec())]);
    // An update in place across a chunk boundary.
    let mut expected = big.clone();
    expected[3965..3975].fill(7);
    tx.raw_mut()
        .update_columns(&table, b"b", &[3965..3975, 0..1], |part, rest| {
            assert_eq!((&*part, rest), (&big[3965..3975], &big[..1]));
            part.fill(7);
        })
        .unwrap()
        .unwrap();
    assert!(part(&tx, &[0..usize::MAX]) == expected);
    tx.raw_mut().update(&table, b"b", |row| row[29_999] = 1).unwrap();
    expected[29_999] = 1;
    assert_eq!(tx.raw_mut().update_heads(&table, &[b"a", b"b", b"c"], 2, |_, head, _| head.fill(3)).unwrap(), 3);
    expected[..2].fill(3);
    assert!(part(&tx, &[0..usize::MAX]) == expected);
    let changed = tx.raw_mut().update_run(&table, b"a", b"d", |_, row| *row.last_mut().unwrap() = 9).unwrap();
    assert_eq!(changed, 4);
    *expected.last_mut().unwrap() = 9;
    let mut rows = Vec::new();
    tx.raw()
        .scan(&table, b"a", b"z", |key, row| {
            rows.push((key.to_vec(), row.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(rows.len() == 4 && rows[1].1 == expected && rows[0].1 == b"\x03\x03al\x09");
    let mut back = Vec::new();
    tx.raw()
        .scan_backward(&table, b"a", b"z", |key, row| {
            back.push((key.to_vec(), row.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    back.reverse();
    assert!(back == rows);
    assert_eq!(tx.raw().count(&table, b"a", b"z").unwrap(), 4);
    tx.commit().unwrap();

    let mut peeker = Peeker::default();
    let (row, place) = db.raw().peek(&mut peeker, &table, b"b").unwrap();
    let row = row.unwrap().to_vec();
    assert!(row == expected);
    let mut peeked = Vec::new();
    db.raw()
        .peek_range(&mut peeker, &table, (b"a", b"z"), 9, |key, row, _| {
            peeked.push((key.to_vec(), row.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(peeked == rows);
    let mut tx = db.begin().unwrap();
    assert!(tx.raw_mut().confirm(&table, b"b", &place, Some(&row), true).unwrap());
    assert!(!tx.raw_mut().confirm(&table, b"b", &place, Some(&row[1..]), true).unwrap());
    let replaced = tx.raw_mut().replace_many(&table, [(&b"b"[..], place, &row[1..])].into_iter()).unwrap();
    assert_eq!(replaced, 1);
    assert!(part(&tx, &[0..usize::MAX]) == row[1..]);
    // A row of sixteen bytes, the length of a reference, replaces a large value.
    tx.raw_mut().put(&table, b"b", &[5; 16]).unwrap();
    assert_eq!(part(&tx, &[0..usize::MAX]), [5; 16]);
    assert_eq!(tx.raw_mut().take_first(&table, b"b", b"z").unwrap().unwrap(), b"b");
    assert_eq!(tx.raw_mut().take_first(&table, b"b", b"z").unwrap().unwrap(), b"c");
    assert_eq!(tx.raw_mut().take_first(&table, b"b", b"z").unwrap().unwrap(), b"d");
    assert_eq!(tx.raw_mut().take_first(&table, b"b", b"z").unwrap(), None);
    tx.commit().unwrap();
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed() && structure.large_values == 0, "{:?}", structure.findings);
    db.close().unwrap();
}

/// An index on the length of the row.
#[derive(Debug)]
struct ByLen;
impl SecondaryIndex for ByLen {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = u32;
    const NAME: &'static str = "by_len";
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<u32> {
        Some(row.len() as u32)
    }
}
const BY_LEN: Table<Vec<u8>, Vec<u8>> = Table::new("plain").with_index::<ByLen>();

/// Entries that contain a key of 2,000 bytes twice, in an index created before the rows, after them, and by a bulk
/// load.
#[test]
fn indexes_of_long_keys_and_long_rows() {
    let keys: Vec<Vec<u8>> = (0..40u8).map(|n| [vec![n + 1], vec![7; 2000], vec![n + 1]].concat()).collect();
    let row = |n: usize| vec![n as u8; n * 700];
    let right = |db: &Database| {
        let tx = db.begin().unwrap();
        for (n, key) in keys.iter().enumerate() {
            let len = row(n).len() as u32;
            let found: Vec<_> = tx.range_by::<ByLen>(&BY_LEN, len..=len).unwrap().map(Result::unwrap).collect();
            assert!(found == [(key.clone(), row(n))], "{n}");
        }
        let back = tx.range_by::<ByLen>(&BY_LEN, ..).unwrap().rev().map(|found| found.unwrap().0);
        assert!(back.eq(keys.iter().rev().cloned()));
        drop(tx);
        let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
        assert!(structure.passed() && structure.entries == 40, "{:?}", structure.findings);
    };
    let db = || small().buffer_pool(4 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let before = db();
    before.table(&BY_LEN).unwrap();
    let after = db();
    let plain = after.table(&PLAIN).unwrap();
    for (n, key) in keys.iter().enumerate() {
        before.transact(|tx| tx.put(&BY_LEN, key, &row(n))).unwrap();
        after.transact(|tx| tx.put(&plain, key, &row(n))).unwrap();
    }
    right(&before);
    after.alter_indexes(&BY_LEN).unwrap();
    right(&after);
    let loaded = db();
    let mut load = loaded.bulk_load(&loaded.table(&BY_LEN).unwrap()).unwrap();
    for (n, key) in keys.iter().enumerate() {
        load.push(key, &row(n)).unwrap();
    }
    load.finish().unwrap();
    right(&loaded);
    // The rows are replaced under the same keys, then deleted.
    for db in [before, after, loaded] {
        for (n, key) in keys.iter().enumerate() {
            db.transact(|tx| tx.put(&BY_LEN, key, &row(39 - n))).unwrap();
        }
        for (n, key) in keys.iter().enumerate() {
            db.transact(|tx| tx.put(&BY_LEN, key, &row(n))).unwrap();
        }
        right(&db);
        db.transact(|tx| tx.delete_range(&BY_LEN, ..)).unwrap();
        let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
        assert!(structure.passed() && structure.large_values + structure.entries == 0, "{:?}", structure.findings);
        db.close().unwrap();
    }
}

/// A copy made while values are written and deleted has complete values.
#[test]
fn copies_have_whole_values() {
    let disk = SimDisk::new(3);
    let db = open(&disk);
    let (mut rng, mut model) = (Rng::new(3), Model::new());
    db.table(&ROWS).unwrap();
    for _ in 0..40 {
        model = statements(&db, &model, &mut rng).1;
    }
    let copy = SimDisk::new(4);
    db.copy_on(on(&copy), |_| ControlFlow::Continue(())).unwrap();
    let copied = open(&copy);
    check(&copied, &model);
    copied.close().unwrap();
    db.close().unwrap();
}

/// Readers without locks read complete values during replacements.
#[test]
fn readers_without_locks_see_whole_values() {
    let options = || Options::new().buffer_pool(4 << 20).log_segment(1 << 20).log_buffer(1 << 20).transactions(8);
    let disk = Arc::new(MemDisk::new());
    let db = options().open_on(disk.clone()).unwrap();
    let table = db.table(&PLAIN).unwrap();
    let row = |round: u32, n: u8| vec![(round % 251) as u8; 1 + (round as usize * 977 + usize::from(n)) % 30_000];
    let whole = |row: &[u8]| row.iter().all(|byte| *byte == row[0]);
    db.transact(|tx| (0..8u8).try_for_each(|n| tx.put(&table, &[n + 1], &row(0, n)))).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    struct Over<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let (db, over, table) = (&db, &over, &table);
        let running = move || !over.load(std::sync::atomic::Ordering::Relaxed);
        scope.spawn(move || {
            let _over = Over(over);
            for round in 1..1500u32 {
                let mut tx = db.begin().unwrap();
                let n = (round % 8) as u8;
                if round % 11 == 0 {
                    tx.delete(table, &[n + 1]).unwrap();
                }
                tx.put(table, &[n + 1], &row(round, n)).unwrap();
                if round % 3 == 0 { tx.rollback().map(drop).unwrap() } else { tx.commit().unwrap() }
            }
        });
        scope.spawn(move || {
            while running() {
                let read = db.transact_at(Isolation::ReadCommitted, |tx| {
                    for n in 0..8u8 {
                        assert!(tx.get(table, &[n + 1])?.is_some_and(|row| whole(&row)), "row {n}");
                        let mut value = tx.read_value(table, &[n + 1])?.unwrap();
                        let (mut all, len) = (Vec::new(), value.len());
                        std::io::Read::read_to_end(&mut value, &mut all).unwrap();
                        assert!(whole(&all) && all.len() as u64 == len);
                    }
                    Ok::<_, TxnError>(())
                });
                read.unwrap();
            }
        });
        scope.spawn(move || {
            while running() {
                let tx = db.begin_at(Isolation::ReadCommitted).unwrap();
                let rows: Vec<_> = tx.range(table, ..).unwrap().map(Result::unwrap).collect();
                assert!(rows.len() >= 7 && rows.iter().all(|(_, row)| whole(row)));
            }
        });
        scope.spawn(move || {
            let raw = db.raw_table(&Table::<Raw, Raw>::new("plain")).unwrap();
            let mut peeker = Peeker::default();
            while running() {
                for n in 0..8u8 {
                    let (row, _) = db.raw().peek(&mut peeker, &raw, &[n + 1, 0, 0]).unwrap();
                    assert!(row.is_none_or(whole), "row {n}");
                }
                db.raw()
                    .peek_range(&mut peeker, &raw, (&[0], &[99]), 9, |_, row, _| {
                        assert!(whole(row));
                        ControlFlow::Continue(())
                    })
                    .unwrap();
            }
        });
    });
    db.close().unwrap();
    let db = options().background(Background::Inline).open_on(disk).unwrap();
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed() && structure.large_values <= 8, "{:?}", structure.findings);
    db.close().unwrap();
}

/// A source that returns few bytes at a time, and then fails or ends.
struct Source {
    left: usize,
    fails: bool,
}

impl std::io::Read for Source {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && self.fails {
            return Err(std::io::Error::other("out of paper"));
        }
        let bytes = out.len().min(self.left).min(1000);
        out[..bytes].iter_mut().enumerate().for_each(|(i, byte)| *byte = ((self.left - i) % 251) as u8);
        self.left -= bytes;
        Ok(bytes)
    }
}

#[test]
fn rows_are_read_and_written_piece_by_piece() {
    let db = small().open_on(Arc::new(MemDisk::new())).unwrap();
    let all = |mut source: Source| {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut source, &mut all).unwrap();
        all
    };
    for left in [0, 1, 3900, 3964, 3965, 3966, 3967, 3968, 3969, 7936, 7937, 50_000] {
        let key = vec![left as u8];
        let mut tx = db.begin().unwrap();
        for _ in 0..2 {
            assert_eq!(tx.write_value(&PLAIN, &key, Source { left, fails: false }).unwrap(), left as u64);
            let expected = all(Source { left, fails: false });
            assert!(tx.get(&PLAIN, &key).unwrap() == Some(expected.clone()));
            let mut value = tx.read_value(&PLAIN, &key).unwrap().unwrap();
            assert_eq!((value.len(), value.is_empty()), (left as u64, left == 0));
            let mut pieces = Vec::new();
            loop {
                let piece = value.piece().unwrap();
                if piece.is_empty() {
                    break;
                }
                pieces.extend_from_slice(piece);
            }
            assert!(pieces == expected);
        }
        assert!(matches!(
            tx.write_value(&PLAIN, &key, Source { left: 9000, fails: true }),
            Err(TxnError::Source { .. })
        ));
        assert_eq!(tx.get(&PLAIN, &key).unwrap().unwrap().len(), left, "a source that fails changes nothing");
        tx.commit().unwrap();
    }
    let mut tx = db.begin().unwrap();
    assert!(tx.read_value(&PLAIN, &[77]).unwrap().is_none());
    assert!(matches!(tx.write_value(&PLAIN, &vec![1; 2047], &[1][..]), Err(TxnError::KeyTooLong { .. })));
    assert!(matches!(tx.write_value(&PLAIN, &vec![1; 2047], &[1; 9000][..]), Err(TxnError::KeyTooLong { .. })));
    assert!(matches!(tx.write_value(&BY_LEN_OTHER, &[1], &[1][..]), Err(TxnError::Schema { .. })));
    tx.commit().unwrap();
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
    db.close().unwrap();
}

const BY_LEN_OTHER: Table<Vec<u8>, Vec<u8>> = Table::new("other").with_index::<ByLen>();

/// Undo finds the pages that it needs: on a full disk, rows with the longest keys get their old length back on leaves
/// that other rows have filled.
#[test]
fn rows_under_long_keys_grow_back_on_a_full_disk() {
    let key = |n: usize| [vec![1 + (n * 97 % 250) as u8, 1 + n as u8], vec![1 + n as u8; 2044]].concat();
    for seed in 0..8 {
        let (disk, mut rng) = (SimDisk::new(seed), Rng::new(seed));
        let db = open(&disk);
        let rows: Vec<usize> = (0..120).map(|_| rng.below(1900) as usize).collect();
        db.transact(|tx| (0..120).step_by(2).try_for_each(|n| tx.put(&PLAIN, &key(n), &vec![1; rows[n]]))).unwrap();
        let mut shrinks = db.begin_at(Isolation::ReadCommitted).unwrap();
        for n in (0..120).step_by(2) {
            shrinks.update(&PLAIN, &key(n), &vec![2; rng.below(3) as usize]).unwrap();
        }
        disk.set_capacity(disk.used() + rng.below(400_000));
        let mut there = Vec::new();
        for n in (1..120).step_by(2) {
            let inserted = db.transact_at(Isolation::ReadCommitted, |tx| tx.put(&PLAIN, &key(n), &vec![3; rows[n]]));
            match inserted {
                Ok(()) => there.push(n),
                Err(error) => assert!(error.to_string().contains("space"), "{error}"),
            }
        }
        shrinks.rollback().unwrap();
        disk.set_capacity(u64::MAX);
        let tx = db.begin().unwrap();
        #[allow(clippy::needless_range_loop)]
        for n in 0..120 {
            let expected =
                if n % 2 == 0 { Some(vec![1; rows[n]]) } else { there.contains(&n).then(|| vec![3; rows[n]]) };
            assert!(tx.get(&PLAIN, &key(n)).unwrap() == expected, "row {n}, seed {seed}");
        }
        drop(tx);
        let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
        assert!(structure.passed(), "{:?}", structure.findings);
        db.close().unwrap();
    }
}
