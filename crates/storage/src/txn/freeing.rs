//! The end of a transaction that has handled large values: chains that nothing refers to are taken out, and the memory of
//! its slot's buffers is given back.

use super::slot_state::SlotState;
use super::transaction::Txn;

/// Chunks that the end of a transaction takes out by itself. Those beyond are removed as ghosts are.
const MOST_FREED: usize = 1 << 20;
/// A buffer of a slot that has grown beyond this is given back when its transaction ends.
const MOST_KEPT: usize = 64 << 10;

impl Txn<'_> {
    /// Once the transaction has ended. What fails here is left to be removed with other ghosts.
    #[cold]
    pub(super) fn free_chains(&mut self, committed: bool) {
        let engine = self.engine;
        let state = self.slot.state();
        let mut left = MOST_FREED;
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
    /// Gives back the memory of buffers that held large values.
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
            if buffer.capacity() > MOST_KEPT {
                *buffer = Vec::new();
            }
        }
    }
}
