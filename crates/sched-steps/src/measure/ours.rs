//! Measurement of the hops of this crate.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::POINTS;
use crate::{Executor, MIN_STACK_BYTES, ctx_point};

/// Placement of the points in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All hops at one point.
    One,
    /// Four points of one function, staggered.
    Staggered,
    /// Four points of one function, staggered, each behind a call, which shows the cost of a hook that is not inlined.
    /// The return from this call is mispredicted.
    Called,
    /// One point at the bottom of eight nested calls.
    Deep,
}

/// Measures hops of `contexts` fibers in one ring, at points with all their checks.
///
/// Returns the time and the number of hops; 0 hops if the system provides no stacks.
pub fn hops(shape: Shape, contexts: usize, rounds: usize) -> (Duration, u64) {
    let builder = Executor::builder().fibers(contexts.max(2)).team_size(contexts.max(2)).stack_bytes(MIN_STACK_BYTES);
    // SAFETY: the bodies use no thread-locals except this crate's own.
    let Ok(mut steps) = (unsafe { builder.build() }) else {
        return (Duration::ZERO, 0);
    };
    let time = Cell::new(Duration::ZERO);
    let ended = steps.scope(|s| {
        for fiber in 0..contexts.max(2) {
            let time = &time;
            s.spawn(move || {
                body(shape, rounds / 8 + 1);
                let begun = Instant::now();
                body(shape, rounds);
                if fiber == 0 {
                    time.set(begun.elapsed());
                }
            });
        }
    });
    let hops = if ended.is_ok() { contexts.max(2) * rounds * POINTS } else { 0 };
    (time.get(), hops as u64)
}

fn body(shape: Shape, rounds: usize) {
    match shape {
        Shape::One => (0..rounds * POINTS).for_each(|_| one()),
        Shape::Staggered => (0..rounds).for_each(|_| staggered()),
        Shape::Called => (0..rounds).for_each(|_| called()),
        Shape::Deep => (0..rounds * POINTS).for_each(|_| {
            deep::<8>(1);
        }),
    }
}

#[inline(never)]
fn one() {
    ctx_point!("measure/one");
}

#[inline(never)]
fn staggered() {
    ctx_point!("measure/first");
    ctx_point!("measure/second");
    ctx_point!("measure/third");
    ctx_point!("measure/fourth");
}

#[inline(never)]
fn called() {
    one();
    one();
    one();
    one();
}

#[inline(never)]
fn deep<const DEPTH: usize>(x: u64) -> u64 {
    match DEPTH {
        0 => {
            ctx_point!("measure/deep");
            x
        }
        8 => deep::<7>(x) + 1,
        7 => deep::<6>(x) + 1,
        6 => deep::<5>(x) + 1,
        5 => deep::<4>(x) + 1,
        4 => deep::<3>(x) + 1,
        3 => deep::<2>(x) + 1,
        2 => deep::<1>(x) + 1,
        _ => deep::<0>(black_box(x)) + 1,
    }
}

/// Returns the code size of a switch at a point, in bytes: the load of the next node, the store of the current node,
/// and the code that saves one context and restores the other. Measures the largest copy in the program. Excludes the
/// checks in front of the switch (latch, team mate, live for this operation).
///
/// Returns 0 if fibers are OS threads.
#[must_use]
pub fn code_bytes() -> usize {
    sizes::all().iter().max().map_or(0, |&bytes| bytes as usize + sizes::RING_ADVANCE_BYTES)
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, feature = "asan"))
))]
mod sizes {
    pub(super) use crate::context::RING_ADVANCE_BYTES;

    // Each copy of a hop records its size in this section. The section is not empty: the bodies above contain five copies
    // or more.
    unsafe extern "C" {
        #[link_name = "__start_sched_steps_hops"]
        static START: [u32; 0];
        #[link_name = "__stop_sched_steps_hops"]
        static STOP: [u32; 0];
    }

    pub(super) fn all() -> &'static [u32] {
        let (start, stop) = ((&raw const START).cast::<u32>(), &raw const STOP);
        // SAFETY: the section consists of four-byte words only, and is read-only.
        unsafe { std::slice::from_raw_parts(start, (stop.addr() - start.addr()) / 4) }
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, feature = "asan"))
)))]
mod sizes {
    pub(super) const RING_ADVANCE_BYTES: usize = 0;

    pub(super) fn all() -> &'static [u32] {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(any(miri, feature = "asan"), ignore = "no code to measure")]
    fn a_switch_is_small() {
        let bytes = code_bytes();
        assert!((30..=64).contains(&bytes), "{bytes}");
    }

    #[test]
    fn every_shape_hops_as_often_as_it_says() {
        for shape in [Shape::One, Shape::Staggered, Shape::Called, Shape::Deep] {
            let (time, hops) = hops(shape, 3, 5);
            assert_eq!(hops, 60);
            assert!(time > Duration::ZERO);
        }
    }
}
