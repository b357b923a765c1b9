//! Dropped and created tables: numbers and names are reused, and no statement confuses two tables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Rng, on, small};
use storage::disk::{Crash, MemDisk, SimDisk};
use storage::optimistic::Peeker;
use storage::{Database, OpenTable, Options, Part, RunTimeName, SecondaryIndex, Table, TxnError};

struct ByValue;

impl SecondaryIndex for ByValue {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "by_value";
    fn by(_: &u64, row: &u64) -> Option<u64> {
        row.is_multiple_of(3).then_some(*row)
    }
}

type Declared = Table<u64, u64, RunTimeName>;
type Handle = OpenTable<u64, u64>;

fn declared(name: &str, indexed: bool) -> Declared {
    let table = Table::named(name);
    if indexed { table.with_index::<ByValue>() } else { table }
}

fn in_memory() -> Database {
    Options::new().buffer_pool(4 << 20).open_on(Arc::new(MemDisk::new())).unwrap()
}

/// Returns the number in a handle's debug output.
fn number(handle: &Handle) -> u32 {
    let shown = format!("{handle:?}");
    shown.trim_start_matches("OpenTable(").trim_end_matches(')').parse().unwrap()
}

fn is_whole(db: &Database) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
}

/// A table of the model.
#[derive(Clone, Debug, Default, PartialEq)]
struct Modelled {
    /// Unique identifier of a table's version.
    form: u64,
    indexed: bool,
    rows: BTreeMap<u64, u64>,
}

struct World {
    disk: SimDisk,
    db: Option<Database>,
    rng: Rng,
    tables: BTreeMap<String, Modelled>,
    forms: u64,
    /// Handles, with the name and the version of their tables.
    handles: Vec<(Handle, String, u64)>,
    /// Cached declarations, as a program would keep them.
    kept: BTreeMap<(String, bool), Declared>,
    peeker: Peeker,
    /// Number of uses that were refused because the table was gone.
    refused: u64,
}

