//! Disk faults below the pool.

use std::sync::atomic::Ordering;

use super::*;
use crate::base::ids::PAGE_SIZE;
use crate::page::header::damage;

#[test]
fn a_failed_write_closes_the_instance() {
    let t = pool(16);
    t.make(1, 1);
    t.file.fail_writes.store(true, Ordering::Relaxed);
    let error = t.pool.flush_all().unwrap_err();
    assert!(error.to_string().contains("write at byte 8192 failed"), "{error}");
    assert!(t.poison.is_closed());
    assert!(t.pool.oldest_recovery_lsn().is_some(), "the change is still not on disk");
    t.file.fail_writes.store(false, Ordering::Relaxed);
    assert!(matches!(t.pool.flush_all(), Err(StorageError::Poisoned { .. })));
    assert!(matches!(t.pool.clean_step(0, CleanGoal::default()), Err(StorageError::Poisoned { .. })));
    assert_eq!(t.value(1), 1, "reading goes on");
}

/// Checks that a closed instance keeps at least as many clean pages as one descent reads. With only one frame for clean
/// pages, two pages of a descent would evict each other without end.
#[test]
fn in_a_closed_instance_as_many_pages_stay_as_a_descent_has() {
    let t = pool(16);
    for id in 1..=40 {
        t.make(id, u64::from(id));
    }
    t.pool.flush_all().unwrap();
    for id in 1..=15 {
        t.set(id, 7);
    }
    t.poison.close_because("a test", t.log.durable_lsn());
    let levels = 20..28;
    for _ in 0..10 {
        levels.clone().for_each(|id| assert_eq!(t.value(id), u64::from(id)));
    }
    let before = t.pool.stats().reads;
    levels.clone().for_each(|id| assert_eq!(t.value(id), u64::from(id)));
    assert_eq!(t.pool.stats().reads, before);
}

/// Rollbacks in a closed instance change pages that can no longer be written. Of 32 frames, two are left for three clean
/// pages.
#[test]
fn a_closed_instance_with_too_few_clean_pages_is_exhausted() {
    let t = pool(16);
    for id in 1..=60 {
        t.make(id, u64::from(id));
    }
    t.pool.flush_all().unwrap();
    t.poison.close_because("a test", t.log.durable_lsn());
    for id in 1..=30 {
        t.set(id, 7);
    }
    let refused = (0..1000).find_map(|turn| t.try_value(50 + turn % 3).err()).expect("three pages in two frames");
    assert!(matches!(refused, StorageError::PoolExhausted { .. }), "{refused}");
}

#[test]
fn a_failed_sync_closes_the_instance_and_is_not_tried_again() {
    let t = pool(16);
    t.make(1, 1);
    t.file.fail_syncs.store(true, Ordering::Relaxed);
    assert!(t.pool.flush_all().is_err());
    assert!(t.poison.is_closed());
    let oldest = t.pool.oldest_recovery_lsn();
    assert_eq!(oldest, Some(Lsn(100)), "written, clean, but not known to be on disk");
    t.file.fail_syncs.store(false, Ordering::Relaxed);
    assert!(matches!(t.pool.sync(), Err(StorageError::Poisoned { .. })));
    assert_eq!(t.file.syncs.load(Ordering::Relaxed), 1);
    assert_eq!(t.pool.oldest_recovery_lsn(), oldest);
}

#[test]
fn a_full_disk_is_told_and_gets_better() {
    let t = pool(16);
    t.file.limit.store(20 * PAGE_SIZE as u64, Ordering::Relaxed);
    let mut made = 0;
    for id in 1..100 {
        match t.pool.grow_to_hold(PageId(id)) {
            Ok(()) => {
                t.make(id, 7);
                made = id;
            }
            Err(error) => {
                assert!(error.is_retryable() && error.to_string().contains("pages.0"), "{error}");
                break;
            }
        }
    }
    assert_eq!(made, 19, "to the last page that fits");
    // The same fault without an earlier request for the file space.
    let mut page = t.pool.create(PageId(60)).unwrap();
    page.mark_dirty(t.log.tail());
    drop(page);
    assert!(matches!(t.pool.flush_all(), Err(StorageError::NoSpace { .. })));
    assert!(!t.poison.is_closed());
    t.file.limit.store(0, Ordering::Relaxed);
    t.pool.flush_all().unwrap();
    assert_eq!(t.pool.oldest_recovery_lsn(), None);
    for id in 1..=19 {
        assert_eq!(t.value(id), 7);
    }
}

#[test]
fn without_space_for_copies_or_a_durable_log_pages_stay_dirty() {
    let t = pool(16);
    for id in 1..=12 {
        t.make(id, 1);
    }
    let before = t.file.bytes.lock().clone();
    for fail in [&t.file.fail_aside, &t.log.fail] {
        fail.store(true, Ordering::Relaxed);
        assert!(matches!(t.pool.flush_all(), Err(StorageError::NoSpace { .. })));
        assert!(*t.file.bytes.lock() == before, "nothing is written in place before it is put aside");
        // A miss that has to write fails as well, and loses no frame.
        for _ in 0..50 {
            assert!(t.pool.reserve(10).is_err());
        }
        assert!(!t.poison.is_closed());
        fail.store(false, Ordering::Relaxed);
    }
    assert_eq!(t.pool.reserve(10).unwrap().len(), 10);
    t.pool.flush_all().unwrap();
    for id in 1..=12 {
        assert_eq!(t.value(id), 1);
    }
}

#[test]
fn a_torn_page_has_a_durable_copy_aside() {
    let t = pool(16);
    for id in 1..=9 {
        t.make(id, 1);
    }
    t.pool.flush_all().unwrap();
    for id in 1..=9 {
        t.set(id, 2);
    }
    // The write is torn in the middle of page 5: pages 1 to 4 are new, 6 to 9 are old, and 5 is half new.
    t.file.tear_write_after.store(4 * PAGE_SIZE as u64 + 4096, Ordering::Relaxed);
    for id in 1..=9u32 {
        // A change in the other half of the page.
        let mut page = t.pool.get(PageId(id)).unwrap().write(t.pool.latches());
        page.page_mut().put_u64(PAGE_SIZE - 8, 2);
    }
    assert!(t.pool.flush_all().is_err());
    assert!(t.poison.is_closed());
    let disk = t.file.bytes.lock().clone();
    let copies = t.file.aside_synced.lock();
    let mut damaged = 0;
    for id in 1..=9u32 {
        let at = id as usize * PAGE_SIZE;
        let page: &[u8; PAGE_SIZE] = disk[at..at + PAGE_SIZE].try_into().unwrap();
        if damage(page, PageId(id), true).is_some() {
            damaged += 1;
        }
        let newest = copies.values().flatten().filter(|(copied, ..)| *copied == id).max_by_key(|(_, lsn, _)| *lsn);
        let (_, recovery, copy) = newest.unwrap();
        let copy: &[u8; PAGE_SIZE] = copy.as_slice().try_into().unwrap();
        assert_eq!(damage(copy, PageId(id), true), None);
        assert_eq!(copy[VALUE], 2);
        assert!(t.lsn_of(id) < t.log.durable_lsn(), "a copy may be newer than the log");
        assert!(t.pool.oldest_recovery_lsn().unwrap() <= *recovery, "the copy counts: redo begins early enough");
    }
    assert_eq!(damaged, 1);
}
