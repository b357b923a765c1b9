//! Time aggregation on several cores (paper, "Overview of inter-core time aggregation scheduler").

use super::{Choice, Policy, View};
use crate::publish::Role;
use crate::queue::Candidate;

/// A master aggregates as [`Tas`](super::Tas) does, and publishes the group that it aggregates. A slave prefers fibers
/// of the published group, then siblings of its own last fiber.
///
/// The equations of the paper are images that are missing from its text. They are interpreted as follows. (1):
/// `agg_count < agg_limit`. (2), (4), (5): the vruntime of the preferred thread exceeds the smallest vruntime by at
/// most `agg_bonus`. (3): the vruntime of the published group's thread H exceeds the vruntime of the slave's own
/// sibling G by at most `agg_bonus`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Itas;

impl Policy for Itas {
    fn name(&self) -> &'static str {
        "itas"
    }

    #[inline]
    fn choose(&mut self, view: &View<'_>) -> Choice {
        ip1(view)
    }
}

/// IP1: a master continues with IP2; a slave also looks up a thread of the published group, and continues with IP6.
#[inline]
fn ip1(view: &View<'_>) -> Choice {
    match view.role() {
        Role::Master => ip2(view),
        Role::SlaveOf(_) => ip6(view),
    }
}

/// IP2: with a sibling, continues with IP3; otherwise with IP5.
#[inline]
fn ip2(view: &View<'_>) -> Choice {
    match view.sibling() {
        Some(c) => ip3(view, c),
        None => ip5(view),
    }
}

/// IP3: if equations (1) and (2) are true, the sibling is next, and `agg_count` is incremented; continues with IP4.
/// Otherwise continues with IP5.
#[inline]
fn ip3(view: &View<'_>, c: Candidate) -> Choice {
    if view.equation_1() && view.is_within_bonus(c) { ip4(c) } else { ip5(view) }
}

/// IP4: the sibling's group is published.
#[inline]
fn ip4(c: Candidate) -> Choice {
    ip7(Choice::aggregate(c))
}

/// IP5: the thread with the highest priority is next, `agg_count` becomes 0, and no group is published.
#[inline]
fn ip5(view: &View<'_>) -> Choice {
    ip7(Choice::highest(view))
}

/// IP6: the action of a slave depends on the presence of a sibling of its own (G), of a thread of the published group
/// (H), or of both.
#[inline]
fn ip6(view: &View<'_>) -> Choice {
    match (view.sibling(), view.published()) {
        (Some(g), Some(h)) => ip6_1(view, g, h),
        (Some(g), None) => ip6_2(view, g),
        (None, Some(h)) => ip6_3(view, h),
        (None, None) => ip7(Choice::highest(view)),
    }
}

/// IP6.1: if equations (3) and (4) are true, the published group's thread is next, and `agg_count` becomes 0. Otherwise
/// continues with IP6.2.
#[inline]
fn ip6_1(view: &View<'_>, g: Candidate, h: Candidate) -> Choice {
    if equation_3(view, g, h) && view.is_within_bonus(h) { ip7(Choice::follow(h)) } else { ip6_2(view, g) }
}

/// IP6.2: if equations (1) and (5) are true, the slave's own sibling is next, and `agg_count` is incremented. Otherwise the
/// thread with the highest priority is next, and `agg_count` becomes 0.
#[inline]
fn ip6_2(view: &View<'_>, g: Candidate) -> Choice {
    if view.equation_1() && view.is_within_bonus(g) {
        ip7(Choice { publish: None, ..Choice::aggregate(g) })
    } else {
        ip7(Choice::highest(view))
    }
}

/// IP6.3: if equation (4) is true, the published group's thread is next, otherwise the thread with the highest priority.
/// In both cases `agg_count` becomes 0.
#[inline]
fn ip6_3(view: &View<'_>, h: Candidate) -> Choice {
    if view.is_within_bonus(h) { ip7(Choice::follow(h)) } else { ip7(Choice::highest(view)) }
}

/// IP7: ends the scheduling decision.
#[inline]
fn ip7(choice: Choice) -> Choice {
    choice
}

/// Evaluates equation (3), as interpreted here: the vruntime of the published group's thread H exceeds the vruntime of
/// the slave's own sibling G by at most `agg_bonus`.
#[inline]
fn equation_3(view: &View<'_>, g: Candidate, h: Candidate) -> bool {
    h.vruntime.saturating_sub(g.vruntime) <= view.agg_bonus()
}
