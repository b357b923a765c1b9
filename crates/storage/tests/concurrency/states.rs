//! Each kind of read, in each state of an instance: a read needs neither the log nor disk space.
//!
//! Closed instances are not tested: `Database::close` consumes the database, so no read is possible.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{on, small};
use storage::disk::{Call, Fault, MemDisk, SimDisk, When};
use storage::optimistic::Peeker;
use storage::{CopyError, Database, OpenTable, Options, SecondaryIndex, StorageError, Table, TableLock, TxnError};

/// Rows 1,000 to 1,999, each with its number; ghosts before them, and from 2,000 on every second row is a ghost.
const ROWS: Table<u64, Vec<u8>> = Table::new("rows").with_index::<ByNumber>();
const MISSING: Table<u64, u64> = Table::new("missing");
/// Table for writes that are refused.
const OTHERS: Table<u64, Vec<u8>> = Table::new("others");

const ALIVE: u64 = 1_200;

#[derive(Debug)]
struct ByNumber;
impl SecondaryIndex for ByNumber {
    type Key = u64;
    type Row = Vec<u8>;
    type By = u64;
    const NAME: &'static str = "by_number";
    fn by(key: &u64, _: &Vec<u8>) -> Option<u64> {
        Some(*key)
    }
}

/// Returns a row. Few rows fit a page, except the many ghosts at the start.
fn row(key: u64) -> Vec<u8> {
    let mut row = vec![7; if key < 1_000 { 150 } else { 1_500 }];
    row[..8].copy_from_slice(&key.to_be_bytes());
    row
}

/// An instance to read from, with its table and its disk.
struct Subject {
    db: Database,
    rows: OpenTable<u64, Vec<u8>>,
    disk: SimDisk,
}

/// Kind of a result, as callers distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Success, with the number of rows or another count of the read.
    Right(u64),
    /// `StorageError::Poisoned`.
    Poisoned,
    /// `StorageError::NoSpace`.
    NoSpace,
}

impl From<StorageError> for Told {
    fn from(error: StorageError) -> Told {
        match error {
            StorageError::Poisoned { .. } => Told::Poisoned,
            StorageError::NoSpace { .. } => Told::NoSpace,
            error => panic!("{error:?}"),
        }
    }
}

impl From<TxnError> for Told {
    fn from(error: TxnError) -> Told {
        match error {
            TxnError::Storage(error) => error.into(),
            error => panic!("{error:?}"),
        }
    }
}

impl From<CopyError> for Told {
    fn from(error: CopyError) -> Told {
        match error {
            CopyError::Storage(error) => error.into(),
            error => panic!("{error:?}"),
        }
    }
}

