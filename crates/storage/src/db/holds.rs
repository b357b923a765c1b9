//! Record locks of a transaction and the layout of frames, for tools that trace transactions.

use super::database::Database;
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::holds::{FrameLayout, HeldLock};

impl Database {
    /// Returns the number for locks and the name of every open table.
    pub fn lock_tables(&self) -> Vec<(u32, String)> {
        self.catalog.lock_tables()
    }

    /// Returns the offsets of the latch word and of the index number in a frame of the buffer pool. Frames begin where the
    /// range of the [shared lines](Database::shared_lines) `page latch` begins.
    pub fn frame_layout(&self) -> FrameLayout {
        crate::buffer::frame_layout()
    }
}

impl Transaction<'_> {
    /// Returns the record locks that the transaction holds, without those of a gap alone.
    ///
    /// # Errors
    /// [`TxnError::InUse`] while another fiber executes a statement of the transaction.
    pub fn held_locks(&self) -> Result<Vec<HeldLock>, TxnError> {
        let mut txn = self.txn.try_borrow_mut().map_err(|_| TxnError::InUse)?;
        Ok(txn.slot.state().owner.held_records())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::io::MemDisk;
    use crate::{Options, Table};

    #[test]
    fn a_transaction_tells_the_locks_that_it_holds() {
        const ROWS: Table<u64, u64> = Table::new("rows");
        let options = Options::new().buffer_pool(64 << 20);
        let db = options.open_on(Arc::new(MemDisk::new())).expect("a database in memory opens");
        db.transact(|tx| tx.put(&ROWS, &1, &10).and_then(|()| tx.put(&ROWS, &2, &20))).expect("no conflict");
        let mut tx = db.begin().expect("a slot is free");
        tx.get(&ROWS, &1).expect("no conflict");
        tx.put(&ROWS, &2, &21).expect("no conflict");
        let held = tx.held_locks().expect("no other fiber");
        let heads = db.shared_lines().into_iter().find(|lines| lines.kind == "lock heads").expect("a kind");
        assert!(held.iter().all(|lock| heads.contains(lock.bucket)), "{held:?}");
        let rows = db.lock_tables().into_iter().find(|(_, name)| name == "rows").expect("it is open").0;
        let modes: Vec<bool> = held.iter().filter(|lock| lock.table == rows).map(|lock| lock.is_exclusive).collect();
        assert_eq!(modes, [false, true]);
        tx.rollback().expect("undo");
        let tx = db.begin().expect("a slot is free");
        assert_eq!(tx.held_locks().expect("no other fiber"), []);
    }

    #[test]
    fn a_frame_begins_with_its_latch() {
        let db = Options::new().buffer_pool(64 << 20).open_on(Arc::new(MemDisk::new())).expect("it opens");
        let layout = db.frame_layout();
        assert!(layout.latch < 64 && layout.latch.is_multiple_of(8), "{layout:?}");
        assert!(layout.index >= 32 && layout.index < 128, "{layout:?}");
    }
}
