//! Fibers that take turns: each prints a step, then lets the next one run.
//!
//! `cargo run -p sched-steps --example round_robin`

#![allow(unsafe_code)]

use sched_steps::{Executor, fiber};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: the fibers have no stack-scoped thread-local open when they hop.
    let mut steps = unsafe { Executor::builder().fibers(3).team_size(3).build() }?;
    let letters = steps.scope(|s| {
        let fibers = ["red", "green", "blue"].map(|name| {
            s.spawn_named(name, move || {
                for step in 1..=3 {
                    println!("{name:<5} step {step}");
                    fiber::hop();
                }
                name.len()
            })
        });
        fibers.into_iter().map(|fiber| fiber.join()).sum::<Result<usize, _>>()
    })??;
    println!("{letters} letters");
    Ok(())
}