const NAMES: u64 = 5;

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new(seed);
        let db = Some(small().open_on(on(&disk)).unwrap());
        World {
            disk,
            db,
            rng: Rng::new(seed),
            tables: BTreeMap::new(),
            forms: 0,
            handles: Vec::new(),
            kept: BTreeMap::new(),
            peeker: Peeker::default(),
            refused: 0,
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn name(&mut self) -> String {
        format!("table {}", self.rng.below(NAMES))
    }

    /// Returns the model's table of this name, and creates it if necessary.
    fn there(&mut self, name: &str) -> &mut Modelled {
        let indexed = self.rng.once_in(2);
        let forms = &mut self.forms;
        self.tables.entry(name.to_owned()).or_insert_with(|| {
            *forms += 1;
            Modelled { form: *forms, indexed, rows: BTreeMap::new() }
        })
    }

    /// Returns a declaration of the table: a cached one or a new one.
    fn declaration(&mut self, name: &str) -> Declared {
        let indexed = self.there(name).indexed;
        let kept = self.kept.remove(&(name.to_owned(), indexed));
        kept.unwrap_or_else(|| declared(name, indexed))
    }

    fn keep(&mut self, table: Declared, indexed: bool) {
        if !self.rng.once_in(4) {
            self.kept.insert((table.name().to_owned(), indexed), table);
        }
    }

    fn put(&mut self) {
        let name = self.name();
        let table = self.declaration(&name);
        let rows: Vec<_> = (0..1 + self.rng.below(20)).map(|_| (self.rng.below(60), self.rng.below(1000))).collect();
        self.db().transact(|tx| rows.iter().try_for_each(|(key, row)| tx.put(&table, key, row))).unwrap();
        let modelled = self.there(&name);
        modelled.rows.extend(rows);
        let indexed = modelled.indexed;
        self.keep(table, indexed);
    }

    fn open(&mut self) {
        let name = self.name();
        let table = self.declaration(&name);
        let handle = self.db().table(&table).unwrap();
        let (form, indexed) = (self.there(&name).form, self.there(&name).indexed);
        self.handles.push((handle, name, form));
        if self.handles.len() > 12 {
            self.handles.remove(0);
        }
        self.keep(table, indexed);
    }

    fn drop_table(&mut self) {
        let name = self.name();
        assert_eq!(self.db().drop_table(&name).unwrap(), self.tables.remove(&name).is_some());
    }

    fn truncate(&mut self) {
        let name = self.name();
        let there = self.db().truncate(&name).unwrap();
        assert_eq!(there, self.tables.contains_key(&name));
        if there {
            self.there(&name).rows.clear();
        }
    }

    fn alter(&mut self) {
        let name = self.name();
        let before = self.there(&name).clone();
        let indexed = self.rng.once_in(2);
        let table = declared(&name, indexed);
        if self.db().table_names().contains(&name) {
            self.db().alter_indexes(&table).unwrap();
            if indexed != before.indexed {
                self.forms += 1;
                let form = self.forms;
                let modelled = self.there(&name);
                (modelled.indexed, modelled.form) = (indexed, form);
            }
        } else {
            self.db().alter_indexes(&table).unwrap();
            self.there(&name).indexed = indexed;
        }
    }

    /// Uses every handle: handles of dropped tables are refused, even if another table has the number.
    fn use_handles(&mut self) {
        let (mut refused, mut peeker) = (0, std::mem::take(&mut self.peeker));
        for (handle, name, form) in &self.handles {
            let db = self.db();
            let now = self.tables.get(name).filter(|table| table.form == *form);
            let key = self.rng.clone().below(60);
            let tx = db.begin().unwrap();
            let peeked = db.raw().peek(&mut peeker, handle, &key.to_be_bytes()).map(|(row, _)| row.map(<[u8]>::to_vec));
            match (tx.get(handle, &key), peeked, now) {
                (Ok(row), Ok(peeked), Some(table)) => {
                    assert_eq!(row.as_ref(), table.rows.get(&key), "{name}");
                    assert_eq!(peeked.is_some(), row.is_some(), "{name}");
                }
                (Err(TxnError::Dropped { .. }), Err(TxnError::Dropped { .. }), None) => refused += 1,
                (got, peeked, now) => panic!("{handle:?} of {name}: {got:?}, {peeked:?} where {now:?} is"),
            }
        }
        self.refused += refused;
        self.peeker = peeker;
    }

    /// Opens a cursor, then drops and recreates its table before the first fetch.
    fn cursor(&mut self) {
        let name = self.name();
        let table = self.declaration(&name);
        let handle = self.db().table(&table).unwrap();
        let db = self.db.take().unwrap();
        {
            let tx = db.begin().unwrap();
            let mut cursor = tx.range(&handle, ..).unwrap();
            let dropped = self.rng.once_in(2);
            if dropped {
                db.drop_table(&name).unwrap();
                self.tables.remove(&name);
            }
            for _ in 0..3 {
                let other = self.name();
                if other != name {
                    let table = self.declaration(&other);
                    db.transact(|tx| tx.put(&table, &1, &1)).unwrap();
                    self.there(&other).rows.insert(1, 1);
                }
            }
            match cursor.next() {
                Some(Err(TxnError::Dropped { .. })) if dropped => self.refused += 1,
                None if !dropped => assert!(self.there(&name).rows.is_empty()),
                Some(Ok((key, row))) if !dropped => {
                    assert_eq!(self.there(&name).rows.first_key_value(), Some((&key, &row)));
                }
                other => panic!("{other:?} after a drop ({dropped})"),
            }
        }
        self.db = Some(db);
    }

    fn load(&mut self) {
        let name = self.name();
        let table = self.declaration(&name);
        let handle = self.db().table(&table).unwrap();
        let rows: Vec<_> = (0..200).map(|key| (key, self.rng.below(1000))).collect();
        let db = self.db.take().unwrap();
        let loaded = db.bulk_load(&handle).and_then(|mut load| {
            rows.iter().for_each(|(key, row)| load.push(key, row).unwrap());
            load.finish()
        });
        self.db = Some(db);
        match loaded {
            Err(TxnError::Schema { .. }) => assert!(!self.there(&name).rows.is_empty(), "{name}"),
            loaded => {
                assert_eq!(loaded.unwrap(), 200);
                self.there(&name).rows = rows.into_iter().collect();
            }
        }
    }

    fn reopen(&mut self) {
        let db = self.db.take().unwrap();
        if self.rng.once_in(2) {
            db.close().unwrap();
        } else {
            let left = self.disk.crash(Crash::Random(self.rng.next()));
            std::mem::forget(db);
            self.disk = left;
        }
        let db = small().open_on(on(&self.disk)).unwrap();
        for (handle, ..) in self.handles.drain(..) {
            assert!(matches!(db.begin().unwrap().get(&handle, &1), Err(TxnError::ForeignHandle { .. })));
        }
        self.db = Some(db);
    }

    fn check(&mut self) {
        let db = self.db();
        let names: Vec<_> = self.tables.keys().cloned().collect();
        assert_eq!(db.table_names(), names);
        let sized: Vec<_> = db.sizes().unwrap().tables.into_iter().map(|table| table.name).collect();
        assert_eq!(sized, names);
        let tx = db.begin().unwrap();
        for (name, modelled) in &self.tables {
            let table = declared(name, modelled.indexed);
            let rows: BTreeMap<u64, u64> = tx.range(&table, ..).unwrap().map(Result::unwrap).collect();
            assert_eq!(rows, modelled.rows, "{name}");
            if modelled.indexed {
                let indexed =
                    tx.range_by::<ByValue>(&table, ..).unwrap().map(Result::unwrap).collect::<BTreeMap<_, _>>();
                let mut wanted = rows;
                wanted.retain(|_, row| row.is_multiple_of(3));
                assert_eq!(indexed, wanted, "{name}");
            }
        }
        drop(tx);
        is_whole(db);
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..6 => self.put(),
            6..9 => self.open(),
            9..12 => self.drop_table(),
            12 => self.truncate(),
            13..15 => self.alter(),
            15..18 => self.use_handles(),
            18..20 => self.cursor(),
            20 => self.load(),
            21 => self.reopen(),
            _ => self.check(),
        }
    }
}

