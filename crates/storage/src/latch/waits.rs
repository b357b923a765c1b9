//! Waits for page latches, counted by index.

use crate::base::clock::Clock;
use crate::base::ids::IndexId;
use crate::base::sync::plain::{AtomicU32, Ordering};
use crate::base::waits::{Wait, WaitCounter};

/// Number of cells, a power of two.
const CELLS: usize = 1 << 8;
/// Maximum number of cells that an index may use.
const PROBES: usize = 8;
/// Number in a cell that no index uses.
const FREE: u32 = u32::MAX;

/// Counters of the waits for the latches of an index's pages.
#[derive(Debug)]
struct Cell {
    index: AtomicU32,
    waits: WaitCounter,
}

/// Counters of the waits for latches. An index gets a cell at its first wait and keeps it. Indexes that find no free cell
/// share a counter, also with frames that have no page.
#[derive(Debug)]
pub(crate) struct LatchWaits {
    clock: Clock,
    cells: Box<[Cell]>,
    others: WaitCounter,
}

impl LatchWaits {
    pub(super) fn new(clock: Clock) -> LatchWaits {
        let cell = || Cell { index: AtomicU32::new(FREE), waits: WaitCounter::default() };
        LatchWaits { clock, cells: std::iter::repeat_with(cell).take(CELLS).collect(), others: WaitCounter::default() }
    }

    /// Runs a wait for a latch and counts it. `index` returns the index of the page after the wait; `None` if there is no page.
    #[cold]
    #[inline(never)]
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T, index: impl FnOnce() -> Option<IndexId>) -> T {
        let (result, ns) = self.clock.timed(wait);
        let counter = index().map_or(&self.others, |index| self.counter(index));
        counter.begin();
        counter.end(ns);
        result
    }

    fn counter(&self, index: IndexId) -> &WaitCounter {
        let hash = index.0.wrapping_mul(0x9E37_79B9) >> (u32::BITS - CELLS.trailing_zeros());
        for probe in 0..PROBES {
            let cell = &self.cells[(hash as usize + probe) % CELLS];
            match cell.index.compare_exchange(FREE, index.0, Ordering::Relaxed, Ordering::Relaxed) {
                Err(owner) if owner != index.0 => {}
                _ => return &cell.waits,
            }
        }
        &self.others
    }

    /// Returns the waits of every index that has a cell.
    pub(crate) fn by_index(&self) -> impl Iterator<Item = (IndexId, Wait)> {
        let read = |cell: &Cell| (IndexId(cell.index.load(Ordering::Relaxed)), cell.waits.read());
        self.cells.iter().map(read).filter(|(index, _)| index.0 != FREE)
    }

    /// Returns the waits for the latches of all pages.
    pub(crate) fn total(&self) -> Wait {
        let mut total = self.others.read();
        self.by_index().for_each(|(_, waits)| total += waits);
        total
    }
}

impl Default for LatchWaits {
    fn default() -> LatchWaits {
        LatchWaits::new(Clock::machine())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_has_a_counter_and_the_total_has_all() {
        let waits = LatchWaits::default();
        let indexes = 3 * CELLS as u32;
        for index in 0..indexes {
            for _ in 0..=index % 2 {
                waits.during(|| (), || Some(IndexId(index)));
            }
        }
        assert_eq!(waits.total().count, u64::from(indexes + indexes / 2));
        let cells: Vec<_> = waits.by_index().collect();
        assert!(cells.len() > CELLS / 2, "{} indexes have a cell", cells.len());
        for (index, wait) in cells {
            assert_eq!(wait.count, u64::from(1 + index.0 % 2), "{index:?}");
        }
    }
}
