//! Adapter for `storage`, through its public interface.

use std::ops::ControlFlow;
use std::path::Path;

use storage::{Database, Durability, OpenTable, Options, Raw, StorageError, Table, Transaction, TxnError};
use tpcc_core::peers::{Access, Peer, PeerSession, PeerTransaction};

use super::{CACHE_BYTES, Engine, Failure};

/// Open `storage` database and its tables.
pub(super) struct StorageEngine {
    db: Database,
    tables: Vec<OpenTable<Raw, Raw>>,
}

impl From<TxnError> for Failure {
    fn from(error: TxnError) -> Failure {
        if error.is_retryable() { Failure::conflict(error) } else { Failure::new(error) }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        Failure::new(error)
    }
}

impl Engine for StorageEngine {
    const NAME: &'static str = "storage";
    const SETTINGS: &'static str = "pool 1 GiB; serializable by locks; async: its flusher syncs within about 20 ms";

    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<StorageEngine, Failure> {
        let options = Options::new().buffer_pool(CACHE_BYTES).durability(durability);
        let db = options.open(directory).map_err(Failure::new)?;
        let tables = tables.iter().map(|name| db.raw_table(&Table::<(), ()>::new(name))).collect::<Result<_, _>>()?;
        Ok(StorageEngine { db, tables })
    }
}

impl Peer for StorageEngine {
    type Error = Failure;
    type Session<'a> = &'a StorageEngine;

    fn session(&self) -> Result<&StorageEngine, Failure> {
        Ok(self)
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Failure> {
        let mut load = self.db.bulk_load(&self.tables[table])?;
        for (key, row) in rows {
            load.push_raw(key, row)?;
        }
        load.finish()?;
        Ok(())
    }
}

impl PeerSession for &StorageEngine {
    type Error = Failure;
    type Transaction<'t>
        = StorageTransaction<'t>
    where
        Self: 't;

    fn begin(&self, _access: Access) -> Result<StorageTransaction<'_>, Failure> {
        Ok(StorageTransaction { tables: &self.tables, tx: self.db.begin()? })
    }
}

/// Transaction of `storage`.
pub(super) struct StorageTransaction<'t> {
    tables: &'t [OpenTable<Raw, Raw>],
    tx: Transaction<'t>,
}

impl PeerTransaction for StorageTransaction<'_> {
    type Error = Failure;

    fn read<R>(&mut self, table: usize, key: &[u8], f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Failure> {
        Ok(self.tx.raw().read(&self.tables[table], key, f)?)
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let table = &self.tables[table];
        match down {
            false => self.tx.raw().scan(table, from, to, f)?,
            true => self.tx.raw().scan_backward(table, from, to, f)?,
        }
        Ok(())
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Failure> {
        Ok(self.tx.raw_mut().update(&self.tables[table], key, |row| f(row))?)
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Failure> {
        match self.tx.raw_mut().insert(&self.tables[table], key, row) {
            Ok(()) => Ok(true),
            Err(TxnError::DuplicateKey { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.tx.raw_mut().take_first(&self.tables[table], from, to)?)
    }

    fn commit(self) -> Result<(), Failure> {
        Ok(self.tx.commit()?)
    }

    fn rollback(self) -> Result<(), Failure> {
        self.tx.rollback()?;
        Ok(())
    }
}
