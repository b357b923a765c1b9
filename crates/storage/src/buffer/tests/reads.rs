//! Reads while other fibers run. A thread of fibers is simulated by a hook that runs the next fiber whenever one blocks.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::frame::FrameWrite;
use super::super::load::{ReadBy, Ticket};
use super::super::testing::MemoryFile;
use super::*;
use crate::base::hook::{BlockReason, ThreadHook, WaitToken};

type Mate = Box<dyn FnOnce() + Send>;

/// Hook that runs other fibers on the thread of the fiber that blocks, and sleeps when no fiber is left.
#[derive(Default)]
struct Mates {
    mates: Mutex<VecDeque<Mate>>,
    threads: ThreadHook,
}

impl std::fmt::Debug for Mates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mates").finish_non_exhaustive()
    }
}

impl Mates {
    fn add(&self, mate: impl FnOnce() + Send + 'static) {
        self.mates.lock().push_back(Box::new(mate));
    }
}

impl Hook for Mates {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        assert_eq!(reason, BlockReason::PageRead);
        loop {
            let mate = self.mates.lock().pop_front();
            match mate {
                Some(mate) => mate(),
                None => return self.threads.block(token, reason),
            }
        }
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.threads.block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
    }
}

/// Creates a file of pages 1 to 40. The value of each page is its number.
fn file() -> Arc<MemoryFile> {
    let t = pool(16);
    for id in 1..=40 {
        t.make(id, u64::from(id));
    }
    t.pool.flush_all().unwrap();
    t.file
}

/// Runs `test` on an empty pool over the file of `file`, served by `readers` reader threads.
fn with_readers(frames: usize, readers: usize, test: impl FnOnce(&Arc<TestPool>, &Mates)) {
    let hook = Arc::new(Mates::default());
    let t = Arc::new(pool_under(hook.clone(), file(), PoolOptions::new(frames)));
    t.pool.open_readers();
    std::thread::scope(|scope| {
        let _closes = Closes(&t);
        for _ in 0..readers {
            scope.spawn(|| t.pool.run_reader());
        }
        test(&t, &hook);
    });
    assert_eq!(t.pool.reserve(frames).unwrap().len(), frames, "a frame was lost");
}

/// Guard that ends the readers, even if a test fails.
struct Closes<'t>(&'t TestPool);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.file.is_shut.store(false, Ordering::Release);
        self.0.pool.close_readers();
    }
}

#[test]
fn while_a_page_is_read_a_mate_goes_on() {
    with_readers(32, 1, |t, hook| {
        assert_eq!(t.value(2), 2);
        t.file.is_shut.store(true, Ordering::Release);
        let mate = t.clone();
        hook.add(move || {
            assert_eq!(mate.value(2), 2, "what is in memory is to be had");
            assert_eq!(mate.pool.stats().reads, 1, "page 1 is still being read");
            mate.set(2, 22);
            mate.file.is_shut.store(false, Ordering::Release);
        });
        assert_eq!(t.value(1), 1);
        assert_eq!(t.value(2), 22);
        assert_eq!(t.pool.stats().handed_over, 2);
    });
}

#[test]
fn no_latch_is_held_while_the_disk_is_read() {
    for latches in [LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super] {
        let t = pool_over(file(), PoolOptions { latches, promote_at: 1, ..PoolOptions::new(16) });
        // Every frame has held a page, so each of these references is stale.
        (1..=40).for_each(|id| assert_eq!(t.value(id), u64::from(id)));
        let stale: Vec<&Frame> = (0..16).map(|i| t.pool.frame(i)).collect();
        t.file.is_shut.store(true, Ordering::Release);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| t.value(1));
            while t.file.reads.load(Ordering::Acquire) <= 40 {
                std::thread::yield_now();
            }
            let held = stale.iter().filter(|frame| frame.try_write().map(FrameWrite::release_unchanged).is_none());
            let held = held.count();
            t.file.is_shut.store(false, Ordering::Release);
            assert_eq!((held, reader.join().unwrap()), (0, 1), "{latches:?}");
        });
    }
}

