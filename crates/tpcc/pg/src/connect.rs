//! A server, and connections to it. Each connection belongs to one thread, which drives the connection while the thread
//! waits for an answer. An answer wakes only that thread.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls, Row, SimpleQueryMessage};

use super::dialect::Dialect;
use super::error::{PgError, chain};
use super::password::{self, IgnoredFile, Password};
use super::url::Url;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::settings::{Durability, Isolation};

/// Schema of all tables of this program; other schemas of the database are not used.
pub(super) const SCHEMA: &str = "tpcc";

/// Maximum time from the start of a connection until it is usable: socket, login and settings.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time that a terminal waits for the answers to one message; the connection is then considered lost. A working
/// server answers in milliseconds, or in seconds if it waits for turns, locks or its disk. Loads and checks have no such
/// limit, because statements on whole tables may take longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// [`ANSWER_TIMEOUT`] after the user has requested the end.
const ANSWER_TIMEOUT_AT_END: Duration = Duration::from_secs(5);

/// Interval at which a waiting terminal checks if the user has requested the end.
const INTERRUPT_POLL: Duration = Duration::from_millis(250);

/// Time limits of the server, a database or a role on a session, a transaction or a statement, which would end a session of
/// this program or lose its work. All sessions switch them off: a load's connection idles while others load, a terminal's
/// while its terminals think, and a statement on a whole table takes time in proportion to the table. The set of supported
/// limits depends on the server's version; the fourth is CockroachDB's older name of the first.
const TIME_LIMITS: [&str; 4] =
    ["idle_session_timeout", "idle_in_transaction_session_timeout", "transaction_timeout", "idle_in_session_timeout"];

/// Keepalive settings, for this side of a connection and, if supported, for the server. The other side is considered dead
/// after `KEEPALIVE_IDLE_S` without traffic and `KEEPALIVE_COUNT` unanswered probes. The total is less than
/// [`ANSWER_TIMEOUT`], so that locks of a dead client are released before the sessions that wait for them give up.
const KEEPALIVE_IDLE_S: u32 = 10;
const KEEPALIVE_INTERVAL_S: u32 = 5;
const KEEPALIVE_COUNT: u32 = 4;

const fn seconds(number: u32) -> Duration {
    Duration::from_secs(number as u64)
}

/// Address of a server and the settings of its use.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// User, address and database.
    pub url: Url,
    /// SQL dialect of the server.
    pub dialect: Dialect,
    /// Number of simultaneous connections.
    pub connections: usize,
    /// Durability at which a commit is acknowledged.
    pub durability: Durability,
    /// Isolation of all five transactions.
    pub isolation: Isolation,
}

impl RemoteConfig {
    /// Returns true if transactions take turns at contended rows, because the server would refuse the second writer of a
    /// row.
    pub(super) fn takes_turns(&self) -> bool {
        self.dialect.has_session_locks() && self.isolation != Isolation::ReadCommitted
    }

    /// Returns true if Deliveries of a warehouse take turns although other transactions do not. A Delivery that waits for an
    /// order which another one deletes would otherwise skip the district instead of taking the next order.
    pub(super) fn delivers_in_turns(&self) -> bool {
        self.dialect.has_session_locks() && !self.takes_turns()
    }

    /// Returns the host and port for messages, for example "127.0.0.1:5432".
    pub fn server(&self) -> String {
        let port = self.url.port(self.dialect);
        if self.url.host.contains(':') {
            format!("[{}]:{port}", self.url.host)
        } else {
            format!("{}:{port}", self.url.host)
        }
    }

    /// Returns the server and database for messages, for example "127.0.0.1:5432/bank".
    pub fn shown(&self) -> String {
        format!("{}/{}", self.server(), self.url.database)
    }

