//! Arrays that each have a memory mapping of their own. An array reserves its address space at creation; the system
//! allocates memory on first touch, in large pages if requested.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
#[cfg(not(miri))]
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Size of a large page in bytes, on both supported architectures. Only the rounding and alignment of regions use this
/// constant: if the kernel's large pages have another size, the kernel uses its own size.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// Page size that a mapping requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// Page size that the system chooses: small pages, unless the machine's setting for large pages is `always`.
    Usual,
    /// Small pages, regardless of the machine's setting for large pages.
    Small,
    /// Large pages, if the system has them. The array begins at a large-page boundary and is rounded up to whole large
    /// pages.
    Large,
}

/// A zero-initialised array of `T` in its own memory mapping. `T` must be valid when all its bytes are zero.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    base: NonNull<T>,
    len: usize,
    /// Number of bytes of the mapping that the array may use.
    bytes: usize,
    /// Start of the mapping. The parts of the mapping outside the array's `bytes` are inaccessible.
    mapping: NonNull<u8>,
    mapped: usize,
    _owns: PhantomData<T>,
}

// SAFETY: an arena owns its elements like a `Box<[T]>`.
unsafe impl<T: Send> Send for Arena<T> {}
// SAFETY: an arena owns its elements like a `Box<[T]>`, and hands out only shared references.
unsafe impl<T: Sync> Sync for Arena<T> {}

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the implementing type.
#[allow(dead_code, reason = "a bound is its only use, and does not count as one")]
pub(crate) unsafe trait ZeroValid {}

impl<T: ZeroValid> Arena<T> {
    /// Creates an array of `len` elements, all zero. Reserves its address space; memory is allocated on first touch.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub(crate) fn new(len: usize, pages: PageSize) -> io::Result<Arena<T>> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        #[cfg(miri)]
        let (mapping, place) = {
            let _ = pages;
            (miri::map(bytes), MappedRange { offset: 0, bytes, mapped: bytes })
        };
        #[cfg(not(miri))]
        let (mapping, place) = map(bytes, pages)?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the array lies within the mapping.
        let base = unsafe { mapping.add(place.offset) }.cast();
        Ok(Arena { base, len, bytes: place.bytes, mapping, mapped: place.mapped, _owns: PhantomData })
    }
}

/// Position of an array in its mapping, in bytes.
struct MappedRange {
    offset: usize,
    bytes: usize,
    mapped: usize,
}

/// Maps memory for `bytes` bytes, and advises the system of the page size. If the system refuses the advice, its default
/// applies.
#[cfg(not(miri))]
fn map(bytes: usize, pages: PageSize) -> io::Result<(*mut std::ffi::c_void, MappedRange)> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let all = ProtFlags::READ | ProtFlags::WRITE;
    if pages != PageSize::Large {
        // SAFETY: a fresh private mapping that overlaps nothing.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, all, flags) }?;
        #[cfg(target_os = "linux")]
        if pages == PageSize::Small {
            // SAFETY: the range is the mapping just made.
            let _ = unsafe { madvise(mapping, bytes, Advice::LinuxNoHugepage) };
        }
        return Ok((mapping, MappedRange { offset: 0, bytes, mapped: bytes }));
    }
    // One extra large page leaves room for the alignment, and keeps at least one inaccessible page after the array. The
    // inaccessible page keeps the system from merging the mappings of two arrays: the statistics of a merged mapping would
    // not show which array has the large pages.
    let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
    let bytes = bytes.checked_next_multiple_of(LARGE_PAGE).ok_or_else(too_large)?;
    let mapped = bytes.checked_add(LARGE_PAGE).ok_or_else(too_large)?;
    // SAFETY: a fresh private mapping that overlaps nothing.
    let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, ProtFlags::empty(), flags) }?;
    let offset = mapping.addr().next_multiple_of(LARGE_PAGE) - mapping.addr();
    let base = mapping.wrapping_byte_add(offset);
    // SAFETY: `offset` is less than a large page, so the range lies in the mapping just made. No other code uses it yet.
    let opened = unsafe { mprotect(base, bytes, MprotectFlags::READ | MprotectFlags::WRITE) };
    if let Err(error) = opened {
        // SAFETY: the mapping was made above with this length, and no other code uses it.
        let _ = unsafe { munmap(mapping, mapped) };
        return Err(error.into());
    }
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the range lies in the mapping made above, and the advice changes no byte.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
    }
    Ok((mapping, MappedRange { offset, bytes, mapped }))
}

