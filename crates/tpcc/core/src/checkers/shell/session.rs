//! A session of the shell: a thread or fiber with at most one transaction.

use storage::{Database, Isolation, OpenTable, StorageError, TableLock, Transaction, TxnError};

use super::mailbox::Mailbox;
use super::request::Request;
use super::turns::{SessionId, TurnScheduler};

/// Executes the requests of a session until its mailbox is closed and empty. Then rolls back the open transaction.
pub(super) fn serve(
    db: &Database,
    table: OpenTable<i64, String>,
    turns: &TurnScheduler,
    me: SessionId,
    requests: &Mailbox<Request>,
) {
    turns.enter(me);
    let _reply = PanicReply { turns, me, requests };
    let mut session = Session { db, table, open: None };
    while let Some(request) = requests.take(&**turns.tasks()) {
        let reply = session.answer(request);
        turns.reply(me, &reply);
    }
}

/// Replies to the current request on drop if its execution panicked, because the shell waits for a reply.
struct PanicReply<'a> {
    turns: &'a TurnScheduler,
    me: SessionId,
    requests: &'a Mailbox<Request>,
}

impl Drop for PanicReply<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.requests.close(&**self.turns.tasks());
            self.turns.reply(self.me, "error fault the session panicked; this is a fault of the program");
        }
    }
}

struct Session<'db> {
    db: &'db Database,
    table: OpenTable<i64, String>,
    open: Option<Transaction<'db>>,
}

/// Failure of one statement of a transaction.
enum StatementError {
    Engine(TxnError),
    /// The required row does not exist.
    NotFound(i64),
}

impl From<TxnError> for StatementError {
    fn from(error: TxnError) -> StatementError {
        StatementError::Engine(error)
    }
}

impl<'db> Session<'db> {
    fn answer(&mut self, request: Request) -> String {
        match request {
            Request::Begin(_) if self.open.is_some() => {
                "error in-transaction commit or roll back the open one first".to_owned()
            }
            Request::Begin(isolation) => match self.db.begin_at(isolation) {
                Ok(transaction) => {
                    self.open = Some(transaction);
                    "ok".to_owned()
                }
                Err(error) => refused(&error),
            },
            Request::Dump => self.dump().unwrap_or_else(|error| refused(&error)),
            request => match self.open.take() {
                None => "error no-transaction begin one first".to_owned(),
                Some(transaction) => self.execute(transaction, request),
            },
        }
    }

    /// Executes a request in an open transaction and returns the reply. The transaction stays open unless the request or a
    /// deadlock ends it.
    fn execute(&mut self, mut transaction: Transaction<'db>, request: Request) -> String {
        let ended = |ended: Result<(), TxnError>| ended.map_or_else(|error| refused(&error), |()| "ok".to_owned());
        match request {
            // The call returns when the commit is on disk. The locks are released earlier, but the client gets no reply
            // before the commit is on disk.
            Request::Commit => return ended(transaction.commit()),
            Request::Rollback => return ended(transaction.rollback().map(drop)),
            _ => {}
        }
        match self.statement(&mut transaction, request) {
            Ok(reply) => {
                self.open = Some(transaction);
                reply
            }
            Err(StatementError::NotFound(key)) => {
                self.open = Some(transaction);
                format!("error not-found no row {key}")
            }
            Err(StatementError::Engine(TxnError::Deadlock { .. })) => match transaction.rollback() {
                Ok(_) => "deadlock".to_owned(),
                Err(error) => refused(&error),
            },
            Err(StatementError::Engine(error)) => {
                self.open = Some(transaction);
                refused(&error)
            }
        }
    }

    fn statement(&self, tx: &mut Transaction<'_>, request: Request) -> Result<String, StatementError> {
        let table = &self.table;
        let must_be = |key: i64, found: bool| if found { Ok(()) } else { Err(StatementError::NotFound(key)) };
        match request {
            Request::Get(key) => return Ok(value(tx.get(table, &key)?)),
            Request::GetForUpdate(key) => return Ok(value(tx.get_for_update(table, &key)?)),
            Request::Scan(from, to) => return Ok(rows(tx, table, from, to)?),
            Request::Insert(key, row) => tx.insert(table, &key, &row)?,
            Request::Put(key, row) => tx.put(table, &key, &row)?,
            Request::Update(key, row) => must_be(key, tx.update(table, &key, &row)?)?,
            Request::Delete(key) => must_be(key, tx.delete(table, &key)?)?,
            Request::Lock(mode) => tx.lock_table(table, mode)?,
            // These requests begin or end a transaction and are handled elsewhere.
            Request::Begin(_) | Request::Commit | Request::Rollback | Request::Dump => {}
        }
        Ok("ok".to_owned())
    }

    /// Reads every row of one committed state. Locks the table for reading, so the call waits for writers.
    fn dump(&self) -> Result<String, TxnError> {
        let mut tx = self.db.begin_at(Isolation::Serializable)?;
        tx.lock_table(&self.table, TableLock::Shared)?;
        let reply = rows(&mut tx, &self.table, i64::MIN, i64::MAX)?;
        tx.commit()?;
        Ok(reply)
    }
}

fn value(row: Option<String>) -> String {
    row.map_or_else(|| "none".to_owned(), |row| format!("ok {row}"))
}

fn rows(tx: &mut Transaction<'_>, table: &OpenTable<i64, String>, from: i64, to: i64) -> Result<String, TxnError> {
    let mut reply = String::new();
    for row in tx.range(table, from..=to)? {
        let (key, row) = row?;
        reply += &format!(" {key}={row}");
    }
    Ok(if reply.is_empty() { "none".to_owned() } else { format!("ok{reply}") })
}

/// Formats an error as a reply: "error duplicate shell: shell already has this key".
pub(super) fn refused(error: &TxnError) -> String {
    let kind = match error {
        TxnError::Deadlock { .. } => "deadlock",
        TxnError::DuplicateKey { .. } => "duplicate",
        TxnError::KeyTooLong { .. } | TxnError::RowTooLarge { .. } => "too-large",
        TxnError::TooManyLocks { .. } => "too-many",
        TxnError::Ended => "ended",
        TxnError::Storage(below) => kind_below(below),
        _ => "table",
    };
    format!("error {kind} {}", one_line(error))
}

/// Returns the reply keyword for a storage error.
pub(super) fn kind_below(error: &StorageError) -> &'static str {
    match error {
        StorageError::NoSpace { .. } => "no-space",
        StorageError::LogFull { .. } => "log-full",
        StorageError::TooManyTransactions { .. }
        | StorageError::TooMuchMaintenance { .. }
        | StorageError::PoolExhausted { .. }
        | StorageError::TooManyFiles { .. } => "too-many",
        StorageError::CorruptPage { .. } | StorageError::CorruptFile { .. } | StorageError::Format { .. } => "corrupt",
        StorageError::Poisoned { .. } | StorageError::Closing => "closed",
        _ => "io",
    }
}

/// Formats an error as one line, because a reply is one line.
pub(super) fn one_line(error: &impl std::fmt::Display) -> String {
    error.to_string().replace('\n', "; ")
}
