//! A single page for measurements: threads read it under each kind of latch, for Table 7 of the paper on this machine and
//! for the benchmark `latch/read`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Latch, Latching, PROMOTE_AT, ReadGuard, provide_words};
use crate::base::clock::Clock;
use crate::base::config::LatchKind;
use crate::base::lines::SharedLines;

/// Number of words that a read loads, each on its own cache line: the number of lines that a binary search loads.
const LOOKED_AT: usize = 4;

/// A latch and its page, on cache lines without other data, so that only readers and writers of this page contend.
#[derive(Debug)]
#[repr(align(128))]
pub struct MeasuredPage {
    latch: Latch,
    page: [AtomicU64; 8 * LOOKED_AT],
    latching: Latching,
}

impl MeasuredPage {
    /// Creates a page whose readers use this kind of latch. A superlatch is promoted already.
    ///
    /// # Panics
    /// If other users in this process occupy all sets of reader words.
    pub fn new(kind: LatchKind) -> MeasuredPage {
        let words = std::thread::available_parallelism().map_or(1, usize::from);
        let made = MeasuredPage::cold(kind, PROMOTE_AT, words);
        made.earn_promotion();
        made
    }

    /// Creates an unread page whose words are all zero. `promote_at` reads make a superlatch hot. A promoted latch has at
    /// least `words` reader words: the largest number that was requested in this process applies.
    pub fn cold(kind: LatchKind, promote_at: u16, words: usize) -> MeasuredPage {
        provide_words(words);
        let page = std::array::from_fn(|_| AtomicU64::new(0));
        MeasuredPage { latch: Latch::default(), page, latching: Latching::new(kind, promote_at, Clock::machine()) }
    }

    /// Reads the whole page under its latch, word by word, with pauses between the words. Repeats the read until no write
    /// disturbs it. Returns the value that all words have; `None` if the words differ, because the reader has seen a
    /// half-written page.
    pub fn read_whole(&self, pauses: u32) -> Option<u64> {
        loop {
            let guard = ReadGuard::new(&self.latch, &self.latching);
            let first = self.page[0].load(Ordering::Relaxed);
            let is_whole = self.page.iter().fold(true, |is_whole, word| {
                pause(pauses);
                is_whole & (word.load(Ordering::Relaxed) == first)
            });
            if guard.is_valid() {
                return is_whole.then_some(first);
            }
        }
    }

    /// Like [`MeasuredPage::write`], with pauses between the words.
    pub fn write_slowly(&self, value: u64, pauses: u32) {
        self.latch.lock_exclusive();
        for word in &self.page {
            pause(pauses);
            word.store(value, Ordering::Relaxed);
        }
        self.latch.unlock_exclusive();
    }

    /// Returns the number of promotions of the latch so far.
    pub fn promotions(&self) -> u64 {
        self.latching.stats().promotions
    }

    /// Returns the cache lines of the latch, of the page, and of the reader words of all latches.
    pub fn shared_lines(&self) -> [SharedLines; 3] {
        let all = |kind, range| SharedLines { kind, range, every: 0, per_worker: 0 };
        let range = |start: usize, bytes| start..start + bytes;
        let (words, each) = super::reader_words();
        [
            all("page latch", range(std::ptr::from_ref(&self.latch).addr(), size_of::<Latch>())),
            all("page", range(self.page.as_ptr().addr(), size_of_val(&self.page))),
            SharedLines { per_worker: each, ..all("reader words", words) },
        ]
    }

    /// Reads until the page is hot, which promotes a superlatch.
    ///
    /// # Panics
    /// As [`MeasuredPage::new`].
    pub fn earn_promotion(&self) {
        // Twice the threshold, because an epoch may end between two of these reads.
        (0..2 * u32::from(PROMOTE_AT)).for_each(|_| {
            self.read();
        });
        assert_eq!(self.latching.stats().refused, 0, "no reader words are free");
    }

    /// Reads a part of the page under its latch, until no write disturbs the read. Returns the sum of the words.
    #[inline(never)]
    pub fn read(&self) -> u64 {
        loop {
            let guard = ReadGuard::new(&self.latch, &self.latching);
            let sum = (0..LOOKED_AT).map(|line| self.page[8 * line].load(Ordering::Relaxed)).sum();
            if guard.is_valid() {
                return sum;
            }
        }
    }

    /// Writes the page under its latch, which demotes a superlatch.
    pub fn write(&self, value: u64) {
        self.latch.lock_exclusive();
        self.page.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.latch.unlock_exclusive();
    }
}

fn pause(times: u32) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_promoted_when_it_is_hot_and_read_whole() {
        let page = MeasuredPage::cold(LatchKind::Super, 3, 2);
        assert_eq!((page.read_whole(1), page.promotions()), (Some(0), 0));
        (0..3).for_each(|_| assert_eq!(page.read_whole(0), Some(0)));
        assert_eq!(page.promotions(), 1);
        page.write_slowly(7, 1);
        assert_eq!(page.read_whole(0), Some(7));
    }

    #[test]
    fn every_kind_is_read_by_any_number_of_threads() {
        for kind in [LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super] {
            let page = MeasuredPage::new(kind);
            std::thread::scope(|s| {
                for _ in 0..5 {
                    s.spawn(|| (0..1000).for_each(|_| assert_eq!(page.read(), 0, "{kind:?}")));
                }
            });
        }
    }
}
