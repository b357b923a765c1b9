//! Adapter for SQLite, as bundled by rusqlite: a B-tree with one writer at a time, and readers on snapshots of the
//! write-ahead log.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use storage::Durability;
use tpcc_core::peers::{Access, Peer, PeerSession, PeerTransaction};

use super::{CACHE_BYTES, Engine, Failure, SYNC_EVERY};

/// Maximum time that a writer waits for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Path of the database, and the SQL statements on its tables.
pub(super) struct Sqlite {
    file: PathBuf,
    tables: Vec<Statements>,
    durability: Durability,
    /// Start time of the last transaction with a durable commit.
    synced: Mutex<Instant>,
    /// Connection that stays open, so that SQLite does not remove the write-ahead log between two sessions.
    _open: Mutex<Connection>,
}

/// SQL statements on one table. Each connection prepares them once.
struct Statements {
    read: String,
    up: String,
    down: String,
    update: String,
    insert: String,
    take: String,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => Failure::conflict(error),
            _ => Failure::new(error),
        }
    }
}

impl Sqlite {
    fn connect(&self) -> Result<Connection, Failure> {
        let connection = connect(&self.file, self.durability)?;
        connection.set_prepared_statement_cache_capacity(6 * self.tables.len());
        Ok(connection)
    }

    /// Returns true if the transaction that begins now must be durable at commit although commits are `async`: the previous
    /// durable commit is too old.
    fn is_due(&self) -> bool {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let due = synced.elapsed() >= SYNC_EVERY;
        if due {
            *synced = Instant::now();
        }
        due
    }
}

fn connect(file: &Path, durability: Durability) -> Result<Connection, Failure> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "cache_size", -(CACHE_BYTES as i64 / 1024))?;
    connection.pragma_update(None, "synchronous", if durability == Durability::Sync { "FULL" } else { "NORMAL" })?;
    Ok(connection)
}

impl Engine for Sqlite {
    const NAME: &'static str = "sqlite";
    const SETTINGS: &'static str = "bundled, WAL, cache 1 GiB a connection, tables WITHOUT ROWID, statements prepared; sync: synchronous=FULL; async: NORMAL, and FULL for the first commit after 20 ms";

    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<Sqlite, Failure> {
        let file = directory.join("sqlite");
        let connection = connect(&file, durability)?;
        for table in tables {
            let make = format!("CREATE TABLE \"{table}\" (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID");
            connection.execute(&make, [])?;
        }
        let tables = tables
            .iter()
            .map(|table| Statements {
                read: format!("SELECT v FROM \"{table}\" WHERE k = ?1"),
                up: format!("SELECT k, v FROM \"{table}\" WHERE k BETWEEN ?1 AND ?2 ORDER BY k"),
                down: format!("SELECT k, v FROM \"{table}\" WHERE k BETWEEN ?1 AND ?2 ORDER BY k DESC"),
                update: format!("UPDATE \"{table}\" SET v = ?2 WHERE k = ?1"),
                insert: format!("INSERT INTO \"{table}\" (k, v) VALUES (?1, ?2) ON CONFLICT DO NOTHING"),
                take: format!("DELETE FROM \"{table}\" WHERE k = ?1"),
            })
            .collect();
        Ok(Sqlite { file, tables, durability, synced: Mutex::new(Instant::now()), _open: Mutex::new(connection) })
    }
}

impl Peer for Sqlite {
    type Error = Failure;
    type Session<'a> = Session<'a>;

    fn session(&self) -> Result<Session<'_>, Failure> {
        Ok(Session { sqlite: self, connection: self.connect()? })
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Failure> {
        let connection = self.connect()?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let tx = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        {
            let mut insert = tx.prepare_cached(&self.tables[table].insert)?;
            for (key, row) in rows {
                insert.execute(params![key, row])?;
            }
        }
        Ok(tx.commit()?)
    }
}

/// Session: a connection to the database.
pub(super) struct Session<'a> {
    sqlite: &'a Sqlite,
    connection: Connection,
}

impl PeerSession for Session<'_> {
    type Error = Failure;
    type Transaction<'t>
        = SqliteTransaction<'t>
    where
        Self: 't;

    fn begin(&self, access: Access) -> Result<SqliteTransaction<'_>, Failure> {
        let behavior = match access {
            Access::Read => TransactionBehavior::Deferred,
            Access::Write => TransactionBehavior::Immediate,
        };
        let was_due = access == Access::Write && self.sqlite.durability == Durability::Async && self.sqlite.is_due();
        if was_due {
            self.connection.pragma_update(None, "synchronous", "FULL")?;
        }
        let tx = Transaction::new_unchecked(&self.connection, behavior)?;
        Ok(SqliteTransaction { session: self, tx, was_due })
    }
}

/// Transaction of SQLite.
pub(super) struct SqliteTransaction<'t> {
    session: &'t Session<'t>,
    tx: Transaction<'t>,
    /// True if this transaction is durable at commit, although commits are `async`.
    was_due: bool,
}

impl SqliteTransaction<'_> {
    fn statements(&self, table: usize) -> &Statements {
        &self.session.sqlite.tables[table]
    }
}

impl PeerTransaction for SqliteTransaction<'_> {
    type Error = Failure;

    fn read<R>(&mut self, table: usize, key: &[u8], mut f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Failure> {
        let mut read = self.tx.prepare_cached(&self.statements(table).read)?;
        Ok(read.query_row([key], |row| Ok(f(row.get_ref(0)?.as_blob()?))).optional()?)
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let statements = self.statements(table);
        let mut scan = self.tx.prepare_cached(if down { &statements.down } else { &statements.up })?;
        let mut rows = scan.query([from, to])?;
        while let Some(row) = rows.next()? {
            let (key, value) = (row.get_ref(0)?, row.get_ref(1)?);
            if f(key.as_blob().map_err(Failure::new)?, value.as_blob().map_err(Failure::new)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Failure> {
        let Some(mut row) = self.read(table, key, <[u8]>::to_vec)? else { return Ok(None) };
        let answer = f(&mut row);
        self.tx.prepare_cached(&self.statements(table).update)?.execute(params![key, row])?;
        Ok(Some(answer))
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Failure> {
        Ok(self.tx.prepare_cached(&self.statements(table).insert)?.execute(params![key, row])? == 1)
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut first = None;
        self.scan(table, from, to, false, |key, _| {
            first = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        if let Some(key) = &first {
            self.tx.prepare_cached(&self.statements(table).take)?.execute([key])?;
        }
        Ok(first)
    }

    fn commit(self) -> Result<(), Failure> {
        self.tx.commit()?;
        if self.was_due {
            self.session.connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        Ok(())
    }

    fn rollback(self) -> Result<(), Failure> {
        self.tx.rollback()?;
        if self.was_due {
            self.session.connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        Ok(())
    }
}
