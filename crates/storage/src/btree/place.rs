//! Check that a page is in the place that its parent assigns.
//!
//! A page can be sound in itself and be in the wrong place: a write went to the wrong offset, was lost, or went to an older
//! copy of the file. Even the page number may be correct. A search in such a page finds rows of other keys or misses rows of
//! its own key, and an insert puts rows where no other search finds them. So each page read from the file is *unproved*
//! until a descent arrives at the page. The descent then compares the page's tree and both of its fences with the parent. A
//! root has no fences.
//!
//! After this check, the page's place is correct by construction: splits and merges change the fences of a page together
//! with the separators above, in one record. The parent may be evicted in the meantime, and an older copy of the parent may
//! be read again. So an inner page that is being proved is compared with all pages below it that are in memory and proved.
//!
//! An older copy of a page with the same fences is not detected: it is a former state of the tree.

use super::Tree;
use crate::base::ids::PageId;
use crate::buffer::BufferPool;
use crate::buffer::frame::FrameRead;
use crate::page::PageRef;
use crate::page::slotted::ParentFence;

/// Low and high bound of a page, as the page's parent assigns them.
type Bounds = [ParentFence; 2];

/// Result of a proof.
pub(super) enum PlacementCheck {
    /// Result of the check that a page is in its proper place.
    Proved,
    /// Something changed during the check: retry.
    Again,
    /// The page is not in its proper place. The string describes the damage.
    Wrong(&'static str),
}

/// Describes a page whose fences differ from the bounds that its parent assigns.
const MISPLACED: &str = "does not have the bounds that the page above gives it";

/// Initial capacity of a key buffer, in bytes. Few keys are longer.
const KEY_GUESS: usize = 64;

/// Maximum number of attempts to latch a child of the page.
const LATCH_ATTEMPTS: u32 = 100;

impl Tree {
    /// Proves that the page that `read` refers to is in its proper place. `above` is the page's parent, which the caller is
    /// reading, and the page's position in the parent; `None` for the root.
    #[cold]
    #[inline(never)]
    pub(super) fn prove(
        &self,
        pool: &BufferPool,
        read: FrameRead<'_>,
        above: Option<(&FrameRead<'_>, usize)>,
    ) -> PlacementCheck {
        let bounds = above.map_or(Some([ParentFence::NONE, ParentFence::NONE]), |(above, position)| {
            bounds_of_child(above.page(), position)
        });
        let (frame, version) = (read.frame(), read.version());
        // Under plain latches `read` holds a shared latch.
        drop(read);
        // The parent is held or will be validated, so this thread must not wait for a latch.
        let Some(page) = frame.try_write_at(version) else { return PlacementCheck::Again };
        let is_still = || above.is_none_or(|(above, _)| above.is_valid());
        let proof = match bounds {
            _ if !is_still() => PlacementCheck::Again,
            Some(bounds) if self.lies_between(page.page(), &bounds) => {
                self.prove_below(pool, page.page(), above.map(|(above, _)| above.frame().page_id()))
            }
            _ => PlacementCheck::Wrong(if page.page().index() == self.index {
                MISPLACED
            } else {
                "belongs to another place"
            }),
        };
        if matches!(proof, PlacementCheck::Proved) {
            page.note_proved();
        }
        page.release_unchanged();
        proof
    }

    /// Returns true if a page belongs to this tree and has these bounds as its fences.
    fn lies_between(&self, page: PageRef<'_>, [low, high]: &Bounds) -> bool {
        let is_leaf = page.is_leaf();
        page.index() == self.index
            && low.admits_low(page.low_fence().as_deref(), is_leaf)
            && high.admits_high(page.high_fence().as_deref(), is_leaf)
    }

    /// Compares a latched inner page with its children that are in memory and proved. The caller is reading page `above`.
    fn prove_below(&self, pool: &BufferPool, page: PageRef<'_>, above: Option<PageId>) -> PlacementCheck {
        let positions = if page.is_leaf() { 0..0 } else { 0..page.count() + 1 };
        for position in positions {
            let id = page.child(position);
            if id == page.id() || Some(id) == above {
                return PlacementCheck::Wrong("leads to itself");
            }
            let Some(frame) = pool.resident(id) else { continue };
            // This thread does not wait: in a damaged tree, the holder of the child's latch may be waiting for the parent.
            let latched = (0..LATCH_ATTEMPTS).find_map(|_| {
                std::hint::spin_loop();
                frame.try_write()
            });
            let Some(below) = latched else { return PlacementCheck::Again };
            let fits = || {
                below.page().level() + 1 == page.level()
                    && bounds_of_child(page, position).is_some_and(|bounds| self.lies_between(below.page(), &bounds))
            };
            let contradicts = frame.page_id() == id && !frame.is_unproved() && !fits();
            below.release_unchanged();
            if contradicts {
                return PlacementCheck::Wrong("does not lead to the pages below it that were read before");
            }
        }
        PlacementCheck::Proved
    }

    /// Finds a child that is not in the place that the latched page `above` assigns. The caller has latched all `children`.
    pub(super) fn find_misplaced(
        &self,
        pool: &BufferPool,
        above: PageRef<'_>,
        children: &[(usize, PageRef<'_>)],
    ) -> Option<PageId> {
        let lies_there = |(position, page): &&(usize, PageRef<'_>)| {
            page.level() + 1 == above.level()
                && bounds_of_child(above, *position).is_some_and(|bounds| self.lies_between(*page, &bounds))
                && !matches!(self.prove_below(pool, *page, Some(above.id())), PlacementCheck::Wrong(_))
        };
        children.iter().find(|child| !lies_there(child)).map(|(_, page)| page.id())
    }
}

/// Returns the bounds that an inner page assigns to a child. `None` if the page is torn.
fn bounds_of_child(page: PageRef<'_>, position: usize) -> Option<Bounds> {
    let key = |i: usize| {
        let mut key = Vec::with_capacity(KEY_GUESS);
        page.append_key(i, &mut key).then_some(ParentFence { key: Some(key), is_separator: true })
    };
    let fence = |key| Some(ParentFence { key, is_separator: false });
    let low = if position == 0 { fence(page.low_fence()) } else { key(position - 1) }?;
    let high = if position == page.count() { fence(page.high_fence()) } else { key(position) }?;
    Some([low, high])
}
