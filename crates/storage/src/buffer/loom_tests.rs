//! Loom models of the page table and the latches of frames, under every order of steps: `cargo xtask loom`.
//!
//! The models repeat the steps of readers, loaders and evictors on frames of one word. Loom's atomics cannot be part of real
//! frames, whose memory is a mapping that the operating system zeroes.
#![allow(unsafe_code)]
#![cfg_attr(not(test), allow(dead_code))]

use std::io;
use std::ops::Range;

use crate::base::arena::PageSize;

/// Replacement for the arena's memory mapping.
#[derive(Debug)]
pub(super) struct Arena<T>(Box<[T]>);

impl<T: Default> Arena<T> {
    pub(super) fn new(len: usize, _memory: PageSize) -> io::Result<Arena<T>> {
        Ok(Arena((0..len).map(|_| T::default()).collect()))
    }

    pub(super) fn range(&self) -> std::ops::Range<usize> {
        let Range { start, end } = self.0.as_ptr_range();
        start.addr()..end.addr()
    }

    pub(super) fn as_slice(&self) -> &[T] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use loom::thread;

    use crate::base::arena::PageSize;
    use crate::base::ids::PageId;
    use crate::buffer::page_table::{PageTable, Residency};
    use crate::latch::Latch;

    const PAGES: u32 = 3;

    /// A frame of one word. Its value is 100 times the number of the page in the frame.
    #[derive(Default)]
    struct Frame {
        latch: Latch,
        page_id: AtomicU32,
        word: AtomicU64,
    }

    struct Pool {
        table: PageTable,
        frames: [Frame; 2],
    }

    impl Pool {
        /// Creates a pool with pages 1 to `resident` in the frames.
        fn with(resident: u32) -> Arc<Pool> {
            let pool =
                Arc::new(Pool { table: PageTable::new(PAGES, PageSize::Usual).unwrap(), frames: Default::default() });
            for id in 1..=resident {
                assert!(pool.load(id, id - 1));
            }
            pool
        }

        /// Loads the page into a free frame, like `BufferPool::load`. Returns false if another thread loads the page.
        fn load(&self, id: u32, frame: u32) -> bool {
            let Some(Residency::Absent(entry)) = self.table.place(PageId(id)) else { return false };
            if !self.table.claim(PageId(id), entry, frame) {
                return false;
            }
            let place = &self.frames[frame as usize];
            // No latch is held during the read of the file: no other thread uses a frame without a page.
            place.word.store(u64::from(id) * 100, Ordering::Relaxed);
            place.latch.lock_exclusive();
            let mine = self.table.publish(PageId(id), frame);
            if mine {
                place.page_id.store(id, Ordering::Relaxed);
            }
            place.latch.unlock_exclusive();
            mine
        }

        /// Creates the page, which may be absent or being read, like `ReservedFrames::create`. The word of a created page is
        /// one more than the word of a loaded page.
        fn create(&self, id: u32, frame: u32) -> bool {
            loop {
                let Some(Residency::Absent(entry) | Residency::Loading(entry)) = self.table.place(PageId(id)) else {
                    return false;
                };
                let place = &self.frames[frame as usize];
                place.latch.lock_exclusive();
                if self.table.install(PageId(id), entry, frame) {
                    place.page_id.store(id, Ordering::Relaxed);
                    place.word.store(u64::from(id) * 100 + 1, Ordering::Relaxed);
                    place.latch.unlock_exclusive();
                    return true;
                }
                place.latch.unlock_unchanged();
            }
        }

        /// Removes the page from its frame if no thread holds the latch, like an eviction. The frame is then free.
        fn evict(&self, id: u32, frame: u32) -> bool {
            let place = &self.frames[frame as usize];
            if !place.latch.try_lock_exclusive() {
                return false;
            }
            let here = place.page_id.load(Ordering::Relaxed) == id;
            if here {
                self.table.remove(PageId(id), frame, Some(7));
                place.page_id.store(u32::MAX, Ordering::Relaxed);
                place.latch.unlock_exclusive();
            } else {
                place.latch.unlock_unchanged();
            }
            here
        }

        /// Reads optimistically: returns the page's word if the page was in the frame during the whole read.
        fn read(&self, id: u32) -> Option<u64> {
            let frame = self.frames.get(self.table.frame_of(PageId(id)))?;
            let version = frame.latch.optimistic();
            let (here, word) = (frame.page_id.load(Ordering::Relaxed) == id, frame.word.load(Ordering::Relaxed));
            (here && frame.latch.validate(version)).then_some(word)
        }
    }

    fn model(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(f);
    }

    fn spawn<R: 'static>(pool: &Arc<Pool>, f: impl FnOnce(&Pool) -> R + 'static) -> thread::JoinHandle<R> {
        let pool = pool.clone();
        thread::spawn(move || f(&pool))
    }

    #[test]
    fn loom_one_loader_brings_a_page_in() {
        model(|| {
            let pool = Pool::with(0);
            let other = spawn(&pool, |pool| pool.load(1, 0));
            let mine = pool.load(1, 1);
            let seen = pool.read(1);
            assert!(seen.is_none_or(|word| word == 100));
            assert!(mine ^ other.join().unwrap(), "two loaders or none");
            assert_eq!(pool.read(1), Some(100));
        });
    }

    #[test]
    fn loom_a_reader_never_takes_one_page_for_another() {
        model(|| {
            let pool = Pool::with(1);
            // The frame of page 1 is given to page 2.
            let evictor = spawn(&pool, |pool| pool.evict(1, 0) && pool.load(2, 0));
            for id in [1, 2] {
                if let Some(word) = pool.read(id) {
                    assert_eq!(word, u64::from(id) * 100);
                }
            }
            assert!(evictor.join().unwrap());
            assert_eq!((pool.read(1), pool.read(2)), (None, Some(200)));
        });
    }

    #[test]
    fn loom_a_version_from_before_an_eviction_is_worth_nothing_after_it() {
        model(|| {
            let pool = Pool::with(1);
            let version = pool.frames[0].latch.optimistic();
            // Eviction and reload: the same page in the same frame.
            let evictor = spawn(&pool, |pool| pool.evict(1, 0) && pool.load(1, 0));
            let upgraded = pool.frames[0].latch.upgrade(version);
            if upgraded {
                assert_eq!(pool.frames[0].page_id.load(Ordering::Relaxed), 1);
                pool.frames[0].latch.unlock_unchanged();
            }
            let moved = evictor.join().unwrap();
            assert!(!moved || !pool.frames[0].latch.validate(version));
            assert!(moved || upgraded, "only the upgrade can have been in the evictor's way");
        });
    }

    #[test]
    fn loom_a_page_created_while_it_is_read_is_the_new_one() {
        model(|| {
            let pool = Pool::with(0);
            let loader = spawn(&pool, |pool| pool.load(1, 1));
            let created = pool.create(1, 0);
            let loaded = loader.join().unwrap();
            assert!(created ^ loaded, "the page is in two frames, or in none");
            assert_eq!(pool.read(1), Some(if created { 101 } else { 100 }));
        });
    }

    #[test]
    fn loom_of_eviction_and_install_no_page_is_in_two_frames() {
        model(|| {
            let pool = Pool::with(1);
            let loader = spawn(&pool, |pool| pool.load(1, 1));
            let evicted = pool.evict(1, 0);
            let loaded = loader.join().unwrap();
            match pool.table.place(PageId(1)) {
                Some(Residency::Frame(1)) => assert!(evicted && loaded),
                Some(Residency::Absent(_)) => assert!(evicted && !loaded),
                other => panic!("{other:?}"),
            }
        });
    }
}
