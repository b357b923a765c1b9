//! Mutual exclusion of the creation and change of tables.

use std::sync::Arc;

use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::sync::Mutex;

/// State of the exclusion: whether a transaction creates a table, and the transactions that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Creation {
    underway: bool,
    waiting: Vec<Arc<WaitToken>>,
}

/// The right to create or change a table, until dropped.
pub(super) struct Creator<'c> {
    creation: &'c Mutex<Creation>,
    hook: &'c dyn Hook,
}

impl<'c> Creator<'c> {
    pub(super) fn wait(creation: &'c Mutex<Creation>, hook: &'c dyn Hook) -> Creator<'c> {
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
        Creator { creation, hook }
    }
}

impl Drop for Creator<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut creation = self.creation.lock();
            creation.underway = false;
            std::mem::take(&mut creation.waiting)
        };
        waiting.iter().for_each(|token| self.hook.wake(token));
    }
}
