//! Stacks: one slab per executor, a guard below each, tops that do not share cache sets.
//!
//! Measured: more than eight page-aligned stacks fill one set of a first-level data cache, and a stride
//! that is a power of two does the same to the second level and its address translation. So the stride is
//! an odd number of pages and each top is moved by an odd multiple of a line.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::tools;

/// Why an executor got no stacks.
#[derive(Debug, thiserror::Error)]
#[error("{fibers} stacks of {bytes} bytes: {source}")]
pub struct StackError {
    /// Stacks asked for.
    pub fibers: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// What the operating system said.
    pub source: io::Error,
}

/// `MADV_GUARD_INSTALL`, Linux 6.13: a guard without a mapping of its own.
const GUARD_INSTALL: libc::c_int = 102;
/// How far apart the tops of neighbouring stacks lie within a page, in bytes: five lines.
const COLOUR: usize = 5 * 64;

/// One stack of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Lowest usable address; the guard lies below.
    pub(crate) low: usize,
    /// Where the stack begins, a multiple of 16.
    pub(crate) top: usize,
}

/// Stacks side by side.
#[derive(Debug)]
pub(crate) struct Slab {
    base: usize,
    len: usize,
    stride: usize,
    page: usize,
    count: usize,
    numbers: Box<[usize]>,
}

impl Slab {
    /// Maps `count` stacks of at least `bytes` bytes. None of their pages is touched yet.
    pub(crate) fn new(count: usize, bytes: usize) -> Result<Slab, StackError> {
        Slab::map(count, bytes).map_err(|source| StackError { fibers: count, bytes, source })
    }

    fn map(count: usize, bytes: usize) -> io::Result<Slab> {
        let page = rustix::param::page_size();
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        // The guard, the stack, and a page from which the colours are taken.
        let pages = bytes.div_ceil(page).checked_add(2).ok_or_else(too_large)? | 1;
        let stride = pages.checked_mul(page).ok_or_else(too_large)?;
        let len = stride.checked_mul(count).ok_or_else(too_large)?;
        // A back end of threads brings its own stacks.
        if !crate::context::OWN_STACKS {
            return Ok(Slab { base: 0, len: 0, stride, page, count, numbers: Box::new([]) });
        }
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        } as usize;
        let mut slab = Slab { base, len, stride, page, count, numbers: Box::new([]) };
        for number in 0..count {
            slab.guard(number)?;
        }
        slab.numbers =
            (0..count).map(|number| tools::register_stack(slab.get(number).low, slab.get(number).top)).collect();
        Ok(slab)
    }

    fn guard(&self, number: usize) -> io::Result<()> {
        let guard = (self.base + number * self.stride) as *mut c_void;
        // SAFETY: the lowest page of a stack that no fiber runs on yet, inside our own mapping.
        unsafe {
            if libc::madvise(guard, self.page, GUARD_INSTALL) != 0 {
                mprotect(guard, self.page, MprotectFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Stack `number`.
    pub(crate) fn get(&self, number: usize) -> Stack {
        debug_assert!(number < self.count);
        let low = self.base + number * self.stride + self.page;
        let end = self.base + (number + 1) * self.stride;
        Stack { low, top: end - number * COLOUR % self.page }
    }

    /// Bytes that a fiber may use at least.
    pub(crate) fn usable(&self) -> usize {
        self.stride - 2 * self.page
    }

    /// Bytes used of the fullest stack.
    pub(crate) fn high_water(&self) -> Option<usize> {
        let used = |number| {
            let Stack { low, .. } = self.get(number);
            used_bytes(low, self.base + (number + 1) * self.stride, self.page)
        };
        crate::context::OWN_STACKS.then(|| (0..self.count).map(used).max().unwrap_or(0))
    }

    /// The mapping: first address, bytes, bytes from one stack to the next, bytes of a guard.
    pub(crate) fn layout(&self) -> (usize, usize, usize, usize) {
        (self.base, self.len, self.stride, self.page)
    }
}

/// Bytes from the lowest page between `low` and `end` that was ever touched to `end`: how far a stack has grown. Asks the
/// system which pages it has given, in a way that a signal handler may.
pub(crate) fn used_bytes(low: usize, end: usize, page: usize) -> usize {
    /// Pages asked for at a time.
    const MANY: usize = 128;
    let mut at = low;
    while at < end {
        let mut given = [0_u8; MANY];
        let len = (end - at).min(MANY * page);
        // SAFETY: `at` is the address of a page of a slab that is mapped, and `given` has a byte for each page of `len`.
        let asked = unsafe { libc::mincore(at as *mut c_void, len, given.as_mut_ptr().cast()) };
        if asked == 0
            && let Some(first) = given.iter().position(|given| given & 1 == 1)
        {
            return end - at - first * page;
        }
        at += len;
    }
    0
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.numbers.iter().for_each(|&number| tools::deregister_stack(number));
        if self.len > 0 {
            // SAFETY: our own mapping; the executor that owned the slab has ended all its fibers.
            let unmapped = unsafe { munmap(self.base as *mut c_void, self.len) };
            debug_assert!(unmapped.is_ok(), "a slab of stacks is unmapped twice");
        }
    }
}
