//! Savepoints: positions in a transaction for partial rollback.

use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::ids::{Lsn, SlotId};
use crate::base::mutant::{Mutant, is_mutant};

/// A position in a transaction: see [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    transaction: TransactionIdentity,
    number: u64,
    at: Lsn,
}

/// Identity of a transaction: the open database, the slot, and the number of transactions begun in the slot. (A
/// transaction has no number of its own before its first write.)
type TransactionIdentity = (u64, SlotId, u64);

impl Transaction<'_> {
    fn identity(&mut self) -> TransactionIdentity {
        let txn = self.txn.get_mut();
        let state = txn.slot.peek();
        (txn.engine.instance, state.id, state.sequence)
    }

    /// Returns a position for [`Transaction::rollback_to`]. A savepoint takes eight bytes of memory until the
    /// transaction ends.
    ///
    /// ```
    /// # use storage::{Database, Options, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-savepoint-{}", std::process::id()));
    /// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
    /// let db = Database::open(&directory, Options::new())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&ACCOUNTS, &1, &100)?;
    /// let before = tx.savepoint();
    /// tx.put(&ACCOUNTS, &1, &50)?;
    /// tx.put(&ACCOUNTS, &2, &50)?;
    /// tx.rollback_to(before)?;
    /// assert_eq!((tx.get(&ACCOUNTS, &1)?, tx.get(&ACCOUNTS, &2)?), (Some(100), None));
    /// tx.commit()?;
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        let number = self.savepoints.next_number;
        self.savepoints.next_number += 1;
        self.savepoints.numbers.push(number);
        Savepoint { transaction: self.identity(), number, at: self.txn.get_mut().savepoint_of_family() }
    }

    /// Undoes the transaction's writes since the savepoint. The savepoint stays and can be used again; later savepoints
    /// are discarded. All locks are kept, including locks on rows that were written after the savepoint. Tables created
    /// after the savepoint also stay.
    ///
    /// # Errors
    /// [`TxnError::Savepoint`], without any change, if the savepoint belongs to another transaction or was itself
    /// rolled back. [`TxnError::Ended`] if the transaction can only be rolled back as a whole. An error if a page
    /// cannot be read: the transaction can only be rolled back as a whole afterwards.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.check_open()?;
        let place = self.savepoints.numbers.binary_search(&savepoint.number);
        let (true, Ok(place)) = (savepoint.transaction == self.identity(), place) else {
            return Err(TxnError::Savepoint);
        };
        self.savepoints.numbers.truncate(place + 1);
        let txn = self.txn.get_mut();
        if !is_mutant(Mutant::SkipSavepointUndo) {
            txn.rollback_family_to(savepoint.at)?;
        }
        Ok(())
    }
}
