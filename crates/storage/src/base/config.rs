//! Settings that several modules read.

use super::arena::PageSize;

/// Condition for the acknowledgement of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// A commit returns after its log records have reached the disk (`fdatasync`).
    #[default]
    Sync,
    /// A commit returns at once, and the flusher writes its log records later. A crash may lose the last commits, but not
    /// consistency. The same holds for a program that ends without closing or dropping the database; a database in a
    /// `static` is not dropped. [`Database::sync`](crate::Database::sync) waits for the flusher.
    Async,
}

/// Isolation level of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Transactions behave as if they ran one after the other. Uses strict two-phase locks on keys and gaps.
    #[default]
    Serializable,
    /// Rows that a transaction has read do not change until it ends. New rows may appear in a range (phantoms).
    RepeatableRead,
    /// Reads return only committed rows, which may change afterwards.
    ReadCommitted,
}

/// Page latch kind: the way in which readers of a page exclude writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LatchKind {
    /// Readers take no latch. They record the version of the latch, and check after the read that it has not changed.
    #[default]
    Optimistic,
    /// Readers share a reader/writer latch.
    Plain,
    /// Like [`LatchKind::Plain`], but a hot latch that is mostly read gets one reader word per core, until a writer
    /// arrives.
    Super,
}

/// Use of large pages (2 MiB on most machines) for long-lived memory: the pool's frames, page table and shortcuts, the
/// log's ring, the table of record locks. Large pages need fewer entries of the processor's translation lookaside buffers.
/// [`Database::large_pages`](crate::Database::large_pages) reports the page sizes that the system provided.
///
/// After Saylor and Khessib, "Large Scale Itanium 2 Processor OLTP Workload Characterization and Optimization", DaMoN 2006,
/// section 6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LargePages {
    /// Requests large pages if the pool has 16 MiB or more, and accepts small ones if the system has no large pages. A
    /// region that requests large pages takes up to 2 MiB more than it needs.
    #[default]
    Try,
    /// Requests large pages regardless of the size of the pool. Opening a database fails if the system has no large pages.
    On,
    /// Requests small pages, even on a machine whose default is large pages.
    Off,
}

impl LargePages {
    /// Returns the page size that the regions of a database request. `pays` is true if the pool has enough frames for large
    /// pages to pay off.
    pub(crate) fn pages(self, pays: bool) -> PageSize {
        match self {
            LargePages::Off => PageSize::Small,
            LargePages::Try if !pays => PageSize::Usual,
            LargePages::Try | LargePages::On => PageSize::Large,
        }
    }
}

/// Choice of the buffer pool frames for the pages that a thread reads or creates.
///
/// After Saylor and Khessib (DaMoN 2006), section 6.2: their buffer manager takes a buffer of the thread's memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FrameHomes {
    /// Frames of any shard: neighbouring pages take frames of different shards, regardless of the thread.
    #[default]
    Shared,
    /// Frames of the thread's home: one of the shards (at most eight, one per 16 MiB) of the memory node on which the thread
    /// runs. Few other threads share a home. A home takes frames in chunks of 2 MiB, and a freed frame returns to the home
    /// from which it was taken. If there are several nodes, the thread touches a new chunk first, so that the system places
    /// the chunk on the thread's node. A page stays in its frame, even if threads of other homes use the page.
    PerThread,
}

/// Driver of the background services (flusher, cleaner, checkpointer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Background {
    /// One thread per service or, with [`Options::services`](crate::Options::services), threads that several databases
    /// share.
    #[default]
    Threads,
    /// The calling thread: commits and waits run the steps of the services themselves.
    Inline,
    /// The program, which calls [`Database::step_service`](crate::Database::step_service) for each step. A transaction that
    /// needs a step waits in the [`Hook`](crate::Hook) until the program has called for that step. For simulators and for
    /// programs with an event loop.
    Stepped,
}

/// Background service, for programs that run the steps of the services themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Writes the log and makes it durable; commits wait for this. A step never waits.
    Flusher,
    /// Prepares the next log file. A step never waits.
    SegmentMaker,
    /// Writes dirty pages, so that frames become free and the log can be truncated. Takes a checkpoint when one is due.
    Cleaner,
    /// Removes ghost records (deleted rows that no transaction needs any more), merges nearly empty pages, and frees pages.
    /// A step may wait for page reads.
    Purger,
    /// Takes a checkpoint now, even if none is due, without writing pages first.
    Checkpointer,
    /// Reads a page that a transaction waits for. A step never waits. Under a cooperative [`Hook`](crate::Hook),
    /// transactions read missing pages themselves until the program runs the first step of this service; from then on, steps
    /// of this service read every missing page. Under other hooks, a transaction reads every missing page itself, unless a
    /// step of this service has begun to read it.
    PageReader,
}
