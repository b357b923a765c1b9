//! Streaming of rows: only a chunk of a large row is in memory at a time.

use std::io::Read;
use std::sync::Arc;

use super::columns::NOTHING;
use super::index::{AccessMode, Index, lock_error};
use super::info::TableInfo;
use super::overflow::fits_slot;
use crate::base::error::{StorageError, TxnError};
use crate::btree::overflow::{CHUNK, Chain, MAX_LARGE, Reference};
use crate::latch::Version;
use crate::lock::{LockName, NotGranted, Prefix, RecordMode};
use crate::page::layout::OVERFLOW;
use crate::txn::transaction::Txn;

/// A row opened for reading.
#[derive(Debug)]
pub(crate) enum OpenedRow {
    /// The bytes of the whole row, which is not large.
    Whole(Vec<u8>),
    /// The chain of a large row, and the length of the row in bytes.
    Chain(Chain, usize),
}

impl Txn<'_> {
    /// Locks the row of `key` for reading; a large row stays readable until the transaction ends. Returns `None` if
    /// there is no row.
    pub(crate) fn open_row(&mut self, index: &Index, key: &[u8]) -> Result<Option<OpenedRow>, TxnError> {
        self.handles_large();
        loop {
            let Some(spot) = self.fetch(index, key, AccessMode::Read, NOTHING)? else { return Ok(None) };
            if spot.version != Version::NEVER {
                return Ok(self.read(index, key, AccessMode::Read, <[u8]>::to_vec)?.map(OpenedRow::Whole));
            }
            // `large` has the slot's content at the time when the lock was granted, so the content is committed.
            let stored = self.slot.peek().large.clone();
            let (chain, len, tree) = match (Reference::decode(&stored), index.overflow()) {
                (Some(Reference::OfKey(len)), _) if len <= key.len() => {
                    return Ok(Some(OpenedRow::Whole(key[key.len() - len..].to_vec())));
                }
                (Some(Reference::Chain(chain, len)), Some(tree)) => (chain, len, tree),
                _ => return Err(index.dangling(&self.engine.pool, key).into()),
            };
            if self.keeps_lock(AccessMode::Read) {
                return Ok(Some(OpenedRow::Chain(chain, len)));
            }
            // The row need not stay locked, but its chain must.
            self.lock_chain_shared(index, self.engine.locks.names.of(tree.index, &chain.key()))?;
            if self.still_refers(index, key, &stored)? {
                return Ok(Some(OpenedRow::Chain(chain, len)));
            }
        }
    }

    /// Returns true if the slot of a key still contains the reference `stored`.
    fn still_refers(&self, index: &Index, key: &[u8], stored: &[u8]) -> Result<bool, StorageError> {
        loop {
            let leaf = index.tree().find(&self.engine.pool, key)?;
            let page = leaf.read.page();
            let slot = page.slot(leaf.position);
            let mut value = Vec::new();
            let copied = page.append_value(slot, &mut value);
            if leaf.read.is_valid() && copied {
                return Ok(leaf.exact && slot.flags == OVERFLOW && value == stored);
            }
        }
    }

    /// Takes the shared lock on a chain. At every isolation level the lock is held until the transaction ends.
    fn lock_chain_shared(&mut self, index: &Index, name: LockName) -> Result<(), TxnError> {
        let owner = &mut self.slot.state().owner;
        match owner.try_acquire(index.lock_table, name, RecordMode::S, Prefix::MIN) {
            Ok(_) => Ok(()),
            Err(NotGranted::WouldBlock) => owner
                .acquire_wait(index.lock_table, name, RecordMode::S, Prefix::MIN)
                .map(drop)
                .map_err(|error| lock_error(error, index)),
            Err(NotGranted::TooManyLocks) => Err(TxnError::TooManyLocks { table: index.table() }),
        }
    }

    /// Reads the bytes of an open chain from `at` on, up to the end of a chunk.
    pub(crate) fn read_piece(
        &mut self,
        index: &Index,
        key: &[u8],
        (chain, len): (Chain, usize),
        at: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        out.clear();
        let end = (at / CHUNK + 1).saturating_mul(CHUNK).min(len);
        let read = index.overflow().map(|tree| tree.read_chain(&self.engine.pool, (chain, len), at..end, out));
        if read.transpose()? == Some(true) { Ok(()) } else { Err(index.dangling(&self.engine.pool, key).into()) }
    }

    /// Inserts a row, or replaces the existing one, with the bytes of `source`; returns its length. On an error the
    /// whole statement is undone.
    pub(crate) fn put_from(&mut self, table: &TableInfo, key: &[u8], source: &mut dyn Read) -> Result<u64, TxnError> {
        let index = &table.primary;
        let mut piece = Vec::with_capacity(CHUNK);
        fill(index, source, &mut piece)?;
        if fits_slot(key.len(), piece.len()) && piece.len() < CHUNK {
            self.put_row(table, key, &piece)?;
            return Ok(piece.len() as u64);
        }
        self.check_large(index, key, piece.len())?;
        let is_there = self.lock_to_write(index, key)?;
        self.atomically(|txn| {
            let mut writer = txn.begin_chain(index, key)?;
            while !piece.is_empty() {
                if writer.len + piece.len() > MAX_LARGE {
                    let (table, bytes) = (index.table(), writer.len + piece.len());
                    return Err(TxnError::RowTooLarge { table, bytes, limit: MAX_LARGE });
                }
                txn.write_chunk(&mut writer, &piece)?;
                // A chunk that is not full is the last chunk.
                let is_last = piece.len() < CHUNK;
                piece.clear();
                if !is_last {
                    fill(index, source, &mut piece)?;
                }
            }
            txn.store_chain(index, key, &writer, is_there)?;
            Ok(writer.len as u64)
        })
    }
}

/// Reads until `piece` has [`CHUNK`] bytes, or the source ends.
fn fill(index: &Index, source: &mut dyn Read, piece: &mut Vec<u8>) -> Result<(), TxnError> {
    let read = source.take((CHUNK - piece.len()) as u64).read_to_end(piece);
    read.map(drop).map_err(|error| TxnError::Source { table: index.table(), error: Arc::new(error) })
}
