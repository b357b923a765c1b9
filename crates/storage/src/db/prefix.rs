//! Scans of the rows whose keys begin with a value.

use super::cursor::{Cursor, behind};
use super::table::AsTable;
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::table::codec::{Key, KeyPrefix, Row};
use crate::table::index::AccessMode;

impl<'db> Transaction<'db> {
    /// Returns a cursor over the rows whose keys begin with `prefix`: the first parts of a tuple, or the first bytes of a
    /// `String` or `Vec<u8>`.
    ///
    /// ```
    /// # use storage::{Database, Options, Table, TxnError};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-prefix-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// // Lines of orders, by order and line.
    /// const LINES: Table<(u64, u32), String> = Table::new("lines");
    /// const PATHS: Table<String, u64> = Table::new("paths");
    /// db.transact(|tx| {
    ///     tx.put(&LINES, &(7, 1), &"tea".to_owned())?;
    ///     tx.put(&LINES, &(7, 2), &"milk".to_owned())?;
    ///     tx.put(&LINES, &(8, 1), &"coffee".to_owned())?;
    ///     tx.put(&PATHS, "usr/bin", &1)?;
    ///     tx.put(&PATHS, "usr/lib", &2)?;
    ///     tx.put(&PATHS, "var", &3)
    /// })?;
    /// let tx = db.begin()?;
    /// let lines: Vec<_> = tx.prefix(&LINES, &(7,))?.collect::<Result<_, _>>()?;
    /// assert_eq!(lines, [((7, 1), "tea".to_owned()), ((7, 2), "milk".to_owned())]);
    /// assert_eq!(tx.prefix(&PATHS, "usr/")?.count(), 2);
    /// # drop(tx); drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The items of the cursor are results: see [`TxnError`].
    pub fn prefix<'tx, K: Key, V: Row>(
        &'tx self,
        table: &impl AsTable<K, V>,
        prefix: &(impl KeyPrefix<K> + ?Sized),
    ) -> Result<Cursor<'tx, 'db, K, V>, TxnError> {
        let Some(info) = self.table_to_read(table, AccessMode::Read)? else { return Ok(Cursor::empty(self)) };
        self.enter(OperationKind::Scan, &info.primary);
        let mut from = Vec::new();
        prefix.encode_prefix(&mut from);
        let mut to = from.clone();
        behind(&mut to);
        Ok(Cursor::primary(self, info, from, Some(to)))
    }
}
