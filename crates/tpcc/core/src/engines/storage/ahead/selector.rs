//! Selection of speculative or in-order execution for a transaction's loop, and of the epoch length.

use std::time::Instant;

use speculate::{Governor, Turn};

use super::loops::TransactionLoop;
use crate::workload::settings::Speculate;

/// Selects the execution of one loop.
#[derive(Debug)]
pub struct LoopSelector {
    of: TransactionLoop,
    /// `None`: the loop always runs ahead, with the usual epoch length.
    governor: Option<Governor>,
}

/// Decision for one transaction.
#[derive(Debug)]
pub struct Decision {
    /// Number of iterations per epoch; `None` for in-order execution.
    pub grain: Option<usize>,
    turn: Option<(Turn, Instant)>,
}

impl LoopSelector {
    /// Creates the selector for a loop and a setting.
    pub fn new(of: TransactionLoop, how: Speculate) -> LoopSelector {
        let governor = match how {
            // Way 0 is in-order execution.
            Speculate::Auto => Some(Governor::new(1 + of.grains().len())),
            Speculate::Off => Some(Governor::new(1)),
            Speculate::On => None,
        };
        LoopSelector { of, governor }
    }

    /// Decides for the next transaction, which begins now.
    #[inline]
    pub fn decide(&mut self) -> Decision {
        let Some(governor) = &mut self.governor else {
            return Decision { grain: Some(self.of.default_grain()), turn: None };
        };
        let turn = governor.next_turn();
        let grain = turn.way().checked_sub(1).and_then(|way| self.of.grains().get(way)).copied();
        Decision { grain, turn: turn.is_timed().then(|| (turn, Instant::now())) }
    }

    /// Records that the transaction of `decision` has run to its end, with `items` iterations of its loop.
    #[inline]
    pub fn record(&mut self, decision: &Decision, items: u64) {
        if let (Some(governor), Some((turn, begun))) = (&mut self.governor, decision.turn) {
            governor.took(turn, begun.elapsed(), items);
        }
    }

    /// Number of transactions before the first choice.
    pub fn warm_up(&self) -> u64 {
        self.governor.as_ref().map_or(0, Governor::warm_up)
    }

    /// Current choice: the number of iterations per epoch, or `None` for in-order execution.
    pub fn chosen(&self) -> Option<usize> {
        match &self.governor {
            None => Some(self.of.default_grain()),
            Some(governor) => governor.chosen().checked_sub(1).and_then(|way| self.of.grains().get(way)).copied(),
        }
    }
}
