//! Contention for leaves: the leaves that writers of *different* rows find latched or changed by each other.
//!
//! A writer reports a failed attempt to latch the leaf of its row. A leaf with enough reports, about different rows, is
//! contended, and the reporter splits it between two of these rows (`btree/split.rs`). So the rows that are written most
//! come to lie on leaves of their own, down to one row per leaf. The method is that of Alhomssi and Leis, *Contention and
//! Space Management in B-Trees* (CIDR 2021); there the page has the counters, here a small table beside the pool.
//!
//! A leaf without failed attempts costs nothing. The table has a fixed size, is indexed by a hash of the page number, and
//! is written without synchronisation. Pages with the same hash, and threads that report at once, lose reports, which
//! delays a split and has no other effect.

use crate::base::ids::{Lsn, PageId};
use crate::base::sync::plain::{AtomicU32, AtomicU64, Ordering};
use crate::latch::Version;

/// Number of cells, a power of two.
const CELLS: usize = 1 << 9;
/// Default number of reports that make a leaf contended.
pub(crate) const CONTENDED_AT: u32 = 32;
/// Maximum number of writes of the leaf for each of these reports: one write of 128 fails at first.
const WRITES_PER_REPORT: u64 = 128;
/// Number of bytes of log after a split for contention during which the two leaves are not merged again.
const APART: u64 = 256 << 20;
/// Number of reported slots that a cell remembers.
const SLOTS: usize = 4;

/// Reports about one leaf.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    page: AtomicU32,
    /// Number of reports in this window.
    reports: AtomicU32,
    /// Version of the leaf at the first report of the window.
    begin: AtomicU64,
    /// The slots of the last reports, 16 bits each; the newest is in the lowest bits.
    slots: AtomicU64,
    /// Page that was last split for contention, of those with this hash.
    split_page: AtomicU32,
    /// Position in the log from which on `split_page` may be merged.
    apart_until: AtomicU64,
}

/// Table of contended leaves. See the module's documentation.
#[derive(Debug)]
pub(crate) struct LeafContention {
    cells: Box<[Cell]>,
    /// Number of reports that make a leaf contended.
    contended_at: u32,
}

impl LeafContention {
    /// Creates the table. `contended_at`: number of reports that make a leaf contended.
    pub(super) fn new(contended_at: u32) -> LeafContention {
        LeafContention { cells: (0..CELLS).map(|_| Cell::default()).collect(), contended_at }
    }

    fn cell(&self, page: PageId) -> &Cell {
        let hash = page.0.wrapping_mul(0x9E37_79B9) >> (u32::BITS - CELLS.trailing_zeros());
        &self.cells[hash as usize]
    }

    /// Reports that the writer of the row in `slot`, which had read the leaf at `version`, could not latch the leaf at that
    /// version. Returns the slot before which the leaf is to be split, once the leaf is contended.
    #[cold]
    pub(crate) fn report(&self, page: PageId, version: Version, slot: u16) -> Option<u16> {
        let cell = self.cell(page);
        let window = WRITES_PER_REPORT * u64::from(self.contended_at);
        let begin = Version::of_bits(cell.begin.load(Ordering::Relaxed));
        if cell.page.load(Ordering::Relaxed) != page.0 || version.writes_since(begin) > window {
            cell.page.store(page.0, Ordering::Relaxed);
            cell.begin.store(version.bits(), Ordering::Relaxed);
            cell.slots.store(u64::from(slot) * 0x0001_0001_0001_0001, Ordering::Relaxed);
            cell.reports.store(1, Ordering::Relaxed);
            return None;
        }
        let slots = cell.slots.load(Ordering::Relaxed) << 16 | u64::from(slot);
        cell.slots.store(slots, Ordering::Relaxed);
        let reports = cell.reports.load(Ordering::Relaxed) + 1;
        cell.reports.store(reports, Ordering::Relaxed);
        if reports < self.contended_at {
            return None;
        }
        // The next window begins, whether or not this one leads to a split.
        cell.page.store(PageId::NONE.0, Ordering::Relaxed);
        between(slots)
    }

