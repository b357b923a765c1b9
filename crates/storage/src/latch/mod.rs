//! Latches: short-term protection of one page in memory.
//!
//! One 64-bit word serves both latch kinds, so one B+tree code serves both:
//!
//! ```text
//!  63            16 15           1 0
//! +----------------+--------------+-+
//! | version        | readers      |X|
//! +----------------+--------------+-+
//! ```
//!
//! * `X`: one holder may write. Releasing it adds one to the version.
//! * `readers`: holders of the shared mode (every reader under `plain`; the cleaner under both).
//! * `version`: changes exactly when a holder of `X` has released. It never goes back, also not when
//!   the frame is given to another page, so a stale reader can never validate by accident.
//!
//! An **optimistic** reader takes nothing: it notes the version while `X` is clear, reads, and then
//! asks whether the version is still the same ([`ReadGuard::is_valid`]). What it read before a
//! successful validation may be torn and must only be used in ways that are safe for any bytes.
//!
//! Rules:
//! 1. No latch is held across a wait for a lock, for I/O or for the log's durability.
//! 2. Latches are taken from the root downwards and from left to right; a holder that wants
//!    anything else must try, and release all latches when it fails.
//! 3. A shared holder never upgrades while keeping its share: [`ReadGuard::upgrade`] releases the share, takes the
//!    exclusive mode and fails when the version has moved.

#![allow(unsafe_code)]

use crate::base::config::LatchKind;
use crate::base::latches::note;
use crate::base::sync::Backoff;
use crate::base::sync::word::{AtomicU64, Ordering, fence};

const EXCLUSIVE: u64 = 1;
const READER: u64 = 2;
const READERS: u64 = 0xFFFE;
const VERSION: u64 = 1 << 16;
const VERSION_MASK: u64 = !(VERSION - 1);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Latch(AtomicU64);

/// A version as an optimistic reader notes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

impl Version {
    /// A version that no latch ever has.
    pub(crate) const NEVER: Version = Version(u64::MAX);
}

impl Latch {
    /// The version, once no writer holds the latch.
    #[inline]
    pub(crate) fn optimistic(&self) -> Version {
        let word = self.0.load(Ordering::Acquire);
        if word & EXCLUSIVE == 0 { Version(word & VERSION_MASK) } else { self.optimistic_slow() }
    }

    #[cold]
    fn optimistic_slow(&self) -> Version {
        let mut backoff = Backoff::default();
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word & EXCLUSIVE == 0 {
                return Version(word & VERSION_MASK);
            }
            backoff.pause();
        }
    }

    /// Whether nothing has been written since `version` was noted.
    #[inline]
    pub(crate) fn validate(&self, version: Version) -> bool {
        // Orders the reads of page bytes before the second look at the word.
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        word & (VERSION_MASK | EXCLUSIVE) == version.0
    }

    /// Takes the exclusive mode if nothing has been written since `version`; waits for readers, not for writers.
    #[inline]
    pub(crate) fn upgrade(&self, version: Version) -> bool {
        if self.0.compare_exchange(version.0, version.0 | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            writes_follow();
            return true;
        }
        self.upgrade_slow(version)
    }

    /// As [`Latch::upgrade`], but gives up when there are readers too: for callers that hold other latches.
    #[inline]
    pub(crate) fn try_upgrade(&self, version: Version) -> bool {
        let taken =
            self.0.compare_exchange(version.0, version.0 | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            writes_follow();
        }
        taken
    }

    #[cold]
    fn upgrade_slow(&self, version: Version) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & (VERSION_MASK | EXCLUSIVE) != version.0 {
                return false;
            }
            if word & READERS == 0
                && self.0.compare_exchange_weak(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                writes_follow();
                return true;
            }
            backoff.pause();
        }
    }

    /// Takes the exclusive mode, waiting for the threads that hold the latch.
    pub(crate) fn lock_exclusive(&self) {
        let mut backoff = Backoff::default();
        while !self.try_lock_exclusive() {
            backoff.pause();
        }
    }

    /// Takes the exclusive mode if no thread holds the latch.
    #[inline]
    pub(crate) fn try_lock_exclusive(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        let taken = word & (EXCLUSIVE | READERS) == 0
            && self.0.compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            writes_follow();
        }
        taken
    }

    /// Gives the exclusive mode back; the version moves on. Only its holder may call this.
    #[inline]
    pub(crate) fn unlock_exclusive(&self) -> Version {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert!(word & EXCLUSIVE != 0);
        note(-1);
        let next = (word & VERSION_MASK).wrapping_add(VERSION);
        self.0.store(next, Ordering::Release);
        Version(next)
    }

    /// Gives the exclusive mode back after having written nothing: the version stays.
    #[inline]
    pub(crate) fn unlock_unchanged(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert!(word & EXCLUSIVE != 0);
        note(-1);
        self.0.store(word & VERSION_MASK, Ordering::Release);
    }

    /// Takes the shared mode, waiting for a writer; returns the version that holds meanwhile.
    pub(crate) fn lock_shared(&self) -> Version {
        let mut backoff = Backoff::default();
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & EXCLUSIVE == 0
                && word & READERS != READERS
                && self.0.compare_exchange_weak(word, word + READER, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                note(1);
                return Version(word & VERSION_MASK);
            }
            backoff.pause();
        }
    }

    /// Takes the shared mode if no writer holds the latch.
    #[cfg(test)]
    pub(crate) fn try_lock_shared(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Relaxed);
        (word & EXCLUSIVE == 0
            && word & READERS != READERS
            && self.0.compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed).is_ok())
        .then(|| {
            note(1);
            Version(word & VERSION_MASK)
        })
    }

    /// Gives the shared mode back.
    #[inline]
    pub(crate) fn unlock_shared(&self) {
        note(-1);
        let before = self.0.fetch_sub(READER, Ordering::Release);
        debug_assert!(before & READERS != 0);
    }
}

