//! Error types. [`StorageError`] covers the failures below the level of a transaction; the errors of public calls wrap it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::ids::{Age, Lsn, PageId};

/// Error numbers of the operating system for too many open files, in the whole system and in one process. The numbers are
/// the same on all supported systems.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Errors of files, pages, the log and the buffer pool.
///
/// Cheap to clone, because several waiters may receive the same error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The system refused a thread for the loops of transactions ([`Transaction::in_order`](crate::Transaction::in_order)).
    #[error("threads of a loop: no thread: {source}; allow more (ulimit -u), or set fewer (Options::loop_threads)")]
    LoopThread {
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The operating system refused a file operation.
    #[error("{file}: {op}{} failed: {source}", at_byte(op, *offset))]
    Io {
        /// Name of the file operation: "read", "write", "sync", ...
        op: &'static str,
        /// Path of the file, as a user would find it.
        file: String,
        /// Byte offset in the file; 0 for operations without an offset.
        offset: u64,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The device or quota is full. The database is intact: the transaction rolls back, and service resumes when there is
    /// space.
    #[error("{file}: no space left; free some space, then try again (nothing was lost)")]
    NoSpace {
        /// Path of the file that could not grow.
        file: String,
    },
    /// The process, or the system, has reached its limit of open files. The database is intact, as for
    /// [`StorageError::NoSpace`].
    #[error(
        "{file}: no free file descriptor; close files or raise the limit (ulimit -n), then try again (nothing was lost)"
    )]
    TooManyFiles {
        /// Path of the file that could not be opened.
        file: String,
    },
    /// A page on disk differs from the page that was written.
    #[error("{file}: page {page} {what}; nothing was changed: restore a copy")]
    CorruptPage {
        /// Path of the data file.
        file: String,
        /// Number of the damaged page.
        page: PageId,
        /// Description of the damage, as a clause: "fails its checksum".
        what: String,
    },
    /// A file that is not a page file is damaged.
    #[error("{file}: {what}")]
    CorruptFile {
        /// Path of the damaged file.
        file: String,
        /// Description of the damage, and advice.
        what: String,
    },
    /// The file was written in another version of the file format.
    #[error(
        "{file}: format version {found}, this build reads version {expected}; open it with the build that wrote it: from \
         there its rows can be read and put into a new database"
    )]
    Format {
        /// Path of the file.
        file: String,
        /// Format version of the file.
        found: u32,
        /// Format version that this build reads.
        expected: u32,
    },
    /// An earlier failed write or sync closed the instance to commits.
    #[error("closed to commits after an earlier failure ({cause}); durable up to LSN {durable}; reopen the database")]
    Poisoned {
        /// Description of the first failure.
        cause: Arc<str>,
        /// Durable end of the log: everything before this log position is on disk.
        durable: Lsn,
    },
    /// All frames of the buffer pool are in use.
    #[error("buffer pool: all {frames} frames are in use; open with a larger pool")]
    PoolExhausted {
        /// Number of frames in the pool.
        frames: usize,
    },
    /// The maximum number of concurrent transactions, set at open, is reached.
    #[error(
        "{limit} transactions are running, as many as the database was opened for; end one, or open with more slots"
    )]
    TooManyTransactions {
        /// Maximum number of concurrent transactions.
        limit: usize,
    },
    /// The maximum number of concurrent loads, drops and other changes of whole tables is reached. They do not count as
    /// transactions of [`StorageError::TooManyTransactions`].
    #[error("{limit} loads and changes of whole tables are under way, as many as there may be at once; try again")]
    TooMuchMaintenance {
        /// Maximum number of concurrent changes of whole tables.
        limit: usize,
    },
    /// The database was opened by the parent of this process, before the fork. In this process it can only be dropped.
    #[error("the database was opened by the process that forked this one, and is open there; open it after the fork")]
    Forked,
    /// The database is being closed.
    #[error("the database is being closed")]
    Closing,
    /// The log has reached its size limit, four times [`Options::checkpoint_every`](crate::Options::checkpoint_every), and
    /// cannot be truncated. The database is intact: the transaction rolls back, and service resumes when the transaction or
    /// copy that holds the log has ended.
    #[error(
        "{file}: the log has taken the {limit} bytes that it may{}; end what holds it, or open with a larger \
         'checkpoint_every', then try again (nothing was lost)",
        held_log(holder)
    )]
    LogFull {
        /// Path of the oldest file of the log.
        file: String,
        /// Maximum size of the log in bytes.
        limit: u64,
        /// Holder of the log, as found by the newest checkpoint; `None` if no transaction or copy holds the log, and the
        /// disk is too slow.
        holder: Option<LogHolder>,
    },
    /// A log position beyond the end of this log. It belongs to another database, or to commits of this database that a
    /// crash removed before they were durable.
    #[error(
        "log position {position} is beyond the end of the log, {end}: no commit of this open database has it; wait for a \
         position that its own 'commit_async' returned"
    )]
    BeyondLog {
        /// Requested log position.
        position: Lsn,
        /// End of the log at the time of the call.
        end: Lsn,
    },
    /// A log record exceeds the maximum size.
    #[error("log record of {bytes} bytes is larger than the limit of {limit}")]
    RecordTooLarge {
        /// Size of the record in bytes.
        bytes: usize,
        /// Maximum size of a record in bytes.
        limit: usize,
    },
}

