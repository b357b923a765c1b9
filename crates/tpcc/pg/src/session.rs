//! The session of a worker: runs its transactions, one after the other, and opens a new connection when the connection is
//! lost.

use std::time::{Duration, Instant};

use super::connect::{ConnectError, Connection, Purpose, Server};
use super::error::PgError;
use super::rows::{Readable, Rows, Writable};
use super::txn::{Statements, TxnContext, run};
use tpcc_core::workload::engine::{OpenTransaction, Session, Ticket};
use tpcc_core::workload::generate::input::Input;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::txn::{Failure, Scratch, StepOrder, TxnResult};

/// Maximum total time for attempts to open a new connection.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts to open a connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of connections lost in a row without a completed transaction.
const MAX_LOSSES: u32 = 5;
/// Maximum time of a series of lost connections. Without this limit, a server that accepts connections and never answers
/// would block the run.
const MAX_LOSS_TIME: Duration = Duration::from_secs(30);

/// Connections lost since the last completed transaction.
#[derive(Clone, Copy, Default, Debug)]
struct Losses {
    count: u32,
    /// Time of the first loss since the last completed transaction.
    since: Option<Instant>,
}

impl Losses {
    /// Counts a loss. Returns true if the number or the time of losses exceeds its maximum.
    fn add(&mut self, now: Instant) -> bool {
        self.count += 1;
        let since = *self.since.get_or_insert(now);
        self.count > MAX_LOSSES || now.duration_since(since) > MAX_LOSS_TIME
    }
}

/// State of the session on the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionState {
    /// No transaction is open.
    Idle,
    /// A transaction is open that this session has begun.
    Open,
    /// A failed transaction may still be open.
    Failed,
    /// No transaction is open, because the connection was lost.
    Lost,
}

/// A session of a worker; see the module's documentation.
pub struct PgSession<'e> {
    server: &'e Server,
    connection: Connection,
    statements: Statements,
    state: SessionState,
    losses: Losses,
}

impl<'e> PgSession<'e> {
    /// Connects and prepares the statements.
    pub(super) fn open(server: &'e Server) -> Result<PgSession<'e>, PgError> {
        let failed =
            |ConnectError { message, .. }| PgError::NotOpened { server: server.name().to_owned(), why: message };
        let (connection, statements) = connect_and_prepare(server).map_err(failed)?;
        Ok(PgSession { server, connection, statements, state: SessionState::Idle, losses: Losses::default() })
    }

    /// Sets the maximum time for answers on the current connection.
    #[cfg(test)]
    pub(super) fn limit_answers(&mut self, limit: Duration) {
        self.connection.set_limit(limit);
    }

    /// Replaces a lost connection.
    fn reconnect(&mut self) -> Result<(), PgError> {
        let start = Instant::now();
        let too_many = self.losses.add(start);
        let server = self.server.name().to_owned();
        let lost = self.connection.lost().unwrap_or("the connection was closed").to_owned();
        if too_many || interrupt::requested() {
            return Err(PgError::LostAgain { server, count: self.losses.count, lost });
        }
        loop {
            match connect_and_prepare(self.server) {
                Ok((connection, statements)) => {
                    (self.connection, self.statements, self.state) = (connection, statements, SessionState::Idle);
                    return Ok(());
                }
                Err(ConnectError { message, .. }) if start.elapsed() >= RECONNECT_TIMEOUT || interrupt::requested() => {
                    return Err(PgError::Gone { server, lost, tried_s: start.elapsed().as_secs(), why: message });
                }
                Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
    }
}

fn connect_and_prepare(server: &Server) -> Result<(Connection, Statements), ConnectError> {
    let connection = server.try_open_connection(Purpose::Terminal)?;
    let prepared = connection
        .wait(Statements::prepare(&connection.client, server.config()))
        .and_then(|prepared| prepared.map_err(|error| connection.error(error, None)));
    let statements = prepared.map_err(|error| ConnectError { message: error.to_string(), help: String::new() })?;
    Ok((connection, statements))
}

impl Session for PgSession<'_> {
    type Error = PgError;
    type Transaction<'t>
        = PgTransaction<'t>
    where
        Self: 't;

    fn begin(&mut self) -> Result<PgTransaction<'_>, PgError> {
        if self.state == SessionState::Lost || self.connection.lost().is_some() {
            self.reconnect()?;
        }
        let after_failure = self.state != SessionState::Idle;
        Ok(Rows(SessionParts {
            connection: &self.connection,
            statements: &self.statements,
            state: &mut self.state,
            losses: &mut self.losses,
            after_failure,
            begun: false,
        }))
    }

    fn begin_again(&mut self) -> Result<PgTransaction<'_>, PgError> {
        self.begin()
    }

