//! Accessors of page bytes. All reads and writes of pages use them.
//!
//! An optimistic reader may read a page while a writer changes it. Such reads go through [`PageRef`]: single values by
//! volatile reads, ranges of bytes by a copy into private memory. A `PageRef` accepts any bytes: offsets are checked
//! against the page before use, and each reader validates the latch's version before it relies on data that it has read.
//!
//! By the language's definition a race between a volatile read and a write is undefined behaviour. Compilers for our
//! targets give it the meaning of the machine, and every optimistic engine in C++ and Rust (crossbeam's `AtomicCell` among
//! them) relies on this. Under Miri and the sanitizers (`cfg(miri)`, `--cfg race_free`) readers take shared latches
//! instead, so there is no race to report.

#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::marker::PhantomData;

use super::layout::{MAX_SLOTS, SLOT, SLOTS};
use crate::base::bytes::copy_few;
use crate::base::ids::PAGE_SIZE;
use crate::base::prefetch::{prefetch_read, prefetch_write};

/// Read access to a page that may change meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRef<'a> {
    base: *const u8,
    _page: PhantomData<&'a u8>,
}

impl<'a> PageRef<'a> {
    /// # Safety
    /// `base` points at `PAGE_SIZE` bytes, aligned to 8, that stay mapped for `'a`.
    #[inline]
    pub(crate) unsafe fn new(base: *const u8) -> PageRef<'a> {
        PageRef { base, _page: PhantomData }
    }

    /// Returns read access to a page in ordinary memory.
    pub(crate) fn of(bytes: &'a PageBytes) -> PageRef<'a> {
        PageRef { base: bytes.0.as_ptr().cast(), _page: PhantomData }
    }

    /// Returns read access to the bytes of a page in ordinary memory.
    ///
    /// # Panics
    /// If the bytes are not aligned to 8.
    pub(crate) fn of_bytes(bytes: &'a [u8; PAGE_SIZE]) -> PageRef<'a> {
        assert!(bytes.as_ptr().addr().is_multiple_of(8), "page buffers are aligned");
        PageRef { base: bytes.as_ptr(), _page: PhantomData }
    }

    /// Returns the byte at `at`.
    #[inline]
    pub(crate) fn u8(self, at: usize) -> u8 {
        assert!(at < PAGE_SIZE);
        // SAFETY: in bounds by the assertion; mapped by `new`'s contract.
        unsafe { self.base.add(at).read_volatile() }
    }

    /// Returns the little-endian 16-bit value at `at`, which is even.
    #[inline]
    pub(crate) fn u16(self, at: usize) -> u16 {
        assert!(at + 2 <= PAGE_SIZE && at.is_multiple_of(2));
        // SAFETY: in bounds and aligned by the assertion and `new`'s contract.
        u16::from_le(unsafe { self.base.add(at).cast::<u16>().read_volatile() })
    }

    /// Returns the little-endian 32-bit value at `at`, a multiple of 4.
    #[inline]
    pub(crate) fn u32(self, at: usize) -> u32 {
        assert!(at + 4 <= PAGE_SIZE && at.is_multiple_of(4));
        // SAFETY: in bounds and aligned by the assertion and `new`'s contract.
        u32::from_le(unsafe { self.base.add(at).cast::<u32>().read_volatile() })
    }

    /// Returns the word at byte 0, 4 or 8 of slot `i`. If `i` exceeds the last possible slot, returns a word of the last
    /// slot.
    #[inline]
    pub(crate) fn slot_word(self, i: usize, byte: usize) -> u32 {
        const LAST: usize = (PAGE_SIZE - SLOTS) / SLOT - 2;
        debug_assert!(byte <= 8);
        let at = SLOTS + i.min(LAST) * SLOT + (byte & 12);
        // SAFETY: slot LAST and the word after it end within the page; slots begin at a multiple of 4.
        u32::from_le(unsafe { self.base.add(at).cast::<u32>().read_volatile() })
    }

    /// Returns the first of the slots `from..to` whose head is not below `head`, or `to`. Heads ascend; `to` must not
    /// exceed the maximum number of slots. The search has no branch on the heads, which the processor could not predict,
    /// and none on the number of slots, which differs from table to table.
    #[inline]
    pub(crate) fn heads_below(self, head: u32, mut from: usize, to: usize) -> usize {
        assert!(to <= MAX_SLOTS);
        let mut len = to.saturating_sub(from);
        if len == 0 {
            return from;
        }
        // Returns the position at which the search continues (at most `to`): `next` if the slots before it are below
        // `head`.
        let step = |from: usize, ahead: usize| {
            let next = (from + ahead).min(to);
            let at = SLOTS + (next - 1) * SLOT;
            // SAFETY: `0 < next <= to <= MAX_SLOTS`, so the slot lies in the page; slots are aligned to 4.
            let probe = u32::from_le(unsafe { self.base.add(at).cast::<u32>().read_volatile() });
            std::hint::select_unpredictable(probe < head, next, from)
        };
        while len > 15 {
            let half = len - len / 2;
            from = step(from, half);
            len -= half;
        }
        // Four steps suffice for up to 15 slots.
        from = step(from, 8);
        from = step(from, 4);
        from = step(from, 2);
        step(from, 1)
    }

    /// Returns the eight words at `at`, a multiple of 4. They may have been read at different moments.
    #[inline]
    pub(crate) fn words(self, at: usize) -> [u32; 8] {
        assert!(at + 32 <= PAGE_SIZE && at.is_multiple_of(4));
        // SAFETY: in bounds and aligned by the assertion and `new`'s contract.
        unsafe { self.base.add(at).cast::<[u32; 8]>().read() }
    }

    /// Returns the little-endian 64-bit value at `at`, a multiple of 8.
    #[inline]
    pub(crate) fn u64(self, at: usize) -> u64 {
        assert!(at + 8 <= PAGE_SIZE && at.is_multiple_of(8));
        // SAFETY: in bounds and aligned by the assertion and `new`'s contract.
        u64::from_le(unsafe { self.base.add(at).cast::<u64>().read_volatile() })
    }

    /// Returns the little-endian 32-bit value at any `at`; 0 if it does not lie in the page.
    #[inline]
    pub(crate) fn u32_unaligned(self, at: usize) -> u32 {
        if at + 4 > PAGE_SIZE {
            return 0;
        }
        // SAFETY: in bounds by the test above.
        u32::from_le(unsafe { self.base.add(at).cast::<u32>().read_unaligned() })
    }

    /// Returns the eight bytes at any `at`, as a number with the same order; `None` if they do not all lie in the page.
    #[inline]
    pub(crate) fn u64_ordered(self, at: usize) -> Option<u64> {
        // SAFETY: in bounds by the test before it.
        (at + 8 <= PAGE_SIZE).then(|| u64::from_be(unsafe { word_at(self.base.add(at)) }))
    }

    /// Copies `out.len()` bytes from `at`. Returns false, and copies nothing, if they do not lie in the page.
    #[inline]
    #[must_use]
    pub(crate) fn copy_to(self, at: usize, out: &mut [u8]) -> bool {
        if at + out.len() > PAGE_SIZE {
            return false;
        }
        // SAFETY: the source is in bounds by the test above, the destination is private memory.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr(), out.len()) };
        true
    }

    /// Appends `len` bytes from `at` to `out`. Returns false, and appends nothing, if they do not lie in the page.
    #[inline]
    #[must_use]
    pub(crate) fn append_to(self, at: usize, len: usize, out: &mut Vec<u8>) -> bool {
        if at + len > PAGE_SIZE {
            return false;
        }
        // A copy of a constant number of bytes needs no call, so a few bytes are copied fastest as a part of such a copy.
        const FEW: usize = 32;
        if len <= FEW && at + FEW <= PAGE_SIZE {
            out.reserve(FEW);
            // SAFETY: the source is in bounds; `reserve` made room for `FEW` bytes after `out.len()`, of which `len`
            // are kept.
            unsafe {
                std::ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr().add(out.len()), FEW);
                out.set_len(out.len() + len);
            }
            return true;
        }
        self.append_many(at, len, out)
    }

    /// Appends a short range of bytes and then a longer one, given by offset and length. Returns false if they do not lie
    /// in the page.
    #[inline(always)]
    #[must_use]
    pub(crate) fn append_two(self, few: (usize, usize), more: (usize, usize), out: &mut Vec<u8>) -> bool {
        const FEW: usize = 16;
        const MORE: usize = 64;
        if few.1 > FEW || few.0 + FEW > PAGE_SIZE || more.1 > MORE || more.0 + MORE > PAGE_SIZE {
            return self.append_to(few.0, few.1, out) && self.append_to(more.0, more.1, out);
        }
        out.reserve(FEW + MORE);
        // SAFETY: the sources are in bounds by the test above; `reserve` made room for `FEW + MORE` bytes after `out.len()`,
        // of which `few.1 <= FEW` and then `more.1 <= MORE` are kept, all of them written.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            std::ptr::copy_nonoverlapping(self.base.add(few.0), end, FEW);
            std::ptr::copy_nonoverlapping(self.base.add(more.0), end.add(few.1), MORE);
            out.set_len(out.len() + few.1 + more.1);
        }
        true
    }

    /// Slow path of [`PageRef::append_to`]. Not inlined: compilers would merge the two copies into one of variable length.
    #[inline(never)]
    fn append_many(self, at: usize, len: usize, out: &mut Vec<u8>) -> bool {
        if at + len > PAGE_SIZE {
            return false;
        }
        out.reserve(len);
        // SAFETY: the source is in bounds; `reserve` made room for `len` bytes after `out.len()`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
        true
    }

    /// Returns true if the page has exactly these bytes at `at`. Compares overlapping words, because a call to compare a
    /// few bytes costs more than the second comparison of some of them.
    #[inline]
    pub(crate) fn has_bytes(self, at: usize, bytes: &[u8]) -> bool {
        let len = bytes.len();
        if at + len > PAGE_SIZE {
            return false;
        }
        let (mine, theirs) = (self.base.wrapping_add(at), bytes.as_ptr());
        if len >= 8 {
            let mut i = 0;
            while i + 8 < len {
                // SAFETY: `i + 8 <= len`, which is in bounds of both: `at + len` is in bounds of the page.
                if unsafe { !is_same_word::<u64>(mine.add(i), theirs.add(i)) } {
                    return false;
                }
                i += 8;
            }
            // SAFETY: the last eight of `len >= 8` bytes, which are in bounds of both.
            unsafe { is_same_word::<u64>(mine.add(len - 8), theirs.add(len - 8)) }
        } else if len >= 4 {
            // SAFETY: the first and the last four of `len >= 4` bytes, which are in bounds of both.
            unsafe { is_same_word::<u32>(mine, theirs) && is_same_word::<u32>(mine.add(len - 4), theirs.add(len - 4)) }
        } else if len >= 2 {
            // SAFETY: the first and the last two of `len >= 2` bytes, which are in bounds of both.
            unsafe { is_same_word::<u16>(mine, theirs) && is_same_word::<u16>(mine.add(len - 2), theirs.add(len - 2)) }
        } else {
            // SAFETY: `len` is 1, which is in bounds of both.
            len == 0 || unsafe { is_same_word::<u8>(mine, theirs) }
        }
    }

    /// Like [`PageRef::has_bytes`], optimised for many bytes.
    pub(crate) fn has_many_bytes(self, at: usize, bytes: &[u8]) -> bool {
        const STEP: usize = 32;
        let len = bytes.len();
        if at + len > PAGE_SIZE {
            return false;
        }
        let mut i = 0;
        while i + STEP <= len {
            let differ = (0..STEP).step_by(8).fold(0, |differ, word| {
                // SAFETY: `i + word + 8 <= len`, which is in bounds of both: `at + len` is in bounds of the page.
                unsafe { differ | (word_at(self.base.add(at + i + word)) ^ word_at(bytes.as_ptr().add(i + word))) }
            });
            if differ != 0 {
                return false;
            }
            i += STEP;
        }
        self.has_bytes(at + i, &bytes[i..])
    }

    /// Compares `len` bytes at `at` with `key`. Bytes outside the page count as less than any key.
    #[inline]
    pub(crate) fn compare(self, at: usize, len: usize, key: &[u8]) -> Ordering {
        if at + len > PAGE_SIZE {
            return Ordering::Less;
        }
        let common = len.min(key.len());
        let mut i = 0;
        while i + 8 <= common {
            // SAFETY: `i + 8 <= len` and `at + len` is in bounds.
            let mine = u64::from_be(unsafe { self.base.add(at + i).cast::<u64>().read_unaligned() });
            // SAFETY: `i + 8 <= key.len()`.
            let theirs = u64::from_be(unsafe { key.as_ptr().add(i).cast::<u64>().read_unaligned() });
            if mine != theirs {
                return mine.cmp(&theirs);
            }
            i += 8;
        }
        // The rest is compared in overlapping words: bytes that were equal before are equal again. If the page changes
        // meanwhile, these bytes may differ, and give an order that no validation accepts.
        if common >= 8 {
            // SAFETY: the last eight of `common` bytes, which are in bounds of both.
            let (mine, theirs) =
                unsafe { (word_at(self.base.add(at + common - 8)), word_at(key.as_ptr().add(common - 8))) };
            return u64::from_be(mine).cmp(&u64::from_be(theirs)).then(len.cmp(&key.len()));
        }
        if common >= 4 {
            // SAFETY: the first and the last four of `common` bytes, which are in bounds of both.
            let both = |at: *const u8| unsafe { both_halves(at, at.add(common - 4)) };
            return both(self.base.wrapping_add(at)).cmp(&both(key.as_ptr())).then(len.cmp(&key.len()));
        }
        while i < common {
            // SAFETY: `i < len` and `at + len` is in bounds.
            let mine = unsafe { self.base.add(at + i).read_volatile() };
            if mine != key[i] {
                return mine.cmp(&key[i]);
            }
            i += 1;
        }
        len.cmp(&key.len())
    }

    /// Returns the bytes of a page that no thread changes meanwhile.
    ///
    /// # Safety
    /// The caller holds a latch on the page (any mode but optimistic), or owns its memory.
    #[inline]
    pub(crate) unsafe fn stable(self) -> &'a [u8; PAGE_SIZE] {
        // SAFETY: mapped by `new`'s contract, unchanged by the caller's promise.
        unsafe { &*self.base.cast() }
    }

    /// Prefetches the cache lines of the `len` bytes at `at`. Bytes outside the page are left out.
    #[inline]
    pub(crate) fn prefetch_bytes(self, at: usize, len: usize) {
        lines_of(self.base.addr(), at, len).for_each(|at| self.prefetch(at));
    }

    /// Prefetches the cache line at `at`.
    #[inline]
    pub(crate) fn prefetch(self, at: usize) {
        prefetch_read(self.base.wrapping_add(at));
    }

    /// Prefetches the cache line at `at` for a write.
    #[inline]
    pub(crate) fn prefetch_to_write(self, at: usize) {
        prefetch_write(self.base.wrapping_add(at));
    }
}

