//! Valid pages in wrong places: misdirected writes, lost writes, and older copies of pages. Every statement returns the
//! right answer or names the damaged page; none panics, and none writes a row where no search finds it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{Rng, small};
use storage::disk::{Disk, MemDisk, OpenMode};
use storage::{Background, Database, SecondaryIndex, StorageError, Table, Transaction, TxnError};

const PAGE: usize = 8192;
const KIND: usize = 8;
/// Offset of the first unused page number on page 1.
const SPACE_END: usize = 32;

/// A table with long keys, so that few rows make a tree of three levels.
const ROWS: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByHead>();
const OTHERS: Table<u64, u64> = Table::new("others");

#[derive(Debug)]
struct ByHead;
impl SecondaryIndex for ByHead {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = Vec<u8>;
    const NAME: &'static str = "by_head";
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<Vec<u8>> {
        (!row.is_empty()).then(|| row[..2].to_vec())
    }
}

const KEYS: u64 = 1_200;

type Files = Vec<(String, Vec<u8>)>;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u64) -> Vec<u8> {
    let mut key = vec![b'k'; 300];
    key[200..208].copy_from_slice(&n.to_be_bytes());
    key
}

fn row(n: u64, version: u8) -> Vec<u8> {
    let mut row = vec![version; 500 + n as usize % 200];
    row[..8].copy_from_slice(&n.to_be_bytes());
    row
}

