//! Errors of statements, and their consequence for the transaction.

use std::error::Error as _;

use tokio_postgres::error::DbError;

use tpcc_core::workload::abort::{Abort, AbortCause, EngineError};
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::words::counted;

/// Error of a statement or a connection. Each variant names the server.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// The server refused the statement.
    #[error("{server}: {}{message} (SQLSTATE {code})", on(.table))]
    Refused {
        /// Name of the server.
        server: String,
        /// SQLSTATE of the error.
        code: String,
        /// Message of the server.
        message: String,
        /// Table that the statement accesses.
        table: Option<TableId>,
    },
    /// No connection could be opened for a worker.
    #[error("{server}: {why}")]
    NotOpened {
        /// Name of the server.
        server: String,
        /// Reason for which no connection could be opened.
        why: String,
    },
    /// The connection was lost.
    #[error("{server}: the connection was lost: {why}")]
    Lost {
        /// Name of the server.
        server: String,
        /// Reason of the loss, if known.
        why: String,
    },
    /// The connection was lost, and no new one could be opened.
    #[error("{server}: went away in the middle of the run ({lost}), and did not come back within {tried_s} s ({why})")]
    Gone {
        /// Name of the server.
        server: String,
        /// Reason of the loss.
        lost: String,
        /// Seconds during which a new connection was attempted.
        tried_s: u64,
        /// Reason of the last failed attempt.
        why: String,
    },
    /// Several connections in a row were lost before they completed a transaction.
    #[error("{server}: {} ({lost})", lost_again(.count))]
    LostAgain {
        /// Name of the server.
        server: String,
        /// Number of lost connections.
        count: u32,
        /// Reason of the last loss.
        lost: String,
    },
    /// The server's answer was not the expected one.
    #[error("{server}: {what}; is its schema tpcc of this version of the program?")]
    Unexpected {
        /// Name of the server.
        server: String,
        /// Description of the answer.
        what: String,
    },
}

fn on(table: &Option<TableId>) -> String {
    table.map_or(String::new(), |table| format!("{}: ", table.name()))
}

fn lost_again(count: &u32) -> String {
    match *count {
        1 => "1 connection was lost before a transaction was done on it".to_owned(),
        count => {
            format!("{} in a row were lost before a transaction was done on one", counted(count.into(), "connection"))
        }
    }
}

impl PgError {
    /// Converts an error of the client library; `table` is the table of the statement.
    pub(super) fn of(server: &str, error: tokio_postgres::Error, table: Option<TableId>) -> PgError {
        let server = server.to_owned();
        match error.as_db_error() {
            Some(refused) if ends_connection(refused.code().code()) => {
                PgError::Lost { server, why: message_of(refused) }
            }
            Some(refused) => {
                PgError::Refused { server, code: refused.code().code().to_owned(), message: message_of(refused), table }
            }
            None if error.is_closed() || is_io(&error) => PgError::Lost { server, why: chain(&error) },
            None => PgError::Unexpected { server, what: chain(&error) },
        }
    }

    /// Returns the SQLSTATE, if the server refused a statement.
    pub(super) fn code(&self) -> Option<&str> {
        if let PgError::Refused { code, .. } = self { Some(code) } else { None }
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|source| source.is::<std::io::Error>())
}

/// Returns true if an error with this SQLSTATE ends the session: class 08, shutdowns, crashes, and time limits of a session
/// or a transaction.
fn ends_connection(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04")
}

fn message_of(refused: &DbError) -> String {
    let detail = refused.detail().map_or(String::new(), |detail| format!("; {}", line(detail)));
    format!("{}{detail}", line(refused.message()))
}

/// Joins the words of a text into one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats an error and its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = line(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = line(&error.to_string());
        if !text.contains(&next) {
            text += &format!(": {next}");
        }
        cause = error.source();
    }
    text
}

impl EngineError for PgError {
    fn abort(&self) -> Option<Abort> {
        match self {
            PgError::Refused { code, table, .. } => {
                let cause = match code.as_str() {
                    "40001" => AbortCause::Serialization,
                    "40P01" => AbortCause::Deadlock,
                    "55P03" => AbortCause::Timeout,
                    // The outcome of the transaction is unknown.
                    "40003" => AbortCause::Connection,
                    _ => return None,
                };
                Some(Abort { cause, table: *table })
            }
            PgError::Lost { .. } => Some(Abort { cause: AbortCause::Connection, table: None }),
            PgError::NotOpened { .. }
            | PgError::Gone { .. }
            | PgError::LostAgain { .. }
            | PgError::Unexpected { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> PgError {
        let (server, message) = ("127.0.0.1:5432".to_owned(), "no".to_owned());
        PgError::Refused { server, code: code.to_owned(), message, table: Some(TableId::Stock) }
    }

    #[test]
    fn victims_run_again_and_others_end_the_run() {
        let cause = |error: PgError| error.abort().map(|abort| abort.cause);
        assert_eq!(cause(refused("40001")), Some(AbortCause::Serialization));
        assert_eq!(cause(refused("40P01")), Some(AbortCause::Deadlock));
        assert_eq!(cause(refused("23505")), None);
        assert_eq!(refused("40001").abort().and_then(|abort| abort.table), Some(TableId::Stock));
        let server = "127.0.0.1:5432".to_owned();
        assert_eq!(cause(PgError::Lost { server, why: String::new() }), Some(AbortCause::Connection));
        assert_eq!(refused("23505").to_string(), "127.0.0.1:5432: stock: no (SQLSTATE 23505)");
        assert!(ends_connection("57P01") && ends_connection("08006") && !ends_connection("57014"));
        assert!(ends_connection("57P05") && ends_connection("25P03") && !ends_connection("25006"));
    }

    #[test]
    fn one_lost_connection_is_no_plural() {
        let said = |count| {
            PgError::LostAgain { server: "127.0.0.1:5432".to_owned(), count, lost: "it was closed".to_owned() }
                .to_string()
        };
        let end = "(it was closed)";
        assert_eq!(said(1), format!("127.0.0.1:5432: 1 connection was lost before a transaction was done on it {end}"));
        let many = "6 connections in a row were lost before a transaction was done on one";
        assert_eq!(said(6), format!("127.0.0.1:5432: {many} {end}"));
    }
}
