#![doc = include_str!("README.md")]

pub(crate) mod checkpoint;
pub(crate) mod control;
pub(crate) mod progress;
pub(crate) mod redo;
pub(crate) mod restart;
