//! Decision whether the loops of a session run on several threads at all.
//!
//! A loop on several threads moves the cache lines that it has changed to other cores, and its waiting threads take time from
//! the services. Both make the transactions after it slower, which the time of the loop's own transaction does not show. The
//! session therefore compares the times of whole windows of transactions of all kinds.

use std::time::{Duration, Instant};

use speculate::{Governor, Turn};

use crate::workload::settings::Speculate;

/// Number of transactions of a window: some decks of cards, so that windows have the same mix.
const WINDOW: u32 = 230;
/// Numbers of windows between two trials: at least, and at most.
const PAUSES: (u32, u32) = (64, 4096);

/// Decides for windows of a session's transactions.
#[derive(Debug)]
pub(super) struct SessionGovernor {
    /// Way 1 lets loops run on several threads. `None` if they always do.
    governor: Option<Governor>,
    turn: Option<Turn>,
    /// Number of transactions to the end of the window.
    left: u32,
    /// Time of the window's transactions, if it is measured.
    time: Duration,
    begun: Option<Instant>,
}

impl SessionGovernor {
    pub(super) fn new(how: Speculate) -> SessionGovernor {
        let governor = (how == Speculate::Auto).then(|| Governor::new(2).pauses(PAUSES.0, PAUSES.1));
        SessionGovernor { governor, turn: None, left: 0, time: Duration::ZERO, begun: None }
    }

    /// Records that a transaction begins now; not called for another attempt. Returns true if its loop may run on several threads.
    #[inline]
    pub(super) fn begin(&mut self) -> bool {
        let Some(governor) = &mut self.governor else { return true };
        if self.left == 0 {
            if let Some(turn) = self.turn {
                governor.took(turn, self.time, WINDOW.into());
            }
            self.turn = Some(governor.next_turn());
            (self.left, self.time) = (WINDOW, Duration::ZERO);
        }
        self.left -= 1;
        let turn = self.turn;
        self.begun = turn.filter(|turn| turn.is_timed()).map(|_| Instant::now());
        turn.is_some_and(|turn| turn.way() == 1)
    }

    /// Records that the transaction has ended.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.time += begun.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs transactions that take `us(several)` microseconds. Returns the share of those whose loop ran on several threads,
    /// after the first choice. The rest are trials.
    fn share_on_several(us: impl Fn(bool) -> u64) -> f64 {
        let mut governor = SessionGovernor::new(Speculate::Auto);
        let (mut several, mut all) = (0, 0);
        for n in 0..500 * WINDOW {
            let allowed = governor.begin();
            // The time of the window is set directly, so that the test does not depend on the machine.
            governor.time += Duration::from_micros(us(allowed));
            governor.begun = None;
            governor.end();
            if n >= 100 * WINDOW {
                several += u32::from(allowed);
                all += 1;
            }
        }
        f64::from(several) / f64::from(all)
    }

    #[test]
    fn loops_run_on_several_threads_only_where_all_transactions_gain() {
        assert!(share_on_several(|several| if several { 14 } else { 12 }) < 0.1);
        assert!(share_on_several(|several| if several { 10 } else { 12 }) > 0.9);
        let mut always = SessionGovernor::new(Speculate::On);
        assert!((0..1000).all(|_| always.begin()));
    }
}
