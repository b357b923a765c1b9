#![doc = include_str!("README.md")]

mod guard;
#[cfg(feature = "measure")]
pub(crate) mod measure;
mod share;
mod stats;
mod superlatch;
mod words;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use self::superlatch::{Heat, PROMOTED};
use crate::base::latches::note;
use crate::base::sync::Backoff;
use crate::base::sync::word::{AtomicU64, Ordering, fence};

pub(crate) use self::guard::{Latching, ReadGuard};
pub(crate) use self::share::Share;
pub(crate) use self::stats::LatchStats;
pub(crate) use self::superlatch::PROMOTE_AT;
#[cfg(feature = "measure")]
pub(crate) use self::words::lines as reader_words;
pub(crate) use self::words::{MOST_WORDS, provide as provide_words};

const EXCLUSIVE: u64 = 1;
const READER: u64 = 2;
/// Shares, or, with [`PROMOTED`], where they are counted.
const READERS: u64 = 0xFFFE;
const MOST_READERS: u64 = READERS & !PROMOTED;
const VERSION: u64 = 1 << 16;
const VERSION_MASK: u64 = !(VERSION - 1);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    word: AtomicU64,
    /// Written by readers under [`LatchKind::Super`](crate::LatchKind::Super) only.
    heat: Heat,
}

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
        let word = self.word.load(Ordering::Acquire);
        if word & EXCLUSIVE == 0 { Version(word & VERSION_MASK) } else { self.optimistic_slow() }
    }

    #[cold]
    fn optimistic_slow(&self) -> Version {
        let mut backoff = Backoff::default();
        loop {
            let word = self.word.load(Ordering::Acquire);
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
        let word = self.word.load(Ordering::Relaxed);
        word & (VERSION_MASK | EXCLUSIVE) == version.0
    }

    /// Takes the exclusive mode if nothing has been written since `version`; waits for readers, not for writers.
    #[inline]
    pub(crate) fn upgrade(&self, version: Version) -> bool {
        if self.word.compare_exchange(version.0, version.0 | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            writes_follow();
            return true;
        }
        self.upgrade_slow(version)
    }

    /// As [`Latch::upgrade`], but gives up when there are readers too: for callers that hold other latches.
    #[inline]
    pub(crate) fn try_upgrade(&self, version: Version) -> bool {
        let taken =
            self.word.compare_exchange(version.0, version.0 | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            writes_follow();
            return true;
        }
        self.try_upgrade_promoted(version)
    }

    #[cold]
    fn try_upgrade_promoted(&self, version: Version) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & (VERSION_MASK | EXCLUSIVE) == version.0 && self.try_lock_promoted(word)
    }

    #[cold]
    fn upgrade_slow(&self, version: Version) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & (VERSION_MASK | EXCLUSIVE) != version.0 {
                return false;
            }
            if self.lock_promoted(word) {
                return true;
            }
            if word & READERS == 0
                && self.word.compare_exchange_weak(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok()
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
        while !self.try_lock_exclusive() && !self.lock_promoted(self.word.load(Ordering::Relaxed)) {
            backoff.pause();
        }
    }

    /// Takes the exclusive mode if no thread holds the latch.
    #[inline]
    pub(crate) fn try_lock_exclusive(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let taken = word & (EXCLUSIVE | READERS) == 0
            && self.word.compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            writes_follow();
            return true;
        }
        self.try_lock_promoted(word)
    }

    /// Gives the exclusive mode back; the version moves on. Only its holder may call this.
    #[inline]
    pub(crate) fn unlock_exclusive(&self) -> Version {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & EXCLUSIVE != 0);
        note(-1);
        let next = (word & VERSION_MASK).wrapping_add(VERSION);
        self.word.store(next, Ordering::Release);
        Version(next)
    }

    /// Gives the exclusive mode back after having written nothing: the version stays.
    #[inline]
    pub(crate) fn unlock_unchanged(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & EXCLUSIVE != 0);
        note(-1);
        self.word.store(word & VERSION_MASK, Ordering::Release);
    }

    /// Takes a share, waiting for a writer; returns the version that holds meanwhile. Counts nothing and promotes nothing,
    /// but takes a share of a promoted latch as well: the cleaner and copies read pages so under every kind.
    pub(crate) fn lock_shared(&self) -> (Share<'_>, Version) {
        let mut backoff = Backoff::default();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if let Some(held) = self.try_share_plain(word).or_else(|| self.try_share_in_background(word)) {
                return held;
            }
            backoff.pause();
        }
    }

    /// Takes a share that the latch's own word counts, if that is still as it was seen.
    #[inline(always)]
    fn try_share_plain(&self, word: u64) -> Option<(Share<'_>, Version)> {
        let taken = word & (EXCLUSIVE | PROMOTED) == 0
            && word & READERS != MOST_READERS
            && self.word.compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then(|| {
            note(1);
            (Share(&self.word), Version(word & VERSION_MASK))
        })
    }

    /// Takes a share that a reader word counts, if there is one and no writer.
    #[cold]
    fn try_share_in_background(&self, word: u64) -> Option<(Share<'_>, Version)> {
        let is_open = word & (EXCLUSIVE | PROMOTED) == PROMOTED;
        if is_open { self.try_share_promoted(word, words::background_row()) } else { None }
    }

    /// Takes a share if no writer holds the latch.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn try_lock_shared(&self) -> Option<(Share<'_>, Version)> {
        let word = self.word.load(Ordering::Relaxed);
        self.try_share_plain(word).or_else(|| self.try_share_in_background(word))
    }
}

/// Keeps the holder's writes behind the word that announces them: an optimistic reader that sees one of them must
/// also see the word. (The acquire of a compare-and-swap orders only what follows its load.)
#[inline]
fn writes_follow() {
    fence(Ordering::Release);
    note(1);
}
