//! Operations on whole tables: opening, dropping, emptying, changing their indexes.

use super::database::Database;
use super::table::{OpenTable, Raw, Table, TableName};
use crate::base::error::TxnError;
use crate::table::codec::{Key, Row};
use crate::table::declared::Declared;
use crate::table::info::TableInfo;

impl Database {
    /// The handle of a table, which is created if there is none of its name. Waits for transactions that have relied on
    /// the table's absence. With [`Durability::Sync`](crate::Durability::Sync) a table that it creates is durable when it
    /// returns.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the name has not 1 to 200 bytes, if the table exists with other indexes ([`Database::alter_indexes`] changes them), or was
    /// declared with others in this process; [`TxnError::OtherCodec`] if it was created with other types of keys or
    /// rows.
    pub fn table<K: Key, V: Row>(&self, table: &Table<K, V, impl TableName>) -> Result<OpenTable<K, V>, TxnError> {
        Ok(OpenTable::new(self.open_or_create(&table.typed())?))
    }

    /// As [`Database::table`], for statements on bytes: the types are not compared with those that the table was
    /// created with, and need no codecs. A table that is created so has no types and cannot be opened with any.
    ///
    /// # Errors
    /// As [`Database::table`].
    pub fn raw_table<K, V>(&self, table: &Table<K, V, impl TableName>) -> Result<OpenTable<Raw, Raw>, TxnError> {
        Ok(OpenTable::new(self.open_or_create(&table.raw())?))
    }

    /// Drops a table with its indexes; false if there is none of this name.
    ///
    /// A transaction of its own: it waits for the exclusive lock on the table, so for every transaction that has used
    /// it and has not ended (waiting for one of the same thread fails), and cannot be rolled back. With
    /// [`Durability::Sync`](crate::Durability::Sync) it is durable when it returns, as a commit is. A crash leaves the
    /// table as it was, or none; the next open gives back the rest of its pages. Handles of the table are refused from
    /// then on with [`TxnError::Dropped`]; writing by a [`Table`] creates a new one. Other tables use the space again;
    /// [`Database::compact`] makes the file shorter.
    ///
    /// # Errors
    /// See [`TxnError`]. After [`NoSpace`](crate::StorageError::NoSpace) the table may be gone and its pages not given back: the next
    /// open does it.
    pub fn drop_table(&self, name: &str) -> Result<bool, TxnError> {
        self.catalog.drop_table(&self.engine, name)
    }

    /// Removes all rows of a table, without a log record for each; false if there is none of this name.
    ///
    /// A transaction of its own, as [`Database::drop_table`]: it waits for the exclusive lock on the table, cannot be
    /// rolled back, and is as durable when it returns. A crash leaves all rows or none. Handles stay valid.
    ///
    /// # Errors
    /// See [`TxnError`]. A failure in the middle closes the instance, to readers too; the next open finishes the work.
    pub fn truncate(&self, name: &str) -> Result<bool, TxnError> {
        self.catalog.truncate(&self.engine, name)
    }

    /// Gives a table the secondary indexes that `table` declares, and opens it: builds missing ones from its rows,
    /// drops those that are not declared, and keeps the others. A table that does not exist is created; one that
    /// already matches is only opened, so that a program may call this wherever it would call [`Database::table`].
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
    /// // As it was until now:
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
    /// An index is identified by its name, whether it is unique, and its codec. An index whose function has changed
    /// needs another name: the database does not know what an index orders by.
    ///
    /// It waits for the exclusive lock on the table, so for every transaction that has used it and has not ended
    /// (waiting for one of the same thread fails), and other transactions wait until it is done. Like
    /// [`Database::drop_table`] it is no part of a transaction, cannot be rolled back, and is as durable when it returns;
    /// a crash leaves the indexes as they were, or as declared. Handles of the table, and statements that waited for
    /// it, are refused with [`TxnError::Dropped`]; other declarations of it with [`TxnError::Schema`] from then on.
    /// Building an index logs each of its entries, and sorts some megabytes of them at a time.
    ///
    /// # Errors
    /// [`TxnError::NotUnique`] names two rows that have one value in a new unique index. [`TxnError::OtherCodec`] if
    /// the types of key or row are not those of the table. [`TxnError::KeyTooLong`] for an entry of a row.
    /// Those of waiting for a lock, no space, a failed read: the table is unchanged, and the new pages are given back now or by the next open. If
    /// the old indexes' pages cannot be given back, the error is returned although the indexes have been changed; the
    /// next open gives them back.
    pub fn alter_indexes<K: Key, V: Row>(
        &self,
        table: &Table<K, V, impl TableName>,
    ) -> Result<OpenTable<K, V>, TxnError> {
        Ok(OpenTable::new(self.alter(&table.typed())?))
    }

    /// As [`Database::alter_indexes`], for statements on bytes: the types of key and row are not checked, as by
    /// [`Database::raw_table`].
    ///
    /// # Errors
    /// As [`Database::alter_indexes`].
    pub fn alter_indexes_raw<K, V>(
        &self,
        table: &Table<K, V, impl TableName>,
    ) -> Result<OpenTable<Raw, Raw>, TxnError> {
        Ok(OpenTable::new(self.alter(&table.raw())?))
    }

    fn alter(&self, declared: &Declared<'_>) -> Result<(&TableInfo, u64), TxnError> {
        match self.catalog.alter(&self.engine, declared)? {
            Some(open) => Ok(open),
            None => self.open_or_create(declared),
        }
    }
}
