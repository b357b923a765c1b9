//! Chains of large values that a transaction has written or replaced. The list is used to find the chains that are
//! unreferenced after the transaction's end.

use crate::base::ids::Lsn;
use crate::btree::Tree;
use crate::btree::overflow::Chain;

/// A chain that a transaction has written or replaced, and its state.
#[derive(Clone, Copy, Debug)]
struct ChainRecord {
    tree: Tree,
    chain: Chain,
    chunks: usize,
    /// LSN of the transaction's newest record before the records about the chain.
    after: Lsn,
    state: ChainState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainState {
    /// The chain was written: it is unreferenced if the transaction is rolled back.
    Written,
    /// The value of the chain was replaced or deleted: the chain is unreferenced if the transaction commits.
    Replaced,
    /// The chain was written and the write was undone.
    Undone,
}

/// The list of chains of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    records: Vec<ChainRecord>,
}

impl Chains {
    /// Records a chain that is about to be written after record `after`. [`Chains::grows`] sets its length.
    pub(crate) fn written(&mut self, tree: Tree, chain: Chain, after: Lsn) {
        self.records.push(ChainRecord { tree, chain, chunks: 0, after, state: ChainState::Written });
    }

    /// Sets the number of chunks of the chain that was recorded last.
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

    /// Removes all chains. Returns the chains that are unreferenced after the transaction's end, with their numbers of
    /// chunks.
    pub(super) fn unwanted(&mut self, committed: bool) -> impl Iterator<Item = (Tree, Chain, usize)> {
        let state = if committed { ChainState::Replaced } else { ChainState::Written };
        let records = std::mem::take(&mut self.records).into_iter();
        records
            .filter(move |record| record.state == ChainState::Undone || record.state == state)
            .map(|record| (record.tree, record.chain, record.chunks))
    }
}