/// The transaction or database copy that keeps the log from being truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogHolder {
    /// Age of the transaction, which identifies it (see [`Transaction::age`](crate::Transaction::age)); `None` if the holder
    /// is a copy of the database in progress.
    pub transaction: Option<Age>,
    /// Number of bytes of log from the first record that the holder needs to the end of the log.
    pub bytes: u64,
    /// Time since a checkpoint first found that this holder keeps the log from being truncated.
    pub held_for: Duration,
}

fn held_log(holder: &Option<LogHolder>) -> String {
    match holder {
        None => String::new(),
        Some(LogHolder { transaction: Some(age), bytes, held_for }) => {
            format!(", {bytes} of them since transaction {} began to write, {held_for:.0?} ago at least", age.0)
        }
        Some(LogHolder { transaction: None, bytes, held_for }) => {
            format!(", {bytes} of them since a copy of the database was begun, {held_for:.0?} ago at least")
        }
    }
}

/// Formats the byte offset of a failed read, write or extension. Returns an empty text for other operations.
fn at_byte(op: &str, offset: u64) -> String {
    if matches!(op, "read" | "write" | "extend") { format!(" at byte {offset}") } else { String::new() }
}

impl StorageError {
    /// Wraps an I/O error with its operation, file and offset. A full disk becomes [`StorageError::NoSpace`], unless a sync
    /// reports it. A lack of file descriptors becomes [`StorageError::TooManyFiles`].
    pub(crate) fn io(op: &'static str, file: impl Into<String>, offset: u64, source: io::Error) -> Self {
        let file = file.into();
        // A sync that finds no space has lost data, like any other failed sync.
        if op != "sync" && matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return StorageError::NoSpace { file };
        }
        // No file was opened, so nothing has changed.
        if matches!(op, "open" | "create") && matches!(source.raw_os_error(), Some(ENFILE | EMFILE)) {
            return StorageError::TooManyFiles { file };
        }
        StorageError::Io { op, file, offset, source: Arc::new(source) }
    }

    /// Returns true if the error is a temporary lack of space or file descriptors: the operation had no effect, and the
    /// instance is unharmed.
    pub(crate) fn is_want_of_room(&self) -> bool {
        matches!(self, StorageError::NoSpace { .. } | StorageError::TooManyFiles { .. })
    }

    /// Returns the text of the error without advice, for use as the cause of another error.
    pub(crate) fn as_cause(&self) -> String {
        match self {
            StorageError::NoSpace { file } => format!("{file}: no space left"),
            StorageError::TooManyFiles { file } => format!("{file}: no free file descriptor"),
            StorageError::CorruptPage { file, page, what } => format!("{file}: page {page} {what}"),
            other => other.to_string(),
        }
    }

    /// Returns true if the same call may succeed later without a repair.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            StorageError::NoSpace { .. }
                | StorageError::TooManyFiles { .. }
                | StorageError::LogFull { .. }
                | StorageError::PoolExhausted { .. }
                | StorageError::TooManyTransactions { .. }
                | StorageError::TooMuchMaintenance { .. }
        )
    }
}

