//! What an epoch has done so far: its reads with their answers, and its writes. A rewound epoch gets the same answers
//! again up to the checkpoint.

use std::any::Any;

use crate::forward::{Site, WriteId};
use crate::store::Store;

/// Where a value that was read came from.
#[derive(Debug)]
pub(crate) enum Source<T> {
    /// The store, with this stamp.
    Store(T),
    /// An earlier epoch that had not committed, or not long ago.
    Epoch(WriteId),
    /// The epoch itself.
    Own,
    /// The store, locked: in order.
    Locked,
    /// Nowhere: the store has refused.
    Failed,
}

/// An operation that ran outside speculation, and how to undo it.
pub(crate) struct Escape {
    /// What it returned.
    pub(crate) result: Box<dyn Any + Send>,
    /// None once the operation has its place in the order of the loop.
    pub(crate) undo: Option<Box<dyn FnOnce() + Send>>,
}

/// An operation of an epoch.
pub(crate) enum Op<S: Store> {
    Read { key: S::Key, value: Option<S::Value>, source: Source<S::Stamp>, site: Site },
    Write { key: S::Key, value: Option<S::Value>, site: Site },
    Escape { escape: Escape, site: Site },
}

impl<S: Store> Op<S> {
    pub(crate) fn site(&self) -> Site {
        match self {
            Op::Read { site, .. } | Op::Write { site, .. } | Op::Escape { site, .. } => site,
        }
    }
}

/// The operations of an epoch, in order. Its memory is used again by later epochs.
pub(crate) struct Log<S: Store> {
    pub(crate) ops: Vec<Op<S>>,
}

impl<S: Store> Log<S> {
    pub(crate) fn new() -> Log<S> {
        Log { ops: Vec::new() }
    }

    /// Forgets the operations from `at` on, the last one first; escaped ones are undone, and `written` is told of writes.
    pub(crate) fn rewind(&mut self, at: usize, mut written: impl FnMut(&S::Key, usize)) {
        while self.ops.len() > at {
            match self.ops.pop() {
                Some(Op::Write { key, .. }) => written(&key, self.ops.len()),
                Some(Op::Escape { escape: Escape { undo: Some(undo), .. }, .. }) => undo(),
                _ => {}
            }
        }
    }
}

/// Where epochs can be rewound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubEpochs {
    pub(crate) number: usize,
    pub(crate) operations: usize,
}

impl SubEpochs {
    /// The checkpoint before an operation: the begin of its sub-epoch. The last sub-epoch has all further operations.
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
