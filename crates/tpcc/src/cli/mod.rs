//! The command line: what a user types, what that comes to, and the commands that carry it out.

pub(crate) mod cmd;
pub(crate) mod error;
pub(crate) mod flags;
pub(crate) mod interrupt;
pub(crate) mod memory;
pub(crate) mod resolve;
mod values;
