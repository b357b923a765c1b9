//! The page table: maps page numbers to frames. A flat array, indexed by page number.
//!
//! There is one 4-byte entry for each page that the data file may ever have. The arena of the entries takes memory only for
//! the parts in use (4 KiB for each 8 MiB of data file). An entry has one of these values:
//!
//! | value | meaning | which thread may change it |
//! | --- | --- | --- |
//! | 0 | not in memory | the thread that claims it (compare-and-swap) |
//! | 1 to 2^31 - 1 | in the frame with this number less one | the holder of that frame's exclusive latch |
//! | 2^31 + stamp | not in memory; left the probation queue at `stamp` | as for 0 |
//! | 2^31 + 2^30 + frame | being read from the file into this frame | its reader, and the creator of a new page of that number |
//! | 2^32 - 1 | withheld: no tree contains the page, and its content in the file must not be read | the owner of the number |
//!
//! The frame number in a "being read" entry distinguishes two reads of the same page, because two reads never use the same
//! frame. Suppose that a reader is late: since its read began, the page was created again, evicted, and claimed again. This
//! reader then does not mistake the new claim for its own claim.
//!
//! A withheld number belongs to a bulk load, which writes the page without a frame, or to a free range. The page becomes
//! readable when the bulk load puts its tree in place, or when the page is created again.
//!
//! The stamps form the ghost list of the replacement policy (see `replacement`). They need no memory of their own and no
//! additional lookup.

use std::io;

#[cfg(loom)]
use super::loom_tests::Arena;
#[cfg(not(loom))]
use crate::base::arena::Arena;
use crate::base::arena::PageSize;
use crate::base::ids::PageId;
use crate::base::sync::word::{AtomicU32, Ordering};

const GHOST: u32 = 1 << 31;
const LOADING: u32 = GHOST | 1 << 30;
const STAMP: u32 = (1 << 30) - 1;
const WITHHELD: u32 = u32::MAX;

/// Map from page numbers to frames. See the module's documentation.
#[derive(Debug)]
pub(super) struct PageTable {
    entries: Arena<AtomicU32>,
}

/// Maximum number of frames that a table can distinguish.
pub(super) const MAX_FRAMES: usize = (1 << 30) - 1;

/// Table entry of a page that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AbsentEntry(u32);

/// Location of a page: in memory, being read, or absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Residency {
    /// Not in memory.
    Absent(AbsentEntry),
    /// Being read from the file.
    Loading(AbsentEntry),
    /// Not a page of any tree. It must not be read.
    Withheld(AbsentEntry),
    /// In the frame with this number.
    Frame(u32),
}

impl PageTable {
    /// Creates a table for pages with numbers below `pages`, in memory of the kind `memory`.
    pub(super) fn new(pages: u32, memory: PageSize) -> io::Result<PageTable> {
        Ok(PageTable { entries: Arena::new(pages as usize, memory)? })
    }

