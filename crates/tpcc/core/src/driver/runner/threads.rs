//! Worker that runs one transaction at a time. It runs the transactions of its terminals one after the other and sends
//! responses once their tickets are durable.

use super::{Runner, Workplace};
use crate::driver::admission::Ready;
use crate::driver::attempt::execute;
use crate::driver::counters::Meter;
use crate::driver::worker_terminals::{Job, Next, WorkerTerminals};
use crate::driver::{Control, Phase, WorkerResult};
use crate::workload::engine::{Engine, Session};
use crate::workload::txn::{Failure, Scratch, StepOrder};

/// Runner without fibers: each worker runs one transaction at a time.
pub struct ThreadsRunner;

impl Runner for ThreadsRunner {
    fn team_size(&self) -> usize {
        1
    }

    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, terminals: WorkerTerminals<'_, R>) -> WorkerResult {
        match place.engine.session(place.number) {
            Ok(session) => {
                let meter = place.counters.then(|| Box::new(Meter::open()));
                Worker {
                    session,
                    terminals,
                    scratch: Scratch::default(),
                    steps: place.steps,
                    control: place.control,
                    meter,
                }
                .run()
            }
            Err(error) => {
                place.control.set(Phase::Stop);
                WorkerResult::failed(error.to_string())
            }
        }
    }
}

/// State of a worker. Its loop does not allocate, and writes no memory that another worker writes.
struct Worker<'a, S, R> {
    session: S,
    terminals: WorkerTerminals<'a, R>,
    scratch: Scratch,
    steps: StepOrder,
    control: &'a Control,
    meter: Option<Box<Meter>>,
}

impl<S: Session, R: Ready> Worker<'_, S, R> {
    /// Runs transactions until the run stops. A failure stops the run for all workers; counts from before the failure remain
    /// valid.
    fn run(mut self) -> WorkerResult {
        let failure = self.serve().err().map(|failure| {
            self.control.set(Phase::Stop);
            failure.to_string()
        });
        let result = self.terminals.close();
        let counted = self.meter.map(|meter| meter.close(None));
        WorkerResult { failure: failure.or(result.failure), counted, ..result }
    }

    fn serve(&mut self) -> Result<(), Failure<S::Error>> {
        loop {
            match self.terminals.next(&mut self.session) {
                Next::Run(job) => {
                    let (session, scratch, terminals) = (&mut self.session, &mut self.scratch, &mut self.terminals);
                    let aborted = |abort| terminals.aborted(abort);
                    let end = execute(session, scratch, self.steps, &job.input, job.number, aborted)?;
                    self.terminals.ended(&mut self.session, &job, &end);
                    if let Some(meter) = &mut self.meter {
                        count(meter, &self.terminals, &job);
                    }
                }
                Next::Await(ticket) => {
                    let durable = self.session.wait_for(ticket)?;
                    self.terminals.durable_to(durable);
                }
                // `Idle` cannot occur: no transaction is in progress between two calls.
                Next::Idle | Next::Done => return Ok(()),
            }
        }
    }
}

/// Attributes counter values to a finished transaction. Counting starts after the first transaction of the measurement,
/// which is not counted.
#[cold]
fn count<R: Ready>(meter: &mut Meter, terminals: &WorkerTerminals<'_, R>, job: &Job) {
    if meter.has_begun() {
        meter.ended(job.input.kind());
    } else if terminals.is_measuring() {
        meter.begin();
    }
}
