//! Search for cycles in the dependency graph, and the kind of anomaly of each cycle.
//!
//! Kinds of edges are added one by one, starting with the edges whose cycles the weakest level forbids. After each kind the
//! strongly connected components are computed (Tarjan 1972). If a component has an edge of the new kind, a breadth-first
//! search finds a shortest cycle through such an edge.

use std::collections::{HashMap, VecDeque};

use super::super::Txn;
use super::graph::{Arc, Edge, Graph};
use super::{Findings, Phenomenon};

/// Maximum number of edges of one kind through which a shortest cycle is searched.
const TRIES: usize = 400;
/// Maximum number of reported cycles per kind of edge.
const REPORTED: usize = 2;

/// An edge and its source node.
type Step = (u32, Arc);

/// Searches a graph for cycles and adds them to the findings.
pub(super) fn search(txns: &[Txn], graph: &Graph, findings: &mut Findings) {
    let mut mask = 0;
    for edge in [Edge::WW, Edge::WR, Edge::RW, Edge::RW_ABSENT, Edge::TIME] {
        mask |= edge.0;
        let component = components(graph, mask);
        let mut candidates: Vec<Step> = Vec::new();
        for from in 0..graph.nodes() {
            let mine = component[from as usize];
            let inner = |arc: &&Arc| arc.edge == edge && component[arc.to as usize] == mine;
            candidates.extend(graph.arcs(from).iter().filter(inner).map(|arc| (from, *arc)));
        }
        // Cycles with a single `rw` edge come first: they are the more serious anomaly (G-single before G2-item).
        let without = mask & !(Edge::RW.0 | Edge::RW_ABSENT.0);
        let alone = if edge == Edge::RW { shortest(graph, &candidates, &component, without) } else { Vec::new() };
        let cycles = if alone.is_empty() { shortest(graph, &candidates, &component, mask) } else { alone };
        for cycle in cycles {
            let ids: Vec<u64> = cycle.iter().filter(|s| s.0 < graph.txns).map(|s| txns[s.0 as usize].id).collect();
            findings.add(classify(&cycle), &ids, || describe(txns, graph, &cycle));
        }
    }
}

fn classify(cycle: &[Step]) -> Phenomenon {
    let count = |edge: Edge| cycle.iter().filter(|(_, arc)| arc.edge == edge).count();
    if count(Edge::TIME) > 0 {
        return Phenomenon::RealTime;
    }
    if count(Edge::RW_ABSENT) > 0 {
        return Phenomenon::G2;
    }
    match (count(Edge::RW), count(Edge::WR)) {
        (0, 0) => Phenomenon::G0,
        (0, _) => Phenomenon::G1c,
        (1, 0) if cycle.iter().all(|(_, arc)| arc.key == cycle[0].1.key) => Phenomenon::LostUpdate,
        (1, _) => Phenomenon::GSingle,
        _ => Phenomenon::G2Item,
    }
}

/// Formats a cycle, leaving out the nodes that are moments: "12 -rw(3)-> 40 -ww(5)-> 12".
fn describe(txns: &[Txn], graph: &Graph, cycle: &[Step]) -> String {
    let begin = cycle.iter().position(|s| s.0 < graph.txns).unwrap_or(0);
    let mut text = String::new();
    let mut through_moments = false;
    for i in 0..cycle.len() {
        let (from, arc) = cycle[(begin + i) % cycle.len()];
        if from < graph.txns {
            text += &txns[from as usize].id.to_string();
            through_moments = false;
        }
        if arc.edge != Edge::TIME {
            text += &format!(" -{}({})-> ", arc.edge.name(), arc.key);
        } else if !std::mem::replace(&mut through_moments, true) {
            text += " -real time-> ";
        }
    }
    let first = cycle[begin].0;
    text + &txns.get(first as usize).map_or(String::new(), |t| t.id.to_string())
}

/// Finds shortest cycles that contain one of `candidates` and otherwise edges of `mask`.
fn shortest(graph: &Graph, candidates: &[Step], component: &[u32], mask: u8) -> Vec<Vec<Step>> {
    let mut cycles: Vec<Vec<Step>> = Vec::new();
    // Tries every `stride`th candidate, so that the search covers the components evenly.
    let stride = candidates.len().div_ceil(TRIES).max(1);
    for first in candidates.iter().step_by(stride) {
        if let Some(cycle) = back(graph, *first, component, mask) {
            cycles.push(cycle);
            if cycles.last().is_some_and(|r| r.len() == 2) && cycles.len() >= REPORTED {
                break;
            }
        }
    }
    cycles.sort_by_key(Vec::len);
    let mut reported: Vec<Vec<u32>> = Vec::new();
    cycles.retain(|cycle| {
        let mut nodes: Vec<u32> = cycle.iter().map(|s| s.0).collect();
        nodes.sort_unstable();
        let is_new = reported.len() < REPORTED && !reported.contains(&nodes);
        reported.push(nodes);
        is_new
    });
    cycles
}

/// Finds a shortest path from the target of `first` back to its source within the component. Returns the cycle of `first`
/// and this path.
fn back(graph: &Graph, first: Step, component: &[u32], mask: u8) -> Option<Vec<Step>> {
    let (start, goal) = (first.1.to, first.0);
    let mut reached: HashMap<u32, Step> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        if node == goal {
            let (mut cycle, mut at) = (Vec::new(), goal);
            while at != start {
                let step = reached[&at];
                cycle.push(step);
                at = step.0;
            }
            cycle.push(first);
            cycle.reverse();
            return Some(cycle);
        }
        for arc in graph.arcs(node) {
            let inner = arc.edge.is_in(mask) && component[arc.to as usize] == component[start as usize];
            if inner && arc.to != start && !reached.contains_key(&arc.to) {
                reached.insert(arc.to, (node, *arc));
                queue.push_back(arc.to);
            }
        }
    }
    None
}

/// Returns the number of the strongly connected component of each node. Uses Tarjan's algorithm with an explicit stack.
fn components(graph: &Graph, mask: u8) -> Vec<u32> {
    const UNSEEN: u32 = u32::MAX;
    let n = graph.nodes() as usize;
    let (mut index, mut low, mut component) = (vec![UNSEEN; n], vec![0u32; n], vec![UNSEEN; n]);
    let (mut open, mut calls) = (Vec::new(), Vec::new());
    let (mut indices, mut count) = (0, 0);
    for root in 0..n as u32 {
        if index[root as usize] != UNSEEN {
            continue;
        }
        calls.push((root, 0usize));
        while let Some((node, at)) = calls.pop() {
            let v = node as usize;
            if index[v] == UNSEEN {
                index[v] = indices;
                low[v] = indices;
                indices += 1;
                open.push(node);
            }
            let arcs = graph.arcs(node);
            let mut next = at;
            let mut descends = false;
            while let Some(arc) = arcs.get(next) {
                next += 1;
                let w = arc.to as usize;
                if !arc.edge.is_in(mask) {
                    continue;
                }
                if index[w] == UNSEEN {
                    // The visit of the target comes first. Then this edge is processed again and lowers `low` of its source.
                    calls.push((node, next - 1));
                    calls.push((arc.to, 0));
                    descends = true;
                    break;
                }
                if component[w] == UNSEEN {
                    low[v] = low[v].min(low[w]);
                }
            }
            if descends {
                continue;
            }
            if low[v] == index[v] {
                while let Some(w) = open.pop() {
                    component[w as usize] = count;
                    if w == node {
                        break;
                    }
                }
                count += 1;
            }
        }
    }
    component
}
