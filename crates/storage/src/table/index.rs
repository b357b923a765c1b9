//! An index as used by statements: its tree, its name and table, and the lock requests on its keys and gaps.

use std::sync::Arc;

use crate::base::config::Isolation;
use crate::base::error::{StorageError, TxnError};
use crate::base::fault::{FaultKind, should_fail};
use crate::base::ids::{IndexId, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::Mutex;
use crate::base::sync::plain::{AtomicU32, Ordering};
use crate::btree::Tree;
use crate::buffer::contention::ContentionCounters;
use crate::lock::{LockName, LockRefusal, Names, NotGranted, Prefix, RecordMode, TableMode};
use crate::txn::transaction::Txn;

/// A primary or secondary index.
#[derive(Debug)]
pub(crate) struct Index {
    /// Number of the tree. In an open table, the tree's number and root page change when another table reuses the table
    /// number; no transaction uses the index at that time.
    id: AtomicU32,
    root: AtomicU32,
    /// Root page of the tree of large values, which do not fit a slot; 0 if there is no such tree, as in a secondary
    /// index.
    overflow: AtomicU32,
    /// Number of the table in the lock manager. All indexes of a table have the same number.
    pub(crate) lock_table: u32,
    table: Arc<TableTitle>,
    /// Name of a secondary index; `None` for the primary index, which has the name of the table.
    name: Option<Arc<str>>,
}

/// Data that all indexes of an open table share.
#[derive(Debug, Default)]
pub(super) struct TableTitle {
    /// Name of the table, for error messages.
    name: Mutex<Arc<str>>,
    contention: ContentionCounters,
}

impl Index {
    /// Creates an index for a single operation.
    pub(crate) fn new(
        (tree, overflow): (Tree, Option<Tree>),
        lock_table: u32,
        table: &str,
        name: Option<Arc<str>>,
    ) -> Index {
        let index = Index::of_open(lock_table, &Arc::default(), name);
        index.set(tree, overflow);
        index.rename(table);
        index
    }

    /// Creates an index of an open table. The tree is set later, by `set`.
    pub(super) fn of_open(lock_table: u32, table: &Arc<TableTitle>, name: Option<Arc<str>>) -> Index {
        let word = || AtomicU32::new(0);
        Index { id: word(), root: word(), overflow: word(), lock_table, table: Arc::clone(table), name }
    }

    /// Sets the index's tree and its tree of large values.
    pub(super) fn set(&self, tree: Tree, overflow: Option<Tree>) {
        self.overflow.store(overflow.map_or(PageId::NONE, |tree| tree.root).0, Ordering::Relaxed);
        self.id.store(tree.index.0, Ordering::Relaxed);
        self.root.store(tree.root.0, Ordering::Relaxed);
    }

    /// Sets the name of the table, and resets its counters. All indexes of the table share them.
    pub(super) fn rename(&self, table: &str) {
        *self.table.name.lock() = table.into();
        self.table.contention.reset();
    }

    /// Returns the counters of the table's contended leaves.
    pub(crate) fn contention(&self) -> &ContentionCounters {
        &self.table.contention
    }

    /// Returns the tree of the index.
    #[inline]
    pub(crate) fn tree(&self) -> Tree {
        Tree { index: self.id(), root: PageId(self.root.load(Ordering::Relaxed)) }
    }

    /// Returns the tree of large values, which do not fit a slot.
    #[inline]
    pub(crate) fn overflow(&self) -> Option<Tree> {
        let root = PageId(self.overflow.load(Ordering::Relaxed));
        (!root.is_none()).then(|| Tree { index: Tree::overflow_index(self.id()), root })
    }

    /// Returns the number of the tree.
    #[inline]
    pub(crate) fn id(&self) -> IndexId {
        IndexId(self.id.load(Ordering::Relaxed))
    }

    /// Returns the name of the table.
    #[cold]
    pub(crate) fn table(&self) -> Arc<str> {
        Arc::clone(&self.table.name.lock())
    }

    /// Returns the name of the index; for the primary index, the name of the table.
    #[cold]
    pub(crate) fn name(&self) -> Arc<str> {
        self.name.as_ref().map_or_else(|| self.table(), Arc::clone)
    }
}

/// Purpose for which a statement accesses a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// The statement reads the row.
    Read,
    /// The statement reads the row and may write it later. Other transactions may still read the row.
    Update,
    /// The statement writes the row.
    Write,
    /// The statement writes the row, or inserts it if there is none. Its result does not depend on the previous row.
    Put,
}

/// Result of a lock request that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAttempt {
    /// The lock is held now, or is not needed.
    Lock,
    /// Another transaction holds a conflicting lock. The caller must release all latches and then call
    /// [`Txn::wait_for`].
    MustWait,
}

impl Index {
    /// Returns the lock name of the key at position `at` of a leaf, which is also the lock name of the gap below this
    /// key.
    pub(crate) fn name_at(
        &self,
        names: &Names,
        page: crate::page::PageRef<'_>,
        at: usize,
        key: &mut Vec<u8>,
    ) -> LockName {
        key.clear();
        if at < page.count() {
            // A torn page yields a wrong lock name. A lock under a wrong name is useless but harmless.
            let _ = page.append_key(at, key);
            names.of(self.id(), key)
        } else if page.append_high(key) {
            names.of(self.id(), key)
        } else {
            names.supremum(self.id())
        }
    }
}

