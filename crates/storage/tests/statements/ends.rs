//! Extreme settings, positions, names, numbers and handles: 0, 1, the maximum, and values of another database. Each has
//! its expected result; none panics, hangs or spins.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{NUMBERS, ROWS, small};
use storage::disk::{Disk, MemDisk, SimDisk};
use storage::optimistic::Peeker;
use storage::{
    Background, CopyError, Database, DatabaseFiles, Durability, FrameHomes, Isolation, LargePages, LatchKind, Lsn,
    MIN_POOL_BYTES, OpenError, Options, Part, Raw, Service, ServiceThreads, Services, StorageError, Table, TxnError,
};

const NOTHING: Duration = Duration::ZERO;

/// Runs `test` and fails if it does not end within a minute.
fn within_a_minute(what: &str, test: impl FnOnce() + Send + 'static) {
    let (ended, end) = std::sync::mpsc::channel();
    let running = std::thread::spawn(move || {
        test();
        let _ = ended.send(());
    });
    let waited = end.recv_timeout(Duration::from_secs(60));
    if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("{what}: it does not end");
    }
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}

fn works(db: &Database) {
    for n in 0..50 {
        db.transact(|tx| tx.put(&NUMBERS, &n, &(n + 1))).unwrap();
        db.transact(|tx| tx.put(&ROWS, &n.to_be_bytes()[..], &vec![n as u8; 300])).unwrap();
    }
    db.step().unwrap();
    db.checkpoint().unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(tx.count(&NUMBERS, ..).unwrap(), 50);
    assert_eq!(tx.count(&ROWS, ..).unwrap(), 50);
}

#[test]
fn a_lock_timeout_may_be_any_duration() {
    within_a_minute("a wait for a lock", || {
        for (limit, gets_it) in [
            (Duration::MAX, true),
            (Duration::from_secs(u64::MAX), true),
            (Duration::from_nanos(u64::MAX), true),
            (Duration::from_secs(u64::MAX / 2), true),
            (Duration::from_secs(3600), true),
            (Duration::from_nanos(1), false),
            (NOTHING, false),
        ] {
            for services in [None, Some(Services::new().unwrap())] {
                let mut options = Options::new().buffer_pool(1 << 20).lock_timeout(limit);
                options = services.iter().fold(options, |options, services| options.services(services));
                let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
                db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
                let mut first = db.begin().unwrap();
                first.put(&NUMBERS, &1, &2).unwrap();
                std::thread::scope(|threads| {
                    let waiter = threads.spawn(|| db.begin().unwrap().put(&NUMBERS, &1, &3));
                    std::thread::sleep(Duration::from_millis(60));
                    first.commit().unwrap();
                    match waiter.join().unwrap() {
                        Ok(()) => assert!(gets_it, "{limit:?}: it waited"),
                        Err(TxnError::LockTimeout { .. }) => assert!(!gets_it, "{limit:?}: it did not wait"),
                        Err(error) => panic!("{limit:?}: {error}"),
                    }
                });
            }
        }
    });
}

/// Opens databases in each background mode that needs no steps by the program.
fn driven() -> Vec<(&'static str, Database)> {
    let services = Services::new().unwrap();
    let open = |options: Options| options.durability(Durability::Async).open_on(Arc::new(MemDisk::new())).unwrap();
    let own = || Options::new().buffer_pool(1 << 20);
    vec![("threads", open(own())), ("services", open(own().services(&services))), ("inline", open(small()))]
}

#[test]
fn a_position_that_the_log_has_not_reached_is_refused_at_once() {
    within_a_minute("a wait for a position", || {
        let long = small().durability(Durability::Async).open_on(Arc::new(MemDisk::new())).unwrap();
        for n in 0..500 {
            long.transact(|tx| tx.put(&NUMBERS, &n, &n)).unwrap();
        }
        let foreign = long.begin().unwrap().commit_async().unwrap();
        for (way, db) in driven() {
            db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
            let end = db.begin().unwrap().commit_async().unwrap();
            assert!(foreign > end, "{way}: not beyond its log");
            for at in [Lsn::ZERO, Lsn(1), end] {
                db.request_flush(at);
                db.wait_durable(at).unwrap();
                assert!(db.durable() >= at, "{way}: {at:?}");
            }
            for at in [Lsn(end.0 + (1 << 20)), foreign, Lsn(u64::MAX / 2), Lsn(u64::MAX - 1), Lsn::MAX] {
                db.request_flush(at);
                let refused = db.wait_durable(at).unwrap_err();
                assert!(
                    matches!(refused, StorageError::BeyondLog { position, .. } if position == at),
                    "{way}: {refused}"
                );
                assert!(refused.to_string().contains(&at.to_string()), "it names the position: {refused}");
                // A later commit becomes durable without a request.
                let mut tx = db.begin().unwrap();
                tx.put(&NUMBERS, &1, &at.0).unwrap();
                let own = tx.commit_async().unwrap();
                db.wait_durable(own).unwrap();
            }
            db.close().unwrap();
        }
    });
}

