//! The one place where this crate promises what fibers need of the code that runs on them.
#![allow(unsafe_code)]

use sched_steps::{BuildError, Builder, Executor};

use crate::workload::database::RegionFound;

/// Builds an executor for transactions over the engine: for what `driver`, `history`, `acid` and `index_fetch` spawn.
pub fn executor(builder: Builder) -> Result<Executor, BuildError> {
    // SAFETY: the contract is that nothing which must be closed in reverse order of opening is open in a thread-local
    // where a fiber gives way. A fiber gives way inside calls of the engine (its points, its waits, the begin of a
    // statement), between transactions, and where a crew rests. At these places are open:
    // - calls of the engine. Its thread-locals are the place that a thread took last, counters of hits, the hand of
    //   fingers, and in debug builds counts of latches and mutexes. Each is read or written within one call that passes
    //   no point; none is set for the length of a call and put back; counts are zero where it gives way, which debug
    //   builds assert.
    // - transactions and the driver. They have no thread-local. Sessions of the shell wait between transactions as well, with
    //   no guard of their board or inbox.
    // - libraries below: the standard library's, parking_lot's and hdrhistogram's calls return before a point is passed.
    //   No runtime is entered and no scoped thread-local is used.
    // No initialiser of a thread-local passes a point: they are constants, or take a number.
    unsafe { builder.build() }
}

/// Memory of the executor's stacks; none where the system does not say, and where fibers are threads.
pub fn stacks(executor: &Executor) -> Option<RegionFound> {
    let addresses = executor.stack_addresses();
    let given = storage::MemoryMap::read().ok().filter(|_| !addresses.is_empty())?.within(&addresses);
    let (bytes, resident, large) = (addresses.len() as u64, given.resident, given.large);
    Some(RegionFound { name: "stacks".to_owned(), bytes, resident, large })
}

/// Builds a runtime of sibling groups for transactions over the engine: for what `tenants` spawns.
pub fn runtime(builder: itas::Builder) -> Result<itas::Runtime, itas::BuildError> {
    // SAFETY: as above. What runs beside transactions are loops over memory, which have no thread-local.
    unsafe { builder.build() }
}
