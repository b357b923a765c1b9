//! Which transaction came before which.

use super::super::{Outcome, Txn};
use super::Findings;
use super::versions::Order;

/// Why one came before the other. One bit each, so that sets of them are masks.
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

/// An edge to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arc {
    pub(super) to: u32,
    pub(super) edge: Edge,
    /// The row; meaningless for time.
    pub(super) key: u64,
}

/// Edges by where they begin. Nodes are transactions, by their place in the history, and behind them moments between
/// which no transaction ends or begins: time then takes a few edges per transaction instead of one per pair.
#[derive(Debug)]
pub(super) struct Graph {
    first: Vec<u32>,
    arcs: Vec<Arc>,
    /// Nodes that are transactions.
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

/// Infers the edges of a history.
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
    // For every position, the first version from there on whose writer counts.
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
        // Who reads a version of its own has the ww edge.
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

/// A chain of moments: each transaction that ends leads to a moment, and that to the next, and to those that begin then.
fn add_time(txns: &[Txn], nodes: &mut u32, edges: &mut Vec<(u32, Arc)>) {
    let mut add = |from: u32, to: u32| edges.push((from, Arc { to, edge: Edge::TIME, key: 0 }));
    // At the same nanosecond nothing is known: beginnings come first.
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * txns.len());
    for (at, txn) in txns.iter().enumerate() {
        let at = at as u32;
        match txn.outcome {
            Outcome::Ok => events.extend([(txn.start, false, at), (txn.end, true, at)]),
            // It may have happened at any time after it began.
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
