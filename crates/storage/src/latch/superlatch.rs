//! Promotion of a latch, reading under it, and demotion.
//!
//! The order of steps that keeps a writer and a reader apart (each pair sequentially consistent, so that one of the two
//! sees the other):
//!
//! | reader | writer |
//! | --- | --- |
//! | counts itself in its own word | sets `X` in the latch's word |
//! | looks at the latch's word *again* | looks at *all* reader words |
//! | unchanged: it holds a share; else it takes its count back and waits | all zero: it demotes the latch and holds it; else it waits |

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

/// In the latch's word: the bits of `readers` below hold the number of a set of reader words.
pub(super) const PROMOTED: u64 = 1 << 15;
const SET_SHIFT: u32 = 1;
const _: () = assert!((words::SETS as u64) << SET_SHIFT <= PROMOTED);

/// Reads of a thread in an epoch. What is hot is read often while that goes on.
const EPOCH_READS: u32 = if CHECKED { u32::MAX } else { 1 << 16 };

/// Reads of a latch that make it hot, by default: within an epoch, and with no write in between. With two threads this
/// is one in 256 of all reads: roots, upper inner pages, and leaves that all transactions read.
pub(crate) const PROMOTE_AT: u16 = if CHECKED { 1 } else { 512 };

/// How often a reader that wants to promote tries to find the latch without other readers.
const TRIES: u32 = if CHECKED { 1 } else { 256 };

/// Pauses of a writer that waits, with `X` set, until readers have left; then it lets readers in again, so that a reader
/// that holds a share and wants another one gets it.
const LONG_PATIENCE: u32 = if CHECKED { 2 } else { 64 };

/// The same for a holder of other latches, which only tries. Enough for readers that are about to leave.
const SHORT_PATIENCE: u32 = if CHECKED { 1 } else { 4 };

/// The number of the present epoch. Any thread moves it, after so many reads of its own.
static EPOCH: crossbeam::utils::CachePadded<AtomicU16> = crossbeam::utils::CachePadded::new(AtomicU16::new(0));

