//! Tests of the pool as a whole.

mod faults;
mod larger;
mod model;
mod reads;
mod scan;
mod threads;
mod timing;

use std::sync::atomic::Ordering;

use super::homes::CHUNK;
use super::page_table::Residency;
use super::testing::{TestPool, pool, pool_over, pool_under};
use super::*;
use crate::base::ids::Lsn;
use crate::page::PageBytes;
use crate::page::sound::Flaw;

/// Offset of a page's test value.
const VALUE: usize = 512;

impl TestPool {
    /// Removes a page from its frame, so that the next access reads it. Returns false if another attempt is necessary.
    fn leave(&self, id: u32) -> bool {
        let left = self.pool.withhold(PageId(id));
        self.pool.readmit(id..id + 1);
        left
    }

    /// Creates a page with a value.
    fn make(&self, id: u32, value: u64) {
        self.pool.grow_to_hold(PageId(id)).unwrap();
        let mut page = self.pool.create(PageId(id)).unwrap();
        page.mark_dirty(self.log.tail());
        let lsn = self.log.append(64);
        page.page_mut().put_u64(VALUE, value);
        page.page_mut().set_lsn(lsn);
    }

    /// Sets a page's value. Returns the LSN of the change.
    fn set(&self, id: u32, value: u64) -> Lsn {
        loop {
            let frame = self.pool.get_or_load(PageId(id)).unwrap();
            let mut page = frame.write(self.pool.latches());
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

    /// Reads a page's value optimistically, as a tree does.
    fn value(&self, id: u32) -> u64 {
        self.try_value(id).unwrap()
    }

    fn lsn_of(&self, id: u32) -> Lsn {
        self.pool.get(PageId(id)).unwrap().bytes().lsn()
    }

    /// Checks that every page whose last change (in `pages`) is below the pool's oldest recovery LSN is on disk with that
    /// change.
    fn check_recovery(&self, pages: impl Iterator<Item = (u32, Lsn)>) {
        let oldest = self.pool.oldest_recovery_lsn().unwrap_or(Lsn::MAX);
        let synced = self.file.synced.lock();
        for (id, lsn) in pages.filter(|(_, lsn)| *lsn < oldest) {
            let at = id as usize * PAGE_SIZE + crate::page::header::LSN;
            let on_disk = synced.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
            assert!(on_disk >= lsn.0, "page {id}: {lsn:?} is below {oldest:?}, the disk has {on_disk}");
        }
    }

    fn try_value(&self, id: u32) -> Result<u64, StorageError> {
        loop {
            let frame = self.pool.get_or_load(PageId(id))?;
            let read = frame.read(self.pool.latches());
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
    // Page 3 was never written.
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
}

#[test]
fn a_reservation_cannot_fail_later_and_gives_back_what_it_did_not_use() {
    let t = pool(16);
    for id in 1..=40 {
        t.make(id, 1);
    }
    t.pool.grow_to_hold(PageId(60)).unwrap();
    let mut reserved = t.pool.reserve(5).unwrap();
    assert_eq!(reserved.len(), 5);
    let first = reserved.create(PageId(50));
    assert_eq!(first.page().u32(crate::page::header::ID), 50);
    let second = reserved.create(PageId(51));
    assert_eq!(reserved.len(), 3);
    // Other threads can use the rest of the pool meanwhile. A thread that holds a latch waits for nothing.
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(t.value(3), 1)).join().unwrap());
    drop((first, second, reserved));
    assert!(t.pool.free_frames() >= 3);
    assert!(matches!(t.pool.reserve(17), Err(StorageError::PoolExhausted { frames: 16 })));
    assert_eq!(t.value(4), 1);
}

#[test]
fn a_page_created_again_is_empty_wherever_its_former_self_is() {
    let t = pool(16);
    for id in 1..=30 {
        t.make(id, 9);
    }
    t.pool.flush_all().unwrap();
    assert_eq!(t.value(2), 9);
    for id in [2, 17] {
        let resident = t.pool.get(PageId(id)).is_some();
        let page = t.pool.create(PageId(id)).unwrap();
        assert_eq!(page.page().u64(VALUE), 0, "page {id}, resident: {resident}");
        assert_eq!(page.page().id(), PageId(id));
        page.release_unchanged();
    }
}

#[test]
fn readers_who_slept_through_eviction_notice() {
    let t = pool(16);
    t.make(1, 1);
    t.pool.flush_all().unwrap();
    let frame = t.pool.get(PageId(1)).unwrap();
    let read = frame.read(t.pool.latches());
    let mut seen = std::collections::HashSet::new();
    let mut owners = 0;
    for id in 2..400 {
        t.make(id, 1);
        t.pool.flush_all().unwrap();
        if frame.page_id() == PageId(1) {
            assert!(read.is_valid());
            continue;
        }
        owners += 1;
        assert!(!read.is_valid(), "the frame has got another page");
        seen.insert((frame.page_id(), format!("{:?}", frame.latch.optimistic())));
    }
    assert!(owners > 100);
    assert!(frame.write_at(read.version()).is_none());
    let versions: std::collections::HashSet<_> = seen.iter().map(|(_, version)| version).collect();
    assert_eq!(versions.len(), seen.len(), "two pages have had one version of the frame");
}

#[test]
fn eviction_alone_is_noticed_before_the_frame_is_used_again() {
    let t = pool(16);
    for id in 1..=16 {
        t.make(id, 1);
    }
    t.pool.flush_all().unwrap();
    let frames: Vec<_> = (1..=16).map(|id| t.pool.get(PageId(id)).unwrap()).collect();
    let reads: Vec<_> = frames.iter().map(|frame| frame.read(t.pool.latches())).collect();
    let _reserved = t.pool.reserve(8).unwrap();
    let mut gone = 0;
    for id in 1..=16u32 {
        let (frame, read) = (frames[id as usize - 1], &reads[id as usize - 1]);
        assert_eq!(read.is_valid(), t.pool.get(PageId(id)).is_some());
        assert_eq!(frame.page_id() == PageId(id), read.is_valid());
        gone += u32::from(!read.is_valid());
    }
    assert!(gone >= 8);
}

#[test]
fn the_frame_of_a_withheld_page_comes_free() {
    let t = pool(16);
    t.make(1, 5);
    t.pool.flush_all().unwrap();
    assert!(t.leave(1));
    assert!(t.pool.get(PageId(1)).is_none());
    assert_eq!(t.value(1), 5);
    // The frame has stayed in its queue without a page. It must become free when it leaves the queue.
    assert!(t.leave(1));
    for id in 2..200 {
        t.make(id, 5);
    }
    assert_eq!(t.pool.reserve(12).unwrap().len(), 12);
}

/// Checks that no reader loads a page that no tree contains, or a page beyond the pages in use, independent of the content
/// of the file.
#[test]
fn a_withheld_page_is_not_read() {
    let t = pool(256);
    (1..10).for_each(|id| t.make(id, 5));
    t.pool.flush_all().unwrap();
    assert!((4..7).all(|id| t.pool.withhold(PageId(id))) && t.pool.is_withheld(PageId(4)));
    t.pool.set_pages_end(9);
    (1..10).filter(|id| !(4..7).contains(id)).for_each(|id| assert!(t.leave(id)));
    assert!(t.pool.load_group(&[PageId(3), PageId(5)]));
    t.pool.preload(9).unwrap();
    for id in [4, 5, 6, 9] {
        assert!(t.pool.get(PageId(id)).is_none(), "page {id}");
        assert!(matches!(t.try_value(id), Err(StorageError::CorruptPage { .. })), "page {id}");
    }
    [1, 2, 3, 7, 8].into_iter().for_each(|id| assert_eq!(t.value(id), 5));
    t.pool.readmit(4..6);
    assert_eq!(t.value(4), 5);
    t.make(6, 7);
    assert_eq!(t.value(6), 7, "made anew");
}

/// Checks that a page that is being read cannot be withheld until the read has ended.
#[test]
fn a_page_that_is_being_read_is_withheld_afterwards() {
    let t = pool(32);
    t.make(1, 5);
    t.pool.flush_all().unwrap();
    assert!(t.leave(1));
    let Some(Residency::Absent(entry)) = t.pool.table.place(PageId(1)) else { panic!() };
    let claim = t.pool.claim(PageId(1), entry, t.pool.take_frame(0).unwrap()).unwrap();
    assert!(!t.pool.withhold(PageId(1)));
    claim.read().unwrap();
    assert!(t.pool.withhold(PageId(1)) && t.pool.get(PageId(1)).is_none());
}

/// Checks that a page whose LSN is beyond the durable end of the log closes the instance, on each write path.
#[test]
fn no_page_is_written_before_its_log() {
    let t = pool(16);
    t.pool.grow_to_hold(PageId(9)).unwrap();
    let mut page = PageBytes::boxed();
    crate::page::PageMut::of(&mut page).set_lsn(t.log.append(64));
    // A bulk load waits for the log.
    t.pool.write_direct(PageId(3), page.as_bytes()).unwrap();
    assert_eq!(t.pool.prove(PageId(3), page.as_bytes()).unwrap().first(), PageId(3));
    crate::page::PageMut::of(&mut page).set_lsn(t.log.durable_lsn());
    let error = t.pool.prove(PageId(3), page.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("page 3 was to be written with LSN"), "{error}");
    assert!(t.poison.is_closed());
}

/// Checks that redo treats a page with lost changes as damaged, even if the log has since grown past the page's LSN.
#[test]
fn redo_reads_no_page_from_behind_the_logs_end() {
    let mut options = PoolOptions::new(32);
    options.sound = true;
    let t = pool_over(Arc::default(), options);
    t.pool.grow_to_hold(PageId(6)).unwrap();
    let left = t.log.append(64);
    for (id, lsn) in [(5, Lsn(left.0 - 1)), (6, left)] {
        let mut frame = t.pool.create(PageId(id)).unwrap();
        frame.mark_dirty(lsn);
        frame.page_mut().set_lsn(lsn);
    }
    t.pool.flush_all().unwrap();
    assert!(t.leave(5) && t.leave(6));
    t.pool.redo_until(left);
    t.pool.get_or_load(PageId(5)).unwrap();
    let error = t.pool.get_or_load(PageId(6)).unwrap_err().to_string();
    assert!(error.contains("yet the log ends at"), "{error}");
    t.pool.redo_until(Lsn::MAX);
    t.pool.get_or_load(PageId(6)).unwrap();
}

#[test]
fn the_cleaner_rests_when_all_fits() {
    let t = pool(64);
    for id in 1..60 {
        t.make(id, 1);
    }
    for now in 0..100 {
        assert_eq!(t.pool.clean_step(now, CleanGoal::default()).unwrap(), CleanStep::Idle);
    }
    assert_eq!(t.pool.stats().writes, 0);
}

#[test]
fn the_cleaner_keeps_frames_free() {
    let t = pool(256);
    let wanted = Arc::new(AtomicU32::new(0));
    let count = wanted.clone();
    t.pool.on_cleaner_wanted(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
    for id in 1..=3000 {
        t.make(id, 1);
        if wanted.swap(0, Ordering::Relaxed) > 0 {
            while t.pool.clean_step(0, CleanGoal::default()).unwrap() != CleanStep::Idle {}
            assert!(t.pool.free_frames() >= t.pool.reserve_low);
        }
    }
    let stats = t.pool.stats();
    assert_eq!(stats.writes_by_workers, 0, "{stats:?}");
    assert!(stats.writes > 2000 && stats.write_calls < stats.writes / 2, "neighbours share a write: {stats:?}");
}

#[test]
fn the_cleaner_writes_the_oldest_first_and_then_syncs() {
    let t = pool(2048);
    for id in 1..=1000 {
        t.make(id, 1);
    }
    let goal = CleanGoal { write_before: t.log.tail(), step: u64::MAX };
    for id in 1..=10 {
        t.set(id, 2);
    }
    let before = t.pool.oldest_recovery_lsn().unwrap();
    let mut steps = 0;
    let mut last = before;
    loop {
        match t.pool.clean_step(0, goal).unwrap() {
            CleanStep::Idle => break,
            CleanStep::Worked { pages } => {
                steps += 1;
                assert!(pages <= write::BATCH);
                let now = t.pool.oldest_recovery_lsn();
                assert!(now.is_none_or(|now| now >= last));
                last = now.unwrap_or(Lsn::MAX);
                assert!(last == before || t.file.syncs.load(Ordering::Relaxed) > 0, "nothing counts before the sync");
            }
        }
    }
    assert_eq!(steps, 1000usize.div_ceil(write::BATCH), "the last one syncs as well");
    assert_eq!(t.pool.oldest_recovery_lsn(), None);
    assert_eq!(t.file.syncs.load(Ordering::Relaxed), 1);
    // No pages are left to write for this goal, and the step that detects this is cheap.
    t.set(5, 3);
    assert_eq!(t.pool.clean_step(0, goal).unwrap(), CleanStep::Idle);
}

#[test]
fn a_goal_that_follows_the_log_is_not_chased() {
    let t = pool(64);
    let mut now = 0;
    for round in 0..1000u64 {
        let id = 1 + (round % 40) as u32;
        if round < 40 {
            t.make(id, round)
        } else {
            _ = t.set(id, round)
        }
        now += 1_000_000;
        let goal = CleanGoal { write_before: t.log.tail(), step: u64::MAX };
        while t.pool.clean_step(now, goal).unwrap() != CleanStep::Idle {}
    }
    // The loop takes one second of simulated time, enough for five plans. Each plan covers the pages that became dirty since
    // the previous plan.
    let stats = t.pool.stats();
    assert!(stats.writes <= 5 * 40, "{stats:?}");
    assert!(stats.writes >= 4 * 40, "{stats:?}");
}

#[test]
fn an_idle_database_is_synced_in_the_end() {
    let t = pool(16);
    for id in 1..100 {
        t.make(id, 1);
    }
    while t.pool.clean_step(5, CleanGoal::default()).unwrap() != CleanStep::Idle {}
    assert_eq!(t.file.syncs.load(Ordering::Relaxed), 0);
    let late = 40_000_000_000;
    while t.pool.clean_step(late, CleanGoal::default()).unwrap() != CleanStep::Idle {}
    assert_eq!(t.file.syncs.load(Ordering::Relaxed), 1);
}

/// Checks that the first writer of a preloaded page checks the page's content, and that the read of a single page checks the
/// content at once.
#[test]
fn a_preloaded_page_is_looked_at_once() {
    let t = pool(64);
    for id in 2..=3 {
        t.make(id, 1);
    }
    // A page with a correct checksum and an invalid kind.
    t.pool.get(PageId(3)).unwrap().write(t.pool.latches()).page_mut().put_u8(crate::page::header::KIND, 77);
    t.pool.flush_all().unwrap();
    let again = pool_over(t.file.clone(), PoolOptions { sound: true, ..PoolOptions::new(64) });
    assert_eq!(again.pool.preload(4).unwrap(), 2);
    let flaw = |t: &TestPool, id| t.pool.get(PageId(id)).unwrap().write(t.pool.latches()).flaw();
    assert_eq!(flaw(&again, 2), None);
    for _ in 0..2 {
        assert_eq!(flaw(&again, 3), Some(Flaw::Kind), "still unknown to be sound");
    }
    again.pool.get(PageId(3)).unwrap().write(again.pool.latches()).page_mut().put_u8(crate::page::header::KIND, 0);
    assert_eq!(flaw(&again, 3), None);

    let read = pool_over(t.file.clone(), PoolOptions { sound: true, ..PoolOptions::new(64) });
    // A page must not have an LSN beyond the end of the log.
    read.log.append(1 << 20);
    assert_eq!(read.value(2), 1);
    assert!(read.try_value(3).is_err());
    assert_eq!(flaw(&read, 2), None);
    assert_eq!(flaw(&t, 2), None, "made here");
}

#[test]
fn preload_fills_the_pool_and_no_more() {
    let t = pool(1024);
    for id in 1..=900 {
        t.make(id, u64::from(id));
    }
    t.pool.flush_all().unwrap();
    t.file.bytes.lock()[300 * PAGE_SIZE + 999] ^= 1;
    let big = pool_over(t.file.clone(), PoolOptions::new(2048));
    assert_eq!(big.pool.preload(901).unwrap(), 899);
    let reads = big.pool.stats().reads;
    for id in (1..=900).filter(|id| *id != 300) {
        assert_eq!(big.value(id), u64::from(id));
    }
    assert_eq!(big.pool.stats().reads, reads);
    assert!(big.try_value(300).is_err());

    let small = pool_over(t.file.clone(), PoolOptions::new(400));
    let loaded = small.pool.preload(901).unwrap();
    assert!((200..400).contains(&loaded), "{loaded}");
    assert_eq!(small.pool.stats().evictions, 0);
    assert_eq!(small.value(899), 899);
}

/// Transactions use pages that were written one after the other. These pages must share few large pages of memory.
#[test]
fn pages_that_are_preloaded_are_neighbours_in_memory_as_in_the_file() {
    let t = pool(1024);
    (1..=900).for_each(|id| t.make(id, u64::from(id)));
    t.pool.flush_all().unwrap();
    for homes in [FrameHomes::Shared, FrameHomes::PerThread] {
        let preloaded = pool_over(t.file.clone(), PoolOptions { homes, ..PoolOptions::new(4 * SHARD_FRAMES) });
        assert_eq!(preloaded.pool.preload(901).unwrap(), 900);
        let index = |id| preloaded.pool.index_of(preloaded.pool.get(PageId(id)).unwrap());
        let apart = (1..900).filter(|&id| index(id + 1) != index(id) + 1).count();
        assert!(apart <= 900 / CHUNK, "{homes:?}: {apart} neighbours are apart");
        (1..=900).for_each(|id| assert_eq!(preloaded.value(id), u64::from(id)));
    }
}
