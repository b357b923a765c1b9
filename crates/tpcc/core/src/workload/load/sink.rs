//! Destination of a load. Each table and each index is written in key order by one thread. Several tables and indexes are
//! written concurrently.

use crate::workload::schema::{IndexDef, RowOf, TableDef};

/// An empty database that is being filled.
pub trait BulkSink: Sync {
    /// Error of the database.
    type Error: std::error::Error + Send + 'static;
    /// Writer of the rows of one table.
    type Appender<'a, T: TableDef>: Append<T, Error = Self::Error>
    where
        Self: 'a;
    /// Writer of the entries of one index.
    type IndexAppender<'a, I: IndexDef>: AppendIndex<I, Error = Self::Error>
    where
        Self: 'a;

    /// Creates the writer of table `T`. Called once for each table, from the thread that will push its rows.
    fn table<T: TableDef>(&self) -> Result<Self::Appender<'_, T>, Self::Error>;

    /// Creates the writer of index `I`. Called once for each index. The entries are pushed separately from the table's rows,
    /// possibly before them.
    fn index<I: IndexDef>(&self) -> Result<Self::IndexAppender<'_, I>, Self::Error>;
}

/// Writer of the rows of one table.
pub trait Append<T: TableDef> {
    /// Error of the database.
    type Error;

    /// Appends a row. Keys ascend strictly.
    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error>;

    /// Completes the table after its last row.
    fn finish(self) -> Result<(), Self::Error>;
}

/// Writer of the entries of one index.
pub trait AppendIndex<I: IndexDef> {
    /// Error of the database.
    type Error;

    /// Appends an entry. Keys ascend strictly. The entry refers to the row with the key [`IndexDef::primary`].
    fn push(&mut self, key: &I::Key) -> Result<(), Self::Error>;

    /// Completes the index after its last entry.
    fn finish(self) -> Result<(), Self::Error>;
}
