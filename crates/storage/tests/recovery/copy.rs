//! Copies of a database during writes: each copy has exactly the transactions that had committed by its end.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{NUMBERS, ROWS, Rng, StopAtEnd, StopOnPanic, on, small};
use storage::disk::{Crash, Disk, DiskFile, Layer, LayeredDisk, MemDisk, OpenMode, SimDisk};
use storage::{
    CopyError, Copying, Database, Isolation, Lsn, OpenError, OpenTable, Options, StorageError, Table, Transaction,
    TxnError,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// Changes of each writer's transaction: `None` is a delete.
type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

const WRITERS: usize = 4;

/// Writers on one thread, interleaved from a seed. The writers use disjoint keys, so they never wait for each other.
struct Writers<'db> {
    db: &'db Database,
    rng: Rng,
    open: Vec<Option<(Transaction<'db>, Changes)>>,
    /// The states that a reader may find, oldest first, each with the log position from which on it is valid.
    states: Vec<(Lsn, Model)>,
}

impl<'db> Writers<'db> {
    fn new(db: &'db Database, seed: u64) -> Writers<'db> {
        let open = (0..WRITERS).map(|_| None).collect();
        Writers { db, rng: Rng::new(seed), open, states: vec![(Lsn::ZERO, Model::new())] }
    }

    fn now(&self) -> &Model {
        &self.states.last().unwrap().1
    }

    fn at(&self, end: Lsn) -> &Model {
        &self.states.iter().rev().find(|(at, _)| *at <= end).unwrap().1
    }

    fn fill(&mut self, rows: u64) {
        for n in 0..rows {
            let mut model = self.now().clone();
            let (key, row) = (key(n as usize % WRITERS, n), self.rng.bytes(900));
            let mut tx = self.db.begin().unwrap();
            tx.put(&ROWS, &key, &row).unwrap();
            model.insert(key, row);
            self.states.push((tx.commit_async().unwrap(), model));
            self.states.remove(0);
        }
    }

    /// Runs one statement, or the end, of the transaction of a random writer.
    fn step(&mut self) {
        let writer = self.rng.below(WRITERS as u64) as usize;
        let Some((mut tx, mut changes)) = self.open[writer].take() else {
            // At a higher level, gap locks of readers would make writers wait for each other.
            let tx = self.db.begin_at(Isolation::ReadCommitted).unwrap();
            self.open[writer] = Some((tx, Changes::new()));
            return;
        };
        match self.rng.below(12) {
            0 => drop(tx),
            1 => drop(tx.rollback().unwrap()),
            2 | 3 => {
                let mut model = self.now().clone();
                let wrote = !changes.is_empty();
                for (key, row) in changes {
                    match row {
                        Some(row) => drop(model.insert(key, row)),
                        None => drop(model.remove(&key)),
                    }
                }
                let at = tx.commit_async().unwrap();
                if wrote {
                    self.states.push((at, model));
                }
            }
            4 | 5 => {
                let key = key(writer, self.rng.below(600));
                tx.delete(&ROWS, &key).unwrap();
                changes.push((key, None));
                self.open[writer] = Some((tx, changes));
            }
            _ => {
                let key = key(writer, self.rng.below(600));
                let size = [0, 20, 800, 2500][self.rng.below(4) as usize];
                let row = self.rng.bytes(size);
                tx.put(&ROWS, &key, &row).unwrap();
                changes.push((key, Some(row)));
                self.open[writer] = Some((tx, changes));
            }
        }
    }
}

fn key(writer: usize, n: u64) -> Vec<u8> {
    [&[writer as u8][..], &n.to_be_bytes()].concat()
}

fn contents(db: &Database) -> Model {
    let tx = db.begin().unwrap();
    tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect()
}

/// Checks that no page is lost: a copy also frees the pages of a load that was running.
fn is_whole(db: &Database) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
    db.verify_pages().unwrap();
}

fn opened(disk: &SimDisk) -> Database {
    small().create(false).open_on(on(disk)).unwrap()
}

fn one(seed: u64) {
    let (source, target) = (SimDisk::new(seed), SimDisk::new(!seed));
    let db = crate::common::open(&source);
    db.table(&ROWS).unwrap();
    let numbers = db.table(&NUMBERS).unwrap();
    let mut writers = Writers::new(&db, seed);
    writers.fill(1200);
    (0..200).for_each(|_| writers.step());

    let begun = writers.states.len() - 1;
    let mut load = None;
    let mut rng = Rng::new(seed ^ 0xC0);
    let loads = rng.once_in(2);
    let copied = db.copy_on(on(&target), |_: &Copying| {
        (0..rng.below(60)).for_each(|_| writers.step());
        match rng.below(6) {
            0 => db.step().unwrap(),
            1 => db.checkpoint().unwrap(),
            // A load that writes without the log, begun and ended while pages are copied.
            2 if loads && load.is_none() => {
                let mut begun = db.bulk_load(&numbers).unwrap();
                (0..20_000).for_each(|n| begun.push(&n, &(n * 3)).unwrap());
                load = Some((Some(begun), Lsn::MAX));
            }
            3 => {
                if let Some((begun, at)) = &mut load
                    && let Some(begun) = begun.take()
                {
                    begun.finish().unwrap();
                    *at = db.durable();
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    let copied = copied.unwrap();
    (0..50).for_each(|_| writers.step());
    let expected = writers.at(copied.end).clone();
    assert!(writers.states[begun].0 <= copied.end, "what was committed before is in it");

    let loaded = load.as_ref().map(|(_, at)| *at);
    drop(load);
    let last = writers.now().clone();
    writers.open.clear();
    assert_eq!(contents(&db), last, "the original");
    is_whole(&db);
    drop(writers);
    db.close().unwrap();

    // The copy restarts, sometimes with a power loss in the middle.
    let mut target = target.crash(Crash::Nothing);
    if rng.once_in(3) {
        target.power_off_after(1 + rng.below(60));
        if let Ok(open) = small().open_on(on(&target)) {
            std::mem::forget(open);
        }
        target = target.crash(Crash::Random(seed));
    }
    let copy = opened(&target);
    assert!(contents(&copy) == expected, "not what had been committed at {}", copied.end);
    is_whole(&copy);
    if let Some(at) = loaded {
        let rows = copy.begin().unwrap().range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert!(rows.is_empty() || rows.iter().copied().eq((0..20_000).map(|n| (n, n * 3))), "half a load");
        assert!(at > copied.end || !rows.is_empty(), "the load was over at {at}, before {}", copied.end);
    }
    // The copy is a normal database.
    copy.transact(|tx| tx.put(&ROWS, &[99], &vec![1])).unwrap();
    copy.close().unwrap();
    let copy = opened(&target);
    assert_eq!(contents(&copy).remove(&vec![99]), Some(vec![1]));
}

#[test]
fn a_copy_made_while_writers_run_is_what_had_been_committed_at_its_end() {
    let n = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(25);
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..n, |s: u64| s..s + 1) {
        let result = std::panic::catch_unwind(|| one(seed));
        assert!(result.is_ok(), "seed {seed} failed; run again with SEED={seed}");
    }
}

/// Returns a database with some pages, and an open transaction that a copy must not contain.
fn source(seed: u64) -> (SimDisk, Database) {
    let disk = SimDisk::new(seed);
    let db = crate::common::open(&disk);
    let mut rng = Rng::new(seed);
    db.transact(|tx| {
        (0..60u64).try_for_each(|n| tx.put(&ROWS, &key(0, n), &rng.bytes(1500)))?;
        Ok::<_, TxnError>(())
    })
    .unwrap();
    (disk, db)
}

#[test]
fn a_copy_broken_off_by_a_crash_is_refused_and_the_original_goes_on() {
    let mut outcomes = [0; 3];
    for calls in 1..400 {
        let (_, db) = source(7);
        let expected = contents(&db);
        let target = SimDisk::new(calls);
        target.power_off_after(calls);
        let result = db.copy_on(on(&target), |_| ControlFlow::Continue(()));
        let after = target.crash([Crash::All, Crash::Nothing, Crash::Random(calls)][calls as usize % 3]);
        db.transact(|tx| tx.put(&ROWS, &[200], &vec![1])).unwrap();
        let opened = small().create(false).open_on(on(&after));
        match (&result, opened) {
            (_, Ok(copy)) => {
                // Only a complete copy can be opened.
                assert_eq!(contents(&copy), expected, "after {calls} calls");
                is_whole(&copy);
                outcomes[0] += 1;
            }
            (Err(_), Err(OpenError::NotADatabase { why, .. })) => {
                assert!(why.contains("not finished"), "{why}");
                outcomes[1] += 1;
            }
            (Err(_), Err(OpenError::Missing { .. })) => {
                assert!(!after.list().unwrap().iter().any(|name| name == "control"), "after {calls} calls");
                outcomes[2] += 1;
            }
            (Err(_), Err(OpenError::Storage(StorageError::CorruptFile { what, .. }))) => {
                assert!(what.contains("is missing, but"), "{what}");
                outcomes[1] += 1;
            }
            (result, opened) => panic!("after {calls} calls: {result:?}, opened: {:?}", opened.err()),
        }
        if result.is_ok() {
            break;
        }
    }
    assert!(outcomes.iter().all(|n| *n > 0), "complete, refused, absent: {outcomes:?}");
}

#[test]
fn a_full_disk_takes_the_copy_back_and_leaves_the_original_alone() {
    let (_, db) = source(3);
    let target = SimDisk::new(3);
    let needed = {
        let whole = SimDisk::new(4);
        db.copy_on(on(&whole), |_| ControlFlow::Continue(())).unwrap();
        whole.used()
    };
    for part in 0..20 {
        target.set_capacity(needed * part / 20);
        let error = db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, CopyError::Storage(StorageError::NoSpace { .. })), "{part}: {error}");
        assert_eq!(target.list().unwrap(), [""; 0], "{part}: something is left");
        db.transact(|tx| tx.put(&ROWS, &[200], &vec![part as u8])).unwrap();
    }
    // After space is added, the same directory can be used.
    target.set_capacity(u64::MAX);
    db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(contents(&opened(&target)), contents(&db));
}

/// A file that appears in the directory during the copy ends the copy, and is not removed with the copy's files.
#[test]
fn a_copy_that_fails_removes_no_file_of_others() {
    let (_, db) = source(6);
    let logs = |disk: &SimDisk| disk.list().unwrap().into_iter().find(|name| name.starts_with("log."));
    let whole = SimDisk::new(6);
    db.copy_on(on(&whole), |_| ControlFlow::Continue(())).unwrap();
    let log = logs(&whole).unwrap();
    for name in ["pages.0", &log, "control.new", "control"] {
        let target = SimDisk::new(6);
        let mut told = 0;
        let copied = db.copy_on(on(&target), |_| {
            told += 1;
            if told == 1 {
                let file = target.open(name, OpenMode::CreateNew).unwrap();
                assert_eq!(file.write_at(b"a letter", 0).unwrap(), 8);
            }
            ControlFlow::Continue(())
        });
        let error = copied.unwrap_err().to_string();
        assert!(error.contains(name.trim_end_matches(".new")), "{name}: {error}");
        assert_eq!(target.list().unwrap(), [name], "{error}");
        let mut letter = [0; 8];
        target.open(name, OpenMode::Existing).unwrap().read_at(&mut letter, 0).unwrap();
        assert_eq!(&letter, b"a letter");
    }
}

/// Ends a copy by `end` at each progress report in turn. Checks that no file is left, and that `is_ended` accepts the
/// result.
fn ended_anywhere_leaves_nothing(
    end: fn() -> ControlFlow<()>,
    is_ended: fn(&std::thread::Result<Result<storage::Copied, CopyError>>) -> bool,
) {
    let (_, db) = source(5);
    for stop in 1..200 {
        let target = SimDisk::new(5);
        let mut told = 0;
        let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            db.copy_on(on(&target), |_| {
                told += 1;
                if told == stop { end() } else { ControlFlow::Continue(()) }
            })
        }));
        if matches!(copied, Ok(Ok(_))) {
            assert!(stop > 3, "it was told only {stop} times");
            return;
        }
        assert!(is_ended(&copied), "{copied:?}");
        assert_eq!(target.list().unwrap(), [""; 0], "told {stop} times");
    }
    panic!("it never ended");
}

