//! Record locks of a transaction and the layout of frames, for tools that trace transactions.

/// A record lock that a transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// Number of the table for locks, as in [`Database::lock_tables`](crate::Database::lock_tables).
    pub table: u32,
    /// Name of the record: hash of its index and key.
    pub name: u64,
    /// Address of the word of the lock's bucket.
    pub bucket: usize,
    /// True if the lock excludes a lock of the same mode by another transaction (U or X). False for S.
    pub is_exclusive: bool,
}

/// Offsets of fields in a frame of the buffer pool, in bytes from the start of its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameLayout {
    /// Offset of the word of the page latch.
    pub latch: usize,
    /// Offset of the number of the page's index (32 bits).
    pub index: usize,
}
