//! Stacks: one slab per executor, a guard below each, tops that do not share cache sets.
//!
//! Measured: more than eight page-aligned stacks fill one set of a first-level data cache, and a stride
//! that is a power of two does the same to the second level and its address translation. So the stride is
//! an odd number of pages and each top is moved by an odd multiple of a line.
//!
//! A stack in large pages has some to itself, because no large page can have a guard in it: address space, of which nothing
//! is touched, lies between two stacks, and its last page is the guard. All such stacks would begin in the same sets of the
//! second level, so their tops are moved within as many bytes as that has in a way.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
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

/// What the system means that has no memory for the guard of a stack: each guard parts a mapping, and their number is limited.
#[cold]
fn of_mappings(error: io::Error, guards: usize) -> io::Error {
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

/// `MADV_GUARD_INSTALL`, Linux 6.13: a guard without a mapping of its own.
const GUARD_INSTALL: libc::c_int = 102;
/// How far apart the tops of neighbouring stacks lie within a page, in bytes: five lines.
const COLOUR: usize = 5 * 64;
/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;
/// How far apart the tops of neighbouring stacks in large pages lie, in bytes, modulo [`LARGE_COLOURS`].
const LARGE_COLOUR: usize = 4096 + COLOUR;
/// Bytes of a way of a second-level cache.
const LARGE_COLOURS: usize = 128 << 10;

/// Where guards and stacks lie, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Address of the lowest guard.
    pub(crate) base: usize,
    /// From there to the end of the last stack's stride.
    pub(crate) len: usize,
    /// From one guard to the next.
    pub(crate) stride: usize,
    /// A guard: a page.
    pub(crate) guard: usize,
    /// From a guard's end to the end of its stack.
    pub(crate) span: usize,
}

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
    layout: Layout,
    /// Address and bytes of the mapping.
    mapping: (usize, usize),
    /// Bytes that tops are moved by from stack to stack, and the bytes within which they are moved.
    colour: (usize, usize),
    count: usize,
    numbers: Box<[usize]>,
}

impl Slab {
    /// Maps `count` stacks of at least `bytes` bytes, in large pages of memory if `large` and the system has them. None of
    /// their pages is touched yet.
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
            // The guard, the stack, and a page from which the colours are taken.
            let pages = bytes.div_ceil(page).checked_add(2).ok_or_else(too_large)? | 1;
            let stride = pages.checked_mul(page).ok_or_else(too_large)?;
            ((COLOUR, page), stride - page, stride)
        };
        let len = stride.checked_mul(count).ok_or_else(too_large)?;
        // A back end of threads brings its own stacks.
        if !crate::context::OWN_STACKS {
            let layout = Layout { base: 0, len: 0, stride, guard: page, span };
            return Ok(Slab { layout, mapping: (0, 0), colour, count, numbers: Box::new([]) });
        }
        // Room to begin at a large page.
        let mapped = if large { len.checked_add(LARGE_PAGE).ok_or_else(too_large)? } else { len };
        // SAFETY: a new mapping at an address of the system's choice.
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
            // SAFETY: the mapping just made. Advice may be refused: then pages are small.
            let _ = unsafe { libc::madvise(mapping as *mut c_void, mapped, libc::MADV_HUGEPAGE) };
        }
        for number in 0..count {
            slab.guard(number).map_err(|error| of_mappings(error, number))?;
        }
        slab.numbers =
            (0..count).map(|number| tools::register_stack(slab.get(number).low, slab.get(number).top)).collect();
        Ok(slab)
    }

    fn guard(&self, number: usize) -> io::Result<()> {
        let Layout { base, stride, guard: page, .. } = self.layout;
        let guard = (base + number * stride) as *mut c_void;
        // SAFETY: the lowest page of a stack that no fiber runs on yet, inside our own mapping.
        unsafe {
            if libc::madvise(guard, page, GUARD_INSTALL) != 0 {
                mprotect(guard, page, MprotectFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Stack `number`.
    pub(crate) fn get(&self, number: usize) -> Stack {
        debug_assert!(number < self.count);
        let Layout { base, stride, guard, span, .. } = self.layout;
        let low = base + number * stride + guard;
        let (by, within) = self.colour;
        Stack { low, top: low + span - number * by % within }
    }

    /// Bytes that a fiber may use at least.
    pub(crate) fn usable(&self) -> usize {
        self.layout.span - self.colour.1
    }

    /// Bytes used of the fullest stack.
    pub(crate) fn high_water(&self) -> Option<usize> {
        let Layout { guard, span, .. } = self.layout;
        let used = |number| {
            let Stack { low, .. } = self.get(number);
            used_bytes(low, low + span, guard)
        };
        crate::context::OWN_STACKS.then(|| (0..self.count).map(used).max().unwrap_or(0))
    }

    /// Where the guards and stacks lie.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Addresses of the mapping; empty where fibers bring their own stacks.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.mapping.0..self.mapping.0 + self.mapping.1
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
        let (address, bytes) = self.mapping;
        if bytes > 0 {
            // SAFETY: our own mapping; the executor that owned the slab has ended all its fibers.
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
