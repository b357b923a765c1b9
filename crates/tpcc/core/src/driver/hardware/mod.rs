//! What a run asks of the machine beyond threads and memory.

pub mod code;
pub mod cores;
