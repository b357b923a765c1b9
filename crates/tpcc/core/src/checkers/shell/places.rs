//! Execution of sessions: each on a thread of its own, or all as fibers of one thread.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, Scope};

use sched_steps::{Executor, FiberError};
use storage::{Database, OpenTable};

use super::MOST_SESSIONS;
use super::board::{SessionId, Turns};
use super::mailbox::Mailbox;
use super::request::Request;
use super::session;
use crate::checkers::history::Teams;

/// State that all sessions share.
#[derive(Clone, Copy)]
pub(super) struct Common<'env> {
    pub(super) db: &'env Database,
    pub(super) table: OpenTable<i64, String>,
    pub(super) board: &'env Turns,
}

/// A session to be started.
pub(super) struct Newcomer {
    id: SessionId,
    inbox: Arc<Mailbox<Request>>,
}

impl Newcomer {
    fn serve(self, common: Common<'_>) {
        session::serve(common.db, common.table, common.board, self.id, &self.inbox);
    }
}

/// Execution of sessions.
pub(super) enum Places<'scope, 'env> {
    /// One thread per session.
    Threads(&'scope Scope<'scope, 'env>),
    /// Fibers of one thread, which takes new sessions from this mailbox.
    Fibers(Arc<Mailbox<Newcomer>>),
}

impl<'scope, 'env> Places<'scope, 'env> {
    /// Prepares the execution of sessions, on threads or as a team of fibers.
    ///
    /// # Errors
    /// If no thread or fiber can be started; a message.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        common: Common<'env>,
        teams: Option<&'env Teams>,
    ) -> Result<Places<'scope, 'env>, String> {
        let Some(teams) = teams else { return Ok(Places::Threads(scope)) };
        teams.set_indexes(common.db)?;
        let newcomers = Arc::new(Mailbox::new());
        let (built, is_built) = sync_channel(1);
        let inbox = Arc::clone(&newcomers);
        let work = move || run_fibers(teams, common, &inbox, &built);
        thread::Builder::new().name("fibers".into()).spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        // The thread ends without an answer only after a panic, which its scope propagates.
        is_built.recv().unwrap_or(Ok(()))?;
        Ok(Places::Fibers(newcomers))
    }

    /// Starts a session.
    ///
    /// # Errors
    /// If no thread can be started; a message.
    pub(super) fn open(&self, common: Common<'env>, id: SessionId, inbox: Arc<Mailbox<Request>>) -> Result<(), String> {
        let newcomer = Newcomer { id, inbox };
        match self {
            Places::Threads(scope) => {
                let named = thread::Builder::new().name(format!("session {}", id.0));
                let started = named.spawn_scoped(scope, move || newcomer.serve(common));
                started.map(drop).map_err(|error| format!("cannot start a thread: {}", session::one_line(&error)))
            }
            Places::Fibers(newcomers) => match newcomers.put(&**common.board.tasks(), newcomer) {
                true => Ok(()),
                false => Err("the thread of all sessions has ended; this is a fault of the program".into()),
            },
        }
    }

    /// Stops the start of new sessions. Open sessions end with their mailboxes.
    pub(super) fn close(&self, board: &Turns) {
        if let Places::Fibers(newcomers) = self {
            newcomers.close(&**board.tasks());
        }
    }
}

/// Body of the fibers' thread. Its first fiber starts the others.
fn run_fibers(
    teams: &Teams,
    common: Common<'_>,
    newcomers: &Mailbox<Newcomer>,
    built: &SyncSender<Result<(), String>>,
) {
    // Cannot fail: the receiver waits.
    let mut executor: Executor = match teams.executor(0, MOST_SESSIONS + 1) {
        Ok(executor) => executor,
        Err(error) => return drop(built.send(Err(error))),
    };
    let _ = built.send(Ok(()));
    let ran = executor.scope(|fibers| {
        let first = fibers.spawn(move || {
            while let Some(newcomer) = newcomers.take(&**common.board.tasks()) {
                drop(fibers.spawn(move || newcomer.serve(common)));
            }
        });
        first.join()
    });
    newcomers.close(&**common.board.tasks());
    // Fibers that stay parked have no request, so there is nothing to report about them.
    if let Err(FiberError::Panicked { payload, .. }) = ran.and_then(|joined| joined) {
        resume_unwind(payload);
    }
}
