//! Teams of an executor: joining a team, launching a team, and statistics.

use std::any::Any;
use std::cell::{Cell, RefCell};

use super::consolidate::Groups;
use super::policy::{NextTeam, WaitingTeams};
use super::queues::{Queues, WaitingTeam};
use super::stats::{Counts, OperationStatistics, Statistics, add, mean};
use crate::context::call_outside;
use crate::fifo::Links;
use crate::point::{OperationId, Operations};

/// Operation index of a fiber that is in no operation.
pub(crate) const NO_OPERATION: u8 = u8::MAX;

/// Teams of an executor: waiting teams, the policy that chooses among them, and statistics.
pub(crate) struct Teams {
    operations: Operations,
    queues: Queues,
    last: Cell<u8>,
    patience: u64,
    policy: RefCell<Option<Box<dyn NextTeam>>>,
    /// Policy that has panicked. It is dropped only with the executor, because its destructor is user code that may
    /// panic.
    panicked: Cell<Option<Box<dyn NextTeam>>>,
    /// Panic payload of the policy, to be resumed by the scope.
    failure: Cell<Option<Box<dyn Any + Send>>>,
    groups: Groups,
    counts: Box<[Counts]>,
    ready_sum: Cell<u64>,
    team_sum: Cell<u64>,
    launched: Cell<u64>,
    overdue: Cell<u64>,
    longest: Cell<u64>,
}

impl std::fmt::Debug for Teams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Teams").field("queues", &self.queues).finish_non_exhaustive()
    }
}

/// Member of a team that is about to be launched.
pub(crate) struct Member {
    pub(crate) operation: u8,
    pub(crate) joined: u64,
}

impl Teams {
    pub(crate) fn new(
        operations: Operations,
        policy: Box<dyn NextTeam>,
        patience: u64,
        consolidate_below: f64,
    ) -> Teams {
        let n = operations.names.len();
        let groups = Groups::new(operations.families.clone(), consolidate_below);
        Teams {
            operations,
            queues: Queues::new(n),
            last: Cell::new(NO_OPERATION),
            patience,
            policy: RefCell::new(Some(policy)),
            panicked: Cell::new(None),
            failure: Cell::new(None),
            groups,
            counts: (0..n).map(|_| Counts::default()).collect(),
            ready_sum: Cell::new(0),
            team_sum: Cell::new(0),
            launched: Cell::new(0),
            overdue: Cell::new(0),
            longest: Cell::new(0),
        }
    }

    pub(crate) fn contains(&self, operation: OperationId) -> bool {
        operation.index() < self.queues.len()
    }

    pub(crate) fn counts(&self, operation: u8) -> Option<&Counts> {
        self.counts.get(operation as usize)
    }

    /// Returns the number of launches so far, which is the clock that measures waits of teams.
    pub(crate) fn now(&self) -> u64 {
        self.queues.now()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Queues fiber `index` for the next team of `operation`.
    pub(crate) fn join(&self, links: &impl Links, index: u32, operation: OperationId) {
        let team = self.groups.of(operation.0);
        self.queues.push(links, team, index);
        self.last.set(team);
    }

    /// Iterates over the waiting teams, in the order of their numbers.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = WaitingTeam> {
        self.queues.waiting()
    }

    /// Chooses a team and passes at most `size` of its members to `run`, in the order of arrival. `ready` is the number
    /// of ready fibers at this moment. At least one team must wait.
    ///
    /// `member` returns the operation of a fiber, and the launch count at the time when the fiber joined its team.
    pub(crate) fn launch(
        &self,
        links: &impl Links,
        size: u32,
        ready: u32,
        member: impl Fn(u32) -> Member,
        mut run: impl FnMut(u32),
    ) {
        let team = self.choose();
        let (mut seen, mut members) = (0_u64, 0_u32);
        while members < size {
            let Some(index) = self.queues.pop(links, team) else { break };
            let Member { operation, joined } = member(index);
            members += 1;
            let waited = self.now() - joined;
            self.longest.set(self.longest.get().max(waited));
            if let Some(counts) = self.counts(operation) {
                seen |= 1 << operation;
                add(&counts.size_in, 1);
                add(&counts.launches_waited, waited);
            }
            run(index);
        }
        self.queues.members_left(team, |index| member(index).joined);
        let mut left = seen;
        while left != 0 {
            let operation = left.trailing_zeros() as u8;
            left &= left - 1;
            if let Some(counts) = self.counts(operation) {
                add(&counts.teams, 1);
                self.groups.count_launch(operation);
            }
        }
        self.queues.count_launch();
        add(&self.launched, 1);
        add(&self.ready_sum, u64::from(ready));
        add(&self.team_sum, u64::from(members));
        self.groups.review(self.now());
    }

    /// Returns the number of the next team: the policy's choice, unless a team has waited longer than the patience.
    fn choose(&self) -> u8 {
        let oldest = self.waiting().max_by_key(|team| team.waited);
        let Some(oldest) = oldest else { return 0 };
        if oldest.waited > self.patience {
            add(&self.overdue, 1);
            return oldest.operation.0;
        }
        let last = self.last.get();
        let last = self.queues.has(last).then_some(OperationId(last));
        match self.call_policy(last) {
            Some(OperationId(chosen)) if self.queues.has(chosen) => chosen,
            _ => oldest.operation.0,
        }
    }

    /// Calls the policy as if outside of a fiber, so that it cannot re-enter the executor. A policy that panics is not
    /// called again.
    fn call_policy(&self, last: Option<OperationId>) -> Option<OperationId> {
        let mut policy = self.policy.borrow_mut();
        let chosen =
            call_outside(|| policy.as_mut().map(|policy| policy.next(&WaitingTeams { queues: &self.queues, last })));
        chosen.unwrap_or_else(|payload| {
            self.failure.set(Some(payload));
            self.panicked.set(policy.take());
            None
        })
    }

    /// Takes the panic payload of the policy; `None` if the policy has not panicked.
    pub(crate) fn take_failure(&self) -> Option<Box<dyn Any + Send>> {
        self.failure.take()
    }

    /// Counts that a fiber began an operation.
    pub(crate) fn count_begun(&self, operation: u8) {
        if let Some(counts) = self.counts(operation) {
            add(&counts.begun, 1);
            self.groups.count_begun(operation);
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let operations = self.operations.iter().zip(&self.counts);
        Statistics {
            operations: operations
                .map(|((_, name), counts)| OperationStatistics {
                    name: name.to_owned(),
                    begun: counts.begun.get(),
                    teams: counts.teams.get(),
                    mean_in: mean(counts.size_in.get(), counts.teams.get()),
                    mean_out: mean(counts.size_out.get(), counts.teams.get()),
                    strays: counts.strays.get(),
                    waits: counts.waits.get(),
                    mean_launches_waited: mean(counts.launches_waited.get(), counts.size_in.get()),
                })
                .collect(),
            launches: self.launched.get(),
            mean_ready: mean(self.ready_sum.get(), self.launched.get()),
            mean_team: mean(self.team_sum.get(), self.launched.get()),
            overdue: self.overdue.get(),
            longest_wait: self.longest.get(),
            consolidated: self.groups.consolidated(),
        }
    }

    pub(crate) fn reset_statistics(&self) {
        self.counts.iter().for_each(Counts::clear);
        for count in [&self.ready_sum, &self.team_sum, &self.launched, &self.overdue, &self.longest] {
            count.set(0);
        }
    }
}
