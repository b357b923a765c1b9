//! Tests that statements are atomic: if any call inside a statement fails, or a closure panics, the transaction
//! continues as if the statement had not run.

#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;

use super::database::Database;
use super::options::Options;
use super::table::{OpenTable, Table};
use super::transaction::Transaction;
use crate::base::config::Background;
use crate::base::error::{StorageError, TxnError};
use crate::base::fault::{self, FaultKind};
use crate::io::{Call, Crash, Fault, SimDisk, When};

type Raw = OpenTable<crate::Raw, crate::Raw>;
type Row = (Vec<u8>, Vec<u8>);
type Contents = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

const PLAIN: Table<(), ()> = Table::new("plain");
const INDEXED: Table<(), ()> =
    Table::new("indexed").with_raw_index("by_tail", false, 8, by_tail).with_raw_index("by_name", true, 8, by_name);
const FILLER: Table<(), ()> = Table::new("filler");

/// Index key function: up to four bytes after the head of a row.
fn by_tail(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    closure();
    row.get(8..).map(|tail| out.extend_from_slice(&tail[..tail.len().min(4)])).is_some()
}

/// Index key function: four bytes that differ between any two rows.
fn by_name(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    closure();
    row.get(12..16).map(|name| out.extend_from_slice(name)).is_some()
}

/// Fault point that the closures of all statements call.
fn closure() {
    assert!(!fault::should_fail(FaultKind::Closure), "a fault of a test");
}

/// Returns a random large row with a name that most probably no other row has.
fn random_row(rng: &mut Rng) -> Vec<u8> {
    let mut row = vec![0; 8 + [8, 8, 300, 1800][rng.usize(..4)]];
    rng.fill(&mut row);
    row
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    key(rng.u64(..KEYS))
}

