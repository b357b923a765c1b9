//! Finding a key's place: remembered, or by a descent. And `prefetch`, which fills the memory.

use super::catalog::CATALOG;
use super::index::Index;
use crate::base::error::StorageError;
use crate::btree::Tree;
use crate::btree::search::{GROUP, LeafAt};
use crate::lock::LockName;
use crate::txn::context::Memo;
use crate::txn::core::Txn;

impl<'db> Txn<'db> {
    /// The place of `key`, whose lock name is `name`. To be validated by the caller as any optimistic position.
    #[inline]
    pub(crate) fn locate(&mut self, index: &Index, name: LockName, key: &[u8]) -> Result<LeafAt<'db>, StorageError> {
        let core = self.core;
        if let Some(memo) = self.claim.peek().memo(name) {
            let read = core.pool.frame(memo.frame).read(core.latches);
            if read.version() == memo.version {
                return Ok(LeafAt { read, position: usize::from(memo.position), exact: memo.exact });
            }
        }
        index.tree.find(&core.pool, key)
    }

    /// Remembers a validated place for the next statement on the same key.
    #[inline]
    pub(crate) fn remember(&mut self, name: LockName, leaf: &LeafAt<'db>) {
        let frame = self.core.pool.index_of(leaf.read.frame());
        self.claim.context().remember(Memo {
            name,
            frame,
            version: leaf.read.version(),
            position: leaf.position as u16,
            exact: leaf.exact,
        });
    }

    /// Brings the rows of these keys, the pages above them and their lock buckets into the processor's
    /// caches, many at a time, and remembers the places.
    pub(crate) fn prefetch<'k>(&mut self, index: &Index, keys: impl Iterator<Item = &'k [u8]>, row_bytes: usize) {
        self.prefetch_places(keys.map(|key| (index.tree, key)), row_bytes.max(1));
    }

    /// As [`Txn::prefetch`] for keys of several trees; with `row_bytes` 0 also for places where rows will be put.
    pub(crate) fn prefetch_places<'k>(&mut self, keys: impl Iterator<Item = (Tree, &'k [u8])>, row_bytes: usize) {
        let core = self.core;
        let mut group: [(Tree, &[u8]); GROUP] = [(CATALOG, &[]); GROUP];
        let mut names = [LockName::NONE; GROUP];
        let mut n = 0;
        let mut keys = keys.peekable();
        while let Some((tree, key)) = keys.next() {
            let name = LockName::new(tree.index, key);
            core.locks.prefetch(name);
            (group[n], names[n]) = ((tree, key), name);
            n += 1;
            if n < GROUP && keys.peek().is_some() {
                continue;
            }
            let cx = self.claim.context();
            Tree::find_group(&core.pool, &group[..n], row_bytes, |i, found| {
                if row_bytes == 0 && !found.exact {
                    // A key made up to find where a new one will go: nobody will ask for it.
                    return;
                }
                cx.remember(Memo {
                    name: names[i],
                    frame: core.pool.index_of(found.frame),
                    version: found.version,
                    position: found.position as u16,
                    exact: found.exact,
                });
            });
            n = 0;
        }
    }
}
