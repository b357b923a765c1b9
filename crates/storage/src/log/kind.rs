//! Kinds of log records.

/// Kind of a record, in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// A transaction changed rows: page sections that can be undone.
    Data = 1,
    /// A change was undone: `undo_next` (u64), then page sections, redo only.
    Compensation = 2,
    /// The engine changed the structure: page sections, redo only, all or nothing.
    System = 3,
    /// The transaction has committed.
    Commit = 4,
    /// The transaction has been rolled back to its beginning.
    End = 5,
    /// A fuzzy checkpoint; see `recovery::checkpoint`.
    Checkpoint = 6,
}

impl RecordKind {
    /// The kind of a header's byte.
    pub(crate) fn from(byte: u8) -> Option<RecordKind> {
        Some(match byte {
            1 => RecordKind::Data,
            2 => RecordKind::Compensation,
            3 => RecordKind::System,
            4 => RecordKind::Commit,
            5 => RecordKind::End,
            6 => RecordKind::Checkpoint,
            _ => return None,
        })
    }
}
