//! Selection of one or several threads for a transaction's loop, and of the length of its epochs.

use std::time::Instant;

use speculate::{Governor, Turn};

use super::EpochLength;
use crate::workload::settings::Speculate;

/// Selects the execution of one loop.
#[derive(Debug)]
pub struct LoopSelector {
    /// Lengths of epochs to try, starting with the default.
    lengths: Vec<EpochLength>,
    /// Chooses the execution by measured times. `None` if the loop always runs on several threads, with the default epoch
    /// length.
    governor: Option<Governor>,
}

/// Decision about the loop execution of one transaction.
#[derive(Debug)]
pub struct Decision {
    /// Length of the epochs; `None` for execution on one thread, without epochs.
    pub length: Option<EpochLength>,
    turn: Option<(Turn, Instant)>,
}

impl LoopSelector {
    /// Creates the selector for a loop with epochs of one of these lengths, the first of which is the default, according to the
    /// setting `how`.
    pub fn new(lengths: Vec<EpochLength>, how: Speculate) -> LoopSelector {
        let governor = match how {
            // Choice 0 of the governor is execution on one thread; the others are epoch lengths.
            Speculate::Auto => Some(Governor::new(1 + lengths.len())),
            Speculate::Off => Some(Governor::new(1)),
            Speculate::On => None,
        };
        LoopSelector { lengths, governor }
    }

    /// Decides for the next transaction, which begins now.
    #[inline]
    pub fn decide(&mut self) -> Decision {
        let Some(governor) = &mut self.governor else {
            return Decision { length: self.lengths.first().copied(), turn: None };
        };
        let turn = governor.next_turn();
        let length = turn.way().checked_sub(1).and_then(|way| self.lengths.get(way)).copied();
        Decision { length, turn: turn.is_timed().then(|| (turn, Instant::now())) }
    }

    /// Records that the transaction of `decision` has run to its end, with `items` iterations of its loop.
    #[inline]
    pub fn record(&mut self, decision: &Decision, items: u64) {
        if let (Some(governor), Some((turn, begun))) = (&mut self.governor, decision.turn) {
            governor.took(turn, begun.elapsed(), items);
        }
    }

    /// Returns the number of transactions before the selector makes its first choice.
    pub fn warm_up(&self) -> u64 {
        self.governor.as_ref().map_or(0, Governor::warm_up)
    }

    /// Returns the current choice: the length of the epochs, or `None` for execution on one thread.
    pub fn chosen(&self) -> Option<EpochLength> {
        match &self.governor {
            None => self.lengths.first().copied(),
            Some(governor) => governor.chosen().checked_sub(1).and_then(|way| self.lengths.get(way)).copied(),
        }
    }
}
