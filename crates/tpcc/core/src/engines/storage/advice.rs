//! Converts errors of the storage engine to errors of the command. Each error names the problem and a remedy.

use storage::{OpenError, StorageError, TxnError};

use super::store::StoreError;
use crate::workload::error::{Error, command};

/// Creates the error for a directory with an interrupted load.
pub(super) fn incomplete(shown: &str) -> Error {
    Error::failed(format!("{shown}: incomplete load"))
        .help(format!("{} deletes it and loads again", command("load", shown, "--replace")))
}

/// Creates the error for a directory `shown` in which no database can be created.
pub(super) fn cannot_create(error: &OpenError, shown: &str) -> Error {
    match error {
        OpenError::Missing { .. } => {
            Error::failed(format!("{shown}: cannot be created there")).help("choose another directory with --data")
        }
        error => cannot_open(error, shown),
    }
}

/// Creates the error for a database in the directory `shown` that cannot be opened.
pub fn cannot_open(error: &OpenError, shown: &str) -> Error {
    match error {
        OpenError::Setting { setting: "buffer_pool", what } => {
            Error::usage(format!("--buffer-pool: {what}")).help("pass more MiB")
        }
        OpenError::Setting { setting: "large_pages", what } => Error::failed(format!("--large-pages on: {what}"))
            .help("or pass --large-pages try, which takes what there is"),
        OpenError::InUse { directory, holder } => {
            Error::failed(format!("{directory}: in use by process {holder}; stop it or choose another --data"))
        }
        OpenError::NotADatabase { .. } => {
            Error::failed(error.to_string()).help("choose another directory with --data; nothing was changed")
        }
        OpenError::Cancelled { .. } => Error::failed(error.to_string()).help("the same command again goes on"),
        OpenError::Storage(error) | OpenError::Catalog(TxnError::Storage(error)) => storage_error(error, shown),
        _ => Error::failed(error.to_string()),
    }
}

/// Creates the error for a failure of files or pages of the database in the directory `shown`.
pub fn storage_error(error: &StorageError, shown: &str) -> Error {
    let failed = Error::failed(error.to_string());
    match error {
        StorageError::CorruptPage { .. } | StorageError::CorruptFile { .. } => failed.help(format!(
            "keep {shown}, of which more may be readable; a copy of it, or a new load, goes into another directory (--data)"
        )),
        StorageError::Format { .. } => {
            failed.help("use the build that wrote it, or load into another directory with --data")
        }
        StorageError::PoolExhausted { .. } => failed.help("pass a larger --buffer-pool, or fewer --workers"),
        StorageError::LogFull { .. } => failed.help("pass a larger --checkpoint-mib; nothing acknowledged is lost"),
        StorageError::NoSpace { .. } => failed.help("free space on that disk; nothing acknowledged is lost"),
        _ => failed,
    }
}

/// Creates the error for a failure of the engine on the database in the directory `shown`.
pub(super) fn store_error(error: StoreError, shown: &str) -> Error {
    match &error {
        StoreError::Storage(error) => storage_error(error, shown),
        StoreError::Transaction(error) => transaction_error(error, shown),
        _ => Error::failed(error.to_string()),
    }
}

/// Creates the error for an unexpected failure of a transaction on the database in the directory `shown`.
pub fn transaction_error(error: &TxnError, shown: &str) -> Error {
    match error {
        TxnError::Storage(error) => storage_error(error, shown),
        _ => Error::failed(error.to_string()),
    }
}
