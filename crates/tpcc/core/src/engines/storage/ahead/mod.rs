//! Transactions whose loops run ahead of them on several cores, by speculation.

mod engine;
mod governed;
pub(crate) mod loops;
mod rows;
mod steps;

pub(crate) use engine::AheadStore;
pub(crate) use governed::Governed;
pub(crate) use rows::RowStore;