/// The program steps the services, so a waiting thread must not be the stepping one.
#[test]
fn a_stepped_flusher_has_nothing_to_do_for_a_position_beyond_the_log() {
    let db = small().background(Background::Stepped).open_on(Arc::new(MemDisk::new())).unwrap();
    while db.step_service(Service::Flusher).unwrap() {}
    for at in [Lsn(db.durable().0 + 1), Lsn(u64::MAX - 1), Lsn::MAX] {
        db.request_flush(at);
        assert!(!db.step_service(Service::Flusher).unwrap(), "{at:?}: there is work for ever");
        assert!(matches!(db.wait_durable(at), Err(StorageError::BeyondLog { .. })));
    }
}

#[test]
fn settings_at_their_ends_work_or_are_refused_by_name() {
    let options = || Options::new().buffer_pool(1 << 20);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let superlatches = |words| options().latches(LatchKind::Super).latch_words(words);
    let services = Services::with_threads(ServiceThreads { log: 1, pages: 1, reads: 0 }).unwrap();
    let at = |now| options().clock(Arc::new(AtomicU64::new(now)));
    // Name of the refused setting, or `None`.
    let table: Vec<(&str, Options, Option<&str>)> = vec![
        ("pool 0", options().buffer_pool(0), Some("buffer_pool")),
        ("pool 1", options().buffer_pool(1), Some("buffer_pool")),
        ("pool least - 1", options().buffer_pool(MIN_POOL_BYTES - 1), Some("buffer_pool")),
        ("pool least", options().buffer_pool(MIN_POOL_BYTES), None),
        ("words 0", superlatches(0), Some("latch_words")),
        ("words 1", superlatches(1), (cores > 1).then_some("latch_words")),
        ("words 128", superlatches(128), None),
        ("words 129", superlatches(129), Some("latch_words")),
        ("words most", superlatches(usize::MAX), Some("latch_words")),
        ("words of no use", options().latch_words(0), None),
        ("promote 0", superlatches(128).promote_at(0), None),
        ("promote most", superlatches(128).promote_at(u16::MAX), None),
        ("homes", options().frame_homes(FrameHomes::PerThread), None),
        ("small pages", options().large_pages(LargePages::Off), None),
        ("plain", options().latches(LatchKind::Plain), None),
        ("services", options().services(&services), None),
        ("services inline", options().services(&services).background(Background::Inline), Some("services")),
        ("services stepped", options().services(&services).background(Background::Stepped), Some("services")),
        ("checkpoint 0", options().checkpoint_every(0), None),
        ("checkpoint 1", options().checkpoint_every(1), None),
        ("checkpoint most", options().checkpoint_every(u64::MAX), None),
        ("no checksums", options().page_checksums(false), None),
        ("transactions 0", options().transactions(0), Some("transactions")),
        ("transactions 1", options().transactions(1), None),
        ("transactions 1000", options().transactions(1000), None),
        ("transactions 1001", options().transactions(1001), Some("transactions")),
        ("transactions most", options().transactions(usize::MAX), Some("transactions")),
        ("escalate 0", options().escalate_at(0), None),
        ("escalate 1", options().escalate_at(1), None),
        ("escalate most", options().escalate_at(u32::MAX), None),
        ("timeout 0", options().lock_timeout(NOTHING), None),
        ("timeout most", options().lock_timeout(Duration::MAX), None),
        ("name bits 0", options().lock_name_bits(0), None),
        ("name bits 1", options().lock_name_bits(1), None),
        ("name bits most", options().lock_name_bits(u32::MAX), None),
        ("reruns 0", options().reruns(0), None),
        ("reruns most", options().reruns(u32::MAX), None),
        ("segment 0", options().log_segment(0), Some("log_segment")),
        ("segment least", options().log_segment(64 << 10), None),
        ("segment odd", options().log_segment((64 << 10) + 1), None),
        ("segment most + 1", options().log_segment((1 << 30) + 1), Some("log_segment")),
        ("segment most", options().log_segment(u64::MAX), Some("log_segment")),
        ("buffer 0", options().log_buffer(0), Some("log_buffer")),
        ("buffer least", options().log_buffer(512 << 10), None),
        ("buffer odd", options().log_buffer((512 << 10) + 1), None),
        ("buffer most", options().log_buffer(usize::MAX), Some("log_buffer")),
        ("lock table 0", options().lock_table(0), Some("lock_table")),
        ("lock table least", options().lock_table(256), None),
        ("lock table odd", options().lock_table(257), None),
        ("lock table most", options().lock_table(usize::MAX), Some("lock_table")),
        ("clock 0", at(0), None),
        ("clock late", at(u64::MAX - 1_000_000), None),
        ("id 0", options().database_id(0), None),
        ("id most", options().database_id(u64::MAX), None),
        ("read committed", options().isolation(Isolation::ReadCommitted), None),
        ("no recovery", options().on_recovery(|_| ControlFlow::Break(())), None),
    ];
    within_a_minute("a setting", move || {
        for (name, options, refused) in table {
            let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
            let told = format!("{options:?}");
            match (options.open_on(Arc::clone(&disk)), refused) {
                (Ok(db), None) => {
                    works(&db);
                    db.close().unwrap();
                    let db = Options::new().buffer_pool(1 << 20).open_on(disk).unwrap();
                    assert_eq!(db.begin().unwrap().count(&NUMBERS, ..).unwrap(), 50, "{name}: {told}");
                }
                (Err(OpenError::Setting { setting, .. }), Some(refused)) => assert_eq!(setting, refused, "{name}"),
                (other, refused) => panic!("{name}: {other:?}, refused: {refused:?}"),
            }
        }
    });
}

