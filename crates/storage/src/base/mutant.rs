//! Mutants: variants of the engine that lack one protection, to test that the campaigns detect the defect.
//!
//! A campaign without findings is evidence only if it would have found a missing protection. So each protection has a
//! switch, [`is_mutant`], and `cargo xtask torture mutants` runs the campaigns against each mutant. The feature `mutants`
//! compiles the switches in; without it `is_mutant` is the constant `false` and the rest is not compiled. The environment
//! variable `LOCKSTEP_MUTANT`, read once, names the active mutant.
//!
//! To add a mutant:
//!
//! 1. Add a line to the list below: a description of the missing protection, and the name.
//! 2. Guard the protection with `if !is_mutant(Mutant::SkipThis) { .. }` or the like. This costs nothing in other builds.
//! 3. Add an arm to `campaigns_for` in `xtask/campaigns/src/torture/mutants.rs`: the campaigns that should find the mutant
//!    (the compiler requires it).
//! 4. Run `cargo xtask torture mutants --mutant skip-this --seed N` with several seeds. If the mutant survives, the
//!    campaigns do not reach the protection: extend the campaigns (`xtask/campaigns/src/sim/`), not the mutant. Only a
//!    finding counts: a panic of the campaign's own code, a hang, and a timeout do not.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` breaks the engine on purpose: it is for test builds, which have debug assertions"
);

