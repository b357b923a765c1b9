//! Runs the sessions of a history run, each on a thread of its own or as fibers of several threads.

use std::sync::Arc;

use storage::{Database, Hook, TxnError};

use super::session::drive;
use super::team::{SessionEnd, Teams};
use super::{Params, RecordedSession, SharedState, Txn};
use crate::workload::threads::{self, SpawnError};

/// Result of a history run.
#[derive(Debug)]
pub struct RunRecord {
    /// Recorded transactions of all sessions, ordered by session.
    pub txns: Vec<Txn>,
    /// Error that ended the run early.
    pub error: Option<TxnError>,
    /// True if the run was interrupted.
    pub interrupted: bool,
}

/// Reason why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Error of the engine.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// The system provides no fibers.
    #[error("no fibers for the sessions: {0}")]
    Fibers(String),
    /// The system provides too few threads for the sessions.
    #[error(transparent)]
    Threads(#[from] SpawnError),
}

/// Kind of tasks that execute the sessions.
#[derive(Clone, Debug)]
pub enum SessionKind {
    /// One thread per session.
    Threads,
    /// Fibers of several threads. The database must be opened with the hook of these fibers.
    Fibers(Teams),
    /// One thread per session. The steps of a transaction are a loop on the threads for loops of the database. For the
    /// list-append form only.
    InLoops,
}

impl SessionKind {
    /// Returns the hook with which the database must be opened for these sessions; `None` for threads.
    pub fn hook(&self) -> Option<Arc<dyn Hook>> {
        match self {
            SessionKind::Fibers(teams) => Some(teams.hook()),
            SessionKind::Threads | SessionKind::InLoops => None,
        }
    }
}

/// Runs the sessions of `params`. The last transaction of the first session reads every row after all others have ended.
/// Calls `interrupted` between transactions; if it returns true, the run ends early.
///
/// # Errors
/// If the run cannot start.
pub fn run(
    db: &Database,
    params: &Params,
    kind: &SessionKind,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<RunRecord, RunError> {
    let shared = SharedState::new(db, params)?;
    let numbers = 0..params.sessions;
    let mut sessions = match kind {
        SessionKind::Fibers(teams) => teams.run(&shared, interrupted).map_err(RunError::Fibers)?,
        SessionKind::Threads => {
            on_threads(numbers.map(|number| RecordedSession::new(&shared, number)).collect(), interrupted)?
        }
        SessionKind::InLoops => {
            on_threads(numbers.map(|number| RecordedSession::in_loops(&shared, number)).collect(), interrupted)?
        }
    };
    let mut error = sessions.iter_mut().find_map(|(_, error)| error.take());
    let interrupted = interrupted();
    if error.is_none()
        && !interrupted
        && let Some((first, _)) = sessions.first_mut()
    {
        error = first.read_all().err();
    }
    Ok(RunRecord {
        txns: sessions.into_iter().flat_map(|(session, _)| session.into_done()).collect(),
        error,
        interrupted,
    })
}

fn on_threads<'w, 'db>(
    sessions: Vec<RecordedSession<'w, 'db>>,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<SessionEnd<'w, 'db>>, SpawnError> {
    let works = sessions.into_iter().map(|mut session| {
        move || {
            let is_first = session.number() == 0;
            let error = drive(&mut session, is_first, &mut std::thread::yield_now, interrupted).err();
            (session, error)
        }
    });
    threads::run_each("session", works)
}
