//! Pages that the purge service must visit: one bit for each page of the file.
//!
//! A thread sets the bit of a page while it holds the page's latch if it creates a ghost record in the page, loads a page
//! that has ghost records, or moves ghost records into the page. The service clears bits, 32 at a time, before it latches
//! the pages: it sees every ghost record created before the latch, and a ghost record created later sets the bit again. A
//! bit stays set while its page is not in memory. The bits are lost when the database is closed; the service's scan of the
//! trees finds the pages with ghost records again.
//!
//! Setting a bit that is already set only reads one shared word. Most deletes find the bit of their page already set.

use std::io;

use crate::base::arena::{Arena, PageSize};
use crate::base::ids::PageId;
use crate::base::sync::plain::{AtomicBool, AtomicU32, Ordering};

/// Number of page bits per word of `pages`, and number of word bits per word of `words` (the summary).
const WIDTH: u32 = u32::BITS;

/// Bitmap of the pages that are due for the purge service. See the module's documentation.
#[derive(Debug)]
pub(super) struct PurgeBitmap {
    /// One bit for each page.
    pages: Arena<AtomicU32>,
    /// Summary: one bit for each word of `pages` that may have a bit set.
    words: Arena<AtomicU32>,
    /// True if a bit has been set since the last round began.
    any: AtomicBool,
}

impl PurgeBitmap {
    /// Creates the bitmap for pages below `pages`, in memory of the kind `memory`. The system allocates memory when bits are
    /// set.
    pub(super) fn new(pages: u32, memory: PageSize) -> io::Result<PurgeBitmap> {
        let words = pages.div_ceil(WIDTH);
        Ok(PurgeBitmap {
            pages: Arena::new(words as usize, memory)?,
            words: Arena::new(words.div_ceil(WIDTH) as usize, memory)?,
            any: AtomicBool::new(false),
        })
    }

    /// Sets the page's bit. The caller holds the page's latch or does not need the bit to be exact.
    #[inline]
    pub(super) fn set(&self, id: PageId) {
        if let Some(word) = self.pages.as_slice().get((id.0 / WIDTH) as usize)
            && word.load(Ordering::Relaxed) & (1 << (id.0 % WIDTH)) == 0
        {
            self.set_first(id, word);
        }
    }

    #[cold]
    fn set_first(&self, id: PageId, word: &AtomicU32) {
        word.fetch_or(1 << (id.0 % WIDTH), Ordering::AcqRel);
        let at = id.0 / WIDTH;
        if let Some(summary) = self.words.as_slice().get((at / WIDTH) as usize) {
            summary.fetch_or(1 << (at % WIDTH), Ordering::AcqRel);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Returns true if a bit has been set since the last round began.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Begins a round through all bits. Returns false if no bit has been set since the last round began.
    pub(super) fn begin_round(&self) -> bool {
        self.any.swap(false, Ordering::AcqRel)
    }

    /// Clears the bits of due pages between `from` and `end` and appends the pages to `out`, until there are `limit` or a
    /// few more. Returns the page at which to continue; `end` or above if all bits were visited.
    pub(super) fn take(&self, from: PageId, end: u32, limit: usize, out: &mut Vec<PageId>) -> PageId {
        let summaries = self.words.as_slice();
        let mut at = from.0 / WIDTH;
        while at < end.div_ceil(WIDTH) && out.len() < limit {
            let Some(summary) = summaries.get((at / WIDTH) as usize) else { break };
            let rest = summary.load(Ordering::Acquire) >> (at % WIDTH);
            if rest == 0 {
                at = (at / WIDTH + 1) * WIDTH;
                continue;
            }
            at += rest.trailing_zeros();
            // The summary bit is cleared first: a thread that sets a page's bit after the swap sets the summary bit again.
            summary.fetch_and(!(1 << (at % WIDTH)), Ordering::AcqRel);
            if let Some(word) = self.pages.as_slice().get(at as usize) {
                let mut bits = word.swap(0, Ordering::AcqRel);
                while bits != 0 {
                    out.push(PageId(at * WIDTH + bits.trailing_zeros()));
                    bits &= bits - 1;
                }
            }
            at += 1;
        }
        PageId(at.saturating_mul(WIDTH))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    #[test]
    fn what_was_set_is_taken_once_in_order() {
        let mut rng = Rng::with_seed(7);
        for round in 0..200_u64 {
            let end = [70, 1500, 40_000][(round % 3) as usize];
            let due = PurgeBitmap::new(end, PageSize::Usual).unwrap();
            assert!(!due.begin_round());
            let mut model = BTreeSet::new();
            for _ in 0..rng.u64(..100) + 1 {
                let id = PageId(rng.u32(..end));
                due.set(id);
                model.insert(id);
            }
            due.set(PageId(end + 64));
            assert!(due.begin_round());
            let (mut at, mut taken) = (PageId(0), Vec::new());
            while at.0 < end {
                let mut some = Vec::new();
                at = due.take(at, end, 1 + rng.usize(..8), &mut some);
                taken.append(&mut some);
            }
            assert_eq!(taken, model.into_iter().collect::<Vec<_>>(), "round {round}");
            assert!(due.take(PageId(0), end, usize::MAX, &mut Vec::new()).0 >= end);
        }
    }

    #[test]
    fn none_is_lost_while_threads_set_them() {
        let due = PurgeBitmap::new(4096, PageSize::Usual).unwrap();
        let seen: Vec<std::sync::atomic::AtomicBool> = (0..4096).map(|_| false.into()).collect();
        std::thread::scope(|s| {
            let setters: Vec<_> = (0..2_u32)
                .map(|me| {
                    let due = &due;
                    s.spawn(move || (0..2048).for_each(|i| due.set(PageId((i * 2 + me) * 37 % 4096))))
                })
                .collect();
            let take = || {
                let mut some = Vec::new();
                due.take(PageId(0), 4096, usize::MAX, &mut some);
                some.iter().for_each(|id| seen[id.0 as usize].store(true, Ordering::Relaxed));
            };
            while !setters.iter().all(|setter| setter.is_finished()) {
                take();
            }
            take();
        });
        assert_eq!(seen.iter().filter(|seen| !seen.load(Ordering::Relaxed)).count(), 0);
    }
}
