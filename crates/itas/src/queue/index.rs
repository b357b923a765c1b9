//! The groups that have a fiber that can run, by the place of their first: a binary heap whose entries can be moved.

use super::Place;
use crate::group::GroupId;

/// No place in the heap.
const ABSENT: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GroupIndex {
    heap: Vec<(Place, u32)>,
    /// By group: where it is in the heap.
    at: Vec<u32>,
}

impl GroupIndex {
    /// The group whose first fiber has the smallest place.
    #[inline]
    pub(super) fn first(&self) -> Option<GroupId> {
        self.heap.first().map(|&(_, group)| GroupId(group))
    }

    /// All groups in it.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.heap.iter().map(|&(_, group)| GroupId(group))
    }

    /// Adds a group, or moves it: `place` is its first fiber's.
    #[inline]
    pub(super) fn set(&mut self, group: GroupId, place: Place) {
        if group.index() >= self.at.len() {
            self.at.resize(group.index() + 1, ABSENT);
        }
        let at = self.at[group.index()];
        let at = if at == ABSENT {
            self.heap.push((place, group.0));
            self.heap.len() - 1
        } else {
            self.heap[at as usize].0 = place;
            at as usize
        };
        let at = self.rise(at);
        self.sink(at);
    }

    /// Takes a group out.
    #[inline]
    pub(super) fn remove(&mut self, group: GroupId) {
        let Some(slot) = self.at.get_mut(group.index()) else { return };
        let at = std::mem::replace(slot, ABSENT);
        if at == ABSENT {
            return;
        }
        let at = at as usize;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            let at = self.rise(at);
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 && entry.0 < self.heap[(at - 1) / 2].0 {
            self.place(at, self.heap[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        self.place(at, entry);
        at
    }

    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let left = 2 * at + 1;
            let child = match (self.heap.get(left), self.heap.get(left + 1)) {
                (Some(l), Some(r)) if r.0 < l.0 => left + 1,
                (Some(_), _) => left,
                _ => break,
            };
            if entry.0 <= self.heap[child].0 {
                break;
            }
            self.place(at, self.heap[child]);
            at = child;
        }
        self.place(at, entry);
    }

    #[inline]
    fn place(&mut self, at: usize, entry: (Place, u32)) {
        self.heap[at] = entry;
        self.at[entry.1 as usize] = at as u32;
    }
}