/// Number of keys in each table. At the start, every second key has a row.
const KEYS: u64 = 160;

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// A statement under test. It can be run repeatedly.
type Statement = Box<dyn Fn(&mut Transaction<'_>, &[Raw; 2]) -> Result<(), TxnError>>;

/// Returns the statements under test, each with its name, with arguments taken from `rng`.
fn statements(rng: &mut Rng) -> Vec<(&'static str, Statement)> {
    let mut all: Vec<(&'static str, Statement)> = Vec::new();
    for at in 0..2 {
        let (key, row) = (random_key(rng), random_row(rng));
        all.push(("insert", Box::new(move |tx, tables| tx.raw_mut().insert(&tables[at], &key, &row))));
        let (key, row) = (random_key(rng), random_row(rng));
        all.push((
            "update",
            Box::new(move |tx, tables| {
                let change = |bytes: &mut Vec<u8>| {
                    closure();
                    bytes.clone_from(&row);
                };
                tx.raw_mut().update(&tables[at], &key, change).map(drop)
            }),
        ));
        let key = random_key(rng);
        all.push((
            "update a head",
            Box::new(move |tx, tables| tx.raw_mut().update_head(&tables[at], &key, 8, |head, _| count(head)).map(drop)),
        ));
        let keys: Vec<_> = (0..rng.u64(..40)).map(|_| random_key(rng)).collect();
        all.push((
            "update heads",
            Box::new(move |tx, tables| {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                tx.raw_mut().update_heads(&tables[at], &keys, 8, |_, head, _| count(head)).map(drop)
            }),
        ));
        let key = random_key(rng);
        all.push(("delete", Box::new(move |tx, tables| tx.raw_mut().delete(&tables[at], &key).map(drop))));
        let first = rng.u64(..KEYS);
        let rows: Vec<Row> = (0..1 + rng.u64(..12)).map(|i| (self::key(first + i), random_row(rng))).collect();
        all.push((
            "insert a run",
            Box::new(move |tx, tables| {
                let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
                tx.raw_mut().insert_run(&tables[at], &rows)
            }),
        ));
        let rows: Vec<(u64, Vec<u8>)> = (0..1 + rng.u64(..30)).map(|_| (rng.u64(..KEYS), random_row(rng))).collect();
        all.push((
            "put many",
            Box::new(move |tx, tables| {
                let info = tx.table_to_insert(&tables[at])?;
                tx.put_all(info, &rows)
            }),
        ));
        // The keys are above all existing keys, so no lock blocks the inserts.
        let rows: Vec<Row> = (0..1 + rng.u64(..12)).map(|i| (self::key(KEYS + i), random_row(rng))).collect();
        all.push((
            "insert a new run",
            Box::new(move |tx, tables| {
                let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
                tx.raw_mut().insert_run(&tables[at], &rows)
            }),
        ));
        let (from, to) = (rng.u64(..KEYS), 1 + rng.u64(..60));
        all.push((
            "take the first",
            Box::new(move |tx, tables| {
                tx.raw_mut().take_first(&tables[at], &self::key(from), &self::key(from + to)).map(drop)
            }),
        ));
        all.push((
            "scan",
            Box::new(move |tx, tables| {
                tx.raw().scan(&tables[at], &self::key(from), &self::key(from + to), |_, _| {
                    closure();
                    ControlFlow::Continue(())
                })
            }),
        ));
        let key = random_key(rng);
        all.push(("read", Box::new(move |tx, tables| tx.raw().read(&tables[at], &key, |_| closure()).map(drop))));
    }
    let (from, to) = (rng.u64(..KEYS), 1 + rng.u64(..KEYS));
    all.push((
        "update a run",
        Box::new(move |tx, tables| {
            tx.raw_mut()
                .update_run(&tables[0], &self::key(from), &self::key(from + to), |_, row| count(&mut row[..8]))
                .map(drop)
        }),
    ));
    for descending in [false, true] {
        all.push((
            "scan an index",
            Box::new(move |tx, tables| {
                tx.raw().scan_index(&tables[1], 0, &[], &[255; 20], descending, |_, _| {
                    closure();
                    ControlFlow::Continue(())
                })
            }),
        ));
    }
    all
}

fn count(head: &mut [u8]) {
    closure();
    head[0] = head[0].wrapping_add(1);
}

struct Bench {
    disk: SimDisk,
    db: Option<Database>,
    tables: [Raw; 2],
    filler: Raw,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let disk = SimDisk::new(seed);
        let db = open(&disk);
        let tables = [db.raw_table(&PLAIN).unwrap(), db.raw_table(&INDEXED).unwrap()];
        let filler = db.raw_table(&FILLER).unwrap();
        let mut rng = Rng::with_seed(seed);
        for table in &tables {
            for n in (0..KEYS).step_by(2) {
                let row = random_row(&mut rng);
                db.transact(|tx| tx.raw_mut().insert(table, &key(n), &row)).unwrap();
            }
        }
        // The filler table is larger than the pool.
        for n in 0..110 {
            let rows: Vec<Row> = (0..4).map(|i| (key(4 * n + i), vec![1; 3900])).collect();
            let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
            db.transact(|tx| tx.raw_mut().insert_run(&filler, &rows)).unwrap();
        }
        db.checkpoint().unwrap();
        Bench { disk, db: Some(db), tables, filler }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    /// Returns all rows and all index entries, read in a separate transaction.
    fn contents(&self) -> Contents {
        let mut tx = self.db().begin().unwrap();
        let found = self.contents_in(&mut tx);
        tx.commit().unwrap();
        found
    }

    /// Returns all rows and all index entries that a transaction reads.
    fn contents_in(&self, tx: &mut Transaction<'_>) -> Contents {
        let mut found = Contents::new();
        for (at, table) in self.tables.iter().enumerate() {
            let visit = |key: &[u8], row: &[u8]| {
                found.insert((at, key.to_vec()), row.to_vec());
                ControlFlow::Continue(())
            };
            tx.raw().scan(table, &[], &[255; 20], visit).unwrap();
        }
        for index in 0..2 {
            let visit = |entry: &[u8], key: &[u8]| {
                found.insert((2 + index, entry.to_vec()), key.to_vec());
                ControlFlow::Continue(())
            };
            tx.raw().scan_index(&self.tables[1], index, &[], &[255; 20], false, visit).unwrap();
        }
        found
    }

    /// Evicts the pages of the tables under test: changes all rows of the filler table, whose dirty pages must be
    /// written before they are evicted.
    fn cool(&self) {
        let changed = self.db().transact(|tx| {
            tx.raw_mut().update_run(&self.filler, &[], &[255; 20], |_, row| row[0] = row[0].wrapping_add(1))
        });
        assert_eq!(changed.unwrap(), 440);
    }

    /// Reopens the database as if the process had been killed.
    fn reopen(&mut self) {
        let disk = self.disk.crash(Crash::All);
        self.disk.power_off_after(0);
        self.db = None;
        self.db = Some(open(&disk));
        self.disk = disk;
        self.tables = [self.db().raw_table(&PLAIN).unwrap(), self.db().raw_table(&INDEXED).unwrap()];
        self.filler = self.db().raw_table(&FILLER).unwrap();
    }

    /// Changes a row of each table: the transaction's work before the statement under test.
    fn mark(&self, tx: &mut Transaction<'_>) {
        for table in &self.tables {
            let marked =
                tx.raw_mut().update_head(table, &key(0), 8, |head, _| head[1] = head[1].wrapping_add(1)).unwrap();
            assert!(marked.is_some());
        }
    }

    /// Returns `before` with the changes that [`Bench::mark`] makes.
    fn marked(before: &Contents) -> Contents {
        let mut after = before.clone();
        for at in 0..2 {
            let row = after.get_mut(&(at, key(0))).unwrap();
            row[1] = row[1].wrapping_add(1);
        }
        after
    }
}

fn open(disk: &SimDisk) -> Database {
    Options::new()
        .buffer_pool(1 << 20)
        .log_segment(64 << 10)
        .log_buffer(512 << 10)
        .checkpoint_every(1 << 20)
        .transactions(4)
        .background(Background::Inline)
        .open_on(Arc::new(disk.clone()))
        .unwrap()
}

/// Kind of calls in which a fault is injected.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Engine(FaultKind),
    Disk(Call, Fault),
}

impl Kind {
    fn plan(self, disk: &SimDisk, n: u64) {
        match self {
            Kind::Engine(what) => fault::plan(what, n),
            Kind::Disk(call, fault) => disk.plan(Some(call), When::Once(n), fault),
        }
    }

    /// Removes the injected fault; returns true if the fault was never reached.
    fn clear(self, disk: &SimDisk) -> bool {
        let waits = disk.planned() > 0;
        disk.heal();
        fault::clear() || waits
    }
}

/// Tests one statement with one kind of fault, injected at each call in turn.
fn try_statement(bench: &mut Bench, kind: Kind, name: &str, statement: &Statement, seen: &mut u64) {
    let mut before = bench.contents();
    for n in 1.. {
        let what = format!("{name}, {kind:?}, call {n}");
        match kind {
            Kind::Disk(Call::Read, _) => bench.reopen(),
            Kind::Disk(..) => bench.cool(),
            Kind::Engine(_) => {}
        }
        let mut tx = bench.db().begin().unwrap();
        bench.mark(&mut tx);
        kind.plan(&bench.disk, n);
        let result = catch_unwind(AssertUnwindSafe(|| statement(&mut tx, &bench.tables)));
        let over = kind.clear(&bench.disk);
        let failed = match &result {
            Ok(Ok(())) => false,
            // The statement returns this error also without the fault.
            Ok(Err(TxnError::DuplicateKey { .. })) => false,
            Ok(Err(_)) | Err(_) => true,
        };
        assert!(!(over && failed), "{what}: fails without the fault: {result:?}");
        if !failed {
            drop(tx);
            assert!(bench.contents() == before, "{what}: not rolled back");
            if over {
                return;
            }
            continue;
        }
        *seen += 1;
        match tx.commit() {
            Ok(()) => before = Bench::marked(&before),
            Err(TxnError::Ended) => {}
            Err(TxnError::Storage(StorageError::Poisoned { .. })) => bench.reopen(),
            Err(error) => panic!("{what}: commit: {error}"),
        }
        let after = bench.contents();
        let wrong: Vec<_> = after
            .iter()
            .filter(|(key, row)| before.get(key) != Some(row))
            .map(|(key, _)| key)
            .chain(before.keys().filter(|key| !after.contains_key(key)))
            .collect();
        assert!(wrong.is_empty(), "{what}: {result:?}, yet rows have changed: {wrong:?}");
    }
}

fn try_all(kind: Kind, seeds: std::ops::Range<u64>) {
    let mut failures = 0;
    for seed in seeds {
        println!("seed {seed}");
        let mut bench = Bench::new(seed);
        for (name, statement) in statements(&mut Rng::with_seed(!seed)) {
            try_statement(&mut bench, kind, name, &statement, &mut failures);
        }
        bench.db().verify_pages().unwrap();
        assert!(bench.db().check_structure(|_, _| ControlFlow::Continue(())).unwrap().passed());
    }
    // The cleaner writes most pages, so few statements write pages themselves.
    let least = if matches!(kind, Kind::Disk(Call::Write, _)) { 1 } else { 20 };
    assert!(failures >= least, "{failures} faults met");
}

#[test]
fn a_refused_lock() {
    try_all(Kind::Engine(FaultKind::Lock), 0..4);
}

#[test]
fn a_deadlock() {
    try_all(Kind::Engine(FaultKind::Wait), 0..2);
}

#[test]
fn a_full_log() {
    try_all(Kind::Engine(FaultKind::Log), 0..4);
}

/// A statement that must create a log segment, before any of its records, has the same effect as a statement that need
/// not.
#[test]
fn a_segment_that_is_not_ready() {
    let mut refused = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let bench = Bench::new(seed);
        let before = bench.contents();
        for (name, statement) in statements(&mut Rng::with_seed(!seed)) {
            let run = |n: u64| {
                let mut tx = bench.db().begin().unwrap();
                bench.mark(&mut tx);
                fault::plan(FaultKind::Segment, n);
                let result = statement(&mut tx, &bench.tables).map_err(|error| error.to_string());
                let met = !fault::clear();
                let seen = bench.contents_in(&mut tx);
                // The fault also strikes the appends of the rollback.
                fault::plan(FaultKind::Segment, 1 + n % 5);
                tx.rollback().unwrap();
                fault::clear();
                (result, seen, met)
            };
            let (expected, contents, _) = run(u64::MAX);
            for n in 1.. {
                let (result, seen, met) = run(n);
                assert!(result == expected, "{name}, record {n}: {result:?} in place of {expected:?}");
                assert!(seen == contents, "{name}, record {n}: done otherwise");
                if !met {
                    break;
                }
                refused += 1;
            }
            assert!(bench.contents() == before, "{name}: not rolled back");
        }
        bench.db().verify_pages().unwrap();
        assert!(bench.db().check_structure(|_, _| ControlFlow::Continue(())).unwrap().passed());
    }
    assert!(refused > 40, "{refused} refusals met");
}