impl Txn<'_> {
    /// Takes the intention lock on the table for a statement's access to rows.
    #[inline]
    pub(crate) fn intend(&mut self, index: &Index, access: AccessMode) -> Result<(), TxnError> {
        let mode = if access == AccessMode::Read { TableMode::IS } else { TableMode::IX };
        self.slot.state().owner.intent(index.lock_table, mode).map_err(|e| self.refused_table(e, index))
    }

    /// Locks a whole table in this mode. Waits if necessary.
    pub(crate) fn lock_number(&mut self, index: &Index, mode: TableMode) -> Result<(), TxnError> {
        self.slot.state().owner.lock_table(index.lock_table, mode).map_err(|e| self.refused_table(e, index))
    }

    /// Returns the error for a refused table lock. If the table was dropped, the transaction can only be rolled back.
    #[cold]
    fn refused_table(&mut self, error: LockRefusal, index: &Index) -> TxnError {
        if error == LockRefusal::Dropped {
            self.give_up();
        }
        lock_error(error, index)
    }

    /// Returns the mode in which the lock of an existing row is requested.
    #[inline]
    pub(crate) fn key_mode(&self, access: AccessMode) -> RecordMode {
        match access {
            AccessMode::Read => RecordMode::S,
            AccessMode::Update => RecordMode::U,
            AccessMode::Write | AccessMode::Put if is_mutant(Mutant::SkipWriteLock) => RecordMode::S,
            AccessMode::Write | AccessMode::Put => RecordMode::X,
        }
    }

    /// Returns true if reads lock the gaps in the ranges that they read.
    #[inline]
    pub(crate) fn locks_gaps(&self) -> bool {
        self.isolation == Isolation::Serializable && !is_mutant(Mutant::SkipNextKeyLock)
    }

    /// Returns true if reads lock keys that they found absent.
    #[inline]
    pub(crate) fn protects_absence(&self) -> bool {
        self.isolation == Isolation::Serializable && !is_mutant(Mutant::SkipAbsentKeyLock)
    }

    /// Returns true if locks of reads are released immediately after the read.
    #[inline]
    fn reads_instantly(&self) -> bool {
        self.isolation == Isolation::ReadCommitted || is_mutant(Mutant::ReleaseReadLocksEarly)
    }

    /// Returns true if the lock on a row that was read for this purpose is kept until the transaction ends.
    pub(super) fn keeps_lock(&self, access: AccessMode) -> bool {
        access != AccessMode::Read || !self.reads_instantly()
    }

    /// Requests a lock on a key, a gap or both without waiting. Latches may be held.
    #[inline(never)]
    pub(crate) fn try_lock(
        &mut self,
        index: &Index,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<LockAttempt, TxnError> {
        self.try_lock_row(index, name, mode, low)
    }

    /// As [`Txn::try_lock`], inlined into the few statements that lock most rows.
    #[inline(always)]
    pub(crate) fn try_lock_row(
        &mut self,
        index: &Index,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<LockAttempt, TxnError> {
        if should_fail(FaultKind::Lock) {
            return Err(TxnError::TooManyLocks { table: index.table() });
        }
        if should_fail(FaultKind::Wait) {
            return Err(TxnError::Deadlock { table: index.table() });
        }
        let instant = mode == RecordMode::S && self.reads_instantly();
        let owner = &mut self.slot.state().owner;
        if instant {
            return Ok(if owner.try_instant_s(index.lock_table, name) {
                LockAttempt::Lock
            } else {
                LockAttempt::MustWait
            });
        }
        match owner.try_acquire(index.lock_table, name, mode, low) {
            Ok(_) => Ok(LockAttempt::Lock),
            Err(NotGranted::WouldBlock) => Ok(LockAttempt::MustWait),
            Err(NotGranted::TooManyLocks) => Err(TxnError::TooManyLocks { table: index.table() }),
        }
    }

    /// Waits for a lock. No latch may be held.
    #[cold]
    pub(crate) fn wait_for(
        &mut self,
        index: &Index,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<(), TxnError> {
        let instant = mode == RecordMode::S && self.reads_instantly();
        let owner = &mut self.slot.state().owner;
        let result = if instant {
            owner.wait_instant_s(index.lock_table, name)
        } else {
            owner.acquire_wait(index.lock_table, name, mode, low).map(drop)
        };
        result.map_err(|e| lock_error(e, index))
    }

    /// Waits until a key with this prefix could be inserted into the gap below `name`. No latch may be held.
    #[cold]
    pub(crate) fn wait_to_insert(&mut self, index: &Index, name: LockName, prefix: Prefix) -> Result<(), TxnError> {
        self.slot.state().owner.wait_insert(index.lock_table, name, prefix).map_err(|e| lock_error(e, index))
    }
}

/// Converts an error of the lock manager to a transaction error with the table's name.
#[cold]
pub(crate) fn lock_error(error: LockRefusal, index: &Index) -> TxnError {
    let table = index.table();
    match error {
        LockRefusal::Deadlock { .. } => TxnError::Deadlock { table },
        LockRefusal::OwnTask => TxnError::OwnTask { table },
        LockRefusal::Wounded => TxnError::Repeated { table },
        LockRefusal::InLoop => TxnError::LockInLoop { table },
        LockRefusal::TimedOut { holder } => TxnError::LockTimeout { table, holder },
        LockRefusal::TooManyLocks { .. } => TxnError::TooManyLocks { table },
        LockRefusal::Closed => TxnError::Storage(StorageError::Closing),
        LockRefusal::Dropped => TxnError::Dropped { table },
    }
}
