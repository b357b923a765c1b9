#![doc = include_str!("README.md")]

pub(crate) mod active;
pub(crate) mod buffers;
pub(crate) mod chains;
pub(crate) mod engine;
pub(crate) mod family;
mod freeing;
pub(crate) mod ghosts;
pub(crate) mod positions;
pub(crate) mod slot_state;
pub(crate) mod transaction;
pub(crate) mod undo;
