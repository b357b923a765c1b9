//! Stacks of fibers: one slab per executor, a guard below each stack, and stack tops that do not share cache sets.
//!
//! More than eight page-aligned stacks fill one set of a first-level data cache. A stride that is a power of two has
//! the same effect on the second-level cache and on its address translation. So the stride between stacks is an odd
//! number of pages, and each stack top is shifted by an odd multiple of a cache line.
//!
//! A large page cannot contain a guard, so each stack in large pages has large pages of its own. Two such stacks are
//! separated by untouched address space, whose last page is the guard. All such stacks would begin in the same sets of
//! the second-level cache, so their tops are shifted within the size of one way of this cache.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::tools;

/// Error of allocating an executor's stacks.
#[derive(Debug, thiserror::Error)]
#[error("{fibers} stacks of {bytes} bytes: {source}")]
pub struct StackError {
    /// Requested number of stacks.
    pub fibers: usize,
    /// Bytes of each stack.
    pub bytes: usize,
    /// Error of the operating system.
    pub source: io::Error,
}

/// Explains an ENOMEM error for a guard: each guard splits a memory mapping, and the number of mappings is limited.
#[cold]
fn explain_mapping_limit(error: io::Error, guards: usize) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let most = limit.trim().parse().map_or_else(|_| String::new(), |most: u64| format!(", which is {most}"));
    io::Error::other(format!(
        "no more mappings after {guards} stacks, each of which takes two: raise vm.max_map_count{most}, or build with \
         fewer fibers, {} say (Linux 6.13 and later need none)",
        guards.saturating_mul(9) / 10
    ))
}

/// `MADV_GUARD_INSTALL` of Linux 6.13, which installs a guard without a memory mapping of its own.
const GUARD_INSTALL: libc::c_int = 102;
/// Offset between the tops of neighbouring stacks within a page, in bytes: five cache lines.
const COLOUR: usize = 5 * 64;
/// Size of a large page in bytes.
const LARGE_PAGE: usize = 2 << 20;
/// Offset between the tops of neighbouring stacks in large pages, in bytes, modulo [`LARGE_COLOURS`].
const LARGE_COLOUR: usize = 4096 + COLOUR;
/// Bytes of one way of a second-level cache.
const LARGE_COLOURS: usize = 128 << 10;

/// Placement of guards and stacks, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Address of the lowest guard.
    pub(crate) base: usize,
    /// Distance in bytes from `base` to the end of the last stack's stride.
    pub(crate) len: usize,
    /// Distance in bytes from one guard to the next.
    pub(crate) stride: usize,
    /// Size in bytes of a guard: one page.
    pub(crate) guard: usize,
    /// Distance in bytes from the end of a guard to the end of its stack.
    pub(crate) span: usize,
}

/// Address range of one stack of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Lowest usable address; the guard is below this address.
    pub(crate) low: usize,
    /// Initial stack pointer, a multiple of 16.
    pub(crate) top: usize,
}

/// Contiguous array of stacks with guards.
#[derive(Debug)]
pub(crate) struct Slab {
    layout: Layout,
    /// Address and size in bytes of the mapping.
    mapping: (usize, usize),
    /// Offset between the tops of consecutive stacks, and the modulus of these offsets, both in bytes.
    colour: (usize, usize),
    count: usize,
    numbers: Box<[usize]>,
}

impl Slab {
    /// Maps `count` stacks of at least `bytes` bytes. Uses large pages if `large` is true and the system has them. The
    /// pages of the stacks are not touched yet.
    pub(crate) fn new(count: usize, bytes: usize, large: bool) -> Result<Slab, StackError> {
        Slab::map(count, bytes, large).map_err(|source| StackError { fibers: count, bytes, source })
    }

