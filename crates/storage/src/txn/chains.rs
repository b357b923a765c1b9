//! Chains of large values that a transaction has written or replaced, to find those that are unreferenced after its end.

use crate::base::ids::Lsn;
use crate::btree::Tree;
use crate::btree::overflow::Chain;

/// A chain that a transaction has written or replaced.
#[derive(Clone, Copy, Debug)]
struct Noted {
    tree: Tree,
    chain: Chain,
    chunks: usize,
    /// The transaction's newest record before the records of the chain.
    after: Lsn,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Written: unreferenced if the transaction is rolled back.
    Written,
    /// Replaced or deleted: unreferenced if the transaction commits.
    Replaced,
    /// Written and undone.
    Gone,
}

/// The chains of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    noted: Vec<Noted>,
}

impl Chains {
    /// Records a chain that is about to be written after record `after`. [`Chains::grows`] sets its length.
    pub(crate) fn written(&mut self, tree: Tree, chain: Chain, after: Lsn) {
        self.noted.push(Noted { tree, chain, chunks: 0, after, fate: Fate::Written });
    }

    /// Sets the number of chunks of the chain recorded last.
    pub(crate) fn grows(&mut self, chunks: usize) {
        if let Some(last) = self.noted.last_mut() {
            last.chunks = chunks;
        }
    }

    /// Records a chain that is about to be marked deleted after record `after`.
    pub(crate) fn replaced(&mut self, tree: Tree, chain: Chain, chunks: usize, after: Lsn) {
        self.noted.push(Noted { tree, chain, chunks, after, fate: Fate::Replaced });
    }

    /// Records that all changes after record `savepoint` have been undone.
    pub(super) fn undone(&mut self, savepoint: Lsn) {
        self.noted.retain(|noted| noted.after < savepoint || noted.fate != Fate::Replaced);
        for noted in &mut self.noted {
            if noted.after >= savepoint {
                noted.fate = Fate::Gone;
            }
        }
    }

    /// Removes all chains, and returns those that are unreferenced after the transaction's end, with their numbers of
    /// chunks.
    pub(super) fn unwanted(&mut self, committed: bool) -> impl Iterator<Item = (Tree, Chain, usize)> {
        let fate = if committed { Fate::Replaced } else { Fate::Written };
        let noted = std::mem::take(&mut self.noted).into_iter();
        noted.filter(move |noted| noted.fate == Fate::Gone || noted.fate == fate).map(|n| (n.tree, n.chain, n.chunks))
    }
}
