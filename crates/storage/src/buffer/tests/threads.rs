//! Tests with several concurrent threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::base::config::FrameHomes;
use crate::base::hook::{BlockReason, ThreadHook, WaitToken};
use crate::base::ids::PAGE_SIZE;
use crate::base::stop::StopAtEnd;

const PAGES: u32 = 120;

/// Expected content of the pages. `values[id]` changes under the exclusive latch of the page.
struct Shadow {
    values: Vec<AtomicU64>,
    histories: Vec<Mutex<Vec<Lsn>>>,
}

fn update(t: &TestPool, shadow: &Shadow, id: u32) {
    loop {
        let frame = t.pool.get_or_load(PageId(id)).unwrap();
        let mut page = frame.write(t.pool.latches());
        if frame.page_id() != PageId(id) {
            page.release_unchanged();
            continue;
        }
        frame.touch();
        let value = page.page().u64(VALUE) + 1;
        assert_eq!(value, shadow.values[id as usize].load(Ordering::Relaxed) + 1, "page {id} lost an update");
        page.mark_dirty(t.log.tail());
        let lsn = t.log.append(64);
        let mut bytes = page.page_mut();
        bytes.put_u64(VALUE, value);
        bytes.put_u64(PAGE_SIZE - 8, value);
        bytes.set_lsn(lsn);
        shadow.histories[id as usize].lock().push(lsn);
        shadow.values[id as usize].store(value, Ordering::Release);
        return;
    }
}

fn read(t: &TestPool, shadow: &Shadow, id: u32) {
    loop {
        let least = shadow.values[id as usize].load(Ordering::Acquire);
        let frame = t.pool.get_or_load(PageId(id)).unwrap();
        let read = frame.read(t.pool.latches());
        if frame.page_id() != PageId(id) {
            continue;
        }
        let (first, last) = (read.page().u64(VALUE), read.page().u64(PAGE_SIZE - 8));
        if read.is_valid() {
            frame.touch();
            let most = shadow.values[id as usize].load(Ordering::Acquire) + 1;
            assert_eq!(first, last, "page {id} is torn");
            assert!((least..=most).contains(&first), "page {id} is not what was written: {least} {first} {most}");
            return;
        }
    }
}

/// Checks that every change below the pool's oldest recovery LSN is in the file as of its last sync.
fn check_nothing_forgotten(t: &TestPool, shadow: &Shadow) {
    let tail = t.log.tail();
    let oldest = t.pool.oldest_recovery_lsn().unwrap_or(Lsn::MAX).min(tail);
    let synced = t.file.synced.lock();
    for id in 1..=PAGES {
        let history = shadow.histories[id as usize].lock();
        let Some(last) = history.iter().rev().find(|lsn| **lsn < oldest) else { continue };
        let at = id as usize * PAGE_SIZE + crate::page::header::LSN;
        let on_disk = synced.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
        assert!(on_disk >= last.0, "page {id}: {last:?} is below {oldest:?}, the disk has {on_disk}");
    }
}

/// Hook of threads that is reported as cooperative, so that reader threads read the pages if there are any. The threads act as
/// the task that is set.
#[derive(Debug, Default)]
struct Cooperative {
    inner: ThreadHook,
    task: AtomicU64,
}

impl Hook for Cooperative {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn task(&self) -> u64 {
        self.task.load(Ordering::Relaxed)
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        self.inner.block(token, reason);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.inner.block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        self.inner.wake(token);
    }
}

