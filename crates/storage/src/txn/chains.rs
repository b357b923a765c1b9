//! Chains of large values that a transaction has written or replaced, to find those that are unreferenced after its end.

use crate::base::ids::Lsn;
use crate::btree::Tree;
use crate::btree::overflow::Chain;

/// A chain that a transaction has written or replaced.
#[derive(Clone, Copy, Debug)]
struct ChainRecord {
    tree: Tree,
    chain: Chain,
    chunks: usize,
    /// The transaction's newest record before the records of the chain.
    after: Lsn,
    state: ChainState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainState {
    /// Written: unreferenced if the transaction is rolled back.
    Written,
    /// Replaced or deleted: unreferenced if the transaction commits.
    Replaced,
    /// Written and undone.
    Undone,
}

/// The chains of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    records: Vec<ChainRecord>,
}

impl Chains {
    /// Records a chain that is about to be written after record `after`. [`Chains::grows`] sets its length.
    pub(crate) fn written(&mut self, tree: Tree, chain: Chain, after: Lsn) {
        self.records.push(ChainRecord { tree, chain, chunks: 0, after, state: ChainState::Written });
    }

    /// Sets the number of chunks of the chain recorded last.
    pub(crate) fn grows(&mut self, chunks: usize) {
        if let Some(last) = self.records.last_mut() {
            last.chunks = chunks;
        }
    }

    /// Records a chain that is about to be marked deleted after record `after`.
    pub(crate) fn replaced(&mut self, tree: Tree, chain: Chain, chunks: usize, after: Lsn) {
        self.records.push(ChainRecord { tree, chain, chunks, after, state: ChainState::Replaced });
    }

    /// Records that all changes after record `savepoint` have been undone.
    pub(super) fn undone(&mut self, savepoint: Lsn) {
        self.records.retain(|record| record.after < savepoint || record.state != ChainState::Replaced);
        for record in &mut self.records {
            if record.after >= savepoint {
                record.state = ChainState::Undone;
            }
        }
    }

    /// Removes all chains, and returns those that are unreferenced after the transaction's end, with their numbers of
    /// chunks.
    pub(super) fn unwanted(&mut self, committed: bool) -> impl Iterator<Item = (Tree, Chain, usize)> {
        let state = if committed { ChainState::Replaced } else { ChainState::Written };
        let records = std::mem::take(&mut self.records).into_iter();
        records
            .filter(move |record| record.state == ChainState::Undone || record.state == state)
            .map(|record| (record.tree, record.chain, record.chunks))
    }
}
