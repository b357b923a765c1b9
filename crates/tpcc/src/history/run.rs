//! Runs the sessions, each on a thread of its own.

use std::sync::Barrier;

use storage::{Database, TxnError};

use super::{Params, Session, Txn, World};

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// The history, by session.
    pub txns: Vec<Txn>,
    /// What ended it early.
    pub error: Option<TxnError>,
    /// It was asked to end early.
    pub interrupted: bool,
}

/// Runs the sessions of `params`. The last transaction of the first session reads every row when all others are over.
/// `interrupted` is asked between transactions whether to end early.
///
/// # Errors
/// When it could not begin.
pub fn run(db: &Database, params: &Params, interrupted: &(dyn Fn() -> bool + Sync)) -> Result<Run, TxnError> {
    let world = World::new(db, params)?;
    let together = Barrier::new(params.sessions as usize);
    let mut sessions: Vec<(Session<'_, '_>, Option<TxnError>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..params.sessions)
            .map(|number| {
                let (world, together) = (&world, &together);
                scope.spawn(move || {
                    let mut session = Session::new(world, number);
                    together.wait();
                    let error = drive(&mut session, number == 0, interrupted).err();
                    (session, error)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut error = sessions.iter_mut().find_map(|(_, error)| error.take());
    let interrupted = interrupted();
    if error.is_none()
        && !interrupted
        && let Some((first, _)) = sessions.first_mut()
    {
        error = first.read_all().err();
    }
    Ok(Run { txns: sessions.into_iter().flat_map(|(session, _)| session.into_done()).collect(), error, interrupted })
}

fn drive(
    session: &mut Session<'_, '_>,
    is_first: bool,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<(), TxnError> {
    while !(session.is_over() || is_first && session.is_at_last() || interrupted()) {
        session.step(&mut std::thread::yield_now)?;
    }
    Ok(())
}
