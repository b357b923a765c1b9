//! Random safe programs of fibers, checked against a model (feature `testing`).
//!
//! The actions of a program are drawn from a seed while it runs. Its fibers hop, yield, wait for wakes, for conditions
//! and for each other, spawn fibers, cancel each other and themselves, panic and catch panics, and run nested
//! executors. Destructors, conditions and fiber-local values do the same; orders, policies and callbacks panic at some
//! call. The model checks these invariants:
//!
//! - a fiber begins once and ends once, and every value that it was given is dropped;
//! - when a wait returns, the fiber's frames are unchanged, and it is the running fiber;
//! - a condition is polled only while its fiber waits for it, and the wait returns only after the condition held;
//! - a cancelled fiber does not continue after any wait, and each panic is reported to its owner;
//! - no other fiber runs during a panic, or while a latch is held;
//! - a scope ends, and the executor is usable afterwards.

mod acts;
mod callbacks;
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};

use model::Model;

/// Runs the test program that is drawn from `seed`; returns its number of steps.
///
/// # Errors
/// The description of the first violated invariant.
pub fn program(seed: u64) -> Result<u64, String> {
    let model = Model::new(seed);
    let ran = catch_unwind(AssertUnwindSafe(|| acts::outermost(&model)));
    if let Err(payload) = ran {
        model.record_violation(format!("a panic has left the program: {}", model::panic_message(&*payload)));
    }
    model.check_final_state()
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
