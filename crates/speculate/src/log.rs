//! Log of an epoch: its reads with their answers, and its writes. If the epoch is rewound, it gets the recorded answers
//! again, up to the checkpoint.

use std::any::Any;
use std::sync::Arc;

use crate::forward::{Site, WriteId};
use crate::last_op::LastOpTable;
use crate::mutant::{Mutant, is_mutant};
use crate::prefetch::prefetch_write;
use crate::quiet::quietly;
use crate::scan::Scan;
use crate::shared::{Shared, StaleRead};
use crate::store::{RangeRow, Seen, Store, Written};
use crate::times::Times;

/// Source of a value that an epoch has read.
#[derive(Debug)]
pub(crate) enum Source<T> {
    /// Unlocked read of the store, which returned this stamp.
    Store(T),
    /// Write of an uncommitted or recently committed earlier epoch.
    Epoch(WriteId),
    /// Locked read of the store, in order.
    Locked,
    /// No source: the store returned an error.
    Failed,
}

/// Operation that ran outside speculation, with its undo closure.
pub(crate) struct Escape {
    /// Result of the operation.
    pub(crate) result: Box<dyn Any + Send>,
    /// Undo closure; `None` once the operation is permanent.
    pub(crate) undo: Option<Box<dyn FnOnce() + Send>>,
}

/// An operation of an epoch.
pub(crate) enum Op<S: Store> {
    /// First read of a key that the epoch has not written before.
    Read {
        key: S::Key,
        hash: u64,
        value: Answer<S::Value>,
        source: Source<S::Stamp>,
        /// True if the epoch also writes the key (perhaps in a part that was rewound since).
        to_write: bool,
        site: Site,
    },
    Write {
        key: S::Key,
        value: Answer<S::Value>,
        /// Previous operation of the epoch on the key.
        previous: Option<PreviousOp>,
        /// True if a later iteration of the epoch has read this write, and `then` may replace the value before that
        /// iteration commits.
        read_later: bool,
        site: Site,
    },
    /// A read of a range.
    Scan {
        scan: Scan<S>,
        site: Site,
    },
    /// Repeated read of a key, which gets the value of the epoch's earlier operation `of`.
    RepeatedRead {
        of: usize,
        site: Site,
    },
    Escape {
        escape: Escape,
        site: Site,
    },
}

/// Previous operation of an epoch on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PreviousOp {
    /// Operation on the key alone, by its index in the log.
    Op(usize),
    /// Range read with a row of the key, by the index of the range read in the log and the index of the row.
    Row(usize, usize),
}

impl PreviousOp {
    /// Returns the index of the operation in the log.
    fn index(self) -> usize {
        match self {
            PreviousOp::Op(at) | PreviousOp::Row(at, _) => at,
        }
    }
}

/// Value that an operation has read or written.
pub(crate) enum Answer<V> {
    /// Copy of the value that the epoch owns.
    Value(V),
    /// Forwarded value, which epochs share.
    Forwarded(Arc<V>),
    /// The key has no value.
    Absent,
}

impl<V> Answer<V> {
    pub(crate) fn get(&self) -> Option<&V> {
        match self {
            Answer::Value(value) => Some(value),
            Answer::Forwarded(value) => Some(value),
            Answer::Absent => None,
        }
    }
}

impl<V> From<Option<V>> for Answer<V> {
    fn from(value: Option<V>) -> Answer<V> {
        value.map_or(Answer::Absent, Answer::Value)
    }
}

impl<V> From<Option<Arc<V>>> for Answer<V> {
    fn from(value: Option<Arc<V>>) -> Answer<V> {
        value.map_or(Answer::Absent, Answer::Forwarded)
    }
}