    /// Returns a command line for this server, in the form of [`tpcc_core::workload::error::command`] for a directory.
    pub fn command(&self, name: &str, more: &str) -> String {
        let space = if more.is_empty() { "" } else { " " };
        let dialect = match self.dialect {
            Dialect::Postgres => String::new(),
            dialect => format!(" --sql-dialect {}", dialect.name()),
        };
        format!("'tpcc {name} --engine {}{dialect}{space}{more}'", self.url)
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A connection of a terminal, which runs the five transactions.
    Terminal,
    /// A connection for statements on whole tables: loads and checks.
    Tables,
}

/// A server that has accepted a connection.
#[derive(Clone, Debug)]
pub struct Server {
    config: RemoteConfig,
    /// Host and port of the server: [`RemoteConfig::server`].
    name: String,
    login: Config,
    /// Password file that exists but was ignored, if any.
    ignored_file: Option<IgnoredFile>,
    /// Result of `SELECT version()`: "PostgreSQL 15.6 (Debian ..) on ..".
    version: String,
    /// `server_version_num`; 0 until it has been read.
    number: u32,
}

impl Server {
    /// Connects, and checks dialect and version of the server.
    pub fn connect(config: &RemoteConfig) -> Result<(Server, Connection), Error> {
        let (url, port) = (&config.url, config.url.port(config.dialect));
        let mut login = Config::new();
        login.user(&url.user).dbname(&url.database).port(port).connect_timeout(CONNECT_TIMEOUT);
        login.keepalives_idle(seconds(KEEPALIVE_IDLE_S)).keepalives_interval(seconds(KEEPALIVE_INTERVAL_S));
        login.keepalives_retries(KEEPALIVE_COUNT);
        login.tcp_user_timeout(seconds(KEEPALIVE_IDLE_S + KEEPALIVE_COUNT * KEEPALIVE_INTERVAL_S));
        login.application_name("tpcc");
        match url.host.starts_with('/') {
            true => login.host_path(&url.host),
            false => login.host(&url.host),
        };
        let ignored_file = match password::password(url, port) {
            Password::Known(password) => {
                login.password(password);
                None
            }
            Password::NotFound => None,
            Password::IgnoredFile(file) => Some(file),
        };
        let name = config.server();
        let mut server =
            Server { config: config.clone(), name, login, ignored_file, version: String::new(), number: 0 };
        let connection = server.open_connection(Purpose::Tables)?;
        let text = |sql| connection.text(sql).map_err(|error| server.failed(error));
        let (version, number) = (text("SELECT version()")?, text("SHOW server_version_num")?);
        server.number = number.parse().unwrap_or(0);
        server.check_version(&version, server.number)?;
        server.version = version;
        Ok((server, connection))
    }

    fn check_version(&self, version: &str, number: u32) -> Result<(), Error> {
        let (asked, found) = (self.config.dialect, Dialect::of(version));
        let short = version.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        if asked != found {
            return Err(Error::failed(format!(
                "{}: is {short}, not a server of the dialect {}",
                self.name,
                asked.name()
            ))
            .help(format!("pass --sql-dialect {}", found.name())));
        }
        let (least, needed) = asked.min_version();
        if number < least {
            return Err(Error::failed(format!("{}: is {short}; version {needed} or newer is needed", self.name))
                .help("name a newer server with --engine"));
        }
        Ok(())
    }

    /// Returns the configuration of the server.
    pub fn config(&self) -> &RemoteConfig {
        &self.config
    }

    /// Returns the product and version, for example "PostgreSQL 15.6".
    pub fn version(&self) -> String {
        self.version.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// Returns the host and port for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Opens another connection. An error includes a hint.
    pub(super) fn open_connection(&self, purpose: Purpose) -> Result<Connection, Error> {
        self.try_open_connection(purpose).map_err(|ConnectError { message, help }| {
            let error = Error::failed(format!("{}: {message}", self.name));
            if help.is_empty() { error } else { error.help(help) }
        })
    }

    /// As [`Self::open_connection`]. The error does not include the server's name.
    pub(super) fn try_open_connection(&self, purpose: Purpose) -> Result<Connection, ConnectError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| ConnectError {
            message: format!("no more connections can be driven: {error}"),
            help: "pass a smaller --connections".to_owned(),
        })?;
        let settings = self.settings(purpose);
        // The library's timeout covers only the socket: a server may accept the connection and never answer.
        let connecting = async {
            let (client, link) = self.login.connect(NoTls).await.map_err(|error| self.connect_error(&error))?;
            tokio::spawn(async {
                // A statement that waits for an answer receives the error.
                let _ = link.await;
            });
            match client.batch_execute(&settings).await {
                Ok(()) => Ok(client),
                Err(error) => {
                    let message = format!("refuses a setting: {}", PgError::of(&self.name, error, None));
                    Err(ConnectError { message, help: String::new() })
                }
            }
        };
        // The timeout needs the runtime's clock, so the timeout is created inside the runtime.
        let connected = runtime.block_on(async { timeout(CONNECT_TIMEOUT, connecting).await });
        let client = connected.unwrap_or_else(|_| {
            Err(ConnectError {
                message: format!("is silent: not ready for a connection within {} s", CONNECT_TIMEOUT.as_secs()),
                help: "look whether that is a server of PostgreSQL's protocol, and whether it still works".to_owned(),
            })
        })?;
        let limit = (purpose == Purpose::Terminal).then_some(ANSWER_TIMEOUT);
        Ok(Connection { runtime, client, server: self.name.clone(), limit, overdue: OnceLock::new() })
    }