fn raw(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

type Way = fn(&Subject) -> Result<u64, Told>;

/// Kinds of reads of rows, with their expected results.
const WAYS: [(&str, u64, Way); 38] = [
    ("get", 1, |s| Ok(u64::from(s.db.begin()?.get(&ROWS, &1_500)? == Some(row(1_500))))),
    ("get, a deleted row", 1, |s| Ok(u64::from(s.db.begin()?.get(&ROWS, &500)?.is_none()))),
    ("get, an absent row", 1, |s| Ok(u64::from(s.db.begin()?.get(&ROWS, &9_000)?.is_none()))),
    ("get, an absent table", 1, |s| Ok(u64::from(s.db.begin()?.get(&MISSING, &1)?.is_none()))),
    ("get_for_update", 1, |s| Ok(u64::from(s.db.begin()?.get_for_update(&ROWS, &1_500)?.is_some()))),
    ("get_many", 3, |s| {
        let found = s.db.begin()?.get_many(&ROWS, &[1, 1_001, 1_002, 999, 1_999])?;
        Ok(found.iter().flatten().count() as u64)
    }),
    ("read_raw", 1, |s| Ok(u64::from(s.db.begin()?.raw().read(&ROWS, &raw(1_500), |_| ())?.is_some()))),
    ("read_for_update_raw", 1, |s| {
        Ok(u64::from(s.db.begin()?.raw().read_for_update(&ROWS, &raw(1_500), |_| ())?.is_some()))
    }),
    ("read_columns_raw", 1_500, |s| {
        let number = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().unwrap());
        let found = s.db.begin()?.raw().read_columns(&ROWS, &raw(1_500), &[0..4, 4..8], number)?;
        Ok(found.unwrap())
    }),
    ("read_columns_of_raw", 2, |s| {
        let mut found = 0;
        let keys: [&[u8]; 3] = [&raw(1_500), &raw(5), &raw(1_501)];
        s.db.begin()?.raw().read_columns_of(&ROWS, &keys, &[0..4, 4..8], |_, _| found += 1)?;
        Ok(found)
    }),
    ("prefetch", 1, |s| s.db.begin()?.prefetch(&ROWS, &[1, 1_500, 9_000]).map(|()| 1).map_err(Told::from)),
    ("prefetch_raw", 1, |s| {
        s.db.begin()?.raw().prefetch([1, 1_500].map(raw).iter().map(|key| (s.rows, &key[..], 8)));
        Ok(1)
    }),
    ("range", ALIVE, |s| {
        let tx = s.db.begin()?;
        let mut rows = 0;
        for found in tx.range(&ROWS, ..)? {
            let (key, value) = found?;
            assert_eq!(value, row(key));
            rows += 1;
        }
        Ok(rows)
    }),
    ("range, backwards", ALIVE, |s| {
        let tx = s.db.begin()?;
        let mut rows = 0;
        for found in tx.range(&ROWS, ..)?.rev() {
            found?;
            rows += 1;
        }
        Ok(rows)
    }),
    ("range, from both ends", 4_398, |s| {
        let tx = s.db.begin()?;
        let mut range = tx.range(&ROWS, ..)?;
        let (first, last) = (range.next().unwrap()?.0, range.next_back().unwrap()?.0);
        Ok(first + last + 1_000)
    }),
    ("range of ghosts", 0, |s| {
        let tx = s.db.begin()?;
        let mut rows = 0;
        for found in tx.range(&ROWS, 10..990)? {
            found?;
            rows += 1;
        }
        Ok(rows)
    }),
    ("range_by", ALIVE, |s| {
        let tx = s.db.begin()?;
        let mut rows = 0;
        for found in tx.range_by::<ByNumber>(&ROWS, ..)? {
            found?;
            rows += 1;
        }
        Ok(rows)
    }),
    ("range_by, backwards", ALIVE, |s| {
        let tx = s.db.begin()?;
        let mut rows = 0;
        for found in tx.range_by::<ByNumber>(&ROWS, ..)?.rev() {
            found?;
            rows += 1;
        }
        Ok(rows)
    }),
    ("count", ALIVE, |s| Ok(s.db.begin()?.count(&ROWS, ..)?)),
    ("count of ghosts", 0, |s| Ok(s.db.begin()?.count(&ROWS, ..1_000)?)),
    ("count_raw", 1_000, |s| Ok(s.db.begin()?.raw().count(&ROWS, &raw(0), &raw(1_999))?)),
    ("scan_raw", 1_000, |s| {
        let mut rows = 0;
        s.db.begin()?.raw().scan(&ROWS, &raw(0), &raw(1_999), |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }),
    ("scan_backward_raw", 1_000, |s| {
        let mut rows = 0;
        s.db.begin()?.raw().scan_backward(&ROWS, &raw(0), &raw(1_999), |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }),
    ("scan_index_raw", 1_000, |s| {
        let mut rows = 0;
        s.db.begin()?.raw().scan_index(&ROWS, 0, &raw(0), &raw(2_000), false, |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }),
    ("scan_index_raw, backwards", 1_000, |s| {
        let mut rows = 0;
        s.db.begin()?.raw().scan_index(&ROWS, 0, &raw(0), &raw(2_000), true, |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }),
    ("peek_raw", 1, |s| {
        let mut peeker = Peeker::default();
        Ok(u64::from(s.db.raw().peek(&mut peeker, &s.rows, &raw(1_500))?.0.is_some()))
    }),
    ("peek_columns_raw", 1, |s| {
        let mut peeker = Peeker::default();
        Ok(u64::from(s.db.raw().peek_columns(&mut peeker, &s.rows, &raw(1_500), &[0..4, 4..8])?.0.is_some()))
    }),
    ("announce_raw", 1, |s| {
        let mut peeker = Peeker::default();
        s.db.raw().announce(&mut peeker, [1_500, 3].map(raw).iter().map(|key| (s.rows, &key[..], 8)));
        Ok(u64::from(s.db.raw().peek(&mut peeker, &s.rows, &raw(1_500))?.0.is_some()))
    }),
    ("peek_range_raw", 1_000, |s| {
        let (mut peeker, mut rows) = (Peeker::default(), 0);
        s.db.raw().peek_range(&mut peeker, &s.rows, (&raw(0), &raw(1_999)), usize::MAX, |_, _, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }),
    ("confirm_raw", 2, |s| {
        let mut peeker = Peeker::default();
        let (seen, place) = s.db.raw().peek(&mut peeker, &s.rows, &raw(1_500))?;
        let seen = seen.map(<[u8]>::to_vec);
        let mut tx = s.db.begin()?;
        let same = tx.raw_mut().confirm(&s.rows, &raw(1_500), &place, seen.as_deref(), false)?;
        let (none, place) = s.db.raw().peek(&mut peeker, &s.rows, &raw(400))?;
        assert!(none.is_none());
        Ok(u64::from(same) + u64::from(tx.raw_mut().confirm(&s.rows, &raw(400), &place, None, false)?))
    }),
    ("lock_range_raw", 1_000, |s| {
        let mut rows = 0;
        s.db.begin()?.raw_mut().lock_range(&s.rows, (&raw(0), &raw(1_999)), usize::MAX >> 8, false, |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }),
    ("lock_table", 1, |s| {
        let mut tx = s.db.begin()?;
        tx.lock_table(&ROWS, TableLock::Shared)?;
        Ok(u64::from(tx.get(&ROWS, &1_500)?.is_some()))
    }),
    ("table", 1, |s| Ok(s.db.table(&ROWS).map(|_| 1)?)),
    ("sizes", 2, |s| Ok(s.db.sizes()?.tables.iter().filter(|table| table.rows > 0).count() as u64)),
    ("check_structure", 1, |s| Ok(u64::from(s.db.check_structure(|_, _| ControlFlow::Continue(()))?.passed()))),
    ("verify_pages", 1, |s| Ok(u64::from(s.db.verify_pages()? > 10))),
    ("preload", 1, |s| s.db.preload().map(|_| 1).map_err(Told::from)),
    ("rollback", 1, |s| {
        let tx = s.db.begin()?;
        let found = tx.get(&ROWS, &1_500)?;
        tx.rollback()?;
        Ok(u64::from(found.is_some()))
    }),
];

/// Reads that cannot fail.
fn told_always(s: &Subject) {
    assert_eq!(s.db.table_names(), ["others", "rows"]);
    assert_eq!(s.db.indexes().len(), 3);
    assert!(s.db.stats().log_bytes > 0 && !s.db.directory().is_empty());
    let _ = (s.db.durable(), s.db.latches());
}

fn copies(s: &Subject) -> Result<u64, Told> {
    let disk = Arc::new(MemDisk::new());
    s.db.copy_on(disk.clone(), |_| ControlFlow::Continue(()))?;
    let copy = Options::new().open_on(disk).unwrap();
    Ok(copy.begin()?.count(&ROWS, ..)?)
}

/// Reads and waits until the result may be acknowledged.
fn answers(s: &Subject) -> Result<u64, Told> {
    let tx = s.db.begin()?;
    let found = tx.get(&ROWS, &1_500)?;
    tx.commit()?;
    Ok(u64::from(found.is_some()))
}

fn open(pool: u64) -> Subject {
    let disk = SimDisk::new(3);
    let db = small().buffer_pool(pool).log_buffer(512 << 10).open_on(on(&disk)).unwrap();
    let put = |keys: std::ops::Range<u64>| {
        keys.step_by(10).for_each(|from| {
            db.transact(|tx| (from..from + 10).try_for_each(|key| tx.put(&ROWS, &key, &row(key)))).unwrap();
        });
    };
    put(0..2_400);
    db.transact(|tx| tx.put(&OTHERS, &0, &vec![1; 100])).unwrap();
    db.transact(|tx| (0..1_000).try_for_each(|key| tx.delete(&ROWS, &key).map(drop))).unwrap();
    db.transact(|tx| (2_001..2_400).step_by(2).try_for_each(|key| tx.delete(&ROWS, &key).map(drop))).unwrap();
    let rows = db.table(&ROWS).unwrap();
    Subject { db, rows, disk }
}

/// Puts rows until one is refused; returns the kind of refusal.
fn fill(db: &Database, bytes: usize) -> Told {
    for n in 0..100_000 {
        if let Err(error) = db.transact(|tx| tx.put(&OTHERS, &(1 + n), &vec![9; bytes])) {
            return error.into();
        }
    }
    panic!("nothing was refused");
}

/// Function that brings an instance into a state.
type Bring = fn(&Subject);

/// The states, and the functions that bring an instance there.
const STATES: [(&str, Bring); 6] = [
    ("open", |_| {}),
    ("closed to commits: a sync failed", |s| {
        // The record of the change is in the log before syncs fail, so the log has an end that is not durable.
        let mut tx = s.db.begin().unwrap();
        tx.put(&OTHERS, &0, &vec![2; 100]).unwrap();
        s.disk.plan(Some(Call::Sync), When::From(1), Fault::Eio);
        assert!(tx.commit().is_err());
    }),
    ("closed to commits: a write failed, and all pages are dirty", |s| {
        // Changes as many rows as make all pages of the pool dirty.
        let change = |tx: &mut storage::Transaction<'_>| -> Result<(), TxnError> {
            (1_000..2_000).try_for_each(|key| tx.put(&ROWS, &key, &row(key)))
        };
        s.db.transact(change).unwrap();
        s.disk.plan(Some(Call::Write), When::From(1), Fault::Eio);
        assert!((0..2_000).any(|_| s.db.transact(|tx| tx.put(&OTHERS, &0, &vec![2; 3_000])).is_err()));
    }),
    ("disk full", |s| {
        s.disk.set_capacity(s.disk.used());
        assert_eq!(fill(&s.db, 3_000), Told::NoSpace);
    }),
    ("log full", |s| {
        s.disk.set_capacity(s.disk.used());
        // Updates of one row use the log and no pages.
        let update = |n: u64| s.db.transact(|tx| tx.put(&OTHERS, &0, &vec![n as u8; 100 + (n % 2) as usize]));
        let refused = (0..100_000).find_map(|n| update(n).err());
        assert!(refused.is_none_or(|error| Told::from(error) == Told::NoSpace));
        assert_eq!(fill(&s.db, 100), Told::NoSpace);
    }),
    ("disk full, and a transaction is running", |s| {
        let mut tx = s.db.begin().unwrap();
        tx.put(&OTHERS, &0, &vec![5; 1_000]).unwrap();
        s.disk.set_capacity(s.disk.used());
        let told = (1..100_000).find_map(|n| tx.put(&OTHERS, &n, &vec![5; 3_000]).err()).map(Told::from);
        assert_eq!(told, Some(Told::NoSpace));
        tx.rollback().unwrap();
    }),
];

fn compare<T: PartialEq + Debug>(wrong: &mut Vec<String>, state: &str, way: &str, told: T, right: T) {
    if told != right {
        wrong.push(format!("{state}: {way}: {told:?} instead of {right:?}"));
    }
}

/// With a pool that holds all pages, and with the smallest pool, which holds a part.
#[test]
fn every_way_to_read_works_in_every_state() {
    let mut wrong = Vec::new();
    for pool in [16 << 20, 1 << 20] {
        for (state, bring) in STATES {
            let subject = open(pool);
            bring(&subject);
            let state = format!("pool of {} KiB, {state}", pool >> 10);
            for (way, right, read) in WAYS {
                let told = read(&subject).map_or_else(|told| told, Told::Right);
                compare(&mut wrong, &state, way, told, Told::Right(right));
            }
            told_always(&subject);
            let is_closed = state.contains("closed");
            // Calls that need the log return an error with the reason.
            let expected = |right| if is_closed { Told::Poisoned } else { Told::Right(right) };
            let copied = copies(&subject).map_or_else(|told| told, Told::Right);
            compare(&mut wrong, &state, "copy_on", copied, expected(ALIVE));
            let answered = answers(&subject).map_or_else(|told| told, Told::Right);
            compare(&mut wrong, &state, "commit of a reader", answered, expected(1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Changes left by a failed rollback were never committed: no read of rows returns them.
#[test]
fn what_is_not_sound_in_memory_is_not_read() {
    let subject = open(16 << 20);
    let mut tx = subject.db.begin().unwrap();
    (0..250).for_each(|key| tx.put(&OTHERS, &key, &vec![7; 3_000]).unwrap());
    subject.disk.plan(Some(Call::Read), When::From(1), Fault::Eio);
    assert!(matches!(tx.rollback(), Err(TxnError::Storage(StorageError::Io { .. }))));
    subject.disk.heal();
    told_always(&subject);
    let mut wrong = Vec::new();
    for (way, right, read) in WAYS {
        let told = read(&subject).map_or_else(|told| told, Told::Right);
        // Calls that read pages, not rows, are allowed.
        let expected = match way {
            "table" | "sizes" | "verify_pages" | "preload" => Told::Right(right),
            "check_structure" => continue,
            _ => Told::Poisoned,
        };
        compare(&mut wrong, "half a rollback in memory", way, told, expected);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
