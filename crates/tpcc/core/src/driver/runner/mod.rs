//! How the transactions of a worker share its thread. A scheduler is one module here, and its flags.

mod crew;
pub mod itas;
pub mod steps;
pub mod threads;

use super::admission::Ready;
use super::desk::Desk;
use super::hardware::code::LARGE_PAGE;
use super::{Control, Share};
use crate::workload::engine::Engine;
use crate::workload::txn::StepOrder;

/// Stack of a fiber, in bytes: transactions keep groups of rows on theirs.
const STACK_BYTES: usize = 128 << 10;

/// Bytes that the stack of a fiber takes at most; one that lies in large pages takes one of them.
pub fn stack_bytes(large_pages: bool) -> u64 {
    if large_pages { STACK_BYTES.next_multiple_of(LARGE_PAGE) as u64 } else { STACK_BYTES as u64 }
}

/// A way to run the transactions that a desk gives out.
pub trait Runner: Sync {
    /// Most transactions of a worker under way at once.
    fn team_size(&self) -> usize;

    /// Said before a run: whether transactions of a worker that are under way together are of different warehouses.
    fn keep_apart(&self, _apart: bool) {}

    /// Serves the terminals of `desk` on the calling thread until the run stops. A failure stops the run for all; what was
    /// counted before it stays.
    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, desk: Desk<'_, R>) -> Share;
}

/// Where a worker serves.
pub struct Workplace<'a, E> {
    /// The engine.
    pub engine: &'a E,
    /// The worker's number.
    pub number: usize,
    /// Transactions under way at once: at most [`Runner::team_size`], less if the worker has not the terminals for it.
    pub size: usize,
    /// Order of steps in a transaction.
    pub steps: StepOrder,
    /// Whether counters of the processor and the system are read.
    pub counters: bool,
    /// What the main thread tells.
    pub control: &'a Control,
}
