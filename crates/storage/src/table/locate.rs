//! Finding a key's place: remembered since the key was announced or missed, or by a descent. And `prefetch`, which announces keys.
//!
//! Places are remembered by lock name, which several keys may share. So a remembered place must be checked: it counts
//! if the page has exactly the key there, or, for a key that was missing, if its neighbours leave no other place for
//! it.

use super::catalog::CATALOG;
use super::index::Index;
use crate::base::error::StorageError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::Tree;
use crate::btree::group::{GROUP, KeyHint, KeyQuery};
use crate::btree::search::LeafAt;
use crate::buffer::BufferPool;
use crate::lock::LockName;
use crate::page::PageRef;
use crate::txn::buffers::Along;
use crate::txn::engine::Engine;
use crate::txn::memos::{LeafSpot, Memo};
use crate::txn::transaction::Txn;

impl<'db> Txn<'db> {
    /// The place of `key`, whose lock name is `name`. To be validated by the caller as any optimistic position.
    #[inline]
    pub(crate) fn locate(&mut self, index: &Index, name: LockName, key: &[u8]) -> Result<LeafAt<'db>, StorageError> {
        locate(self.engine, self.slot.peek().memos.get(name), index, key)
    }

    /// Where a leaf was read: its frame and version.
    #[inline]
    pub(crate) fn spot(&self, leaf: &LeafAt<'_>) -> LeafSpot {
        spot(&self.engine.pool, leaf)
    }

    /// Has a row looked for with the next group of keys, and its place remembered.
    #[inline]
    pub(crate) fn prefetch_along(&mut self, row: KeyQuery<'_>) {
        self.slot.state().along.push(row);
    }

    /// Brings the rows of these keys, the pages above them and their lock buckets into the processor's
    /// caches, many at a time, and remembers the places.
    pub(crate) fn prefetch<'k>(&mut self, keys: impl Iterator<Item = KeyQuery<'k>>) {
        let engine = self.engine;
        let along = std::mem::take(&mut self.slot.state().along);
        let mut group: [KeyQuery<'_>; GROUP] = [(CATALOG, &[], 0); GROUP];
        let mut names = [LockName::NONE; GROUP];
        let mut n = 0;
        // The iterator runs the loop: one that is composed of others runs one for each, without asking where it is.
        #[expect(clippy::map_identity, reason = "their keys may live longer than those of the rows that come along")]
        let keys = keys.map(|(tree, key, bytes)| (tree, key, bytes));
        along.iter().chain(keys).for_each(|wanted| {
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
        self.give_along_back(along);
    }

    /// Looks for up to [`GROUP`] keys of one index together, and for the rows that come along with them, whose places it
    /// remembers. What it does not find, which is all if the transaction finds rows alone, the caller finds by itself.
    pub(super) fn look_for(
        &mut self,
        index: &Index,
        keys: &[&[u8]],
        bytes: usize,
        names: &mut [LockName; GROUP],
        places: &mut [Option<KeyHint<'db>>; GROUP],
    ) {
        if !self.finds_together {
            return;
        }
        let engine = self.engine;
        let mut group: [KeyQuery<'_>; GROUP] = [(index.tree(), &[], bytes); GROUP];
        for ((name, wanted), key) in names.iter_mut().zip(&mut group).zip(keys) {
            wanted.1 = key;
            *name = engine.locks.name_ahead(index.id(), key);
        }
        if self.slot.peek().along.is_empty() {
            return Tree::find_or_fetch_group(&engine.pool, &group[..keys.len()], places);
        }
        let along = std::mem::take(&mut self.slot.state().along);
        let mut n = keys.len();
        for ((name, wanted), row) in names[n..].iter_mut().zip(&mut group[n..]).zip(along.iter()) {
            *wanted = row;
            *name = engine.locks.name_ahead(row.0.index, row.1);
            n += 1;
        }
        Tree::find_or_fetch_group(&engine.pool, &group[..n], places);
        for (place, name) in places[keys.len()..n].iter_mut().zip(&names[keys.len()..n]) {
            self.remember(*name, place.take());
        }
        self.give_along_back(along);
    }

    /// Gives the buffers back of rows that have come along.
    #[inline]
    fn give_along_back(&mut self, mut along: Along) {
        along.clear();
        self.slot.state().along = along;
    }

    /// Shared by all callers and not inlined: it is long, and the L1 instruction cache is small.
    #[inline(never)]
    fn prefetch_group(&mut self, group: &[KeyQuery<'_>], names: &[LockName; GROUP]) {
        let mut found = [None; GROUP];
        Tree::find_or_fetch_group(&self.engine.pool, group, &mut found);
        for (found, name) in found[..group.len()].iter().zip(names) {
            self.remember(*name, *found);
        }
    }

    /// Remembers where a key was found, if it was.
    #[inline]
    fn remember(&mut self, name: LockName, found: Option<KeyHint<'_>>) {
        if let Some(hint) = found {
            self.slot.state().memos.remember(hint.memo(&self.engine.pool, name));
        }
    }
}

impl KeyHint<'_> {
    /// The place as it is remembered for a key of this name.
    #[inline]
    pub(super) fn memo(&self, pool: &BufferPool, name: LockName) -> Memo {
        Memo { name, spot: self.spot(pool), leaf: self.leaf, exact: self.exact }
    }

    /// The slot of the leaf.
    #[inline]
    pub(super) fn spot(&self, pool: &BufferPool) -> LeafSpot {
        LeafSpot { frame: pool.index_of(self.frame), version: self.version, position: self.position as u16 }
    }
}

/// Where a leaf was read: its frame and version.
#[inline]
pub(super) fn spot(pool: &BufferPool, leaf: &LeafAt<'_>) -> LeafSpot {
    LeafSpot { frame: pool.index_of(leaf.read.frame()), version: leaf.read.version(), position: leaf.position as u16 }
}

/// The place as it is remembered for a key of this name; none if the leaf has changed meanwhile.
#[inline]
pub(super) fn memo_at(pool: &BufferPool, name: LockName, leaf: &LeafAt<'_>) -> Option<Memo> {
    let memo = Memo { name, spot: spot(pool, leaf), leaf: leaf.read.frame().page_id(), exact: leaf.exact };
    // After the page's number was read: by then the frame may hold another one.
    leaf.read.is_valid().then_some(memo)
}

/// The place of `key`, which was perhaps found before. To be validated by the caller as any optimistic position.
#[inline]
pub(super) fn locate<'db>(
    engine: &'db Engine,
    memo: Option<Memo>,
    index: &Index,
    key: &[u8],
) -> Result<LeafAt<'db>, StorageError> {
    if let Some(memo) = memo {
        if let Some(leaf) = unchanged(engine, &memo)
            && is_place(leaf.read.page(), &memo, index, key)
        {
            return Ok(leaf);
        }
        return locate_again(engine, memo, index, key);
    }
    index.tree().find(&engine.pool, key)
}

/// The leaf of a remembered place, if it has not changed since.
#[inline]
pub(super) fn unchanged<'db>(engine: &'db Engine, memo: &Memo) -> Option<LeafAt<'db>> {
    let LeafSpot { frame, version, position } = memo.spot;
    let read = engine.pool.frame(frame).read(engine.pool.latches());
    (read.version() == version).then_some(LeafAt { read, position: usize::from(position), exact: memo.exact })
}

/// The place of `key`, which is not where it was: perhaps elsewhere in the same leaf.
#[cold]
fn locate_again<'db>(engine: &'db Engine, memo: Memo, index: &Index, key: &[u8]) -> Result<LeafAt<'db>, StorageError> {
    match index.tree().find_in(&engine.pool, (memo.spot.frame, memo.leaf), key) {
        Some(leaf) => Ok(leaf),
        None => index.tree().find(&engine.pool, key),
    }
}

/// Whether a remembered place, in a leaf that has not changed since, is that of `key`.
#[inline]
pub(super) fn is_place(page: PageRef<'_>, memo: &Memo, index: &Index, key: &[u8]) -> bool {
    let position = usize::from(memo.spot.position);
    let has = || if memo.exact { page.has_key(position, key) } else { page.lacks_key(position, key) };
    page.index() == index.id() && has() || is_mutant(Mutant::TrustLockNames)
}
