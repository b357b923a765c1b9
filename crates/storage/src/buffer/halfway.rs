//! A panic while a page is latched exclusively: the page may be half changed, so the state in memory is no longer
//! trusted.
//!
//! A frame has no link to its pool. Only the unwinding of a writer needs to get from the one to the other, so the pool
//! is looked up here: every pool notes where its frames lie.

use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file::WriteAhead;
use crate::base::ids::PageId;
use crate::base::poison::Poison;

struct Pool {
    /// Addresses of its frames.
    frames: Range<usize>,
    poison: Weak<Poison>,
    wal: Weak<dyn WriteAhead>,
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());

/// Notes where a pool's frames lie, until dropped.
#[derive(Debug)]
pub(super) struct Noted {
    frames: Range<usize>,
}

impl Noted {
    /// The addresses of the pool's frames.
    pub(super) fn new(frames: Range<usize>, poison: &Arc<Poison>, wal: &Arc<dyn WriteAhead>) -> Noted {
        let pool = Pool { frames: frames.clone(), poison: Arc::downgrade(poison), wal: Arc::downgrade(wal) };
        POOLS.lock().push(pool);
        Noted { frames }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        POOLS.lock().retain(|pool| pool.frames != self.frames);
    }
}

/// Called when a writer of this page unwinds: closes the instance of the pool that has a frame at the address.
#[cold]
#[inline(never)]
pub(super) fn left(page: PageId, address: usize) {
    let pools = POOLS.lock();
    let found = pools.iter().find(|pool| pool.frames.contains(&address));
    let found = found.and_then(|pool| Some((pool.poison.upgrade()?, pool.wal.upgrade()?)));
    drop(pools);
    if let Some((poison, wal)) = found {
        poison.distrust(&format!("a panic while page {page} was being changed"), wal.durable());
    }
}
