//! Memory of the pool: reserved at once, allocated by the system when first touched.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
#[cfg(not(miri))]
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A zero-initialised array of `T` in a mapping of its own. `T` must be valid when all its bytes are zero.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    base: NonNull<T>,
    len: usize,
    bytes: usize,
    _owns: PhantomData<T>,
}

// SAFETY: an arena owns its elements like a `Box<[T]>`.
unsafe impl<T: Send> Send for Arena<T> {}
// SAFETY: as above; it hands out only shared references.
unsafe impl<T: Sync> Sync for Arena<T> {}

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// The implementor guarantees just that.
#[allow(dead_code, reason = "a bound is its only use, and does not count as one")]
pub(crate) unsafe trait ZeroValid {}

impl<T: ZeroValid> Arena<T> {
    /// Reserves `len` elements; asks for large pages if `huge`.
    ///
    /// # Errors
    /// When the system refuses the address space.
    pub(crate) fn new(len: usize, huge: bool) -> io::Result<Arena<T>> {
        let bytes = (len * size_of::<T>()).max(1);
        #[cfg(miri)]
        let base = miri::map(bytes);
        // SAFETY: a fresh private mapping that overlaps nothing.
        #[cfg(not(miri))]
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        #[cfg(all(target_os = "linux", not(miri)))]
        if huge {
            // SAFETY: the range is the mapping just made. Advice may be refused: then pages are small.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        let _ = huge;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arena { base, len, bytes, _owns: PhantomData })
    }
}

impl<T> Arena<T> {
    /// Has the system allocate the memory of these elements now instead of when they are first touched; their content
    /// does not change. False if the system refuses (Linux supports this since 5.14).
    pub(crate) fn populate(&self, elements: std::ops::Range<usize>) -> bool {
        const PAGE: usize = 4096;
        let end = (elements.end.min(self.len) * size_of::<T>()).next_multiple_of(PAGE).min(self.bytes);
        let start = elements.start * size_of::<T>() / PAGE * PAGE;
        if start >= end || cfg!(miri) {
            return false;
        }
        // SAFETY: the range lies in the mapping and begins at a page. The advice changes no byte: it does what a fault
        // would do, and leaves what is there alone, whichever thread uses it at the moment.
        #[cfg(target_os = "linux")]
        let asked = unsafe {
            madvise(self.base.as_ptr().byte_add(start).cast(), end - start, Advice::LinuxPopulateWrite).is_ok()
        };
        #[cfg(not(target_os = "linux"))]
        let asked = false;
        asked
    }

    /// The elements.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the mapping holds `len` elements, zero is valid for them (`ZeroValid`), mappings are
        // page-aligned, and it lives until drop.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length and nothing borrows from it any more.
        // Elements have no destructors worth running: see `ZeroValid`'s implementors (atomics and bytes).
        #[cfg(not(miri))]
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        #[cfg(miri)]
        miri::unmap(self.base.as_ptr().cast(), self.bytes);
    }
}

/// Miri makes no raw system calls; the allocator provides the memory.
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

// SAFETY: a frame is atomics, a latch (an atomic) and bytes.
unsafe impl ZeroValid for super::frame::Frame {}
// SAFETY: an atomic integer.
unsafe impl ZeroValid for std::sync::atomic::AtomicU32 {}
