//! Queue of work items for a task.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use storage::{BlockReason, Hook, WaitToken};

/// Queue of items for one receiving task, a thread or a fiber.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    state: Mutex<MailboxState<T>>,
    filled: WaitToken,
}

#[derive(Debug)]
struct MailboxState<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox.
    pub(super) fn new() -> Mailbox<T> {
        let state = MailboxState { waiting: VecDeque::new(), closed: false };
        Mailbox { state: Mutex::new(state), filled: WaitToken::new() }
    }

    fn state(&self) -> MutexGuard<'_, MailboxState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an item. Returns false if the mailbox is closed.
    pub(super) fn put(&self, tasks: &dyn Hook, item: T) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        state.waiting.push_back(item);
        drop(state);
        tasks.wake(&self.filled);
        true
    }

    /// Closes the mailbox. The receiving task can still take the remaining items.
    pub(super) fn close(&self, tasks: &dyn Hook) {
        self.state().closed = true;
        tasks.wake(&self.filled);
    }

    /// Takes the first item. Waits while the mailbox is empty. Returns `None` if the mailbox is closed and empty.
    pub(super) fn take(&self, tasks: &dyn Hook) -> Option<T> {
        loop {
            let mut state = self.state();
            if let Some(item) = state.waiting.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            drop(state);
            tasks.block(&self.filled, BlockReason::Lock);
        }
    }
}
