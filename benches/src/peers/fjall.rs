//! Adapter for fjall: a log-structured merge tree, with optimistic transactions that are validated at commit.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable,
    Snapshot,
};
use storage::Durability;
use tpcc_core::peers::{Access, Peer, PeerSession, PeerTransaction};

use super::syncer::Syncer;
use super::{CACHE_BYTES, Engine, Failure};

/// Open fjall database with its keyspaces, one per table.
pub(super) struct Fjall {
    db: Arc<OptimisticTxDatabase>,
    tables: Vec<OptimisticTxKeyspace>,
    /// Persistence mode of a commit; `None` leaves the writes of a commit in memory.
    persist: Option<PersistMode>,
    _syncer: Option<Syncer>,
}

impl From<fjall::Error> for Failure {
    fn from(error: fjall::Error) -> Failure {
        Failure::new(error)
    }
}

impl Engine for Fjall {
    const NAME: &'static str = "fjall";
    const SETTINGS: &'static str = "OptimisticTxDatabase, cache 1 GiB; sync: PersistMode::SyncData; async: manual_journal_persist, and a thread that persists every 20 ms";

    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<Fjall, Failure> {
        let db = Arc::new(
            OptimisticTxDatabase::builder(directory).cache_size(CACHE_BYTES).manual_journal_persist(true).open()?,
        );
        let tables =
            tables.iter().map(|name| db.keyspace(name, KeyspaceCreateOptions::default)).collect::<Result<_, _>>()?;
        let persist = (durability == Durability::Sync).then_some(PersistMode::SyncData);
        // An error can be ignored here: it poisons the database, so the next commit returns an error.
        let sync = |db: &OptimisticTxDatabase| drop(db.persist(PersistMode::SyncData));
        let syncer = Syncer::start(durability, &db, sync);
        Ok(Fjall { db, tables, persist, _syncer: syncer })
    }
}

impl Peer for Fjall {
    type Error = Failure;
    type Session<'a> = &'a Fjall;

    fn session(&self) -> Result<&Fjall, Failure> {
        Ok(self)
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Failure> {
        let mut load = self.tables[table].inner().start_ingestion()?;
        for (key, row) in rows {
            load.write(key, row)?;
        }
        load.finish()?;
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl PeerSession for &Fjall {
    type Error = Failure;
    type Transaction<'t>
        = FjallTransaction<'t>
    where
        Self: 't;

    fn begin(&self, access: Access) -> Result<FjallTransaction<'_>, Failure> {
        let kind = match access {
            Access::Read => Kind::Read(self.db.read_tx()),
            Access::Write => Kind::Write(self.db.write_tx()?.durability(self.persist)),
        };
        Ok(FjallTransaction { tables: &self.tables, kind })
    }
}

/// Transaction of fjall.
pub(super) struct FjallTransaction<'t> {
    tables: &'t [OptimisticTxKeyspace],
    kind: Kind,
}

enum Kind {
    Read(Snapshot),
    Write(OptimisticWriteTx),
}

impl FjallTransaction<'_> {
    fn writing(&mut self) -> Result<&mut OptimisticWriteTx, Failure> {
        match &mut self.kind {
            Kind::Read(_) => Err(Failure::read_only()),
            Kind::Write(tx) => Ok(tx),
        }
    }
}

impl PeerTransaction for FjallTransaction<'_> {
    type Error = Failure;

    fn read<R>(&mut self, table: usize, key: &[u8], mut f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Failure> {
        let table = &self.tables[table];
        let row = match &self.kind {
            Kind::Read(tx) => tx.get(table, key)?,
            Kind::Write(tx) => tx.get(table, key)?,
        };
        Ok(row.map(|row| f(&row)))
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let table = &self.tables[table];
        let mut range = match &self.kind {
            Kind::Read(tx) => tx.range(table, from..=to),
            Kind::Write(tx) => tx.range(table, from..=to),
        };
        while let Some(row) = if down { range.next_back() } else { range.next() } {
            let (key, row) = row.into_inner()?;
            if f(&key, &row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Failure> {
        let table = &self.tables[table];
        let tx = self.writing()?;
        let Some(row) = tx.get(table, key)? else { return Ok(None) };
        let mut row = row.to_vec();
        let answer = f(&mut row);
        tx.insert(table, key, row);
        Ok(Some(answer))
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Failure> {
        let table = &self.tables[table];
        let tx = self.writing()?;
        if tx.contains_key(table, key)? {
            return Ok(false);
        }
        tx.insert(table, key, row);
        Ok(true)
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let table = &self.tables[table];
        let tx = self.writing()?;
        let Some(first) = tx.range(table, from..=to).next() else { return Ok(None) };
        let key = first.key()?;
        tx.remove(table, key.clone());
        Ok(Some(key.to_vec()))
    }

    fn commit(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Read(_) => Ok(()),
            Kind::Write(tx) => tx.commit()?.map_err(Failure::conflict),
        }
    }

    fn rollback(self) -> Result<(), Failure> {
        if let Kind::Write(tx) = self.kind {
            tx.rollback();
        }
        Ok(())
    }
}