/// Returns one offset for each cache line that contains some of the `len` bytes at offset `at` of the page at address
/// `base`. Lines begin at multiples of their size in memory, and a page in a frame begins in the middle of a line.
#[inline]
fn lines_of(base: usize, at: usize, len: usize) -> impl Iterator<Item = usize> {
    const LINE: usize = 64;
    let mut next = at.saturating_sub((base + at) % LINE);
    let end = (at + len).min(PAGE_SIZE);
    // Written by hand, because `step_by` computes its number of steps in advance, by a division.
    std::iter::from_fn(move || {
        let line = next;
        next += LINE;
        (line < end).then_some(line)
    })
}

/// Reads a word at any alignment.
///
/// # Safety
/// Eight bytes at `at` must be readable.
#[inline(always)]
unsafe fn word_at(at: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u64>().read_unaligned() }
}

/// Returns the four bytes at `first`, followed by the four bytes at `last`, as a number with the same order.
///
/// # Safety
/// Four bytes at `first` and four bytes at `last` must be readable.
#[inline(always)]
unsafe fn both_halves(first: *const u8, last: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    let (first, last) = unsafe { (first.cast::<u32>().read_unaligned(), last.cast::<u32>().read_unaligned()) };
    u64::from(u32::from_be(first)) << 32 | u64::from(u32::from_be(last))
}