/// A transaction that blocked the lock request of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// Age of the transaction, which identifies it: see [`Transaction::age`](crate::Transaction::age).
    pub age: Age,
    /// True if this transaction was itself waiting for a lock.
    pub waits: bool,
    /// Number of the thread or fiber that began it, as given by [`Hook::task`](crate::Hook::task); 0 if unknown.
    pub task: u64,
}

/// Errors of a statement of a transaction.
///
/// Unless stated otherwise, the statement had no effect and the transaction is still open.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// The transaction was chosen as the victim of a deadlock. It must be rolled back (dropping it does that) and may be
    /// retried.
    #[error("{table}: deadlock; the transaction was chosen to give way: roll back and run it again")]
    Deadlock {
        /// Name of the table in which the transaction waited for a lock.
        table: Arc<str>,
    },
    /// The lock is held by another transaction of the same thread (or fiber). A wait would never end, because the waiting
    /// thread itself would have to end the other transaction. The error is also reported if the transaction waits for the
    /// other one indirectly. End the other transaction first, or use one transaction for both. Only this statement failed.
    ///
    /// A transaction belongs to the thread that began it. A program that passes a transaction to another thread must call
    /// [`Transaction::hand_over`](crate::Transaction::hand_over). Otherwise it may get this error although the other thread
    /// would have ended the transaction.
    #[error(
        "{table}: another transaction of this thread (or fiber) holds the lock, and cannot end while this one waits; end \
         that one first, or use one transaction for both"
    )]
    OwnTask {
        /// Name of the table in which the transaction would have waited for a lock.
        table: Arc<str>,
    },
    /// An earlier iteration of a loop ([`Transaction::in_order`](crate::Transaction::in_order)) needs a row that this iteration
    /// has used. The iteration is rolled back and runs again: return the error.
    #[error("{table}: an earlier iteration of the loop needs a row that this one has used; this one runs again")]
    Repeated {
        /// Name of the table in which the iteration would have waited for a lock.
        table: Arc<str>,
    },
    /// A statement in a loop ([`Transaction::in_order`](crate::Transaction::in_order)) locks a whole table.
    #[error("{table}: the iterations of a loop cannot lock a whole table; lock it before the loop")]
    LockInLoop {
        /// Name of the table.
        table: Arc<str>,
    },
    /// The statement waited for a lock for longer than [`Options::lock_timeout`](crate::Options::lock_timeout). Only this
    /// statement failed: the transaction may continue or roll back.
    #[error("{table}: waited too long for a lock{}; try again, or roll back", held_by(holder))]
    LockTimeout {
        /// Name of the table in which the transaction waited for a lock.
        table: Arc<str>,
        /// A transaction that still blocked the lock request at the timeout; `None` if there was none.
        holder: Option<LockHolder>,
    },
    /// The transaction is executing another statement: a fiber that shares the transaction waits in it, or the program's
    /// [`Hook`](crate::Hook) makes this call from within it. Closures that receive rows may use the transaction. Only this
    /// statement failed.
    #[error("the transaction is in the middle of another statement; let that one end first")]
    InUse,
    /// A row with this key exists already.
    #[error("{table}: {index} already has this key")]
    DuplicateKey {
        /// Name of the table.
        table: Arc<str>,
        /// Name of the unique index; for the primary key, the name of the table.
        index: Arc<str>,
    },
    /// Two rows have the same value in a unique index that is being built.
    #[error(
        "{table}: two rows have one value in {index}, which is to be unique: those under the keys \"{}\" and \"{}\"",
        rows[0].escape_ascii(), rows[1].escape_ascii()
    )]
    NotUnique {
        /// Name of the table.
        table: Arc<str>,
        /// Name of the index.
        index: Arc<str>,
        /// Keys of both rows, encoded: [`Key::decode`](crate::Key::decode) decodes them.
        rows: Box<[Vec<u8>; 2]>,
    },
    /// The key is longer than 2,048 bytes, or the entry of a secondary index is too long.
    #[error("{table}: key of {bytes} bytes; at most {limit} are possible")]
    KeyTooLong {
        /// Name of the table.
        table: Arc<str>,
        /// Length of the key in bytes.
        bytes: usize,
        /// Maximum length of a key in bytes.
        limit: usize,
    },
    /// The row has 4 GiB or more.
    #[error("{table}: row of {bytes} bytes; at most {limit} are possible")]
    RowTooLarge {
        /// Name of the table.
        table: Arc<str>,
        /// Length of the row in bytes.
        bytes: usize,
        /// Maximum length of a row in bytes.
        limit: usize,
    },
    /// The keys of rows that must be inserted in ascending order are not in that order.
    #[error("{table}: keys of a run must ascend")]
    NotAscending {
        /// Name of the table.
        table: Arc<str>,
    },
    /// The transaction has reached the maximum number of locks. Roll back, or lock the table first.
    #[error("{table}: the transaction holds too many locks; lock the table first")]
    TooManyLocks {
        /// Name of the table in which the next lock was requested.
        table: Arc<str>,
    },
    /// A row or key does not decode: the table was written with another type.
    #[error("{table}: a row does not decode as {expected}; was the table written with another type?")]
    Decode {
        /// Name of the table.
        table: Arc<str>,
        /// Name of the expected type.
        expected: &'static str,
    },
    /// The savepoint belongs to another transaction, or was made after a savepoint to which the transaction has rolled
    /// back.
    #[error("the savepoint is not one of this transaction, or was taken back itself; go back to an older one")]
    Savepoint,
    /// An earlier error of this transaction permits no statement, only a rollback.
    #[error("an earlier error ended this transaction; roll back")]
    Ended,
    /// The table was created with another type of keys, rows or index keys: their bytes would be misinterpreted.
    #[error(
        "{table}: its {part} is stored as {stored}, not as {asked}; declare it with the type it was created with, or open \
         it with 'raw_table' for statements on bytes"
    )]
    OtherCodec {
        /// Name of the table.
        table: Arc<str>,
        /// Part of the table whose types differ: `key`, `row`, or `index` and its name.
        part: Arc<str>,
        /// Codec in the catalog (see [`Codec`](crate::Codec)); `raw` for a table created by `raw_table`.
        stored: Arc<str>,
        /// Codec of the requested type.
        asked: Arc<str>,
    },
    /// The table handle was issued by another database, or by this one before it was reopened.
    #[error("{database}: table handle {number} was given by another open database; open the table in this one")]
    ForeignHandle {
        /// Number of the table in the database that issued the handle.
        number: u32,
        /// Directory of the database that received the failed call.
        database: Arc<str>,
    },
    /// The source of a row that is written piece by piece could not be read.
    #[error("{table}: the source of a row could not be read: {error}")]
    Source {
        /// Name of the table.
        table: Arc<str>,
        /// Error of the source.
        error: Arc<std::io::Error>,
    },
    /// The table's indexes differ from the declared ones, or the table is not in the state that the call requires.
    #[error("{table}: {what}")]
    Schema {
        /// Name of the requested table.
        table: Arc<str>,
        /// Description of the mismatch.
        what: String,
    },
    /// The table was dropped, or its indexes were changed, while a handle of it was in use or a statement waited for it. The
    /// transaction can only be rolled back. Open the table again; this creates the table if it was dropped.
    #[error("{table}: the table was dropped, or its indexes were changed; roll back, and open it again")]
    Dropped {
        /// Name of the table.
        table: Arc<str>,
    },
    /// Error of a layer below transactions: files, pages, the log or the buffer pool.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl TxnError {
    /// Returns true if a retry of the whole transaction may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            TxnError::Deadlock { .. } | TxnError::LockTimeout { .. } => true,
            TxnError::Storage(error) => error.is_retryable(),
            _ => false,
        }
    }
}

