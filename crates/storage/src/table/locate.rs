//! Lookup of a key's position in the tree. The position is cached if the key was announced or was found missing before;
//! otherwise a descent finds it. Also `prefetch`, which announces keys.
//!
//! Positions are cached by lock name, which several keys may share. So a cached position must be checked against the
//! page: the position must contain exactly the key or, for a missing key, lie between the key's neighbours.

use super::catalog::CATALOG;
use super::index::Index;
use crate::base::error::StorageError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::Tree;
use crate::btree::group::{GROUP, KeyHint, KeyQuery, RowPart};
use crate::btree::search::LeafAt;
use crate::buffer::BufferPool;
use crate::lock::LockName;
use crate::page::PageRef;
use crate::txn::buffers::ExtraRows;
use crate::txn::engine::Engine;
use crate::txn::positions::{LeafSpot, RememberedPosition};
use crate::txn::transaction::Txn;

impl<'db> Txn<'db> {
    /// Returns the leaf position of `key`, whose lock name is `name`. The caller validates it like any optimistic
    /// position.
    #[inline]
    pub(crate) fn locate(&mut self, index: &Index, name: LockName, key: &[u8]) -> Result<LeafAt<'db>, StorageError> {
        locate(self.engine, self.slot.peek().positions.get(name), index, key)
    }

    /// Returns the position at which a leaf was read: frame, version and slot.
    #[inline]
    pub(crate) fn spot(&self, leaf: &LeafAt<'_>) -> LeafSpot {
        spot(&self.engine.pool, leaf)
    }

    /// Adds a row to the next group lookup, which caches the row's position.
    #[inline]
    pub(crate) fn prefetch_along(&mut self, row: KeyQuery<'_>) {
        self.slot.state().extra_rows.push(row);
    }

    /// Prefetches the rows of these keys, the inner pages above the rows, and the lock buckets of the keys into the
    /// processor's caches, one group of keys at a time. Caches the positions of the rows.
    pub(crate) fn prefetch<'k>(&mut self, keys: impl Iterator<Item = KeyQuery<'k>>) {
        let engine = self.engine;
        let extra_rows = std::mem::take(&mut self.slot.state().extra_rows);
        let mut group: [KeyQuery<'_>; GROUP] = [(CATALOG, &[], RowPart::to_read(0)); GROUP];
        let mut names = [LockName::NONE; GROUP];
        let mut n = 0;
        // Internal iteration: a chain of iterators runs one loop for each part, without checking at each item which
        // part is next.
        #[expect(
            clippy::map_identity,
            reason = "their keys may live longer than those of the rows that come with them"
        )]
        let keys = keys.map(|(tree, key, part)| (tree, key, part));
        extra_rows.iter().chain(keys).for_each(|wanted| {
            (group[n], names[n]) = (wanted, engine.locks.name_ahead(wanted.0.index, wanted.1));
            n += 1;
            if n == GROUP {
                self.prefetch_group(&group, &names);
                n = 0;
            }
        });
        if n > 0 {
            self.prefetch_group(&group[..n], &names);
        }
        self.return_extra_rows(extra_rows);
    }

    /// Searches for up to [`GROUP`] keys of one index in one group lookup, together with announced rows, whose
    /// positions it caches. The caller searches for each key whose place stays `None`; if group lookups are off, every
    /// place does.
    pub(super) fn look_for(
        &mut self,
        index: &Index,
        keys: &[&[u8]],
        part: RowPart,
        names: &mut [LockName; GROUP],
        places: &mut [Option<KeyHint<'db>>; GROUP],
    ) {
        if !self.finds_together {
            return;
        }
        let engine = self.engine;
        let mut group: [KeyQuery<'_>; GROUP] = [(index.tree(), &[], part); GROUP];
        for ((name, wanted), key) in names.iter_mut().zip(&mut group).zip(keys) {
            wanted.1 = key;
            *name = engine.locks.name_ahead(index.id(), key);
        }
        if self.slot.peek().extra_rows.is_empty() {
            return Tree::find_or_fetch_group(&engine.pool, &group[..keys.len()], places);
        }
        let extra_rows = std::mem::take(&mut self.slot.state().extra_rows);
        let mut n = keys.len();
        for ((name, wanted), row) in names[n..].iter_mut().zip(&mut group[n..]).zip(extra_rows.iter()) {
            *wanted = row;
            *name = engine.locks.name_ahead(row.0.index, row.1);
            n += 1;
        }
        Tree::find_or_fetch_group(&engine.pool, &group[..n], places);
        for (place, name) in places[keys.len()..n].iter_mut().zip(&names[keys.len()..n]) {
            self.remember(*name, place.take());
        }
        self.return_extra_rows(extra_rows);
    }

    /// Returns the buffers of announced rows to the transaction.
    #[inline]
    fn return_extra_rows(&mut self, mut extra_rows: ExtraRows) {
        extra_rows.clear();
        self.slot.state().extra_rows = extra_rows;
    }

    /// Looks up one group of keys and caches their positions. Not inlined: the code is long, and the L1 instruction
    /// cache is small.
    #[inline(never)]
    fn prefetch_group(&mut self, group: &[KeyQuery<'_>], names: &[LockName; GROUP]) {
        let mut found = [None; GROUP];
        Tree::find_or_fetch_group(&self.engine.pool, group, &mut found);
        for (found, name) in found[..group.len()].iter().zip(names) {
            self.remember(*name, *found);
        }
    }

    /// Caches the position of a key, if it was found.
    #[inline]
    fn remember(&mut self, name: LockName, found: Option<KeyHint<'_>>) {
        if let Some(hint) = found {
            self.slot.state().positions.remember(hint.remembered(&self.engine.pool, name));
        }
    }
}

impl KeyHint<'_> {
    /// Returns the position as a cache entry for a key with this lock name.
    #[inline]
    pub(super) fn remembered(&self, pool: &BufferPool, name: LockName) -> RememberedPosition {
        RememberedPosition { name, spot: self.spot(pool), leaf: self.leaf, exact: self.exact }
    }

    /// Returns the position at which the leaf was read: frame, version and slot.
    #[inline]
    pub(super) fn spot(&self, pool: &BufferPool) -> LeafSpot {
        LeafSpot { frame: pool.index_of(self.frame), version: self.version, position: self.position as u16 }
    }
}

/// Returns the position at which a leaf was read: frame, version and slot.
#[inline]
pub(super) fn spot(pool: &BufferPool, leaf: &LeafAt<'_>) -> LeafSpot {
    LeafSpot { frame: pool.index_of(leaf.read.frame()), version: leaf.read.version(), position: leaf.position as u16 }
}

/// Returns the position as a cache entry for a key with this lock name; `None` if the leaf has changed since.
#[inline]
pub(super) fn remembered_at(pool: &BufferPool, name: LockName, leaf: &LeafAt<'_>) -> Option<RememberedPosition> {
    let remembered =
        RememberedPosition { name, spot: spot(pool, leaf), leaf: leaf.read.frame().page_id(), exact: leaf.exact };
    // The page's number must be read before the validation: afterwards the frame may contain another page.
    leaf.read.is_valid().then_some(remembered)
}

/// Returns the position of `key`, from a cached one if possible. The caller validates it like any optimistic position.
#[inline]
pub(super) fn locate<'db>(
    engine: &'db Engine,
    remembered: Option<RememberedPosition>,
    index: &Index,
    key: &[u8],
) -> Result<LeafAt<'db>, StorageError> {
    if let Some(remembered) = remembered {
        if let Some(leaf) = unchanged(engine, &remembered)
            && is_place(leaf.read.page(), &remembered, index, key)
        {
            return Ok(leaf);
        }
        return locate_again(engine, remembered, index, key);
    }
    index.tree().find(&engine.pool, key)
}

