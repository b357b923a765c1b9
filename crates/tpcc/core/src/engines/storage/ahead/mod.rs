//! Speculative execution: loops of transactions run ahead of the transactions on several cores.

pub mod loops;
mod rows;
mod steps;

pub use rows::RowStore;
