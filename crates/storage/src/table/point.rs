//! Reads of rows by key.

use std::ops::Range;

use super::columns::{WHOLE, append_columns, bytes_until};
use super::index::{AccessMode, Index, LockAttempt};
use super::locate::remembered_at;
use crate::base::error::TxnError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sites::site;
use crate::btree::group::{GROUP, KeyHint, RowPart};
use crate::btree::overflow::Reference;
use crate::btree::search::LeafAt;
use crate::lock::{LockName, Prefix};
use crate::txn::positions::LeafSpot;
use crate::txn::transaction::Txn;

impl Txn<'_> {
    /// Locks the row of `key` and calls `f` with its bytes. An absent key stays absent until the end of the transaction
    /// (serializable).
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub(crate) fn read<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        access: AccessMode,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        Ok(self.fetch(index, key, access, WHOLE)?.map(|_| f(&self.slot.peek().before)))
    }

    /// Locks the row of `key`, copies the parts `columns` of the row to the slot's buffer `before`, and returns the
    /// row's position. Returns `None` if there is no row.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        index: &Index,
        key: &[u8],
        access: AccessMode,
        columns: &[Range<usize>],
    ) -> Result<Option<LeafSpot>, TxnError> {
        let names = &self.engine.locks.names;
        self.intend(index, access)?;
        let name = names.of(index.id(), key);
        let mode = self.key_mode(access);
        if self.engine.pool.points().in_descents() {
            self.engine.locks.prefetch(name);
        }
        self.engine.pool.points().at(&site::BEFORE_READ);
        let mut gone = None;
        loop {
            let leaf = self.locate(index, name, key)?;
            if !leaf.exact {
                if self.is_absent(index, name, access, leaf)? {
                    return Ok(None);
                }
                continue;
            }
            if self.try_lock_row(index, name, mode, Prefix::MIN)? == LockAttempt::MustWait {
                drop(leaf);
                self.wait_for(index, name, mode, Prefix::MIN)?;
                continue;
            }
            self.engine.pool.points().at(&site::BEFORE_COPY);
            let page = leaf.read.page();
            let slot = page.slot(leaf.position);
            let state = self.slot.state();
            state.before.clear();
            let whole = append_columns(page, (slot.value_at(), slot.value_len), columns, &mut state.before);
            if !(leaf.read.is_valid() || is_mutant(Mutant::SkipRevalidation)) || !whole {
                continue;
            }
            if slot.flags != 0 {
                if slot.is_ghost() {
                    self.missed(access, name, &leaf);
                    return Ok(None);
                }
                if self.fetch_large(index, key, (access, columns), leaf, &mut gone)? {
                    return Ok(Some(LeafSpot::NONE));
                }
                continue;
            }
            let spot = self.spot(&leaf);
            drop(leaf);
            self.engine.pool.points().at(&site::AFTER_COPY);
            return Ok(Some(spot));
        }
    }

    /// Copies the parts `columns` of a large row to the slot's buffer `before`. Returns false if the leaf has changed,
    /// or if the value has been deleted because the row is not locked. `gone` is the last reference that led to a
    /// deleted value.
    #[cold]
    fn fetch_large(
        &mut self,
        index: &Index,
        key: &[u8],
        (access, columns): (AccessMode, &[Range<usize>]),
        leaf: LeafAt<'_>,
        gone: &mut Option<Reference>,
    ) -> Result<bool, TxnError> {
        let engine = self.engine;
        let page = leaf.read.page();
        let mut stored = Vec::new();
        if !page.append_value(page.slot(leaf.position), &mut stored) || !leaf.read.is_valid() {
            return Ok(false);
        }
        drop(leaf);
        self.handles_large();
        let mut before = std::mem::take(&mut self.slot.state().before);
        before.clear();
        let read = index.append_referred(&engine.pool, key, &stored, columns, &mut before);
        let state = self.slot.state();
        state.before = before;
        // The reference is kept for `open_row`, which reads the value later.
        state.large.clear();
        state.large.extend_from_slice(&stored);
        if read? {
            engine.pool.points().at(&site::AFTER_COPY);
            return Ok(true);
        }
        // Chain numbers are never reused. If a later read finds the same reference, the row never changed, and the
        // missing value is damage.
        let reference = Reference::decode(&stored);
        if self.keeps_lock(access) || reference.is_none() || *gone == reference {
            return Err(index.dangling(&engine.pool, key).into());
        }
        *gone = reference;
        Ok(false)
    }

    /// Locks the rows of up to [`GROUP`] keys for reading and appends the parts `columns` of each row to `out`. Writes
    /// to `ends` the offset in `out` at which each row's parts end, or `None` if there is no row. One group lookup
    /// finds all keys. Each row is copied from the position that the lookup returned, without the cache of positions.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn fetch_several(
        &mut self,
        index: &Index,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        out: &mut Vec<u8>,
        ends: &mut [Option<usize>; GROUP],
    ) -> Result<(), TxnError> {
        self.intend(index, AccessMode::Read)?;
        let (mut names, mut places) = ([LockName::NONE; GROUP], [None; GROUP]);
        self.look_for(index, keys, RowPart::to_read(bytes_until(columns)), &mut names, &mut places);
        self.engine.pool.points().at(&site::BEFORE_READ);
        for (i, key) in keys.iter().enumerate() {
            let start = out.len();
            if let Some(place) = &places[i]
                && self.copy_from(index, (names[i], key), (place, AccessMode::Read), columns, out)?
            {
                ends[i] = Some(out.len());
                continue;
            }
            out.truncate(start);
            ends[i] = None;
            if self.fetch(index, key, AccessMode::Read, columns)?.is_some() {
                out.extend_from_slice(&self.slot.peek().before);
                ends[i] = Some(out.len());
            }
        }
        Ok(())
    }

    /// Locks a row at the position that a group lookup found, and appends the parts `columns` of the row to `out`.
    /// Returns false if the leaf has changed since the lookup, if there is no row, if the row is large, or if the row's
    /// lock is not free. In these cases invalid bytes may have been appended.
    #[inline]
    pub(super) fn copy_from(
        &mut self,
        index: &Index,
        (name, key): (LockName, &[u8]),
        (place, access): (&KeyHint<'_>, AccessMode),
        columns: &[Range<usize>],
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let engine = self.engine;
        let read = place.frame.read(engine.pool.latches());
        let page = read.page();
        let is_there = place.exact
            && read.version() == place.version
            && (place.proven || page.index() == index.id() && page.has_key(place.position, key));
        if !is_there || self.try_lock_row(index, name, self.key_mode(access), Prefix::MIN)? == LockAttempt::MustWait {
            return Ok(false);
        }
        engine.pool.points().at(&site::BEFORE_COPY);
        let slot = page.slot(place.position);
        let whole = append_columns(page, (slot.value_at(), slot.value_len), columns, out);
        let copied = whole && slot.flags == 0 && (read.is_valid() || is_mutant(Mutant::SkipRevalidation));
        drop(read);
        engine.pool.points().at(&site::AFTER_COPY);
        Ok(copied)
    }

    /// Locks an absent key if necessary. Returns true if the key has no row. At serializable the key then stays absent
    /// until the transaction ends, except after [`AccessMode::Put`]. Returns false if the search must be repeated.
    ///
    /// An absent key is locked by its own name, in the mode of an existing row: a transaction that inserts the key
    /// first requests the same lock. The gap around the key is not locked.
    #[inline(never)]
    fn is_absent(
        &mut self,
        index: &Index,
        name: LockName,
        access: AccessMode,
        leaf: LeafAt<'_>,
    ) -> Result<bool, TxnError> {
        if access != AccessMode::Put && self.protects_absence() {
            let mode = self.key_mode(access);
            if self.try_lock(index, name, mode, Prefix::MIN)? == LockAttempt::MustWait {
                drop(leaf);
                self.wait_for(index, name, mode, Prefix::MIN)?;
                return Ok(false);
            }
        }
        let is_absent = leaf.read.is_valid();
        if is_absent {
            self.missed(access, name, &leaf);
        }
        Ok(is_absent)
    }

    /// Caches the position of a missing row if the statement may write the row: a put then inserts the row at this
    /// position.
    #[inline]
    fn missed(&mut self, access: AccessMode, name: LockName, leaf: &LeafAt<'_>) {
        if matches!(access, AccessMode::Write | AccessMode::Put)
            && let Some(remembered) = remembered_at(&self.engine.pool, name, leaf)
        {
            self.slot.state().positions.remember(remembered);
        }
    }
}
