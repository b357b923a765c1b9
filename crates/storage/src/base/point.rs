//! Points: the places where a cooperative scheduler may run another fiber.
//!
//! A point is `if cooperative { hook.point(number) }`: with plain threads one branch that is never taken.

use std::sync::Arc;

use super::config::LatchKind;
use super::hook::{Hook, Operation};
use super::sites::{NUMBERED, PointSite, points, site};

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
        if latches != LatchKind::Optimistic {
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
        // Mostly there is none, which is known without the site's number.
        if self.live != 0 && self.is_live(site) {
            self.stop(site);
        }
    }

    /// Not inlined: compilers would work out every site's bit in advance, for threads that stop nowhere too.
    #[inline(never)]
    fn is_live(&self, site: &'static PointSite) -> bool {
        self.live >> (site.number() % u64::BITS) & 1 == 1
    }

    /// Cold and shared by all points, so that the code between two points fits the L1 instruction cache.
    #[inline(never)]
    fn stop(&self, site: &'static PointSite) {
        crate::base::latches::assert_none_held(site.name());
        super::sync::assert_none_locked(site.name());
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
            for latches in [LatchKind::Plain, LatchKind::Super] {
                let made = Points::new(&hook, latches);
                assert_eq!(made.live, if latched { 0 } else { 1 << site.number() }, "{site:?}");
                assert!(!made.in_descents);
            }
        }
    }
}