#[test]
fn a_copy_that_is_cancelled_leaves_nothing() {
    ended_anywhere_leaves_nothing(
        || ControlFlow::Break(()),
        |copied| matches!(copied, Ok(Err(CopyError::Cancelled { .. }))),
    );
}

#[test]
fn a_copy_whose_listener_panics_leaves_nothing() {
    ended_anywhere_leaves_nothing(|| panic!("the listener's own fault"), Result::is_err);
}

#[test]
fn nothing_is_copied_over_something_that_exists() {
    let (_, db) = source(1);
    for name in ["control", "pages.0", "log.0", "notes.txt", "control.new", "copying"] {
        let target = SimDisk::new(1);
        target.open(name, OpenMode::CreateNew).unwrap().write_at(b"mine", 0).unwrap();
        let error = db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(&error, CopyError::NotEmpty { holds, .. } if holds == name), "{name}: {error}");
        assert_eq!(target.list().unwrap(), [name]);
        assert_eq!(target.open(name, OpenMode::Existing).unwrap().len().unwrap(), 4);
    }
    let target = SimDisk::new(2);
    let _held = target.lock().unwrap();
    let error = db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, CopyError::InUse { .. }), "{error}");
}

/// Files of the original are not accepted as files of the copy.
#[test]
fn a_copy_is_another_database() {
    let (source, db) = source(9);
    let target = SimDisk::new(9);
    let copied = db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap();
    assert_ne!(copied.database_id, 0);
    db.close().unwrap();
    let name = target.list().unwrap().into_iter().find(|name| name.starts_with("log.")).unwrap();
    let theirs = source.open(&name, OpenMode::Existing).unwrap();
    let mut bytes = vec![0; theirs.len().unwrap() as usize];
    theirs.read_at(&mut bytes, 0).unwrap();
    target.open(&name, OpenMode::Existing).unwrap().write_at(&bytes, 0).unwrap();
    let error = small().open_on(on(&target)).unwrap_err();
    assert!(error.to_string().contains("belongs to another database"), "{error}");
}