impl<T> Arena<T> {
    /// Returns the address range of the array, including the usable memory that rounding adds.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.bytes
    }

    /// Makes the system allocate the memory of these elements now, not on first touch. The contents of the elements do not
    /// change. Returns false if the range is empty or the system refuses (Linux supports the request since 5.14).
    pub(crate) fn populate(&self, elements: Range<usize>) -> bool {
        const PAGE: usize = 4096;
        let end = (elements.end.min(self.len) * size_of::<T>()).next_multiple_of(PAGE).min(self.bytes);
        let start = elements.start * size_of::<T>() / PAGE * PAGE;
        if start >= end || cfg!(miri) {
            return false;
        }
        // SAFETY: the range lies in the mapping and begins at a page. The advice changes no byte: it has the effect of page
        // faults and leaves present pages alone, even while other threads use them.
        #[cfg(target_os = "linux")]
        let asked = unsafe {
            madvise(self.base.as_ptr().byte_add(start).cast(), end - start, Advice::LinuxPopulateWrite).is_ok()
        };
        #[cfg(not(target_os = "linux"))]
        let asked = false;
        asked
    }

    /// Returns all elements of the array.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the mapping holds `len` elements, zero is valid for them (`ZeroValid`), mappings are page-aligned, and
        // the mapping lives until drop.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length and nothing borrows from it any more. Elements need no
        // destructor: the implementors of `ZeroValid` are atomics and bytes.
        #[cfg(not(miri))]
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
        #[cfg(miri)]
        miri::unmap(self.mapping.as_ptr().cast(), self.mapped);
    }
}

/// Miri supports no raw system calls, so the allocator provides the memory.
#[cfg(miri)]
mod miri {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a small arena")
    }

    pub(super) fn map(bytes: usize) -> *mut std::ffi::c_void {
        // SAFETY: `bytes` is not 0.
        unsafe { alloc_zeroed(layout(bytes)) }.cast()
    }

    pub(super) fn unmap(base: *mut u8, bytes: usize) {
        // SAFETY: `base` came from `map` with the same size, once.
        unsafe { dealloc(base, layout(bytes)) }
    }
}

// SAFETY: all-zero bytes are a valid atomic integer.
unsafe impl ZeroValid for std::sync::atomic::AtomicU32 {}
// SAFETY: a byte may have any value.
unsafe impl ZeroValid for u8 {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn elements_are_zero_and_keep_what_is_stored() {
        for pages in [PageSize::Usual, PageSize::Small, PageSize::Large] {
            let arena = Arena::<AtomicU32>::new(5000, pages).unwrap();
            assert!(arena.as_slice().iter().all(|word| word.load(Ordering::Relaxed) == 0), "{pages:?}");
            arena.as_slice()[4999].store(7, Ordering::Relaxed);
            assert_eq!(arena.as_slice()[4999].load(Ordering::Relaxed), 7, "{pages:?}");
            assert!(arena.range().len() >= 5000 * 4);
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn large_ones_begin_at_a_large_page_and_never_touch() {
        let arenas: Vec<_> = (1..20).map(|i| Arena::<u8>::new(i * 700_000, PageSize::Large).unwrap()).collect();
        let mut ranges: Vec<_> = arenas.iter().map(Arena::range).collect();
        ranges.sort_by_key(|range| range.start);
        for pair in ranges.windows(2) {
            assert!(pair[0].end < pair[1].start, "{pair:?}: a page of nobody lies between");
        }
        assert!(ranges.iter().all(|r| r.start.is_multiple_of(LARGE_PAGE) && r.len().is_multiple_of(LARGE_PAGE)));
    }
}