    // The server acknowledges a commit at its final durability.
    fn durable(&mut self) -> Ticket {
        Ticket::ALL
    }

    fn request(&mut self, _ticket: Ticket) {}

    fn wait_for(&mut self, _ticket: Ticket) -> Result<Ticket, PgError> {
        Ok(Ticket::ALL)
    }
}

/// A transaction. BEGIN is sent in the message of the first statement; [`OpenTransaction::run`] also ends the transaction. A
/// transaction that is dropped before its end is rolled back before the next one.
pub(crate) type PgTransaction<'t> = Rows<SessionParts<'t>>;

/// The parts of a session that its transaction uses.
pub struct SessionParts<'t> {
    connection: &'t Connection,
    statements: &'t Statements,
    state: &'t mut SessionState,
    losses: &'t mut Losses,
    after_failure: bool,
    begun: bool,
}

impl SessionParts<'_> {
    fn end(self, how: &str) -> Result<Ticket, PgError> {
        // No transaction is open before the first statement, or after an end that was sent with the statements.
        if self.begun && *self.state == SessionState::Open {
            *self.state = SessionState::Failed;
            self.connection.batch(how)?;
            *self.state = SessionState::Idle;
        }
        *self.losses = Losses::default();
        Ok(Ticket(0))
    }
}

impl Readable for SessionParts<'_> {
    fn connection(&mut self) -> Result<&Connection, PgError> {
        if !self.begun {
            *self.state = SessionState::Failed;
            self.connection.batch(&self.statements.begin_single(self.after_failure))?;
            (self.begun, *self.state) = (true, SessionState::Open);
        }
        Ok(self.connection)
    }
}

impl Writable for SessionParts<'_> {}

impl OpenTransaction for PgTransaction<'_> {
    fn run(&mut self, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<Self> {
        let open = &mut self.0;
        *open.state = SessionState::Failed;
        let work = TxnContext {
            connection: open.connection,
            statements: open.statements,
            after_failure: open.after_failure,
            steps,
        };
        let verdict = run(&work, input, scratch).inspect_err(|failure| {
            if let Failure::Engine(PgError::Lost { .. }) = failure {
                *open.state = SessionState::Lost;
            }
        })?;
        (open.begun, *open.state) = (true, SessionState::Idle);
        Ok(verdict)
    }

    fn commit(self) -> Result<Ticket, PgError> {
        self.0.end("COMMIT")
    }

    fn rollback(self) -> Result<Ticket, PgError> {
        self.0.end("ROLLBACK")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_loses_every_connection_is_given_up() {
        let now = Instant::now();
        let mut often = Losses::default();
        let too_many: Vec<bool> = (0..=MAX_LOSSES).map(|_| often.add(now)).collect();
        assert_eq!(too_many.iter().filter(|too| **too).count(), 1, "{too_many:?}");
        assert!(often.add(now));
        // A server that never answers causes one loss per minute.
        let mut silent = Losses::default();
        assert!(!silent.add(now));
        assert!(silent.add(now + Duration::from_secs(60)));
    }
}
