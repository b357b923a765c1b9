#![doc = include_str!("README.md")]

mod absent;
mod altering;
pub(crate) mod catalog;
pub(crate) mod codec;
pub(crate) mod columns;
pub(crate) mod contended;
mod creation;
pub(crate) mod declared;
mod dropping;
mod entry;
mod finger;
pub(crate) mod index;
pub(crate) mod indexed;
pub(crate) mod info;
pub(crate) mod locate;
mod mark;
pub(crate) mod numbers;
pub(crate) mod overflow;
pub(crate) mod peek;
pub(crate) mod point;
pub(crate) mod purge;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod streaming;
pub(crate) mod waits;
pub(crate) mod write;
