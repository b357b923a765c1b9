//! Reading one row by its key.

use std::ops::Range;

use super::columns::{WHOLE, append_columns};
use super::index::{Index, LockAttempt, Want};
use crate::base::error::TxnError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sites::site;
use crate::btree::search::LeafAt;
use crate::lock::{LockName, Prefix, RecordMode};
use crate::txn::context::{LeafSpot, Memo};
use crate::txn::core::Txn;

impl Txn<'_> {
    /// Locks and reads the row of `key`; `f` sees its bytes. An absent key stays absent until the end of the
    /// transaction (serializable).
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub(crate) fn read<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        want: Want,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        Ok(self.fetch(index, key, want, WHOLE)?.map(|_| f(&self.claim.peek().before)))
    }

    /// Locks the row of `key`, copies these parts of it to `before` and returns its place.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        index: &Index,
        key: &[u8],
        want: Want,
        columns: &[Range<usize>],
    ) -> Result<Option<LeafSpot>, TxnError> {
        let names = &self.core.locks.names;
        self.intend(index, want)?;
        let name = names.of(index.tree.index, key);
        let mode = self.key_mode(want);
        if self.core.pool.points().in_descents() {
            self.core.locks.prefetch(name);
        }
        self.core.pool.points().at(&site::BEFORE_READ);
        loop {
            let leaf = self.locate(index, name, key)?;
            if !leaf.exact {
                let page = leaf.read.page();
                if !self.locks_gaps() {
                    if leaf.read.is_valid() {
                        self.missed(want, name, &leaf);
                        return Ok(None);
                    }
                    continue;
                }
                let cx = self.claim.context();
                let next = index.name_at(names, page, leaf.position, &mut cx.key);
                if !leaf.read.is_valid() {
                    continue;
                }
                let low = Prefix::of(key);
                if self.try_lock(index, next, RecordMode::GAP, low)? == LockAttempt::MustWait {
                    drop(leaf);
                    self.wait_for(index, next, RecordMode::GAP, low)?;
                } else if leaf.read.is_valid() {
                    self.missed(want, name, &leaf);
                    return Ok(None);
                }
                continue;
            }
            if self.try_lock(index, name, mode, Prefix::MIN)? == LockAttempt::MustWait {
                drop(leaf);
                self.wait_for(index, name, mode, Prefix::MIN)?;
                continue;
            }
            self.core.pool.points().at(&site::BEFORE_COPY);
            let page = leaf.read.page();
            let slot = page.slot(leaf.position);
            let cx = self.claim.context();
            cx.before.clear();
            let whole = append_columns(page, (slot.value_at(), slot.value_len), columns, &mut cx.before);
            if !(leaf.read.is_valid() || is_mutant(Mutant::SkipRevalidation)) || !whole {
                continue;
            }
            if slot.is_ghost() {
                self.missed(want, name, &leaf);
                return Ok(None);
            }
            let spot = self.spot(&leaf);
            drop(leaf);
            self.core.pool.points().at(&site::AFTER_COPY);
            return Ok(Some(spot));
        }
    }

    /// Remembers where a row would lie that was to be written: a put goes on with inserting it there.
    #[inline]
    fn missed(&mut self, want: Want, name: LockName, leaf: &LeafAt<'_>) {
        if want == Want::Write {
            let memo = Memo { name, spot: self.spot(leaf), exact: leaf.exact };
            self.claim.context().remember(memo);
        }
    }
}
