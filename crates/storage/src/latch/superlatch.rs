//! Promotion of a latch, reads of a promoted latch, and demotion.
//!
//! Order of steps that keeps a reader and a writer from holding the latch at the same time (each pair is sequentially
//! consistent, so that at least one of the two sees the other):
//!
//! | reader | writer |
//! | --- | --- |
//! | counts itself in its own word | sets `X` in the latch's word |
//! | loads the latch's word *again* | loads *all* reader words |
//! | unchanged: it has a share; else it removes its count and waits | all zero: it demotes and holds the latch; else it waits |

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Hint;
use std::sync::atomic::{AtomicU16, Ordering as HintOrdering};

use super::share::Share;
use super::stats::{LatchCounters, count};
use super::words::{CHECKED, WordRow};
use super::{EXCLUSIVE, Latch, READER, READERS, VERSION_MASK, Version, words, writes_follow};
use crate::base::latches::note;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::word::Ordering;
use crate::base::sync::{Backoff, yield_now};

/// Bit of the latch's word: the lower bits of `readers` contain the number of a set of reader words.
pub(super) const PROMOTED: u64 = 1 << 15;
const SET_SHIFT: u32 = 1;
const _: () = assert!((words::SETS as u64) << SET_SHIFT <= PROMOTED);

/// Length of an epoch, in reads of one thread. A hot latch is read often within an epoch.
const EPOCH_READS: u32 = if CHECKED { u32::MAX } else { 1 << 16 };

/// Default number of reads that make a latch hot, within an epoch and with no write in between. With two threads this number
/// is one in 256 of all reads: roots, upper inner pages, and leaves that all transactions read become hot.
pub(crate) const PROMOTE_AT: u16 = if CHECKED { 1 } else { 512 };

/// Maximum number of attempts of a promoting reader to find the latch without other readers.
const TRIES: u32 = if CHECKED { 1 } else { 256 };

/// Maximum number of pauses for which a writer, with `X` set, waits for readers to leave. Then the writer admits readers
/// again, so that a reader that holds a share and requests another one gets it.
const LONG_PATIENCE: u32 = if CHECKED { 2 } else { 64 };

/// Like `LONG_PATIENCE`, for a writer that holds other latches and only tries. Sufficient for readers that are about to
/// leave.
const SHORT_PATIENCE: u32 = if CHECKED { 1 } else { 4 };

/// Number of the current epoch. Any thread advances it, after `EPOCH_READS` reads of its own.
static EPOCH: crossbeam::utils::CachePadded<AtomicU16> = crossbeam::utils::CachePadded::new(AtomicU16::new(0));

