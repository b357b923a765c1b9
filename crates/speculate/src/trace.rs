//! What the epochs of a loop did and when: for a simulation of the loop on other machines.

use crate::log::{Log, Op};
use crate::store::Store;
use crate::times::{Times, clock_ns};

/// A loop that has run to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopTrace {
    /// Its epochs, in order.
    pub epochs: Vec<EpochTrace>,
    /// Time before the first epoch was taken, in nanoseconds.
    pub setup_ns: u64,
    /// Time until the last epoch had committed on all workers, in nanoseconds, the time before the first one included.
    pub elapsed_ns: u64,
    /// Time that was then spent on the trace itself, in nanoseconds.
    pub tracing_ns: u64,
}

/// An epoch that has committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochTrace {
    /// Its number in the loop.
    pub number: u64,
    /// What its body did, in order.
    pub operations: Vec<TracedOp>,
    /// Time to take the epoch and to run its body once, in nanoseconds. Of an epoch that was rewound, the parts that counted.
    pub body_ns: u64,
    /// Time between homefree and the passing of the token, in nanoseconds.
    pub in_order_ns: u64,
}

/// An operation of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedOp {
    /// When it began, in nanoseconds since the worker took the epoch.
    pub at_ns: u64,
    /// What it did.
    pub kind: OpKind,
    /// Hashes of the keys that it read or wrote.
    pub keys: Vec<u64>,
    /// What its key shares with others: see [`Store::group`].
    pub group: u64,
}

/// What an operation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// It read a key, or a range.
    Read,
    /// It wrote or deleted a key.
    Write,
    /// It ran outside speculation.
    Escape,
}

/// The trace of an epoch that has committed with this log.
pub(crate) fn of_epoch<S: Store>(store: &S, number: u64, log: &Log<S>, hash: impl Fn(&S::Key) -> u64) -> EpochTrace {
    let clock = clock_ns();
    let key_of = |key: &S::Key| (vec![hash(key)], store.group(key));
    let describe = |op: &Op<S>| match op {
        Op::Read { key, .. } => (OpKind::Read, key_of(key)),
        Op::Write { key, .. } => (OpKind::Write, key_of(key)),
        Op::Again { of, .. } => (OpKind::Read, log.key(*of).map(key_of).unwrap_or_default()),
        Op::Scan { scan, .. } => {
            let keys = (0..scan.len()).filter_map(|row| scan.got(row)).map(|(key, _)| hash(key)).collect();
            (OpKind::Read, (keys, store.group(&scan.range.first)))
        }
        Op::Escape { .. } => (OpKind::Escape, <_>::default()),
    };
    // Each operation has read the clock once.
    let Times { begun_ns, before_ns, body_ns, in_order_ns } = &log.times;
    let at = |i: usize| before_ns + begun_ns.get(i).map_or(0, |begun| begun.saturating_sub(clock * i as u64));
    let operations = log.ops.iter().enumerate().map(|(i, op)| {
        let (kind, (keys, group)) = describe(op);
        TracedOp { at_ns: at(i), kind, keys, group }
    });
    EpochTrace {
        number,
        operations: operations.collect(),
        body_ns: before_ns + body_ns.saturating_sub(clock * log.ops.len() as u64),
        in_order_ns: *in_order_ns,
    }
}
