//! Settings that more than one module reads.

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// After its log records have reached the disk (`fdatasync`).
    #[default]
    Sync,
    /// At once; the flusher follows. A crash may lose the last commits, never consistency.
    Async,
}

/// What a transaction may see of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// As if transactions ran one after the other: strict two-phase locks on keys and gaps.
    #[default]
    Serializable,
    /// Rows read stay as they are; new rows may appear in a range (phantoms).
    RepeatableRead,
    /// Only committed rows are read; they may change after.
    ReadCommitted,
}

/// How readers of a page keep writers away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LatchKind {
    /// Readers take no latch; they validate a version.
    #[default]
    Optimistic,
    /// Readers share a reader/writer latch.
    Plain,
}

/// Who drives the flusher, cleaner and checkpointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Background {
    /// One thread each.
    #[default]
    Threads,
    /// The caller: commits and waits step the services themselves.
    Inline,
}
