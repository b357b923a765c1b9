//! Runners: schedulers for the transactions of a worker, one per module.

mod fiber_pool;
pub mod itas;
pub mod steps;
pub mod threads;

use super::admission::Ready;
use super::hardware::code::LARGE_PAGE;
use super::worker_terminals::WorkerTerminals;
use super::{Control, WorkerResult};
use crate::workload::engine::Engine;
use crate::workload::txn::StepOrder;

/// Stack size of a fiber in bytes. Transactions keep groups of rows on the stack.
const STACK_BYTES: usize = 128 << 10;

/// Returns the maximum number of bytes of a fiber's stack. A stack in large pages takes one large page.
pub fn stack_bytes(large_pages: bool) -> u64 {
    if large_pages { STACK_BYTES.next_multiple_of(LARGE_PAGE) as u64 } else { STACK_BYTES as u64 }
}

/// Scheduler of the transactions of a worker's terminals.
pub trait Runner: Sync {
    /// Returns the maximum number of concurrent transactions of a worker.
    fn team_size(&self) -> usize;

    /// Called before a run. `apart` is true if the concurrent transactions of a worker are of different warehouses.
    fn keep_apart(&self, _apart: bool) {}

    /// Runs the transactions of `terminals` on the calling thread until the run stops. A failure stops the run for all
    /// workers; counts from before the failure remain valid.
    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, terminals: WorkerTerminals<'_, R>) -> WorkerResult;
}

/// Objects and settings of a run that a worker uses.
pub struct Workplace<'a, E> {
    /// Engine of the run.
    pub engine: &'a E,
    /// Number of the worker.
    pub number: usize,
    /// Number of concurrent transactions: at most [`Runner::team_size`], less if the worker has too few terminals.
    pub size: usize,
    /// Order of the steps in a transaction.
    pub steps: StepOrder,
    /// True if hardware and operating system counters are read.
    pub counters: bool,
    /// Control variables of the run.
    pub control: &'a Control,
}