#[test]
fn a_panic_of_the_callers_code() {
    try_all(Kind::Engine(FaultKind::Closure), 0..4);
}

#[test]
fn a_refused_read() {
    try_all(Kind::Disk(Call::Read, Fault::Eio), 0..2);
}

#[test]
fn a_refused_write() {
    try_all(Kind::Disk(Call::Write, Fault::Eio), 0..2);
}

/// A panic while a page is latched closes the instance to readers and writers; the next open restores the committed
/// state.
#[test]
fn a_panic_while_a_page_is_latched() {
    let mut struck = 0;
    for n in 1..6 {
        let mut bench = Bench::new(n);
        let before = bench.contents();
        let rows: Vec<Row> = (0..40).map(|i| (key(KEYS + i), vec![i as u8; 1500])).collect();
        let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
        let mut writer = bench.db().begin().unwrap();
        bench.mark(&mut writer);
        let reader = bench.db().begin().unwrap();
        reader.raw().read(&bench.filler, &key(1), |_| ()).unwrap();
        fault::plan(FaultKind::Latched, n);
        let result = catch_unwind(AssertUnwindSafe(|| writer.raw_mut().insert_run(&bench.tables[1], &rows)));
        assert!(!fault::clear(), "call {n} was not to come");
        struck += u64::from(result.is_err());
        let poisoned = |result: Result<(), TxnError>| match result {
            Err(TxnError::Storage(error @ StorageError::Poisoned { .. })) => {
                assert!(error.to_string().contains("a panic while page"), "{error}");
            }
            Err(TxnError::Ended) => {}
            other => panic!("call {n}: {other:?}"),
        };
        poisoned(writer.commit());
        poisoned(reader.commit());
        assert!(matches!(bench.db().begin(), Err(TxnError::Storage(StorageError::Poisoned { .. }))));
        bench.reopen();
        assert!(bench.contents() == before, "call {n}");
        bench.db().verify_pages().unwrap();
    }
    assert_eq!(struck, 5);
}

/// A panic in the caller's closure leaves no page latched: unwinding rolls the transaction back, splits included, and
/// the instance stays usable.
#[test]
fn a_panic_that_only_unwinds_a_transaction() {
    let bench = Bench::new(1);
    let before = bench.contents();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut tx = bench.db().begin().unwrap();
        for n in (0..KEYS).step_by(2) {
            tx.raw_mut().update(&bench.tables[0], &key(n), |row| row.truncate(8)).unwrap();
        }
        for n in (1..KEYS).step_by(2) {
            tx.raw_mut().insert(&bench.tables[0], &key(n), &[3; 2000]).unwrap();
        }
        panic!("a fault of a test");
    }));
    assert!(unwound.is_err());
    assert!(bench.contents() == before);
    bench.db().transact(|tx| tx.raw_mut().insert(&bench.tables[0], &key(1), &[0; 9])).unwrap();
}
