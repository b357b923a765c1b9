//! Checks a history: finds its anomalies, and determines the anomalies that the isolation level forbids.
//!
//! Anomalies are named as in Adya ("Weak Consistency", 1999). The versions of each row are ordered (`versions`). This order
//! determines the edges between committed transactions (`graph`):
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | `ww` | writer of a version | writer of the next version |
//! | `wr` | writer of a version | reader of that version |
//! | `rw` | reader of a version | writer of the next version |
//! | `rw, absent` | reader that found no row | writer of the next version (a predicate conflict, not a conflict on a row) |
//! | `real time` | transaction that ended | transaction that began after that end |
//!
//! A cycle is an anomaly. The kinds of its edges determine the kind of anomaly. Anomalies without a cycle are found while
//! the versions are ordered.
//!
//! The run time is linear in the length of the history, except for the search for a short cycle. That search only happens
//! if there is a cycle, and is bounded.

mod cycles;
mod graph;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::HashMap;
use std::fmt;

use storage::Isolation;

use super::{Op, Outcome, Txn};

/// Kind of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phenomenon {
    /// A read returned a value that no transaction wrote to that row.
    Impossible,
    /// The same number or version was written twice, or occurs twice in a list.
    Duplicate,
    /// Two reads of a list, neither of which is a prefix of the other.
    IncompatibleOrder,
    /// A transaction did not see its own earlier writes.
    Internal,
    /// A transaction did not see a write that had been committed before it began.
    LostWrite,
    /// Aborted read: a transaction saw a write of a transaction that rolled back.
    G1a,
    /// Intermediate read: a transaction saw a write that its writer later overwrote itself.
    G1b,
    /// Dirty write: a cycle of transactions, each of which overwrote a write of another.
    G0,
    /// Circular information flow: a cycle of transactions, each of which read or overwrote a write of another.
    G1c,
    /// Two transactions read the same version, and both overwrote it.
    LostUpdate,
    /// Read skew: a transaction saw only a part of the writes of another.
    GSingle,
    /// Write skew: a cycle of transactions, each of which overwrote a row that another one had read.
    G2Item,
    /// Phantom: a cycle through a read of an absent row.
    G2,
    /// The history is serializable, but only in an order that contradicts real time.
    RealTime,
}

impl Phenomenon {
    /// All kinds of anomalies.
    pub const ALL: [Phenomenon; 14] = [
        Phenomenon::Impossible,
        Phenomenon::Duplicate,
        Phenomenon::IncompatibleOrder,
        Phenomenon::Internal,
        Phenomenon::LostWrite,
        Phenomenon::G1a,
        Phenomenon::G1b,
        Phenomenon::G0,
        Phenomenon::G1c,
        Phenomenon::LostUpdate,
        Phenomenon::GSingle,
        Phenomenon::G2Item,
        Phenomenon::G2,
        Phenomenon::RealTime,
    ];

    /// Returns true if an isolation level forbids this anomaly. A read at read committed must see all writes that were
    /// committed before the read, so this level forbids lost writes as well.
    pub fn is_forbidden(self, level: Isolation) -> bool {
        match level {
            Isolation::Serializable => true,
            Isolation::RepeatableRead => !matches!(self, Phenomenon::G2 | Phenomenon::RealTime),
            Isolation::ReadCommitted => !matches!(
                self,
                Phenomenon::LostUpdate
                    | Phenomenon::GSingle
                    | Phenomenon::G2Item
                    | Phenomenon::G2
                    | Phenomenon::RealTime
            ),
        }
    }
}

impl fmt::Display for Phenomenon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phenomenon::Impossible => "impossible read",
            Phenomenon::Duplicate => "duplicate",
            Phenomenon::IncompatibleOrder => "incompatible order",
            Phenomenon::Internal => "own write not seen",
            Phenomenon::LostWrite => "lost write",
            Phenomenon::G1a => "G1a (aborted read)",
            Phenomenon::G1b => "G1b (intermediate read)",
            Phenomenon::G0 => "G0 (dirty write)",
            Phenomenon::G1c => "G1c (circular information flow)",
            Phenomenon::LostUpdate => "lost update",
            Phenomenon::GSingle => "G-single (read skew)",
            Phenomenon::G2Item => "G2-item (write skew)",
            Phenomenon::G2 => "G2 (phantom)",
            Phenomenon::RealTime => "real-time violation",
        })
    }
}

/// An anomaly, with the transactions that are involved.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// Kind of the anomaly.
    pub kind: Phenomenon,
    /// Description of the anomaly, with its transactions and rows.
    pub what: String,
    /// Identifiers of the transactions, in the order of the cycle if there is one.
    pub txns: Vec<u64>,
}