/// Keeps the holder's writes behind the word that announces them: an optimistic reader that sees one of them must
/// also see the word. (The acquire of a compare-and-swap orders only what follows its load.)
#[inline]
fn writes_follow() {
    fence(Ordering::Release);
    note(1);
}

/// A reader's hold on a latch: a noted version, and a share under [`LatchKind::Plain`].
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    latch: &'a Latch,
    version: Version,
    shared: bool,
}

impl<'a> ReadGuard<'a> {
    /// Begins to read under the latch kind in force.
    #[inline]
    pub(crate) fn new(latch: &'a Latch, kind: LatchKind) -> ReadGuard<'a> {
        // An optimistic read is a data race by the language's definition: see `page::access`.
        let kind = if cfg!(any(miri, race_free)) { LatchKind::Plain } else { kind };
        match kind {
            LatchKind::Optimistic => ReadGuard { latch, version: latch.optimistic(), shared: false },
            LatchKind::Plain => ReadGuard { latch, version: latch.lock_shared(), shared: true },
        }
    }

    /// Whether everything read so far through this guard was stable.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.shared || self.latch.validate(self.version)
    }

    /// The version noted.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Not inlined: readers hold nothing unless latches are plain, and guards are dropped in many places.
    #[cold]
    fn let_go(&self) {
        self.latch.unlock_shared();
    }

    /// Exchanges reading for writing; false if the page has changed since the guard was made.
    #[inline]
    pub(crate) fn upgrade(mut self) -> bool {
        if self.shared {
            self.shared = false;
            self.latch.unlock_shared();
        }
        self.latch.upgrade(self.version)
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.shared {
            self.let_go();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::latches::assert_none_held;

    #[test]
    fn a_write_moves_the_version_and_fails_readers() {
        let latch = Latch::default();
        let seen = latch.optimistic();
        assert!(latch.validate(seen));
        latch.lock_exclusive();
        assert!(!latch.validate(seen));
        latch.unlock_exclusive();
        assert!(!latch.validate(seen));
        assert!(!latch.upgrade(seen));
        let now = latch.optimistic();
        assert!(latch.upgrade(now));
        latch.unlock_unchanged();
        assert!(latch.validate(now));
    }

    #[test]
    fn shares_do_not_disturb_optimistic_readers_and_keep_writers_out() {
        let latch = Latch::default();
        let seen = latch.optimistic();
        latch.lock_shared();
        assert!(latch.validate(seen));
        assert!(!latch.try_lock_exclusive());
        latch.unlock_shared();
        assert!(latch.try_lock_exclusive());
        assert!(latch.try_lock_shared().is_none());
        latch.unlock_exclusive();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn the_latches_a_thread_holds_are_counted() {
        // In a thread of its own: other tests leak latches that they hold, and may run on the same thread.
        std::thread::spawn(|| {
            let (a, b) = (Latch::default(), Latch::default());
            assert_none_held("the start");
            a.lock_exclusive();
            let share = ReadGuard::new(&b, LatchKind::Plain);
            let caught = std::panic::catch_unwind(|| assert_none_held("a point"));
            let text = *caught.unwrap_err().downcast::<String>().unwrap();
            assert!(text.contains("a latch is held at a point"), "{text}");
            a.unlock_unchanged();
            assert!(std::panic::catch_unwind(|| assert_none_held("a point")).is_err());
            assert!(share.upgrade());
            assert!(std::panic::catch_unwind(|| assert_none_held("a point")).is_err());
            b.unlock_exclusive();
            assert_none_held("the end");
            // An optimistic reader holds nothing; without optimistic reads it takes a share.
            if !cfg!(any(miri, race_free)) {
                let _read = ReadGuard::new(&a, LatchKind::Optimistic);
                assert_none_held("a read section");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn exclusive_is_exclusive_between_threads() {
        struct Cell(Latch, std::cell::UnsafeCell<[u64; 8]>);
        // SAFETY: the cell's content is only touched under the latch, or read optimistically as in pages.
        unsafe impl Sync for Cell {}
        let cell = Cell(Latch::default(), std::cell::UnsafeCell::new([0; 8]));
        let cell = &cell;
        let rounds: u64 = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..rounds {
                        cell.0.lock_exclusive();
                        // SAFETY: the exclusive mode is held.
                        unsafe { (*cell.1.get()).iter_mut().for_each(|x| *x += 1) };
                        cell.0.unlock_exclusive();
                    }
                });
            }
            s.spawn(|| {
                for _ in 0..rounds {
                    let guard = ReadGuard::new(&cell.0, LatchKind::Plain);
                    // SAFETY: a share is held.
                    let all = unsafe { *cell.1.get() };
                    drop(guard);
                    assert!(all.iter().all(|x| *x == all[0]));
                }
            });
        });
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { (*cell.1.get())[0] }, 2 * rounds);
    }
}