/// Tears a page in every third read, as if the page were being written.
#[derive(Debug, Default)]
struct Tearing {
    on: AtomicBool,
    turn: AtomicU64,
}

impl Layer for Tearing {
    fn read_at(&self, file: &dyn DiskFile, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let got = file.read_at(buf, off)?;
        if self.on.load(Ordering::Relaxed) && off > 0 {
            for page in buf[..got].chunks_exact_mut(storage::PAGE_SIZE) {
                if self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                    page[4096..].fill(0xEE);
                }
            }
        }
        Ok(got)
    }
}

#[test]
fn pages_that_are_torn_when_they_are_read_are_read_again() {
    let tearing = Arc::new(Tearing::default());
    let disk = LayeredDisk::new(SimDisk::new(8), "pages.0", Arc::clone(&tearing));
    let db = small().open_on(Arc::new(disk)).unwrap();
    let mut rng = Rng::new(8);
    (0..1000u64).for_each(|n| db.transact(|tx| tx.put(&ROWS, &key(0, n), &rng.bytes(1500))).unwrap());
    let expected = contents(&db);
    db.checkpoint().unwrap();
    let target = SimDisk::new(8);
    tearing.on.store(true, Ordering::Relaxed);
    db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap();
    tearing.on.store(false, Ordering::Relaxed);
    let copy = opened(&target);
    assert!(contents(&copy) == expected);
    is_whole(&copy);
}