    /// Records that these leaves were just split from each other, at this end of the log.
    pub(crate) fn note_split(&self, pages: [PageId; 2], tail: Lsn) {
        for page in pages {
            let cell = self.cell(page);
            cell.apart_until.store(tail.0.saturating_add(APART), Ordering::Relaxed);
            cell.split_page.store(page.0, Ordering::Relaxed);
        }
    }

    /// Returns true if the leaf was split for contention so recently that it is not to be merged.
    pub(crate) fn is_kept_apart(&self, page: PageId, tail: Lsn) -> bool {
        let cell = self.cell(page);
        cell.split_page.load(Ordering::Relaxed) == page.0 && tail.0 < cell.apart_until.load(Ordering::Relaxed)
    }
}

/// Counters of the contention for the leaves of a table and of its indexes. Written only by writers that found a leaf
/// latched or changed.
#[derive(Debug, Default)]
pub(crate) struct ContentionCounters {
    /// Number of writes that found their leaf latched or changed by another writer.
    pub(crate) contended: AtomicU64,
    /// Number of leaves split because writers of different rows contended for them.
    pub(crate) splits: AtomicU64,
}

impl ContentionCounters {
    /// Resets the counters, for another table in the same memory.
    pub(crate) fn reset(&self) {
        self.contended.store(0, Ordering::Relaxed);
        self.splits.store(0, Ordering::Relaxed);
    }
}

/// Returns the slot that divides these reported slots into two parts, neither of which is empty. `None` if all of them are
/// the same slot.
fn between(slots: u64) -> Option<u16> {
    let mut sorted: [u16; SLOTS] = std::array::from_fn(|i| (slots >> (16 * i)) as u16);
    sorted.sort_unstable();
    let lowest = sorted[0];
    let middle = sorted[SLOTS / 2];
    if middle > lowest { Some(middle) } else { sorted.into_iter().find(|slot| *slot > lowest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: PageId = PageId(7);

    fn version(writes: u64) -> Version {
        Version::of_bits(writes << 16)
    }

    /// Reports these slots in turn, with `step` writes between two reports, and returns the first answer.
    fn first_split(slots: &[u16], step: u64) -> Option<u16> {
        let contention = LeafContention::new(CONTENDED_AT);
        (0..3 * u64::from(CONTENDED_AT)).find_map(|i| {
            let slot = slots[i as usize % slots.len()];
            contention.report(LEAF, version(step * i), slot)
        })
    }

    #[test]
    fn a_leaf_is_split_between_the_rows_that_are_reported() {
        assert_eq!(first_split(&[3, 9], 1), Some(9));
        assert_eq!(first_split(&[0, 1, 2, 3], 1), Some(2));
        assert_eq!(first_split(&[5, 5, 5, 8], 1), Some(8));
    }

    #[test]
    fn one_row_is_not_split_from_itself() {
        assert_eq!(first_split(&[4], 1), None);
    }

    #[test]
    fn rare_reports_lead_to_no_split() {
        assert_eq!(first_split(&[3, 9], WRITES_PER_REPORT + 8), None);
        assert!(first_split(&[3, 9], WRITES_PER_REPORT - 8).is_some());
    }

    #[test]
    fn the_version_of_another_frame_begins_a_window() {
        let contention = LeafContention::new(CONTENDED_AT);
        for i in 0..10 * u64::from(CONTENDED_AT) {
            // Each frame has versions of its own.
            let writes = if i % 2 == 0 { 1 << 30 } else { 1 };
            assert_eq!(contention.report(LEAF, version(writes), i as u16), None);
        }
    }

    #[test]
    fn leaves_are_kept_apart_for_a_length_of_log() {
        let contention = LeafContention::new(CONTENDED_AT);
        contention.note_split([LEAF, PageId(8)], Lsn(1000));
        assert!(contention.is_kept_apart(LEAF, Lsn(1000)) && contention.is_kept_apart(PageId(8), Lsn(5000)));
        assert!(!contention.is_kept_apart(PageId(9), Lsn(1000)));
        assert!(!contention.is_kept_apart(LEAF, Lsn(1000 + APART)));
    }
}