fn run(latches: LatchKind, seed: u64, rounds: u32, readers: usize) {
    println!("seed {seed}, {latches:?}, {readers} readers");
    let options = PoolOptions { latches, promote_at: 1 + seed as u16 % 3, ..PoolOptions::new(24) };
    let t = pool_under(Arc::new(Cooperative::default()), Arc::default(), options);
    if readers > 0 {
        t.pool.open_readers();
    }
    let shadow = Shadow {
        values: (0..=PAGES).map(|_| AtomicU64::new(0)).collect(),
        histories: (0..=PAGES).map(|_| Mutex::default()).collect(),
    };
    for id in 1..=PAGES {
        t.make(id, 0);
    }
    t.pool.flush_all().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (t, shadow) = (&t, &shadow);
                s.spawn(move || {
                    let mut rng = Pcg64::seed_from_u64(seed * 10 + worker);
                    for _ in 0..rounds {
                        // Some pages are used more often than others, so that threads conflict.
                        let id = 1 + rng.random_range(0..PAGES).min(rng.random_range(0..PAGES));
                        match rng.random_range(0..100) {
                            0..50 => read(t, shadow, id),
                            50..96 => update(t, shadow, id),
                            96 => drop(t.pool.reserve(rng.random_range(1..4)).unwrap()),
                            _ => drop(t.pool.load(PageId(id))),
                        }
                    }
                })
            })
            .collect();
        let cleaner = s.spawn(|| {
            let mut rng = Pcg64::seed_from_u64(seed);
            let mut now = 0;
            while !done.load(Ordering::Relaxed) {
                let old = rng.random_bool(0.3);
                let goal = CleanGoal { write_before: if old { t.log.tail() } else { Lsn::ZERO }, step: u64::MAX };
                now += 50_000_000;
                if t.pool.clean_step(now, goal).unwrap() == CleanStep::Idle {
                    std::thread::yield_now();
                }
                if rng.random_bool(0.01) {
                    t.pool.flush_all().unwrap();
                }
                if rng.random_bool(0.05) {
                    t.pool.sync().unwrap();
                }
            }
        });
        let readers: Vec<_> = (0..readers).map(|_| s.spawn(|| t.pool.run_reader())).collect();
        let checker = s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                check_nothing_forgotten(&t, &shadow);
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        let others = [cleaner.join(), checker.join()];
        t.pool.close_readers();
        let readers = readers.into_iter().map(|reader| reader.join());
        results.into_iter().chain(others).chain(readers).for_each(|r| r.unwrap());
    });
    for id in 1..=PAGES {
        assert_eq!(t.value(id), shadow.values[id as usize].load(Ordering::Relaxed));
    }
    let (free, stats) = (t.pool.free_frames(), t.pool.stats());
    println!("{free} free, {stats:?}");
    t.pool.flush_all().unwrap();
    check_nothing_forgotten(&t, &shadow);
    // No frame was lost during the run.
    assert_eq!(t.pool.reserve(24).unwrap().len(), 24);
    let again = pool_over(t.file.clone(), PoolOptions::new(16));
    for id in 1..=PAGES {
        assert_eq!(again.value(id), shadow.values[id as usize].load(Ordering::Relaxed));
    }
}

#[test]
fn updates_reads_and_evictions_agree_optimistic() {
    for seed in 0..4 {
        run(LatchKind::Optimistic, seed, 8_000, 0);
    }
}

#[test]
fn updates_reads_and_evictions_agree_plain() {
    for seed in 10..14 {
        run(LatchKind::Plain, seed, if cfg!(miri) { 50 } else { 8_000 }, 0);
    }
}

#[test]
fn updates_reads_and_evictions_agree_super() {
    for seed in 30..34 {
        run(LatchKind::Super, seed, if cfg!(miri) { 50 } else { 8_000 }, 0);
    }
}

#[test]
fn updates_reads_and_evictions_agree_where_others_read() {
    for (seed, latches) in (20..26).zip([LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super].into_iter().cycle())
    {
        run(latches, seed, if cfg!(miri) { 50 } else { 8_000 }, 2);
    }
}

#[test]
fn a_page_wanted_by_many_is_read_once() {
    let t = pool(16);
    for id in 1..=400 {
        t.make(id, u64::from(id));
    }
    t.pool.flush_all().unwrap();
    let t = pool_over(t.file.clone(), PoolOptions::new(512));
    t.file.read_delay_us.store(200, Ordering::Relaxed);
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for id in 1..=100 {
                    barrier.wait();
                    assert_eq!(t.value(id), u64::from(id));
                }
            });
        }
    });
    let stats = t.pool.stats();
    println!("{stats:?}");
    assert_eq!(stats.reads, 100);
    assert!(stats.load_waits > 0);
}

#[test]
fn waiters_hear_of_a_failed_read() {
    let t = pool(16);
    t.make(1, 1);
    t.pool.flush_all().unwrap();
    t.file.read_delay_us.store(2_000, Ordering::Relaxed);
    for _ in 0..20 {
        let t = pool_over(t.file.clone(), PoolOptions::new(16));
        t.file.fail_reads.store(true, Ordering::Relaxed);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| assert!(matches!(t.try_value(1), Err(StorageError::Io { op: "read", .. }))));
            }
        });
        t.file.fail_reads.store(false, Ordering::Relaxed);
        assert_eq!(t.value(1), 1);
        assert_eq!(t.pool.reserve(15).unwrap().len(), 15, "no frame was lost");
    }
}