impl<S: Store> Op<S> {
    /// Returns the write to pass to the store, if this operation is a write. `ops` are the operations of the epoch. Reads
    /// before operation `first` were confirmed before an earlier `then`, so they no longer serve as hints for the store.
    pub(crate) fn store_write<'o>(&'o self, ops: &'o [Op<S>], first: usize) -> Option<Written<'o, S>> {
        let Op::Write { key, value, previous, .. } = self else { return None };
        let confirmed = previous.filter(|previous| previous.index() >= first);
        let seen = match confirmed {
            Some(PreviousOp::Op(at)) => match &ops[at] {
                Op::Read { key, value, source: Source::Store(stamp), .. } => {
                    Some(Seen { key, value: value.get(), stamp, to_write: true })
                }
                _ => None,
            },
            Some(PreviousOp::Row(at, row)) => match &ops[at] {
                Op::Scan { scan, .. } => scan.store_row(row).map(|RangeRow { key, value, stamp }| Seen {
                    key,
                    value: Some(value),
                    stamp,
                    to_write: true,
                }),
                _ => None,
            },
            None => None,
        };
        Some(Written { key, value: value.get(), seen })
    }

    /// Returns the size of the keys and values that the operation keeps, in bytes.
    pub(crate) fn bytes(&self, store: &S) -> usize {
        match self {
            Op::Read { key, value, .. } | Op::Write { key, value, .. } => store.size(key, value.get()),
            Op::Scan { scan, .. } => scan.bytes(store),
            Op::RepeatedRead { .. } | Op::Escape { .. } => 0,
        }
    }

    pub(crate) fn site(&self) -> Site {
        match self {
            Op::Read { site, .. }
            | Op::Write { site, .. }
            | Op::Scan { site, .. }
            | Op::RepeatedRead { site, .. }
            | Op::Escape { site, .. } => site,
        }
    }
}

/// Operations of an epoch, in order. Later epochs reuse the memory of the log.
pub(crate) struct Log<S: Store> {
    pub(crate) ops: Vec<Op<S>>,
    last_ops: LastOpTable,
    /// Indexes of the range reads in `ops`.
    scans: Vec<usize>,
    /// Stamps of those of the epoch's own writes that the store has received and that later iterations have read, in
    /// ascending order of the operations' indexes.
    pub(crate) stamps: Vec<(usize, S::Stamp)>,
    /// Size of the keys and values that the operations keep, in bytes as counted by [`Store::size`].
    pub(crate) bytes: usize,
    /// Number of operations in the log when it was last cleared.
    previous_len: usize,
    /// Start times of the operations, if the loop is traced.
    pub(crate) times: Times,
}

impl<S: Store> Log<S> {
    pub(crate) fn new() -> Log<S> {
        Log {
            ops: Vec::new(),
            last_ops: LastOpTable::default(),
            scans: Vec::new(),
            stamps: Vec::new(),
            bytes: 0,
            previous_len: 0,
            times: Times::default(),
        }
    }

    /// Returns the index of the last operation on a key with the hash `hash`: its first read, or a write.
    #[inline]
    pub(crate) fn last_op(&self, key: &S::Key, hash: u64) -> Option<usize> {
        self.last_ops
            .find(hash, |at| matches!(&self.ops[at], Op::Read { key: k, .. } | Op::Write { key: k, .. } if k == key))
    }

    /// Adds a write, or the first read of a key.
    #[inline]
    pub(crate) fn push(&mut self, store: &S, op: Op<S>, hash: u64) {
        let ops = &self.ops;
        let (Op::Read { key, .. } | Op::Write { key, .. }) = &op else { unreachable!("an operation on a key") };
        let same = |at: usize| matches!(&ops[at], Op::Read { key: k, .. } | Op::Write { key: k, .. } if k == key);
        self.last_ops.set(hash, ops.len(), same);
        self.bytes += op.bytes(store);
        self.ops.push(op);
    }

    /// Adds a repeated read of a key, which gets the value of operation `of`. `iteration_start` is the index of the first
    /// operation of the current iteration.
    pub(crate) fn push_repeated_read(&mut self, of: usize, iteration_start: usize, site: Site) {
        if of < iteration_start
            && let Op::Write { read_later, .. } = &mut self.ops[of]
        {
            *read_later = true;
        }
        self.ops.push(Op::RepeatedRead { of, site });
    }

