//! Selection of one or several threads for a transaction's loop, and of the epoch length.

use std::time::Instant;

use speculate::{Governor, Turn};

use crate::workload::settings::Speculate;

/// Selects the execution of one loop.
#[derive(Debug)]
pub struct LoopSelector {
    /// Numbers of iterations per epoch to try, starting with the default.
    grains: &'static [usize],
    /// Chooses the execution by measured times. `None` if the loop always runs on several threads, with the default epoch
    /// length.
    governor: Option<Governor>,
}

/// Decision about the loop execution of one transaction.
#[derive(Debug)]
pub struct Decision {
    /// Number of iterations per epoch; `None` for execution on one thread.
    pub grain: Option<usize>,
    turn: Option<(Turn, Instant)>,
}

impl LoopSelector {
    /// Creates the selector for a loop, according to the setting `how`. `grains` are the numbers of iterations per epoch to try,
    /// starting with the default.
    pub fn new(grains: &'static [usize], how: Speculate) -> LoopSelector {
        let governor = match how {
            // Choice 0 of the governor is execution on one thread; the others are epoch lengths.
            Speculate::Auto => Some(Governor::new(1 + grains.len())),
            Speculate::Off => Some(Governor::new(1)),
            Speculate::On => None,
        };
        LoopSelector { grains, governor }
    }

    /// Decides for the next transaction, which begins now.
    #[inline]
    pub fn decide(&mut self) -> Decision {
        let Some(governor) = &mut self.governor else {
            return Decision { grain: self.grains.first().copied(), turn: None };
        };
        let turn = governor.next_turn();
        let grain = turn.way().checked_sub(1).and_then(|way| self.grains.get(way)).copied();
        Decision { grain, turn: turn.is_timed().then(|| (turn, Instant::now())) }
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

    /// Returns the current choice: the number of iterations per epoch, or `None` for execution on one
    /// thread.
    pub fn chosen(&self) -> Option<usize> {
        match &self.governor {
            None => self.grains.first().copied(),
            Some(governor) => governor.chosen().checked_sub(1).and_then(|way| self.grains.get(way)).copied(),
        }
    }
}
