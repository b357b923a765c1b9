//! Where sessions run: each on a thread of its own, or all as fibers of one.

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
use crate::doors::history::Teams;

/// What all sessions share.
#[derive(Clone, Copy)]
pub(super) struct Common<'env> {
    pub(super) db: &'env Database,
    pub(super) table: OpenTable<i64, String>,
    pub(super) board: &'env Turns,
}

/// A session that is to begin.
pub(super) struct Newcomer {
    id: SessionId,
    inbox: Arc<Mailbox<Request>>,
}

impl Newcomer {
    fn serve(self, common: Common<'_>) {
        session::serve(common.db, common.table, common.board, self.id, &self.inbox);
    }
}

/// Where sessions run.
pub(super) enum Places<'scope, 'env> {
    /// On a thread each.
    Threads(&'scope Scope<'scope, 'env>),
    /// As fibers of a thread, which takes them from here.
    Fibers(Arc<Mailbox<Newcomer>>),
}

impl<'scope, 'env> Places<'scope, 'env> {
    /// A place for every session, on threads or as a team of fibers.
    ///
    /// # Errors
    /// No thread or no fibers, in words.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        common: Common<'env>,
        teams: Option<&'env Teams>,
    ) -> Result<Places<'scope, 'env>, String> {
        let Some(teams) = teams else { return Ok(Places::Threads(scope)) };
        teams.know(common.db)?;
        let newcomers = Arc::new(Mailbox::new());
        let (built, is_built) = sync_channel(1);
        let inbox = Arc::clone(&newcomers);
        let work = move || run_fibers(teams, common, &inbox, &built);
        thread::Builder::new().name("fibers".into()).spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        // The thread ends without an answer only in a panic, which its scope passes on.
        is_built.recv().unwrap_or(Ok(()))?;
        Ok(Places::Fibers(newcomers))
    }

    /// Lets a session begin.
    ///
    /// # Errors
    /// No thread, in words.
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

    /// Takes no more sessions. Those that are open end with their inboxes.
    pub(super) fn close(&self, board: &Turns) {
        if let Places::Fibers(newcomers) = self {
            newcomers.close(&**board.tasks());
        }
    }
}

/// The thread of the fibers: one of them begins the others.
fn run_fibers(
    teams: &Teams,
    common: Common<'_>,
    newcomers: &Mailbox<Newcomer>,
    built: &SyncSender<Result<(), String>>,
) {
    // The receiver waits.
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
    // Fibers that are parked for good have no request: there is nothing to tell of them.
    if let Err(FiberError::Panicked { payload, .. }) = ran.and_then(|joined| joined) {
        resume_unwind(payload);
    }
}