/// Result of checking a history.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Anomalies: a few examples of each kind.
    pub anomalies: Vec<Anomaly>,
    /// Number of committed transactions of the history.
    pub committed: usize,
    /// Number of reads by committed transactions whose version was found in the order of its row.
    pub reads: usize,
    /// Number of edges between transactions, without real-time edges.
    pub edges: usize,
    /// Reason why the check is inconclusive; `None` if it is conclusive.
    pub undecided: Option<String>,
}

/// Maximum number of example anomalies per kind.
const EXAMPLES: usize = 3;
/// Minimum percentage of committed transactions for a check to be conclusive.
const LEAST_COMMITTED_PERCENT: usize = 2;

impl Findings {
    /// Returns the anomalies that the isolation level forbids.
    pub fn forbidden(&self, level: Isolation) -> impl Iterator<Item = &Anomaly> {
        self.anomalies.iter().filter(move |a| a.kind.is_forbidden(level))
    }

    /// Returns true if an anomaly of this kind was found.
    pub fn has(&self, kind: Phenomenon) -> bool {
        self.anomalies.iter().any(|a| a.kind == kind)
    }

    fn add(&mut self, kind: Phenomenon, txns: &[u64], what: impl FnOnce() -> String) {
        if self.anomalies.iter().filter(|a| a.kind == kind).count() < EXAMPLES {
            self.anomalies.push(Anomaly { kind, what: what(), txns: txns.to_vec() });
        }
    }
}

/// Checks a history. The order in real time is checked for serializable only.
pub fn check(txns: &[Txn], level: Isolation) -> Findings {
    let committed = txns.iter().filter(|t| t.outcome == Outcome::Ok).count();
    let mut findings = Findings { committed, ..Findings::default() };
    internal(txns, &mut findings);
    let orders = versions::infer(txns, &mut findings);
    let graph = graph::build(txns, &orders, level == Isolation::Serializable, &mut findings);
    cycles::search(txns, &graph, &mut findings);
    if findings.committed * 100 < txns.len() * LEAST_COMMITTED_PERCENT || findings.committed == 0 {
        findings.undecided = Some(format!("{} of {} transactions committed", findings.committed, txns.len()));
    } else if txns.len() > 1 && findings.reads == 0 {
        findings.undecided = Some("nothing was read".to_owned());
    }
    findings
}

/// Writes of one transaction to one row.
#[derive(Default)]
struct Own<'h> {
    /// All numbers or versions that the transaction writes to the row, including writes not yet processed.
    all: Vec<u64>,
    /// Number of writes processed so far.
    done: usize,
    /// Content of the list before the transaction's own numbers; `None` until the transaction reads the list.
    before: Option<&'h [u64]>,
}

/// Checks that each transaction sees its own earlier writes, and none of its later ones. Applies to transactions of any
/// outcome.
fn internal(txns: &[Txn], findings: &mut Findings) {
    let mut rows: HashMap<u64, Own<'_>> = HashMap::new();
    for txn in txns {
        rows.clear();
        for op in &txn.ops {
            if let Op::Append(key, value) | Op::Write(key, value) = op {
                rows.entry(*key).or_default().all.push(*value);
            }
        }
        for op in &txn.ops {
            let (Op::Append(key, _) | Op::Write(key, _) | Op::Read(key, _) | Op::List(key, _)) = op;
            let Some(own) = rows.get_mut(key) else { continue };
            let (done, to_come) = own.all.split_at(own.done);
            let agrees = match op {
                Op::Append(..) | Op::Write(..) => {
                    own.done += 1;
                    true
                }
                Op::Read(_, version) => match done.last() {
                    Some(last) => *version == Some(*last),
                    None => version.is_none_or(|version| !to_come.contains(&version)),
                },
                Op::List(_, list) => match list.strip_suffix(done) {
                    Some(rest) if rest.iter().any(|number| to_come.contains(number)) => false,
                    // The list before the transaction's own first number must not change either: the transaction has locked
                    // the row.
                    Some(rest) if done.is_empty() || own.before.is_none_or(|before| before == rest) => {
                        own.before = (!done.is_empty()).then_some(rest);
                        true
                    }
                    _ => false,
                },
            };
            if !agrees {
                findings.add(Phenomenon::Internal, &[txn.id], || {
                    format!("{} wrote {done:?} and later {to_come:?} to row {key}, and read {op:?} in between", txn.id)
                });
            }
        }
    }
}
