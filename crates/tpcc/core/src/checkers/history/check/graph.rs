//! Dependency graph of transactions.

use super::super::{Outcome, Txn};
use super::Findings;
use super::versions::Order;

/// Kind of a dependency. Each kind is one bit, so that a set of kinds is a bit mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge(pub(super) u8);

impl Edge {
    pub(super) const WW: Edge = Edge(1);
    pub(super) const WR: Edge = Edge(2);
    pub(super) const RW: Edge = Edge(4);
    pub(super) const RW_ABSENT: Edge = Edge(8);
    pub(super) const TIME: Edge = Edge(16);

    pub(super) fn is_in(self, mask: u8) -> bool {
        self.0 & mask != 0
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Edge::WW => "ww",
            Edge::WR => "wr",
            Edge::RW => "rw",
            Edge::RW_ABSENT => "rw, absent",
            _ => "real time",
        }
    }
}

/// An edge to a transaction or moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arc {
    pub(super) to: u32,
    pub(super) edge: Edge,
    /// Key of the row; meaningless for [`Edge::TIME`].
    pub(super) key: u64,
}

/// Edges, indexed by source node. The first nodes are the transactions, in the order of the history. The other nodes are
/// moments: points in time after the end of some transactions and before the begin of the next. With moments, the order in
/// real time needs a few edges per transaction instead of one edge per pair of transactions.
#[derive(Debug)]
pub(super) struct Graph {
    first: Vec<u32>,
    arcs: Vec<Arc>,
    /// Number of transaction nodes. Nodes with higher numbers are moments.
    pub(super) txns: u32,
}

impl Graph {
    pub(super) fn nodes(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    pub(super) fn arcs(&self, from: u32) -> &[Arc] {
        &self.arcs[self.first[from as usize] as usize..self.first[from as usize + 1] as usize]
    }
}

/// Builds the dependency graph of a history from the versions and reads of each row.
pub(super) fn build(txns: &[Txn], orders: &[Order], with_time: bool, findings: &mut Findings) -> Graph {
    let mut edges: Vec<(u32, Arc)> = Vec::new();
    for order in orders {
        add_row(order, txns, &mut edges);
    }
    edges.sort_unstable();
    edges.dedup();
    findings.edges = edges.len();
    let mut nodes = txns.len() as u32;
    if with_time {
        add_time(txns, &mut nodes, &mut edges);
        edges.sort_unstable_by_key(|(from, _)| *from);
    }
    let mut first = vec![0; nodes as usize + 1];
    for (from, _) in &edges {
        first[*from as usize + 1] += 1;
    }
    for i in 0..nodes as usize {
        first[i + 1] += first[i];
    }
    Graph { first, arcs: edges.into_iter().map(|(_, arc)| arc).collect(), txns: txns.len() as u32 }
}

fn add_row(order: &Order, txns: &[Txn], edges: &mut Vec<(u32, Arc)>) {
    let counts = |writer: u32| txns[writer as usize].outcome != Outcome::Fail;
    let mut add = |from: u32, to: u32, edge: Edge| {
        if from != to {
            edges.push((from, Arc { to, edge, key: order.key }));
        }
    };
    // For each position: writer of the first version at or after this position that was not rolled back.
    let mut next = vec![None; order.versions.len() + 1];
    for (i, version) in order.versions.iter().enumerate().rev() {
        next[i] = if counts(version.writer) { Some(version.writer) } else { next[i + 1] };
    }
    for (i, version) in order.versions.iter().enumerate() {
        if counts(version.writer)
            && let Some(writer) = next[i + 1]
        {
            add(version.writer, writer, Edge::WW);
        }
    }
    let last = order.versions.iter().rev().find(|v| counts(v.writer)).map(|v| v.writer);
    for newer in &order.newer {
        if let Some(last) = last {
            add(last, newer.writer, Edge::WW);
        }
    }
    for read in &order.reads {
        let n = read.versions as usize;
        let version = n.checked_sub(1).map(|at| order.versions[at]);
        if let Some(version) = version.filter(|v| counts(v.writer)) {
            add(version.writer, read.reader, Edge::WR);
        }
        // A transaction that read its own version needs no rw edge: it already has a ww edge to the writer of the next
        // version.
        if version.is_some_and(|v| v.writer == read.reader) {
            continue;
        }
        let edge = if version.is_none_or(|v| v.absent) { Edge::RW_ABSENT } else { Edge::RW };
        match next[n] {
            Some(writer) => add(read.reader, writer, edge),
            None => order.newer.iter().for_each(|newer| add(read.reader, newer.writer, edge)),
        }
    }
}

/// Adds the real-time edges, which form a chain of moments. A transaction that ends has an edge to the next moment. Each
/// moment has edges to the next moment and to the transactions that begin after it.
fn add_time(txns: &[Txn], nodes: &mut u32, edges: &mut Vec<(u32, Arc)>) {
    let mut add = |from: u32, to: u32| edges.push((from, Arc { to, edge: Edge::TIME, key: 0 }));
    // The order of events in the same nanosecond is not known: begins are sorted before ends.
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * txns.len());
    for (at, txn) in txns.iter().enumerate() {
        let at = at as u32;
        match txn.outcome {
            Outcome::Ok => events.extend([(txn.start, false, at), (txn.end, true, at)]),
            // The transaction may have committed at any time after its begin.
            Outcome::Info => events.push((txn.start, false, at)),
            Outcome::Fail => {}
        }
    }
    events.sort_unstable();
    let mut moment = None;
    let mut ended = Vec::new();
    for (_, is_end, at) in events {
        if is_end {
            ended.push(at);
            continue;
        }
        if !ended.is_empty() {
            let new = *nodes;
            *nodes += 1;
            if let Some(moment) = moment {
                add(moment, new);
            }
            ended.drain(..).for_each(|at| add(at, new));
            moment = Some(new);
        }
        if let Some(moment) = moment {
            add(moment, at);
        }
    }
}
