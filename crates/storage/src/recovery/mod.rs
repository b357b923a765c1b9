//! Restart after a crash, and the checkpoints that bound it. See `README.md`.

pub(crate) mod checkpoint;
pub(crate) mod control;
pub(crate) mod restart;
