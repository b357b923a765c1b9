//! Points: the places where a fiber may pass the CPU to its team mate.
//!
//! [`ctx_point!`](crate::ctx_point) parts code into stretches that fit the instruction cache;
//! [`ctx_prefetch!`](crate::ctx_prefetch) asks for data and lets others run until it has come. Each place is
//! a [`Point`] that the linker gathers in a section, so that [`points`] lists them all without a
//! list that is kept by hand. A point is live or not for each operation; a dead one costs a test and a branch.
//!
//! Where to put them: shallow, or under a common caller. Every frame by which the call chains of two
//! consecutive points differ costs a mispredicted return, 5 ns, at each hop. 4-8 KiB of code between two
//! points is best for time; for counted misses, as much as fits the cache without conflicts.

mod bitmap;
mod operation;
mod prefetch;
mod section;

pub use bitmap::{Bitmap, BitmapError, Build, Site};
pub use operation::{OperationId, Operations, TooManyOperations};
pub use prefetch::prefetch;
pub use section::points;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::{self, INERT, local};

/// A place in the code where a fiber may pass the CPU on. Made by [`ctx_point!`](crate::ctx_point).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Point {
    /// Bit `n`: live for the operation of index `n`.
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

    /// Its name, which need not be the only one of its kind.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The module it lies in.
    #[must_use]
    pub fn module(&self) -> &'static str {
        self.module
    }

    /// The source file it lies in.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// The line it lies in, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    /// For which operations it is live: bit [`OperationId::bit`](crate::team::OperationId::bit) of each. A
    /// fiber in no operation passes if it is live for any. All, until set.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Sets for which operations it is live, in every executor of the process; those that run see it soon.
    pub fn set_live(&self, operations: u64) {
        self.live.store(operations, Ordering::Relaxed);
    }
}

/// Makes every point of the program live for all operations, or for none.
pub fn set_all(live: bool) {
    points().for_each(|point| point.set_live(if live { u64::MAX } else { 0 }));
}

/// What `ctx_point!` does.
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

/// What `ctx_prefetch!` does.
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

/// Whether the running fiber may hop at a place that is live for `operations`: it has a mate, holds no latch,
/// and is in one of them.
///
/// For an embedder that numbers its places itself: `if is_live(self.live[site]) { hop() }`.
#[inline(always)]
#[must_use]
#[allow(unsafe_code)]
pub fn is_live(operations: u64) -> bool {
    let local = local();
    debug_assert!(local.hold.get() != 0 || !local.current.get().is_null());
    // SAFETY: while `hold` is zero a fiber runs and `current` is its node.
    local.hold.get() == 0 && operations & unsafe { (*local.current.get()).mask.get() } != 0
}

/// True if the caller is in a fiber that holds a latch.
#[must_use]
pub fn is_latched() -> bool {
    local().hold.get() & !INERT != 0 && context::is_fiber()
}

/// A place where the next team mate may run.
///
/// `ctx_point!("name")` asserts in debug builds that the fiber holds no latch; `ctx_point!("name", latched)`
/// is for code that is also reached with one held, where it falls through (paper 4.1.3).
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

/// Asks for `lines` cache lines from an address and lets the next team mate run while they come:
/// `ctx_prefetch!("name", address, lines)`. Does nothing where no mate could run.
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
        // No `allow(unsafe_code)`: it would be an error in a crate that forbids what it allows, and the lint does not
        // look into macros of other crates.
        #[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = "sched_steps_points"))]
        // Written through the list of the section, which the compiler does not see: without `used` it takes the
        // words for constants.
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
