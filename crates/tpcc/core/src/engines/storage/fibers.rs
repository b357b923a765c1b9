//! The only place in this crate that guarantees the requirements of fibers for the code that runs on them.
#![allow(unsafe_code)]

use sched_steps::{BuildError, Builder, Executor};

use crate::workload::database::RegionReport;

/// Builds an executor for transactions on the engine, for the fibers that `driver`, `history`, `acid` and `index_fetch`
/// spawn.
pub fn executor(builder: Builder) -> Result<Executor, BuildError> {
    // SAFETY: the contract is that a suspended fiber has nothing open in a thread-local that must be closed in reverse order
    // of opening. A fiber is suspended inside calls of the engine (at its points, in its waits, at the start of a
    // statement), between transactions, and in a fiber pool without work. The code that is active at these places:
    // - calls of the engine. Its thread-locals are the thread's number, the transaction slot that a thread claimed last, the
    //   counters of page hits and latch reads, the thread's row of reader words, the cached insert positions (fingers), and
    //   in debug builds the counts of latches and mutexes. Each is read or written within one call that passes no point. None
    //   is set for the length of a call and then restored. The counts are zero when a fiber is suspended, which debug builds
    //   assert.
    // - transactions and the driver. They have no thread-local. (Speculative loops have one, but run on threads.) Sessions
    //   of the shell are suspended between transactions, too, without a guard of their board or inbox.
    // - libraries below: calls of the standard library, parking_lot and hdrhistogram return before a point is passed. No
    //   runtime is entered and no scoped thread-local is used.
    // No initialiser of a thread-local passes a point: each is a constant, or takes a number.
    unsafe { builder.build() }
}

/// Returns the memory usage of the executor's stacks. `None` if the system does not report it, or if fibers are threads.
pub fn stacks(executor: &Executor) -> Option<RegionReport> {
    let addresses = executor.stack_addresses();
    let given = storage::MemoryMap::read().ok().filter(|_| !addresses.is_empty())?.within(&addresses);
    let (bytes, resident, large) = (addresses.len() as u64, given.resident, given.large);
    Some(RegionReport { name: "stacks".to_owned(), bytes, resident, large })
}

/// Builds a runtime of sibling groups for transactions on the engine, for the fibers that `tenants` spawns.
pub fn runtime(builder: itas::Builder) -> Result<itas::Runtime, itas::BuildError> {
    // SAFETY: as above. The other work beside transactions is loops over memory, which have no thread-local.
    unsafe { builder.build() }
}
