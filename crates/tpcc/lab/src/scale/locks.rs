//! Record locks of a replay: FIFO queues, and the search for deadlocks.

use std::collections::{HashMap, VecDeque};

/// Number of a fiber or thread that runs transactions.
pub(super) type FiberId = usize;

/// A held or requested lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    fiber: FiberId,
    is_exclusive: bool,
}

impl Request {
    fn excludes(self, other: Request) -> bool {
        self.fiber != other.fiber && (self.is_exclusive || other.is_exclusive)
    }
}

/// Holders of one lock, and the requests that wait for it in order of arrival.
#[derive(Clone, Default, Debug)]
struct LockQueue {
    holders: Vec<Request>,
    waiters: VecDeque<Request>,
}

impl LockQueue {
    /// Grants requests from the front of the queue. Returns their fibers.
    fn grant(&mut self) -> Vec<FiberId> {
        let mut granted = Vec::new();
        while let Some(&first) = self.waiters.front() {
            if self.holders.iter().any(|holder| holder.excludes(first)) {
                break;
            }
            self.waiters.pop_front();
            self.holders.push(first);
            granted.push(first.fiber);
        }
        granted
    }
}

/// All locks that are held or requested.
#[derive(Default, Debug)]
pub(super) struct LockQueues {
    queues: HashMap<u64, LockQueue>,
    /// The lock for which a fiber waits.
    waits_for: HashMap<FiberId, u64>,
}

impl LockQueues {
    /// Requests a lock. Returns true if it is granted or held already; otherwise the fiber waits.
    pub(super) fn request(&mut self, name: u64, fiber: FiberId, is_exclusive: bool) -> bool {
        let request = Request { fiber, is_exclusive };
        let queue = self.queues.entry(name).or_default();
        if queue.holders.iter().any(|holder| holder.fiber == fiber) {
            return true;
        }
        if queue.holders.iter().chain(&queue.waiters).any(|other| other.excludes(request)) {
            queue.waiters.push_back(request);
            self.waits_for.insert(fiber, name);
            return false;
        }
        queue.holders.push(request);
        true
    }

    /// Releases a lock, or withdraws the request for it. Returns the fibers whose requests are granted now.
    pub(super) fn release(&mut self, name: u64, fiber: FiberId) -> Vec<FiberId> {
        let Some(queue) = self.queues.get_mut(&name) else { return Vec::new() };
        queue.holders.retain(|holder| holder.fiber != fiber);
        queue.waiters.retain(|waiter| waiter.fiber != fiber);
        let granted = queue.grant();
        if queue.holders.is_empty() && queue.waiters.is_empty() {
            self.queues.remove(&name);
        }
        if self.waits_for.get(&fiber) == Some(&name) {
            self.waits_for.remove(&fiber);
        }
        self.waits_for.retain(|fiber, _| !granted.contains(fiber));
        granted
    }

    /// Returns the lock for which a fiber waits.
    pub(super) fn awaited(&self, fiber: FiberId) -> Option<u64> {
        self.waits_for.get(&fiber).copied()
    }

    /// Returns the fibers for which a waiting fiber waits: holders and earlier waiters that exclude its request.
    fn blockers(&self, fiber: FiberId) -> Vec<FiberId> {
        let Some(queue) = self.waits_for.get(&fiber).and_then(|name| self.queues.get(name)) else { return Vec::new() };
        let Some(at) = queue.waiters.iter().position(|waiter| waiter.fiber == fiber) else { return Vec::new() };
        let own = queue.waiters[at];
        let before = queue.holders.iter().chain(queue.waiters.iter().take(at));
        before.filter(|other| other.excludes(own)).map(|other| other.fiber).collect()
    }

    /// Returns the fibers of a cycle of waits through `fiber`, if there is one.
    pub(super) fn cycle(&self, fiber: FiberId) -> Option<Vec<FiberId>> {
        let mut came_from: HashMap<FiberId, FiberId> = HashMap::new();
        let mut open = VecDeque::from([fiber]);
        while let Some(at) = open.pop_front() {
            for next in self.blockers(at) {
                if next == fiber {
                    let mut cycle = vec![at];
                    let mut at = at;
                    while at != fiber {
                        at = *came_from.get(&at)?;
                        cycle.push(at);
                    }
                    return Some(cycle);
                }
                if let std::collections::hash_map::Entry::Vacant(new) = came_from.entry(next) {
                    new.insert(at);
                    open.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_readers_behind_it_wait_too() {
        let mut locks = LockQueues::default();
        assert!(locks.request(7, 0, false) && locks.request(7, 1, false), "two readers");
        assert!(!locks.request(7, 2, true));
        assert!(!locks.request(7, 3, false), "no reader overtakes the writer");
        assert!(locks.request(8, 3, true), "another lock");
        assert!(locks.release(7, 0).is_empty());
        assert_eq!(locks.release(7, 1), [2]);
        assert_eq!((locks.awaited(2), locks.awaited(3)), (None, Some(7)));
        assert_eq!(locks.release(7, 2), [3]);
        assert!(locks.request(7, 3, false), "held already");
        assert!(locks.release(7, 3).is_empty());
        assert!(locks.queues.len() == 1 && locks.waits_for.is_empty());
    }

    #[test]
    fn a_withdrawn_request_lets_others_pass() {
        let mut locks = LockQueues::default();
        assert!(locks.request(7, 0, false));
        assert!(!locks.request(7, 1, true) && !locks.request(7, 2, false));
        assert_eq!(locks.release(7, 1), [2]);
    }

    #[test]
    fn a_cycle_is_found_through_a_queue() {
        let mut locks = LockQueues::default();
        assert!(locks.request(1, 0, true) && locks.request(2, 1, true) && locks.request(3, 2, true));
        assert!(!locks.request(2, 0, true));
        assert_eq!(locks.cycle(0), None);
        assert!(!locks.request(3, 1, true));
        assert!(!locks.request(1, 2, true));
        let mut cycle = locks.cycle(2).unwrap();
        cycle.sort_unstable();
        assert_eq!(cycle, [0, 1, 2]);
        assert!(!locks.request(3, 9, true));
        assert_eq!(locks.cycle(9), None, "it waits for the cycle, but is not in it");
    }
}
