//! Points: places in the code where a fiber may pass the CPU to its next team mate.
//!
//! [`ctx_point!`](crate::ctx_point) divides code into stretches that fit the instruction cache.
//! [`ctx_prefetch!`](crate::ctx_prefetch) prefetches data and lets other fibers run until the data arrives. Each such
//! place is a [`Point`]. The linker gathers the points in a section, so that [`points`] lists all of them without a
//! hand-written list. A point is live or dead for each operation; a dead point costs a test and a branch.
//!
//! Placement: put points in shallow functions, or under a common caller. Each stack frame by which the call chains of
//! two consecutive points differ costs a mispredicted return at each hop. The run time is lowest with 4-8 KiB of code
//! between two points. The number of misses is lowest with as much code as fits the cache without conflicts.

mod bitmap;
mod operation;
mod prefetch;
mod section;

pub use bitmap::{Bitmap, BitmapError, Build, Site};
pub use operation::{OperationId, Operations, TooManyOperations};
pub use prefetch::prefetch;
pub use section::points;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::{self, NO_MATE_FLAG, local};

/// Place in the code where a fiber may pass the CPU to its next team mate. It is created by
/// [`ctx_point!`](crate::ctx_point).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Point {
    /// Bit `n` is set if the point is live for the operation of index `n`.
    live: AtomicU64,
    name: &'static str,
    module: &'static str,
    file: &'static str,
    line: u32,
    column: u32,
}

const _: () = assert!(size_of::<Point>() == 64, "the section must be an array");

impl Point {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, module: &'static str, file: &'static str, line: u32, column: u32) -> Point {
        Point { live: AtomicU64::new(u64::MAX), name, module, file, line, column }
    }

    /// Returns the name of the point. Several points may have the same name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the module that contains the point.
    #[must_use]
    pub fn module(&self) -> &'static str {
        self.module
    }

    /// Returns the name of the source file that contains the point.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// Returns the line number of the point, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Returns the operations for which the point is live: the union of their
    /// [`OperationId::bit`](crate::team::OperationId::bit)s. For a fiber outside of any operation the point is live if
    /// it is live for at least one operation. Initially a point is live for all operations.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Sets the operations for which the point is live, in every executor of the process. Running executors see the
    /// change soon.
    pub fn set_live(&self, operations: u64) {
        self.live.store(operations, Ordering::Relaxed);
    }
}

/// Makes every point of the program live for all operations, or for none.
pub fn set_all(live: bool) {
    points().for_each(|point| point.set_live(if live { u64::MAX } else { 0 }));
}

/// Implements `ctx_point!`.
#[doc(hidden)]
#[inline(always)]
pub fn at(point: &'static Point, latched: bool) {
    debug_assert!(
        latched || context::latches_held() == 0 || !context::is_fiber(),
        "point '{}' is reached with a latch held",
        point.name
    );
    if is_live(point.live.load(Ordering::Relaxed)) {
        context::hop();
    }
}

/// Implements `ctx_prefetch!`.
#[doc(hidden)]
#[inline(always)]
pub fn at_prefetch<T: ?Sized>(point: &'static Point, address: *const T, lines: usize) {
    debug_assert!(
        context::latches_held() == 0 || !context::is_fiber(),
        "point '{}' is reached with a latch held",
        point.name
    );
    if is_live(point.live.load(Ordering::Relaxed)) {
        prefetch(address, lines);
        context::hop();
    }
}

/// Returns true if the running fiber may hop at a place that is live for `operations`: it has a team mate, holds no
/// latch, and is in one of the operations.
/// This function is for embedders that number their places themselves: `if is_live(self.live[site]) { hop() }`.
#[inline(always)]
#[must_use]
#[allow(unsafe_code)]
pub fn is_live(operations: u64) -> bool {
    let local = local();
    debug_assert!(local.hop_block_word.get() != 0 || !local.current.get().is_null());
    // SAFETY: while `hop_block_word` is zero a fiber runs and `current` is its node.
    local.hop_block_word.get() == 0 && operations & unsafe { (*local.current.get()).mask.get() } != 0
}

/// Returns true if the caller is a fiber that holds a latch.
#[must_use]
pub fn is_latched() -> bool {
    local().hop_block_word.get() & !NO_MATE_FLAG != 0 && context::is_fiber()
}

/// Marks a place at which the next team mate may run.
///
/// In debug builds `ctx_point!("name")` asserts that the fiber holds no latch. Use `ctx_point!("name", latched)` in
/// code that is also reached while a latch is held; the point then does nothing while a latch is held (paper 4.1.3).
///
/// ```
/// # fn probe() {} fn append() {}
/// probe();
/// sched_steps::ctx_point!("insert/found");
/// append();
/// ```
#[macro_export]
macro_rules! ctx_point {
    ($name:expr) => {{
        $crate::__ctx_site!(SITE, $name);
        $crate::point::at(&SITE, false)
    }};
    ($name:expr, latched) => {{
        $crate::__ctx_site!(SITE, $name);
        $crate::point::at(&SITE, true)
    }};
}

/// Prefetches `lines` cache lines from an address and lets the next team mate run until they arrive:
/// `ctx_prefetch!("name", address, lines)`. Does nothing if no team mate can run.
///
/// ```
/// let row = Box::new([0_u8; 128]);
/// sched_steps::ctx_prefetch!("row", &raw const *row, 2);
/// ```
#[macro_export]
macro_rules! ctx_prefetch {
    ($name:expr, $address:expr, $lines:expr) => {{
        $crate::__ctx_site!(SITE, $name);
        $crate::point::at_prefetch(&SITE, $address, $lines)
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __ctx_site {
    ($site:ident, $name:expr) => {
        // No `allow(unsafe_code)` here: it would be an error in a crate that forbids unsafe code, and the lint does not
        // apply to macros of other crates.
        #[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = "sched_steps_points"))]
        // The static is modified through the section's list, which the compiler does not see. Without `used` the
        // compiler would treat the words as constants.
        #[used]
        static $site: $crate::point::Point = $crate::point::Point::new(
            $name,
            ::core::module_path!(),
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
    };
}

#[cfg(test)]
mod tests;