/// Returns the leaf of a cached position, if the leaf has not changed since the position was cached.
#[inline]
pub(super) fn unchanged<'db>(engine: &'db Engine, remembered: &RememberedPosition) -> Option<LeafAt<'db>> {
    let LeafSpot { frame, version, position } = remembered.spot;
    let read = engine.pool.frame(frame).read(engine.pool.latches());
    (read.version() == version).then_some(LeafAt { read, position: usize::from(position), exact: remembered.exact })
}

/// Searches for `key` after its cached position became invalid: first in the same leaf, then by a descent.
#[cold]
fn locate_again<'db>(
    engine: &'db Engine,
    remembered: RememberedPosition,
    index: &Index,
    key: &[u8],
) -> Result<LeafAt<'db>, StorageError> {
    match index.tree().find_in(&engine.pool, (remembered.spot.frame, remembered.leaf), key) {
        Some(leaf) => Ok(leaf),
        None => index.tree().find(&engine.pool, key),
    }
}

/// Returns true if a cached position, in a leaf that has not changed since, is the position of `key`.
#[inline]
pub(super) fn is_place(page: PageRef<'_>, remembered: &RememberedPosition, index: &Index, key: &[u8]) -> bool {
    let position = usize::from(remembered.spot.position);
    let has = || if remembered.exact { page.has_key(position, key) } else { page.lacks_key(position, key) };
    page.index() == index.id() && has() || is_mutant(Mutant::TrustLockNames)
}
