//! Compaction of a database directory, for the command `tpcc compact`.

use storage::{Compacted, Database};

use super::advice::{cannot_open, storage_error, transaction_error};
use super::database::options;
use crate::workload::error::Error;
use crate::workload::settings::StoreConfig;

/// Compacts the database in the directory of `config`; returns `None` if there is no database. The call opens no table, so
/// that every page can be moved.
pub fn compact(config: &StoreConfig) -> Result<Option<Compacted>, Error> {
    let shown = config.shown();
    let opened = options(config, None)?.create(false).open(&config.data);
    let db: Database = match opened {
        Err(storage::OpenError::Missing { .. }) => return Ok(None),
        Err(storage::OpenError::Directory { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        opened => opened.map_err(|error| cannot_open(&error, &shown))?,
    };
    let compacted = db.compact();
    let closed = db.close();
    let compacted = compacted.map_err(|error| transaction_error(&error, &shown))?;
    closed.map_err(|error| storage_error(&error, &shown))?;
    Ok(Some(compacted))
}
