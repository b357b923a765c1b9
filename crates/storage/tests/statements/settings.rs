//! The effect of each setting, beyond the refusal of invalid values.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{NUMBERS, ROWS, on, small};
use storage::disk::{Crash, Disk, MemDisk, OpenMode, SimDisk, read_exact_at};
use storage::{
    Background, BlockReason, Database, Durability, FrameHomes, Hook, Isolation, LargePages, LatchKind, OpenError,
    Options, StorageError, ThreadHook, TxnError, WaitToken,
};

fn own() -> Options {
    Options::new().buffer_pool(1 << 20)
}

fn memory(options: Options) -> Database {
    options.open_on(Arc::new(MemDisk::new())).unwrap()
}

fn fill(db: &Database, rows: u64, bytes: usize) {
    for n in 0..rows {
        db.transact(|tx| tx.put(&ROWS, &n.to_be_bytes()[..], &vec![n as u8; bytes])).unwrap();
    }
}

#[test]
fn the_buffer_pool_holds_what_fits() {
    let evictions = |bytes| {
        let db = memory(small().buffer_pool(bytes));
        fill(&db, 1_500, 3_000);
        db.stats().pool_evictions
    };
    assert!(evictions(1 << 20) > 100);
    assert_eq!(evictions(64 << 20), 0);
}

#[test]
fn durability_says_what_a_crash_may_take() {
    for (durability, kept) in [(Durability::Sync, Some(1)), (Durability::Async, None)] {
        let disk = SimDisk::new(1);
        let db = small().durability(durability).open_on(on(&disk)).unwrap();
        db.table(&NUMBERS).unwrap();
        db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
        let crashed = disk.crash(Crash::Nothing);
        assert_eq!(crate::common::open(&crashed).begin().unwrap().get(&NUMBERS, &1).unwrap(), kept, "{durability:?}");
    }
}

#[test]
fn isolation_is_that_of_transactions_that_ask_for_none() {
    for level in [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let db = memory(small().isolation(level));
        assert_eq!(db.begin().unwrap().isolation(), level);
        assert_eq!(db.transact(|tx| Ok::<_, TxnError>(tx.isolation())).unwrap(), level);
        let other = Isolation::RepeatableRead;
        assert_eq!(db.begin_at(other).unwrap().isolation(), other);
        assert_eq!(db.transact_at(other, |tx| Ok::<_, TxnError>(tx.isolation())).unwrap(), other);
    }
}

