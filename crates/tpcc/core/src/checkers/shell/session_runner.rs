//! Runs the sessions of the shell, each on a thread of its own or all as fibers of one thread.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, Scope};

use sched_steps::{Executor, FiberError};
use storage::{Database, OpenTable};

use super::MOST_SESSIONS;
use super::mailbox::Mailbox;
use super::request::Request;
use super::session;
use super::turns::{SessionId, TurnScheduler};
use crate::checkers::history::Teams;

/// State that all sessions of the shell share.
#[derive(Clone, Copy)]
pub(super) struct SessionContext<'env> {
    pub(super) db: &'env Database,
    pub(super) table: OpenTable<i64, String>,
    pub(super) turns: &'env TurnScheduler,
}

/// A session that is to be started.
pub(super) struct NewSession {
    id: SessionId,
    inbox: Arc<Mailbox<Request>>,
}

impl NewSession {
    fn serve(self, context: SessionContext<'_>) {
        session::serve(context.db, context.table, context.turns, self.id, &self.inbox);
    }
}

/// Tasks that execute the sessions.
pub(super) enum SessionRunner<'scope, 'env> {
    /// One thread per session.
    Threads(&'scope Scope<'scope, 'env>),
    /// Fibers of one thread. The thread takes new sessions from this mailbox.
    Fibers(Arc<Mailbox<NewSession>>),
}

impl<'scope, 'env> SessionRunner<'scope, 'env> {
    /// Creates the runner, for sessions on threads or in a team of fibers.
    ///
    /// # Errors
    /// Error message if no thread or fiber can be started.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        context: SessionContext<'env>,
        teams: Option<&'env Teams>,
    ) -> Result<SessionRunner<'scope, 'env>, String> {
        let Some(teams) = teams else { return Ok(SessionRunner::Threads(scope)) };
        teams.set_indexes(context.db)?;
        let new_sessions = Arc::new(Mailbox::new());
        let (built, is_built) = sync_channel(1);
        let inbox = Arc::clone(&new_sessions);
        let work = move || run_fibers(teams, context, &inbox, &built);
        thread::Builder::new().name("fibers".into()).spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        // The thread ends without sending a result only after a panic, which its scope propagates.
        is_built.recv().unwrap_or(Ok(()))?;
        Ok(SessionRunner::Fibers(new_sessions))
    }

    /// Starts a session on a new thread or fiber.
    ///
    /// # Errors
    /// Error message if no thread can be started.
    pub(super) fn open(
        &self,
        context: SessionContext<'env>,
        id: SessionId,
        inbox: Arc<Mailbox<Request>>,
    ) -> Result<(), String> {
        let session = NewSession { id, inbox };
        match self {
            SessionRunner::Threads(scope) => {
                let named = thread::Builder::new().name(format!("session {}", id.0));
                let started = named.spawn_scoped(scope, move || session.serve(context));
                started.map(drop).map_err(|error| format!("cannot start a thread: {}", session::one_line(&error)))
            }
            SessionRunner::Fibers(new_sessions) => match new_sessions.put(&**context.turns.tasks(), session) {
                true => Ok(()),
                false => Err("the thread of all sessions has ended; this is a fault of the program".into()),
            },
        }
    }

    /// Closes the mailbox of new sessions, so that no more sessions start. An open session ends when its own mailbox is
    /// closed.
    pub(super) fn close(&self, turns: &TurnScheduler) {
        if let SessionRunner::Fibers(new_sessions) = self {
            new_sessions.close(&**turns.tasks());
        }
    }
}

/// Runs all sessions as fibers of the calling thread. The first fiber starts the other fibers.
fn run_fibers(
    teams: &Teams,
    context: SessionContext<'_>,
    new_sessions: &Mailbox<NewSession>,
    built: &SyncSender<Result<(), String>>,
) {
    // Sending cannot fail: the receiver is waiting for the result.
    let mut executor: Executor = match teams.executor(0, MOST_SESSIONS + 1) {
        Ok(executor) => executor,
        Err(error) => return drop(built.send(Err(error))),
    };
    let _ = built.send(Ok(()));
    let ran = executor.scope(|fibers| {
        let first = fibers.spawn(move || {
            while let Some(session) = new_sessions.take(&**context.turns.tasks()) {
                drop(fibers.spawn(move || session.serve(context)));
            }
        });
        first.join()
    });
    new_sessions.close(&**context.turns.tasks());
    // Fibers that are still parked have no request to reply to, so their error is ignored.
    if let Err(FiberError::Panicked { payload, .. }) = ran.and_then(|joined| joined) {
        resume_unwind(payload);
    }
}
