//! Turn scheduler of the shell: tracks the state of each session, lets one session execute at a time, and writes all
//! replies.
//!
//! A session is `Idle`, `Running` a request, or `Blocked` in a request by a lock. Sessions have concurrent transactions, but
//! only one session executes at any moment. A request gives the turn to its session. The sessions that this request wakes
//! continue in the order in which they were woken, once the request is answered or blocked itself. A session becomes
//! `Blocked` in its own task (a thread or a fiber) just before it sleeps, and `Running` again in the task that wakes it.
//! Therefore no task ever observes that all sessions are idle or blocked while one of them is about to continue. The replies
//! and their order thus depend only on the requests, not on threads or schedulers.
//!
//! Turns cannot cause a deadlock: a session that waits for its turn holds only locks, and a session that waits for a lock
//! passes its turn on.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use storage::{BlockReason, Hook, WaitToken};

/// Number of a session, in order of their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionId(pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Running,
    /// Waiting for a lock, at the wait token with this address.
    Blocked(usize),
}

#[derive(Debug)]
struct Session {
    name: String,
    phase: Phase,
    /// True if the reply `blocked` was already sent for the current request.
    blocked_replied: bool,
    /// Number of the session's task ([`Hook::task`]); `None` before the task has started.
    task: Option<u64>,
    /// Wait token at which the session waits for its turn.
    turn: Arc<WaitToken>,
}

/// Turns and states of all sessions. Shared by the thread that reads requests, the sessions' tasks, and the engine's hook.
pub(super) struct TurnScheduler {
    state: Mutex<TurnState>,
    /// Notifies the thread that reads requests of state changes.
    moved: Condvar,
    /// Hook through which the sessions' tasks wait and are woken.
    tasks: Arc<dyn Hook>,
}

struct TurnState {
    out: Box<dyn Write + Send>,
    /// First error of writing a reply. No replies are written after an error.
    failure: Option<io::Error>,
    sessions: Vec<Session>,
    /// Session that has the turn.
    turn: Option<SessionId>,
    /// Woken sessions that wait for the turn.
    next: VecDeque<SessionId>,
}

impl std::fmt::Debug for TurnScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnScheduler").finish_non_exhaustive()
    }
}

impl TurnScheduler {
    /// Creates a turn scheduler that writes replies to `out`, for sessions whose tasks wait through the hook `tasks`.
    pub(super) fn new(out: Box<dyn Write + Send>, tasks: Arc<dyn Hook>) -> TurnScheduler {
        let state = TurnState { out, failure: None, sessions: Vec::new(), turn: None, next: VecDeque::new() };
        TurnScheduler { state: Mutex::new(state), moved: Condvar::new(), tasks }
    }

    /// Returns the hook through which the sessions' tasks wait and are woken.
    pub(super) fn tasks(&self) -> &Arc<dyn Hook> {
        &self.tasks
    }

    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an idle session.
    pub(super) fn add(&self, name: &str) -> SessionId {
        let mut state = self.state();
        let turn = Arc::new(WaitToken::new());
        state.sessions.push(Session {
            name: name.to_owned(),
            phase: Phase::Idle,
            blocked_replied: false,
            task: None,
            turn,
        });
        SessionId(state.sessions.len() - 1)
    }

    /// Makes the calling task the task of `session`.
    pub(super) fn enter(&self, session: SessionId) {
        let task = self.tasks.task();
        self.state().sessions[session.0].task = Some(task);
    }

    /// Returns the session of the calling task; `None` if the task has no session.
    pub(super) fn entered(&self) -> Option<SessionId> {
        let task = self.tasks.task();
        self.state().sessions.iter().position(|session| session.task == Some(task)).map(SessionId)
    }

    /// Gives `session` the turn for a request. Returns false if the previous request of `session` is still running. No
    /// session may have the turn at the time of the call.
    pub(super) fn start(&self, session: SessionId) -> bool {
        let mut state = self.state();
        let at = &mut state.sessions[session.0];
        if at.phase != Phase::Idle {
            return false;
        }
        (at.phase, at.blocked_replied) = (Phase::Running, false);
        state.turn = Some(session);
        true
    }

    /// Writes the reply to the current request of `session`, which is then idle.
    pub(super) fn reply(&self, session: SessionId, text: &str) {
        let mut state = self.state();
        state.answer(session, text);
        state.sessions[session.0].phase = Phase::Idle;
        self.rest(&mut state, session);
    }

    /// Marks `session` as blocked by a lock and calls `sleep`, which returns when `token` is woken. Returns when the session
    /// has the turn again.
    pub(super) fn block(&self, session: SessionId, token: &WaitToken, sleep: impl FnOnce()) {
        let turn = {
            let mut state = self.state();
            // A waker holds this mutex: either its wake-up is already visible here, or it will find this session blocked.
            if token.try_consume() {
                return;
            }
            let at = &mut state.sessions[session.0];
            at.phase = Phase::Blocked(std::ptr::from_ref(token).addr());
            if !std::mem::replace(&mut at.blocked_replied, true) {
                state.answer(session, "blocked");
            }
            let turn = Arc::clone(&state.sessions[session.0].turn);
            self.rest(&mut state, session);
            turn
        };
        sleep();
        while self.state().turn != Some(session) {
            self.tasks.block(&turn, BlockReason::Lock);
        }
    }

    /// Wakes the task that waits at `token`. If it belongs to a blocked session, queues that session for the turn.
    pub(super) fn wake(&self, token: &WaitToken) {
        let mut state = self.state();
        // A wake-up may come late, when no session is blocked at this token any more. A session that now waits at another
        // token stays blocked.
        let blocked = Phase::Blocked(std::ptr::from_ref(token).addr());
        if let Some(at) = state.sessions.iter().position(|session| session.phase == blocked) {
            state.sessions[at].phase = Phase::Running;
            state.next.push_back(SessionId(at));
            if state.turn.is_none() {
                self.pass(&mut state);
            }
        }
        self.tasks.wake(token);
    }

    /// Gives the turn to the session that was woken first.
    fn pass(&self, state: &mut TurnState) {
        state.turn = state.next.pop_front();
        if let Some(session) = state.turn {
            self.tasks.wake(&state.sessions[session.0].turn);
        }
    }

    /// Passes the turn to the next session if `session` has the turn.
    fn rest(&self, state: &mut TurnState, session: SessionId) {
        if state.turn == Some(session) {
            self.pass(state);
        }
        self.moved.notify_all();
    }

    /// Waits until every session is idle or waits for a lock.
    pub(super) fn wait_until_idle(&self) {
        let mut state = self.state();
        while state.turn.is_some() {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes a reply line that belongs to no session.
    pub(super) fn say(&self, line: &str) {
        self.state().write(line);
    }

    /// Takes the first error of writing a reply, if any.
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        self.state().failure.take()
    }

    /// Returns true if replies can still be written.
    pub(super) fn can_reply(&self) -> bool {
        self.state().failure.is_none()
    }
}

impl TurnState {
    fn answer(&mut self, session: SessionId, text: &str) {
        let line = format!("{} {text}", self.sessions[session.0].name);
        self.write(&line);
    }

    fn write(&mut self, line: &str) {
        if self.failure.is_some() {
            return;
        }
        // One call writes the whole line, so that a pipe never contains half a line.
        let written = self.out.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.out.flush());
        self.failure = written.err();
    }
}