/// With the simulated clock at its maximum nothing overflows.
#[test]
fn a_clock_may_stand_at_its_end() {
    let now = Arc::new(AtomicU64::new(u64::MAX - 100_000_000));
    let db = small().clock(Arc::clone(&now)).durability(Durability::Async).open_on(Arc::new(MemDisk::new())).unwrap();
    works(&db);
    for at in [u64::MAX - 60_000_000, u64::MAX - 1, u64::MAX] {
        now.store(at, Ordering::Relaxed);
        db.transact(|tx| tx.put(&NUMBERS, &1, &at)).unwrap();
        let end = db.begin().unwrap().commit_async().unwrap();
        for service in [Service::Flusher, Service::SegmentMaker, Service::Cleaner, Service::PageReader] {
            db.step_service(service).unwrap();
        }
        db.request_flush(end);
        db.step().unwrap();
        assert!(db.durable() >= end);
    }
    db.close().unwrap();
}

/// A pool of any size opens; one larger than the largest file has the effect of that size, unless address space is
/// missing.
#[test]
#[cfg_attr(miri, ignore)]
fn a_pool_may_be_larger_than_any_file() {
    for bytes in [1 << 41, u64::MAX] {
        match Options::new().buffer_pool(bytes).large_pages(LargePages::Off).open_on(Arc::new(MemDisk::new())) {
            Ok(db) => works(&db),
            Err(OpenError::Storage(StorageError::Io { op: "reserving memory", .. })) => {}
            Err(error) => panic!("{bytes}: {error}"),
        }
    }
}

#[test]
fn counts_of_shared_threads_are_refused_out_of_bounds() {
    let count = ServiceThreads::default();
    for (count, works) in [
        (ServiceThreads { log: 0, ..count }, false),
        (ServiceThreads { log: 65, ..count }, false),
        (ServiceThreads { log: usize::MAX, ..count }, false),
        (ServiceThreads { pages: 0, ..count }, false),
        (ServiceThreads { pages: 65, ..count }, false),
        (ServiceThreads { reads: 0, ..count }, true),
        (ServiceThreads { reads: 65, ..count }, false),
        (ServiceThreads { log: 64, pages: 64, reads: 64 }, true),
        (ServiceThreads { log: 1, pages: 1, reads: 0 }, true),
    ] {
        match Services::with_threads(count) {
            Ok(_) => assert!(works, "{count:?}"),
            Err(OpenError::Setting { .. }) => assert!(!works, "{count:?}"),
            Err(error) => panic!("{count:?}: {error}"),
        }
    }
}

