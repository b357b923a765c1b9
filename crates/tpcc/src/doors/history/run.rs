//! Runs the sessions: each on a thread of its own, or as fibers of some.

use std::sync::Barrier;

use storage::{Database, TxnError};

use super::session::drive;
use super::team::{SessionEnd, Teams};
use super::{Params, RecordedSession, Txn, World};

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
}

/// Runs the sessions of `params`, as `teams` if there are any: `db` was opened with their hook. The last transaction of
/// the first session reads every row when all others are over.
/// `interrupted` is asked between transactions whether to end early.
///
/// # Errors
/// When it could not begin.
pub fn run(
    db: &Database,
    params: &Params,
    teams: Option<&Teams>,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Recorded, RunError> {
    let world = World::new(db, params)?;
    let mut sessions = match teams {
        Some(teams) => teams.run(&world, interrupted).map_err(RunError::Fibers)?,
        None => on_threads(&world, interrupted),
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

fn on_threads<'w, 'db>(world: &'w World<'db>, interrupted: &(dyn Fn() -> bool + Sync)) -> Vec<SessionEnd<'w, 'db>> {
    let together = Barrier::new(world.params.sessions as usize);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..world.params.sessions)
            .map(|number| {
                let together = &together;
                scope.spawn(move || {
                    let mut session = RecordedSession::new(world, number);
                    together.wait();
                    let error = drive(&mut session, number == 0, &mut std::thread::yield_now, interrupted).err();
                    (session, error)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
