//! Tournament tree over the groups that have a fiber that can run, ordered by the sort key of their first fiber. The
//! winner is the first fiber of all.
//!
//! A changed group is compared again on its path to the root. This is a fixed number of comparisons without a
//! data-dependent branch, so there is nothing for the processor to mispredict.

use super::{Candidate, SortKey};
use crate::group::GroupId;

/// Marks a group without a seat in the tournament.
const ABSENT: u32 = u32::MAX;

/// A group with its first fiber.
#[derive(Clone, Copy, Debug)]
struct Player {
    key: SortKey,
    group: GroupId,
    fiber: u32,
}

/// Empty seat: loses against all others.
const NO_PLAYER: Player = Player { key: SortKey::LAST, group: GroupId::NONE, fiber: 0 };

/// Tournament tree. See the module documentation.
#[derive(Debug)]
pub(super) struct GroupIndex {
    /// Winner of all at 1; players of the match at `i` at `2 * i` and `2 * i + 1`; seats in the upper half.
    matches: Vec<Player>,
    /// By group: its seat.
    seats: Vec<u32>,
    free: Vec<u32>,
}

impl Default for GroupIndex {
    fn default() -> GroupIndex {
        GroupIndex { matches: vec![NO_PLAYER; 2], seats: Vec::new(), free: vec![0] }
    }
}

impl GroupIndex {
    /// Returns the first fiber of all groups.
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

    /// Adds a group, or updates its first fiber.
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

    /// Doubles the number of seats; returns a free one.
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