#[test]
fn tables_come_and_go_as_in_a_model() {
    let mut refused = 0;
    for seed in 0..25 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.step();
        }
        world.check();
        refused += world.refused;
    }
    assert!(refused > 200, "{refused} uses of tables that had gone");
}

/// The numbers in use are about as many as the tables that exist at the same time, however many were created before.
/// This also holds after a transaction that was open all the time has ended.
#[test]
fn numbers_are_those_of_tables_beside_each_other() {
    // No background threads: a thread that uses tables would keep numbers resting for as long as it is not scheduled.
    let db = small().open_on(Arc::new(MemDisk::new())).unwrap();
    let one = |n: u64| {
        let table = declared(&format!("job {n}"), n.is_multiple_of(2));
        db.transact(|tx| tx.put(&table, &n, &n)).unwrap();
        let handle = db.table(&table).unwrap();
        assert!(db.drop_table(table.name()).unwrap());
        number(&handle)
    };
    assert!((0..300).map(one).max().unwrap() < 12);
    let open = db.begin().unwrap();
    let meanwhile = (300..400).map(one).max().unwrap();
    assert!(meanwhile > 90, "numbers rest while a transaction may know the table: {meanwhile}");
    drop(open);
    let later = (400..800).map(one).max().unwrap();
    assert!(later <= meanwhile + 6, "{later} after {meanwhile}");
    // Changes of indexes, and truncations of tables that are not open.
    let changed = |n: u64| {
        db.truncate("changed").unwrap();
        number(&db.alter_indexes(&declared("changed", n.is_multiple_of(2))).unwrap())
    };
    let changed = (0..150).map(changed).max().unwrap();
    assert!(changed <= later + 12, "{changed} after {later}");
    assert_eq!(db.table_names(), ["changed"]);
}

