//! Operations on whole tables: opening, dropping, truncating, changing indexes.

use super::database::Database;
use super::raw::RawDatabase;
use super::table::{OpenTable, Raw, Table, TableName};
use crate::base::error::TxnError;
use crate::table::codec::{Key, Row};
use crate::table::declared::Declared;
use crate::table::info::TableInfo;

impl Database {
    /// Returns the handle of a table. Creates the table if no table has its name; the creation waits for transactions
    /// that rely on the table's absence. With [`Durability::Sync`](crate::Durability::Sync) a new table is durable when
    /// the call returns.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the name does not have 1 to 200 bytes, if the table exists with other indexes
    /// ([`Database::alter_indexes`] changes them), or if it was declared with other indexes in this process;
    /// [`TxnError::OtherCodec`] if it was created with other types of keys or rows.
    pub fn table<K: Key, V: Row>(&self, table: &Table<K, V, impl TableName>) -> Result<OpenTable<K, V>, TxnError> {
        Ok(OpenTable::new(self.open_or_create(&table.typed())?))
    }

    /// As [`Database::table`], for statements on bytes. `K` and `V` are not compared with the types of the table, and
    /// need no codecs. A table created by this call has no types and cannot be opened with types.
    ///
    /// # Errors
    /// As [`Database::table`].
    pub fn raw_table<K, V>(&self, table: &Table<K, V, impl TableName>) -> Result<OpenTable<Raw, Raw>, TxnError> {
        Ok(OpenTable::new(self.open_or_create(&table.raw())?))
    }

    /// Drops a table with its indexes; returns false if there is no table of this name.
    ///
    /// The drop is a separate transaction that cannot be rolled back. It waits for the exclusive lock on the table,
    /// that is, for every open transaction that has used the table (waiting for a transaction of the same thread
    /// fails). With [`Durability::Sync`](crate::Durability::Sync) the drop is durable when the call returns, as a
    /// commit is. After a crash the table either is unchanged or does not exist; the next open frees its remaining
    /// pages. Handles of the dropped table are refused with [`TxnError::Dropped`]; a write through a [`Table`] creates
    /// a new table. Other tables reuse the space; [`Database::compact`] makes the file shorter.
    ///
    /// # Errors
    /// See [`TxnError`]. After [`NoSpace`](crate::StorageError::NoSpace) the table may be dropped although its pages
    /// are not freed; the next open frees the pages.
    pub fn drop_table(&self, name: &str) -> Result<bool, TxnError> {
        self.catalog.drop_table(&self.engine, name)
    }

    /// Removes all rows of a table, without a log record for each row; returns false if there is no table of this name.
    ///
    /// The truncation is a separate transaction, as in [`Database::drop_table`]: it waits for the exclusive lock on the
    /// table, cannot be rolled back, and is durable when the call returns under the same condition. After a crash the
    /// table has all rows or none. Handles stay valid.
    ///
    /// # Errors
    /// See [`TxnError`]. A failure during the truncation closes the database instance, also to readers; the next open
    /// completes the truncation.
    pub fn truncate(&self, name: &str) -> Result<bool, TxnError> {
        self.catalog.truncate(&self.engine, name)
    }

    /// Changes the secondary indexes of a table to the indexes that `table` declares, and opens the table. Missing
    /// indexes are built from the rows, undeclared indexes are dropped, and matching indexes are kept. A missing table
    /// is created, and a table that already matches is only opened, so this call can replace [`Database::table`].
    ///
    /// ```
    /// # use storage::{Database, Options, SecondaryIndex, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-alter-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// struct ByOwner;
    /// impl SecondaryIndex for ByOwner {
    ///     type Key = u64;
    ///     type Row = String;
    ///     type By = String;
    ///     const NAME: &'static str = "by_owner";
    ///     fn by(_id: &u64, owner: &String) -> Option<String> {
    ///         Some(owner.clone())
    ///     }
    /// }
    /// // The old declaration:
    /// const CARS_OF_OLD: Table<u64, String> = Table::new("cars");
    /// db.transact(|tx| tx.put(&CARS_OF_OLD, &1, &"Ada".to_owned()))?;
    ///
    /// const CARS: Table<u64, String> = Table::new("cars").with_index::<ByOwner>();
    /// let cars = db.alter_indexes(&CARS)?;
    /// let mut tx = db.begin()?;
    /// let of_ada = tx.range_by::<ByOwner>(&cars, "Ada".to_owned()..="Ada".to_owned())?.next();
    /// assert_eq!(of_ada.transpose()?, Some((1, "Ada".to_owned())));
    /// # drop(tx); drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// An index is identified by its name, its uniqueness, and its codec. If the function of an index changes, the
    /// index needs another name, because the database does not store the function.
    ///
    /// The call waits for the exclusive lock on the table, that is, for every open transaction that has used the table
    /// (waiting for a transaction of the same thread fails), and other transactions wait until the call ends. Like
    /// [`Database::drop_table`] the change is a separate transaction, cannot be rolled back, and is durable when the
    /// call returns under the same condition. After a crash the table has either the old or the declared indexes.
    /// Afterwards, old handles of the table, and statements that waited for it, fail with [`TxnError::Dropped`]; other
    /// declarations of the table fail with [`TxnError::Schema`]. Building an index logs each of its entries, and sorts
    /// some megabytes of entries at a time.
    ///
    /// # Errors
    /// [`TxnError::NotUnique`], with the keys of two rows, if two rows have the same key in a new unique index.
    /// [`TxnError::OtherCodec`] if the types of key or row are not the table's types. [`TxnError::KeyTooLong`] if an
    /// index entry of a row is too long. Errors of lock waits, no space, a failed read: the table is unchanged, and the
    /// new pages are freed now or by the next open. If the pages of the old indexes cannot be freed, the error is
    /// returned although the indexes have been changed; the next open frees the pages.
    pub fn alter_indexes<K: Key, V: Row>(
        &self,
        table: &Table<K, V, impl TableName>,
    ) -> Result<OpenTable<K, V>, TxnError> {
        Ok(OpenTable::new(self.alter(&table.typed())?))
    }

    fn alter(&self, declared: &Declared<'_>) -> Result<(&TableInfo, u64), TxnError> {
        match self.catalog.alter(&self.engine, declared)? {
            Some(open) => Ok(open),
            None => self.open_or_create(declared),
        }
    }
}

impl RawDatabase<'_> {
    /// As [`Database::alter_indexes`], for statements on bytes: like [`Database::raw_table`], this does not check the
    /// types of key and row.
    ///
    /// # Errors
    /// As [`Database::alter_indexes`].
    pub fn alter_indexes<K, V>(self, table: &Table<K, V, impl TableName>) -> Result<OpenTable<Raw, Raw>, TxnError> {
        Ok(OpenTable::new(self.db.alter(&table.raw())?))
    }
}
