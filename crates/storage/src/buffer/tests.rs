//! Tests of the pool as a whole.

use std::sync::atomic::Ordering;

use super::testing::{TestPool, pool, pool_over};
use super::*;
use crate::base::ids::Lsn;
use crate::page::header;

/// Where the tests keep a page's content.
const VALUE: usize = 512;

impl TestPool {
    /// Makes a page with a value.
    pub(super) fn make(&self, id: u32, value: u64) {
        self.pool.grow_to_hold(PageId(id)).unwrap();
        let mut page = self.pool.create(PageId(id)).unwrap();
        page.mark_dirty(self.log.tail());
        let lsn = self.log.append(64);
        page.page_mut().put_u64(VALUE, value);
        page.page_mut().set_lsn(lsn);
    }

    /// Sets a page's value; returns the LSN.
    pub(super) fn set(&self, id: u32, value: u64) -> Lsn {
        loop {
            let frame = self.pool.get_or_load(PageId(id)).unwrap();
            let mut page = frame.write();
            if frame.page_id() != PageId(id) {
                page.release_unchanged();
                continue;
            }
            frame.touch();
            page.mark_dirty(self.log.tail());
            let lsn = self.log.append(64);
            page.page_mut().put_u64(VALUE, value);
            page.page_mut().set_lsn(lsn);
            return lsn;
        }
    }

    /// Reads a page's value the way a tree does.
    pub(super) fn value(&self, id: u32) -> u64 {
        self.try_value(id).unwrap()
    }

    pub(super) fn try_value(&self, id: u32) -> Result<u64, StorageError> {
        loop {
            let frame = self.pool.get_or_load(PageId(id))?;
            let read = frame.read(self.pool.kind);
            if frame.page_id() != PageId(id) {
                continue;
            }
            let value = read.page().u64(VALUE);
            if read.is_valid() {
                frame.touch();
                return Ok(value);
            }
        }
    }
}

#[test]
fn pages_survive_eviction() {
    let t = pool(16);
    for id in 1..200 {
        t.make(id, u64::from(id) * 7);
    }
    for round in 0..3 {
        for id in 1..200 {
            assert_eq!(t.value(id), u64::from(id) * 7, "round {round}");
        }
    }
    let stats = t.pool.stats();
    assert!(stats.evictions > 500 && stats.reads > 500, "{stats:?}");
    assert_eq!(stats.images, stats.writes);
}

#[test]
fn a_pool_reopened_finds_what_was_flushed() {
    let t = pool(64);
    for id in 1..50 {
        t.make(id, u64::from(id));
    }
    assert_eq!(t.pool.oldest_recovery_lsn(), Some(Lsn(100)));
    t.pool.flush_all().unwrap();
    assert_eq!(t.pool.oldest_recovery_lsn(), None);
    let again = pool_over(t.file.clone(), PoolOptions::new(16));
    for id in 1..50 {
        assert_eq!(again.value(id), u64::from(id));
    }
}

#[test]
fn pages_that_do_not_exist_or_are_damaged_are_told() {
    let t = pool(16);
    let message = |r: Result<u64, StorageError>| r.unwrap_err().to_string();
    assert!(message(t.try_value(5)).contains("page 5 is referred to but does not exist"));
    assert!(message(t.try_value(0)).contains("does not exist"));
    t.make(1, 1);
    t.pool.flush_all().unwrap();
    let t = pool_over(t.file.clone(), PoolOptions::new(16));
    t.file.bytes.lock()[8192 + 4000] ^= 1;
    assert!(message(t.try_value(1)).contains("page 1 fails its checksum"));
    // A hole.
    assert!(message(t.try_value(3)).contains("fails its checksum"));
    t.file.bytes.lock()[8192 + 4000] ^= 1;
    assert_eq!(t.value(1), 1);
    t.file.fail_reads.store(true, Ordering::Relaxed);
    assert_eq!(t.value(1), 1, "resident");
    let t = pool_over(t.file.clone(), PoolOptions::new(16));
    assert!(message(t.try_value(1)).contains("read at byte 8192 failed"));
    t.file.fail_reads.store(false, Ordering::Relaxed);
    assert_eq!(t.value(1), 1, "a failed read is tried again by the next one");
    assert!(!t.poison.is_closed());
    let _ = header::ID;
}