fn files(disk: &MemDisk) -> Files {
    let read = |name: String| {
        let file = disk.open(&name, OpenMode::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        (name, bytes)
    };
    disk.list().unwrap().into_iter().map(read).collect()
}

fn open(disk: &MemDisk, pool: u64) -> Database {
    small().buffer_pool(pool).background(Background::Inline).open_on(Arc::new(disk.clone())).unwrap()
}

/// Returns the files of a closed database, an older version of them, and the rows.
fn made() -> (Files, Files, Rows) {
    let disk = MemDisk::new();
    let mut rows = Rows::new();
    let mut older = Files::new();
    for version in 0..2u8 {
        let db = open(&disk, 8 << 20);
        for n in (u64::from(version)..KEYS).step_by(2) {
            db.transact(|tx| tx.put(&ROWS, &key(n), &row(n, version))).unwrap();
            rows.insert(key(n), row(n, version));
        }
        db.transact(|tx| (0..3_000).try_for_each(|n| tx.put(&OTHERS, &n, &u64::from(version)))).unwrap();
        db.close().unwrap();
        if version == 0 {
            older = files(&disk);
        }
    }
    (files(&disk), older, rows)
}

fn page(files: &Files, number: u32) -> Option<&[u8]> {
    let (_, pages) = files.iter().find(|(name, _)| name == "pages.0")?;
    pages.get(number as usize * PAGE..)?.get(..PAGE)
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

/// Returns the numbers of the pages of trees.
fn tree_pages(files: &Files) -> Vec<u32> {
    let end = u32_at(page(files, 1).unwrap(), SPACE_END);
    (2..end).filter(|n| matches!(page(files, *n), Some(page) if matches!(page[KIND], 1 | 2))).collect()
}

/// Returns the page's bytes with another page number.
fn under(bytes: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn write(disk: &MemDisk, number: u32, bytes: &[u8]) {
    disk.open("pages.0", OpenMode::Existing).unwrap().write_at(bytes, u64::from(number) * PAGE as u64).unwrap();
}

fn disk_of(files: &Files) -> MemDisk {
    let disk = MemDisk::new();
    for (name, bytes) in files {
        disk.open(name, OpenMode::Create).unwrap().write_at(bytes, 0).unwrap();
    }
    disk
}

/// Checks that a result is right or reports damage.
fn told<T>(what: &str, result: Result<T, TxnError>, is_right: impl FnOnce(&T) -> bool) -> Option<T> {
    match result {
        Ok(value) => {
            assert!(is_right(&value), "{what}: a wrong answer");
            Some(value)
        }
        Err(TxnError::Storage(StorageError::CorruptPage { .. } | StorageError::Poisoned { .. })) => None,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// Runs one statement on a key, and checks its result and its effect.
fn statement(tx: &mut Transaction<'_>, rng: &mut Rng, now: &mut Rows, what: &str, exact: bool) -> bool {
    let n = rng.below(KEYS + 20);
    let (key, new) = (key(n), row(n, 9));
    let then = now.get(&key).cloned();
    let right = |ok: bool| ok || !exact;
    let done = match rng.below(12) {
        0..=2 => return told(what, tx.get(&ROWS, &key), |found| right(*found == then)).is_some(),
        3 => return told(what, tx.get_for_update(&ROWS, &key), |found| right(*found == then)).is_some(),
        4 => {
            let to = self::key(n + 7);
            let expected = now.range(key.clone()..to.clone()).count();
            let tx = &*tx;
            let forward = tx.range(&ROWS, key.clone()..to.clone()).unwrap().collect::<Result<Vec<_>, _>>();
            let backward = tx.range(&ROWS, key..to).unwrap().rev().collect::<Result<Vec<_>, _>>();
            let whole = told(what, forward, |rows| right(rows.len() == expected)).is_some();
            return told(what, backward, |rows| right(rows.len() == expected)).is_some() && whole;
        }
        5 => {
            let by = new[..2].to_vec();
            let found = tx.range_by::<ByHead>(&ROWS, by.clone()..=by).unwrap().take(5).collect::<Result<Vec<_>, _>>();
            return told(what, found, |_| true).is_some();
        }
        6 => match tx.insert(&ROWS, &key, &new) {
            Err(TxnError::DuplicateKey { .. }) => {
                assert!(right(then.is_some()), "{what}: insert found a row");
                return true;
            }
            result => told(what, result, |()| right(then.is_none())).map(|()| Some(new)),
        },
        7 | 8 => told(what, tx.put(&ROWS, &key, &new), |()| true).map(|()| Some(new)),
        9 => told(what, tx.update(&ROWS, &key, &new), |found| right(*found == then.is_some()))
            .map(|found| found.then_some(new)),
        10 => told(what, tx.delete(&ROWS, &key), |found| right(*found == then.is_some())).map(|_| None),
        _ => {
            let rows = [(key.clone(), new.clone()), (self::key(n + 1), row(n + 1, 9))];
            let put = told(what, tx.put_many(&ROWS, &rows), |()| true);
            if put.is_some() {
                now.insert(rows[1].0.clone(), rows[1].1.clone());
            }
            put.map(|()| Some(new))
        }
    };
    match done {
        Some(Some(row)) => _ = now.insert(key, row),
        Some(None) => _ = now.remove(&key),
        None => return false,
    }
    true
}

/// Runs many statements in transactions, some of which roll back; returns true if damage was reported.
fn statements(db: &Database, rng: &mut Rng, rows: &mut Rows, what: &str, exact: bool) -> bool {
    let mut damaged = false;
    for _ in 0..30 {
        let Ok(mut tx) = db.begin() else { return true };
        let mut now = rows.clone();
        let mut whole = true;
        for _ in 0..1 + rng.below(4) {
            whole &= statement(&mut tx, rng, &mut now, what, exact);
        }
        damaged |= !whole;
        if rng.once_in(3) {
            if tx.rollback().is_err() {
                return true;
            }
        } else if tx.commit().is_ok() {
            *rows = now;
        }
    }
    damaged
}

/// One page replaced by another page, or by an older copy of itself, before the database is opened.
#[test]
fn a_page_in_the_wrong_place_is_told() {
    let (files, older, rows) = made();
    let pages = tree_pages(&files);
    let inner = pages.iter().copied().filter(|n| page(&files, *n).unwrap()[KIND] == 2).collect::<Vec<_>>();
    assert!(inner.len() > 8, "{inner:?}");
    let mut found = [0; 3];
    for seed in 0..240 {
        let mut rng = Rng::new(seed);
        let disk = disk_of(&files);
        let pick = |rng: &mut Rng| {
            let of = if rng.once_in(2) { &inner } else { &pages };
            of[rng.below(of.len() as u64) as usize]
        };
        let (to, from) = (pick(&mut rng), pick(&mut rng));
        let way = rng.below(3) as usize;
        match way {
            0 if to != from => write(&disk, to, &under(page(&files, from).unwrap(), to)),
            1 if to != from => {
                write(&disk, to, &under(page(&files, from).unwrap(), to));
                write(&disk, from, &under(page(&files, to).unwrap(), from));
            }
            2 => match page(&older, to) {
                Some(old) if u32_at(old, 4) == to => write(&disk, to, old),
                _ => continue,
            },
            _ => continue,
        }
        let what = format!("seed {seed}, way {way}: page {from} in the place of {to}");
        let db = match small().buffer_pool(4 << 20).open_on(Arc::new(disk)) {
            Ok(db) => db,
            Err(error) => {
                assert!(error.to_string().contains("page"), "{what}: {error}");
                continue;
            }
        };
        if let Err(error) = db.table(&ROWS).map(drop).and(db.table(&OTHERS).map(drop)) {
            assert!(matches!(error, TxnError::Storage(StorageError::CorruptPage { .. })), "{what}: {error:?}");
            continue;
        }
        if rng.once_in(2) {
            let _ = db.preload();
        }
        let mut now = rows.clone();
        found[way] += usize::from(statements(&db, &mut rng, &mut now, &what, way < 2));
        let _ = db.check_structure(|_, _| ControlFlow::Continue(()));
        let _ = db.close();
    }
    assert!(found.iter().all(|found| *found > 5), "told {found:?} times");
}

/// The same while the database is open, with a pool smaller than the database: pages are evicted and read back wrong,
/// also inner pages above leaves that are still in the pool.
#[test]
fn a_page_that_comes_back_wrong_is_told() {
    let (files, older, rows) = made();
    let pages = tree_pages(&files);
    let inner = pages.iter().copied().filter(|n| page(&files, *n).unwrap()[KIND] == 2).collect::<Vec<_>>();
    let mut found = 0;
    for seed in 1_000..1_100 {
        let mut rng = Rng::new(seed);
        let disk = disk_of(&files);
        let db = open(&disk, 1 << 20);
        let mut now = rows.clone();
        assert!(!statements(&db, &mut rng, &mut now, "undamaged", true));
        let to = if rng.once_in(2) {
            inner[rng.below(inner.len() as u64) as usize]
        } else {
            pages[rng.below(pages.len() as u64) as usize]
        };
        let exact = rng.once_in(2);
        let bytes = if exact {
            let from = pages[rng.below(pages.len() as u64) as usize];
            if from == to {
                continue;
            }
            under(page(&files, from).unwrap(), to)
        } else {
            match page(&older, to) {
                Some(old) if u32_at(old, 4) == to => old.to_vec(),
                _ => continue,
            }
        };
        write(&disk, to, &bytes);
        let what = format!("seed {seed}: page {to} comes back wrong");
        for _ in 0..4 {
            found += usize::from(statements(&db, &mut rng, &mut now, &what, exact));
            // Other pages evict those that were used.
            if let Ok(tx) = db.begin() {
                let _ = tx.count(&OTHERS, ..);
            }
        }
        let _ = db.close();
    }
    assert!(found > 10, "told {found} times");
}
