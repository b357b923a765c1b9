//! Begin of transactions, and execution of transactions with retries.

use std::time::Duration;

use super::database::Database;
use super::transaction::Transaction;
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::hook::{BlockReason, Operation, OperationKind, WaitToken};
use crate::base::ids::Age;

impl Database {
    /// Begins a transaction at the database's isolation level. Dropping the transaction rolls it back.
    ///
    /// # Errors
    /// An error if too many transactions are open, or if the database instance is closed to readers. (An instance that
    /// is only closed to commits can still be read.)
    #[inline]
    pub fn begin(&self) -> Result<Transaction<'_>, TxnError> {
        self.begin_at(self.engine.isolation)
    }

    /// Begins a transaction at a given isolation level.
    ///
    /// # Errors
    /// As [`Database::begin`].
    #[inline]
    pub fn begin_at(&self, isolation: Isolation) -> Result<Transaction<'_>, TxnError> {
        self.begin_with(isolation, None)
    }

    /// Begins a transaction again that was rolled back as a deadlock victim. The transaction keeps its age, so that in
    /// the next deadlock a younger transaction is the victim. If it were begun with [`Database::begin`], it could be
    /// the youngest transaction, and so the victim, every time.
    ///
    /// ```
    /// # use storage::{Database, Isolation, Options, Table, TxnError};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-again-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
    /// let mut tx = db.begin()?;
    /// let age = tx.age();
    /// while let Err(TxnError::Deadlock { .. }) = tx.put(&ACCOUNTS, &1, &100) {
    ///     tx.rollback()?;
    ///     tx = db.begin_again(Isolation::Serializable, age)?;
    /// }
    /// tx.commit()?;
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin`].
    #[inline]
    pub fn begin_again(&self, isolation: Isolation, age: Age) -> Result<Transaction<'_>, TxnError> {
        self.begin_with(isolation, Some(age))
    }

    #[inline]
    fn begin_with(&self, isolation: Isolation, age: Option<Age>) -> Result<Transaction<'_>, TxnError> {
        self.engine.pool.points().enter(Operation::of_transaction(OperationKind::Begin));
        Ok(Transaction::new(self, self.engine.begin(isolation, age)?))
    }

    /// Runs a transaction: commits if `work` succeeds, rolls back if it fails. A deadlock victim runs again, whatever
    /// `work` returned, at most [`Options::reruns`](crate::Options::reruns) times; from the fifth rerun on after a
    /// pause of up to a millisecond. Since `work` may run several times, it must have no effects outside the
    /// transaction. With [`Durability::Sync`](crate::Durability::Sync) the call returns, also with an error of `work`,
    /// after all commits that the transaction read from are on disk.
    ///
    /// # Errors
    /// The errors of `work` and of commit, and [`TxnError::Deadlock`] if the last run was a victim although `work`
    /// succeeded.
    pub fn transact<T, E: From<TxnError>>(
        &self,
        work: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_at(self.engine.isolation, work)
    }

    /// As [`Database::transact`], at a given isolation level.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn transact_at<T, E: From<TxnError>>(
        &self,
        isolation: Isolation,
        mut work: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // A victim that runs again keeps its age. Eventually it is the oldest transaction, which is never a victim.
        let age = Age(self.engine.clock.age());
        let mut runs = 0;
        loop {
            let mut transaction = self.begin_again(isolation, age)?;
            let result = work(&mut transaction);
            if transaction.is_victim() && runs < self.reruns {
                runs += 1;
                drop(transaction);
                self.step_aside(runs);
                continue;
            }
            match result {
                Ok(value) => {
                    transaction.commit_all()?;
                    return Ok(value);
                }
                Err(error) => {
                    transaction.give_up()?;
                    return Err(error);
                }
            }
        }
    }

    /// Pauses before rerun number `runs` of a victim. The first reruns start without a pause. Before later reruns, the
    /// pause gives the older transaction, which may not be running on a CPU, time to end. Without a pause the victim
    /// would conflict with it again.
    fn step_aside(&self, runs: u32) {
        const AT_ONCE: u32 = 4;
        const LONGEST: u32 = 20;
        let steps = runs.saturating_sub(AT_ONCE).min(LONGEST);
        if steps > 0 {
            self.engine.hook.block_for(&WaitToken::new(), BlockReason::Lock, steps * Duration::from_micros(50));
        }
    }
}