/// A permanently damaged page makes the copy fail.
#[test]
fn damage_is_told_and_not_copied() {
    let disk = SimDisk::new(6);
    let db = crate::common::open(&disk);
    let mut rng = Rng::new(6);
    (0..1500u64).for_each(|n| db.transact(|tx| tx.put(&ROWS, &key(0, n), &rng.bytes(1500))).unwrap());
    db.close().unwrap();
    let page = 40;
    assert!(disk.flip("pages.0", page * storage::PAGE_SIZE as u64 + 5000, 3));
    let db = opened(&disk);
    let target = SimDisk::new(6);
    let error = db.copy_on(on(&target), |_| ControlFlow::Continue(())).unwrap_err();
    let CopyError::Storage(StorageError::CorruptPage { page: found, .. }) = error else { panic!("{error}") };
    assert_eq!(u64::from(found.0), page);
    assert_eq!(target.list().unwrap(), [""; 0]);
}

const PAIRS: [Table<u64, u64>; 2] = [Table::new("first"), Table::new("second")];

/// Each transaction of several threads writes the same number into two tables. A copy has both rows or neither, and all
/// numbers that were acknowledged before the copy began.
#[test]
fn a_copy_made_beside_threads_has_whole_transactions() {
    let options = || Options::new().buffer_pool(2 << 20).log_segment(256 << 10).checkpoint_every(1 << 20);
    let db = options().open_on(Arc::new(MemDisk::new())).unwrap();
    let tables: Vec<OpenTable<u64, u64>> = PAIRS.iter().map(|table| db.table(table).unwrap()).collect();
    let (stop, done) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    std::thread::scope(|scope| {
        let _told = StopAtEnd(&stop);
        for (worker, done) in done.iter().enumerate() {
            let (db, tables, stop) = (&db, &tables, &stop);
            scope.spawn(move || {
                let _told = StopOnPanic(stop);
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let key = (n % 4000) * 2 + worker as u64;
                    db.transact(|tx| {
                        tx.put(&tables[0], &key, &n)?;
                        tx.put(&tables[1], &key, &n)?;
                        tx.put(&tables[0], &(1_000_000 + worker as u64), &n)
                    })
                    .unwrap();
                    done.store(n, Ordering::Release);
                }
            });
        }
        for _ in 0..4 {
            // Some commits happen before each copy.
            let seen = done[0].load(Ordering::Acquire);
            while done[0].load(Ordering::Acquire) < seen + 50 && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let before = done.each_ref().map(|done| done.load(Ordering::Acquire));
            let target = MemDisk::new();
            db.copy_on(Arc::new(target.clone()), |_| ControlFlow::Continue(())).unwrap();
            let copy = options().create(false).open_on(Arc::new(target)).unwrap();
            is_whole(&copy);
            let mut tx = copy.begin().unwrap();
            let all = |tx: &mut Transaction<'_>, table: &Table<u64, u64>| -> BTreeMap<u64, u64> {
                tx.range(table, ..1_000_000).unwrap().map(Result::unwrap).collect()
            };
            let (first, second) = (all(&mut tx, &PAIRS[0]), all(&mut tx, &PAIRS[1]));
            assert_eq!(first, second, "half a transaction");
            for (worker, before) in before.iter().enumerate() {
                let last = tx.get(&PAIRS[0], &(1_000_000 + worker as u64)).unwrap().unwrap_or(0);
                assert!(last >= *before, "writer {worker}: {last} of {before} acknowledged");
                let newest = first.iter().filter(|(key, _)| **key % 2 == worker as u64).map(|(_, n)| *n).max();
                assert_eq!(newest.unwrap_or(0), last, "writer {worker}");
            }
        }
    });
}
