//! Execution of one transaction, with retries after aborts.

use super::ack;
use super::worker_terminals::JobEnd;
use crate::workload::abort::Abort;
use crate::workload::engine::{OpenTransaction, Session};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::Input;
use crate::workload::schema::keys::HistoryKey;
use crate::workload::txn::{Failure, Scratch, StepOrder, Verdict};

/// Runs one transaction. After each abort, retries it with the same input. If `number` is given, a transaction that writes
/// also stores the number in the database.
#[inline]
pub(super) fn execute<S: Session>(
    session: &mut S,
    scratch: &mut Scratch,
    steps: StepOrder,
    input: &Input,
    number: Option<HistoryKey>,
    aborted: impl FnMut(Abort),
) -> Result<JobEnd, Failure<S::Error>> {
    let first = attempt(session.begin()?, scratch, steps, input, number);
    first.or_else(|failure| rerun(failure, session, scratch, steps, input, number, aborted))
}

#[cold]
fn rerun<S: Session>(
    mut failure: Failure<S::Error>,
    session: &mut S,
    scratch: &mut Scratch,
    steps: StepOrder,
    input: &Input,
    number: Option<HistoryKey>,
    mut aborted: impl FnMut(Abort),
) -> Result<JobEnd, Failure<S::Error>> {
    while let Some(abort) = failure.abort() {
        aborted(abort);
        match attempt(session.begin_again()?, scratch, steps, input, number) {
            Ok(end) => return Ok(end),
            Err(another) => failure = another,
        }
    }
    Err(failure)
}

#[inline]
fn attempt<T: OpenTransaction>(
    mut transaction: T,
    scratch: &mut Scratch,
    steps: StepOrder,
    input: &Input,
    number: Option<HistoryKey>,
) -> Result<JobEnd, Failure<T::Error>> {
    let verdict = transaction.run(steps, input, scratch)?;
    if let Some(number) = number
        && verdict == Verdict::Commit
        && input.kind().writes()
    {
        ack::write(&mut transaction, number)?;
    }
    let ticket = match verdict {
        Verdict::Commit => transaction.commit()?,
        Verdict::Rollback => transaction.rollback()?,
    };
    let skipped = if input.kind() == Kind::Delivery { scratch.out.delivery.skipped() } else { 0 };
    Ok(JobEnd { ticket, verdict, skipped })
}