/// Returns true if two words at any alignment are equal.
///
/// # Safety
/// `size_of::<T>()` bytes at both pointers must be readable.
#[inline(always)]
unsafe fn is_same_word<T: PartialEq>(mine: *const u8, theirs: *const u8) -> bool {
    // SAFETY: the caller's promise; `T` is an integer, which any bytes are.
    unsafe { mine.cast::<T>().read_unaligned() == theirs.cast::<T>().read_unaligned() }
}

/// Write access to a page, for the holder of its exclusive latch.
#[derive(Debug)]
pub(crate) struct PageMut<'a> {
    bytes: &'a mut [u8; PAGE_SIZE],
}

impl<'a> PageMut<'a> {
    /// # Safety
    /// `base` points at `PAGE_SIZE` bytes, aligned to 8, that only the caller changes during `'a`.
    #[inline]
    pub(crate) unsafe fn new(base: *mut u8) -> PageMut<'a> {
        // SAFETY: the caller's promise.
        PageMut { bytes: unsafe { &mut *base.cast() } }
    }

    /// Returns write access to a page in ordinary memory.
    pub(crate) fn of(bytes: &'a mut PageBytes) -> PageMut<'a> {
        PageMut { bytes: bytes.as_bytes_mut() }
    }

    /// Returns read access to the same page.
    #[inline]
    pub(crate) fn read(&self) -> PageRef<'_> {
        PageRef { base: self.bytes.as_ptr(), _page: PhantomData }
    }

    /// Returns all bytes of the page, for reading.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8; PAGE_SIZE] {
        self.bytes
    }

    /// Returns all bytes of the page.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8; PAGE_SIZE] {
        self.bytes
    }

    /// Writes bytes at `at`.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Like [`PageMut::put`], optimised for a few bytes.
    #[inline]
    pub(crate) fn put_few(&mut self, at: usize, bytes: &[u8]) {
        copy_few(&mut self.bytes[at..at + bytes.len()], bytes);
    }

    /// Changes the bytes at `at` to their exclusive or with `difference`.
    pub(crate) fn xor(&mut self, at: usize, difference: &[u8]) {
        for (byte, difference) in self.bytes[at..at + difference.len()].iter_mut().zip(difference) {
            *byte ^= difference;
        }
    }

    /// Writes a byte at `at`.
    #[inline]
    pub(crate) fn put_u8(&mut self, at: usize, value: u8) {
        self.bytes[at] = value;
    }

    /// Writes a 16-bit value at `at`, little-endian.
    #[inline]
    pub(crate) fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    /// Writes a 32-bit value at `at`, little-endian.
    #[inline]
    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Writes a 64-bit value at `at`, little-endian.
    #[inline]
    pub(crate) fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    /// Moves `len` bytes within the page; the ranges may overlap.
    #[inline]
    pub(crate) fn shift(&mut self, from: usize, len: usize, to: usize) {
        self.bytes.copy_within(from..from + len, to);
    }
}

