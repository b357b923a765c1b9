//! An index as statements see it: a tree, its names, and how its keys and gaps are locked.

use std::sync::Arc;

use crate::base::config::Isolation;
use crate::base::error::{StorageError, TxnError};
use crate::base::fault::{Refusable, strikes};
use crate::base::ids::{IndexId, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::Mutex;
use crate::base::sync::plain::{AtomicU32, Ordering};
use crate::btree::Tree;
use crate::lock::{LockName, LockRefusal, Names, Prefix, RecordMode, Refused, TableMode};
use crate::txn::transaction::Txn;

/// A primary or secondary index.
#[derive(Debug)]
pub(crate) struct Index {
    /// Number and root page of the tree. Of an open table's index they change when another table gets its number: in
    /// between no transaction uses it.
    id: AtomicU32,
    root: AtomicU32,
    /// Root page of the tree in which values of its rows lie that do not fit a slot; 0 for none, as in a secondary index.
    overflow: AtomicU32,
    /// The table's number in the lock manager; all indexes of a table share it.
    pub(crate) lock_table: u32,
    table: Arc<TableTitle>,
    /// The index's name; none for the primary one, which has that of the table.
    name: Option<Arc<str>>,
}

/// The name of an open table, for errors.
#[derive(Debug, Default)]
pub(super) struct TableTitle(Mutex<Arc<str>>);

impl Index {
    /// An index of a table for one piece of work.
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

    /// An index of an open table, without a tree yet.
    pub(super) fn of_open(lock_table: u32, table: &Arc<TableTitle>, name: Option<Arc<str>>) -> Index {
        let word = || AtomicU32::new(0);
        Index { id: word(), root: word(), overflow: word(), lock_table, table: Arc::clone(table), name }
    }

    /// Gives it a tree, and one for large values.
    pub(super) fn set(&self, tree: Tree, overflow: Option<Tree>) {
        self.overflow.store(overflow.map_or(PageId::NONE, |tree| tree.root).0, Ordering::Relaxed);
        self.id.store(tree.index.0, Ordering::Relaxed);
        self.root.store(tree.root.0, Ordering::Relaxed);
    }

    /// Gives all indexes of its table the table's name.
    pub(super) fn rename(&self, table: &str) {
        *self.table.0.lock() = table.into();
    }

    /// The tree.
    #[inline]
    pub(crate) fn tree(&self) -> Tree {
        Tree { index: self.id(), root: PageId(self.root.load(Ordering::Relaxed)) }
    }

    /// The tree in which values of its rows lie that do not fit a slot.
    #[inline]
    pub(crate) fn overflow(&self) -> Option<Tree> {
        let root = PageId(self.overflow.load(Ordering::Relaxed));
        (!root.is_none()).then(|| Tree { index: Tree::overflow_index(self.id()), root })
    }

    /// The number of the tree.
    #[inline]
    pub(crate) fn id(&self) -> IndexId {
        IndexId(self.id.load(Ordering::Relaxed))
    }

    /// The table's name.
    #[cold]
    pub(crate) fn table(&self) -> Arc<str> {
        Arc::clone(&self.table.0.lock())
    }

    /// The index's name; that of the table for the primary one.
    #[cold]
    pub(crate) fn name(&self) -> Arc<str> {
        self.name.as_ref().map_or_else(|| self.table(), Arc::clone)
    }
}

/// What a statement wants to do with the rows it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Read.
    Read,
    /// Read now, write later: other transactions may still read.
    Update,
    /// Write.
    Write,
    /// Write, and insert if there is no row: nothing that is seen decides what is done.
    Put,
}

/// The result of trying a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAttempt {
    /// It is held now (or not needed).
    Lock,
    /// Another transaction is in the way: release all latches, then [`Txn::wait_for`].
    MustWait,
}

