//! Engine hook of the shell: reports immediately that a request waits for a lock.

use std::sync::Arc;
use std::time::Duration;

use storage::{BlockReason, Hook, Operation, PointSite, WaitToken};

use super::turns::TurnScheduler;

/// Engine hook for the tasks (threads or fibers) of the sessions. Reports lock waits of sessions to the turn scheduler.
#[derive(Debug)]
pub(super) struct ShellHook {
    turns: Arc<TurnScheduler>,
}

impl ShellHook {
    pub(super) fn new(turns: Arc<TurnScheduler>) -> ShellHook {
        ShellHook { turns }
    }

    fn tasks(&self) -> &dyn Hook {
        &**self.turns.tasks()
    }
}

impl Hook for ShellHook {
    fn is_cooperative(&self) -> bool {
        self.tasks().is_cooperative()
    }

    fn may_stop_at(&self, site: &'static PointSite) -> bool {
        self.tasks().may_stop_at(site)
    }

    fn point(&self, site: u32) {
        self.tasks().point(site);
    }

    fn enter(&self, operation: Operation) {
        self.tasks().enter(operation);
    }

    fn task(&self) -> u64 {
        self.tasks().task()
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        let sleep = || self.tasks().block(token, reason);
        match self.turns.entered().filter(|_| reason == BlockReason::Lock) {
            Some(session) => self.turns.block(session, token, sleep),
            None => sleep(),
        }
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        // In the shell, lock waits have no time limit.
        self.tasks().block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        self.turns.wake(token);
    }
}
