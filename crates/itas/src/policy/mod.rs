//! Policies: rules that choose the next fiber of a core from the core's state.
//!
//! [`Fair`] is the rule of the completely fair scheduler. [`Tas`] aggregates siblings in time on each core, [`Itas`] at
//! the same time on several cores. The placement of a group's fibers is separate: see [`Placement`](crate::Placement).

mod fair;
mod itas;
mod tas;

pub use fair::Fair;
pub use itas::Itas;
pub use tas::Tas;

use crate::group::GroupId;
use crate::publish::Role;
use crate::queue::{Candidate, RunQueue};

/// Rule by which a core chooses among its fibers that can run.
///
/// The core applies the same two limits to every policy, so that none can starve a fiber: see
/// [`Scheduler::pick`](crate::Scheduler::pick).
///
/// ```
/// use itas::policy::{Choice, Policy, View};
///
/// /// Chooses the sibling of the fiber that ran, whenever there is one.
/// struct Sticky;
///
/// impl Policy for Sticky {
///     fn name(&self) -> &'static str {
///         "sticky"
///     }
///
///     fn choose(&mut self, view: &View<'_>) -> Choice {
///         match view.sibling() {
///             Some(sibling) => Choice::aggregate(sibling),
///             None => Choice::highest(view),
///         }
///     }
/// }
/// ```
pub trait Policy: Send {
    /// Name of the policy, for reports.
    fn name(&self) -> &'static str;

    /// Chooses the fiber to run next.
    fn choose(&mut self, view: &View<'_>) -> Choice;
}

/// State of a core at the time of a choice. At least one fiber can run.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) queue: &'a RunQueue,
    pub(crate) highest: Candidate,
    pub(crate) last: Option<GroupId>,
    pub(crate) agg_count: u32,
    pub(crate) bonus_ns: u64,
    pub(crate) limit: u32,
    pub(crate) role: Role,
    pub(crate) published: Option<GroupId>,
}

impl View<'_> {
    /// The fiber with the highest priority (the paper's thread B on a master, F on a slave).
    #[inline]
    #[must_use]
    pub fn highest(&self) -> Candidate {
        self.highest
    }

    /// The sibling, with the highest priority, of the fiber that ran last (threads C and G), if one can run.
    #[inline]
    #[must_use]
    pub fn sibling(&self) -> Option<Candidate> {
        self.queue.first_of(self.last?)
    }

    /// On a slave: the fiber with the highest priority in the group that its master aggregates (thread H).
    #[inline]
    #[must_use]
    pub fn published(&self) -> Option<Candidate> {
        self.queue.first_of(self.published?)
    }

    /// Number of siblings in the last fiber's group that this core has chosen in a row (`agg_count` of its memory address
    /// space).
    #[must_use]
    pub fn agg_count(&self) -> u32 {
        self.agg_count
    }

    /// `agg_limit` of the last fiber's group.
    #[must_use]
    pub fn agg_limit(&self) -> u32 {
        self.limit
    }

    /// `agg_bonus` of the last fiber's group, in nanoseconds of vruntime.
    #[must_use]
    pub fn agg_bonus(&self) -> u64 {
        self.bonus_ns
    }

    /// Role of this core.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// All fibers that can run.
    #[must_use]
    pub fn queue(&self) -> &RunQueue {
        self.queue
    }

    /// Equation (1): fewer than the limit of siblings have been preferred in a row, `agg_count < agg_limit`.
    #[inline]
    #[must_use]
    pub fn equation_1(&self) -> bool {
        self.agg_count < self.limit
    }

    /// Equations (2), (4) and (5), which compare the vruntime of a preferred fiber (C, H, G) with the smallest (B, F):
    /// `Vrun_preferred - Vrun_smallest <= agg_bonus`.
    #[inline]
    #[must_use]
    pub fn is_within_bonus(&self, preferred: Candidate) -> bool {
        preferred.vruntime.saturating_sub(self.highest.vruntime) <= self.bonus_ns
    }
}

/// Choice of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Group whose first fiber runs.
    pub group: GroupId,
    /// True if the fiber runs because it is a sibling of the previous one: `agg_count` is incremented. False sets
    /// `agg_count` to 0.
    pub counts: bool,
    /// Group that a master publishes from now on. Ignored on a slave.
    pub publish: Option<GroupId>,
}

impl Choice {
    /// Chooses the fiber with the highest priority; `agg_count` becomes 0, and nothing is published.
    #[inline]
    #[must_use]
    pub fn highest(view: &View<'_>) -> Choice {
        Choice { group: view.highest().group, counts: false, publish: None }
    }

    /// Chooses a sibling; `agg_count` is incremented, and the sibling's group is published.
    #[must_use]
    pub fn aggregate(sibling: Candidate) -> Choice {
        Choice { group: sibling.group, counts: true, publish: Some(sibling.group) }
    }

    /// Chooses a sibling of the master's fiber; `agg_count` becomes 0.
    #[must_use]
    pub fn follow(sibling: Candidate) -> Choice {
        Choice { group: sibling.group, counts: false, publish: None }
    }
}