    /// Returns the SQL statements that configure a new connection.
    fn settings(&self, purpose: Purpose) -> String {
        let dialect = self.config.dialect;
        let mut limits = TIME_LIMITS.to_vec();
        // A turn is a statement of its own: if the wait for it failed, the rest of its message would commit, and run a
        // second time. Loads and checks wait for locks without a limit: the server's own vacuum may hold one, and a timeout
        // would lose the whole load. Without turns, the role's limit remains; it aborts transactions, which are retried.
        if purpose == Purpose::Tables || self.config.takes_turns() {
            limits.push("lock_timeout");
        }
        let limits = limits.iter().map(|limit| format!("'{limit}'")).collect::<Vec<_>>().join(", ");
        let mut settings = vec![
            // This setting is first, because the limit might end the statements that follow.
            "SET statement_timeout = 0".to_owned(),
            format!("SET search_path = {SCHEMA}"),
            // A limit that the server does not know is not set.
            format!("SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN ({limits})"),
        ];
        // The server releases the turn and the transaction of a dead client when it ends the connection. It detects a dead
        // client only by keepalives.
        if dialect.has_keepalive_settings() {
            settings.push(format!("SET tcp_keepalives_idle = {KEEPALIVE_IDLE_S}"));
            settings.push(format!("SET tcp_keepalives_interval = {KEEPALIVE_INTERVAL_S}"));
            settings.push(format!("SET tcp_keepalives_count = {KEEPALIVE_COUNT}"));
        }
        if purpose == Purpose::Terminal {
            let level = self.config.isolation.name().replace('-', " ");
            settings.push(format!("SET default_transaction_isolation = '{level}'"));
            if dialect.has_async_commit() {
                settings.push(match self.config.durability {
                    Durability::Async => "SET synchronous_commit = off".to_owned(),
                    // Stricter settings than the server's own disk are left to its administrator.
                    Durability::Sync => "SELECT set_config('synchronous_commit', 'on', false) \
                                         WHERE current_setting('synchronous_commit') = 'off'"
                        .to_owned(),
                });
            }
        }
        let fixed = match purpose {
            Purpose::Terminal => dialect.terminal_settings(self.number),
            Purpose::Tables => dialect.tables_settings(),
        };
        settings.extend(fixed.iter().map(|&setting| setting.to_owned()));
        settings.join("; ")
    }

    fn connect_error(&self, error: &tokio_postgres::Error) -> ConnectError {
        let message = chain(error);
        let (message, help) = match error.as_db_error() {
            Some(refused) => {
                let message = refused.message();
                let help = match refused.code().code() {
                    "28P01" => password::HELP.to_owned(),
                    "28000" if message.contains("no encryption") => {
                        "connections are not encrypted here; lead one through a tunnel (ssh -L, stunnel)".to_owned()
                    }
                    "3D000" => format!("create it with 'createdb {}', or name another", self.config.url.database),
                    "42501" => "let an owner of the database grant CONNECT on it, or connect as such a user".to_owned(),
                    "53300" => {
                        "pass a smaller --connections, or raise max_connections of the server, or the limit that \
                                its role or database has"
                            .to_owned()
                    }
                    _ => String::new(),
                };
                (format!("refuses {}: {message}", self.config.url.user), help)
            }
            None if message.contains("password missing") => match &self.ignored_file {
                Some(IgnoredFile { message, help }) => (format!("asks for a password; {message}"), help.clone()),
                None => ("asks for a password".to_owned(), password::HELP.to_owned()),
            },
            None => {
                (format!("no server answers there: {message}"), "start it, or name another with --engine".to_owned())
            }
        };
        ConnectError { message, help }
    }

