//! Arrays that grow while other threads read them.

use std::ops::Range;
use std::sync::OnceLock;

/// Number of entries of the first piece.
const FIRST: usize = 64;
/// Number of pieces after the first. Each piece is twice as long as the piece before it, so the array has up to four million
/// entries.
const PIECES: usize = 15;

/// An array in pieces. A piece is allocated on first use and never moves. The first piece is allocated with the array, so
/// its entries are accessed like those of a plain array.
#[derive(Debug)]
pub(crate) struct SegmentedArray<T> {
    first: Box<[T]>,
    more: [OnceLock<Box<[T]>>; PIECES],
}

impl<T: Default> Default for SegmentedArray<T> {
    fn default() -> SegmentedArray<T> {
        SegmentedArray { first: piece(FIRST), more: [const { OnceLock::new() }; PIECES] }
    }
}

fn piece<T: Default>(entries: usize) -> Box<[T]> {
    (0..entries).map(|_| T::default()).collect()
}

/// Returns the number of the piece that contains entry `i` (0 for the first), and the range of entries of that piece.
fn place(i: usize) -> (usize, Range<usize>) {
    let piece = (i / FIRST + 1).ilog2() as usize;
    let start = ((1 << piece) - 1) * FIRST;
    (piece, start..start + (FIRST << piece))
}

impl<T: Default> SegmentedArray<T> {
    /// Returns entry `i` if its piece has been allocated.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<&T> {
        match self.first.get(i) {
            Some(entry) => Some(entry),
            None => self.get_further(i),
        }
    }

    #[inline(never)]
    fn get_further(&self, i: usize) -> Option<&T> {
        let (piece, entries) = place(i);
        self.more.get(piece - 1)?.get()?.get(i - entries.start)
    }

    /// Returns entry `i`, and allocates its piece if necessary.
    ///
    /// # Panics
    /// If `i` lies beyond the last piece.
    pub(crate) fn at(&self, i: usize) -> &T {
        if let Some(entry) = self.first.get(i) {
            return entry;
        }
        let (at, entries) = place(i);
        assert!(at <= PIECES, "entry {i} of an array that grows lies beyond its end");
        let more = self.more[at - 1].get_or_init(|| piece(entries.len()));
        &more[i - entries.start]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn entries_are_where_they_were_put() {
        let array = SegmentedArray::<AtomicUsize>::default();
        // Under Miri a large segment takes minutes to create.
        let large: &[usize] = if cfg!(miri) { &[4095, 4096] } else { &[4095, 4096, 65_535, 65_536, 1 << 20] };
        let all = (0..1000).chain(large.iter().copied());
        assert!(array.get(64).is_none() && array.get(63).is_some());
        all.clone().for_each(|i| array.at(i).store(i, Ordering::Relaxed));
        for i in all {
            assert_eq!(array.get(i).map(|entry| entry.load(Ordering::Relaxed)), Some(i));
        }
        assert!(array.get(usize::MAX / 2).is_none());
    }
}
