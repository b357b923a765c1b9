//! Speculative execution: loops of transactions run ahead of the transactions on several cores.

mod engine;
pub mod loops;
mod rows;
mod selector;
mod steps;

pub use engine::AheadStore;
pub use rows::RowStore;
pub use selector::LoopSelector;