/// Handles, positions and loads of a dropped table, after another table has got its number.
#[test]
fn what_was_of_a_dropped_table_is_refused_by_the_one_with_its_number() {
    let db = in_memory();
    let old = db.table(&declared("old", false)).unwrap();
    db.transact(|tx| tx.put(&old, &1, &10)).unwrap();
    let mut peeker = Peeker::default();
    let keys = [1u64.to_be_bytes()];
    db.raw().announce(&mut peeker, keys.iter().map(|key| (old, key.as_slice(), 8)));
    let (_, place) = db.raw().peek(&mut peeker, &old, &keys[0]).unwrap();
    assert!(db.drop_table("old").unwrap());
    let new = (0..10)
        .find_map(|n| {
            let table = declared(&format!("new {n}"), false);
            let handle = db.table(&table).unwrap();
            db.transact(|tx| tx.put(&handle, &1, &20)).unwrap();
            (number(&handle) == number(&old)).then_some(handle)
        })
        .expect("a table gets the number");
    let dropped = |result: Result<(), TxnError>| assert!(matches!(result, Err(TxnError::Dropped { .. })), "{result:?}");
    let begin = || db.begin().unwrap();
    dropped(begin().get(&old, &1).map(drop));
    dropped(begin().put(&old, &1, &1));
    dropped(begin().delete(&old, &1).map(drop));
    dropped(begin().count(&old, ..).map(drop));
    dropped(begin().range(&old, ..).map(drop));
    dropped(begin().lock_table(&old, storage::TableLock::Exclusive));
    dropped(begin().get_many(&old, &[1]).map(drop));
    dropped(begin().raw_mut().confirm(&old, &keys[0], &place, None, true).map(drop));
    dropped(db.raw().peek(&mut peeker, &old, &keys[0]).map(drop));
    dropped(db.raw().peek_range(&mut peeker, &old, (&[], &[0xff; 9]), 9, |_, _, _| panic!("a row of another table")));
    dropped(db.bulk_load(&old).map(drop));
    dropped(db.bulk_load_part(&old, Part::Rows).map(drop));
    // The cached position of the old row, used for the new table, confirms no row of the new table.
    let mut tx = begin();
    let row = 20u64.to_le_bytes();
    assert!(!tx.raw_mut().confirm(&new, &keys[0], &place, Some(&10u64.to_le_bytes()), true).unwrap());
    let seen = db.raw().peek(&mut peeker, &new, &keys[0]).unwrap().0.map(<[u8]>::to_vec);
    assert!(tx.raw_mut().confirm(&new, &keys[0], &place, seen.as_deref(), true).unwrap(), "{row:?}");
    drop(tx);
    assert_eq!(begin().get(&new, &1).unwrap(), Some(20));
}

