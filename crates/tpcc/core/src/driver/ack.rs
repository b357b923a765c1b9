//! Acknowledgements: `run --ack-stdout` prints them, one line per transaction, and `verify` reads them again.
//!
//! The format of a line is `ack RUN TERMINAL SEQUENCE KIND`. A terminal numbers its transactions from 1, across all kinds,
//! and waits for each response before it sends the next request. A transaction that writes also stores its number in the
//! row of its terminal in the table `acknowledged`. The number in the database proves that this transaction and all earlier
//! ones of the same terminal are present. The HISTORY row of a payment has the same key, which proves each payment
//! individually.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use zerocopy::little_endian::U64;

use crate::workload::engine::{Engine, OpenTransaction, Session};
use crate::workload::generate::deck::Kind;
use crate::workload::ops::Ops;
use crate::workload::schema::keys::{AckKey, HistoryKey};
use crate::workload::schema::rows::AckHot;
use crate::workload::schema::tables::Acknowledged;
use crate::workload::schema::{Row, TableId};
use crate::workload::txn::{Failure, Verdict};

/// KIND field of a New-Order that was rolled back because of an unused item number.
const ROLLED_BACK: &str = "rolled-back";

/// Outcome and kind of an acknowledged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckKind {
    /// The transaction has committed.
    Committed(Kind),
    /// The New-Order was rolled back and left nothing in the database.
    RolledBack,
}

impl AckKind {
    fn name(self) -> &'static str {
        match self {
            AckKind::Committed(kind) => kind.name(),
            AckKind::RolledBack => ROLLED_BACK,
        }
    }
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Number of the run, from 1.
    pub run: u32,
    /// Number of the terminal in the run.
    pub terminal: u32,
    /// Number of the transaction in the sequence of its terminal's transactions.
    pub sequence: u64,
    /// Kind and outcome of the transaction.
    pub kind: AckKind,
}

impl Ack {
    /// Creates the acknowledgement of the transaction with this number.
    pub fn of(number: HistoryKey, kind: Kind, verdict: Verdict) -> Ack {
        let kind = match verdict {
            Verdict::Commit => AckKind::Committed(kind),
            Verdict::Rollback => AckKind::RolledBack,
        };
        Ack { run: number.run, terminal: number.terminal, sequence: number.sequence, kind }
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ack {} {} {} {}", self.run, self.terminal, self.sequence, self.kind.name())
    }
}

/// Error: the line is not an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAck;

impl FromStr for Ack {
    type Err = NoAck;

    fn from_str(line: &str) -> Result<Ack, NoAck> {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().ok_or(NoAck);
        if word()? != "ack" {
            return Err(NoAck);
        }
        let run = word()?.parse().map_err(|_| NoAck)?;
        let terminal = word()?.parse().map_err(|_| NoAck)?;
        let sequence = word()?.parse().map_err(|_| NoAck)?;
        let kind = match word()? {
            ROLLED_BACK => AckKind::RolledBack,
            name => AckKind::Committed(Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(NoAck)?),
        };
        match words.next() {
            Some(_) => Err(NoAck),
            None => Ok(Ack { run, terminal, sequence, kind }),
        }
    }
}

/// Destination of the acknowledgements of all workers.
pub struct Sink(Mutex<Box<dyn Write + Send>>);

impl Sink {
    /// Creates a sink that writes to `out`.
    pub fn new(out: Box<dyn Write + Send>) -> Sink {
        Sink(Mutex::new(out))
    }

    fn write(&self, lines: &str) -> io::Result<()> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(lines.as_bytes())?;
        out.flush()
    }
}

/// Acknowledgements of a worker that are not yet written. Acknowledgements of transactions that become durable together are
/// written in one call.
pub struct Outbox<'a> {
    sink: Option<&'a Sink>,
    lines: String,
    failure: Option<io::Error>,
}

impl<'a> Outbox<'a> {
    /// Creates an outbox. Without a sink, it discards all acknowledgements.
    pub fn new(sink: Option<&'a Sink>) -> Outbox<'a> {
        Outbox { sink, lines: String::new(), failure: None }
    }

    /// Returns true if acknowledgements are enabled. They are then both printed and stored in the database.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.sink.is_some()
    }

    /// Adds an acknowledgement, to be written by the next `flush`.
    #[inline]
    pub fn add(&mut self, ack: impl FnOnce() -> Ack) {
        if self.is_wanted() {
            use fmt::Write as _;
            // Writing to a `String` cannot fail.
            let _ = writeln!(self.lines, "{}", ack());
        }
    }

    /// Writes the acknowledgements added since the last call.
    #[inline]
    pub fn flush(&mut self) {
        if let Some(sink) = self.sink
            && !self.lines.is_empty()
        {
            let written = sink.write(&self.lines);
            self.lines.clear();
            if let Err(error) = written {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Returns the first error of writing acknowledgements, for example because the reader has closed the pipe or the disk
    /// is full.
    #[inline(always)]
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }
}

/// Stores the number of a transaction in the row of its terminal, as part of the transaction.
#[inline]
pub fn write<O: Ops>(ops: &mut O, number: HistoryKey) -> Result<(), Failure<O::Error>> {
    let key = AckKey { run: number.run, terminal: number.terminal };
    match ops.update::<Acknowledged, _>(&key, |hot, ()| hot.sequence.set(number.sequence))? {
        Some(()) => Ok(()),
        None => Err(Failure::Missing { table: TableId::Acknowledged, key: format!("{key:?}") }),
    }
}

/// Number of rows that `prepare` inserts per transaction.
const BATCH: u32 = 1_000;

/// Inserts a row per terminal of a run, so that each transaction only has to update the row of its terminal. The rows are
/// durable on return.
pub fn prepare<E: Engine>(engine: &E, run: u32, terminals: u32) -> Result<(), E::Error> {
    let mut session = engine.session(0)?;
    let mut first = 0;
    let mut ticket = None;
    while first < terminals {
        let end = first.saturating_add(BATCH).min(terminals);
        let mut transaction = session.begin()?;
        for terminal in first..end {
            let row = Row { hot: AckHot { sequence: U64::new(0) }, cold: () };
            transaction.insert::<Acknowledged>(&AckKey { run, terminal }, &row)?;
        }
        ticket = Some(transaction.commit()?);
        first = end;
    }
    if let Some(ticket) = ticket {
        session.wait_for(ticket)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_written() {
        for kind in Kind::ALL.map(AckKind::Committed).into_iter().chain([AckKind::RolledBack]) {
            let ack = Ack { run: 3, terminal: 17, sequence: 1 << 40, kind };
            assert_eq!(ack.to_string().parse(), Ok(ack));
        }
        assert_eq!(
            "ack 1 2 3 payment".parse(),
            Ok(Ack { run: 1, terminal: 2, sequence: 3, kind: AckKind::Committed(Kind::Payment) })
        );
        for line in
            ["", "ack", "ack 1 2 3", "ack 1 2 3 pay", "ack 1 2 3 payment x", "ack -1 2 3 payment", "nak 1 2 3 payment"]
        {
            assert_eq!(line.parse::<Ack>(), Err(NoAck), "{line}");
        }
    }
}