thread_local! {
    /// Number of plain reads of this thread. Each `EPOCH_READS` of these reads advance the epoch.
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// Number of recent reads of a latch, with the version and the epoch to which the count applies.
///
/// ```text
///  63             32 31     16 15      0
/// +-----------------+---------+---------+
/// | version (low)   | epoch   | reads   |
/// +-----------------+---------+---------+
/// ```
///
/// A reader writes the count next to the latch's word, which the reader has just written anyway; the two share a cache line.
/// Two concurrent readers may lose a count. A writer does not write the count: a changed version marks it as outdated.
#[derive(Debug, Default)]
pub(super) struct Heat(Hint);

impl Heat {
    /// Counts a read under `version`. Returns true if the latch is hot.
    #[inline]
    fn count(&self, version: Version, promote_at: u16) -> bool {
        let now = version.0 << 16 | u64::from(EPOCH.load(HintOrdering::Relaxed)) << 16;
        let seen = self.0.load(HintOrdering::Relaxed);
        let reads = if seen & !0xFFFF == now { (seen as u16).saturating_add(1) } else { 1 };
        if seen as u16 != reads || reads == 1 {
            self.0.store(now | u64::from(reads), HintOrdering::Relaxed);
        }
        reads >= promote_at
    }

    /// Resets the count, so that the latch must become hot again before a promotion.
    fn cool(&self) {
        self.0.store(0, HintOrdering::Relaxed);
    }
}

/// Counts a plain read of this thread, and advances the epoch when it is due.
#[inline]
fn count_towards_epoch() {
    let reads = READS.get().wrapping_add(1);
    READS.set(reads);
    if reads.is_multiple_of(EPOCH_READS) {
        EPOCH.fetch_add(1, HintOrdering::Relaxed);
    }
}

/// Settings and counters of the superlatches of a database.
#[derive(Debug)]
pub(crate) struct Promotion {
    /// Number of reads that make a latch hot: see [`PROMOTE_AT`].
    pub(crate) promote_at: u16,
    pub(crate) counters: Arc<LatchCounters>,
}

impl Default for Promotion {
    fn default() -> Promotion {
        Promotion { promote_at: PROMOTE_AT, counters: Arc::default() }
    }
}

fn set_of(word: u64) -> usize {
    ((word & !PROMOTED & READERS) >> SET_SHIFT) as usize
}

/// Returns true if a reader may count itself in a reader word: the latch is promoted, and no writer holds it.
#[inline(always)]
fn is_open_and_promoted(word: u64) -> bool {
    word & (EXCLUSIVE | PROMOTED) == PROMOTED
}

/// Separates the write by which a thread announces itself from the load by which it checks the other side. The four accesses
/// of the protocol are sequentially consistent, which suffices. loom treats such accesses only as acquiring and releasing
/// ones, so it needs a fence.
#[inline(always)]
fn store_load_fence() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

impl Latch {
    /// Acquires a share under [`LatchKind::Super`](crate::LatchKind::Super); waits for a writer. Promotes the latch if it
    /// is hot. Returns the version that is valid while the share is held.
    #[inline(never)]
    pub(crate) fn lock_super(&self, promotion: &Promotion) -> (Share<'_>, Version) {
        let (mut backoff, mut is_counted) = (Backoff::default(), false);
        loop {
            if let Some(held) = self.try_share_super(promotion, &mut is_counted) {
                return held;
            }
            backoff.pause();
        }
    }

    /// Acquires a share as [`Latch::lock_super`], but fails if a writer holds the latch, or if another reader acquires a
    /// share at the same time.
    #[inline(never)]
    pub(crate) fn try_lock_super(&self, promotion: &Promotion) -> Option<(Share<'_>, Version)> {
        self.try_share_super(promotion, &mut false)
    }

    #[inline(always)]
    fn try_share_super(&self, promotion: &Promotion, is_counted: &mut bool) -> Option<(Share<'_>, Version)> {
        let word = self.word.load(Ordering::Relaxed);
        if is_open_and_promoted(word) {
            return self.try_share_promoted(word, words::own_row());
        }
        self.try_share_counting(word, promotion, is_counted)
    }

    /// Acquires a share of a latch that was not promoted. Counts the read, unless an earlier attempt has counted it.
    #[inline(never)]
    fn try_share_counting(
        &self,
        word: u64,
        promotion: &Promotion,
        is_counted: &mut bool,
    ) -> Option<(Share<'_>, Version)> {
        if word & (EXCLUSIVE | PROMOTED) != 0 {
            return None;
        }
        let is_hot = !std::mem::replace(is_counted, true) && {
            count_towards_epoch();
            self.heat.count(Version(word & VERSION_MASK), promotion.promote_at)
        };
        if is_hot && let Some(held) = self.promote(promotion) {
            return Some(held);
        }
        self.try_share_plain(word)
    }

    /// Counts the caller in the word of `row`. Returns `None` if the latch's word has changed since `word` was loaded.
    #[inline(always)]
    pub(super) fn try_share_promoted(&self, word: u64, row: &'static WordRow) -> Option<(Share<'_>, Version)> {
        let readers = words::word(row, set_of(word));
        if is_mutant(Mutant::SkipSecondLook) || is_mutant(Mutant::LookForWriterAlone) {
            // A delay between two steps of the reader lets the mutant take effect.
            yield_now();
        }
        readers.fetch_add(READER, Ordering::SeqCst);
        store_load_fence();
        let now = self.word.load(Ordering::SeqCst);
        let has_changed = if is_mutant(Mutant::LookForWriterAlone) { now & EXCLUSIVE != 0 } else { now != word };
        if has_changed && !is_mutant(Mutant::SkipSecondLook) {
            readers.fetch_sub(READER, Ordering::Release);
            return None;
        }
        note(1);
        Some((Share(readers), Version(word & VERSION_MASK)))
    }

    /// Gives the latch a set of reader words, and the caller a share. Returns `None` if no set is free, or if other threads
    /// hold the latch during all attempts. In any case the count of reads starts again at zero.
    #[cold]
    fn promote(&self, promotion: &Promotion) -> Option<(Share<'_>, Version)> {
        self.heat.cool();
        let Some(set) = words::take(&promotion.counters) else {
            count(&promotion.counters.refused);
            return None;
        };
        let own = words::word(words::own_row(), set);
        // The caller counts itself before a writer can check its word.
        own.fetch_add(READER, Ordering::Relaxed);
        for _ in 0..TRIES {
            let word = self.word.load(Ordering::Relaxed);
            if word & (EXCLUSIVE | PROMOTED) != 0 {
                break;
            }
            // A share that is counted in the latch's own word must be released before the promotion.
            if word & READERS != 0 {
                std::hint::spin_loop();
                continue;
            }
            let promoted = word & VERSION_MASK | PROMOTED | (set as u64) << SET_SHIFT;
            if self.word.compare_exchange(word, promoted, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                count(&promotion.counters.promotions);
                note(1);
                return Some((Share(own), Version(word & VERSION_MASK)));
            }
        }
        own.fetch_sub(READER, Ordering::Release);
        words::give_back(set);
        None
    }

    /// Acquires the exclusive mode of a promoted latch whose word was loaded as `word`, and demotes the latch. Returns
    /// false and leaves the latch promoted if readers stay longer than `patience` pauses. Also returns false if the word
    /// has changed since it was loaded.
    #[cold]
    fn demote(&self, word: u64, patience: u32) -> bool {
        if self.word.compare_exchange(word, word | EXCLUSIVE, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        store_load_fence();
        let set = set_of(word);
        let (mut pauses, mut backoff) = (0, Backoff::default());
        for readers in words::of_set(set).take(rows_looked_at()) {
            // A reader that arrives after this load sees `X`.
            while readers.load(Ordering::SeqCst) != 0 {
                if pauses == patience {
                    self.word.store(word, Ordering::Release);
                    return false;
                }
                pauses += 1;
                backoff.pause();
            }
        }
        self.heat.cool();
        self.word.store(word & VERSION_MASK | EXCLUSIVE, Ordering::Relaxed);
        if let Some(owner) = words::give_back(set) {
            count(&owner.demotions);
        }
        true
    }

    /// Acquires the exclusive mode if the latch is promoted and its readers leave soon.
    #[cold]
    pub(super) fn try_lock_promoted(&self, word: u64) -> bool {
        let taken = is_open_and_promoted(word) && self.demote(word, SHORT_PATIENCE);
        if taken {
            writes_follow();
        }
        taken
    }

    /// Like [`Latch::try_lock_promoted`], but waits longer for readers to leave.
    #[cold]
    pub(super) fn lock_promoted(&self, word: u64) -> bool {
        let taken = is_open_and_promoted(word) && self.demote(word, LONG_PATIENCE);
        if taken {
            writes_follow();
        }
        taken
    }

    /// Returns true if the latch has reader words.
    #[cfg(test)]
    pub(super) fn is_promoted(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PROMOTED != 0
    }
}

/// Returns the number of rows that a writer checks. A writer checks all rows, except under a mutant, which checks the row of
/// background work and the row of one thread.
fn rows_looked_at() -> usize {
    if is_mutant(Mutant::SkipReaderWord) { 2 } else { usize::MAX }
}
