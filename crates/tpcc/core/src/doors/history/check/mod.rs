//! Judges a history: which anomalies are in it, and which its isolation level forbids.
//!
//! Names are those of Adya ("Weak Consistency", 1999). Every row has an order of versions (`versions`); from it follow
//! edges between committed transactions (`graph`):
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | `ww` | who wrote a version | who wrote the next one |
//! | `wr` | who wrote a version | who read it |
//! | `rw` | who read a version | who wrote the next one |
//! | `rw, absent` | who read that there is no row | who wrote it next: a conflict with a predicate, not with a row |
//! | `real time` | who ended | who began after that |
//!
//! A ring of edges is an anomaly, and its edges tell which. What is no ring is found while versions are put in order.
//!
//! Everything but the search for a short ring is linear in the history's length; that search only happens where there
//! is a ring, and is bounded.

mod graph;
mod rings;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::HashMap;
use std::fmt;

use storage::Isolation;

use super::{Op, Outcome, Txn};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phenomenon {
    /// A read returned what no transaction wrote there.
    Impossible,
    /// A number or version was written or read twice.
    Duplicate,
    /// Two reads of a list of which none begins like the other.
    IncompatibleOrder,
    /// A transaction did not see its own writes.
    Internal,
    /// A transaction did not see what had been committed before it began.
    LostWrite,
    /// A transaction saw a write of one that rolled back.
    G1a,
    /// A transaction saw a write that its writer followed by another one of the same row.
    G1b,
    /// Writes of transactions that each overwrote the other.
    G0,
    /// Transactions that each saw or overwrote what the other had written.
    G1c,
    /// Two transactions read a version, both overwrote it.
    LostUpdate,
    /// A transaction saw a part of another one's writes.
    GSingle,
    /// Write skew between rows.
    G2Item,
    /// A ring through a read of an absent row: a phantom.
    G2,
    /// Serializable, but in an order against the clock.
    RealTime,
}

impl Phenomenon {
    /// All of them.
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

    /// Whether a level promises that this does not happen. Reads under read committed see at once what was
    /// committed, so a lost write is none of that level's liberties either.
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

/// One thing that is wrong, with the transactions that show it.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// What it is.
    pub kind: Phenomenon,
    /// What happened, by transactions and rows.
    pub what: String,
    /// Ids of the transactions, in the order of the ring if it is one.
    pub txns: Vec<u64>,
}

/// What was found in a history.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is wrong: of each kind some examples.
    pub anomalies: Vec<Anomaly>,
    /// Transactions that committed.
    pub committed: usize,
    /// Reads of them whose version was found in its row's order.
    pub reads: usize,
    /// Edges between transactions, without those of time.
    pub edges: usize,
    /// Why the history proves nothing, if it does not.
    pub undecided: Option<String>,
}

/// Examples kept of each kind.
const EXAMPLES: usize = 3;
/// Of a hundred transactions, how many must have committed for a history to prove something.
const LEAST_COMMITTED_PERCENT: usize = 2;

impl Findings {
    /// What the level forbids.
    pub fn forbidden(&self, level: Isolation) -> impl Iterator<Item = &Anomaly> {
        self.anomalies.iter().filter(move |a| a.kind.is_forbidden(level))
    }

    /// Whether something of this kind was found.
    pub fn has(&self, kind: Phenomenon) -> bool {
        self.anomalies.iter().any(|a| a.kind == kind)
    }

    fn add(&mut self, kind: Phenomenon, txns: &[u64], what: impl FnOnce() -> String) {
        if self.anomalies.iter().filter(|a| a.kind == kind).count() < EXAMPLES {
            self.anomalies.push(Anomaly { kind, what: what(), txns: txns.to_vec() });
        }
    }
}

/// Finds what is wrong in a history. Real time counts under serializable only.
pub fn check(txns: &[Txn], level: Isolation) -> Findings {
    let committed = txns.iter().filter(|t| t.outcome == Outcome::Ok).count();
    let mut findings = Findings { committed, ..Findings::default() };
    internal(txns, &mut findings);
    let orders = versions::infer(txns, &mut findings);
    let graph = graph::build(txns, &orders, level == Isolation::Serializable, &mut findings);
    rings::search(txns, &graph, &mut findings);
    if findings.committed * 100 < txns.len() * LEAST_COMMITTED_PERCENT || findings.committed == 0 {
        findings.undecided = Some(format!("{} of {} transactions committed", findings.committed, txns.len()));
    } else if txns.len() > 1 && findings.reads == 0 {
        findings.undecided = Some("nothing was read".to_owned());
    }
    findings
}

/// What a transaction has done to a row so far.
#[derive(Default)]
struct Own<'h> {
    /// All its numbers or versions there, also those to come.
    all: Vec<u64>,
    /// How many of them it has written.
    done: usize,
    /// What was in the list before them.
    before: Option<&'h [u64]>,
}

/// A transaction sees its own writes, and none before it was made, whatever becomes of the transaction.
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
                    // What was there before the first number of its own stays, too: the row is locked.
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
