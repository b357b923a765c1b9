//! Traces of loops: the operations of each epoch and their times, used to simulate the loop on other machines.

use crate::log::{Log, Op};
use crate::store::Store;
use crate::times::{Times, clock_ns};

/// Trace of a loop that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopTrace {
    /// Epochs of the loop, in order.
    pub epochs: Vec<EpochTrace>,
    /// Nanoseconds from the start of the loop until its first epoch was taken; 0 for a loop in place.
    pub setup_ns: u64,
    /// Nanoseconds from the start of the loop until all workers had committed their last epochs, or its last epoch was settled.
    pub elapsed_ns: u64,
    /// Nanoseconds spent on the trace itself, after the loop; 0 for a loop in place, which contains them in `elapsed_ns`.
    pub tracing_ns: u64,
}

/// Trace of a committed or settled epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochTrace {
    /// Number of the epoch in the loop.
    pub number: u64,
    /// Operations of the body, in order.
    pub operations: Vec<TracedOp>,
    /// Nanoseconds to take the epoch and to run its body once. For a rewound epoch, only the times of the parts that were
    /// kept are counted.
    pub body_ns: u64,
    /// Nanoseconds for which the epoch held the token. In place: nanoseconds of its settlement, with the closure that gets its
    /// result.
    pub in_order_ns: u64,
}

/// Trace of an operation of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedOp {
    /// Start of the operation, in nanoseconds since the worker took the epoch.
    pub at_ns: u64,
    /// Kind of the operation.
    pub kind: OpKind,
    /// Hashes of the keys that the operation read or wrote.
    pub keys: Vec<u64>,
    /// Group of the key: see [`Store::group`].
    pub group: u64,
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Read of a key or of a range.
    Read,
    /// Write or deletion of the value of a key.
    Write,
    /// Escaped operation, which ran outside speculation.
    Escape,
}

/// Builds the trace of a committed epoch from its log.
pub(crate) fn of_epoch<S: Store>(store: &S, number: u64, log: &Log<S>, hash: impl Fn(&S::Key) -> u64) -> EpochTrace {
    let clock = clock_ns();
    let key_of = |key: &S::Key| (vec![hash(key)], store.group(key));
    let describe = |op: &Op<S>| match op {
        Op::Read { key, .. } => (OpKind::Read, key_of(key)),
        Op::Write { key, .. } => (OpKind::Write, key_of(key)),
        Op::RepeatedRead { of, .. } => (OpKind::Read, log.key(*of).map(key_of).unwrap_or_default()),
        Op::Scan { scan, .. } => {
            let keys = (0..scan.len()).filter_map(|row| scan.returned_row(row)).map(|(key, _)| hash(key)).collect();
            (OpKind::Read, (keys, store.group(&scan.range.first)))
        }
        Op::Escape { .. } => (OpKind::Escape, <_>::default()),
    };
    // The trace has read the clock once per operation; the time of these readings is subtracted.
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
