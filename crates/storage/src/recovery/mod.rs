#![doc = include_str!("README.md")]

pub(crate) mod checkpoint;
pub(crate) mod control;
pub(crate) mod restart;
