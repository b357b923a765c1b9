//! The command line: flags, the settings that result from them, and the commands.

pub(crate) mod cmd;
pub(crate) mod error;
pub(crate) mod flags;
pub(crate) mod interrupt;
pub(crate) mod memory;
pub(crate) mod resolve;
mod values;