#[test]
fn a_rerun_of_none_gives_the_deadlock_back_at_once() {
    let db = small().reruns(0).open_on(Arc::new(MemDisk::new())).unwrap();
    let mut runs = 0;
    let refused: Result<(), TxnError> = db.transact(|_| {
        runs += 1;
        Err(TxnError::Ended)
    });
    assert!(matches!(refused, Err(TxnError::Ended)) && runs == 1);
}

#[test]
fn names_of_tables_have_their_ends() {
    const EMPTY: Table<u64, u64> = Table::new("");
    const ONE: Table<u64, u64> = Table::new("a");
    let db = crate::common::open(&SimDisk::new(1));
    let (longest, longer) = ("n".repeat(200), "n".repeat(201));
    let (longest, longer) = (&*longest.leak(), &*longer.leak());
    assert!(matches!(db.table(&EMPTY), Err(TxnError::Schema { .. })));
    assert!(matches!(db.table(&Table::<u64, u64>::new(longer)), Err(TxnError::Schema { .. })));
    assert!(matches!(db.alter_indexes(&EMPTY), Err(TxnError::Schema { .. })));
    for table in [ONE, Table::new(longest), Table::new("\0/\u{1F600}")] {
        db.transact(|tx| tx.put(&table, &u64::MAX, &u64::MAX)).unwrap();
        assert_eq!(db.begin().unwrap().get(&table, &u64::MAX).unwrap(), Some(u64::MAX));
    }
    for (name, there) in [("", false), (longer, false), ("catalog", false), ("b", false), (longest, true), ("a", true)]
    {
        assert_eq!(db.truncate(name).unwrap(), there, "{name}");
        assert_eq!(db.drop_table(name).unwrap(), there, "{name}");
        assert!(!db.drop_table(name).unwrap());
    }
    // Statements that read or delete do not create a table, whatever its name.
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(&ONE, &1).unwrap(), None);
    assert!(!tx.delete(&ONE, &1).unwrap());
    assert!(matches!(tx.put(&EMPTY, &1, &1), Err(TxnError::Schema { .. })));
    assert_eq!(tx.get(&EMPTY, &1).unwrap(), None);
    tx.commit().unwrap();
}

#[test]
fn numbers_of_indexes_and_parts_are_refused_out_of_bounds() {
    let db = crate::common::open(&SimDisk::new(1));
    let rows = db.table(&ROWS).unwrap();
    let tx = db.begin().unwrap();
    for (index, is_there) in [(0, true), (1, false), (7, false), (8, false), (usize::MAX, false)] {
        let scanned = tx.raw().scan_index(&rows, index, &[], &[0xFF], false, |_, _| ControlFlow::Continue(()));
        assert_eq!(scanned.is_ok(), is_there, "{index}");
        assert!(is_there || matches!(scanned, Err(TxnError::Schema { .. })));
    }
    tx.commit().unwrap();
    for (index, is_there) in [(0, true), (1, false), (8, false), (usize::MAX, false)] {
        let part = db.bulk_load_part(&rows, Part::Index(index));
        assert_eq!(part.is_ok(), is_there, "{index}");
        assert!(is_there || matches!(part, Err(TxnError::Schema { .. })));
    }
}

