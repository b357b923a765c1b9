//! Large values, which do not fit a slot together with their key. They are stored as chains of chunks.
//!
//! A statement that writes a large value needs several log records: the chunks of the new value, the slot's new
//! content, delete marks on the chunks of the old value. So it runs in [`Txn::atomically`]. Chunks need no locks of
//! their own while they are written, because no other transaction knows their chain. When chunks are deleted, their
//! chain is locked, so that the chain's ghosts are not removed before the transaction has ended.
//!
//! The lock on a row protects its chain. A reader that does not keep the row's lock may find that the chain no longer
//! exists; the reader then reads the row again.

use std::ops::{ControlFlow, Range};

use super::columns::parts_within;
use super::index::{AccessMode, Index, LockAttempt};
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::TxnId;
use crate::btree::ops;
use crate::btree::overflow::{CHUNK, Chain, MAX_LARGE, Reference, chunks_of};
use crate::btree::row_sections::{self, RowAt, RowsBefore};
use crate::btree::{MAX_KEY, MAX_RECORD, Tree};
use crate::buffer::BufferPool;
use crate::lock::{Prefix, RecordMode};
use crate::log::RecordKind;
use crate::page::layout::OVERFLOW;
use crate::txn::buffers::RowBatch;
use crate::txn::transaction::Txn;

/// Returns true if a value fits in the slot of a key of this length.
#[inline]
pub(crate) fn fits_slot(key_len: usize, value_len: usize) -> bool {
    key_len + value_len <= MAX_RECORD
}

/// Maximum number of bytes reserved for a part of a value before it is read. The length of the value comes from a page,
/// which may be damaged.
const TRUSTED: usize = 1 << 20;