#[test]
fn latches_and_their_promotions() {
    for kind in [LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super] {
        for (reads, promotes) in [(1, kind == LatchKind::Super), (u16::MAX, false)] {
            let db = memory(own().latches(kind).promote_at(reads));
            assert_eq!(db.latches(), kind);
            fill(&db, 50, 20);
            (0..50).for_each(|_| assert!(db.begin().unwrap().count(&ROWS, ..).unwrap() == 50));
            assert_eq!(db.stats().latch_promotions > 0, promotes, "{kind:?}, at {reads}: {:?}", db.stats());
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn memory_is_of_the_sizes_asked_for() {
    let region = |options: Options, name| {
        let db = memory(options.large_pages(LargePages::Off));
        let given = db.large_pages().unwrap();
        assert_eq!(given.asked, LargePages::Off);
        given.regions.iter().find(|region| region.name == name).unwrap().bytes
    };
    assert!(region(own().buffer_pool(32 << 20), "frames") > 3 * region(own().buffer_pool(8 << 20), "frames"));
    assert_eq!(region(own().log_buffer(512 << 10), "log_ring"), 512 << 10);
    assert_eq!(region(own().log_buffer((512 << 10) + 1), "log_ring"), 1 << 20, "rounded up to a power of two");
    assert_eq!(region(own().lock_table(256), "lock_table"), 256 * 8);
    assert_eq!(region(own().lock_table(1 << 16), "lock_table"), (1 << 16) * 8);
}

/// Per-thread frames serve all threads, in a pool of several shards with evictions.
#[test]
fn frames_of_homes_are_given_once() {
    for homes in [FrameHomes::Shared, FrameHomes::PerThread] {
        let db = memory(own().buffer_pool(40 << 20).frame_homes(homes).durability(Durability::Async));
        std::thread::scope(|threads| {
            for thread in 0..4u64 {
                let db = &db;
                threads.spawn(move || {
                    for n in 0..4_000 {
                        let (key, row) = (n * 4 + thread, vec![thread as u8; 3_000]);
                        db.transact(|tx| tx.put(&ROWS, &key.to_be_bytes()[..], &row)).unwrap();
                    }
                });
            }
        });
        assert!(db.stats().pool_evictions > 0, "{homes:?}");
        let tx = db.begin().unwrap();
        for (n, row) in tx.range(&ROWS, ..).unwrap().enumerate() {
            let (key, row) = row.unwrap();
            assert_eq!(key, (n as u64).to_be_bytes(), "{homes:?}");
            assert!(row.iter().all(|byte| u64::from(*byte) == n as u64 % 4), "{homes:?}: a frame of two pages");
        }
        drop(tx);
        db.verify_pages().unwrap();
    }
}

#[test]
fn checkpoints_come_by_what_is_logged() {
    let checkpoints = |bytes| {
        let db = memory(small().checkpoint_every(bytes));
        for n in 0..400u64 {
            db.transact(|tx| tx.put(&ROWS, &n.to_be_bytes()[..], &vec![1; 2_000])).unwrap();
            (0..3).for_each(|_| db.step().unwrap());
        }
        db.stats().checkpoints
    };
    assert!(checkpoints(128 << 10) > 1);
    assert_eq!(checkpoints(u64::MAX), 0);
}

#[test]
fn page_checksums_find_damage_unless_they_are_off() {
    let disk = SimDisk::new(5);
    let db = crate::common::open(&disk);
    fill(&db, 300, 2_000);
    db.close().unwrap();
    let count = |disk: &SimDisk, on_read: bool| {
        let db = small().page_checksums(on_read).open_on(on(disk)).ok()?;
        let tx = db.begin().ok()?;
        Some(tx.count(&ROWS, ..))
    };
    // The bytes of the page there belong to a row, which no other check covers.
    let found = (8..80).any(|page| {
        let copy = disk.crash(Crash::All);
        assert!(copy.flip("pages.0", page * storage::PAGE_SIZE as u64 + 6_000, 1));
        matches!(count(&copy, true), Some(Err(TxnError::Storage(StorageError::CorruptPage { .. }))))
            && matches!(count(&copy, false), Some(Ok(300)))
    });
    assert!(found, "damage is seen with checksums alone");
}

#[test]
fn so_many_transactions_and_no_more() {
    for limit in [2, 5] {
        let db = memory(small().transactions(limit));
        let running: Vec<_> = (0..limit).map(|_| db.begin().unwrap()).collect();
        let refused = db.begin().unwrap_err();
        assert!(
            matches!(refused, TxnError::Storage(StorageError::TooManyTransactions { limit: told }) if told == limit)
        );
        drop(running);
        db.begin().unwrap();
    }
}

#[test]
fn locks_become_a_tables_at_the_number_given() {
    let escalations = |at| {
        let db = memory(small().escalate_at(at));
        db.transact(|tx| (0..60u64).try_for_each(|n| tx.put(&NUMBERS, &n, &n))).unwrap();
        db.stats().escalations
    };
    assert!(escalations(8) > 0);
    assert_eq!(escalations(u32::MAX), 0);
}

/// With lock names of one bit, two keys nearly always share a lock; with all bits, no two of these do.
#[test]
fn keys_share_names_where_names_are_short() {
    let waits = |bits| {
        let db = memory(small().lock_name_bits(bits));
        db.transact(|tx| (0..20u64).try_for_each(|n| tx.put(&NUMBERS, &n, &n))).unwrap();
        let mut one = db.begin_at(Isolation::ReadCommitted).unwrap();
        one.put(&NUMBERS, &0, &1).unwrap();
        let mut other = db.begin_at(Isolation::ReadCommitted).unwrap();
        (1..20u64).filter(|n| matches!(other.put(&NUMBERS, n, &1), Err(TxnError::OwnTask { .. }))).count()
    };
    assert!(waits(1) > 0);
    assert_eq!(waits(u32::MAX), 0);
}

#[test]
fn a_database_is_made_only_where_that_is_wanted() {
    assert!(matches!(small().create(false).open_on(Arc::new(MemDisk::new())), Err(OpenError::Missing { .. })));
    let disk = MemDisk::new();
    small().create(true).open_on(Arc::new(disk.clone())).unwrap().close().unwrap();
    small().create(false).open_on(Arc::new(disk)).unwrap();
}

/// In each run of the closure an older transaction closes a cycle, and the closure is the victim each time.
#[test]
fn a_victim_is_run_again_as_often_as_said() {
    for reruns in [0, 1, 3] {
        let db = memory(own().reruns(reruns));
        db.transact(|tx| (0..2u64).try_for_each(|n| tx.put(&NUMBERS, &n, &n))).unwrap();
        let age = db.begin().unwrap().age();
        let ((go, goes), (ready, is_ready)) = (channel::<()>(), channel());
        let runs = std::thread::scope(|threads| {
            let db = &db;
            threads.spawn(move || {
                loop {
                    let mut older = db.begin_again(Isolation::Serializable, age).unwrap();
                    older.put(&NUMBERS, &1, &8).unwrap();
                    if ready.send(()).is_err() || goes.recv().is_err() {
                        break;
                    }
                    older.put(&NUMBERS, &0, &8).unwrap();
                }
            });
            // Moved into this scope: dropping them at its end, also by a panic, ends the other thread.
            let (go, is_ready, mut runs) = (go, is_ready, 0);
            let failed: Result<(), TxnError> = db.transact(|tx| {
                runs += 1;
                is_ready.recv().unwrap();
                tx.put(&NUMBERS, &0, &9)?;
                let waits = db.stats().lock_waits;
                go.send(()).unwrap();
                while db.stats().lock_waits == waits {
                    std::thread::yield_now();
                }
                tx.put(&NUMBERS, &1, &9)
            });
            assert!(matches!(failed, Err(TxnError::Deadlock { .. })), "{failed:?}");
            runs
        });
        assert_eq!(runs, reruns + 1);
    }
}

#[test]
fn log_files_have_the_size_given() {
    for bytes in [64 << 10, 256 << 10] {
        let disk = MemDisk::new();
        let db = small().log_segment(bytes).open_on(Arc::new(disk.clone())).unwrap();
        fill(&db, 100, 2_000);
        let names = disk.list().unwrap();
        for name in names.iter().filter(|name| name.starts_with("log.")) {
            assert_eq!(disk.open(name, OpenMode::Existing).unwrap().len().unwrap(), bytes, "{name}");
        }
        assert_eq!(db.sizes().unwrap().log % bytes, 0);
    }
}

#[derive(Debug, Default)]
struct Counting {
    threads: ThreadHook,
    asked: AtomicUsize,
}

impl Hook for Counting {
    fn task(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.threads.task()
    }
    fn block(&self, token: &WaitToken, reason: BlockReason) {
        self.threads.block(token, reason);
    }
    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.threads.block_for(token, reason, limit)
    }
    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
    }
}

#[test]
fn the_hook_and_the_clock_are_asked() {
    let (hook, now) = (Arc::new(Counting::default()), Arc::new(AtomicU64::new(7)));
    let db = memory(small().hook(Arc::clone(&hook) as Arc<dyn Hook>).clock(Arc::clone(&now)));
    db.begin().unwrap().commit().unwrap();
    assert!(hook.asked.load(Ordering::Relaxed) > 0);
    assert!(now.load(Ordering::Relaxed) > 7, "each transaction is younger");
}

#[test]
fn the_id_is_in_the_files() {
    let file = |id| {
        let disk = MemDisk::new();
        small().database_id(id).open_on(Arc::new(disk.clone())).unwrap().close().unwrap();
        let mut bytes = [0; 8];
        let pages = disk.open("pages.0", OpenMode::Existing).unwrap();
        read_exact_at(&*pages, &mut bytes, 16).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!([file(5), file(u64::MAX), file(0)], [5, u64::MAX, 1]);
}

#[test]
fn recovery_is_told_and_may_be_broken_off() {
    let disk = SimDisk::new(9);
    let db = crate::common::open(&disk);
    fill(&db, 100, 500);
    let crashed = disk.crash(Crash::All);
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let open = |go_on: bool| {
        let count = Arc::clone(&count);
        let hear = move |_: &storage::Recovery| {
            count.fetch_add(1, Ordering::Relaxed);
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        small().on_recovery(hear).open_on(on(&crashed))
    };
    assert!(matches!(open(false), Err(OpenError::Cancelled { .. })));
    assert_eq!(open(true).unwrap().begin().unwrap().count(&ROWS, ..).unwrap(), 100);
    assert!(told.load(Ordering::Relaxed) >= 2);
}

#[test]
fn services_are_driven_by_what_was_said() {
    for background in [Background::Threads, Background::Inline] {
        let db = memory(own().background(background).durability(Durability::Async));
        db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
        let end = db.begin().unwrap().commit_async().unwrap();
        // Nothing requests a flush: the threads check periodically.
        let looks = if background == Background::Threads { 2_000 } else { 20 };
        let by_itself = (0..looks).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            db.durable() >= end
        });
        assert_eq!(by_itself, background == Background::Threads, "{background:?}");
        db.step().unwrap();
    }
}
