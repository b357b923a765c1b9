//! Mutual exclusion of transactions that create or change tables.

use std::sync::Arc;

use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::sync::Mutex;

/// The turn to create or change a table: a flag that is true while a transaction has the turn, and the transactions
/// that wait for it.
#[derive(Debug, Default)]
pub(super) struct CreationTurn {
    underway: bool,
    waiting: Vec<Arc<WaitToken>>,
}

/// Guard of the exclusive right to create or change tables; dropping the guard releases the right.
pub(super) struct CreationGuard<'c> {
    creation: &'c Mutex<CreationTurn>,
    hook: &'c dyn Hook,
}

impl<'c> CreationGuard<'c> {
    pub(super) fn acquire(creation: &'c Mutex<CreationTurn>, hook: &'c dyn Hook) -> CreationGuard<'c> {
        let token = Arc::new(WaitToken::new());
        loop {
            {
                let mut creation = creation.lock();
                if !creation.underway {
                    creation.underway = true;
                    break;
                }
                creation.waiting.push(Arc::clone(&token));
            }
            hook.block(&token, BlockReason::Lock);
        }
        CreationGuard { creation, hook }
    }
}

impl Drop for CreationGuard<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut creation = self.creation.lock();
            creation.underway = false;
            std::mem::take(&mut creation.waiting)
        };
        waiting.iter().for_each(|token| self.hook.wake(token));
    }
}