#[test]
fn pages_created_while_stale_readers_load_them_are_the_new_ones() {
    let t = pool(32);
    for id in 1..=60 {
        t.make(id, 1);
    }
    t.pool.flush_all().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut rng = Pcg64::seed_from_u64(9);
            while !done.load(Ordering::Relaxed) {
                // The result does not matter; the read must not disturb the other threads.
                let _ = t.try_value(rng.random_range(1..=60));
            }
        });
        s.spawn(|| {
            let _told = StopAtEnd(&done);
            for value in 2..400u64 {
                for id in 1..=60 {
                    if id % 3 == 0 {
                        t.make(id, value);
                    }
                }
                for id in 1..=60 {
                    if id % 3 == 0 {
                        assert_eq!(t.value(id), value, "page {id}");
                    }
                }
            }
        });
    });
}

/// Threads with home shards take frames in chunks. No frame is lost or assigned twice.
#[cfg(not(miri))]
#[test]
fn threads_with_homes_share_the_pool_out() {
    const FRAMES: usize = 2 * SHARD_FRAMES + 100;
    const EACH: u32 = 2_600;
    let options = PoolOptions { homes: FrameHomes::PerThread, ..PoolOptions::new(FRAMES) };
    let t = pool_over(Arc::default(), options);
    let made = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (t, made) = (&t, &made);
            scope.spawn(move || {
                let own = 1 + thread * EACH..1 + (thread + 1) * EACH;
                own.clone().for_each(|id| t.make(id, u64::from(id)));
                made.wait();
                // More pages than frames: both threads evict.
                (1..=2 * EACH).for_each(|id| assert_eq!(t.value(id), u64::from(id)));
            });
        }
    });
    let mut pages: Vec<u32> = t.pool.used_frames().iter().map(|f| f.page_id().0).filter(|&id| id != 0).collect();
    assert_eq!(pages.len() + t.pool.free_frames(), t.pool.frame_count(), "a frame has a page or is free");
    pages.sort_unstable();
    let resident = pages.len();
    pages.dedup();
    assert_eq!(pages.len(), resident, "no page has two frames");
    assert!(pages.iter().all(|&id| t.pool.get(PageId(id)).is_some_and(|frame| frame.page_id() == PageId(id))));
    let stats = t.pool.stats();
    assert!(stats.evictions > 0 && stats.reads > 0, "{stats:?}");
}

/// A task whose home shard has one frame for pages reads a page and the page below it, as a descent does: a miss of the
/// second page begins the descent again. The two pages must not evict each other without end.
#[test]
fn pages_of_a_descent_stay_in_a_small_home() {
    let hook = Arc::new(Cooperative::default());
    let sizes = PoolOptions { simulated: true, shard_frames: 32, home_chunk: 8, ..PoolOptions::new(64) };
    let t = pool_under(hook.clone(), Arc::default(), PoolOptions { homes: FrameHomes::PerThread, ..sizes });
    let _reserved = t.pool.reserve(7).unwrap();
    hook.task.store(1, Ordering::Relaxed);
    (1..200).for_each(|id| t.make(id, u64::from(id)));
    t.pool.flush_all().unwrap();
    hook.task.store(0, Ordering::Relaxed);
    for parent in (1..100).step_by(2) {
        let descent = || {
            t.value(parent);
            let found = t.pool.get(PageId(parent + 1)).is_some();
            if !found {
                t.pool.load(PageId(parent + 1)).unwrap();
            }
            found
        };
        assert!((0..20).any(|_| descent()), "pages {parent} and {} evict each other", parent + 1);
    }
}

/// Checks that a reader's wait for a writer is counted for the index of the page.
#[test]
fn a_wait_for_a_latch_is_counted_for_the_index_of_its_page() {
    let t = pool(64);
    t.make(3, 1);
    let frame = t.pool.get(PageId(3)).unwrap();
    let waits = t.pool.latches().waits();
    assert_eq!(waits.total().count, 0);
    // The reader may begin only after the writer has ended.
    for _ in 0..1000 {
        if waits.total().count > 0 {
            break;
        }
        let begins = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = frame.write(t.pool.latches());
            scope.spawn(|| {
                begins.store(true, Ordering::Relaxed);
                frame.read(t.pool.latches()).page().index()
            });
            while !begins.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            (0..100).for_each(|_| std::thread::yield_now());
            writer.release_unchanged();
        });
    }
    let index = frame.read(t.pool.latches()).page().index();
    assert_eq!(waits.by_index().collect::<Vec<_>>(), [(index, waits.total())]);
    assert!(waits.total().ns > 0);
}
