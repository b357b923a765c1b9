//! Whether a transaction's loop runs ahead of it, and in epochs of how many iterations.

use std::time::Instant;

use speculate::{Governor, Turn};

use super::loops::TransactionLoop;
use crate::workload::settings::Speculate;

/// Decides for one loop.
#[derive(Debug)]
pub struct Governed {
    of: TransactionLoop,
    /// None: always ahead, in the usual epochs.
    governor: Option<Governor>,
}

/// What was decided for one transaction.
#[derive(Debug)]
pub struct Decision {
    /// Iterations of an epoch; none if it runs in order.
    pub grain: Option<usize>,
    turn: Option<(Turn, Instant)>,
}

impl Governed {
    /// For a loop, as asked.
    pub fn new(of: TransactionLoop, how: Speculate) -> Governed {
        let governor = match how {
            // The first way is in order.
            Speculate::Auto => Some(Governor::new(1 + of.grains().len())),
            Speculate::Off => Some(Governor::new(1)),
            Speculate::On => None,
        };
        Governed { of, governor }
    }

    /// Decides for the next transaction, which begins now.
    #[inline]
    pub fn decide(&mut self) -> Decision {
        let Some(governor) = &mut self.governor else {
            return Decision { grain: Some(self.of.usual_grain()), turn: None };
        };
        let turn = governor.next_turn();
        let grain = turn.way().checked_sub(1).and_then(|way| self.of.grains().get(way)).copied();
        Decision { grain, turn: turn.is_timed().then(|| (turn, Instant::now())) }
    }

    /// The transaction has run to its end: so many iterations.
    #[inline]
    pub fn ended(&mut self, decision: &Decision, items: u64) {
        if let (Some(governor), Some((turn, begun))) = (&mut self.governor, decision.turn) {
            governor.took(turn, begun.elapsed(), items);
        }
    }

    /// Transactions until it has made up its mind.
    pub fn warm_up(&self) -> u64 {
        self.governor.as_ref().map_or(0, Governor::warm_up)
    }

    /// What it has decided for now: iterations of an epoch; none in order.
    pub fn chosen(&self) -> Option<usize> {
        match &self.governor {
            None => Some(self.of.usual_grain()),
            Some(governor) => governor.chosen().checked_sub(1).and_then(|way| self.of.grains().get(way)).copied(),
        }
    }
}
