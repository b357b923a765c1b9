//! A core's runqueue, in two levels: groups by their first fiber, and in each group its fibers by vruntime.
//!
//! The fiber with the highest priority is the first of the first group; the sibling of a fiber is the first of its own
//! group. Both are looked up without a search, whatever the number of groups and fibers.

mod index;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::group::GroupId;
use index::GroupIndex;

/// A fiber that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its group.
    pub group: GroupId,
    /// Its number on its core.
    pub fiber: u32,
    /// Time that it has run, in nanoseconds, divided by its weight: the smaller, the higher its priority.
    pub vruntime: u64,
}

/// Where a fiber stands in its group: vruntime, then order of arrival.
type Place = (u64, u64);

/// The fibers of a core that can run and do not.
#[derive(Debug, Default)]
pub struct RunQueue {
    groups: Vec<BinaryHeap<Reverse<(Place, u32)>>>,
    order: GroupIndex,
    len: usize,
    arrivals: u64,
}

impl RunQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> RunQueue {
        RunQueue::default()
    }

    /// Fibers in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no fiber is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a fiber; it comes after those of the same vruntime.
    pub fn push(&mut self, candidate: Candidate) {
        let at = candidate.group.index();
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, BinaryHeap::new);
        }
        let place = (candidate.vruntime, self.arrivals);
        self.arrivals += 1;
        self.len += 1;
        let group = &mut self.groups[at];
        let is_first = group.peek().is_none_or(|Reverse((first, _))| place < *first);
        group.push(Reverse((place, candidate.fiber)));
        if is_first {
            self.order.set(candidate.group, place);
        }
    }

    /// The fiber with the highest priority of all.
    #[must_use]
    pub fn highest(&self) -> Option<Candidate> {
        self.first_of(self.order.first()?)
    }

    /// The fiber with the highest priority in `group`.
    #[must_use]
    pub fn first_of(&self, group: GroupId) -> Option<Candidate> {
        let Reverse(((vruntime, _), fiber)) = *self.groups.get(group.index())?.peek()?;
        Some(Candidate { group, fiber, vruntime })
    }

    /// Fibers of `group` in the queue.
    #[must_use]
    pub fn len_of(&self, group: GroupId) -> usize {
        self.groups.get(group.index()).map_or(0, BinaryHeap::len)
    }

    /// Takes out the first fiber of `group`.
    pub fn take_from(&mut self, group: GroupId) -> Option<Candidate> {
        let heap = self.groups.get_mut(group.index())?;
        let Reverse(((vruntime, _), fiber)) = heap.pop()?;
        match heap.peek() {
            Some(Reverse((place, _))) => self.order.set(group, *place),
            None => self.order.remove(group),
        }
        self.len -= 1;
        Some(Candidate { group, fiber, vruntime })
    }

    /// Groups with a fiber in the queue, in no order.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.order.groups()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list that is searched.
        #[test]
        fn is_a_list_sorted_by_vruntime(steps in proptest::collection::vec((0u32..6, 0u64..20, any::<bool>()), 1..300)) {
            let mut queue = RunQueue::new();
            let mut model: Vec<Candidate> = Vec::new();
            for (fiber, &(group, vruntime, takes)) in steps.iter().enumerate() {
                let group = GroupId(group);
                if takes {
                    let first = model.iter().enumerate().filter(|(_, c)| c.group == group).min_by_key(|(_, c)| c.vruntime);
                    let expected = first.map(|(at, _)| at).map(|at| model.remove(at));
                    prop_assert_eq!(queue.take_from(group), expected);
                } else {
                    let candidate = Candidate { group, fiber: fiber as u32, vruntime };
                    queue.push(candidate);
                    model.push(candidate);
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.highest(), model.iter().min_by_key(|c| c.vruntime).copied());
                for group in (0..6).map(GroupId) {
                    let mut of_group = model.iter().filter(|c| c.group == group);
                    prop_assert_eq!(queue.len_of(group), of_group.clone().count());
                    prop_assert_eq!(queue.first_of(group), of_group.clone().min_by_key(|c| c.vruntime).copied());
                    prop_assert_eq!(queue.groups().any(|g| g == group), of_group.next().is_some());
                }
            }
        }
    }
}
