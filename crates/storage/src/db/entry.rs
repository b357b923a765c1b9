//! Statements that read a row and write it depending on what they read.

use super::table::AsTable;
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::table::codec::{Key, Row};

impl Transaction<'_> {
    /// Replaces the row of a key by the result of `change`: `None` stands for no row. Returns the new row.
    ///
    /// The row is read for update, so two such statements on one row do not deadlock with each other.
    ///
    /// ```
    /// # use storage::{Database, Options, Table, TxnError};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-modify-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// const WORDS: Table<String, u64> = Table::new("words");
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     db.transact(|tx| tx.modify(&WORDS, word, |count| Some(count.unwrap_or(0) + 1)))?;
    /// }
    /// assert_eq!(db.begin()?.get(&WORDS, "to")?, Some(2));
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn modify<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        change: impl FnOnce(Option<V>) -> Option<V>,
    ) -> Result<Option<V>, TxnError> {
        let old = self.get_for_update(table, key)?;
        let existed = old.is_some();
        let new = change(old);
        self.replace(table, key, existed, new.as_ref())?;
        Ok(new)
    }

    /// Returns the row of a key. If there is none, inserts the result of `make` and returns it.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_or_insert_with<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        make: impl FnOnce() -> V,
    ) -> Result<V, TxnError> {
        if let Some(row) = self.get_for_update(table, key)? {
            return Ok(row);
        }
        let row = make();
        self.insert(table, key, &row)?;
        Ok(row)
    }

    /// Replaces the row of a key by `new` if the row equals `expected`; `None` stands for no row. Returns the row that was
    /// found: the row was replaced if, and only if, it equals `expected`.
    ///
    /// ```
    /// # use storage::{Database, Options, Table, TxnError};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-swap-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// const LEADER: Table<u32, String> = Table::new("leader");
    /// let (ada, bob) = ("ada".to_owned(), "bob".to_owned());
    /// // Ada becomes the leader because there is none; Bob does not.
    /// assert_eq!(db.transact(|tx| tx.compare_and_swap(&LEADER, &1, None, Some(&ada)))?, None);
    /// assert_eq!(db.transact(|tx| tx.compare_and_swap(&LEADER, &1, None, Some(&bob)))?, Some(ada));
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn compare_and_swap<K: Key, V: Row + PartialEq>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<Option<V>, TxnError> {
        let found = self.get_for_update(table, key)?;
        if found.as_ref() == expected {
            self.replace(table, key, found.is_some(), new)?;
        }
        Ok(found)
    }

    /// Replaces the row of a key, which exists or does not; `None` stands for no row.
    fn replace<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        existed: bool,
        new: Option<&V>,
    ) -> Result<(), TxnError> {
        match new {
            Some(row) => self.put(table, key, row),
            None if existed => self.delete(table, key).map(drop),
            None => Ok(()),
        }
    }
}
