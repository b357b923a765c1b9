//! Order in which a worker admits the transactions of its terminals.

use std::collections::VecDeque;

use super::terminal::Terminal;

/// Queue of the terminals that are ready for their next transaction.
pub trait Ready {
    /// Adds a terminal that has received its response.
    fn push(&mut self, index: u32, terminal: &mut Terminal);

    /// Removes and returns the index of the terminal to admit next.
    fn pop(&mut self) -> Option<u32>;

    /// Called when the transaction of the terminal has ended. The response may still wait until the log is on disk.
    fn ended(&mut self, _terminal: &Terminal) {}

    /// Returns the number of queued terminals.
    fn len(&self) -> usize;
}

/// First in, first out: admits the terminal that has waited longest.
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

/// Queues of ready terminals, one per kind of the next transaction. The terminal that has waited longest determines the kind
/// to admit. Transactions of this kind are then admitted up to the size of a team, while there are any, so that a team
/// executes the same code. A terminal waits at most for the terminals that arrived before it and for one team of each other
/// kind.
///
/// If there are enough warehouses, concurrent transactions are of different warehouses: a terminal waits while its warehouse
/// has a transaction in progress, unless the terminal has waited too long ([`PATIENCE`]).
pub(super) struct ByKind {
    queues: [VecDeque<ReadyTerminal>; 5],
    /// Number of arrivals of terminals in the queues so far.
    arrivals: u64,
    kind: usize,
    /// Number of transactions of the current kind still to admit before the kind is chosen again.
    left: usize,
    size: usize,
    /// True for each warehouse with a transaction in progress, indexed by warehouse number. Empty if concurrent transactions
    /// may be of the same warehouse.
    busy: Vec<bool>,
}

/// Queue entry of a ready terminal.
#[derive(Clone, Copy)]
struct ReadyTerminal {
    since: u64,
    terminal: u32,
    warehouse: u32,
}

/// Maximum number of bytes per terminal in the queues of ready terminals. Includes that a full queue doubles its capacity.
pub(super) const QUEUE_BYTES: usize = 2 * size_of::<ReadyTerminal>();

/// Limit of the wait for a busy warehouse, as a number of arrivals. A terminal is admitted once the number of later arrivals
/// exceeds the number of queued terminals by more than this limit.
const PATIENCE: u64 = 256;

impl ByKind {
    /// Creates queues for teams of `size`. If the number of `warehouses` is given, concurrent transactions are of different
    /// warehouses.
    pub(super) fn new(size: usize, warehouses: Option<u32>) -> ByKind {
        let busy = warehouses.map_or_else(Vec::new, |n| vec![false; n as usize + 1]);
        ByKind { queues: Default::default(), arrivals: 0, kind: 0, left: 0, size, busy }
    }

    /// Returns the queue position of the next terminal of a kind: the first terminal whose warehouse has no transaction in
    /// progress. Returns the front position if there is no such terminal or if the front terminal has waited too long.
    /// `None` if the queue is empty.
    fn first_of(&self, kind: usize) -> Option<usize> {
        let queue = &self.queues[kind];
        let front = queue.front()?;
        let is_free = |waiting: &ReadyTerminal| self.busy.get(waiting.warehouse as usize).is_none_or(|busy| !busy);
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
        let waiting = ReadyTerminal { since: self.arrivals, terminal: index, warehouse: terminal.warehouse() };
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
        // Transaction kinds of terminals 0 to 9, which arrive in this order.
        let kinds = [0, 1, 0, 0, 2, 0, 1, 0, 3, 1];
        for (index, kind) in kinds.into_iter().enumerate() {
            ready.arrivals += 1;
            ready.queues[kind].push_back(ReadyTerminal { since: ready.arrivals, terminal: index as u32, warehouse: 1 });
        }
        assert_eq!(ready.len(), 10);
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order, [0, 2, 3, 1, 6, 9, 4, 5, 7, 8]);
    }

    #[test]
    fn those_of_a_warehouse_wait_for_each_other_but_not_for_ever() {
        let mut ready = ByKind::new(3, Some(3));
        // Warehouses of terminals 0 to 5. All their transactions are of one kind.
        for (index, warehouse) in [1, 1, 2, 1, 2, 3].into_iter().enumerate() {
            ready.arrivals += 1;
            ready.queues[0].push_back(ReadyTerminal { since: ready.arrivals, terminal: index as u32, warehouse });
        }
        let first: Vec<u32> = (0..3).filter_map(|_| ready.pop()).collect();
        assert_eq!(first, [0, 2, 5], "one of each warehouse");
        assert_eq!(ready.pop(), Some(1), "all are busy: the one that came first");
        ready.busy[2] = false;
        assert_eq!(ready.pop(), Some(4), "the one whose warehouse is free");
        ready.arrivals += PATIENCE + 10;
        ready.queues[0].push_back(ReadyTerminal { since: ready.arrivals, terminal: 6, warehouse: 2 });
        ready.busy[2] = false;
        assert_eq!(ready.pop(), Some(3), "a terminal that has waited too long waits no longer");
    }
}
