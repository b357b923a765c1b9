//! The ring: the newest bytes of the stream in memory. Records wait here to be written, and rollback reads them from here.
//!
//! Byte `p` of the stream lies at byte `p mod capacity`. Records are copied in and out as relaxed atomic words, so that a
//! reader that is overtaken by a writer reads arbitrary words (and detects this, see `Log::read_at`) instead of causing
//! undefined behaviour. On x86-64 these are ordinary moves.
#![allow(unsafe_code)]

use crate::base::sync::plain::{AtomicU64, Ordering};
use std::io;

use crate::base::arena::{Arena, PageSize, ZeroValid};
use crate::io::BLOCK;

/// Number of words in a [`Piece`].
const PIECE: usize = BLOCK / 8;

/// Unit of the ring's memory. Its alignment gives the ring the alignment of whole file blocks.
#[repr(C, align(4096))]
struct Piece([AtomicU64; PIECE]);

// SAFETY: atomic integers.
unsafe impl ZeroValid for Piece {}

pub(super) struct Ring {
    pieces: Arena<Piece>,
    /// Number of words of the ring minus one. The number of words is a power of two.
    mask: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("bytes", &self.capacity()).finish()
    }
}

impl Ring {
    /// Creates a ring of `bytes` bytes, rounded up to a power of two, in memory with this page size.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub(super) fn new(bytes: usize, memory: PageSize) -> io::Result<Ring> {
        let pieces = bytes.div_ceil(BLOCK).next_power_of_two();
        Ok(Ring { pieces: Arena::new(pieces, memory)?, mask: pieces * PIECE - 1 })
    }

    /// Returns the address range of the ring.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.pieces.range()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        let pieces = self.pieces.as_slice();
        // SAFETY: a `Piece` is `PIECE` words and nothing else (its size is its alignment), so the pieces are that many
        // consecutive words, and all of them are borrowed.
        unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast::<AtomicU64>(), pieces.len() * PIECE) }
    }

    /// Returns the size of the ring in bytes.
    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        (self.mask + 1) as u64 * 8
    }

    #[inline]
    fn index(&self, at: u64) -> usize {
        (at / 8) as usize & self.mask
    }

    /// Copies a record in at stream position `at`. The caller has reserved the range, and has waited until the earlier
    /// bytes in its place were written out.
    #[inline]
    pub(super) fn copy_in(&self, at: u64, head: [u64; 2], rest: &[u8]) {
        let (words, _) = rest.as_chunks::<8>();
        let index = self.index(at);
        if let Some(place) = self.words().get(index..index + head.len() + words.len()) {
            let (first, place) = place.split_at(head.len());
            for (place, word) in first.iter().zip(head) {
                place.store(word, Ordering::Relaxed);
            }
            // The loop copies eight words at a time: there is no wider atomic store, and a loop over single words is mostly
            // loop overhead.
            let ((places, last_places), (eights, last_words)) = (place.as_chunks::<8>(), words.as_chunks::<8>());
            for (places, words) in places.iter().zip(eights) {
                for (place, word) in places.iter().zip(words) {
                    place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
                }
            }
            for (place, word) in last_places.iter().zip(last_words) {
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
            return;
        }
        let words = head.into_iter().chain(words.iter().map(|word| u64::from_ne_bytes(*word)));
        for (i, word) in words.enumerate() {
            self.words()[(index + i) & self.mask].store(word, Ordering::Relaxed);
        }
    }

    /// Appends `bytes` bytes (a multiple of 8) from stream position `at` to `out`, regardless of their current contents.
    pub(super) fn copy_out(&self, at: u64, bytes: usize, out: &mut Vec<u8>) {
        let index = self.index(at);
        let begin = out.len();
        out.resize(begin + bytes, 0);
        let words = self.words();
        for (i, place) in out[begin..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *place = words[(index + i) & self.mask].load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// Returns the bytes from `from` up to `to`, or up to the end of the ring's memory.
    ///
    /// # Safety
    /// As long as the slice lives, no thread may `copy_in` to the range (or to another range with the same place in the
    /// ring), and earlier copies into it must have happened before this call.
    pub(super) unsafe fn bytes(&self, from: u64, to: u64) -> &[u8] {
        debug_assert!(from.is_multiple_of(8) && to.is_multiple_of(8) && from <= to);
        let index = self.index(from);
        let words = &self.words()[index..];
        let len = ((to - from) as usize).min(words.len() * 8);
        // SAFETY: an AtomicU64 has the size and representation of a u64, all bytes of which are
        // initialised; `len` bytes lie within `words`; by the caller's promise no thread writes them meanwhile
        // (other threads may load them, which does not conflict).
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len) }
    }
}
