//! Where each session stands, whose turn it is, and the one place that writes replies.
//!
//! A session is `Idle`, `Running` a request, or `Blocked` in it by a lock. Sessions have transactions at the same time, but
//! only one of them is on its way at any moment: a request is given to one; those whom it wakes go on, in the order they were
//! woken, when it has been answered or waits itself. A session becomes `Blocked` in its own task, a thread or a fiber, just
//! before it sleeps, and `Running` again in the task that wakes it, so no task ever sees all at rest while one of them is
//! about to go on. This makes the replies and their order a matter of the requests alone, not of threads or schedulers.
//!
//! No session waits for the turn of one that waits for it: a session that waits for a turn holds locks and nothing else,
//! and a wait for a lock gives the turn away.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use storage::{BlockReason, Hook, WaitToken};

/// A session, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionId(pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Running,
    /// By the lock whose token lies at this address.
    Blocked(usize),
}

#[derive(Debug)]
struct Session {
    name: String,
    phase: Phase,
    /// Whether it has been said that the request waits.
    told: bool,
    /// The number of its task, by [`Hook::task`]; none before it has begun.
    task: Option<u64>,
    /// Woken when it gets the turn.
    turn: Arc<WaitToken>,
}

/// Shared by the thread that reads requests, the sessions' tasks, and the engine's hook.
pub(super) struct Turns {
    state: Mutex<BoardState>,
    /// Wakes the thread that reads requests.
    moved: Condvar,
    /// How the tasks of sessions wait.
    tasks: Arc<dyn Hook>,
}

struct BoardState {
    out: Box<dyn Write + Send>,
    /// Why replies can no longer be written.
    failure: Option<io::Error>,
    sessions: Vec<Session>,
    /// The session that is on its way.
    turn: Option<SessionId>,
    /// Those who were woken meanwhile.
    next: VecDeque<SessionId>,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

impl Turns {
    /// A board that writes to `out`, for sessions that wait by `tasks`.
    pub(super) fn new(out: Box<dyn Write + Send>, tasks: Arc<dyn Hook>) -> Turns {
        let state = BoardState { out, failure: None, sessions: Vec::new(), turn: None, next: VecDeque::new() };
        Turns { state: Mutex::new(state), moved: Condvar::new(), tasks }
    }

    /// How the tasks of sessions wait.
    pub(super) fn tasks(&self) -> &Arc<dyn Hook> {
        &self.tasks
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an idle session.
    pub(super) fn add(&self, name: &str) -> SessionId {
        let mut state = self.state();
        let turn = Arc::new(WaitToken::new());
        state.sessions.push(Session { name: name.to_owned(), phase: Phase::Idle, told: false, task: None, turn });
        SessionId(state.sessions.len() - 1)
    }

    /// Makes the calling task that of `session`.
    pub(super) fn enter(&self, session: SessionId) {
        let task = self.tasks.task();
        self.state().sessions[session.0].task = Some(task);
    }

    /// The session of the calling task.
    pub(super) fn entered(&self) -> Option<SessionId> {
        let task = self.tasks.task();
        self.state().sessions.iter().position(|session| session.task == Some(task)).map(SessionId)
    }

    /// Gives `session` the turn, for a request; false if it still has one. All are at rest.
    pub(super) fn start(&self, session: SessionId) -> bool {
        let mut state = self.state();
        let at = &mut state.sessions[session.0];
        if at.phase != Phase::Idle {
            return false;
        }
        (at.phase, at.told) = (Phase::Running, false);
        state.turn = Some(session);
        true
    }

    /// Answers the request of `session`, which is over.
    pub(super) fn reply(&self, session: SessionId, text: &str) {
        let mut state = self.state();
        state.answer(session, text);
        state.sessions[session.0].phase = Phase::Idle;
        self.rest(&mut state, session);
    }

    /// Lets `session` wait for a lock: `sleep` returns when `token` is woken. Returns when it may go on.
    pub(super) fn block(&self, session: SessionId, token: &WaitToken, sleep: impl FnOnce()) {
        let turn = {
            let mut state = self.state();
            // The waker acts under this mutex: either the wake is here by now, or it will find the session blocked.
            if token.try_consume() {
                return;
            }
            let at = &mut state.sessions[session.0];
            at.phase = Phase::Blocked(std::ptr::from_ref(token).addr());
            if !std::mem::replace(&mut at.told, true) {
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

    /// Wakes the task that waits at `token`, and lets its session, if it is one's, go on in its turn.
    pub(super) fn wake(&self, token: &WaitToken) {
        let mut state = self.state();
        // A late wake finds no session, or one that waits elsewhere; that wait is not over.
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
    fn pass(&self, state: &mut BoardState) {
        state.turn = state.next.pop_front();
        if let Some(session) = state.turn {
            self.tasks.wake(&state.sessions[session.0].turn);
        }
    }

    /// Passes the turn on, if `session` has it.
    fn rest(&self, state: &mut BoardState, session: SessionId) {
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

    /// Writes a line that is no session's reply.
    pub(super) fn say(&self, line: &str) {
        self.state().write(line);
    }

    /// Why replies cannot be written, once.
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        self.state().failure.take()
    }

    /// Whether replies can still be written.
    pub(super) fn is_heard(&self) -> bool {
        self.state().failure.is_none()
    }
}

impl BoardState {
    fn answer(&mut self, session: SessionId, text: &str) {
        let line = format!("{} {text}", self.sessions[session.0].name);
        self.write(&line);
    }

    fn write(&mut self, line: &str) {
        if self.failure.is_some() {
            return;
        }
        // One call for the whole line, so that a pipe never carries half of one.
        let written = self.out.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.out.flush());
        self.failure = written.err();
    }
}
