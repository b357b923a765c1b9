//! Where a page lies: a flat array, indexed by page number.
//!
//! One 4-byte entry per page that the data file may ever have, in an arena that costs only the parts in
//! use (4 KiB for each 8 MiB of data file). An entry is one of
//!
//! | value | meaning | which thread may change it |
//! | --- | --- | --- |
//! | 0 | not in memory | the thread that claims it (compare-and-swap) |
//! | 1 to 2^31 - 1 | in the frame of this number, less one | the holder of that frame's exclusive latch |
//! | 2^31 + stamp | not in memory, left the probation queue at `stamp` | as 0 |
//! | 2^31 + 2^30 + frame | being read from the file into this frame | its reader, and the creator of a new page of that number |
//! | 2^32 - 1 | withheld: no tree has it, and its content in the file is not to be read | the owner of the number |
//!
//! The frame in the last kind distinguishes two reads of a page: no other read has the frame, so a reader that ends
//! late, after the page was created anew and evicted and claimed again, does not take the other's claim for its own.
//!
//! A withheld number belongs to a bulk load, which writes the page past the frames, or lies in a free range. It becomes
//! readable when the load's tree is in its place, or is created anew.
//!
//! The stamps are the ghost list of the replacement policy (see `replacement`): they cost no memory of
//! their own and no lookup.

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

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct PageTable {
    entries: Arena<AtomicU32>,
}

/// Most frames that a table can tell apart.
pub(super) const MAX_FRAMES: usize = (1 << 30) - 1;

/// Content of an entry whose page is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Absent(u32);

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Residency {
    /// Not in memory.
    Absent(Absent),
    /// Being read from the file.
    Loading(Absent),
    /// Not a page of any tree, and not to be read.
    Withheld(Absent),
    /// In this frame.
    Frame(u32),
}

impl PageTable {
    /// A table for pages below `pages`, in memory of this kind.
    pub(super) fn new(pages: u32, memory: PageSize) -> io::Result<PageTable> {
        Ok(PageTable { entries: Arena::new(pages as usize, memory)? })
    }

    /// Addresses of the table.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.entries.range()
    }

    /// Number of the page's frame; not below 2^31 - 1 if it has none.
    #[inline]
    pub(super) fn frame_of(&self, id: PageId) -> usize {
        match self.entries.as_slice().get(id.0 as usize) {
            Some(entry) => (entry.load(Ordering::Acquire) as usize).wrapping_sub(1),
            None => usize::MAX,
        }
    }

    /// Asks the processor for the page's entry.
    #[inline]
    pub(super) fn prefetch(&self, id: PageId) {
        if let Some(entry) = self.entries.as_slice().get(id.0 as usize) {
            crate::base::prefetch::prefetch_read(std::ptr::from_ref(entry).cast());
        }
    }

    /// Where the page is; `None` for a number that no page can have.
    pub(super) fn place(&self, id: PageId) -> Option<Residency> {
        let entry = self.entry(id)?.load(Ordering::Acquire);
        Some(match entry {
            WITHHELD => Residency::Withheld(Absent(entry)),
            LOADING.. => Residency::Loading(Absent(entry)),
            0 | GHOST.. => Residency::Absent(Absent(entry)),
            _ => Residency::Frame(entry - 1),
        })
    }

    /// Claims an absent page for reading into the frame, which is the caller's; false if it is no longer as `seen`.
    #[must_use]
    pub(super) fn claim(&self, id: PageId, seen: Absent, frame: u32) -> bool {
        self.change(id, seen.0, LOADING | frame)
    }

    /// Gives a claim up: the page stays absent. False if the page was created anew meanwhile.
    pub(super) fn give_up(&self, id: PageId, seen: Absent, frame: u32) -> bool {
        self.change(id, LOADING | frame, seen.0)
    }

    /// Ends a claim: the page is in the frame. False if the page was created anew meanwhile, and is elsewhere.
    #[must_use]
    pub(super) fn publish(&self, id: PageId, frame: u32) -> bool {
        self.change(id, LOADING | frame, frame + 1)
    }

    /// Puts a page that is absent or being read into the frame at once; false if it is no longer as `seen`.
    #[must_use]
    pub(super) fn install(&self, id: PageId, seen: Absent, frame: u32) -> bool {
        self.change(id, seen.0, frame + 1)
    }

    /// Withholds a page that is absent; false if it is being read or in a frame. A page that is withheld stays so.
    #[must_use]
    pub(super) fn withhold(&self, id: PageId) -> bool {
        match self.place(id) {
            Some(Residency::Absent(seen)) => self.change(id, seen.0, WITHHELD),
            Some(Residency::Withheld(_)) => true,
            _ => false,
        }
    }

    /// Withholds a page that leaves its frame, whose exclusive latch the caller holds.
    pub(super) fn remove_and_withhold(&self, id: PageId, frame: u32) {
        let changed = self.change(id, frame + 1, WITHHELD);
        debug_assert!(changed, "{id:?} was not in frame {frame}");
    }

    /// Lets a withheld page be read.
    pub(super) fn readmit(&self, id: PageId) {
        self.change(id, WITHHELD, 0);
    }

    /// The page leaves its frame, whose exclusive latch the caller holds. With a stamp it leaves a ghost.
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

