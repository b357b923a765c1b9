//! Rings of edges, and which anomaly each is.
//!
//! Edges are admitted kind by kind, those first that the weakest level forbids to be in a ring. After each kind the
//! strongly connected components are found (Tarjan 1972); where one has an edge of the new kind, a shortest ring
//! through one is searched breadth first.

use std::collections::{HashMap, VecDeque};

use super::super::Txn;
use super::graph::{Arc, Edge, Graph};
use super::{Findings, Phenomenon};

/// Edges of one kind from which a short ring is searched, at most.
const TRIES: usize = 400;
/// Rings reported per kind of edge.
const REPORTED: usize = 2;

/// An arc with where it begins.
type Step = (u32, Arc);

/// Adds the rings of a graph to what was found.
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
        // Rings through one edge of this kind come first: they are the worse anomaly (G-single before G2-item).
        let without = mask & !(Edge::RW.0 | Edge::RW_ABSENT.0);
        let alone = if edge == Edge::RW { shortest(graph, &candidates, &component, without) } else { Vec::new() };
        let rings = if alone.is_empty() { shortest(graph, &candidates, &component, mask) } else { alone };
        for ring in rings {
            let ids: Vec<u64> = ring.iter().filter(|s| s.0 < graph.txns).map(|s| txns[s.0 as usize].id).collect();
            findings.add(classify(&ring), &ids, || describe(txns, graph, &ring));
        }
    }
}

fn classify(ring: &[Step]) -> Phenomenon {
    let count = |edge: Edge| ring.iter().filter(|(_, arc)| arc.edge == edge).count();
    if count(Edge::TIME) > 0 {
        return Phenomenon::RealTime;
    }
    if count(Edge::RW_ABSENT) > 0 {
        return Phenomenon::G2;
    }
    match (count(Edge::RW), count(Edge::WR)) {
        (0, 0) => Phenomenon::G0,
        (0, _) => Phenomenon::G1c,
        (1, 0) if ring.iter().all(|(_, arc)| arc.key == ring[0].1.key) => Phenomenon::LostUpdate,
        (1, _) => Phenomenon::GSingle,
        _ => Phenomenon::G2Item,
    }
}

/// "12 -rw(3)-> 40 -ww(5)-> 12", moments left out.
fn describe(txns: &[Txn], graph: &Graph, ring: &[Step]) -> String {
    let begin = ring.iter().position(|s| s.0 < graph.txns).unwrap_or(0);
    let mut text = String::new();
    let mut through_moments = false;
    for i in 0..ring.len() {
        let (from, arc) = ring[(begin + i) % ring.len()];
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
    let first = ring[begin].0;
    text + &txns.get(first as usize).map_or(String::new(), |t| t.id.to_string())
}

/// Shortest rings that take one of `candidates` and otherwise edges of `mask`.
fn shortest(graph: &Graph, candidates: &[Step], component: &[u32], mask: u8) -> Vec<Vec<Step>> {
    let mut rings: Vec<Vec<Step>> = Vec::new();
    // Spread over all of them, so that every component has a chance.
    let stride = candidates.len().div_ceil(TRIES).max(1);
    for first in candidates.iter().step_by(stride) {
        if let Some(ring) = back(graph, *first, component, mask) {
            rings.push(ring);
            if rings.last().is_some_and(|r| r.len() == 2) && rings.len() >= REPORTED {
                break;
            }
        }
    }
    rings.sort_by_key(Vec::len);
    let mut told: Vec<Vec<u32>> = Vec::new();
    rings.retain(|ring| {
        let mut nodes: Vec<u32> = ring.iter().map(|s| s.0).collect();
        nodes.sort_unstable();
        let is_new = told.len() < REPORTED && !told.contains(&nodes);
        told.push(nodes);
        is_new
    });
    rings
}

/// The shortest way from where `first` leads back to where it begins, within the component; with `first` a ring.
fn back(graph: &Graph, first: Step, component: &[u32], mask: u8) -> Option<Vec<Step>> {
    let (start, goal) = (first.1.to, first.0);
    let mut reached: HashMap<u32, Step> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        if node == goal {
            let (mut ring, mut at) = (Vec::new(), goal);
            while at != start {
                let step = reached[&at];
                ring.push(step);
                at = step.0;
            }
            ring.push(first);
            ring.reverse();
            return Some(ring);
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

/// The number of each node's strongly connected component. Tarjan's algorithm, with a stack of its own.
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
                    // Comes back to the same arc, which then lowers `low`.
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
