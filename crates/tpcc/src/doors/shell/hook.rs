//! How the shell sees that a request waits for a lock: the engine says so, at once, through its hook.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use storage::{BlockReason, Hook, ThreadHook, WaitToken};

use super::board::{SessionId, Turns};

thread_local! {
    /// The session that this thread serves.
    static SESSION: Cell<Option<SessionId>> = const { Cell::new(None) };
}

/// Makes the calling thread that of `session`.
pub(super) fn enter(session: SessionId) {
    SESSION.set(Some(session));
}

/// Plain threads whose waits for locks show on the board.
#[derive(Debug)]
pub(super) struct ShellHook {
    threads: ThreadHook,
    board: Arc<Turns>,
}

impl ShellHook {
    pub(super) fn new(board: Arc<Turns>) -> ShellHook {
        ShellHook { threads: ThreadHook::default(), board }
    }
}

impl Hook for ShellHook {
    fn block(&self, token: &WaitToken, reason: BlockReason) {
        match (reason, SESSION.get()) {
            (BlockReason::Lock, Some(session)) => {
                // For `wake`; no other thread writes it. 0 is no session.
                token.scheduler_word.store(session.0 + 1, Ordering::Release);
                self.board.block(session, token, || self.threads.block(token, reason));
            }
            _ => self.threads.block(token, reason),
        }
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        // Locks are not waited for with a limit.
        self.threads.block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        match token.scheduler_word.load(Ordering::Acquire).checked_sub(1) {
            Some(session) => self.board.wake(SessionId(session), token, || self.threads.wake(token)),
            None => self.threads.wake(token),
        }
    }
}