impl Index {
    /// The name under which the gap at position `at` of a leaf, and the key there, are locked.
    pub(crate) fn name_at(
        &self,
        names: &Names,
        page: crate::page::PageRef<'_>,
        at: usize,
        key: &mut Vec<u8>,
    ) -> LockName {
        key.clear();
        if at < page.count() {
            // A torn page yields some other name; the lock is then useless but harmless.
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
    /// Announces on the table what the statement will do with its rows.
    #[inline]
    pub(crate) fn intend(&mut self, index: &Index, want: Want) -> Result<(), TxnError> {
        let mode = if want == Want::Read { TableMode::IS } else { TableMode::IX };
        self.slot.state().owner.intent(index.lock_table, mode).map_err(|e| self.refused_table(e, index))
    }

    /// Locks a whole table.
    pub(crate) fn lock_number(&mut self, index: &Index, mode: TableMode) -> Result<(), TxnError> {
        self.slot.state().owner.lock_table(index.lock_table, mode).map_err(|e| self.refused_table(e, index))
    }

    /// The error for a table's lock that was refused. With a lock on a dropped table the transaction can only roll
    /// back.
    #[cold]
    fn refused_table(&mut self, error: LockRefusal, index: &Index) -> TxnError {
        if error == LockRefusal::Gone {
            self.give_up();
        }
        lock_error(error, index)
    }

    /// The mode in which a row found is locked.
    #[inline]
    pub(crate) fn key_mode(&self, want: Want) -> RecordMode {
        match want {
            Want::Read => RecordMode::S,
            Want::Update => RecordMode::U,
            Want::Write | Want::Put if is_mutant(Mutant::SkipWriteLock) => RecordMode::S,
            Want::Write | Want::Put => RecordMode::X,
        }
    }

    /// Whether reads protect the gaps they saw.
    #[inline]
    pub(crate) fn locks_gaps(&self) -> bool {
        self.isolation == Isolation::Serializable && !is_mutant(Mutant::SkipNextKeyLock)
    }

    /// Whether keys that were found absent stay so.
    #[inline]
    pub(crate) fn protects_absence(&self) -> bool {
        self.isolation == Isolation::Serializable && !is_mutant(Mutant::SkipAbsentKeyLock)
    }

    /// Whether a row that was read need not stay locked.
    #[inline]
    fn reads_instantly(&self) -> bool {
        self.isolation == Isolation::ReadCommitted || is_mutant(Mutant::ReleaseReadLocksEarly)
    }

    /// Whether a row that was read for this stays locked.
    pub(super) fn keeps_lock(&self, want: Want) -> bool {
        want != Want::Read || !self.reads_instantly()
    }

    /// Locks a key, a gap or both if that is possible at once. Latches may be held.
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

    /// As [`Txn::try_lock`], for the few statements that lock most rows.
    #[inline(always)]
    pub(crate) fn try_lock_row(
        &mut self,
        index: &Index,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<LockAttempt, TxnError> {
        if strikes(Refusable::Lock) {
            return Err(TxnError::TooManyLocks { table: index.table() });
        }
        if strikes(Refusable::Wait) {
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
            Err(Refused::WouldBlock) => Ok(LockAttempt::MustWait),
            Err(Refused::TooManyLocks) => Err(TxnError::TooManyLocks { table: index.table() }),
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

    /// Waits until an insert of a key with this prefix into the gap below `name` would be possible. No latch may be
    /// held.
    #[cold]
    pub(crate) fn wait_to_insert(&mut self, index: &Index, name: LockName, prefix: Prefix) -> Result<(), TxnError> {
        self.slot.state().owner.wait_insert(index.lock_table, name, prefix).map_err(|e| lock_error(e, index))
    }
}

/// The error for a lock manager's refusal, with the table's name.
#[cold]
pub(crate) fn lock_error(error: LockRefusal, index: &Index) -> TxnError {
    let table = index.table();
    match error {
        LockRefusal::Deadlock { .. } => TxnError::Deadlock { table },
        LockRefusal::OwnTask => TxnError::OwnTask { table },
        LockRefusal::TimedOut { holder } => TxnError::LockTimeout { table, holder },
        LockRefusal::TooManyLocks { .. } => TxnError::TooManyLocks { table },
        LockRefusal::Closed => TxnError::Storage(StorageError::Closing),
        LockRefusal::Gone => TxnError::Dropped { table },
    }
}