impl Index {
    /// Appends the parts `columns` of the large value to which a slot refers. Returns false if the value does not exist
    /// any more.
    ///
    /// # Errors
    /// An error if a page cannot be read or is damaged.
    pub(crate) fn append_referred(
        &self,
        pool: &BufferPool,
        key: &[u8],
        stored: &[u8],
        columns: &[Range<usize>],
        out: &mut Vec<u8>,
    ) -> Result<bool, StorageError> {
        let chain = match (Reference::decode(stored), self.overflow()) {
            (Some(Reference::OfKey(len)), _) => {
                let Some(at) = key.len().checked_sub(len) else { return Ok(false) };
                parts_within(columns, len).for_each(|part| out.extend_from_slice(&key[at..][part]));
                return Ok(true);
            }
            (Some(Reference::Chain(chain, len)), Some(tree)) => (tree, chain, len),
            _ => return Ok(false),
        };
        let (tree, chain, len) = chain;
        for part in parts_within(columns, len) {
            out.reserve(part.len().min(TRUSTED));
            if !tree.read_chain(pool, (chain, len), part, out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the error for the slot of `key`, whose reference leads to no large value.
    #[cold]
    pub(crate) fn dangling(&self, pool: &BufferPool, key: &[u8]) -> StorageError {
        match self.tree().find(pool, key) {
            Ok(leaf) => {
                let page = leaf.read.frame().page_id();
                drop(leaf);
                self.tree().damaged(pool, page, "refers to a large value that is not there")
            }
            Err(error) => error,
        }
    }
}

/// Value and flags of a slot.
struct StoredValue {
    value: Vec<u8>,
    flags: u16,
}

impl StoredValue {
    fn chain(&self) -> Option<(Chain, usize)> {
        match Reference::decode(&self.value) {
            Some(Reference::Chain(chain, len)) if self.flags & OVERFLOW != 0 => Some((chain, len)),
            _ => None,
        }
    }
}

impl Txn<'_> {
    /// Records that a buffer of the transaction may hold a large value.
    pub(super) fn handles_large(&mut self) {
        self.slot.state().handled_large = true;
    }

    /// Checks that a key and a row of `row` bytes are not too long. The transaction's buffers may already hold the key
    /// and the row.
    #[cold]
    pub(crate) fn check_large(&mut self, index: &Index, key: &[u8], row: usize) -> Result<(), TxnError> {
        self.handles_large();
        if key.len() > MAX_KEY {
            return Err(TxnError::KeyTooLong { table: index.table(), bytes: key.len(), limit: MAX_KEY });
        }
        // An index entry whose value is a suffix of its key always fits a slot. Only an entry of a unique index may be
        // too long.
        let limit = if index.overflow().is_some() { MAX_LARGE } else { MAX_RECORD.saturating_sub(key.len()) };
        if row > limit && index.overflow().is_some() {
            return Err(TxnError::RowTooLarge { table: index.table(), bytes: row, limit });
        }
        Ok(())
    }

    /// Inserts a row that does not fit a slot.
    #[cold]
    pub(super) fn insert_large(&mut self, index: &Index, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        self.check_large(index, key, row.len())?;
        // The key is checked before the large value is written.
        if self.lock_to_write(index, key)? {
            return Err(TxnError::DuplicateKey { table: index.table(), index: index.name() });
        }
        self.atomically(|txn| {
            let reference = txn.write_large(index, key, row)?;
            txn.insert_value(index, key, (reference.encode().as_bytes(), OVERFLOW))
        })
    }

    /// Locks a key for a row that will be written; returns true if the row exists.
    pub(crate) fn lock_to_write(&mut self, index: &Index, key: &[u8]) -> Result<bool, TxnError> {
        self.intend(index, AccessMode::Write)?;
        let name = self.engine.locks.names.of(index.tree().index, key);
        while self.try_lock(index, name, RecordMode::X, Prefix::MIN)? == LockAttempt::MustWait {
            self.wait_for(index, name, RecordMode::X, Prefix::MIN)?;
        }
        loop {
            let leaf = index.tree().find(&self.engine.pool, key)?;
            let is_there = leaf.exact && !leaf.read.page().slot(leaf.position).is_ghost();
            if leaf.read.is_valid() {
                return Ok(is_there);
            }
        }
    }

    /// Writes a large value and returns the reference to it. No slot has the reference yet.
    fn write_large(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<Reference, TxnError> {
        if key.ends_with(value) {
            return Ok(Reference::OfKey(value.len()));
        }
        let mut writer = self.begin_chain(index, key)?;
        for chunk in value.chunks(CHUNK) {
            self.write_chunk(&mut writer, chunk)?;
        }
        Ok(Reference::Chain(writer.chain, writer.len))
    }

    /// Begins a chain of chunks for a large value of the row of `key`.
    pub(crate) fn begin_chain(&mut self, index: &Index, key: &[u8]) -> Result<ChainWriter, TxnError> {
        let Some(tree) = index.overflow() else {
            let (bytes, limit) = (key.len(), MAX_RECORD / 2);
            return Err(TxnError::KeyTooLong { table: index.table(), bytes, limit });
        };
        self.handles_large();
        let tail = self.engine.log.tail();
        let state = self.slot.state();
        // Every chain has a log record, which moves the tail, so the next chain of this slot has another number.
        let chain = Chain { number: TxnId::of_first_record(tail, state.id).0, part: 0 };
        state.chains.written(tree, chain, state.last);
        Ok(ChainWriter { tree, chain, len: 0 })
    }

    /// Writes the next chunk of a chain. All chunks but the last have [`CHUNK`] bytes.
    pub(crate) fn write_chunk(&mut self, writer: &mut ChainWriter, bytes: &[u8]) -> Result<(), TxnError> {
        debug_assert!(writer.len.is_multiple_of(CHUNK) && !bytes.is_empty() && bytes.len() <= CHUNK);
        let number = writer.len / CHUNK;
        self.slot.state().chains.grows(number + 1);
        self.insert_chunk(writer.tree, &writer.chain.chunk(number), bytes)?;
        writer.len += bytes.len();
        Ok(())
    }

    fn insert_chunk(&mut self, tree: Tree, key: &[u8], bytes: &[u8]) -> Result<(), TxnError> {
        let engine = self.engine;
        loop {
            let leaf = tree.find(&engine.pool, key)?;
            let (position, exact) = (leaf.position, leaf.exact);
            let Some(mut leaf) = leaf.read.upgrade() else { continue };
            if exact || !leaf.page().covers(key) {
                let page = leaf.frame().page_id();
                leaf.release_unchanged();
                return Err(tree.damaged(&engine.pool, page, "is not the leaf of the keys that lead to it").into());
            }
            if !leaf.page().has_room(key.len(), bytes.len()) {
                leaf.release_unchanged();
                let state = self.slot.state();
                let change = engine.structure_change(state.id);
                tree.split(change, &mut state.rec, key, 0, bytes.len(), &mut |_| true)?;
                continue;
            }
            leaf.mark_dirty_at(|| engine.log.tail());
            self.begin_record(RecordKind::Data);
            let place = RowAt { page: leaf.frame().page_id(), tree, position };
            row_sections::put_insert(&mut self.slot.state().rec, &place, key, &mut RowsBefore::none(), (bytes, 0));
            let lsn = match self.append(leaf.page().lsn()) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(leaf);
                    refused.make_room(&engine.log)?;
                    continue;
                }
            };
            let mut page = leaf.page_mut();
            page.insert(position, key, 0, bytes, 0);
            page.note_insert(position);
            page.set_lsn(lsn);
            return Ok(());
        }
    }

    /// Locks the chain of a row that is locked for writing, before the slot changes. So if a reader has locked the
    /// chain and finds that the slot refers to it, the chain is stable, and the reader waits for no transaction that
    /// waits for the reader.
    fn lock_chain(&mut self, index: &Index, stored: &StoredValue) -> Result<(), TxnError> {
        let (Some((chain, _)), Some(tree)) = (stored.chain(), index.overflow()) else { return Ok(()) };
        let name = self.engine.locks.names.of(tree.index, &chain.key());
        while self.try_lock(index, name, RecordMode::X, Prefix::MIN)? == LockAttempt::MustWait {
            self.wait_for(index, name, RecordMode::X, Prefix::MIN)?;
        }
        Ok(())
    }

    /// Marks all chunks of a locked chain as deleted.
    fn delete_chain(&mut self, index: &Index, (chain, len): (Chain, usize)) -> Result<(), TxnError> {
        let Some(tree) = index.overflow() else { return Ok(()) };
        let engine = self.engine;
        let chunks = chunks_of(len);
        self.handles_large();
        let state = self.slot.state();
        state.chains.replaced(tree, chain, chunks, state.last);
        let mut number = 0;
        while number < chunks {
            let leaf = tree.find(&engine.pool, &chain.chunk(number))?;
            let first = leaf.position;
            let Some(mut leaf) = leaf.read.upgrade() else { continue };
            let page = leaf.page();
            let here = (0..chunks - number)
                .take_while(|n| {
                    let at = first + n;
                    at < page.count() && !page.slot(at).is_ghost() && page.has_key(at, &chain.chunk(number + n))
                })
                .count();
            if here == 0 {
                let page = leaf.frame().page_id();
                leaf.release_unchanged();
                return Err(tree.damaged(&engine.pool, page, "lacks a part of a large value").into());
            }
            leaf.mark_dirty_at(|| engine.log.tail());
            self.begin_record(RecordKind::Data);
            let id = leaf.frame().page_id();
            let mut before = RowsBefore::none();
            for n in 0..here {
                let key = chain.chunk(number + n);
                let place = RowAt { page: id, tree, position: first + n };
                row_sections::put_mark(&mut self.slot.state().rec, &place, &key, &mut before, true);
            }
            let lsn = match self.append_several(leaf.page().lsn(), here) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(leaf);
                    refused.make_room(&engine.log)?;
                    continue;
                }
            };
            let mut page = leaf.page_mut();
            (first..first + here).for_each(|at| ops::mark(&mut page, at, true));
            page.set_lsn(lsn);
            engine.pool.note_due(id);
            number += here;
        }
        Ok(())
    }

    /// Returns the content of the slot of a row that is locked for writing.
    fn stored(&mut self, index: &Index, key: &[u8]) -> Result<StoredValue, TxnError> {
        loop {
            let leaf = index.tree().find(&self.engine.pool, key)?;
            let page = leaf.read.page();
            let slot = page.slot(leaf.position);
            let mut value = Vec::new();
            let copied = page.append_value(slot, &mut value);
            if !leaf.read.is_valid() || !copied {
                continue;
            }
            if !leaf.exact || slot.is_ghost() {
                let page = leaf.read.frame().page_id();
                drop(leaf);
                return Err(index.tree().damaged(&self.engine.pool, page, "lost a row that was locked").into());
            }
            return Ok(StoredValue { value, flags: slot.flags });
        }
    }

    /// Returns true if the row of `key`, which is locked for writing, is a large value.
    #[cold]
    pub(super) fn is_large(&mut self, index: &Index, key: &[u8]) -> Result<bool, TxnError> {
        Ok(self.stored(index, key)?.flags & OVERFLOW != 0)
    }

    /// Replaces the row of `key`, which is locked for writing, by `after`. The old value, the new value or both are
    /// large.
    #[cold]
    pub(super) fn store_large(&mut self, index: &Index, key: &[u8], after: &[u8]) -> Result<(), TxnError> {
        self.check_large(index, key, after.len())?;
        self.atomically(|txn| {
            let old = txn.stored(index, key)?;
            txn.lock_chain(index, &old)?;
            if fits_slot(key.len(), after.len()) {
                txn.replace_value(index, key, (after, 0))?;
            } else {
                let reference = txn.write_large(index, key, after)?;
                txn.replace_value(index, key, (reference.encode().as_bytes(), OVERFLOW))?;
            }
            old.chain().map_or(Ok(()), |chain| txn.delete_chain(index, chain))
        })
    }

    /// Makes a completely written chain the row of a key that is locked for writing. A previous large value is deleted.
    pub(super) fn store_chain(
        &mut self,
        index: &Index,
        key: &[u8],
        writer: &ChainWriter,
        is_there: bool,
    ) -> Result<(), TxnError> {
        let reference = Reference::Chain(writer.chain, writer.len).encode();
        if !is_there {
            return self.insert_value(index, key, (reference.as_bytes(), OVERFLOW));
        }
        let old = self.stored(index, key)?;
        self.lock_chain(index, &old)?;
        self.replace_value(index, key, (reference.as_bytes(), OVERFLOW))?;
        old.chain().map_or(Ok(()), |chain| self.delete_chain(index, chain))
    }

    /// Writes `after` over the bytes from `at` on of a large row that is locked for writing.
    #[cold]
    pub(super) fn store_part_of_large(
        &mut self,
        index: &Index,
        key: &[u8],
        at: usize,
        after: &[u8],
    ) -> Result<(), TxnError> {
        let stored = self.stored(index, key)?;
        let mut row = Vec::new();
        let whole = index.append_referred(&self.engine.pool, key, &stored.value, super::columns::WHOLE, &mut row)?;
        match row.get_mut(at..at + after.len()) {
            Some(part) if whole => part.copy_from_slice(after),
            _ => return Err(index.dangling(&self.engine.pool, key).into()),
        }
        self.store_large(index, key, &row)
    }

    /// Deletes a large row that is locked for writing.
    #[cold]
    pub(super) fn delete_large(&mut self, index: &Index, key: &[u8]) -> Result<(), TxnError> {
        self.atomically(|txn| {
            let old = txn.stored(index, key)?;
            txn.lock_chain(index, &old)?;
            txn.mark_slot_deleted(index, key)?;
            old.chain().map_or(Ok(()), |chain| txn.delete_chain(index, chain))
        })
    }

    /// Calls `visit` for the rows of a scan's batch, some of which are large, until it breaks.
    #[cold]
    pub(crate) fn visit_large(
        &mut self,
        index: &Index,
        batch: &RowBatch,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TxnError> {
        let mut large = std::mem::take(&mut self.slot.state().large);
        let result = (0..batch.len()).try_fold(ControlFlow::Continue(()), |shown: ControlFlow<()>, i| {
            if shown.is_break() {
                return Ok(shown);
            }
            let (key, value) = (batch.key(i), batch.value(i));
            if !batch.row(i).is_reference {
                return Ok(visit(key, value));
            }
            let found = self.read_referred(index, key, value, &mut large)?;
            Ok(if found { visit(key, &large) } else { ControlFlow::Continue(()) })
        });
        self.slot.state().large = large;
        result
    }

    /// Reads the large value of a row of a scan; if the row is not locked and has changed, reads the current row.
    /// Returns false if the row does not exist any more.
    #[cold]
    pub(crate) fn read_referred(
        &mut self,
        index: &Index,
        key: &[u8],
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        self.handles_large();
        out.clear();
        if index.append_referred(&self.engine.pool, key, stored, super::columns::WHOLE, out)? {
            return Ok(true);
        }
        let found = self.fetch(index, key, AccessMode::Read, super::columns::WHOLE)?.is_some();
        out.clear();
        out.extend_from_slice(&self.slot.peek().before);
        Ok(found)
    }
}

/// State of a chain of chunks that is being written.
#[derive(Debug)]
pub(crate) struct ChainWriter {
    tree: Tree,
    chain: Chain,
    /// Number of bytes written to the chain so far.
    pub(crate) len: usize,
}