/// A page in ordinary memory, aligned like a frame.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct PageBytes([u64; PAGE_SIZE / 8]);

impl PageBytes {
    /// Allocates a page of zeros on the heap.
    pub(crate) fn boxed() -> Box<PageBytes> {
        Box::new(PageBytes([0; PAGE_SIZE / 8]))
    }

    /// Allocates a copy of a page on the heap.
    pub(crate) fn boxed_of(bytes: &[u8; PAGE_SIZE]) -> Box<PageBytes> {
        let mut copy = Box::<PageBytes>::new_uninit();
        // SAFETY: source and target have exactly this many bytes and do not overlap, because the box is new. Afterwards
        // each word of the box has a value, and any value is valid.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.as_mut_ptr().cast::<u8>(), PAGE_SIZE);
            copy.assume_init()
        }
    }

    /// Returns the bytes of the page.
    pub(crate) fn as_bytes(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: the array has exactly this many bytes and `u8` has no alignment.
        unsafe { &*self.0.as_ptr().cast() }
    }

    /// Returns the bytes of the page, mutable.
    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8; PAGE_SIZE] {
        // SAFETY: the array has exactly this many bytes, `u8` has no alignment, and any byte pattern is a valid `u64`.
        unsafe { &mut *self.0.as_mut_ptr().cast() }
    }
}

