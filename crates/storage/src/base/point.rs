//! Points: yield points, at which a cooperative scheduler may switch to another fiber.
//!
//! A point is `if cooperative { hook.point(number) }`. With plain threads this is one branch that is never taken.

use std::sync::Arc;

use super::config::LatchKind;
use super::hook::{Hook, Operation};
use super::sites::{NUMBERED, PointSite, points, site};

/// Sites of the points in a descent for a single key.
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

/// Points of a database, with the hook that they call. Every structure that has points keeps a copy.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    hook: Arc<dyn Hook>,
    cooperative: bool,
    /// Bit set, indexed by site number, of the points at which the hook may stop. A point whose bit is clear costs one test.
    /// Under latch coupling the bits of points inside optimistic reads are clear, because a latch is held there.
    live: u64,
    /// True if any point inside a descent is live.
    in_descents: bool,
}

impl Points {
    /// Returns the points of a database whose page latches are of this kind.
    pub(crate) fn new(hook: &Arc<dyn Hook>, latches: LatchKind) -> Points {
        let cooperative = NUMBERED && hook.is_cooperative();
        let bit = |site: &'static PointSite| 1_u64.checked_shl(site.number()).unwrap_or(0);
        let descents = OF_DESCENTS.into_iter().fold(0, |all, site| all | bit(site));
        let mut live =
            points().iter().filter(|site| cooperative && hook.may_stop_at(site)).fold(0, |all, site| all | bit(site));
        if latches != LatchKind::Optimistic {
            live &= !(descents | bit(&site::BEFORE_COPY));
        }
        let in_descents = live & descents != 0;
        Points { hook: Arc::clone(hook), cooperative, live, in_descents }
    }

    /// Returns true if descents prefetch lines and stop at points.
    #[inline(always)]
    pub(crate) fn in_descents(&self) -> bool {
        self.in_descents
    }

    /// Passes a point. Another fiber may run here, so data that was read optimistically may have changed afterwards. The
    /// caller holds no latch.
    #[inline(always)]
    pub(crate) fn at(&self, site: &'static PointSite) {
        // In most configurations no point is live. The first test detects this without loading the number of the site.
        if self.live != 0 && self.is_live(site) {
            self.stop(site);
        }
    }

    /// Not inlined: otherwise the compiler computes the bit of every site in advance, even for threads that never stop.
    #[inline(never)]
    fn is_live(&self, site: &'static PointSite) -> bool {
        self.live >> (site.number() % u64::BITS) & 1 == 1
    }

    /// Calls the hook. Cold, and shared by all points, so that the code between two points fits the L1 instruction cache.
    #[inline(never)]
    fn stop(&self, site: &'static PointSite) {
        crate::base::latches::assert_none_held(site.name());
        super::sync::assert_none_locked(site.name());
        self.hook.point(site.number());
    }

    /// Reports the begin of a statement to the hook. The caller holds no latch.
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
    use super::super::sites::PointKind;
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

    /// Hook that stops at the given site and at no other.
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
            for latches in [LatchKind::Plain, LatchKind::Super] {
                let made = Points::new(&hook, latches);
                assert_eq!(made.live, if latched { 0 } else { 1 << site.number() }, "{site:?}");
                assert!(!made.in_descents);
            }
        }
    }
}
