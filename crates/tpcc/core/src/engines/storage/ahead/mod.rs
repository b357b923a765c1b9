//! Transactions whose loops run ahead of them on several cores, by speculation.

mod engine;
mod governed;
pub mod loops;
mod rows;
mod steps;

pub use engine::AheadStore;
pub use governed::Governed;
pub use rows::RowStore;
