//! Errors. One enum for what can go wrong below a transaction, [`StorageError`]; the enums of the public calls wrap it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::ids::{Age, Lsn, PageId};

/// The system's numbers for too many open files, of all and of one process; the same on all systems.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// What can go wrong in files, pages, the log and the buffer pool.
///
/// Cheap to clone, because many waiters may get one failure.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The operating system refused a file operation.
    #[error("{file}: {op}{} failed: {source}", at_byte(op, *offset))]
    Io {
        /// What was tried: "read", "write", "sync", ...
        op: &'static str,
        /// The file, as the user would find it.
        file: String,
        /// Byte offset in the file, 0 where it has no meaning.
        offset: u64,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The device or quota is full. Nothing is broken: the transaction rolls back, and service resumes when there is
    /// space.
    #[error("{file}: no space left; free some space, then try again (nothing was lost)")]
    NoSpace {
        /// The file that could not grow.
        file: String,
    },
    /// The process, or the system, has as many files open as it may. Nothing is broken, as for
    /// [`StorageError::NoSpace`].
    #[error(
        "{file}: no free file descriptor; close files or raise the limit (ulimit -n), then try again (nothing was lost)"
    )]
    TooManyFiles {
        /// The file that could not be opened.
        file: String,
    },
    /// Bytes on disk are not what was written there.
    #[error("{file}: page {page} {what}; nothing was changed: restore a copy")]
    CorruptPage {
        /// The data file.
        file: String,
        /// The damaged page.
        page: PageId,
        /// What is wrong, as a clause: "fails its checksum".
        what: String,
    },
    /// A file that is not a page file is damaged.
    #[error("{file}: {what}")]
    CorruptFile {
        /// The damaged file.
        file: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// The file was written by another version of the format.
    #[error(
        "{file}: format version {found}, this build reads version {expected}; open it with the build that wrote it: from \
         there its rows can be read and put into a new database"
    )]
    Format {
        /// The file.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version this build reads.
        expected: u32,
    },
    /// An earlier failed write or sync closed the instance to commits.
    #[error("closed to commits after an earlier failure ({cause}); durable up to LSN {durable}; reopen the database")]
    Poisoned {
        /// The first failure.
        cause: Arc<str>,
        /// Everything below this position is on disk.
        durable: Lsn,
    },
    /// Every frame of the buffer pool is in use at once.
    #[error("buffer pool: all {frames} frames are in use; open with a larger pool")]
    PoolExhausted {
        /// Frames in the pool.
        frames: usize,
    },
    /// More transactions at once than the database was opened for.
    #[error(
        "{limit} transactions are running, as many as the database was opened for; end one, or open with more slots"
    )]
    TooManyTransactions {
        /// The limit.
        limit: usize,
    },
    /// More loads, drops and other changes of whole tables at once than there may be. They take none of the places of
    /// [`StorageError::TooManyTransactions`].
    #[error("{limit} loads and changes of whole tables are under way, as many as there may be at once; try again")]
    TooMuchMaintenance {
        /// The limit.
        limit: usize,
    },
    /// The database was opened before this process was forked, and is its parent's. Here it can only be dropped.
    #[error("the database was opened by the process that forked this one, and is open there; open it after the fork")]
    Forked,
    /// The database is being closed.
    #[error("the database is being closed")]
    Closing,
    /// The log has taken all the room that it may, four times
    /// [`Options::checkpoint_every`](crate::Options::checkpoint_every), and cannot be cut. Nothing is broken: the transaction
    /// rolls back, and service resumes when the transaction or copy that holds the log has ended.
    #[error(
        "{file}: the log has taken the {limit} bytes that it may{}; end what holds it, or open with a larger \
         'checkpoint_every', then try again (nothing was lost)",
        held_log(holder)
    )]
    LogFull {
        /// The oldest file of the log.
        file: String,
        /// Bytes that the log may take.
        limit: u64,
        /// What keeps the log from being cut, as the newest checkpoint found it; none if the disk is too slow.
        holder: Option<LogHolder>,
    },
    /// A log position that this log has not reached. It is of another database, or of commits of this one that a crash
    /// took before they were durable.
    #[error(
        "log position {position} is beyond the end of the log, {end}: no commit of this open database has it; wait for a \
         position that its own 'commit_async' returned"
    )]
    BeyondLog {
        /// The position asked for.
        position: Lsn,
        /// Where the log ended then.
        end: Lsn,
    },
    /// A log record larger than the log can take at once.
    #[error("log record of {bytes} bytes is larger than the limit of {limit}")]
    RecordTooLarge {
        /// Size asked for.
        bytes: usize,
        /// Largest size possible.
        limit: usize,
    },
}

