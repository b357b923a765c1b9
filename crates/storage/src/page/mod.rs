//! Pages: how 8 KiB are laid out, and the one accessor through which they are read and written.
//!
#![doc = include_str!("FORMAT.md")]

pub(crate) mod access;
pub(crate) mod header;
pub(crate) mod hints;
pub(crate) mod layout;
pub(crate) mod slotted;
pub(crate) mod sound;

pub(crate) use access::{PageBytes, PageMut, PageRef};

/// Longest key, in bytes.
pub(crate) const MAX_KEY: usize = 512;
/// Longest row, in bytes.
pub(crate) const MAX_ROW: usize = 4000;
