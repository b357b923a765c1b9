//! End of a transaction that has handled large values: removes unreferenced chains, and frees the memory of the slot's
//! buffers.

use super::slot_state::SlotState;
use super::transaction::Txn;

/// Maximum number of chunks that the end of a transaction removes itself. The remaining chunks are removed like other
/// ghosts.
const MAX_FREED_CHUNKS: usize = 1 << 20;
/// Maximum capacity in bytes of a slot's buffer that is kept after the end of a transaction.
const MAX_KEPT_BYTES: usize = 64 << 10;

impl Txn<'_> {
    /// Removes unreferenced chains. Called once the transaction has ended. Chains that cannot be removed here are removed
    /// later like other ghosts.
    #[cold]
    pub(super) fn free_chains(&mut self, committed: bool) {
        let engine = self.engine;
        let state = self.slot.state();
        let mut left = MAX_FREED_CHUNKS;
        for (tree, chain, chunks) in state.chains.unwanted(committed) {
            if chunks > left || engine.pool.is_closed() {
                continue;
            }
            left -= chunks;
            if tree.free_chain(engine.structure_change(state.id), &mut state.rec, chain, chunks).is_err() {
                left = 0;
            }
        }
        state.handled_large = false;
        state.shrink();
    }
}

impl SlotState {
    /// Frees the memory of buffers that held large values.
    fn shrink(&mut self) {
        for buffer in [
            &mut self.key,
            &mut self.entry,
            &mut self.encoded.key,
            &mut self.encoded.row,
            &mut self.before,
            &mut self.after,
            &mut self.heads,
            &mut self.large,
        ] {
            if buffer.capacity() > MAX_KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}