    /// Converts the error of a command (not of a transaction), with a hint.
    pub(super) fn failed(&self, error: PgError) -> Error {
        let help = match error.code() {
            Some("42501") => "let an owner of the database grant what is missing, or connect as such a user",
            Some("53100") => "make room on the server's disk; 'tpcc load --replace' then begins anew",
            Some("40P01") => "another session works on these tables; wait for its end",
            Some("55P03") => "the server gave up waiting for a lock; pg_locks there tells which session has it",
            Some("25006") => {
                "the role or the database has default_transaction_read_only, or the server is a standby; connect as a user \
                 and to a server that may write"
            }
            _ => return Error::failed(error.to_string()),
        };
        Error::failed(error.to_string()).help(help)
    }
}

/// Reason for a failed connection.
pub(super) struct ConnectError {
    /// Message that follows the server's name.
    pub(super) message: String,
    /// Hint for the user; may be empty.
    pub(super) help: String,
}

/// Waits for `work` for at most `limit`, or less after the user has requested the end. Returns the exceeded limit as the
/// error.
async fn within<F: Future>(limit: Duration, work: F) -> Result<F::Output, Duration> {
    let (begun, mut work) = (Instant::now(), pin!(work));
    loop {
        if let Ok(done) = timeout(INTERRUPT_POLL.min(limit), work.as_mut()).await {
            return Ok(done);
        }
        let limit = if interrupt::requested() { limit.min(ANSWER_TIMEOUT_AT_END) } else { limit };
        if begun.elapsed() >= limit {
            return Err(limit);
        }
    }
}

/// A connection with the runtime that drives it.
pub struct Connection {
    runtime: Runtime,
    pub(super) client: Client,
    server: String,
    /// Maximum duration of [`Self::wait`]; `None` for no maximum.
    limit: Option<Duration>,
    /// Reason for which the connection is no longer used; set when an answer is overdue.
    overdue: OnceLock<String>,
}

impl Connection {
    /// Drives the connection until `work` is done. If that takes longer than the limit, the connection is not used any more.
    pub(super) fn wait<F: Future>(&self, work: F) -> Result<F::Output, PgError> {
        let limit = self.limit.unwrap_or(Duration::MAX);
        self.runtime.block_on(within(limit, work)).map_err(|waited| {
            let why = self.overdue.get_or_init(|| format!("no answer within {} s", waited.as_secs_f64()));
            PgError::Lost { server: self.server.clone(), why: why.clone() }
        })
    }

    /// Returns the reason for which the connection is no longer usable; `None` while it is usable.
    pub(super) fn lost(&self) -> Option<&str> {
        let closed = self.client.is_closed().then_some("the connection was closed");
        self.overdue.get().map(String::as_str).or(closed)
    }

    /// Sets the maximum time for answers, for tests.
    #[cfg(test)]
    pub(super) fn set_limit(&mut self, limit: Duration) {
        self.limit = Some(limit);
    }

    /// Converts an error as [`PgError::of`] does, with the name of this server.
    pub(super) fn error(&self, error: tokio_postgres::Error, table: Option<TableId>) -> PgError {
        PgError::of(&self.server, error, table)
    }

    /// Returns the error for an unexpected answer.
    pub(super) fn unexpected(&self, what: impl Into<String>) -> PgError {
        PgError::Unexpected { server: self.server.clone(), what: what.into() }
    }

    /// Runs statements without parameters and results, separated by semicolons.
    pub(super) fn batch(&self, sql: &str) -> Result<(), PgError> {
        self.wait(self.client.batch_execute(sql))?.map_err(|error| self.error(error, None))
    }

    /// Prepares a statement, runs it once and returns its rows.
    pub(super) fn query(
        &self,
        sql: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        self.wait(self.client.query(sql, parameters))?.map_err(|error| self.error(error, None))
    }

