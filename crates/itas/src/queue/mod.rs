//! Run queue of a core, in two levels: groups ordered by their first fiber, and in each group its fibers ordered by
//! vruntime.
//!
//! The fiber with the highest priority is the first fiber of the first group. The sibling of a fiber is the first fiber
//! in the fiber's own group. Neither lookup needs a search, regardless of the number of groups and fibers.

mod index;

use std::collections::VecDeque;

use crate::group::GroupId;
use index::GroupIndex;

/// A fiber that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Group of the fiber.
    pub group: GroupId,
    /// Number of the fiber on its core.
    pub fiber: u32,
    /// Run time in nanoseconds, divided by the weight. A smaller value means a higher priority.
    pub vruntime: u64,
}

/// Sort key of a fiber in its group: vruntime, then order of arrival, packed into one number for a single comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey(u128);

impl SortKey {
    /// Sort key that is greater than the key of any fiber.
    const LAST: SortKey = SortKey(u128::MAX);

    #[inline]
    fn new(vruntime: u64, arrival: u64) -> SortKey {
        SortKey(u128::from(vruntime) << 64 | u128::from(arrival))
    }

    #[inline]
    fn vruntime(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

/// Run queue: the fibers of a core that can run, without the running fiber.
#[derive(Debug, Default)]
pub struct RunQueue {
    /// Fibers of each group in order of their keys, indexed by the number of the group. A fiber that has run is
    /// inserted at or near the end, and a fiber that wakes up at or near the front, so an insertion moves few other
    /// fibers.
    groups: Vec<VecDeque<(SortKey, u32)>>,
    order: GroupIndex,
    len: usize,
    arrivals: u64,
}

impl RunQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> RunQueue {
        RunQueue::default()
    }

    /// Returns the number of fibers in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a fiber to its group, behind the fibers with the same vruntime.
    #[inline]
    pub fn push(&mut self, candidate: Candidate) {
        let at = candidate.group.index();
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, VecDeque::new);
        }
        let key = SortKey::new(candidate.vruntime, self.arrivals);
        self.arrivals += 1;
        self.len += 1;
        let fibers = &mut self.groups[at];
        let is_first = fibers.front().is_none_or(|&(first, _)| key < first);
        if fibers.back().is_none_or(|&(last, _)| last < key) {
            fibers.push_back((key, candidate.fiber));
        } else {
            let at = fibers.partition_point(|&(other, _)| other < key);
            fibers.insert(at, (key, candidate.fiber));
        }
        if is_first {
            self.order.set(candidate.group, key, candidate.fiber);
        }
    }

    /// Returns the fiber with the highest priority of all groups.
    #[inline]
    #[must_use]
    pub fn highest(&self) -> Option<Candidate> {
        self.order.first()
    }

    /// Returns the fiber with the highest priority in `group`.
    #[inline]
    #[must_use]
    pub fn first_of(&self, group: GroupId) -> Option<Candidate> {
        let &(key, fiber) = self.groups.get(group.index())?.front()?;
        Some(Candidate { group, fiber, vruntime: key.vruntime() })
    }

    /// Returns the number of fibers of `group` in the queue.
    #[must_use]
    pub fn len_of(&self, group: GroupId) -> usize {
        self.groups.get(group.index()).map_or(0, VecDeque::len)
    }

    /// Removes the first fiber of `group` and returns it.
    #[inline]
    pub fn take_from(&mut self, group: GroupId) -> Option<Candidate> {
        let fibers = self.groups.get_mut(group.index())?;
        let (key, fiber) = fibers.pop_front()?;
        match fibers.front() {
            Some(&(next, fiber)) => self.order.set(group, next, fiber),
            None => self.order.remove(group),
        }
        self.len -= 1;
        Some(Candidate { group, fiber, vruntime: key.vruntime() })
    }

    /// Iterates over the groups with a fiber in the queue, in arbitrary order.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.order.groups()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the queue with a linearly searched list.
        #[test]
        fn is_a_list_sorted_by_vruntime(steps in proptest::collection::vec((0u32..6, 0u64..20, any::<bool>()), 1..300)) {
            let mut queue = RunQueue::new();
            let mut model: Vec<Candidate> = Vec::new();
            for (fiber, &(group, vruntime, takes)) in steps.iter().enumerate() {
                let group = GroupId::numbered(group);
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
                for group in (0..6).map(GroupId::numbered) {
                    let mut of_group = model.iter().filter(|c| c.group == group);
                    prop_assert_eq!(queue.len_of(group), of_group.clone().count());
                    prop_assert_eq!(queue.first_of(group), of_group.clone().min_by_key(|c| c.vruntime).copied());
                    prop_assert_eq!(queue.groups().any(|g| g == group), of_group.next().is_some());
                }
            }
        }
    }
}
