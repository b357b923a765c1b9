//! Whether a page lies where the page above it says.
//!
//! A page can be sound in itself and lie in the wrong place: a write went astray, was lost, or went to an older copy of the
//! file. Its number may even be right. A search in such a page finds rows that are not the key's, or misses those that are,
//! and an insert puts rows where no other search finds them. So each page that was read from the file is *unproved* until a
//! descent arrives at it: then its tree, and both of its fences, are compared with what the page above has. A root has no
//! fences.
//!
//! From then on it is proved by construction: splits and merges change a page's fences together with the separators above, in
//! one record. The page above may leave memory meanwhile, and an older copy of it come back: so an inner page that is proved
//! is compared with all pages below it that are in memory and proved.
//!
//! An older copy of a page that has the same fences is not noticed: it is what the tree looked like.

use super::Tree;
use crate::base::ids::PageId;
use crate::buffer::BufferPool;
use crate::buffer::frame::FrameRead;
use crate::page::PageRef;
use crate::page::slotted::GivenFence;

/// The bounds of a page, as the page above has them.
type Bounds = [GivenFence; 2];

/// How a proof ended.
pub(super) enum Proof {
    /// The page lies where it should.
    Proved,
    /// Something changed meanwhile.
    Again,
    /// The page does not lie where it should.
    Wrong(&'static str),
}

/// What is wrong with a page whose fences are not what the page above says.
const ASTRAY: &str = "does not have the bounds that the page above gives it";

/// Length of a key for which no buffer grows.
const KEY_GUESS: usize = 64;

/// Attempts to latch a page below.
const LATCH_ATTEMPTS: u32 = 100;

impl Tree {
    /// Proves the page that `read` has, child number `position` of the page above, which the caller reads; the root has none.
    #[cold]
    #[inline(never)]
    pub(super) fn prove(
        &self,
        pool: &BufferPool,
        read: FrameRead<'_>,
        above: Option<(&FrameRead<'_>, usize)>,
    ) -> Proof {
        let bounds = above.map_or(Some([GivenFence::NONE, GivenFence::NONE]), |(above, position)| {
            bounds_of_child(above.page(), position)
        });
        let (frame, version) = (read.frame(), read.version());
        // Under plain latches it is a share.
        drop(read);
        // The page above is held or validated: no latch may be waited for.
        let Some(page) = frame.try_write_at(version) else { return Proof::Again };
        let is_still = || above.is_none_or(|(above, _)| above.is_valid());
        let proof = match bounds {
            _ if !is_still() => Proof::Again,
            Some(bounds) if self.lies_between(page.page(), &bounds) => {
                self.prove_below(pool, page.page(), above.map(|(above, _)| above.frame().page_id()))
            }
            _ => Proof::Wrong(if page.page().index() == self.index { ASTRAY } else { "belongs to another place" }),
        };
        if matches!(proof, Proof::Proved) {
            page.note_proved();
        }
        page.release_unchanged();
        proof
    }

    /// Whether a page is of this tree and has these bounds.
    fn lies_between(&self, page: PageRef<'_>, [low, high]: &Bounds) -> bool {
        let is_leaf = page.is_leaf();
        page.index() == self.index
            && low.admits_low(page.low_fence().as_deref(), is_leaf)
            && high.admits_high(page.high_fence().as_deref(), is_leaf)
    }

    /// Compares a latched inner page with the pages that it leads to, as far as they are in memory and proved.
    /// Page `above` is read by the caller.
    fn prove_below(&self, pool: &BufferPool, page: PageRef<'_>, above: Option<PageId>) -> Proof {
        let positions = if page.is_leaf() { 0..0 } else { 0..page.count() + 1 };
        for position in positions {
            let id = page.child(position);
            if id == page.id() || Some(id) == above {
                return Proof::Wrong("leads to itself");
            }
            let Some(frame) = pool.resident(id) else { continue };
            // Not waited for: in a damaged tree its holder may wait for the page above.
            let latched = (0..LATCH_ATTEMPTS).find_map(|_| {
                std::hint::spin_loop();
                frame.try_write()
            });
            let Some(below) = latched else { return Proof::Again };
            let fits = || {
                below.page().level() + 1 == page.level()
                    && bounds_of_child(page, position).is_some_and(|bounds| self.lies_between(below.page(), &bounds))
            };
            let contradicts = frame.page_id() == id && !frame.is_unproved() && !fits();
            below.release_unchanged();
            if contradicts {
                return Proof::Wrong("does not lead to the pages below it that were read before");
            }
        }
        Proof::Proved
    }

    /// Which of these children of a latched page, all latched, does not lie where the page says.
    pub(super) fn astray(
        &self,
        pool: &BufferPool,
        above: PageRef<'_>,
        children: &[(usize, PageRef<'_>)],
    ) -> Option<PageId> {
        let lies_there = |(position, page): &&(usize, PageRef<'_>)| {
            page.level() + 1 == above.level()
                && bounds_of_child(above, *position).is_some_and(|bounds| self.lies_between(*page, &bounds))
                && !matches!(self.prove_below(pool, *page, Some(above.id())), Proof::Wrong(_))
        };
        children.iter().find(|child| !lies_there(child)).map(|(_, page)| page.id())
    }
}

/// The bounds that an inner page gives to a child; none if the page is torn.
fn bounds_of_child(page: PageRef<'_>, position: usize) -> Option<Bounds> {
    let key = |i: usize| {
        let mut key = Vec::with_capacity(KEY_GUESS);
        page.append_key(i, &mut key).then_some(GivenFence { key: Some(key), is_separator: true })
    };
    let fence = |key| Some(GivenFence { key, is_separator: false });
    let low = if position == 0 { fence(page.low_fence()) } else { key(position - 1) }?;
    let high = if position == page.count() { fence(page.high_fence()) } else { key(position) }?;
    Some([low, high])
}