    fn map(count: usize, bytes: usize, large: bool) -> io::Result<Slab> {
        let page = rustix::param::page_size();
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let (colour, span, stride) = if large {
            let span = bytes.checked_add(LARGE_COLOURS).and_then(|all| all.checked_next_multiple_of(LARGE_PAGE));
            let span = span.ok_or_else(too_large)?;
            ((LARGE_COLOUR, LARGE_COLOURS), span, span.checked_add(LARGE_PAGE).ok_or_else(too_large)?)
        } else {
            // A stack's stride consists of a guard page, the stack, and one page for the offset of its top.
            let pages = bytes.div_ceil(page).checked_add(2).ok_or_else(too_large)? | 1;
            let stride = pages.checked_mul(page).ok_or_else(too_large)?;
            ((COLOUR, page), stride - page, stride)
        };
        let len = stride.checked_mul(count).ok_or_else(too_large)?;
        // On the thread back end each fiber has the stack of its OS thread.
        if !crate::context::OWN_STACKS {
            let layout = Layout { base: 0, len: 0, stride, guard: page, span };
            return Ok(Slab { layout, mapping: (0, 0), colour, count, numbers: Box::new([]) });
        }
        // The mapping has extra space, so that its base can be aligned to a large page.
        let mapped = if large { len.checked_add(LARGE_PAGE).ok_or_else(too_large)? } else { len };
        // SAFETY: the call creates a new mapping at an address of the system's choice.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        } as usize;
        let base = if large { mapping.next_multiple_of(LARGE_PAGE) + LARGE_PAGE - page } else { mapping };
        let layout = Layout { base, len, stride, guard: page, span };
        let mut slab = Slab { layout, mapping: (mapping, mapped), colour, count, numbers: Box::new([]) };
        #[cfg(target_os = "linux")]
        if large {
            // SAFETY: the range is the mapping that was just created. The system may ignore the advice: then the pages
            // are small.
            let _ = unsafe { libc::madvise(mapping as *mut c_void, mapped, libc::MADV_HUGEPAGE) };
        }
        for number in 0..count {
            slab.guard(number).map_err(|error| explain_mapping_limit(error, number))?;
        }
        slab.numbers =
            (0..count).map(|number| tools::register_stack(slab.get(number).low, slab.get(number).top)).collect();
        Ok(slab)
    }

    fn guard(&self, number: usize) -> io::Result<()> {
        let Layout { base, stride, guard: page, .. } = self.layout;
        let guard = (base + number * stride) as *mut c_void;
        // SAFETY: the range is the lowest page of a stack on which no fiber runs yet, inside this slab's mapping.
        unsafe {
            if libc::madvise(guard, page, GUARD_INSTALL) != 0 {
                mprotect(guard, page, MprotectFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Returns stack number `number`.
    pub(crate) fn get(&self, number: usize) -> Stack {
        debug_assert!(number < self.count);
        let Layout { base, stride, guard, span, .. } = self.layout;
        let low = base + number * stride + guard;
        let (by, within) = self.colour;
        Stack { low, top: low + span - number * by % within }
    }

    /// Returns the minimum number of bytes of a stack that a fiber may use.
    pub(crate) fn usable(&self) -> usize {
        self.layout.span - self.colour.1
    }

    /// Returns the maximum number of bytes that any stack of the slab has used.
    pub(crate) fn high_water(&self) -> Option<usize> {
        let Layout { guard, span, .. } = self.layout;
        let used = |number| {
            let Stack { low, .. } = self.get(number);
            used_bytes(low, low + span, guard)
        };
        crate::context::OWN_STACKS.then(|| (0..self.count).map(used).max().unwrap_or(0))
    }

    /// Returns the placement of the guards and stacks.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the address range of the mapping; empty if fibers run on the stacks of OS threads.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.mapping.0..self.mapping.0 + self.mapping.1
    }
}

/// Returns the number of bytes from the lowest page between `low` and `end` that was ever touched up to `end`: the
/// maximum size that the stack has had. Queries the resident pages with `mincore`, which is permitted in a signal
/// handler.
pub(crate) fn used_bytes(low: usize, end: usize, page: usize) -> usize {
    /// Maximum number of pages per query.
    const MANY: usize = 128;
    let mut at = low;
    while at < end {
        let mut given = [0_u8; MANY];
        let len = (end - at).min(MANY * page);
        // SAFETY: `at` is the address of a page of a mapped slab, and `given` has a byte for each page of `len`.
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
        let (address, bytes) = self.mapping;
        if bytes > 0 {
            // SAFETY: the range is the slab's own mapping, and the executor that owned the slab has ended all its
            // fibers.
            let unmapped = unsafe { munmap(address as *mut c_void, bytes) };
            debug_assert!(unmapped.is_ok(), "a slab of stacks is unmapped twice");
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn stacks_in_large_pages_begin_at_one_and_have_guards_of_their_own() {
        let slab = Slab::new(3, 128 << 10, true).unwrap();
        if !crate::context::OWN_STACKS {
            return;
        }
        let (addresses, layout) = (slab.addresses(), slab.layout());
        assert!(slab.usable() >= 128 << 10);
        let mut before = addresses.start;
        for number in 0..3 {
            let Stack { low, top } = slab.get(number);
            assert!(low.is_multiple_of(LARGE_PAGE) && top.is_multiple_of(16));
            assert!(top - low >= slab.usable(), "stack {number}");
            assert!(low - layout.guard >= before, "the guard lies in no stack");
            assert!(low - LARGE_PAGE >= before, "nor in a large page of one");
            before = low + layout.span;
        }
        assert!(before <= addresses.end);
        let lows = |by: usize| slab.get(1).top - by * 64;
        assert_ne!(lows(0) % LARGE_COLOURS, slab.get(0).top % LARGE_COLOURS, "tops lie in different sets");
    }
}
