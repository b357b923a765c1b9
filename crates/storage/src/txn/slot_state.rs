//! Private state of a running transaction: its record numbers, and reusable buffers.

use super::buffers::{EncodedBuffers, ExtraRows, RowBatch};
use super::chains::Chains;
use super::ghosts::GhostRuns;
use super::positions::PositionCache;
use crate::base::ids::{Lsn, SlotId, TxnId};
use crate::latch::Retreat;
use crate::lock::LockOwner;
use crate::log::RecordBuf;

/// State that a slot keeps from one transaction to the next.
#[derive(Debug)]
pub(crate) struct SlotState {
    pub(crate) id: SlotId,
    pub(crate) owner: LockOwner,
    /// Number of transactions begun in this slot.
    pub(crate) sequence: u64,
    /// Number of the running transaction, assigned at its first record.
    pub(crate) txn: TxnId,
    /// LSN of the running transaction's newest record that is in effect (not undone). Zero if there is no such record.
    pub(crate) last: Lsn,
    pub(crate) rec: RecordBuf,
    /// Key under construction: of a secondary index entry or of a scan.
    pub(crate) key: Vec<u8>,
    /// Key of an index entry that is being inserted.
    pub(crate) entry: Vec<u8>,
    /// Encoded key and row of a typed statement.
    pub(crate) encoded: EncodedBuffers,
    /// Row before the change.
    pub(crate) before: Vec<u8>,
    /// Row after the change.
    pub(crate) after: Vec<u8>,
    /// Rows of a scan, copied out of a leaf.
    pub(crate) batch: RowBatch,
    /// Key at which a scan is, and key at which the scan continues.
    pub(crate) cursors: (Vec<u8>, Vec<u8>),
    /// Parts of several rows, before and after a change.
    pub(crate) heads: Vec<u8>,
    /// Large value of a scanned row.
    pub(crate) large: Vec<u8>,
    /// Chains of large values that the transaction has written or replaced.
    pub(crate) chains: Chains,
    /// True if `chains` is not empty, or if a buffer may hold a large value.
    pub(crate) handled_large: bool,
    /// Runs of ghosts that the transaction's scans can skip.
    pub(crate) ghosts: GhostRuns,
    /// Additional rows to search together with the next group of keys.
    pub(crate) extra_rows: ExtraRows,
    /// Remembered positions of announced keys.
    pub(crate) positions: PositionCache,
    /// Pauses of this slot's writer after the loss of a leaf.
    pub(crate) retreat: Retreat,
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
            encoded: EncodedBuffers::default(),
            before: Vec::new(),
            after: Vec::new(),
            batch: RowBatch::default(),
            cursors: Default::default(),
            heads: Vec::new(),
            large: Vec::new(),
            chains: Chains::default(),
            handled_large: false,
            ghosts: GhostRuns::default(),
            extra_rows: ExtraRows::default(),
            positions: PositionCache::default(),
            retreat: Retreat::default(),
        }
    }
}
