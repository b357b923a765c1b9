//! Consolidation of small teams of one family into one (paper 4.1.2: "consolidate teams from different indices").
//!
//! A review every [`PERIOD`] launches computes the mean number of fibers that each operation contributes to a team.
//! Operations below the threshold share the team of the first such operation of their family, if there are at least two
//! such operations. An operation whose mean has grown gets its own team back. Consolidation trades code overlap for
//! team size.

use std::cell::Cell;

/// Number of launches between two reviews of the assignment of operations to teams.
const PERIOD: u64 = 256;

#[derive(Debug)]
pub(crate) struct Groups {
    families: Vec<u8>,
    below: f64,
    team: Box<[Cell<u8>]>,
    begun: Box<[Cell<u32>]>,
    launched: Box<[Cell<u32>]>,
    next_review: Cell<u64>,
}

impl Groups {
    /// Creates the groups, with one team per operation; a threshold `below` of 0 disables consolidation.
    pub(crate) fn new(families: Vec<u8>, below: f64) -> Groups {
        let n = families.len();
        Groups {
            families,
            below,
            team: (0..n).map(|op| Cell::new(op as u8)).collect(),
            begun: (0..n).map(|_| Cell::new(0)).collect(),
            launched: (0..n).map(|_| Cell::new(0)).collect(),
            next_review: Cell::new(PERIOD),
        }
    }

    /// Returns the number of the team of an operation.
    pub(crate) fn of(&self, operation: u8) -> u8 {
        self.team[operation as usize].get()
    }

    pub(crate) fn count_begun(&self, operation: u8) {
        let count = &self.begun[operation as usize];
        count.set(count.get().saturating_add(1));
    }

    pub(crate) fn count_launch(&self, operation: u8) {
        let count = &self.launched[operation as usize];
        count.set(count.get().saturating_add(1));
    }

    /// Returns the number of operations that share a team with another operation.
    pub(crate) fn consolidated(&self) -> usize {
        let shared = |at: usize| {
            self.team.iter().enumerate().any(|(other, team)| other != at && team.get() == self.team[at].get())
        };
        (0..self.team.len()).filter(|&at| shared(at)).count()
    }

    /// Assigns operations to teams again if a review is due at launch number `now`.
    pub(crate) fn review(&self, now: u64) {
        if self.below <= 0.0 || now < self.next_review.get() {
            return;
        }
        self.next_review.set(now + PERIOD);
        for (operation, &family) in self.families.iter().enumerate() {
            let leader = self.families.iter().enumerate().find(|&(at, of)| *of == family && self.is_small(at));
            let team = match leader {
                Some((leader, _)) if self.is_small(operation) => leader,
                _ => operation,
            };
            self.team[operation].set(team as u8);
        }
        self.begun.iter().chain(&self.launched).for_each(|count| count.set(0));
    }

    /// Returns true if an operation contributed few fibers to its teams. For an operation that did not run, the earlier
    /// result remains.
    fn is_small(&self, operation: usize) -> bool {
        let (begun, launched) = (self.begun[operation].get(), self.launched[operation].get());
        if launched == 0 {
            return self.team[operation].get() as usize != operation;
        }
        f64::from(begun) / f64::from(launched) < self.below
    }
}