    /// Adds a read of a range.
    pub(crate) fn push_scan(&mut self, store: &S, scan: Scan<S>, site: Site) {
        self.scans.push(self.ops.len());
        let op = Op::Scan { scan, site };
        self.bytes += op.bytes(store);
        self.ops.push(op);
    }

    /// Returns the range read at index `at` of the log; `None` if the operation is of another kind.
    pub(crate) fn scan(&self, at: usize) -> Option<&Scan<S>> {
        match &self.ops[at] {
            Op::Scan { scan, .. } => Some(scan),
            _ => None,
        }
    }

    /// Prepares a write of a key, and returns the epoch's previous operation on the key. Marks the earlier reads of the key,
    /// so that their confirmation takes the write lock from the start. If the caller knows the row that the key had in a
    /// range read of the store, `of` is the index of the range read and of the row.
    pub(crate) fn prepare_write(&mut self, key: &S::Key, hash: u64, of: Option<(usize, usize)>) -> Option<PreviousOp> {
        let last = self.last_op(key, hash);
        if let Some(last) = last
            && let Op::Read { to_write, .. } = &mut self.ops[last]
        {
            *to_write = true;
        }
        let mut previous = last.map(PreviousOp::Op).or(of.map(|(at, row)| PreviousOp::Row(at, row)));
        for &at in &self.scans {
            let Op::Scan { scan, .. } = &mut self.ops[at] else { continue };
            if of.is_some_and(|(of, _)| of == at) {
                scan.to_write = true;
            } else if scan.contains(key) {
                scan.to_write = true;
                if last.is_none() && of.is_none() {
                    previous = scan.position(key).map(|row| PreviousOp::Row(at, row));
                }
            }
        }
        previous
    }

    /// Returns the key of the first read or write at index `at`; `None` for an operation of another kind.
    pub(crate) fn key(&self, at: usize) -> Option<&S::Key> {
        match &self.ops[at] {
            Op::Read { key, .. } | Op::Write { key, .. } => Some(key),
            Op::RepeatedRead { .. } | Op::Scan { .. } | Op::Escape { .. } => None,
        }
    }

    /// Returns the value that the operation at index `at` has read or written.
    pub(crate) fn value(&self, at: usize) -> Option<&S::Value> {
        match &self.ops[at] {
            Op::Read { value, .. } | Op::Write { value, .. } => value.get(),
            Op::RepeatedRead { of, .. } => self.value(*of),
            Op::Scan { .. } | Op::Escape { .. } => None,
        }
    }

    /// Removes the operations from index `at` on, the last operation first. Undoes escaped operations, and calls `written`
    /// for each removed write. `hash` computes the hash of a key. Afterwards the caller must call `Log::count_bytes`.
    pub(crate) fn rewind(&mut self, at: usize, hash: impl Fn(&S::Key) -> u64, mut written: impl FnMut(&S::Key, usize)) {
        while self.ops.len() > at {
            let op = self.ops.pop();
            if let Some(Op::Write { key, .. }) = &op {
                written(key, self.ops.len());
            }
            // The operation is discarded, so panics of its destructor and of its undo closure are not reported.
            quietly(|| match op {
                Some(Op::Escape { escape: Escape { undo: Some(undo), .. }, .. }) if !is_mutant(Mutant::KeepEscapes) => {
                    undo();
                }
                op => drop(op),
            });
        }
        self.bytes = 0;
        quietly(|| self.stamps.retain(|(of, _)| *of < at));
        self.last_ops.clear();
        while self.scans.pop_if(|last| *last >= at).is_some() {}
        let ops = &self.ops;
        for (at, op) in ops.iter().enumerate() {
            if let Op::Read { key, .. } | Op::Write { key, .. } = op {
                let same =
                    |at: usize| matches!(&ops[at], Op::Read { key: k, .. } | Op::Write { key: k, .. } if k == key);
                self.last_ops.set(hash(key), at, same);
            }
        }
    }

