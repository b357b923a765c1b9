//! Campaigns: randomised tests of the engine and its schedulers. `cargo xtask` runs them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`torture`] | campaigns with a budget and a seed: crashes, damage, I/O errors, isolation, mutants |
//! | `sim` | the shared simulation: disk, scheduler and workload |
//! | [`fuzz`] | coverage-guided fuzzing of all code that parses external bytes |
//! | [`checkers`] | loom, shuttle, Miri, sanitizers |
//! | `parallel` | work on several threads |
//! | `record` | the result line of each long run |

pub mod checkers;
pub mod fuzz;
mod parallel;
mod record;
mod sim;
pub mod torture;
