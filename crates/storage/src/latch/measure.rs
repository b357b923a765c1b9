//! How fast threads read one page under each kind of latch: Table 7 of the paper on this machine, and the benchmark
//! `latch/read`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{Latch, Latching, PROMOTE_AT, ReadGuard, provide_words};
use crate::base::clock::Clock;
use crate::base::config::LatchKind;
use crate::base::lines::SharedLines;

/// Words of the page that a read looks at: as many lines as a binary search touches.
const LOOKED_AT: usize = 4;

/// Reads between two looks at whether time is up.
const BETWEEN_LOOKS: u64 = 256;

/// A latch of a kind with the page behind it, away from other data. Readers of one page, and nothing else, meet here.
#[derive(Debug)]
#[repr(align(128))]
pub struct MeasuredPage {
    latch: Latch,
    page: [AtomicU64; 8 * LOOKED_AT],
    latching: Latching,
}

impl MeasuredPage {
    /// A page whose readers hold a latch of this kind; a superlatch is promoted already.
    ///
    /// # Panics
    /// If another use of this process has all sets of reader words.
    pub fn new(kind: LatchKind) -> MeasuredPage {
        provide_words(std::thread::available_parallelism().map_or(1, usize::from));
        let page = std::array::from_fn(|i| AtomicU64::new(i as u64));
        let made = MeasuredPage { latch: Latch::default(), page, latching: Latching::new(kind, PROMOTE_AT) };
        made.earn_promotion();
        made
    }

    /// Where its lines lie: the latch, what is read, and the reader words of all latches.
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
        // An epoch may end in between.
        (0..2 * u32::from(PROMOTE_AT)).for_each(|_| {
            self.read();
        });
        assert_eq!(self.latching.stats().refused, 0, "no reader words are free");
    }

    /// Reads some of the page under its latch, as often as it takes; returns what was read.
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

    /// Writes the page under its latch; a superlatch is demoted by that.
    pub fn write(&self, value: u64) {
        self.latch.lock_exclusive();
        self.page.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.latch.unlock_exclusive();
    }
}

/// Reads per second of `threads` threads together (at least one) that all read one page for `time`. What a read costs a
/// single thread, in seconds, is one over that with one thread.
///
/// Timing: the threads begin together; each counts its own reads and notes its own time, so that a thread that was not
/// running for a while is not counted as if it had been.
pub fn page_reads_per_second(kind: LatchKind, threads: usize, time: Duration) -> f64 {
    let page = MeasuredPage::new(kind);
    let threads = threads.max(1);
    let (begin, clock, is_over) = (Barrier::new(threads), Clock::machine(), AtomicBool::new(false));
    let (page, begin, clock, is_over) = (&page, &begin, &clock, &is_over);
    let reader = move || {
        begin.wait();
        let (start, mut reads) = (clock.now_ns(), 0_u64);
        let elapsed = loop {
            (0..BETWEEN_LOOKS).for_each(|_| {
                std::hint::black_box(page.read());
            });
            reads += BETWEEN_LOOKS;
            let elapsed = clock.now_ns().saturating_sub(start);
            // The threads end together, too: none reads alone at the end.
            if is_over.load(Ordering::Relaxed) || Duration::from_nanos(elapsed) >= time {
                is_over.store(true, Ordering::Relaxed);
                break elapsed;
            }
        };
        reads as f64 / (elapsed.max(1) as f64 / 1e9)
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(reader)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_by_any_number_of_threads() {
        for kind in [LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super] {
            for threads in [1, 2, 5] {
                assert!(page_reads_per_second(kind, threads, Duration::from_millis(2)) > 0.0, "{kind:?}");
            }
        }
    }
}