    /// Returns the address range of the table's entries.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.entries.range()
    }

    /// Returns the number of the page's frame. A value of 2^31 - 1 or more means that the page has no frame.
    #[inline]
    pub(super) fn frame_of(&self, id: PageId) -> usize {
        match self.entries.as_slice().get(id.0 as usize) {
            Some(entry) => (entry.load(Ordering::Acquire) as usize).wrapping_sub(1),
            None => usize::MAX,
        }
    }

    /// Prefetches the page's entry.
    #[inline]
    pub(super) fn prefetch(&self, id: PageId) {
        if let Some(entry) = self.entries.as_slice().get(id.0 as usize) {
            crate::base::prefetch::prefetch_read(std::ptr::from_ref(entry).cast());
        }
    }

    /// Returns the location of the page. `None` if no page can have this number.
    pub(super) fn place(&self, id: PageId) -> Option<Residency> {
        let entry = self.entry(id)?.load(Ordering::Acquire);
        Some(match entry {
            WITHHELD => Residency::Withheld(AbsentEntry(entry)),
            LOADING.. => Residency::Loading(AbsentEntry(entry)),
            0 | GHOST.. => Residency::Absent(AbsentEntry(entry)),
            _ => Residency::Frame(entry - 1),
        })
    }

    /// Claims an absent page for a read into `frame`, which the caller owns. Returns false if the page's entry is no longer
    /// `entry`.
    #[must_use]
    pub(super) fn claim(&self, id: PageId, entry: AbsentEntry, frame: u32) -> bool {
        self.change(id, entry.0, LOADING | frame)
    }

    /// Abandons a claim: the page stays absent. Returns false if the page has been created again since the claim.
    pub(super) fn give_up(&self, id: PageId, entry: AbsentEntry, frame: u32) -> bool {
        self.change(id, LOADING | frame, entry.0)
    }

    /// Completes a claim: the page is now in the frame. Returns false if the page has been created again since the claim, in
    /// another frame.
    #[must_use]
    pub(super) fn publish(&self, id: PageId, frame: u32) -> bool {
        self.change(id, LOADING | frame, frame + 1)
    }

    /// Maps a page that is absent or being read to `frame`. Returns false if the page's entry is no longer `entry`.
    #[must_use]
    pub(super) fn install(&self, id: PageId, entry: AbsentEntry, frame: u32) -> bool {
        self.change(id, entry.0, frame + 1)
    }

    /// Withholds an absent page. Returns false if the page is being read or in a frame. Returns true if it is already
    /// withheld.
    #[must_use]
    pub(super) fn withhold(&self, id: PageId) -> bool {
        match self.place(id) {
            Some(Residency::Absent(entry)) => self.change(id, entry.0, WITHHELD),
            Some(Residency::Withheld(_)) => true,
            _ => false,
        }
    }

    /// Withholds a page and removes it from its frame. The caller holds the frame's exclusive latch.
    pub(super) fn remove_and_withhold(&self, id: PageId, frame: u32) {
        let changed = self.change(id, frame + 1, WITHHELD);
        debug_assert!(changed, "{id:?} was not in frame {frame}");
    }

    /// Makes a withheld page readable again.
    pub(super) fn readmit(&self, id: PageId) {
        self.change(id, WITHHELD, 0);
    }

    /// Removes the page from its frame, whose exclusive latch the caller holds. With a stamp, the entry becomes a ghost.
    pub(super) fn remove(&self, id: PageId, frame: u32, stamp: Option<u32>) {
        let changed = self.change(id, frame + 1, stamp.map_or(0, |s| GHOST | (s & STAMP)));
        debug_assert!(changed, "{id:?} was not in frame {frame}");
    }

    fn entry(&self, id: PageId) -> Option<&AtomicU32> {
        if id.is_none() { None } else { self.entries.as_slice().get(id.0 as usize) }
    }

    fn change(&self, id: PageId, from: u32, to: u32) -> bool {
        self.entry(id).is_some_and(|e| e.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }
}

impl AbsentEntry {
    /// Returns the number of stamps between the eviction of the page and `now`. `None` if the page left no ghost.
    pub(super) fn age(self, now: u32) -> Option<u32> {
        (self.0 >= GHOST).then(|| now.wrapping_sub(self.0) & STAMP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(table: &PageTable, id: PageId) -> AbsentEntry {
        match table.place(id) {
            Some(Residency::Absent(a)) => a,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_page_comes_and_goes() {
        let table = PageTable::new(1000, PageSize::Usual).unwrap();
        let id = PageId(7);
        let entry = absent(&table, id);
        assert_eq!(entry.age(5), None);
        assert!(table.frame_of(id) >= u32::MAX as usize);
        assert!(table.claim(id, entry, 0));
        assert!(!table.claim(id, entry, 1));
        assert!(matches!(table.place(id), Some(Residency::Loading(_))));
        assert!(table.frame_of(id) >= (1 << 31) - 1);
        assert!(!table.publish(id, 1) && !table.give_up(id, entry, 1), "that is another reader's claim");
        assert!(table.publish(id, 0));
        assert_eq!((table.place(id), table.frame_of(id)), (Some(Residency::Frame(0)), 0));
        table.remove(id, 0, Some(STAMP - 1));
        assert!(table.frame_of(id) >= (1 << 31) - 1);
        let ghost = absent(&table, id);
        assert_eq!(ghost.age(3), Some(5), "stamps wrap around");
        assert!(!table.install(id, entry, 4));
        assert!(table.install(id, ghost, 4));
        assert_eq!(table.place(id), Some(Residency::Frame(4)));
        table.remove(id, 4, None);
        assert!(table.claim(id, entry, MAX_FRAMES as u32 - 1) && !table.give_up(id, entry, 0));
        assert!(table.give_up(id, entry, MAX_FRAMES as u32 - 1));
        assert_eq!(table.place(id), Some(Residency::Absent(entry)));
        assert!(table.withhold(id) && table.withhold(id));
        let Some(Residency::Withheld(withheld)) = table.place(id) else { panic!() };
        assert!(table.frame_of(id) >= (1 << 31) - 1);
        assert!(!table.claim(id, entry, 3) && table.install(id, withheld, 3));
        table.readmit(id);
        assert!(!table.withhold(id));
        table.remove_and_withhold(id, 3);
        table.readmit(id);
        assert!(table.claim(id, AbsentEntry(0), 1) && !table.withhold(id));
        assert_eq!(table.place(PageId(1000)), None);
        assert_eq!(table.place(PageId::NONE), None);
    }
}