macro_rules! mutants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Protections that can be disabled.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "seen by campaigns only"))]
        pub enum Mutant {
            $($(#[$doc])* $variant,)*
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All mutants.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)*];

            /// Name of the mutant, as in the environment variable.
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
    /// A descending scan does not lock the gap above its first row.
    SkipGapAbove = "skip-gap-above",
    /// Inserts do not check whether another transaction has read the gap.
    SkipGapCheck = "skip-gap-check",
    /// Read locks are released as soon as the row has been read.
    ReleaseReadLocksEarly = "release-read-locks-early",
    /// A bulk-loaded tree becomes visible while other transactions use its table.
    ShareBulkTable = "share-bulk-table",
    /// Writers lock rows in the lock mode of readers.
    SkipWriteLock = "skip-write-lock",
    /// A rollback releases its locks before it has undone anything.
    ReleaseBeforeUndo = "release-before-undo",
    /// A transaction that waits does not search for deadlocks.
    SkipDeadlockSearch = "skip-deadlock-search",
    /// An owner whose lock request is granted is not woken.
    SkipWake = "skip-wake",
    /// A checkpoint keeps its mutex locked while it waits for the log: a fiber of the same thread that requests it blocks
    /// for ever.
    WaitWithMutex = "wait-with-mutex",
    // Superlatches.
    /// A writer checks only the first two reader words, and does not wait for readers counted in the others.
    SkipReaderWord = "skip-reader-word",
    /// A reader that has counted itself does not check the latch's word again for a writer.
    SkipSecondLook = "skip-second-look",
    /// A reader that has counted itself checks only for a writer, not for a change of the version or of the set of reader
    /// words.
    LookForWriterAlone = "look-for-writer-alone",
    // Points.
    /// A row that was found before a point is copied after it, without a check that its page is unchanged.
    SkipRevalidation = "skip-revalidation",
    /// A remembered position is matched by lock name only, without a comparison of the key.
    TrustLockNames = "trust-lock-names",
    // Columns.
    /// An update in place does not check whether an index begins within its columns.
    StraddleIndex = "straddle-index",
    /// An update of some columns writes and logs them at the start of the row.
    ShiftColumns = "shift-columns",
    // Rollback.
    /// A rollback undoes nothing.
    SkipUndo = "skip-undo",
    /// A statement that failed half-way keeps its changes.
    SkipStatementUndo = "skip-statement-undo",
    /// A rollback to a savepoint undoes nothing.
    SkipSavepointUndo = "skip-savepoint-undo",
    /// A rollback keeps the entries that the transaction made in secondary indexes.
    SkipIndexUndo = "skip-index-undo",
    /// An update keeps the old entries in secondary indexes.
    KeepOldIndexEntries = "keep-old-index-entries",
    /// Undo changes pages without a compensation record.
    SkipCompensation = "skip-compensation",
    // Types.
    /// A table or index can be opened with other codecs than it was created with.
    SkipCodecCheck = "skip-codec-check",
    // Log and commit.
    /// The log is written and not synced.
    SkipLogSync = "skip-log-sync",
    /// A commit is acknowledged before its record is on disk.
    AckBeforeFlush = "ack-before-flush",
    /// A read-only transaction is acknowledged before the data that it has read is on disk.
    AckReadsAtOnce = "ack-reads-at-once",
    /// A record's checksum does not cover its LSN.
    LsnOutOfCrc = "lsn-out-of-crc",
    /// A record's checksum is not checked.
    SkipRecordCrc = "skip-record-crc",
    /// A restart does not clear the bytes after the end of the log.
    KeepStaleTail = "keep-stale-tail",
    /// The names of new segments are not made durable.
    SkipDirectorySync = "skip-directory-sync",
    /// The log is truncated at the checkpoint, even if undo or redo still needs it.
    TruncateTooEarly = "truncate-too-early",
    /// The instance continues after a failed sync of the log.
    ForgiveFailedSync = "forgive-failed-sync",
    /// An appender that finds no segment ready makes one while it holds page latches.
    MakeSegmentLatched = "make-segment-latched",
    /// Records of users take the log space that is reserved for rollbacks.
    SkipUndoSpace = "skip-undo-space",
    // Pages.
    /// Pages are written before their log is durable.
    SkipWriteAhead = "skip-write-ahead",
    /// A bulk load stamps its pages with the tail of the log, and does not make the log durable before it writes them.
    StampLoadAtTail = "stamp-load-at-tail",
    /// The allocator does not record the pages that a bulk load owns.
    SkipLoadMark = "skip-load-mark",
    /// Pages that a bulk load owns are read into the pool.
    ReadOwnedPages = "read-owned-pages",
    /// A page is written in place although no copy of it was written to another place first.
    SkipPageImage = "skip-page-image",
    /// A slot for page copies is reused although its pages have not been synced.
    ReuseSlotsEarly = "reuse-slots-early",
    /// A changed page is not marked dirty.
    SkipDirtyMark = "skip-dirty-mark",
    /// The data file is written and not synced.
    SkipDataSync = "skip-data-sync",
    /// A page's checksum is not checked.
    SkipPageChecksum = "skip-page-checksum",
    // Checkpoint and restart.
    /// The services take no checkpoint.
    SkipCheckpoints = "skip-checkpoints",
    /// The number of log files that users' records take is not limited.
    SkipLogLimit = "skip-log-limit",
    /// A checkpoint lets redo begin at itself, regardless of dirty pages.
    ForgetDirtyPages = "forget-dirty-pages",
    /// A checkpoint does not list the running transactions.
    ForgetActive = "forget-active",
    /// The control file names a checkpoint that is not on disk yet.
    NameBeforeFlush = "name-before-flush",
    /// The control file has one copy, which is overwritten.
    OneControlCopy = "one-control-copy",
    /// Redo does not compare LSNs.
    SkipRedoTest = "skip-redo-test",
    /// Redo assumes that a record's sections for one page are adjacent, and skips later ones.
    RedoNeighboursOnly = "redo-neighbours-only",
    /// Redo does nothing.
    SkipRedo = "skip-redo",
    /// Restart does not roll back uncommitted transactions.
    SkipRestartUndo = "skip-restart-undo",
}

/// Name of the environment variable that contains the name of the active mutant.
#[cfg(feature = "mutants")]
pub const VARIABLE: &str = "LOCKSTEP_MUTANT";

/// Returns true if this mutant is active: the engine then lacks the protection.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}

/// Returns true if this mutant is active: the engine then lacks the protection.
#[cfg(feature = "mutants")]
#[inline]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// Returns the active mutant of this process.
///
/// # Panics
/// If the environment variable names no known mutant: a misspelt name must not run the unchanged engine.
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
