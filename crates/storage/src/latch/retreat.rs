//! Retreat of a writer that has lost a page to another writer.
//!
//! If two threads write one page in turn, each write first fetches the page's cache lines from the other core. This takes
//! longer than the write itself. So a writer that finds its page changed pauses for the time of several writes. Meanwhile
//! the other writer continues with the lines in its own cache.

use crate::base::sync::yield_now;

/// Number of spins of one round of a pause: one to three microseconds, depending on the processor.
const SPINS: u32 = 64;
/// Maximum number of times that the length of a pause doubles.
const MOST_DOUBLINGS: u32 = 4;
/// Number of transactions without a loss after which a pause has one round again.
const QUIET: u64 = 64;

/// Pauses of a writer that loses pages. Their length doubles with losses that follow each other closely, up to a maximum.
#[derive(Debug, Default)]
pub(crate) struct Retreat {
    doublings: u32,
    /// Number of the transaction at the last loss.
    last: u64,
}

impl Retreat {
    /// Pauses after the loss of a page. `transaction`: number of the running transaction, which never decreases from call to
    /// call. The thread holds no latch.
    #[cold]
    #[inline(never)]
    pub(crate) fn pause(&mut self, transaction: u64) {
        let rounds = self.rounds(transaction);
        // Under a checker no state changes until another thread runs.
        if cfg!(any(loom, shuttle)) {
            return yield_now();
        }
        for _ in 0..rounds {
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            // A thread that does useful work may need this core.
            yield_now();
        }
    }

    /// Counts a loss. Returns the number of rounds of the pause that follows.
    fn rounds(&mut self, transaction: u64) -> u32 {
        if transaction.saturating_sub(self.last) > QUIET {
            self.doublings = 0;
        }
        let rounds = 1 << self.doublings;
        *self = Retreat { doublings: (self.doublings + 1).min(MOST_DOUBLINGS), last: transaction };
        rounds
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_losses_that_follow_each_other() {
        let mut retreat = Retreat::default();
        let rounds = [5, 5, 6, 6 + QUIET, 7 + QUIET, 8 + QUIET].map(|transaction| retreat.rounds(transaction));
        assert_eq!(rounds, [1, 2, 4, 8, 16, 16]);
        assert_eq!([9 + 2 * QUIET, 9 + 2 * QUIET].map(|transaction| retreat.rounds(transaction)), [1, 2]);
    }
}
