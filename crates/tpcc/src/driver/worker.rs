//! A worker: serves its terminals one after the other and hands out answers as their tickets become durable.

use super::attempt::execute;
use super::desk::{Desk, Next, Ready};
use super::{Control, Phase, Share};
use crate::workload::engine::Session;
use crate::workload::txn::{Failure, Scratch, Steps};

/// One thread's share of a run. Nothing in its loop allocates, and nothing is written that another worker writes.
pub(super) struct Worker<'a, S, R> {
    session: S,
    desk: Desk<'a, R>,
    scratch: Scratch,
    steps: Steps,
    control: &'a Control,
}

impl<'a, S: Session, R: Ready> Worker<'a, S, R> {
    pub(super) fn new(session: S, desk: Desk<'a, R>, steps: Steps, control: &'a Control) -> Self {
        Worker { session, desk, scratch: Scratch::default(), steps, control }
    }

    /// Serves until the run stops. A failure stops the run for all; what was counted before it stays.
    pub(super) fn run(mut self) -> Share {
        let failure = self.serve().err().map(|failure| {
            self.control.set(Phase::Stop);
            failure.to_string()
        });
        let share = self.desk.close();
        Share { failure: failure.or(share.failure), ..share }
    }

    fn serve(&mut self) -> Result<(), Failure<S::Error>> {
        loop {
            match self.desk.next(&mut self.session) {
                Next::Run(job) => {
                    let (session, scratch, desk) = (&mut self.session, &mut self.scratch, &mut self.desk);
                    let aborted = |abort| desk.aborted(abort);
                    let end = execute(session, scratch, self.steps, &job.input, job.number, aborted)?;
                    self.desk.ended(&mut self.session, &job, &end);
                }
                Next::Await(ticket) => {
                    let durable = self.session.wait_for(ticket)?;
                    self.desk.durable_to(durable);
                }
                // Nothing is under way between two transactions.
                Next::Idle | Next::Done => return Ok(()),
            }
        }
    }
}
