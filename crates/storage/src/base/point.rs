//! Points: the places where a cooperative scheduler may run another fiber.
//!
//! Each place is a [`PointSite`] that the linker gathers in a section of its own, so that no list is kept by hand and a
//! tool can enumerate them ([`points`]). A site's number is its place in that section: it holds for one build.
//!
//! A point is `if cooperative { hook.point(number) }`: with plain threads one branch that is never taken.

#![allow(unsafe_code)]

use std::sync::Arc;

use super::config::LatchKind;
use super::hook::{Hook, Operation};

/// The purpose of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PointKind {
    /// It ends a stretch of code: the next fiber finds the instructions of that stretch in the cache.
    Instruction,
    /// Lines have just been prefetched: running another fiber gives them time to arrive.
    Data,
}

/// A place in the code where a cooperative scheduler may run another fiber.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PointSite {
    name: &'static str,
    file: &'static str,
    line: u32,
    kind: PointKind,
}

/// One size, so that the sites of a section are an array.
const SITE_BYTES: usize = 64;
const _: () = assert!(size_of::<PointSite>() == SITE_BYTES && align_of::<PointSite>() == SITE_BYTES);

impl PointSite {
    #[doc(hidden)]
    pub const fn new(name: &'static str, kind: PointKind, file: &'static str, line: u32) -> PointSite {
        PointSite { name, file, line, kind }
    }

    /// Its name, the same in every build that has it: `btree/leaf-head`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its purpose.
    pub fn kind(&self) -> PointKind {
        self.kind
    }

    /// The source file it lies in.
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// The line it lies in.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Its number: the place among [`points`] of this build.
    #[inline(always)]
    pub fn number(&'static self) -> u32 {
        ((std::ptr::from_ref(self).addr() - section::start().addr()) / SITE_BYTES) as u32
    }
}

/// Where the linker puts the sites.
#[cfg(all(target_os = "linux", not(miri)))]
mod section {
    use super::PointSite;

    // Linkers of ELF targets define these for every section whose name could be a name in C.
    unsafe extern "C" {
        #[link_name = "__start_lockstep_points"]
        static START: [u64; 0];
        #[link_name = "__stop_lockstep_points"]
        static STOP: [u64; 0];
    }

    #[inline(always)]
    pub(super) fn start() -> *const PointSite {
        (&raw const START).cast()
    }

    pub(super) fn all() -> &'static [PointSite] {
        let (start, stop) = (start(), &raw const STOP);
        let sites = (stop.addr() - start.addr()) / super::SITE_BYTES;
        // SAFETY: between the two symbols lie the statics that `point_site!` put into the section and nothing else; all
        // have the size and the alignment of a site, so the linker leaves no gap between them, and none is ever
        // written.
        unsafe { std::slice::from_raw_parts(start, sites) }
    }
}

/// On macOS, and under Miri, sites have no numbers and no list; points do nothing.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod section {
    use super::PointSite;

    pub(super) fn start() -> *const PointSite {
        std::ptr::null()
    }

    pub(super) fn all() -> &'static [PointSite] {
        &[]
    }
}

/// Whether sites have numbers on this target.
const NUMBERED: bool = cfg!(all(target_os = "linux", not(miri)));

/// Every point of this build, in the order of their numbers.
///
/// There are at most 64.
pub fn points() -> &'static [PointSite] {
    // The section exists only if it contains a site.
    std::hint::black_box(&site::LEAF_HEAD);
    section::all()
}

macro_rules! point_sites {
    ($($(#[$doc:meta])* $name:ident = $kind:ident $text:literal;)*) => {
        /// The sites. Declared in one place, so that one file tells where a transaction may be left.
        pub(crate) mod site {
            use super::{PointKind, PointSite};
            $(
                $(#[$doc])*
                #[used]
                #[cfg_attr(
                    all(target_os = "linux", not(miri)),
                    unsafe(link_section = "lockstep_points")
                )]
                pub(crate) static $name: PointSite = PointSite::new($text, PointKind::$kind, file!(), line!());
            )*
        }
    };
}

point_sites! {
    /// A descent has asked for the first lines of an inner page below the root.
    INNER_HEAD = Data "btree/inner-head";
    /// A descent has asked for the part of an inner page's slots where its key lies.
    INNER_SEGMENT = Data "btree/inner-segment";
    /// A descent has prefetched the entry that says where the leaf lies.
    LEAF_ENTRY = Data "btree/leaf-entry";
    /// A descent has asked for the first lines of the leaf.
    LEAF_HEAD = Data "btree/leaf-head";
    /// A descent has asked for the part of the leaf's slots where its key lies.
    LEAF_SEGMENT = Data "btree/leaf-segment";
    /// A descent has asked for the row, or for the place where one will be put.
    ROW = Data "btree/row";
    /// A group descent has asked for the first lines of the pages above the leaves.
    GROUP_INNER = Data "btree/group-inner";
    /// A group descent has asked for segments of the pages above the leaves.
    GROUP_INNER_SEGMENT = Data "btree/group-inner-segment";
    /// A group descent has prefetched the entries that say where leaves lie.
    GROUP_ENTRY = Data "btree/group-entry";
    /// A group descent has asked for the first lines of leaves.
    GROUP_LEAF = Data "btree/group-leaf";
    /// A group descent has asked for segments of leaves.
    GROUP_SEGMENT = Data "btree/group-segment";
    /// A group descent has asked for the rows.
    GROUP_ROW = Data "btree/group-row";
    /// A row is about to be looked for: its table has been found and locked.
    BEFORE_READ = Instruction "table/before-read";
    /// A descent is about to search the root.
    BEFORE_ROOT = Instruction "btree/before-root";
    /// A descent knows the part of the root's slots where its key lies.
    ROOT_SEGMENT = Instruction "btree/root-segment";
    /// A descent has arrived at its leaf, and has not searched it yet.
    BEFORE_LEAF = Instruction "btree/before-leaf";
    /// A row has been copied, and has not been read yet.
    AFTER_COPY = Instruction "table/after-copy";
    /// A row has been found and locked, and has not been copied yet.
    BEFORE_COPY = Instruction "table/before-copy";
    /// A row has been found and locked, and nothing has been written yet.
    BEFORE_WRITE = Instruction "table/before-write";
}

/// The points in the descent of a single key.
const OF_DESCENTS: [&PointSite; 9] = [
    &site::BEFORE_ROOT,
    &site::ROOT_SEGMENT,
    &site::BEFORE_LEAF,
    &site::INNER_HEAD,
    &site::INNER_SEGMENT,
    &site::LEAF_ENTRY,
    &site::LEAF_HEAD,
    &site::LEAF_SEGMENT,
    &site::ROW,
];

/// Where storage offers to run another fiber. Every structure that has points keeps one of these.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    hook: Arc<dyn Hook>,
    cooperative: bool,
    /// By number of the site, a bit each: whether the hook may stop there. A point without its bit costs one test.
    /// Points inside optimistic reads have no bit under latch coupling, where a latch is held.
    live: u64,
    /// Whether any point inside a descent is on.
    in_descents: bool,
}

