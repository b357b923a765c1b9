//! Adapter for LMDB, through heed: a copy-on-write B-tree with one writer at a time and readers on snapshots.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use heed::types::Bytes;
use heed::{
    CommitOrAbort, CommitToken, Database, Env, EnvFlags, EnvOpenOptions, MdbError, OnCommit, PutFlags, RoTxn, RwTxn,
    WithTls,
};
use storage::Durability;
use tpcc_core::peers::{Access, Peer, PeerSession, PeerTransaction};

use super::syncer::Syncer;
use super::{Engine, Failure};

/// Size of the address range for the file, in bytes. It exceeds the data of any workload here. The file takes only the space
/// that is in use.
const MAP_BYTES: usize = 16 << 30;

type Table = Database<'static, Bytes, Bytes>;

/// Databases that a transaction opened, and that are not committed yet.
struct NewTables<'t>(Vec<Database<'t, Bytes, Bytes>>);

impl OnCommit for NewTables<'_> {
    type Committed = Vec<Table>;

    fn on_commit(self, token: &CommitToken) -> Vec<Table> {
        self.0.into_iter().map(|table| table.on_commit(token)).collect()
    }
}

/// Open LMDB environment with its databases, one per table.
pub(super) struct Lmdb {
    // Declared first, so that it is dropped before the environment.
    _syncer: Option<Syncer>,
    env: Arc<Env<WithTls>>,
    tables: Vec<Table>,
}

impl From<heed::Error> for Failure {
    fn from(error: heed::Error) -> Failure {
        Failure::new(error)
    }
}

impl Engine for Lmdb {
    const NAME: &'static str = "lmdb";
    const SETTINGS: &'static str = "heed, map of 16 GiB; sync: defaults; async: MDB_NOSYNC, and a thread that syncs every 20 ms; loads by MDB_APPEND";

    #[allow(unsafe_code)]
    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<Lmdb, Failure> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(tables.len() as u32);
        if durability == Durability::Async {
            // SAFETY: without syncs, a loss of power may damage the file, but has no other effect. LMDB still locks the
            // file.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: the directory is new and belongs to this process, so nothing else changes the mapped file.
        let env = Arc::new(unsafe { options.open(directory)? });
        let opened = env.create_databases_and_commit(env.write_txn()?, |opener, tx| {
            let all =
                tables.iter().map(|name| opener.create_database(tx, Some(name))).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(NewTables(all)))
        })?;
        let tables = opened.unwrap_commit();
        let syncer = Syncer::start(durability, &env, |env: &Env<WithTls>| {
            if let Err(error) = env.force_sync() {
                eprintln!("lmdb: commits are not durable: {error}");
            }
        });
        Ok(Lmdb { _syncer: syncer, env, tables })
    }
}

impl Peer for Lmdb {
    type Error = Failure;
    type Session<'a> = &'a Lmdb;

    fn session(&self) -> Result<&Lmdb, Failure> {
        Ok(self)
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Failure> {
        let mut tx = self.env.write_txn()?;
        for (key, row) in rows {
            self.tables[table].put_with_flags(&mut tx, PutFlags::APPEND, key, row)?;
        }
        tx.commit()?;
        Ok(self.env.force_sync()?)
    }
}

impl PeerSession for &Lmdb {
    type Error = Failure;
    type Transaction<'t>
        = LmdbTransaction<'t>
    where
        Self: 't;

    fn begin(&self, access: Access) -> Result<LmdbTransaction<'_>, Failure> {
        let kind = match access {
            Access::Read => Kind::Read(self.env.read_txn()?),
            Access::Write => Kind::Write(self.env.write_txn()?),
        };
        Ok(LmdbTransaction { tables: &self.tables, kind })
    }
}

/// Returns the range between two keys, both included.
fn range<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(from), Bound::Included(to))
}

/// Transaction of LMDB.
pub(super) struct LmdbTransaction<'t> {
    tables: &'t [Table],
    kind: Kind<'t>,
}

enum Kind<'t> {
    Read(RoTxn<'t, WithTls>),
    Write(RwTxn<'t>),
}

impl<'t> LmdbTransaction<'t> {
    fn reading(&self) -> &RoTxn<'t> {
        match &self.kind {
            Kind::Read(tx) => tx,
            Kind::Write(tx) => tx,
        }
    }

    fn writing(&mut self) -> Result<&mut RwTxn<'t>, Failure> {
        match &mut self.kind {
            Kind::Read(_) => Err(Failure::read_only()),
            Kind::Write(tx) => Ok(tx),
        }
    }
}

impl PeerTransaction for LmdbTransaction<'_> {
    type Error = Failure;

    fn read<R>(&mut self, table: usize, key: &[u8], f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Failure> {
        Ok(self.tables[table].get(self.reading(), key)?.map(f))
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let (table, tx) = (&self.tables[table], self.reading());
        let mut visit = |rows: &mut dyn Iterator<Item = heed::Result<(&[u8], &[u8])>>| {
            for row in rows {
                let (key, row) = row?;
                if f(key, row).is_break() {
                    break;
                }
            }
            Ok(())
        };
        match down {
            false => visit(&mut table.range(tx, &range(from, to))?),
            true => visit(&mut table.rev_range(tx, &range(from, to))?),
        }
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Failure> {
        let table = &self.tables[table];
        let tx = self.writing()?;
        let Some(mut row) = table.get(tx, key)?.map(<[u8]>::to_vec) else { return Ok(None) };
        let answer = f(&mut row);
        table.put(tx, key, &row)?;
        Ok(Some(answer))
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Failure> {
        let table = &self.tables[table];
        match table.put_with_flags(self.writing()?, PutFlags::NO_OVERWRITE, key, row) {
            Ok(()) => Ok(true),
            Err(heed::Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let table = &self.tables[table];
        let tx = self.writing()?;
        let Some(first) = table.range(tx, &range(from, to))?.next() else { return Ok(None) };
        let key = first?.0.to_vec();
        table.delete(tx, &key)?;
        Ok(Some(key))
    }

    fn commit(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Read(_) => Ok(()),
            Kind::Write(tx) => Ok(tx.commit()?),
        }
    }

    fn rollback(self) -> Result<(), Failure> {
        if let Kind::Write(tx) = self.kind {
            tx.abort();
        }
        Ok(())
    }
}
