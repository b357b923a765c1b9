//! Runs the sessions: each on a thread of its own, or as fibers of some.

use std::sync::Arc;

use storage::{Database, Hook, TxnError};

use speculate::BuildError;

use super::session::drive;
use super::team::{SessionEnd, Teams};
use super::{Params, RecordedSession, Txn, World};
use crate::workload::threads::{self, NoThread};

/// What came of a run.
#[derive(Debug)]
pub struct Recorded {
    /// The history, by session.
    pub txns: Vec<Txn>,
    /// What ended it early.
    pub error: Option<TxnError>,
    /// It was asked to end early.
    pub interrupted: bool,
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The engine's reason.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// There are no fibers to be had.
    #[error("no fibers for the sessions: {0}")]
    Fibers(String),
    /// There are not enough threads to be had for the sessions.
    #[error(transparent)]
    Threads(#[from] NoThread),
    /// There are no threads to be had for loops.
    #[error("no threads for the sessions' loops: {0}")]
    Ahead(#[from] BuildError),
}

/// What sessions are.
#[derive(Clone, Debug)]
pub enum SessionKind {
    /// A thread each.
    Threads,
    /// Fibers of some threads. The database was opened with their hook.
    Fibers(Teams),
    /// A thread each, with another one that runs steps ahead of their transaction. For the list-append form.
    Ahead,
}

impl SessionKind {
    /// What a database must be opened with for these sessions to run in it.
    pub fn hook(&self) -> Option<Arc<dyn Hook>> {
        match self {
            SessionKind::Fibers(teams) => Some(teams.hook()),
            SessionKind::Threads | SessionKind::Ahead => None,
        }
    }
}

/// Runs the sessions of `params`. The last transaction of the first session reads every row when all others are over.
/// `interrupted` is asked between transactions whether to end early.
///
/// # Errors
/// When it could not begin.
pub fn run(
    db: &Database,
    params: &Params,
    kind: &SessionKind,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Recorded, RunError> {
    let world = World::new(db, params)?;
    let numbers = 0..params.sessions;
    let mut sessions = match kind {
        SessionKind::Fibers(teams) => teams.run(&world, interrupted).map_err(RunError::Fibers)?,
        SessionKind::Threads => {
            on_threads(numbers.map(|number| RecordedSession::new(&world, number)).collect(), interrupted)?
        }
        SessionKind::Ahead => {
            let sessions = numbers.map(|number| RecordedSession::ahead(&world, number)).collect::<Result<_, _>>()?;
            on_threads(sessions, interrupted)?
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
    Ok(Recorded {
        txns: sessions.into_iter().flat_map(|(session, _)| session.into_done()).collect(),
        error,
        interrupted,
    })
}

fn on_threads<'w, 'db>(
    sessions: Vec<RecordedSession<'w, 'db>>,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<SessionEnd<'w, 'db>>, NoThread> {
    let works = sessions.into_iter().map(|mut session| {
        move || {
            let is_first = session.number() == 0;
            let error = drive(&mut session, is_first, &mut std::thread::yield_now, interrupted).err();
            (session, error)
        }
    });
    threads::apart("session", works)
}
