//! Queues of fibers that wait for their teams, with the launch count at which each team began to wait.

use std::cell::Cell;

use super::stats::add;
use crate::fifo::{Fifo, Links};
use crate::point::OperationId;

/// Team that waits to be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingTeam {
    /// Operation of the team; for a consolidated team, one of its operations.
    pub operation: OperationId,
    /// Number of waiting fibers, including those beyond the team size.
    pub members: usize,
    /// Number of launches since the first member joined.
    pub waited: u64,
}

/// Waiting teams by number, at most 64. The number of a team is the index of its operation, or of the operation that
/// represents a consolidated family.
#[derive(Debug)]
pub(crate) struct Queues {
    waiting: Box<[Fifo]>,
    /// Bit mask of the queues in `waiting` that are not empty.
    occupied: Cell<u64>,
    /// Launch count at the time when the first member of each team joined.
    since: Box<[Cell<u64>]>,
    launches: Cell<u64>,
}

impl Queues {
    pub(super) fn new(teams: usize) -> Queues {
        Queues {
            waiting: (0..teams).map(|_| Fifo::new()).collect(),
            occupied: Cell::new(0),
            since: (0..teams).map(|_| Cell::new(0)).collect(),
            launches: Cell::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of launches so far, which is the clock that measures waits of teams.
    pub(super) fn now(&self) -> u64 {
        self.launches.get()
    }

    /// Counts a launch.
    pub(super) fn count_launch(&self) {
        add(&self.launches, 1);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.occupied.get() == 0
    }

    pub(super) fn has(&self, team: u8) -> bool {
        team < 64 && self.occupied.get() >> team & 1 == 1
    }

    pub(super) fn push(&self, links: &impl Links, team: u8, index: u32) {
        let waiting = &self.waiting[team as usize];
        if waiting.len() == 0 {
            self.since[team as usize].set(self.now());
            self.occupied.set(self.occupied.get() | 1 << team);
        }
        waiting.push(links, index);
    }

    pub(super) fn pop(&self, links: &impl Links, team: u8) -> Option<u32> {
        self.waiting[team as usize].pop(links)
    }

    /// Updates the state of `team` after members have left. The wait of the team restarts at the join time of its new
    /// first member, which `joined` returns.
    pub(super) fn members_left(&self, team: u8, joined: impl Fn(u32) -> u64) {
        match self.waiting[team as usize].first() {
            Some(next) => self.since[team as usize].set(joined(next)),
            None => self.occupied.set(self.occupied.get() & !(1 << team)),
        }
    }

    /// Iterates over the waiting teams, in the order of their numbers.
    pub(super) fn waiting(&self) -> impl Iterator<Item = WaitingTeam> {
        let mut left = self.occupied.get();
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let team = left.trailing_zeros() as u8;
            left &= left - 1;
            Some(WaitingTeam {
                operation: OperationId(team),
                members: self.waiting[team as usize].len() as usize,
                waited: self.now() - self.since[team as usize].get(),
            })
        })
    }
}
