//! Campaigns against the engine and its schedulers, behind `cargo xtask`.
//!
//! | module | holds |
//! | --- | --- |
//! | [`torture`] | campaigns with a budget and a seed: crashes, damage, faults of the disk, isolation, mutants |
//! | `sim` | the simulated disk, scheduler and workload that they share |
//! | [`fuzz`] | inputs for all code that takes bytes from outside, guided by coverage |
//! | [`checkers`] | loom, shuttle, Miri, sanitizers |
//! | `record` | a line for each long run |

pub mod checkers;
pub mod fuzz;
mod record;
mod sim;
pub mod torture;
