#![doc = include_str!("README.md")]

mod check;
mod columns;
mod connect;
pub mod dialect;
mod error;
mod load;
mod password;
pub mod report;
mod rows;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod txn;
pub mod url;

pub use check::QueriesDone;
pub use connect::{Connection, RemoteConfig, Server};
pub use error::PgError;
use rows::Reader;
use session::PgSession;
use tpcc_core::workload::check::Audit;
use tpcc_core::workload::engine::{Engine, EngineFigures};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::load::{Population, RowsDone};
use tpcc_core::workload::loaded::Loaded;

/// A server with the connection over which a command looks at it.
pub struct Postgres {
    server: Server,
    connection: Connection,
}

impl Postgres {
    /// Connects, and holds the server against what is needed.
    pub fn reach(config: &RemoteConfig) -> Result<Postgres, Error> {
        let (server, connection) = Server::reach(config)?;
        Ok(Postgres { server, connection })
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What makes a commit less than it seems, in words: the server does not sync its log.
    pub fn may_lose(&self) -> Option<String> {
        let config = self.server.config();
        let off = config.dialect.has_async_commit() && self.connection.text("SHOW fsync").is_ok_and(|is| is == "off");
        off.then(|| {
            format!("warning: {}: fsync is off there; a crash of the machine may lose everything", config.server())
        })
    }

    /// What is loaded; none when nothing is there. An incomplete load and a schema that is not ours are errors.
    pub fn open(&self) -> Result<Option<Loaded>, Error> {
        schema::open(&self.server, &self.connection)
    }

    /// Removes what is there; `consent` hears what goes if that is a whole database, and may refuse.
    pub fn clear(&self, consent: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        schema::clear(&self.server, &self.connection, consent)
    }

    /// Loads `plan` with `threads` threads that make rows, and marks it as complete last of all; false when `progress` was
    /// cancelled.
    pub fn load(&self, plan: &Population, threads: usize, progress: &RowsDone) -> Result<bool, Error> {
        load::load(&self.server, &self.connection, plan, threads, progress)
    }

    /// Checks the rules that SQL can tell, while nothing else runs.
    pub fn check(&self, loaded: &Loaded, progress: &QueriesDone) -> Result<Audit, Error> {
        check::check(&self.server, loaded, progress)
    }
}

impl Engine for Postgres {
    type Error = PgError;
    type Session<'a> = PgSession<'a>;
    type Reader<'a> = Reader<'a>;

    fn session(&self, _worker: usize) -> Result<PgSession<'_>, PgError> {
        PgSession::open(&self.server)
    }

    fn reader(&self) -> Result<Reader<'_>, PgError> {
        Ok(Reader::new(&self.connection))
    }

    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}
