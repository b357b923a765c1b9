//! Handling of a panic while a page is latched exclusively. The page may be half changed, so the state in memory is no
//! longer trusted, and the instance is closed.
//!
//! A frame has no pointer to its pool. Only an unwinding writer needs to find the pool of a frame, so a global list maps the
//! address ranges of frames to pools.

use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file::WriteAhead;
use crate::base::ids::PageId;
use crate::base::poison::Poison;

struct Pool {
    /// Address range of the pool's frames.
    frames: Range<usize>,
    poison: Weak<Poison>,
    wal: Weak<dyn WriteAhead>,
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());

/// Registration of a pool's address range in the global list. Dropping it removes the pool from the list.
#[derive(Debug)]
pub(super) struct PoolRegistration {
    frames: Range<usize>,
}

impl PoolRegistration {
    /// Registers the address range of a pool's frames.
    pub(super) fn new(frames: Range<usize>, poison: &Arc<Poison>, wal: &Arc<dyn WriteAhead>) -> PoolRegistration {
        let pool = Pool { frames: frames.clone(), poison: Arc::downgrade(poison), wal: Arc::downgrade(wal) };
        POOLS.lock().push(pool);
        PoolRegistration { frames }
    }
}

impl Drop for PoolRegistration {
    fn drop(&mut self) {
        POOLS.lock().retain(|pool| pool.frames != self.frames);
    }
}

/// Closes the instance whose pool has a frame at `address`. Called when a writer of `page` unwinds.
#[cold]
#[inline(never)]
pub(super) fn writer_unwound(page: PageId, address: usize) {
    let pools = POOLS.lock();
    let found = pools.iter().find(|pool| pool.frames.contains(&address));
    let found = found.and_then(|pool| Some((pool.poison.upgrade()?, pool.wal.upgrade()?)));
    drop(pools);
    if let Some((poison, wal)) = found {
        poison.mark_inconsistent(&format!("a panic while page {page} was being changed"), wal.durable());
    }
}
