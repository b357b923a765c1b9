//! Chains of large values that a transaction has written or replaced: which of them nothing refers to once it has ended.

use crate::base::ids::Lsn;
use crate::btree::Tree;
use crate::btree::overflow::Chain;

/// A chain of a transaction.
#[derive(Clone, Copy, Debug)]
struct Noted {
    tree: Tree,
    chain: Chain,
    chunks: usize,
    /// The transaction's newest record before those of the chain.
    after: Lsn,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Written: nothing refers to it if the transaction is rolled back.
    Written,
    /// Replaced or deleted: nothing refers to it if the transaction commits.
    Replaced,
    /// Written and rolled back.
    Gone,
}

/// The chains of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    noted: Vec<Noted>,
}

impl Chains {
    /// Notes a chain that is about to be written, behind record `after`; its length becomes known by
    /// [`Chains::grows`].
    pub(crate) fn written(&mut self, tree: Tree, chain: Chain, after: Lsn) {
        self.noted.push(Noted { tree, chain, chunks: 0, after, fate: Fate::Written });
    }

    /// Notes that the chain begun last has so many chunks now.
    pub(crate) fn grows(&mut self, chunks: usize) {
        if let Some(last) = self.noted.last_mut() {
            last.chunks = chunks;
        }
    }

    /// Notes a chain that is about to be marked deleted, behind record `after`.
    pub(crate) fn replaced(&mut self, tree: Tree, chain: Chain, chunks: usize, after: Lsn) {
        self.noted.push(Noted { tree, chain, chunks, after, fate: Fate::Replaced });
    }

    /// Notes that what came behind record `savepoint` has been undone.
    pub(super) fn undone(&mut self, savepoint: Lsn) {
        self.noted.retain(|noted| noted.after < savepoint || noted.fate != Fate::Replaced);
        for noted in &mut self.noted {
            if noted.after >= savepoint {
                noted.fate = Fate::Gone;
            }
        }
    }

    /// The chains that nothing refers to once the transaction has ended, each with its chunks; all are forgotten.
    pub(super) fn unwanted(&mut self, committed: bool) -> impl Iterator<Item = (Tree, Chain, usize)> {
        let fate = if committed { Fate::Replaced } else { Fate::Written };
        let noted = std::mem::take(&mut self.noted).into_iter();
        noted.filter(move |noted| noted.fate == Fate::Gone || noted.fate == fate).map(|n| (n.tree, n.chain, n.chunks))
    }
}
