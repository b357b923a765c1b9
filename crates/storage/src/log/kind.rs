//! Kinds of log records.

/// Kind of a log record, in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Changes of rows by a transaction: page sections that can be undone.
    Data = 1,
    /// Undo of a change: the position at which undo continues (u64), then a page section, redo only. The position holds the
    /// number of sections of a record that remain to be undone, the first ones, in its lowest 8 bits (0 for all), and the
    /// record's LSN in units of 8 bytes above them.
    Compensation = 2,
    /// Structure modification by the engine: page sections, redo only, all or nothing.
    System = 3,
    /// Commit of the transaction and of its members, whose slots the body names in 2 bytes each.
    Commit = 4,
    /// End of the complete rollback of the transaction.
    End = 5,
    /// A fuzzy checkpoint; see `recovery::checkpoint`.
    Checkpoint = 6,
}

impl RecordKind {
    /// Returns the kind for the byte in a header.
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
