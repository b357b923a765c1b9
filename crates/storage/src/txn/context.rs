//! The private state of a running transaction: its records, and buffers that are used again and again.

use std::ops::ControlFlow;

use super::ghosts::GhostRuns;
use crate::base::ids::{Lsn, SlotId, TxnId};
use crate::btree::Tree;
use crate::btree::group::KeyQuery;
use crate::latch::Version;
use crate::lock::{LockName, LockOwner};
use crate::log::RecordBuf;

/// Remembered positions, where announced keys were found: so many sets of so many.
const MEMOS: usize = 16;
const WAYS: usize = 4;

/// A slot of a leaf, valid as long as the frame's version stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafSpot {
    pub(crate) frame: u32,
    pub(crate) version: Version,
    pub(crate) position: u16,
}

impl LeafSpot {
    /// No slot of any leaf.
    pub(crate) const NONE: LeafSpot = LeafSpot { frame: 0, version: Version::NEVER, position: 0 };
}

/// Where a key of this name was found; several keys may share the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memo {
    pub(crate) name: LockName,
    pub(crate) spot: LeafSpot,
    /// Whether the key existed; otherwise the spot is where it would lie.
    pub(crate) exact: bool,
}

impl Memo {
    /// No key's.
    pub(crate) const NONE: Memo = Memo { name: LockName::NONE, spot: LeafSpot::NONE, exact: false };
}

/// Positions whose names have the same low bits.
#[derive(Clone, Copy, Debug)]
struct MemoSet {
    places: [Memo; WAYS],
    /// The place, modulo their number, that is overwritten next: the oldest.
    next: u8,
}

/// Buffers for what codecs write. They stay with the slot, so that only its first transactions allocate.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) key: Vec<u8>,
    pub(crate) row: Vec<u8>,
    pub(crate) keys: EncodedKeys,
}

/// Encoded keys, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct EncodedKeys {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl EncodedKeys {
    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the key that `encode` appends.
    #[inline]
    pub(crate) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// The keys, in the order in which they were added.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

/// Most rows that come along with a group.
const ALONG: usize = 4;

/// Rows that are to be looked for with the next group of keys, whichever that is.
#[derive(Debug, Default)]
pub(crate) struct Along {
    keys: EncodedKeys,
    /// Of each its tree, and how many bytes of it are wanted.
    rows: Vec<(Tree, usize)>,
}

impl Along {
    /// Adds a row. It is a hint: what is too much is left out.
    #[inline]
    pub(crate) fn push(&mut self, (tree, key, bytes): KeyQuery<'_>) {
        if self.rows.len() < ALONG {
            self.keys.push(|out| out.extend_from_slice(key));
            self.rows.push((tree, bytes));
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Forgets all.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
    }

    /// The rows.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = KeyQuery<'_>> {
        self.keys.iter().zip(&self.rows).map(|(key, (tree, bytes))| (*tree, key, *bytes))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) slot: SlotId,
    pub(crate) owner: LockOwner,
    /// Number of transactions begun in this slot.
    pub(crate) sequence: u64,
    /// The number of the running transaction, once it has written something.
    pub(crate) txn: TxnId,
    /// The newest record of the running transaction; zero if it has written nothing.
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
    /// Where its scans can skip ghosts.
    pub(crate) ghosts: GhostRuns,
    /// What the next group of keys takes along.
    pub(crate) along: Along,
    memos: Box<[MemoSet; MEMOS]>,
}

impl Context {
    pub(crate) fn new(owner: LockOwner) -> Context {
        Context {
            slot: owner.slot(),
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
            ghosts: GhostRuns::default(),
            along: Along::default(),
            memos: Box::new([MemoSet { places: [Memo::NONE; WAYS], next: 0 }; MEMOS]),
        }
    }

    /// Where a key of this name was found last, if remembered.
    #[inline]
    pub(crate) fn memo(&self, name: LockName) -> Option<Memo> {
        self.memos[name.low_bits() % MEMOS].places.iter().find(|memo| memo.name == name).copied()
    }

    /// Remembers where a key was found.
    #[inline]
    pub(crate) fn remember(&mut self, memo: Memo) {
        // Several places per set, so that keys of a group seldom evict each other; the oldest goes.
        let MemoSet { places, next } = &mut self.memos[memo.name.low_bits() % MEMOS];
        let at = places.iter().position(|place| place.name == memo.name).unwrap_or_else(|| {
            let oldest = usize::from(*next) % WAYS;
            *next = next.wrapping_add(1);
            oldest
        });
        places[at] = memo;
    }
}

/// Rows copied out of a leaf, one after the other.
#[derive(Debug, Default)]
pub(crate) struct RowBatch {
    bytes: Vec<u8>,
    rows: Vec<BatchRow>,
    /// Ghosts that the scan has visited so far.
    pub(crate) ghosts: usize,
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRow {
    key: (u32, u32),
    value: (u32, u32),
    /// Slot in the leaf.
    pub(crate) position: u16,
}

impl RowBatch {
    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    /// Forgets the rows after the first `n`.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.rows.truncate(n);
    }

    /// Adds a row by letting `fill` append its key and its value; that returns the key's length, or none if it could
    /// not, and then so does this return false.
    #[inline]
    pub(crate) fn add(&mut self, position: usize, fill: impl FnOnce(&mut Vec<u8>) -> Option<usize>) -> bool {
        let start = self.bytes.len() as u32;
        let Some(key_len) = fill(&mut self.bytes) else { return false };
        let (middle, end) = (start + key_len as u32, self.bytes.len() as u32);
        self.rows.push(BatchRow { key: (start, middle), value: (middle, end), position: position as u16 });
        true
    }

    /// Shows the rows to `visit` until it breaks.
    #[inline]
    pub(crate) fn visit(&self, visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        (0..self.len()).try_for_each(|i| visit(self.key(i), self.value(i)))
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Row `i`.
    #[inline]
    pub(crate) fn row(&self, i: usize) -> BatchRow {
        self.rows[i]
    }

    /// Key of row `i`.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let (from, to) = self.rows[i].key;
        &self.bytes[from as usize..to as usize]
    }

    /// Value of row `i`.
    #[inline]
    pub(crate) fn value(&self, i: usize) -> &[u8] {
        let (from, to) = self.rows[i].value;
        &self.bytes[from as usize..to as usize]
    }
}
