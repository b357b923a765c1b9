//! Mutants: variants of the engine that lack one protection, to test that the campaigns detect the defect.
//!
//! A campaign without findings is evidence only if it would have found a missing protection. So each protection has a
//! switch, [`is_mutant`], and `cargo xtask torture mutants` runs the campaigns against each mutant. The feature `mutants`
//! compiles the switches in; without it `is_mutant` is the constant `false` and the rest is not compiled. The environment
//! variable `LOCKSTEP_MUTANT`, read once, names the active mutant.
//!
//! To add a mutant:
//!
//! 1. Add a variant to [`Mutant`], with a description of the missing protection.
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

/// Protections that can be disabled. The name of each is its variant's in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "seen by campaigns only"))]
#[cfg_attr(feature = "mutants", derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray))]
#[cfg_attr(feature = "mutants", strum(serialize_all = "kebab-case"))]
pub enum Mutant {
    // Isolation.
    /// Serializable readers do not lock the gaps that they have read.
    SkipNextKeyLock,
    /// Serializable statements do not lock the keys that they have found absent.
    SkipAbsentKeyLock,
    /// A descending scan does not lock the gap above its first row.
    SkipGapAbove,
    /// Inserts do not check whether another transaction has read the gap.
    SkipGapCheck,
    /// Read locks are released as soon as the row has been read.
    ReleaseReadLocksEarly,
    /// A bulk-loaded tree becomes visible while other transactions use its table.
    ShareBulkTable,
    /// Writers lock rows in the lock mode of readers.
    SkipWriteLock,
    /// A rollback releases its locks before it has undone anything.
    ReleaseBeforeUndo,
    /// A transaction that waits does not search for deadlocks.
    SkipDeadlockSearch,
    /// An owner whose lock request is granted is not woken.
    SkipWake,
    /// A checkpoint keeps its mutex locked while it waits for the log: a fiber of the same thread that requests it blocks
    /// for ever.
    WaitWithMutex,
    // Loops on several threads.
    /// The commit record of a transaction does not name the last member of its loops.
    ForgetMember,
    /// A rollback, or a restart, undoes the chains of log records of a transaction's members one after the other.
    UndoChainByChain,
    /// An epoch of a loop gets locks that an earlier epoch holds.
    PassEarlierEpochs,
    /// A wounded epoch of a loop releases its locks and keeps its changes.
    SkipEpochUndo,
    // Superlatches.
    /// A writer checks only the first two reader words, and does not wait for readers counted in the others.
    SkipReaderWord,
    /// A reader that has counted itself does not check the latch's word again for a writer.
    SkipSecondLook,
    /// A reader that has counted itself checks only for a writer, not for a change of the version or of the set of reader
    /// words.
    LookForWriterAlone,
    // Points.
    /// A row that was found before a point is copied after it, without a check that its page is unchanged.
    SkipRevalidation,
    /// A remembered position is matched by lock name only, without a comparison of the key.
    TrustLockNames,
    // Columns.
    /// An update in place does not check whether an index begins within its columns.
    StraddleIndex,
    /// An update of some columns writes and logs them at the start of the row.
    ShiftColumns,
    // Rollback.
    /// A rollback undoes nothing.
    SkipUndo,
    /// A statement that failed half-way keeps its changes.
    SkipStatementUndo,
    /// A rollback to a savepoint undoes nothing.
    SkipSavepointUndo,
    /// A rollback keeps the entries that the transaction made in secondary indexes.
    SkipIndexUndo,
    /// An update keeps the old entries in secondary indexes.
    KeepOldIndexEntries,
    /// Undo changes pages without a compensation record.
    SkipCompensation,
    // Types.
    /// A table or index can be opened with other codecs than it was created with.
    SkipCodecCheck,
    // Log and commit.
    /// The log is written and not synced.
    SkipLogSync,
    /// A commit is acknowledged before its record is on disk.
    AckBeforeFlush,
    /// A read-only transaction is acknowledged before the data that it has read is on disk.
    AckReadsAtOnce,
    /// A record's checksum does not cover its LSN.
    LsnOutOfCrc,
    /// A record's checksum is not checked.
    SkipRecordCrc,
    /// A restart does not clear the bytes after the end of the log.
    KeepStaleTail,
    /// The names of new segments are not made durable.
    SkipDirectorySync,
    /// The log is truncated at the checkpoint, even if undo or redo still needs it.
    TruncateTooEarly,
    /// The instance continues after a failed sync of the log.
    ForgiveFailedSync,
    /// An appender that finds no segment ready makes one while it holds page latches.
    MakeSegmentLatched,
    /// Records of users take the log space that is reserved for rollbacks.
    SkipUndoSpace,
    // Pages.
    /// Pages are written before their log is durable.
    SkipWriteAhead,
    /// A bulk load stamps its pages with the tail of the log, and does not make the log durable before it writes them.
    StampLoadAtTail,
    /// The allocator does not record the pages that a bulk load owns.
    SkipLoadMark,
    /// Pages that a bulk load owns are read into the pool.
    ReadOwnedPages,
    /// A page is written in place although no copy of it was written to another place first.
    SkipPageImage,
    /// A slot for page copies is reused although its pages have not been synced.
    ReuseSlotsEarly,
    /// A changed page is not marked dirty.
    SkipDirtyMark,
    /// The data file is written and not synced.
    SkipDataSync,
    /// A page's checksum is not checked.
    SkipPageChecksum,
    // Checkpoint and restart.
    /// The services take no checkpoint.
    SkipCheckpoints,
    /// The number of log files that users' records take is not limited.
    SkipLogLimit,
    /// A checkpoint lets redo begin at itself, regardless of dirty pages.
    ForgetDirtyPages,
    /// A checkpoint does not list the running transactions.
    ForgetActive,
    /// The control file names a checkpoint that is not on disk yet.
    NameBeforeFlush,
    /// The control file has one copy, which is overwritten.
    OneControlCopy,
    /// Redo does not compare LSNs.
    SkipRedoTest,
    /// Redo assumes that a record's sections for one page are adjacent, and skips later ones.
    RedoNeighboursOnly,
    /// Redo does nothing.
    SkipRedo,
    /// Restart does not roll back uncommitted transactions.
    SkipRestartUndo,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All mutants.
    pub const ALL: &[Mutant] = <Mutant as strum::VariantArray>::VARIANTS;

    /// Name of the mutant in the environment variable.
    pub fn name(self) -> &'static str {
        self.into()
    }
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
        Some(name.parse().unwrap_or_else(|_| panic!("{VARIABLE}={name}: there is no such mutant")))
    })
}