    /// Runs a statement and returns the first column of the first row as text.
    pub(super) fn text(&self, sql: &str) -> Result<String, PgError> {
        let all = self.wait(self.client.simple_query(sql))?.map_err(|error| self.error(error, None))?;
        let first = all.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        first.ok_or_else(|| self.unexpected(format!("'{sql}' gave nothing")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str, dialect: Dialect) -> RemoteConfig {
        RemoteConfig {
            url: url.parse().unwrap(),
            dialect,
            connections: 1,
            durability: Durability::Sync,
            isolation: Isolation::Serializable,
        }
    }

    fn server(config: RemoteConfig) -> Server {
        let (name, login) = (config.server(), Config::new());
        Server { config, name, login, ignored_file: None, version: String::new(), number: 0 }
    }

    #[test]
    fn a_role_s_limits_are_off_by_what_a_session_is_for() {
        let of = |isolation, dialect, purpose| {
            server(RemoteConfig { isolation, ..config("postgres://me@h/x", dialect) }).settings(purpose)
        };
        for purpose in [Purpose::Terminal, Purpose::Tables] {
            for dialect in [Dialect::Postgres, Dialect::Cockroach, Dialect::Yugabyte] {
                let settings = of(Isolation::Serializable, dialect, purpose);
                assert!(settings.starts_with("SET statement_timeout = 0; "), "{settings}");
                assert!(TIME_LIMITS.iter().all(|limit| settings.contains(&format!("'{limit}'"))), "{settings}");
                assert_eq!(settings.contains("tcp_keepalives"), dialect != Dialect::Cockroach, "{settings}");
                // The settings of a role remain, except the one that --durability sets.
                let commits = purpose == Purpose::Terminal && dialect == Dialect::Postgres;
                assert_eq!(settings.contains("synchronous_commit"), commits, "{settings}");
                assert!(!settings.contains("read_only"), "{settings}");
            }
        }
        let waits = |isolation, purpose| of(isolation, Dialect::Postgres, purpose).contains("'lock_timeout'");
        assert!(waits(Isolation::Serializable, Purpose::Terminal) && waits(Isolation::ReadCommitted, Purpose::Tables));
        assert!(!waits(Isolation::ReadCommitted, Purpose::Terminal));
    }

    #[test]
    fn a_limit_on_waiting_for_locks_blames_no_command() {
        let server = server(config("postgres://me@h/x", Dialect::Postgres));
        let refused = |code: &str| PgError::Refused {
            server: server.name.clone(),
            code: code.to_owned(),
            message: "no".to_owned(),
            table: None,
        };
        let said = |code| server.failed(refused(code)).to_string();
        assert!(
            said("55P03").contains("gave up waiting for a lock") && !said("55P03").contains("command"),
            "{}",
            said("55P03")
        );
        assert!(said("25006").contains("default_transaction_read_only"), "{}", said("25006"));
    }

    #[test]
    fn a_server_is_named_by_host_and_port() {
        assert_eq!(config("postgres://me@h/x", Dialect::Postgres).shown(), "h:5432/x");
        assert_eq!(config("postgres://me@[::1]/x", Dialect::Cockroach).server(), "[::1]:26257");
        let command = config("postgres://me@h:1/x", Dialect::Yugabyte).command("load", "--replace");
        assert_eq!(command, "'tpcc load --engine postgres://me@h:1/x --sql-dialect yugabyte --replace'");
    }

    #[test]
    fn another_dialect_and_an_old_version_are_refused() {
        let config = config("postgres://me@h/x", Dialect::Postgres);
        let server = server(config);
        assert!(server.check_version("PostgreSQL 15.6 on x86_64", 150_006).is_ok());
        let old = server.check_version("PostgreSQL 9.6.24 on x86_64", 90_624).unwrap_err().to_string();
        assert!(old.contains("h:5432: is PostgreSQL 9.6.24; version 14 or newer is needed"), "{old}");
        let other = server.check_version("CockroachDB CCL v23.1.11", 130_000).unwrap_err().to_string();
        assert!(other.contains("pass --sql-dialect cockroach"), "{other}");
    }
}
