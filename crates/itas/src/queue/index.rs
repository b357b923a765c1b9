//! Tournament tree over the groups that have a fiber that can run, ordered by the sort key of each group's first fiber.
//! The winner is the first fiber of all groups.
//!
//! After a change of a group's first fiber, the matches on the group's path to the root are played again. This is a
//! fixed number of comparisons without a data-dependent branch, so the processor mispredicts no branch.

use super::{Candidate, SortKey};
use crate::group::GroupId;

/// Value in `seats` of a group that is not in the tournament.
const ABSENT: u32 = u32::MAX;

/// Player of the tournament: a group with its first fiber.
#[derive(Clone, Copy, Debug)]
struct Player {
    key: SortKey,
    group: GroupId,
    fiber: u32,
}

/// Player in an empty seat: loses against all others.
const NO_PLAYER: Player = Player { key: SortKey::LAST, group: GroupId::NONE, fiber: 0 };

/// Tournament tree. See the module documentation.
#[derive(Debug)]
pub(super) struct GroupIndex {
    /// Heap of the tournament: index 1 holds the winner of all matches, indexes `2 * i` and `2 * i + 1` hold the
    /// players of the match at index `i`, and the upper half holds the seats.
    matches: Vec<Player>,
    /// Seat of each group, indexed by the number of the group.
    seats: Vec<u32>,
    free: Vec<u32>,
}

impl Default for GroupIndex {
    fn default() -> GroupIndex {
        GroupIndex { matches: vec![NO_PLAYER; 2], seats: Vec::new(), free: vec![0] }
    }
}

impl GroupIndex {
    /// Returns the first fiber of all groups, which has the highest priority.
    #[inline]
    pub(super) fn first(&self) -> Option<Candidate> {
        let Player { key, group, fiber } = self.matches[1];
        (key != SortKey::LAST).then(|| Candidate { group, fiber, vruntime: key.vruntime() })
    }

    /// Iterates over all groups in the tree.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> {
        let seats = &self.matches[self.matches.len() / 2..];
        seats.iter().filter(|player| player.key != SortKey::LAST).map(|player| player.group)
    }

    /// Adds a group with its first fiber, or updates the first fiber of a group in the tree.
    #[inline]
    pub(super) fn set(&mut self, group: GroupId, key: SortKey, fiber: u32) {
        let seat = match self.seats.get(group.index()) {
            Some(&seat) if seat != ABSENT => seat,
            _ => self.admit(group),
        };
        self.play(seat, Player { key, group, fiber });
    }

    /// Removes a group.
    #[inline]
    pub(super) fn remove(&mut self, group: GroupId) {
        let Some(slot) = self.seats.get_mut(group.index()) else { return };
        let seat = std::mem::replace(slot, ABSENT);
        if seat != ABSENT {
            self.free.push(seat);
            self.play(seat, NO_PLAYER);
        }
    }

    /// Assigns a free seat to a group.
    fn admit(&mut self, group: GroupId) -> u32 {
        if group.index() >= self.seats.len() {
            self.seats.resize(group.index() + 1, ABSENT);
        }
        let seat = self.free.pop().unwrap_or_else(|| self.double());
        self.seats[group.index()] = seat;
        seat
    }

    /// Doubles the number of seats and returns a free seat.
    fn double(&mut self) -> u32 {
        let seats = self.matches.len() / 2;
        let players = self.matches.split_off(seats);
        self.matches = vec![NO_PLAYER; 4 * seats];
        for (seat, player) in players.into_iter().enumerate() {
            self.play(seat as u32, player);
        }
        self.free.extend((seats as u32 + 1..2 * seats as u32).rev());
        seats as u32
    }

    #[inline]
    fn play(&mut self, seat: u32, mut winner: Player) {
        let mut at = self.matches.len() / 2 + seat as usize;
        self.matches[at] = winner;
        while at > 1 {
            let other = self.matches[at ^ 1];
            winner = if other.key < winner.key { other } else { winner };
            at /= 2;
            self.matches[at] = winner;
        }
    }
}