impl std::fmt::Debug for PageBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageBytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_their_bytes_do() {
        let mut page = PageBytes::boxed();
        let mut rng = fastrand::Rng::with_seed(7);
        let step = if cfg!(miri) { 7 } else { 1 };
        for (len, other) in (0..30).step_by(step).flat_map(|len| (0..30).map(move |other| (len, other))) {
            for differs in 0..=len.min(other) {
                let mine: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                let mut theirs: Vec<u8> = (0..other).map(|_| rng.u8(..)).collect();
                let same = differs.min(len).min(other);
                theirs[..same].copy_from_slice(&mine[..same]);
                let at = 100 + rng.usize(..9);
                page.as_bytes_mut()[at..at + len].copy_from_slice(&mine);
                assert_eq!(PageRef::of(&page).compare(at, len, &theirs), mine.cmp(&theirs), "{mine:?} {theirs:?}");
            }
        }
        assert_eq!(PageRef::of(&page).compare(PAGE_SIZE - 2, 3, &[]), Ordering::Less);
    }

    /// Regression test: offsets were rounded down as if pages began at cache lines, so the last line of every other row was
    /// not prefetched.
    #[test]
    fn each_line_of_a_row_is_asked_for_once() {
        for (base, at, len) in (0..64).step_by(8).flat_map(|base| (96..240).map(move |at| (base, at, 1 + at * 7 % 300)))
        {
            let asked: Vec<usize> = lines_of(base, at, len).map(|at| (base + at) / 64).collect();
            let wanted: Vec<usize> = ((base + at) / 64..=(base + at + len - 1) / 64).collect();
            assert_eq!(asked, wanted, "{len} bytes at {at} of a page at {base}");
        }
        assert_eq!(lines_of(32, PAGE_SIZE - 1, 200).count(), 1, "none beyond the page");
    }
}