thread_local! {
    /// Plain reads of this thread, towards the end of the epoch.
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// How often a latch was read of late: the version and the epoch for which that was counted, and the count.
///
/// ```text
///  63             32 31     16 15      0
/// +-----------------+---------+---------+
/// | version (low)   | epoch   | reads   |
/// +-----------------+---------+---------+
/// ```
///
/// A reader writes it beside the latch's word, which it has just written anyway; the two share a cache line. Two readers
/// at once may lose a count. A writer does not write it: its version says that the count is of the past.
#[derive(Debug, Default)]
pub(super) struct Heat(Hint);

impl Heat {
    /// Counts a read under `version`; whether the latch is hot.
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

    /// The latch has to earn its promotion from the beginning.
    fn cool(&self) {
        self.0.store(0, HintOrdering::Relaxed);
    }
}

/// Counts a plain read of this thread.
#[inline]
fn count_towards_epoch() {
    let reads = READS.get().wrapping_add(1);
    READS.set(reads);
    if reads.is_multiple_of(EPOCH_READS) {
        EPOCH.fetch_add(1, HintOrdering::Relaxed);
    }
}

/// What a database settles for its superlatches.
#[derive(Debug)]
pub(crate) struct Promotion {
    /// Reads that make a latch hot: see [`PROMOTE_AT`].
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

/// Whether a reader may count itself in a reader word.
#[inline(always)]
fn is_open_and_promoted(word: u64) -> bool {
    word & (EXCLUSIVE | PROMOTED) == PROMOTED
}

/// Stands between announcing and looking. The four accesses of the protocol are sequentially consistent, which suffices;
/// loom takes such accesses for acquiring and releasing ones, and only its fence for more.
#[inline(always)]
fn announced() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

impl Latch {
    /// Takes a share under [`LatchKind::Super`](crate::LatchKind::Super), waiting for a writer, and promotes the latch if
    /// that is due. Returns the version that holds meanwhile.
    #[inline(never)]
    pub(crate) fn lock_super(&self, promotion: &Promotion) -> (Share<'_>, Version) {
        let word = self.word.load(Ordering::Relaxed);
        if is_open_and_promoted(word)
            && let Some(held) = self.try_share_promoted(word, words::own_row())
        {
            return held;
        }
        self.lock_counting(promotion)
    }

    /// The latch is not promoted, or a writer is there.
    #[inline(never)]
    fn lock_counting(&self, promotion: &Promotion) -> (Share<'_>, Version) {
        let (mut backoff, mut is_counted) = (Backoff::default(), false);
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if is_open_and_promoted(word) {
                if let Some(held) = self.try_share_promoted(word, words::own_row()) {
                    return held;
                }
            } else if word & EXCLUSIVE == 0 {
                // However often it tries, a read is one.
                let is_hot = !std::mem::replace(&mut is_counted, true) && {
                    count_towards_epoch();
                    self.heat.count(Version(word & VERSION_MASK), promotion.promote_at)
                };
                if is_hot && let Some(held) = self.promote(promotion) {
                    return held;
                }
                if let Some(held) = self.try_share_plain(word) {
                    return held;
                }
            }
            backoff.pause();
        }
    }

    /// Counts the caller in the word of its row, unless a writer has come since `word` was seen.
    #[inline(always)]
    pub(super) fn try_share_promoted(&self, word: u64, row: &'static WordRow) -> Option<(Share<'_>, Version)> {
        let readers = words::word(row, set_of(word));
        if is_mutant(Mutant::SkipSecondLook) || is_mutant(Mutant::LookForWriterAlone) {
            // It is late.
            yield_now();
        }
        readers.fetch_add(READER, Ordering::SeqCst);
        announced();
        let now = self.word.load(Ordering::SeqCst);
        let has_changed = if is_mutant(Mutant::LookForWriterAlone) { now & EXCLUSIVE != 0 } else { now != word };
        if has_changed && !is_mutant(Mutant::SkipSecondLook) {
            readers.fetch_sub(READER, Ordering::Release);
            return None;
        }
        note(1);
        Some((Share(readers), Version(word & VERSION_MASK)))
    }

    /// Gives the latch a set of reader words, and the caller a share. `None` if no set is free, or if other threads hold
    /// the latch all the time: the count begins anew.
    #[cold]
    fn promote(&self, promotion: &Promotion) -> Option<(Share<'_>, Version)> {
        self.heat.cool();
        let Some(set) = words::take(&promotion.counters) else {
            count(&promotion.counters.refused);
            return None;
        };
        let own = words::word(words::own_row(), set);
        // Before a writer can look.
        own.fetch_add(READER, Ordering::Relaxed);
        for _ in 0..TRIES {
            let word = self.word.load(Ordering::Relaxed);
            if word & (EXCLUSIVE | PROMOTED) != 0 {
                break;
            }
            // A share that the latch's own word counts is given back there.
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

    /// Takes the exclusive mode of a promoted latch, as it was seen in `word`, and demotes it. False if another thread was
    /// faster, or if readers stay longer than the caller waits: then nothing has changed.
    #[cold]
    fn demote(&self, word: u64, patience: u32) -> bool {
        if self.word.compare_exchange(word, word | EXCLUSIVE, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        announced();
        let set = set_of(word);
        let (mut pauses, mut backoff) = (0, Backoff::default());
        for readers in words::of_set(set).take(rows_looked_at()) {
            // A reader that comes after this look sees `X`.
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

    /// Takes the exclusive mode if the latch is promoted and readers leave soon.
    #[cold]
    pub(super) fn try_lock_promoted(&self, word: u64) -> bool {
        let taken = is_open_and_promoted(word) && self.demote(word, SHORT_PATIENCE);
        if taken {
            writes_follow();
        }
        taken
    }

    /// As [`Latch::try_lock_promoted`], waiting for readers that stay.
    #[cold]
    pub(super) fn lock_promoted(&self, word: u64) -> bool {
        let taken = is_open_and_promoted(word) && self.demote(word, LONG_PATIENCE);
        if taken {
            writes_follow();
        }
        taken
    }

    /// Whether the latch has reader words.
    #[cfg(test)]
    pub(super) fn is_promoted(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PROMOTED != 0
    }
}

/// All rows, but for a mutant, which knows those of background work and of one thread.
fn rows_looked_at() -> usize {
    if is_mutant(Mutant::SkipReaderWord) { 2 } else { usize::MAX }
}
