//! Random safe programs of fibers against a model (feature `testing`).
//!
//! A program is drawn from a seed while it runs: fibers that hop, yield, wait for wakes, conditions and each other, spawn,
//! cancel each other and themselves, panic and catch panics, run executors of their own; destructors, conditions and
//! fiber-locals that do the same; orders, policies and callbacks that panic at some call. The model knows what must hold
//! whatever they do:
//!
//! - a fiber begins once and ends once, and all that it was given is dropped;
//! - its frames are as it left them when a wait returns, and it is the fiber that runs;
//! - a condition is asked only while its fiber waits for it, and the wait returns when it held;
//! - a cancelled fiber goes on after no wait, and a panic reaches whom it belongs to;
//! - no other fiber runs in the middle of a panic, nor while a latch is held;
//! - a scope ends, and the executor is as good as new.

mod acts;
mod callbacks;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// Runs the program of a seed; returns the number of its steps.
///
/// # Errors
/// What did not hold.
pub fn program(seed: u64) -> Result<u64, String> {
    let world = World::new(seed);
    let ran = catch_unwind(AssertUnwindSafe(|| acts::outermost(&world)));
    if let Err(payload) = ran {
        world.find(format!("a panic has left the program: {}", world::words(&*payload)));
    }
    world.conclude()
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_programs_keep_the_rules() {
        let programs = if cfg!(miri) { 12 } else { 3000 };
        for seed in 0..programs {
            if let Err(what) = super::program(seed) {
                panic!("seed {seed}: {what}");
            }
        }
    }
}
