//! Policies: rules that choose the next fiber of a core from the core's state.
//!
//! [`Fair`] is the rule of the completely fair scheduler. [`Tas`] runs siblings one after the other on each core,
//! [`Itas`] at the same time on several cores. The placement of a group's fibers is separate: see
//! [`Placement`](crate::Placement).

mod fair;
mod itas;
mod tas;

pub use fair::Fair;
pub use itas::Itas;
pub use tas::Tas;

use crate::group::GroupId;
use crate::publish::Role;
use crate::queue::{Candidate, RunQueue};

/// Rule by which a core chooses the next fiber among its fibers that can run.
///
/// The core applies the same two limits to every policy, so that no policy can starve a fiber: see
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
    /// Returns the name of the policy, for reports.
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
    /// Returns the fiber with the highest priority (the paper's thread B on a master, F on a slave).
    #[inline]
    #[must_use]
    pub fn highest(&self) -> Candidate {
        self.highest
    }

    /// Returns the sibling with the highest priority of the fiber that ran last (the paper's threads C and G), if a
    /// sibling can run.
    #[inline]
    #[must_use]
    pub fn sibling(&self) -> Option<Candidate> {
        self.queue.first_of(self.last?)
    }

    /// Returns, on a slave, the fiber with the highest priority in the group that its master aggregates (the paper's
    /// thread H).
    #[inline]
    #[must_use]
    pub fn published(&self) -> Option<Candidate> {
        self.queue.first_of(self.published?)
    }

    /// Returns the number of siblings in the last fiber's group that this core has chosen in a row (`agg_count` of the
    /// group's memory address space).
    #[must_use]
    pub fn agg_count(&self) -> u32 {
        self.agg_count
    }

    /// Returns `agg_limit` of the last fiber's group.
    #[must_use]
    pub fn agg_limit(&self) -> u32 {
        self.limit
    }

    /// Returns `agg_bonus` of the last fiber's group, in nanoseconds of vruntime.
    #[must_use]
    pub fn agg_bonus(&self) -> u64 {
        self.bonus_ns
    }

    /// Returns the role of this core.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the queue of all fibers that can run.
    #[must_use]
    pub fn queue(&self) -> &RunQueue {
        self.queue
    }

    /// Evaluates equation (1): fewer siblings than the limit have been preferred in a row, `agg_count < agg_limit`.
    #[inline]
    #[must_use]
    pub fn equation_1(&self) -> bool {
        self.agg_count < self.limit
    }

    /// Evaluates equations (2), (4) and (5), which compare the vruntime of a preferred fiber (C, H, G) with the
    /// smallest vruntime (B, F): `Vrun_preferred - Vrun_smallest <= agg_bonus`.
    #[inline]
    #[must_use]
    pub fn is_within_bonus(&self, preferred: Candidate) -> bool {
        preferred.vruntime.saturating_sub(self.highest.vruntime) <= self.bonus_ns
    }
}

/// Decision of a policy: the next fiber to run, and its effect on `agg_count` and on the published group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Group whose first fiber in the run queue is chosen.
    pub group: GroupId,
    /// True if the fiber runs because it is a sibling of the previous fiber: `agg_count` is then incremented. False
    /// sets `agg_count` to 0.
    pub counts: bool,
    /// Group that a master publishes from now on; `None` publishes no group. Ignored on a slave.
    pub publish: Option<GroupId>,
}

impl Choice {
    /// Chooses the fiber with the highest priority; `agg_count` becomes 0, and no group is published.
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
