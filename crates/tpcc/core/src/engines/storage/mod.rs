//! The workload on the storage engine. The code is written so that programs that embed the engine can copy it.

pub mod advice;
pub mod codec;
pub mod compacting;
pub mod copying;
pub mod database;
mod delayed;
pub mod fiber_hook;
pub mod fibers;
mod fingerprint;
pub mod in_order;
pub mod loading;
pub mod store;
pub mod waits_only;
