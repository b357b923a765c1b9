//! Hardware settings of a run: CPU pinning and large pages for code.

pub mod code;
pub mod cores;