#[test]
fn what_another_database_gave_is_refused_and_changes_nothing() {
    let (db, other) = (crate::common::open(&SimDisk::new(1)), crate::common::open(&SimDisk::new(2)));
    let mine = db.raw_table(&NUMBERS).unwrap();
    other.transact(|tx| tx.put(&ROWS, &[1], &vec![1])).unwrap();
    let theirs = other.raw_table(&NUMBERS).unwrap();
    other.transact(|tx| tx.raw_mut().put(&theirs, b"k", b"theirs")).unwrap();
    db.transact(|tx| tx.raw_mut().put(&mine, b"k", b"mine")).unwrap();
    let foreign = |error: TxnError| assert!(matches!(error, TxnError::ForeignHandle { .. }), "{error}");

    let mut tx = db.begin().unwrap();
    foreign(tx.raw_mut().put(&theirs, b"k", b"x").unwrap_err());
    foreign(tx.raw().read(&theirs, b"k", <[u8]>::to_vec).unwrap_err());
    foreign(tx.raw().count(&theirs, b"", b"z").unwrap_err());
    foreign(tx.lock_table(&theirs, storage::TableLock::Exclusive).unwrap_err());
    foreign(db.bulk_load(&theirs).unwrap_err());
    foreign(db.bulk_load_part(&theirs, Part::Rows).unwrap_err());
    // Hints are ignored.
    tx.raw().prefetch([(theirs, &b"k"[..], 64)].into_iter());
    tx.raw_mut().prefetch_along(&theirs, b"k", usize::MAX);
    tx.raw_mut().prefetch_insert(&theirs, b"k");

    // A peeker and its positions work with any database; a position of another database is not used.
    let mut peeker = Peeker::default();
    other.raw().announce(&mut peeker, [(theirs, &b"k"[..], 64), (mine, &b"k"[..], 64)].into_iter());
    foreign(db.raw().peek(&mut peeker, &theirs, b"k").map(drop).unwrap_err());
    let (_, place) = other.raw().peek(&mut peeker, &theirs, b"k").unwrap();
    assert!(tx.raw_mut().confirm(&mine, b"k", &place, Some(b"mine"), true).unwrap());
    assert!(!tx.raw_mut().confirm(&mine, b"k", &place, Some(b"theirs"), true).unwrap());
    assert_eq!(tx.raw_mut().replace_many(&mine, [(&b"k"[..], place, &b"new!"[..])].into_iter()).unwrap(), 1);

    // A savepoint of another transaction or database is also refused; an age is accepted from anywhere.
    let mut of_other = other.begin().unwrap();
    let savepoint = of_other.savepoint();
    assert!(matches!(tx.rollback_to(savepoint), Err(TxnError::Savepoint)));
    assert_eq!(tx.raw().read(&mine, b"k", <[u8]>::to_vec).unwrap().as_deref(), Some(&b"new!"[..]));
    let age = of_other.age();
    tx.commit().unwrap();
    db.begin_again(Isolation::Serializable, age).unwrap().commit().unwrap();
}

#[test]
fn calls_of_a_database_may_break_off_or_be_of_no_use() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let db = small().open_on(Arc::clone(&disk)).unwrap();
    works(&db);
    // A step of any service is harmless in any background mode.
    for service in
        [Service::Flusher, Service::SegmentMaker, Service::Cleaner, Service::Checkpointer, Service::PageReader]
    {
        db.step_service(service).unwrap();
    }
    db.check_structure(|_, _| ControlFlow::Break(())).map(drop).unwrap();
    // A copy onto itself, onto a directory that is not empty, and a copy that is cancelled at once.
    assert!(matches!(db.copy_on(disk, |_| ControlFlow::Continue(())), Err(CopyError::NotEmpty { .. })));
    assert!(matches!(db.copy_to(""), Err(CopyError::Directory { .. })));
    let target: Arc<dyn Disk> = Arc::new(MemDisk::new());
    assert!(matches!(db.copy_on(Arc::clone(&target), |_| ControlFlow::Break(())), Err(CopyError::Cancelled { .. })));
    db.copy_on(Arc::clone(&target), |_| ControlFlow::Continue(())).unwrap();
    works(&small().open_on(target).unwrap());
    db.close().unwrap();
}

#[test]
fn a_directory_that_is_none_is_told_by_its_name() {
    assert!(matches!(Options::new().open(""), Err(OpenError::Missing { .. })));
    assert!(matches!(Options::new().create(false).open("/nowhere/at/all"), Err(OpenError::Missing { .. })));
    assert!(matches!(Options::new().open("/dev/null"), Err(OpenError::NotADatabase { .. })));
    assert!(DatabaseFiles::claim("/nowhere/at/all").unwrap().is_none());
    assert!(matches!(DatabaseFiles::claim("/dev/null"), Err(OpenError::NotADatabase { .. })));
    assert!(DatabaseFiles::claim("").unwrap().is_none());
}

/// A handle for statements on bytes works with any table.
#[test]
fn handles_of_bytes_serve_any_table() {
    const RAW: Table<Raw, Raw> = Table::new("raw");
    let db = crate::common::open(&SimDisk::new(3));
    let raw = db.raw_table(&RAW).unwrap();
    db.transact(|tx| tx.raw_mut().put(&raw, b"", b"")).unwrap();
    assert_eq!(db.begin().unwrap().raw().read(&raw, b"", <[u8]>::len).unwrap(), Some(0));
    assert!(matches!(db.table(&Table::<u64, u64>::new("raw")), Err(TxnError::OtherCodec { .. })));
}
