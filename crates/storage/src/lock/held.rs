//! The record locks that an owner holds, for tools that trace transactions.

use super::mode::KeyMode;
use super::owner::LockOwner;
use crate::base::holds::HeldLock;

impl LockOwner {
    /// Returns the record locks that the owner holds, without those of a gap alone.
    pub(crate) fn held_records(&self) -> Vec<HeldLock> {
        let held = self.arena.iter().filter(|request| !request.waiting.get());
        let records = held.filter_map(|request| {
            let is_exclusive = match request.held.get().key() {
                KeyMode::None => return None,
                KeyMode::S => false,
                KeyMode::U | KeyMode::X => true,
            };
            let name = request.name.get();
            let bucket = std::ptr::from_ref(self.locks.buckets.of(name)).addr();
            Some(HeldLock { table: request.table.get(), name: name.0, bucket, is_exclusive })
        });
        records.collect()
    }
}
