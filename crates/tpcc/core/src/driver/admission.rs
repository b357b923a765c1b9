//! In which order a worker admits the transactions of its terminals.

use std::collections::VecDeque;

use super::terminal::Terminal;

/// Terminals that wait for their worker.
pub trait Ready {
    /// Takes in a terminal that has its answer.
    fn push(&mut self, index: u32, terminal: &mut Terminal);

    /// The terminal whose turn it is.
    fn pop(&mut self) -> Option<u32>;

    /// The transaction of this terminal has ended; its answer may have to wait.
    fn ended(&mut self, _terminal: &Terminal) {}

    /// How many wait.
    fn len(&self) -> usize;
}

/// The terminal that waits longest comes first.
#[derive(Default)]
pub(super) struct Fifo(VecDeque<u32>);

impl Ready for Fifo {
    #[inline]
    fn push(&mut self, index: u32, _terminal: &mut Terminal) {
        self.0.push_back(index);
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.0.pop_front()
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Ready terminals by what they ask for next. The terminal that has waited longest says what kind of transaction is admitted, and
/// the next ones admitted are of the same kind while there are any, up to the size of a team: they go through the same
/// code together. No terminal waits for more than those that came before and a team of each other kind.
///
/// Where there are warehouses enough those under way are kept apart: whose warehouse has one under way waits until it has
/// ended, or until it has waited too long ([`PATIENCE`]).
pub(super) struct ByKind {
    queues: [VecDeque<Waiting>; 5],
    /// Terminals taken in so far.
    arrivals: u64,
    kind: usize,
    /// How many more of this kind before the longest waiting is asked again.
    left: usize,
    size: usize,
    /// Warehouses that have a transaction under way, by number; empty if that does not matter.
    busy: Vec<bool>,
}

/// A terminal in a queue.
#[derive(Clone, Copy)]
struct Waiting {
    since: u64,
    terminal: u32,
    warehouse: u32,
}

/// Bytes that a terminal takes in queues of those that are ready, at most: queues double when they are full.
pub(super) const QUEUE_BYTES: usize = 2 * size_of::<Waiting>();

/// A terminal waits too long for its warehouse when, since it came, so many others more than now wait have come.
const PATIENCE: u64 = 256;

impl ByKind {
    /// For teams of `size`. Those under way are kept apart if the number of `warehouses` is given.
    pub(super) fn new(size: usize, warehouses: Option<u32>) -> ByKind {
        let busy = warehouses.map_or_else(Vec::new, |n| vec![false; n as usize + 1]);
        ByKind { queues: Default::default(), arrivals: 0, kind: 0, left: 0, size, busy }
    }

    /// The place in its queue of the terminal of a kind that comes next.
    fn first_of(&self, kind: usize) -> Option<usize> {
        let queue = &self.queues[kind];
        let front = queue.front()?;
        let is_free = |waiting: &Waiting| self.busy.get(waiting.warehouse as usize).is_none_or(|busy| !busy);
        if is_free(front) || self.arrivals - front.since > PATIENCE + self.len() as u64 {
            return Some(0);
        }
        queue.iter().position(is_free).or(Some(0))
    }
}

impl Ready for ByKind {
    #[inline]
    fn push(&mut self, index: u32, terminal: &mut Terminal) {
        self.arrivals += 1;
        let waiting = Waiting { since: self.arrivals, terminal: index, warehouse: terminal.warehouse() };
        self.queues[terminal.draw() as usize].push_back(waiting);
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        if self.left == 0 || self.queues[self.kind].is_empty() {
            let fronts =
                self.queues.iter().enumerate().filter_map(|(kind, q)| q.front().map(|front| (front.since, kind)));
            self.kind = fronts.min()?.1;
            self.left = self.size;
        }
        self.left -= 1;
        let at = self.first_of(self.kind)?;
        let next = self.queues[self.kind].remove(at)?;
        if let Some(busy) = self.busy.get_mut(next.warehouse as usize) {
            *busy = true;
        }
        Some(next.terminal)
    }

    #[inline]
    fn ended(&mut self, terminal: &Terminal) {
        if let Some(busy) = self.busy.get_mut(terminal.warehouse() as usize) {
            *busy = false;
        }
    }

    fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_kind_are_admitted_together_and_nobody_is_forgotten() {
        let mut ready = ByKind::new(3, None);
        // Kinds of terminals 0 to 9, in the order of their arrival.
        let kinds = [0, 1, 0, 0, 2, 0, 1, 0, 3, 1];
        for (index, kind) in kinds.into_iter().enumerate() {
            ready.arrivals += 1;
            ready.queues[kind].push_back(Waiting { since: ready.arrivals, terminal: index as u32, warehouse: 1 });
        }
        assert_eq!(ready.len(), 10);
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order, [0, 2, 3, 1, 6, 9, 4, 5, 7, 8]);
    }

    #[test]
    fn those_of_a_warehouse_wait_for_each_other_but_not_for_ever() {
        let mut ready = ByKind::new(3, Some(3));
        // Warehouses of terminals 0 to 5, all of one kind.
        for (index, warehouse) in [1, 1, 2, 1, 2, 3].into_iter().enumerate() {
            ready.arrivals += 1;
            ready.queues[0].push_back(Waiting { since: ready.arrivals, terminal: index as u32, warehouse });
        }
        let first: Vec<u32> = (0..3).filter_map(|_| ready.pop()).collect();
        assert_eq!(first, [0, 2, 5], "one of each warehouse");
        assert_eq!(ready.pop(), Some(1), "all are busy: the one that came first");
        ready.busy[2] = false;
        assert_eq!(ready.pop(), Some(4), "the one whose warehouse is free");
        ready.arrivals += PATIENCE + 10;
        ready.queues[0].push_back(Waiting { since: ready.arrivals, terminal: 6, warehouse: 2 });
        ready.busy[2] = false;
        assert_eq!(ready.pop(), Some(3), "a terminal that has waited too long waits no longer");
    }
}
