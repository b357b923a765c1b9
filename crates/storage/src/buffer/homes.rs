//! Home shards: each thread prefers frames of one shard, so that the frames are near the thread in memory.
//!
//! Without home shards, neighbouring frames belong to different shards, and the number of a page selects the shard that its
//! frame is taken from. With home shards, a thread takes frames from its home shard. Frames that have never held a page are
//! assigned to a shard in chunks of about one large page of memory. On a machine with several memory nodes, the thread that
//! took a chunk is also the first to touch its memory, so the system allocates the memory on the node of this thread. A
//! frame that becomes free returns to the shard that owns its chunk. The shards of a node are the home shards of the threads
//! on that node.
//!
//! After Saylor and Khessib (DaMoN 2006), section 6.2: "the buffer manager allocates a buffer from the node where a thread
//! is running". Difference: a page does not move when threads of another node begin to use it more.

use crate::base::sync::plain::{AtomicU8, Ordering};

use crate::io::topology::Nodes;

/// Number of frames in a chunk: 2,113,536 bytes.
pub(super) const CHUNK: usize = 256;

/// Assignment of chunks of frames to home shards. See the module's documentation.
#[derive(Debug)]
pub(super) struct Homes {
    nodes: Nodes,
    shards: usize,
    /// Number of frames in a chunk.
    chunk: usize,
    /// Shard of each chunk. Valid once a thread has taken the chunk.
    owners: Box<[AtomicU8]>,
}

impl Homes {
    /// Creates the assignment for `frames` frames in chunks of `chunk` frames, over `shards` shards (at most 256), on a
    /// machine with these memory nodes.
    pub(super) fn new(frames: usize, chunk: usize, shards: usize, nodes: Nodes) -> Homes {
        Homes { nodes, shards, chunk, owners: (0..frames.div_ceil(chunk)).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Returns the number of frames in a chunk.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Returns true if the machine has several memory nodes, so that the first thread to touch memory determines its node.
    pub(super) fn are_on_several_nodes(&self) -> bool {
        self.nodes.count() > 1
    }

    /// Returns the home shard of the calling thread, whose number is `number`.
    pub(super) fn of_this_thread(&self, number: u64) -> usize {
        let node = if self.are_on_several_nodes() { self.nodes.of_this_thread() } else { 0 };
        home(node, self.nodes.count(), number, self.shards)
    }

    /// Returns the shard of a frame in a chunk that a thread has taken.
    pub(super) fn of_frame(&self, index: u32) -> usize {
        self.owners[index as usize / self.chunk].load(Ordering::Relaxed).into()
    }

    /// Assigns the chunk that begins at frame `first` to a shard. The caller has just allocated the chunk; no other thread
    /// uses it.
    pub(super) fn give(&self, first: u32, shard: usize) {
        // Other threads find the frames of this chunk through the shard's lock or the page table, which order this store.
        self.owners[first as usize / self.chunk].store(shard as u8, Ordering::Relaxed);
    }
}

/// Returns the home shard of a thread: one of the shards of its node. If there are fewer shards than nodes, any shard.
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