#[test]
fn what_the_system_has_in_memory_is_read_at_once() {
    with_readers(32, 0, |t, _| {
        t.file.resident.store(true, Ordering::Relaxed);
        (1..=40).for_each(|id| assert_eq!(t.value(id), u64::from(id)));
        assert_eq!((t.pool.stats().reads, t.pool.stats().handed_over), (40, 0));
    });
}

/// Requests page 1 from two fibers of one thread. Returns the result of each fiber.
fn both_want_page_1(t: &Arc<TestPool>, hook: &Mates) -> [Result<u64, StorageError>; 2] {
    let other = Arc::new(Mutex::new(None));
    t.file.is_shut.store(true, Ordering::Release);
    let before = t.file.reads.load(Ordering::Relaxed);
    let (mate, found) = (t.clone(), other.clone());
    hook.add(move || *found.lock() = Some(mate.try_value(1)));
    let opener = t.clone();
    hook.add(move || opener.file.is_shut.store(false, Ordering::Release));
    let one = t.try_value(1);
    assert_eq!(t.file.reads.load(Ordering::Relaxed) - before, 1, "one read for both");
    let other = other.lock().take().unwrap();
    [one, other]
}

#[test]
fn all_that_wait_hear_of_a_read_that_fails() {
    with_readers(32, 2, |t, hook| {
        t.file.fail_reads.store(true, Ordering::Relaxed);
        for result in both_want_page_1(t, hook) {
            assert!(matches!(result, Err(StorageError::Io { op: "read", .. })), "{result:?}");
        }
        t.file.fail_reads.store(false, Ordering::Relaxed);
        t.file.bytes.lock()[8192 + 4000] ^= 1;
        for result in both_want_page_1(t, hook) {
            let message = result.unwrap_err().to_string();
            assert!(message.contains("page 1 fails its checksum"), "{message}");
        }
        t.file.bytes.lock()[8192 + 4000] ^= 1;
        t.file.panic_reads.store(true, Ordering::Relaxed);
        for result in both_want_page_1(t, hook) {
            let message = result.unwrap_err().to_string();
            assert!(message.contains("panicked"), "{message}");
        }
        t.file.panic_reads.store(false, Ordering::Relaxed);
        assert_eq!(both_want_page_1(t, hook).map(Result::unwrap), [1, 1]);
        assert!(!t.poison.is_closed());
    });
}

#[test]
fn pages_of_a_group_are_read_at_the_same_time() {
    with_readers(1024, 2, |t, hook| {
        t.file.is_shut.store(true, Ordering::Release);
        let mate = t.clone();
        hook.add(move || {
            assert_eq!(mate.pool.stats().handed_over, 8, "all are on their way before one has come");
            mate.file.is_shut.store(false, Ordering::Release);
        });
        let pages: Vec<PageId> = (1..=8).map(PageId).collect();
        assert!(t.pool.load_group(&pages));
        assert!(pages.iter().all(|id| t.pool.get(*id).is_some()));
        // The error of a single page must not be an error of the group.
        t.file.fail_reads.store(true, Ordering::Relaxed);
        assert!(t.pool.load_group(&[PageId(9), PageId(999)]));
        assert!(!t.pool.load_group(&[PageId(999)]));
        t.file.fail_reads.store(false, Ordering::Relaxed);
        assert_eq!(t.value(9), 9);
    });
    with_readers(63, 0, |t, _| assert!(!t.pool.load_group(&[PageId(1)]), "no group pushes others out of a small pool"));
}