/// A statement that has found a table waits for its lock, while the table is dropped and others are created.
#[test]
fn who_waits_for_a_dropped_table_never_gets_another() {
    let db = in_memory();
    let (stop, shared) = (AtomicBool::new(false), declared("shared", false));
    let [made, done, dropped] = [(); 3].map(|()| AtomicU64::new(0));
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..2u64)
            .map(|maker| {
                let (db, stop, all) = (&db, &stop, &made);
                scope.spawn(move || {
                    let mut made = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        let table = declared(&format!("of {maker}: {made}"), false);
                        db.transact(|tx| tx.put(&table, &maker, &made)).unwrap();
                        let own = db.begin().unwrap().count(&table, ..).unwrap();
                        assert_eq!(own, 1, "rows of others have come");
                        db.drop_table(table.name()).unwrap();
                        made += 1;
                        all.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let users: Vec<_> = (0..2u64)
            .map(|user| {
                let (db, stop, shared, done, dropped) = (&db, &stop, &shared, &done, &dropped);
                scope.spawn(move || {
                    let mut handle = db.table(shared).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        match db.transact(|tx| tx.put(&handle, &(1000 + user), &7)) {
                            Ok(()) => {
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(TxnError::Dropped { .. }) => {
                                dropped.fetch_add(1, Ordering::Relaxed);
                                handle = db.table(shared).unwrap();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        // Repeats until all of this has happened, or a thread has failed.
        let is_over =
            |threads: &[std::thread::ScopedJoinHandle<'_, ()>]| threads.iter().any(|thread| thread.is_finished());
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let mut rounds = 0;
        while rounds < 300 || count(&made) <= 20 || count(&done) == 0 || count(&dropped) == 0 {
            std::thread::yield_now();
            db.drop_table("shared").unwrap();
            rounds += 1;
            if is_over(&makers) || is_over(&users) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        makers.into_iter().chain(users).for_each(|thread| thread.join().unwrap());
        let (made, done, dropped) = (count(&made), count(&done), count(&dropped));
        assert!(made > 20 && done > 0 && dropped > 0, "{made} made, {done} done, {dropped} refused");
    });
    is_whole(&db);
}

#[test]
fn names_have_one_to_two_hundred_bytes() {
    let db = in_memory();
    for (name, good) in [
        (String::new(), false),
        ("a".into(), true),
        ("\0".into(), true),
        ("ä".repeat(100), true),
        ("x".repeat(200), true),
        ("x".repeat(201), false),
        ("x".repeat(100_000), false),
    ] {
        let table = declared(&name, true);
        let refused = |result: Result<(), TxnError>| match result {
            Ok(()) => assert!(good, "{} bytes", name.len()),
            Err(TxnError::Schema { what, .. }) => assert!(!good && what.contains("1 to 200 bytes"), "{what}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(db.begin().unwrap().get(&table, &1).unwrap(), None);
        refused(db.transact(|tx| tx.put(&table, &1, &3)));
        refused(db.table(&table).map(drop));
        refused(db.alter_indexes(&table).map(drop));
        assert_eq!(db.truncate(&name).unwrap(), good);
        refused(db.transact(|tx| tx.put(&table, &1, &3)));
        assert_eq!(db.drop_table(&name).unwrap(), good);
        refused(db.raw_table(&table).map(drop));
        assert_eq!(db.table_names(), if good { vec![name.clone()] } else { Vec::new() });
        assert_eq!(db.drop_table(&name).unwrap(), good);
    }
}

/// One declaration used in two databases, and one that outlives its table.
#[test]
fn a_declaration_finds_its_table_in_each_database() {
    let (one, other) = (in_memory(), in_memory());
    let table = declared("shared by both", false);
    for round in 0..50u64 {
        for (db, value) in [(&one, round), (&other, 1000 + round)] {
            db.transact(|tx| tx.put(&table, &1, &value)).unwrap();
            assert_eq!(db.begin().unwrap().get(&table, &1).unwrap(), Some(value));
        }
        if round % 7 == 0 {
            one.drop_table(table.name()).unwrap();
            assert_eq!(one.begin().unwrap().get(&table, &1).unwrap(), None);
            assert_eq!(other.begin().unwrap().get(&table, &1).unwrap(), Some(1000 + round));
        }
    }
    // The types are compared at the first lookup.
    let wrong = Table::<u64, String, _>::named("shared by both");
    assert!(matches!(other.begin().unwrap().get(&wrong, &1), Err(TxnError::OtherCodec { .. })));
}

/// Thousands of tables: created, listed, measured, found again after a process kill, and dropped.
#[test]
fn thousands_of_tables_lie_beside_each_other() {
    const TABLES: u64 = 3_000;
    let disk = SimDisk::new(5);
    let db = small().buffer_pool(4 << 20).open_on(on(&disk)).unwrap();
    let all: Vec<_> = (0..TABLES).map(|n| declared(&format!("tenant {n:05}"), n.is_multiple_of(50))).collect();
    for (n, table) in (0..).zip(&all) {
        db.transact(|tx| tx.put(table, &n, &(n + 1))).unwrap();
    }
    // One transaction that writes to all of them.
    db.transact(|tx| (0..).zip(&all).try_for_each(|(n, table)| tx.put(table, &n, &(3 * n)))).unwrap();
    db.checkpoint().unwrap();
    let left = disk.crash(Crash::Nothing);
    std::mem::forget(db);
    let db = small().buffer_pool(4 << 20).open_on(on(&left)).unwrap();
    assert_eq!(db.table_names().len() as u64, TABLES);
    assert_eq!(db.sizes().unwrap().tables.len() as u64, TABLES);
    let tx = db.begin().unwrap();
    for (n, table) in (0..).zip(&all) {
        assert_eq!(tx.get(table, &n).unwrap(), Some(3 * n));
    }
    drop(tx);
    let end = db.sizes().unwrap().data_file;
    for table in &all {
        assert!(db.drop_table(table.name()).unwrap());
    }
    assert!(db.table_names().is_empty());
    is_whole(&db);
    for (n, table) in (0..TABLES / 2).zip(&all) {
        db.transact(|tx| tx.put(table, &n, &n)).unwrap();
    }
    assert_eq!(db.sizes().unwrap().data_file, end, "pages are used again");
}

/// Resident memory of the process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: u64| pages * 4096)
}

/// Measures the cost of fifty thousand tables, on files.
#[test]
#[ignore = "prints figures"]
fn timing_of_fifty_thousand_tables() {
    const TABLES: usize = 50_000;
    let directory = std::env::temp_dir().join(format!("lockstep-tables-{}", std::process::id()));
    let options = || Options::new().buffer_pool(64 << 20).durability(storage::Durability::Async);
    let db = Database::open(&directory, options()).unwrap();
    let all: Vec<_> = (0..TABLES).map(|n| declared(&format!("tenant {n:05}"), n.is_multiple_of(50))).collect();
    let told = |what: &str, began: std::time::Instant, each: usize| {
        let took = began.elapsed();
        println!("{what}: {took:?}, {:.1} us each", took.as_secs_f64() * 1e6 / each as f64);
    };
    let now = std::time::Instant::now;
    let began = now();
    for (n, table) in (0..).zip(&all) {
        db.transact(|tx| tx.put(table, &n, &(n + 1))).unwrap();
        if (n + 1) % 10_000 == 0 {
            told("  so far", began, n as usize + 1);
        }
    }
    told("made, with a row", began, TABLES);
    let began = now();
    db.close().unwrap();
    told("closed", began, TABLES);
    let before = resident();
    let began = now();
    let db = Database::open(&directory, options()).unwrap();
    told("opened", began, TABLES);
    let opened = resident();
    println!("memory of the catalog: {} bytes a table", (opened - before) / TABLES as u64);
    let began = now();
    let tx = db.begin().unwrap();
    (0..).zip(&all).for_each(|(n, table)| assert_eq!(tx.get(table, &n).unwrap(), Some(n + 1)));
    told("read in each by one transaction", began, TABLES);
    let began = now();
    drop(tx);
    told("its end", began, TABLES);
    let pool = db.stats().pool_reads * 8192;
    println!(
        "memory of open tables, {} MiB of pages besides: {} bytes a table",
        pool >> 20,
        (resident() - opened).saturating_sub(pool.min(64 << 20)) / TABLES as u64
    );
    let began = now();
    (0..).zip(&all).for_each(|(n, table)| db.transact(|tx| tx.put(table, &n, &n)).unwrap());
    told("written, one transaction each", began, TABLES);
    let began = now();
    assert_eq!(db.table_names().len(), TABLES);
    told("names", began, TABLES);
    let began = now();
    db.sizes().unwrap();
    told("sizes", began, TABLES);
    let began = now();
    db.checkpoint().unwrap();
    told("checkpoint", began, TABLES);
    let began = now();
    all.iter().for_each(|table| assert!(db.drop_table(table.name()).unwrap()));
    told("dropped", began, TABLES);
    let began = now();
    for n in 0..20_000 {
        let table = declared(&format!("job {n}"), false);
        db.transact(|tx| tx.put(&table, &n, &1)).unwrap();
        db.drop_table(table.name()).unwrap();
    }
    told("made and dropped, one after the other", began, 20_000);
    println!("memory then: {} MiB", resident() >> 20);
    db.close().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}