/// What keeps the log from being cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogHolder {
    /// The age of the transaction, by which [`Transaction::age`](crate::Transaction::age) identifies it; none for a copy of
    /// the database that is being made.
    pub transaction: Option<Age>,
    /// Bytes of log from its first record on.
    pub bytes: u64,
    /// Time since a checkpoint first found it to hold the log.
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

/// Byte offset at which the operation failed, for reads and writes.
fn at_byte(op: &str, offset: u64) -> String {
    if matches!(op, "read" | "write" | "extend") { format!(" at byte {offset}") } else { String::new() }
}

impl StorageError {
    /// Wraps an I/O error with the operation and its place; a full disk becomes [`StorageError::NoSpace`], unless a
    /// sync reports it.
    pub(crate) fn io(op: &'static str, file: impl Into<String>, offset: u64, source: io::Error) -> Self {
        let file = file.into();
        // A sync that finds no space has lost what it should have written, as any other failed sync.
        if op != "sync" && matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return StorageError::NoSpace { file };
        }
        // No file was opened, so nothing has changed.
        if matches!(op, "open" | "create") && matches!(source.raw_os_error(), Some(ENFILE | EMFILE)) {
            return StorageError::TooManyFiles { file };
        }
        StorageError::Io { op, file, offset, source: Arc::new(source) }
    }

    /// Whether the system lacks space or file descriptors at the moment: the operation had no effect, and the instance
    /// is unharmed.
    pub(crate) fn is_want_of_room(&self) -> bool {
        matches!(self, StorageError::NoSpace { .. } | StorageError::TooManyFiles { .. })
    }

    /// The error without advice: for use as the cause of another error.
    pub(crate) fn as_cause(&self) -> String {
        match self {
            StorageError::NoSpace { file } => format!("{file}: no space left"),
            StorageError::TooManyFiles { file } => format!("{file}: no free file descriptor"),
            StorageError::CorruptPage { file, page, what } => format!("{file}: page {page} {what}"),
            other => other.to_string(),
        }
    }

    /// Whether the same call may succeed later without a repair.
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

/// A transaction that another one waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// Its age: [`Transaction::age`](crate::Transaction::age) identifies the transaction by it.
    pub age: Age,
    /// Whether it waited for a lock itself.
    pub waits: bool,
    /// The thread or fiber that began it, as [`Hook::task`](crate::Hook::task) numbers them; 0 if that is not known.
    pub task: u64,
}

