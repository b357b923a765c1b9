//! A panic while a page is latched exclusively: the page may be half changed, so the state in memory is no longer
//! trusted.
//!
//! A frame has no link to its pool. Only the unwinding of a writer needs to get from the one to the other, so the pool
//! is looked up here: every pool notes where its frames lie.

use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file::WriteAhead;
use super::frame::Frame;
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
    pub(super) fn new(frames: &[Frame], poison: &Arc<Poison>, wal: &Arc<dyn WriteAhead>) -> Noted {
        let addresses = frames.as_ptr_range();
        let frames = addresses.start.addr()..addresses.end.addr();
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

/// Called when a writer of this frame unwinds: closes the instance.
#[cold]
#[inline(never)]
pub(super) fn left(frame: &Frame) {
    let address = std::ptr::from_ref(frame).addr();
    let pools = POOLS.lock();
    let found = pools.iter().find(|pool| pool.frames.contains(&address));
    let found = found.and_then(|pool| Some((pool.poison.upgrade()?, pool.wal.upgrade()?)));
    drop(pools);
    if let Some((poison, wal)) = found {
        poison.distrust(&format!("a panic while page {} was being changed", frame.page_id()), wal.durable());
    }
}
