//! Where a load goes. Tables and indexes arrive in key order, each from one thread, several at once.

use crate::workload::schema::{IndexDef, RowOf, TableDef};

/// An empty database that is being filled.
pub trait BulkSink: Sync {
    /// What can go wrong.
    type Error: std::error::Error + Send + 'static;
    /// Takes the rows of one table.
    type Appender<'a, T: TableDef>: Append<T, Error = Self::Error>
    where
        Self: 'a;
    /// Takes the entries of one index.
    type IndexAppender<'a, I: IndexDef>: AppendIndex<I, Error = Self::Error>
    where
        Self: 'a;

    /// Starts table `T`. Called once for each table, from the thread that will push its rows.
    fn table<T: TableDef>(&self) -> Result<Self::Appender<'_, T>, Self::Error>;

    /// Starts index `I`. Called once for each index. Its entries come apart from its table's rows, perhaps before them.
    fn index<I: IndexDef>(&self) -> Result<Self::IndexAppender<'_, I>, Self::Error>;
}

/// Takes the rows of one table.
pub trait Append<T: TableDef> {
    /// What can go wrong.
    type Error;

    /// Takes one row; keys ascend strictly.
    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error>;

    /// There are no more.
    fn finish(self) -> Result<(), Self::Error>;
}

/// Takes the entries of one index.
pub trait AppendIndex<I: IndexDef> {
    /// What can go wrong.
    type Error;

    /// Takes one entry; keys ascend strictly. The row it leads to is [`IndexDef::primary`] of it.
    fn push(&mut self, key: &I::Key) -> Result<(), Self::Error>;

    /// There are no more.
    fn finish(self) -> Result<(), Self::Error>;
}
