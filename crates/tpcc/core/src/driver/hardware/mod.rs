//! What a run asks of the machine beyond threads and memory.

pub(crate) mod code;
pub(crate) mod cores;
