//! Mutants: the engine with one protection left out, to test whether the campaigns detect it.
//!
//! A campaign that finds nothing proves something only if it would have found a missing protection. So each protection
//! has a switch, [`is_mutant`], and `cargo xtask torture mutants` runs the campaigns against each mutant. The feature
//! `mutants` compiles the switches in; without it `is_mutant` is the constant `false` and none of this is compiled. The
//! environment variable `LOCKSTEP_MUTANT`, read once, names the active mutant.
//!
//! To add a mutant:
//!
//! 1. a line in the list below: what is left out, and the name;
//! 2. where the protection is, `if !is_mutant(Mutant::SkipThis) { .. }`, or the like; it costs nothing in other builds;
//! 3. an arm in `hunters` of `xtask/campaigns/src/torture/mutants.rs`: which campaigns should find it (the compiler asks for it);
//! 4. `cargo xtask torture mutants --mutant skip-this --seed N`, with several seeds. If it survives, the campaigns do
//!    not reach the protection: widen what they do (`xtask/campaigns/src/sim/`), not the mutant. Only a finding kills: a panic of
//!    the campaign's own code, a hang, and a timeout do not.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` breaks the engine on purpose: it is for test builds, which have debug assertions"
);

macro_rules! mutants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The protections that can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "seen by campaigns only"))]
        pub enum Mutant {
            $($(#[$doc])* $variant,)*
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)*];

            /// As the environment variable names it.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$variant => $name,)* }
            }
        }
    };
}

