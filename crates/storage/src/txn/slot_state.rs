//! The private state of a running transaction: its records, and buffers that are used again and again.

use super::buffers::{Along, Encoded, RowBatch};
use super::chains::Chains;
use super::ghosts::GhostRuns;
use super::memos::Memos;
use crate::base::ids::{Lsn, SlotId, TxnId};
use crate::lock::LockOwner;
use crate::log::RecordBuf;

/// What a slot keeps from one transaction to the next.
#[derive(Debug)]
pub(crate) struct SlotState {
    pub(crate) id: SlotId,
    pub(crate) owner: LockOwner,
    /// Number of transactions begun in this slot.
    pub(crate) sequence: u64,
    /// The number of the running transaction, once it has written something.
    pub(crate) txn: TxnId,
    /// The newest record of the running transaction that stands; zero if there is none.
    pub(crate) last: Lsn,
    pub(crate) rec: RecordBuf,
    /// A key being built: a secondary entry's, a scan's.
    pub(crate) key: Vec<u8>,
    /// The key of an index entry that is being inserted.
    pub(crate) entry: Vec<u8>,
    /// A key and a row of a typed statement, encoded.
    pub(crate) encoded: Encoded,
    /// The row before the change.
    pub(crate) before: Vec<u8>,
    /// The row after the change.
    pub(crate) after: Vec<u8>,
    /// Rows of a scan, copied out of a leaf.
    pub(crate) batch: RowBatch,
    /// The position of a scan, and where it goes on.
    pub(crate) cursors: (Vec<u8>, Vec<u8>),
    /// Parts of several rows, before and after.
    pub(crate) heads: Vec<u8>,
    /// A large value of a scan's row.
    pub(crate) large: Vec<u8>,
    /// Chains of large values that it has written or replaced.
    pub(crate) chains: Chains,
    /// Whether there are any, or a buffer may hold a large value.
    pub(crate) handled_large: bool,
    /// Where its scans can skip ghosts.
    pub(crate) ghosts: GhostRuns,
    /// What the next group of keys takes along.
    pub(crate) along: Along,
    /// Where announced keys were found.
    pub(crate) memos: Memos,
}

impl SlotState {
    pub(crate) fn new(owner: LockOwner) -> SlotState {
        SlotState {
            id: owner.slot(),
            owner,
            sequence: 0,
            txn: TxnId(0),
            last: Lsn::ZERO,
            rec: RecordBuf::new(),
            key: Vec::new(),
            entry: Vec::new(),
            encoded: Encoded::default(),
            before: Vec::new(),
            after: Vec::new(),
            batch: RowBatch::default(),
            cursors: Default::default(),
            heads: Vec::new(),
            large: Vec::new(),
            chains: Chains::default(),
            handled_large: false,
            ghosts: GhostRuns::default(),
            along: Along::default(),
            memos: Memos::default(),
        }
    }
}