impl Absent {
    /// Stamps between the page's leaving and `now`; `None` if it left no ghost.
    pub(super) fn age(self, now: u32) -> Option<u32> {
        (self.0 >= GHOST).then(|| now.wrapping_sub(self.0) & STAMP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(table: &PageTable, id: PageId) -> Absent {
        match table.place(id) {
            Some(Residency::Absent(a)) => a,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_page_comes_and_goes() {
        let table = PageTable::new(1000, PageSize::Usual).unwrap();
        let id = PageId(7);
        let seen = absent(&table, id);
        assert_eq!(seen.age(5), None);
        assert!(table.frame_of(id) >= u32::MAX as usize);
        assert!(table.claim(id, seen, 0));
        assert!(!table.claim(id, seen, 1));
        assert!(matches!(table.place(id), Some(Residency::Loading(_))));
        assert!(table.frame_of(id) >= (1 << 31) - 1);
        assert!(!table.publish(id, 1) && !table.give_up(id, seen, 1), "that is another reader's claim");
        assert!(table.publish(id, 0));
        assert_eq!((table.place(id), table.frame_of(id)), (Some(Residency::Frame(0)), 0));
        table.remove(id, 0, Some(STAMP - 1));
        assert!(table.frame_of(id) >= (1 << 31) - 1);
        let ghost = absent(&table, id);
        assert_eq!(ghost.age(3), Some(5), "stamps wrap around");
        assert!(!table.install(id, seen, 4));
        assert!(table.install(id, ghost, 4));
        assert_eq!(table.place(id), Some(Residency::Frame(4)));
        table.remove(id, 4, None);
        assert!(table.claim(id, seen, MAX_FRAMES as u32 - 1) && !table.give_up(id, seen, 0));
        assert!(table.give_up(id, seen, MAX_FRAMES as u32 - 1));
        assert_eq!(table.place(id), Some(Residency::Absent(seen)));
        assert!(table.withhold(id) && table.withhold(id));
        let Some(Residency::Withheld(withheld)) = table.place(id) else { panic!() };
        assert!(table.frame_of(id) >= (1 << 31) - 1);
        assert!(!table.claim(id, seen, 3) && table.install(id, withheld, 3));
        table.readmit(id);
        assert!(!table.withhold(id));
        table.remove_and_withhold(id, 3);
        table.readmit(id);
        assert!(table.claim(id, Absent(0), 1) && !table.withhold(id));
        assert_eq!(table.place(PageId(1000)), None);
        assert_eq!(table.place(PageId::NONE), None);
    }
}
