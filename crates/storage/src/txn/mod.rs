#![doc = include_str!("README.md")]

pub(crate) mod active;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod ghosts;
pub(crate) mod undo;
