//! Settings that more than one module reads.

use super::arena::PageSize;

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// After its log records have reached the disk (`fdatasync`).
    #[default]
    Sync,
    /// At once; the flusher follows. A crash may lose the last commits, never consistency, and so does a program that ends
    /// without closing or dropping the database: one in a `static` is not dropped. [`Database::sync`](crate::Database::sync)
    /// waits for the flusher.
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

/// How readers of a page exclude writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LatchKind {
    /// Readers take no latch; they validate a version.
    #[default]
    Optimistic,
    /// Readers share a reader/writer latch.
    Plain,
    /// As [`LatchKind::Plain`], but a latch that is hot and mostly read gets a reader word for each core, until a writer
    /// comes.
    Super,
}

/// Whether memory that is used throughout lies in large pages (of 2 MiB on most machines), which need fewer entries of the
/// processor's translation buffers: the pool's frames, page table and shortcuts, the log's ring, the table of record locks.
/// [`Database::large_pages`](crate::Database::large_pages) says what the system gave.
///
/// After Saylor and Khessib, "Large Scale Itanium 2 Processor OLTP Workload Characterization and Optimization", DaMoN 2006,
/// section 6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LargePages {
    /// Asks for them where the pool has 16 MiB or more, and takes what the system gives. A region that asks takes up to
    /// 2 MiB more than it needs.
    #[default]
    Try,
    /// Asks for them whatever the size of the pool. A database is not opened where the system has none.
    On,
    /// Small pages, even on a machine that gives large ones to everybody.
    Off,
}

impl LargePages {
    /// What regions ask for in a database whose pool has frames enough for large pages to pay, or not.
    pub(crate) fn pages(self, pays: bool) -> PageSize {
        match self {
            LargePages::Off => PageSize::Small,
            LargePages::Try if !pays => PageSize::Usual,
            LargePages::Try | LargePages::On => PageSize::Large,
        }
    }
}

/// Which frames of the pool a thread gives to the pages that it reads or creates.
///
/// After Saylor and Khessib (DaMoN 2006), section 6.2, whose buffer manager takes a buffer of the node where the thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FrameHomes {
    /// Any: neighbouring pages take frames of different shards, for all threads alike.
    #[default]
    Shared,
    /// Those of the thread's home, which few other threads share: one of the shards (at most eight, one for each 16 MiB) of
    /// the memory node that it runs on. Frames come in chunks of 2 MiB, which the thread touches first where there are several
    /// nodes, and go back to the home that they came from. A page stays in its frame, whichever thread uses it.
    PerThread,
}

/// What drives the flusher, cleaner and checkpointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Background {
    /// One thread each, or, with [`Options::services`](crate::Options::services), threads that databases share.
    #[default]
    Threads,
    /// The caller: commits and waits step the services themselves.
    Inline,
    /// The program, step by step, with [`Database::step_service`](crate::Database::step_service). A transaction that
    /// waits does so in the [`Hook`](crate::Hook) until those steps have brought what it waits for. For simulators and
    /// for programs with an event loop.
    Stepped,
}

/// The background services, for programs that step them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Writes the log and makes it durable; commits wait for this. Waits for nothing itself.
    Flusher,
    /// Makes the next log file ready. Waits for nothing itself.
    SegmentMaker,
    /// Writes dirty pages, to have free frames and to let the log be cut off, and takes a checkpoint when one is due.
    Cleaner,
    /// Removes deleted rows that no transaction needs any more, merges pages that have become nearly empty, and gives
    /// pages back. Waits for pages to be read.
    Purger,
    /// Takes a checkpoint now, whether due or not, without writing pages first.
    Checkpointer,
    /// Reads a page that a transaction waits for. Waits for nothing itself. From the first step on, if the
    /// [`Hook`](crate::Hook) is cooperative, each page that is missing waits for a step of this; before it the
    /// transaction reads the page itself. Under other hooks the transaction reads every page that no step of this has
    /// begun to read.
    PageReader,
}
