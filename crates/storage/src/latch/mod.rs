#![doc = include_str!("README.md")]

mod guard;
#[cfg(feature = "measure")]
pub(crate) mod measure;
mod retreat;
mod share;
mod stats;
mod superlatch;
mod waits;
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
pub(crate) use self::retreat::Retreat;
pub(crate) use self::share::Share;
pub(crate) use self::stats::LatchStats;
pub(crate) use self::superlatch::PROMOTE_AT;
pub(crate) use self::waits::LatchWaits;
#[cfg(feature = "measure")]
pub(crate) use self::words::lines as reader_words;
pub(crate) use self::words::{MOST_WORDS, provide as provide_words};

const EXCLUSIVE: u64 = 1;
const READER: u64 = 2;
/// Mask of the number of shares or, with [`PROMOTED`], of the number of the set of words that counts the shares.
const READERS: u64 = 0xFFFE;
const MOST_READERS: u64 = READERS & !PROMOTED;
const VERSION: u64 = 1 << 16;
const VERSION_MASK: u64 = !(VERSION - 1);

/// Page latch: see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    word: AtomicU64,
    /// Count of recent reads, written only by readers under [`LatchKind::Super`](crate::LatchKind::Super).
    heat: Heat,
}

/// Version of a latch, as recorded by an optimistic reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

impl Version {
    /// Version that no latch ever has.
    pub(crate) const NEVER: Version = Version(u64::MAX);

    /// Returns the number of writes between an earlier version of the same latch and this one. The result is arbitrary for
    /// versions of different latches.
    pub(crate) fn writes_since(self, earlier: Version) -> u64 {
        (self.0 / VERSION).wrapping_sub(earlier.0 / VERSION)
    }

    /// Returns the version as a number, for [`Version::of_bits`].
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns the version that has this number.
    pub(crate) fn of_bits(bits: u64) -> Version {
        Version(bits)
    }
}

impl Latch {
    /// Offset of the word in bytes.
    #[cfg(feature = "measure")]
    pub(crate) const WORD: usize = std::mem::offset_of!(Latch, word);

    /// Waits until no writer holds the latch, and returns the latch's version.
    pub(crate) fn optimistic(&self) -> Version {
        let mut backoff = Backoff::default();
        loop {
            if let Some(version) = self.try_optimistic() {
                return version;
            }
            backoff.pause();
        }
    }

    /// Returns the latch's version if no writer holds the latch.
    #[inline]
    pub(crate) fn try_optimistic(&self) -> Option<Version> {
        let word = self.word.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION_MASK))
    }

    /// Returns true if nothing has been written since `version` was recorded.
    #[inline]
    pub(crate) fn validate(&self, version: Version) -> bool {
        // Orders the reads of page bytes before the second load of the word.
        fence(Ordering::Acquire);
        let word = self.word.load(Ordering::Relaxed);
        word & (VERSION_MASK | EXCLUSIVE) == version.0
    }

    /// Acquires the exclusive mode if nothing has been written since `version`. Waits for readers, not for writers.
    #[inline]
    pub(crate) fn upgrade(&self, version: Version) -> bool {
        if self.word.compare_exchange(version.0, version.0 | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            writes_follow();
            return true;
        }
        self.upgrade_slow(version)
    }

    /// Like [`Latch::upgrade`], but also fails if readers hold the latch and do not leave soon. Used by callers that hold
    /// other latches.
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

    /// Acquires the exclusive mode. Waits for the threads that hold the latch.
    pub(crate) fn lock_exclusive(&self) {
        let mut backoff = Backoff::default();
        while !self.try_lock_exclusive() && !self.lock_promoted(self.word.load(Ordering::Relaxed)) {
            backoff.pause();
        }
    }

    /// Acquires the exclusive mode if no thread holds the latch.
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

    /// Releases the exclusive mode and advances the version. Only the holder may call this.
    #[inline]
    pub(crate) fn unlock_exclusive(&self) -> Version {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & EXCLUSIVE != 0);
        note(-1);
        let next = (word & VERSION_MASK).wrapping_add(VERSION);
        self.word.store(next, Ordering::Release);
        Version(next)
    }

    /// Releases the exclusive mode after no write: the version does not change.
    #[inline]
    pub(crate) fn unlock_unchanged(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & EXCLUSIVE != 0);
        note(-1);
        self.word.store(word & VERSION_MASK, Ordering::Release);
    }

    /// Acquires a share; waits for a writer. Returns the version that is valid while the share is held. The read does not
    /// count towards a promotion, but the function works on promoted latches too: the cleaner and copies use it under every
    /// latch kind.
    pub(crate) fn lock_shared(&self) -> (Share<'_>, Version) {
        let mut backoff = Backoff::default();
        loop {
            if let Some(held) = self.try_lock_shared() {
                return held;
            }
            backoff.pause();
        }
    }

    /// Acquires a share in the latch's own word, if that word still equals `word`.
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

    /// Acquires a share in the reader word of background work, if the latch is promoted and no writer holds it.
    #[cold]
    fn try_share_in_background(&self, word: u64) -> Option<(Share<'_>, Version)> {
        let is_open = word & (EXCLUSIVE | PROMOTED) == PROMOTED;
        if is_open { self.try_share_promoted(word, words::background_row()) } else { None }
    }

    /// Acquires a share if no writer holds the latch and no other reader acquires one at the same time.
    pub(crate) fn try_lock_shared(&self) -> Option<(Share<'_>, Version)> {
        let word = self.word.load(Ordering::Relaxed);
        self.try_share_plain(word).or_else(|| self.try_share_in_background(word))
    }
}

/// Orders the holder's writes after the latch's word that announces them: an optimistic reader that sees one of the writes
/// must also see the announcement. (The acquire of a compare-and-swap orders only accesses after its load.)
#[inline]
fn writes_follow() {
    fence(Ordering::Release);
    note(1);
}
