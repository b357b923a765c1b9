//! Frames near the threads that use them: which shard is a thread's home, and which shard a frame belongs to.
//!
//! Without homes neighbouring frames belong to different shards, and a page takes a frame of the shard that its number
//! says. With them a thread takes frames of its home: those that no page has had come in chunks of about a large page of
//! memory, which, where there are several nodes, the thread that took them touches first, so that the system gives memory of
//! its node; those that its shard gets back it finds again. The shards of a node are homes of the threads on it.
//!
//! After Saylor and Khessib (DaMoN 2006), section 6.2: "the buffer manager allocates a buffer from the node where a thread
//! is running". Difference: a page stays where it is when threads of another node use it more.

use crate::base::sync::plain::{AtomicU8, Ordering};

use crate::io::topology::Nodes;

/// Frames of a chunk: 2,113,536 bytes.
pub(super) const CHUNK: usize = 256;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Homes {
    nodes: Nodes,
    shards: usize,
    /// Frames of a chunk.
    chunk: usize,
    /// The shard of each chunk, from when a thread took it.
    owners: Box<[AtomicU8]>,
}

impl Homes {
    /// For so many frames, in chunks of so many, in so many shards (at most 256), on this machine.
    pub(super) fn new(frames: usize, chunk: usize, shards: usize, nodes: Nodes) -> Homes {
        Homes { nodes, shards, chunk, owners: (0..frames.div_ceil(chunk)).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Frames of a chunk.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Whether it matters which thread touches memory first.
    pub(super) fn are_on_several_nodes(&self) -> bool {
        self.nodes.count() > 1
    }

    /// The home of the calling thread, which has this number.
    pub(super) fn of_this_thread(&self, number: u64) -> usize {
        let node = if self.are_on_several_nodes() { self.nodes.of_this_thread() } else { 0 };
        home(node, self.nodes.count(), number, self.shards)
    }

    /// The shard of a frame that a thread has taken.
    pub(super) fn of_frame(&self, index: u32) -> usize {
        self.owners[index as usize / self.chunk].load(Ordering::Relaxed).into()
    }

    /// Gives the chunk that begins at frame `first`, which no other thread knows, to a shard.
    pub(super) fn give(&self, first: u32, shard: usize) {
        // Other threads learn of the chunk's frames through the shard's lock or the page table.
        self.owners[first as usize / self.chunk].store(shard as u8, Ordering::Relaxed);
    }
}

/// The home of a thread: one of the shards of its node, or any where there are not as many shards as nodes.
fn home(node: usize, nodes: usize, thread: u64, shards: usize) -> usize {
    let of_node = shards / nodes.max(1);
    match of_node {
        0 => thread as usize % shards,
        _ => node % nodes.max(1) * of_node + thread as usize % of_node,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn threads_of_a_node_live_in_its_shards() {
        for (nodes, shards) in [(1, 8), (2, 8), (3, 8), (4, 8), (2, 1), (8, 4)] {
            let of = |node: usize| (0..20).map(|thread| home(node, nodes, thread, shards)).collect::<BTreeSet<_>>();
            for node in 0..nodes {
                assert!(of(node).iter().all(|&shard| shard < shards), "{nodes} nodes, {shards} shards");
                if shards >= nodes {
                    assert_eq!(of(node).len(), shards / nodes, "all of the node's shards are used");
                    assert!((0..node).all(|other| of(other).is_disjoint(&of(node))), "and no other's");
                }
            }
        }
    }

    #[test]
    fn a_chunk_belongs_to_the_shard_that_took_it() {
        let homes = Homes::new(CHUNK * 2 + 10, CHUNK, 8, Nodes::one());
        homes.give(CHUNK as u32, 5);
        homes.give(2 * CHUNK as u32, 7);
        assert_eq!([0, 256, 511, 512, 521].map(|frame| homes.of_frame(frame)), [0, 5, 5, 7, 7]);
    }
}