    /// Counts the bytes that the operations keep again, and stores the sum.
    pub(crate) fn count_bytes(&mut self, store: &S) {
        self.bytes = self.ops.iter().map(|op| op.bytes(store)).sum();
    }

    /// Prefetches, for writing, the cache lines of as many operations as the log had before; another core may have read
    /// these lines.
    pub(crate) fn prefetch(&mut self) {
        let lines = self.previous_len.saturating_mul(size_of::<Op<S>>());
        prefetch_write(self.ops.spare_capacity_mut().as_ptr().cast(), lines);
    }

    /// Removes all operations and the state that belongs to them.
    pub(crate) fn clear(&mut self) {
        self.previous_len = self.ops.len();
        self.ops.clear();
        self.last_ops.clear();
        self.scans.clear();
        self.bytes = 0;
        self.stamps.clear();
        self.times.clear();
    }
}

impl<S: Store> Log<S> {
    /// Checks that the read at index `at` would still get the same value from the earlier epochs. If not, returns the
    /// violation.
    pub(crate) fn stale_read(&self, shared: &Shared<S>, epoch: u64, at: usize) -> Option<StaleRead> {
        // Without forwarding, the store detects writes of earlier epochs when it confirms the reads.
        if !shared.forwards {
            return None;
        }
        let (key, hash, source) = match &self.ops[at] {
            Op::Read { key, hash, source, .. } => (key, hash, source),
            Op::Scan { scan, .. } => return scan.stale_read(shared, epoch, at),
            _ => return None,
        };
        let read = match source {
            Source::Store(_) => None,
            Source::Epoch(id) => Some(*id),
            // A read that the store refused is not checked before the epoch is homefree.
            Source::Locked | Source::Failed => return None,
        };
        let newest = shared.last_before(epoch).and_then(|last| {
            shared.directory.newest((key, *hash), shared.first_concurrent(epoch), last, |write| (write.id, write.site))
        });
        if newest.map(|(id, _)| id) == read {
            return None;
        }
        Some(StaleRead { at, writer: newest.map(|(_, site)| site), may_wait: true, injected: false })
    }

    /// Returns the violation of the first read that missed a write of an earlier epoch.
    pub(crate) fn first_stale_read(&self, shared: &Shared<S>, epoch: u64) -> Option<StaleRead> {
        (0..self.ops.len()).find_map(|at| self.stale_read(shared, epoch, at))
    }

    /// Removes the writes of a committed epoch from the directory. No epoch in flight can have read these writes.
    pub(crate) fn retire(&self, shared: &Shared<S>, epoch: u64) {
        if !shared.forwards {
            return;
        }
        for op in &self.ops {
            if let Op::Write { key, .. } = op {
                shared.directory.retire(key, epoch);
            }
        }
    }
}

/// Division of an epoch into sub-epochs. Each sub-epoch starts at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubEpochs {
    pub(crate) number: usize,
    pub(crate) operations: usize,
}

impl SubEpochs {
    /// Returns the checkpoint before an operation: the index of the first operation in the same sub-epoch. The last
    /// sub-epoch contains all further operations.
    pub(crate) fn checkpoint(self, operation: usize) -> usize {
        (operation / self.operations).min(self.number - 1) * self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_rewound_to_the_begin_of_a_sub_epoch() {
        let eight = SubEpochs { number: 8, operations: 5 };
        assert_eq!([0, 4, 5, 34, 35, 1000].map(|op| eight.checkpoint(op)), [0, 0, 5, 30, 35, 35]);
        let one = SubEpochs { number: 1, operations: 5 };
        assert_eq!([0, 4, 5, 1000].map(|op| one.checkpoint(op)), [0; 4]);
        let every = SubEpochs { number: usize::MAX, operations: 1 };
        assert_eq!([0, 7, 1000].map(|op| every.checkpoint(op)), [0, 7, 1000]);
    }
}
