//! Waits for each other of the threads that use a database.

use crate::base::waits::Wait;

/// Waits since a database was opened: see [`Database::waits`](crate::Database::waits).
///
/// The duration of a wait includes the time in which a scheduler ran other fibers. Counting costs nothing where nobody waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Waits for locks of rows, gaps and tables.
    pub lock: Wait,
    /// Waits for page latches: of readers for a writer, and of changes of a tree's structure for other threads. A writer
    /// that finds its leaf latched or changed searches again instead; see
    /// [`TableContention::leaves_contended`](crate::TableContention::leaves_contended).
    pub latch: Wait,
    /// Waits for room in the log's files: for a new file, or for a checkpoint that cuts the log.
    pub log_room: Wait,
    /// Waits for a place in the log's buffer: it was full of bytes not yet written to the files.
    pub log_place: Wait,
    /// Waits by table, in the order of the tables' names. A table that was dropped is only in the totals.
    pub tables: Vec<TableWaits>,
}

/// Waits for a table, since the table was first used or its database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableWaits {
    /// Name of the table.
    pub table: String,
    /// Waits for locks of the table, its rows and its gaps.
    pub lock: Wait,
    /// Waits for latches of the pages of the table and its indexes.
    pub latch: Wait,
}