#[test]
fn a_thread_reads_pages_of_a_group_beside_the_readers() {
    let t = Arc::new(pool_under(Arc::new(ThreadHook::default()), file(), PoolOptions::new(1024)));
    let (pool, wanted) = (Arc::downgrade(&t), Arc::new(AtomicU64::new(0)));
    let counted = wanted.clone();
    t.pool.on_readers_wanted(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        pool.upgrade().unwrap().pool.open_readers();
    }));
    // The calling thread reads a page that is alone, or a page among pages of the operating system's page cache.
    assert_eq!(t.value(1), 1);
    assert!(t.pool.load_group(&[PageId(2)]));
    t.file.resident.store(true, Ordering::Relaxed);
    assert!(t.pool.load_group(&[PageId(3), PageId(4)]));
    t.file.resident.store(false, Ordering::Relaxed);
    assert_eq!((wanted.load(Ordering::Relaxed), t.pool.stats().handed_over), (0, 0));
    // No reader serves the queue, so the calling thread performs all jobs in it.
    assert!(t.pool.load_group(&[PageId(5), PageId(6), PageId(7)]));
    assert_eq!((wanted.load(Ordering::Relaxed), t.pool.stats().handed_over, t.pool.readers.waiting()), (1, 2, 0));
    // With two readers, three reads are in progress at the same time.
    let before = t.file.reads.load(Ordering::Acquire);
    t.file.is_shut.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let _closes = Closes(&t);
        (0..2).for_each(|_| drop(scope.spawn(|| t.pool.run_reader())));
        let group = scope.spawn(|| t.pool.load_group(&[8, 9, 10, 11, 12].map(PageId)));
        while t.file.reads.load(Ordering::Acquire) < before + 3 && !group.is_finished() {
            std::thread::yield_now();
        }
        t.file.is_shut.store(false, Ordering::Release);
        assert!(group.join().unwrap());
        assert_eq!((t.pool.stats().handed_over, wanted.load(Ordering::Relaxed)), (6, 1));
        (5..=12).for_each(|id| assert!(t.pool.get(PageId(id)).is_some(), "page {id}"));
    });
    assert_eq!(t.file.reads.load(Ordering::Acquire), before + 5, "each page is read once");
    assert!(!t.pool.reads_in_parallel());
    assert!(t.pool.load_group(&[PageId(13), PageId(14)]));
    assert_eq!(t.pool.stats().handed_over, 6, "closed readers take no jobs");
    assert_eq!(wanted.load(Ordering::Relaxed), 1, "and are not started again");
}

#[test]
fn closing_reads_what_was_asked_for() {
    with_readers(32, 0, |t, _| {
        let ticket = Ticket::new();
        for id in 1..=5 {
            assert!(
                t.pool
                    .begin_load(PageId(id), ReadBy::Reader, &ticket, &|hint| t.pool.take_frame(hint).map(Some))
                    .unwrap()
            );
        }
        assert_eq!((t.pool.stats().reads, t.pool.readers.waiting()), (0, 5));
        t.pool.close_readers();
        assert_eq!(t.pool.stats().reads, 5);
        ticket.wait(&ThreadHook::default()).unwrap();
        assert_eq!(t.value(6), 6, "from now on each reads for itself");
        assert_eq!(t.pool.stats().handed_over, 5);
    });
}

#[test]
fn a_page_created_while_it_is_read_is_the_new_one_and_no_reader_is_waited_for() {
    with_readers(32, 0, |t, _| {
        let begin = |ticket: &Arc<Ticket>| {
            t.pool.begin_load(PageId(5), ReadBy::Reader, ticket, &|hint| t.pool.take_frame(hint).map(Some)).unwrap()
        };
        let (first, second) = (Ticket::new(), Ticket::new());
        assert!(begin(&first));
        // A slow reader has the bytes of the former page.
        let mut late = t.pool.take_up(t.pool.readers.next(false).unwrap());
        let at = late.id().offset() as usize;
        late.bytes().copy_from_slice(&t.file.bytes.lock()[at..at + PAGE_SIZE]);
        t.make(5, 55);
        assert_eq!(t.value(5), 55);
        t.pool.flush_all().unwrap();
        assert!(t.leave(5));
        // Another reader begins to read the new page.
        assert!(begin(&second));
        late.finish(Ok(())).unwrap();
        assert!(t.pool.get(PageId(5)).is_none(), "the late reader took the other's claim for its own");
        first.wait(&ThreadHook::default()).unwrap();
        assert!(t.pool.step_reader());
        second.wait(&ThreadHook::default()).unwrap();
        assert_eq!(t.value(5), 55);
    });
}