impl Points {
    /// The points of a database whose readers use latches of this kind.
    pub(crate) fn new(hook: &Arc<dyn Hook>, latches: LatchKind) -> Points {
        let cooperative = NUMBERED && hook.is_cooperative();
        let bit = |site: &'static PointSite| 1_u64.checked_shl(site.number()).unwrap_or(0);
        let descents = OF_DESCENTS.into_iter().fold(0, |all, site| all | bit(site));
        let mut live =
            points().iter().filter(|site| cooperative && hook.may_stop_at(site)).fold(0, |all, site| all | bit(site));
        if latches == LatchKind::Plain {
            live &= !(descents | bit(&site::BEFORE_COPY));
        }
        let in_descents = live & descents != 0;
        Points { hook: Arc::clone(hook), cooperative, live, in_descents }
    }

    /// Whether to prefetch lines and stop at points on the way through a tree.
    #[inline(always)]
    pub(crate) fn in_descents(&self) -> bool {
        self.in_descents
    }

    /// A point. Another fiber may run here, and what was read optimistically may have changed after it. The caller
    /// holds no latch.
    #[inline(always)]
    pub(crate) fn at(&self, site: &'static PointSite) {
        if self.live >> (site.number() % u64::BITS) & 1 == 1 {
            self.stop(site);
        }
    }

    /// Cold and shared by all points, so that the code between two points fits the L1 instruction cache.
    #[inline(never)]
    fn stop(&self, site: &'static PointSite) {
        crate::base::latches::assert_none_held(site.name);
        super::sync::assert_none_locked(site.name);
        self.hook.point(site.number());
    }

    /// A statement begins. The caller holds no latch.
    #[inline(always)]
    pub(crate) fn enter(&self, operation: Operation) {
        if self.cooperative {
            crate::base::latches::assert_none_held("the begin of an operation");
            super::sync::assert_none_locked("the begin of an operation");
            self.hook.enter(operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::hook::{BlockReason, WaitToken};
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "the linker's section is not there")]
    fn every_site_is_listed_under_its_number() {
        let all = points();
        assert!((12..=64).contains(&all.len()), "{} sites", all.len());
        for (i, site) in all.iter().enumerate() {
            assert_eq!(site.number() as usize, i, "{site:?}");
        }
        let mut names: Vec<_> = all.iter().map(PointSite::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "two sites have one name");
        assert_eq!(site::ROW.kind(), PointKind::Data);
        assert!(all.iter().any(|s| std::ptr::eq(s, &site::ROW)));
    }

    /// Stops at the sites that the test names, and nowhere else.
    #[derive(Debug)]
    struct At(&'static PointSite);

    impl Hook for At {
        fn is_cooperative(&self) -> bool {
            true
        }

        fn may_stop_at(&self, site: &'static PointSite) -> bool {
            std::ptr::eq(site, self.0)
        }

        fn block(&self, _: &WaitToken, _: BlockReason) {}

        fn block_for(&self, _: &WaitToken, _: BlockReason, _: Duration) -> bool {
            true
        }

        fn wake(&self, _: &WaitToken) {}
    }

    #[test]
    #[cfg_attr(miri, ignore = "the linker's section is not there")]
    fn one_point_alone_is_live() {
        for site in points() {
            let hook: Arc<dyn Hook> = Arc::new(At(site));
            let made = Points::new(&hook, LatchKind::Optimistic);
            let of_descents = OF_DESCENTS.iter().any(|other| std::ptr::eq(*other, site));
            assert_eq!(made.live, 1 << site.number(), "{site:?}");
            assert_eq!(made.in_descents, of_descents, "{site:?}");
            let latched = of_descents || std::ptr::eq(site, &site::BEFORE_COPY);
            let made = Points::new(&hook, LatchKind::Plain);
            assert_eq!(made.live, if latched { 0 } else { 1 << site.number() }, "{site:?}");
            assert!(!made.in_descents);
        }
    }
}