mutants! {
    // Isolation.
    /// Serializable readers do not lock the gaps that they have read.
    SkipNextKeyLock = "skip-next-key-lock",
    /// Serializable statements do not lock the keys that they have found absent.
    SkipAbsentKeyLock = "skip-absent-key-lock",
    /// A scan downwards does not lock the gap above its first row.
    SkipGapAbove = "skip-gap-above",
    /// Inserts do not ask whether another transaction has read the gap.
    SkipGapCheck = "skip-gap-check",
    /// Read locks are released as soon as the row was read.
    ReleaseReadLocksEarly = "release-read-locks-early",
    /// A tree loaded in bulk appears while other transactions use its table.
    ShareBulkTable = "share-bulk-table",
    /// Writers lock rows as readers do.
    SkipWriteLock = "skip-write-lock",
    /// A rollback releases its locks before it has undone anything.
    ReleaseBeforeUndo = "release-before-undo",
    /// No transaction looks for deadlocks.
    SkipDeadlockSearch = "skip-deadlock-search",
    /// An owner that is granted a lock is not woken.
    SkipWake = "skip-wake",
    /// A checkpoint keeps its mutex locked while it waits for the log: a fiber of the same thread stops there for good.
    WaitWithMutex = "wait-with-mutex",
    // Superlatches.
    /// A writer does not wait for readers of the last reader words.
    SkipReaderWord = "skip-reader-word",
    /// A reader that has counted itself does not look again whether a writer has come.
    SkipSecondLook = "skip-second-look",
    /// A reader that has counted itself looks for a writer only, not for another version or set of words.
    LookForWriterAlone = "look-for-writer-alone",
    // Points.
    /// A row that was found before a point is copied after it, whether or not its page has changed.
    SkipRevalidation = "skip-revalidation",
    /// A remembered place is found by lock name only, without comparing the key.
    TrustLockNames = "trust-lock-names",
    // Columns.
    /// An update in place does not ask whether an index begins within its columns.
    StraddleIndex = "straddle-index",
    /// An update of some columns writes and logs them at the begin of the row.
    ShiftColumns = "shift-columns",
    // Rollback.
    /// A rollback undoes nothing.
    SkipUndo = "skip-undo",
    /// A statement that failed half-way keeps the changes it has made.
    SkipStatementUndo = "skip-statement-undo",
    /// Going back to a savepoint undoes nothing.
    SkipSavepointUndo = "skip-savepoint-undo",
    /// A rollback leaves the entries that the transaction made in secondary indexes.
    SkipIndexUndo = "skip-index-undo",
    /// An update leaves the old entries in secondary indexes.
    KeepOldIndexEntries = "keep-old-index-entries",
    /// Undo changes pages without a compensation record.
    SkipCompensation = "skip-compensation",
    // Types.
    /// A table or index opens with other codecs than it was created with.
    SkipCodecCheck = "skip-codec-check",
    // Log and commit.
    /// The log is written and not synced.
    SkipLogSync = "skip-log-sync",
    /// A commit is acknowledged before its record is on disk.
    AckBeforeFlush = "ack-before-flush",
    /// A read-only transaction is acknowledged before what it has read is on disk.
    AckReadsAtOnce = "ack-reads-at-once",
    /// A record's checksum does not cover its LSN.
    LsnOutOfCrc = "lsn-out-of-crc",
    /// A record's checksum is not checked.
    SkipRecordCrc = "skip-record-crc",
    /// A restart does not clear the bytes behind the log's end.
    KeepStaleTail = "keep-stale-tail",
    /// The names of new segments are not made durable.
    SkipDirectorySync = "skip-directory-sync",
    /// The log is cut off at the checkpoint, even where undo or redo still need it.
    TruncateTooEarly = "truncate-too-early",
    /// After a failed sync of the log the instance goes on working.
    ForgiveFailedSync = "forgive-failed-sync",
    /// The appender that finds no segment ready makes one with pages latched.
    MakeSegmentLatched = "make-segment-latched",
    /// User records take the space that rollbacks will need.
    SkipUndoSpace = "skip-undo-space",
    // Pages.
    /// Pages are written before their log is durable.
    SkipWriteAhead = "skip-write-ahead",
    /// A bulk load stamps its pages with the log's tail, and does not make the log durable before it writes them.
    StampLoadAtTail = "stamp-load-at-tail",
    /// The allocator does not note which pages a bulk load owns.
    SkipLoadMark = "skip-load-mark",
    /// Pages that a bulk load owns are read into the pool.
    ReadOwnedPages = "read-owned-pages",
    /// A page is written in place without a copy aside.
    SkipPageImage = "skip-page-image",
    /// A slot for copies is used again although the pages in it have not been synced.
    ReuseSlotsEarly = "reuse-slots-early",
    /// A page that is changed is not marked dirty.
    SkipDirtyMark = "skip-dirty-mark",
    /// The data file is written and not synced.
    SkipDataSync = "skip-data-sync",
    /// A page's checksum is not checked.
    SkipPageChecksum = "skip-page-checksum",
    // Checkpoint and restart.
    /// The services take no checkpoint.
    SkipCheckpoints = "skip-checkpoints",
    /// Users' records take as many log files as they want.
    SkipLogLimit = "skip-log-limit",
    /// A checkpoint lets redo begin at itself, whatever pages are dirty.
    ForgetDirtyPages = "forget-dirty-pages",
    /// A checkpoint does not list the transactions that are running.
    ForgetActive = "forget-active",
    /// The control file names a checkpoint that is not on disk yet.
    NameBeforeFlush = "name-before-flush",
    /// The control file has one copy, which is overwritten.
    OneControlCopy = "one-control-copy",
    /// Redo does not compare LSNs.
    SkipRedoTest = "skip-redo-test",
    /// Redo takes a record's sections for one page to be adjacent, and skips one that comes later.
    RedoNeighboursOnly = "redo-neighbours-only",
    /// Redo does nothing.
    SkipRedo = "skip-redo",
    /// Restart does not roll back uncommitted transactions.
    SkipRestartUndo = "skip-restart-undo",
}

/// The environment variable that names the mutant.
#[cfg(feature = "mutants")]
pub const VARIABLE: &str = "LOCKSTEP_MUTANT";

/// Whether this protection is left out.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}

/// Whether this protection is left out.
#[cfg(feature = "mutants")]
#[inline]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// The mutant that is active in this process.
///
/// # Panics
/// If the environment variable names none of the list: a misspelt name must not pass for the unchanged engine.
#[cfg(feature = "mutants")]
pub fn chosen() -> Option<Mutant> {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
        let found = Mutant::ALL.iter().copied().find(|m| m.name() == name);
        assert!(found.is_some(), "{VARIABLE}={name}: there is no such mutant");
        found
    })
}