fn held_by(holder: &Option<LockHolder>) -> String {
    match holder {
        Some(holder) if holder.waits => format!(" of transaction {} (waiting itself)", holder.age.0),
        Some(holder) => format!(" of transaction {}", holder.age.0),
        None => String::new(),
    }
}

/// Errors of opening a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory contains no database, and creation was not requested.
    #[error("{directory}: no database here")]
    Missing {
        /// Path of the directory.
        directory: String,
    },
    /// The directory does not contain a database, but something else.
    #[error("{directory}: not a database ({why})")]
    NotADatabase {
        /// Path of the directory.
        directory: String,
        /// Description of the contents that were found.
        why: String,
    },
    /// Another process has the database open.
    #[error("{directory}: in use by process {holder}; stop it or choose another directory")]
    InUse {
        /// Path of the directory.
        directory: String,
        /// Number of the process that has the database open, or "another" if unknown.
        holder: String,
    },
    /// The directory cannot be used.
    #[error("{directory}: {source}")]
    Directory {
        /// Path of the directory.
        directory: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A setting has an invalid value.
    #[error("{setting}: {what}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Description of the problem with the value.
        what: String,
    },
    /// The system refused a thread for the background services of the database or of [`Services`](crate::Services).
    #[error("background services: no thread: {source}; allow more (ulimit -u; pids.max of a container)")]
    Thread {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The recovery callback cancelled recovery. Only redo has happened; a later open continues.
    #[error("{directory}: recovery was cancelled; a later open goes on")]
    Cancelled {
        /// Path of the directory.
        directory: String,
    },
    /// The catalog cannot be decoded.
    #[error(transparent)]
    Catalog(#[from] TxnError),
    /// Error of a layer below transactions: files, pages, the log or the buffer pool.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Errors of copying a database. The part of the copy that was written has been removed, or cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The target directory is not empty.
    #[error("{directory}: holds '{holds}'; a copy needs a directory that is empty or does not exist")]
    NotEmpty {
        /// Path of the directory.
        directory: String,
        /// Name of one of the files in the directory.
        holds: String,
    },
    /// A database is open in the directory, or another copy is being written there.
    #[error("{directory}: in use")]
    InUse {
        /// Path of the directory.
        directory: String,
    },
    /// The directory cannot be created or used.
    #[error("{directory}: {source}")]
    Directory {
        /// Path of the directory.
        directory: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The callback cancelled the copy.
    #[error("{directory}: the copy was cancelled")]
    Cancelled {
        /// Path of the directory.
        directory: String,
    },
    /// The log reached its size limit before the copy was complete, and the part of the log that the copy needs may have
    /// been removed. Copy while fewer changes are written, or open with a larger
    /// [`Options::checkpoint_every`](crate::Options::checkpoint_every).
    #[error(
        "{directory}: the log reached its limit of {limit} bytes before the copy was complete; copy when less is written, \
         or open with a larger 'checkpoint_every'"
    )]
    LogLimit {
        /// Path of the directory.
        directory: String,
        /// Maximum size of the log in bytes.
        limit: u64,
    },
    /// Reading the database or writing the copy failed; the file name in the error shows the side.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl OpenError {
    /// Converts the error of a directory that cannot be used.
    pub(crate) fn directory(directory: &std::path::Path, source: io::Error) -> OpenError {
        let shown = directory.display().to_string();
        match source.kind() {
            io::ErrorKind::NotFound => OpenError::Missing { directory: shown },
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                OpenError::NotADatabase { directory: shown, why: "it is not a directory".into() }
            }
            _ => OpenError::Directory { directory: shown, source },
        }
    }
}
