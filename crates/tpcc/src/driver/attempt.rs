//! One transaction, from begin to end.

use super::desk::End;
use crate::ack;
use crate::engine::{Abort, Session, Transaction};
use crate::generate::deck::Kind;
use crate::generate::input::Input;
use crate::schema::keys::HistoryKey;
use crate::txn::{self, Failure, Scratch, Steps, Verdict};

/// After this many victims in a row a transaction lets others go first, each time for twice as long: two that are run in
/// lockstep and begin anew together would otherwise meet in the same deadlock for ever.
const PATIENCE: u32 = 3;

/// At most two to this many turns are given to others.
const LONGEST_WAIT: u32 = 8;

/// Runs one transaction, again and again with the same input while it is a victim. One with a number leaves it in the
/// database.
#[inline]
pub(super) fn execute<S: Session>(
    session: &mut S,
    scratch: &mut Scratch,
    steps: Steps,
    input: &Input,
    number: Option<HistoryKey>,
    mut aborted: impl FnMut(Abort),
    yield_now: impl Fn(),
) -> Result<End, Failure<S::Error>> {
    let mut tries = 0;
    loop {
        let failure = match attempt(session, scratch, steps, input, number) {
            Ok(end) => return Ok(end),
            Err(failure) => failure,
        };
        let Some(abort) = failure.abort() else { return Err(failure) };
        aborted(abort);
        tries += 1;
        if tries > PATIENCE {
            (0..1 << (tries - PATIENCE).min(LONGEST_WAIT)).for_each(|_: u32| yield_now());
        }
    }
}

#[inline]
fn attempt<S: Session>(
    session: &mut S,
    scratch: &mut Scratch,
    steps: Steps,
    input: &Input,
    number: Option<HistoryKey>,
) -> Result<End, Failure<S::Error>> {
    let mut transaction = session.begin()?;
    let verdict = txn::run(&mut transaction, steps, input, scratch)?;
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
    Ok(End { ticket, verdict, skipped })
}
