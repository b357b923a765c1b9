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

/// A server with a connection for load, check and other commands on it.
pub struct Postgres {
    server: Server,
    connection: Connection,
}

impl Postgres {
    /// Connects, and checks dialect and version of the server.
    pub fn connect(config: &RemoteConfig) -> Result<Postgres, Error> {
        let (server, connection) = Server::connect(config)?;
        Ok(Postgres { server, connection })
    }

    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns a warning if commits may be lost because the server runs with `fsync` off.
    pub fn durability_warning(&self) -> Option<String> {
        let config = self.server.config();
        let off = config.dialect.has_async_commit() && self.connection.text("SHOW fsync").is_ok_and(|is| is == "off");
        off.then(|| {
            format!("warning: {}: fsync is off there; a crash of the machine may lose everything", config.server())
        })
    }

    /// Returns the parameters of the loaded database; `None` if nothing is loaded.
    ///
    /// # Errors
    ///
    /// Fails if the load is incomplete, or if the schema has tables that are not tables of this program.
    pub fn open(&self) -> Result<Option<Loaded>, Error> {
        schema::open(&self.server, &self.connection)
    }

    /// Deletes the tables. Calls `consent` with a description before it deletes a complete database; its error cancels the
    /// deletion.
    pub fn clear(&self, consent: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        schema::clear(&self.server, &self.connection, consent)
    }

    /// Loads `plan` with `threads` threads that generate rows. Marks the database as complete at the end. Returns false if
    /// `progress` was cancelled.
    pub fn load(&self, plan: &Population, threads: usize, progress: &RowsDone) -> Result<bool, Error> {
        load::load(&self.server, &self.connection, plan, threads, progress)
    }

    /// Checks the rules that SQL can express. Nothing else may run at the same time.
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