/// What can go wrong in a statement of a transaction.
///
/// Unless said otherwise the statement had no effect and the transaction is still open.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// Transactions waited for each other in a cycle and this one was chosen as the victim. It has to be
    /// rolled back (dropping it does that) and may be run again.
    #[error("{table}: deadlock; the transaction was chosen to give way: roll back and run it again")]
    Deadlock {
        /// Table in which it waited.
        table: Arc<str>,
    },
    /// The lock is held by another transaction that was begun by the same thread (or fiber), which would have to end
    /// that one first: waiting would never end. The same error tells of a transaction that is waited for through
    /// others. End the other transaction first, or do both in one. Only this statement failed.
    ///
    /// A transaction belongs to the thread that began it. A program that hands one over to another thread calls
    /// [`Transaction::hand_over`](crate::Transaction::hand_over), or may get this error although that thread would have
    /// ended it.
    #[error(
        "{table}: another transaction of this thread (or fiber) holds the lock, and cannot end while this one waits; end \
         that one first, or use one transaction for both"
    )]
    OwnTask {
        /// Table in which it would have waited.
        table: Arc<str>,
    },
    /// The statement waited for a lock for longer than [`Options::lock_timeout`](crate::Options::lock_timeout). Only
    /// this statement failed: the transaction may go on, or roll back.
    #[error("{table}: waited too long for a lock{}; try again, or roll back", held_by(holder))]
    LockTimeout {
        /// Table in which it waited.
        table: Arc<str>,
        /// A transaction that was in the way at the end, if it still was.
        holder: Option<LockHolder>,
    },
    /// The transaction is in the middle of another statement: a fiber that shares it waits there, or the program's
    /// [`Hook`](crate::Hook) called back out of it. Closures that get rows may use the transaction. Only this statement
    /// failed.
    #[error("the transaction is in the middle of another statement; let that one end first")]
    InUse,
    /// A row with this key is there already.
    #[error("{table}: {index} already has this key")]
    DuplicateKey {
        /// The table.
        table: Arc<str>,
        /// The index that must stay unique: the table's own name for the primary key.
        index: Arc<str>,
    },
    /// Two rows have one value in an index that is to be built, and is unique.
    #[error(
        "{table}: two rows have one value in {index}, which is to be unique: those under the keys \"{}\" and \"{}\"",
        rows[0].escape_ascii(), rows[1].escape_ascii()
    )]
    NotUnique {
        /// The table.
        table: Arc<str>,
        /// The index.
        index: Arc<str>,
        /// The keys of both rows, encoded: [`Key::decode`](crate::Key::decode) reads them.
        rows: Box<[Vec<u8>; 2]>,
    },
    /// A key longer than 2,048 bytes, or an index entry that is too long.
    #[error("{table}: key of {bytes} bytes; at most {limit} are possible")]
    KeyTooLong {
        /// The table.
        table: Arc<str>,
        /// Length of the key.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A row of 4 GiB or more.
    #[error("{table}: row of {bytes} bytes; at most {limit} are possible")]
    RowTooLarge {
        /// The table.
        table: Arc<str>,
        /// Length of the row.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Keys of a run that do not ascend.
    #[error("{table}: keys of a run must ascend")]
    NotAscending {
        /// The table.
        table: Arc<str>,
    },
    /// The transaction holds as many locks as one may; roll back, or lock the table first.
    #[error("{table}: the transaction holds too many locks; lock the table first")]
    TooManyLocks {
        /// Table in which one more was wanted.
        table: Arc<str>,
    },
    /// Bytes of a row or key that the codec does not understand: the table was written with another type.
    #[error("{table}: a row does not decode as {expected}; was the table written with another type?")]
    Decode {
        /// The table.
        table: Arc<str>,
        /// The type wanted.
        expected: &'static str,
    },
    /// The savepoint is of another transaction, or was made after one that the transaction has gone back to.
    #[error("the savepoint is not one of this transaction, or was taken back itself; go back to an older one")]
    Savepoint,
    /// A statement of this transaction failed in a way that leaves only rolling back.
    #[error("an earlier error ended this transaction; roll back")]
    Ended,
    /// The table was created with another type of keys, rows or index keys: their bytes would be taken for something
    /// else.
    #[error(
        "{table}: its {part} is stored as {stored}, not as {asked}; declare it with the type it was created with, or open \
         it with 'raw_table' for statements on bytes"
    )]
    OtherCodec {
        /// The table.
        table: Arc<str>,
        /// `key`, `row`, or `index` and its name.
        part: Arc<str>,
        /// The codec in the catalog: see [`Codec`](crate::Codec); `raw` for a table created by `raw_table`.
        stored: Arc<str>,
        /// The codec of the type asked for.
        asked: Arc<str>,
    },
    /// A handle given by another database, or by this one before it was opened again.
    #[error("{database}: table handle {number} was given by another open database; open the table in this one")]
    ForeignHandle {
        /// The table's number in the database that gave the handle.
        number: u32,
        /// The database that was asked.
        database: Arc<str>,
    },
    /// The source of a row that is written piece by piece could not be read.
    #[error("{table}: the source of a row could not be read: {error}")]
    Source {
        /// The table.
        table: Arc<str>,
        /// The source's error.
        error: Arc<std::io::Error>,
    },
    /// The table has other indexes than were declared, or is not in the state that the call needs.
    #[error("{table}: {what}")]
    Schema {
        /// The name asked for.
        table: Arc<str>,
        /// What does not fit.
        what: String,
    },
    /// The table was dropped, or its indexes were changed, while a handle of it was in use or a statement waited for
    /// it. The transaction can only be rolled back; open the table again, which creates one that was dropped.
    #[error("{table}: the table was dropped, or its indexes were changed; roll back, and open it again")]
    Dropped {
        /// The table.
        table: Arc<str>,
    },
    /// Something below failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl TxnError {
    /// Whether running the whole transaction again may succeed.
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

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no database here, and none was to be created.
    #[error("{directory}: no database here")]
    Missing {
        /// The directory.
        directory: String,
    },
    /// The directory holds something else.
    #[error("{directory}: not a database ({why})")]
    NotADatabase {
        /// The directory.
        directory: String,
        /// What was found.
        why: String,
    },
    /// Another process has it open.
    #[error("{directory}: in use by process {holder}; stop it or choose another directory")]
    InUse {
        /// The directory.
        directory: String,
        /// The process, as far as known.
        holder: String,
    },
    /// The directory cannot be used at all.
    #[error("{directory}: {source}")]
    Directory {
        /// The directory.
        directory: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A setting that cannot work.
    #[error("{setting}: {what}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The system gave no thread for the background services, of the database or of [`Services`](crate::Services).
    #[error("background services: no thread: {source}; allow more (ulimit -u; pids.max of a container)")]
    Thread {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The recovery callback broke off. Nothing but redo has happened; a later open goes on.
    #[error("{directory}: recovery was cancelled; a later open goes on")]
    Cancelled {
        /// The directory.
        directory: String,
    },
    /// The catalog cannot be understood.
    #[error(transparent)]
    Catalog(#[from] TxnError),
    /// Something below failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a database could not be copied. The part of the copy that was written has been removed, or cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// There is something already where the copy is to be.
    #[error("{directory}: holds '{holds}'; a copy needs a directory that is empty or does not exist")]
    NotEmpty {
        /// The directory.
        directory: String,
        /// One of the files that it holds.
        holds: String,
    },
    /// A database is open there, or another copy is being made.
    #[error("{directory}: in use")]
    InUse {
        /// The directory.
        directory: String,
    },
    /// The directory cannot be made or used.
    #[error("{directory}: {source}")]
    Directory {
        /// The directory.
        directory: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The callback broke off.
    #[error("{directory}: the copy was cancelled")]
    Cancelled {
        /// The directory.
        directory: String,
    },
    /// So much was written meanwhile that the log reached its limit, and what the copy needs of it was given up. Copy when
    /// less is written, or open with a larger [`Options::checkpoint_every`](crate::Options::checkpoint_every).
    #[error(
        "{directory}: the log reached its limit of {limit} bytes before the copy was complete; copy when less is written, \
         or open with a larger 'checkpoint_every'"
    )]
    LogLimit {
        /// The directory.
        directory: String,
        /// Bytes that the log may take.
        limit: u64,
    },
    /// Reading the database or writing the copy failed: the file named tells which.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl OpenError {
    /// A directory that cannot be used.
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
