//! Adapter for redb: a copy-on-write B-tree with one writer at a time and readers on snapshots.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError,
    WriteTransaction,
};
use self_cell::self_cell;
use storage::Durability;
use tpcc_core::peers::{Access, Peer, PeerSession, PeerTransaction};

use super::{CACHE_BYTES, Engine, Failure, SYNC_EVERY};

type Definition<'n> = TableDefinition<'n, &'static [u8], &'static [u8]>;
type Reading = ReadOnlyTable<&'static [u8], &'static [u8]>;
type Writing<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// Open redb database, and the names of its tables.
pub(super) struct Redb {
    db: Database,
    names: Vec<String>,
    durability: Durability,
    /// Start time of the last transaction with a durable commit.
    synced: Mutex<Instant>,
}

macro_rules! failures {
    ($($error:ty)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::new(error)
            }
        }
    )*};
}
failures! { redb::StorageError redb::TableError redb::TransactionError redb::CommitError redb::SetDurabilityError }

impl Redb {
    fn definition(&self, table: usize) -> Definition<'_> {
        TableDefinition::new(&self.names[table])
    }

    /// Returns the durability of the transaction that begins now.
    fn next_durability(&self) -> redb::Durability {
        if self.durability == Durability::Sync {
            return redb::Durability::Immediate;
        }
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.elapsed() < SYNC_EVERY {
            return redb::Durability::None;
        }
        *synced = Instant::now();
        redb::Durability::Immediate
    }
}

impl Engine for Redb {
    const NAME: &'static str = "redb";
    const SETTINGS: &'static str = "cache 1 GiB; sync: Durability::Immediate; async: Durability::None, and Immediate for the first commit after 20 ms";

    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<Redb, Failure> {
        let mut builder = Database::builder();
        let db = builder.set_cache_size(CACHE_BYTES as usize).create(directory.join("redb")).map_err(Failure::new)?;
        let names = tables.iter().map(|name| (*name).to_owned()).collect();
        let redb = Redb { db, names, durability, synced: Mutex::new(Instant::now()) };
        let tx = redb.db.begin_write()?;
        for table in 0..tables.len() {
            tx.open_table(redb.definition(table))?;
        }
        tx.commit()?;
        Ok(redb)
    }
}

impl Peer for Redb {
    type Error = Failure;
    type Session<'a> = &'a Redb;

    fn session(&self) -> Result<&Redb, Failure> {
        Ok(self)
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Failure> {
        let tx = self.db.begin_write()?;
        {
            let mut table = tx.open_table(self.definition(table))?;
            for (key, row) in rows {
                table.insert(key, row)?;
            }
        }
        Ok(tx.commit()?)
    }
}

impl PeerSession for &Redb {
    type Error = Failure;
    type Transaction<'t>
        = RedbTransaction<'t>
    where
        Self: 't;

    fn begin(&self, access: Access) -> Result<RedbTransaction<'_>, Failure> {
        let kind = match access {
            Access::Read => {
                let tables = std::iter::repeat_with(|| None).take(self.names.len()).collect();
                Kind::Read { tx: self.db.begin_read()?, tables }
            }
            Access::Write => {
                let mut tx = self.db.begin_write()?;
                tx.set_durability(self.next_durability())?;
                let tables = std::iter::repeat_with(|| None).take(self.names.len()).collect();
                Kind::Write(Write::new(tx, |_| Tables(tables)))
            }
        };
        Ok(RedbTransaction { redb: self, kind })
    }
}

/// Tables of a write transaction. Each is opened at its first use.
struct Tables<'t>(Vec<Option<Writing<'t>>>);

self_cell! {
    struct Write {
        owner: WriteTransaction,
        #[not_covariant]
        dependent: Tables,
    }
}

/// Transaction of redb.
pub(super) struct RedbTransaction<'t> {
    redb: &'t Redb,
    kind: Kind,
}

enum Kind {
    Read { tx: ReadTransaction, tables: Vec<Option<Reading>> },
    Write(Write),
}

/// Calls `f` with the row of a key, if there is one. Returns the result of `f`.
fn get<R>(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    f: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>, Failure> {
    Ok(table.get(key)?.map(|row| f(row.value())))
}

/// Calls `f` with each row of a range, in ascending or descending order, until `f` breaks.
fn visit(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    (from, to): (&[u8], &[u8]),
    down: bool,
    mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let mut range = table.range::<&[u8]>(from..=to)?;
    while let Some(row) = if down { range.next_back() } else { range.next() } {
        let (key, row) = row?;
        if f(key.value(), row.value()).is_break() {
            break;
        }
    }
    Ok(())
}

impl RedbTransaction<'_> {
    /// Calls `f` with a table of a write transaction, and returns its result.
    fn with_mut<R>(&mut self, table: usize, f: impl FnOnce(&mut Writing<'_>) -> R) -> Result<R, Failure> {
        match &mut self.kind {
            Kind::Read { .. } => Err(Failure::read_only()),
            Kind::Write(write) => RedbTransaction::open(self.redb, write, table, f),
        }
    }

    /// Returns a table of a read-only transaction. The table is opened at its first use.
    fn reading<'o>(
        redb: &Redb,
        tx: &ReadTransaction,
        tables: &'o mut [Option<Reading>],
        table: usize,
    ) -> Result<&'o Reading, Failure> {
        let open = match tables[table].take() {
            Some(open) => open,
            None => tx.open_table(redb.definition(table))?,
        };
        Ok(tables[table].insert(open))
    }

    fn open<R>(
        redb: &Redb,
        write: &mut Write,
        table: usize,
        f: impl FnOnce(&mut Writing<'_>) -> R,
    ) -> Result<R, Failure> {
        write.with_dependent_mut(|tx, tables| {
            let open = match tables.0[table].take() {
                Some(open) => open,
                None => tx.open_table(redb.definition(table)).map_err(|error: TableError| Failure::from(error))?,
            };
            Ok(f(tables.0[table].insert(open)))
        })
    }
}

impl PeerTransaction for RedbTransaction<'_> {
    type Error = Failure;

    fn read<R>(&mut self, table: usize, key: &[u8], f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Failure> {
        match &mut self.kind {
            Kind::Read { tx, tables } => get(RedbTransaction::reading(self.redb, tx, tables, table)?, key, f),
            Kind::Write(write) => RedbTransaction::open(self.redb, write, table, |table| get(table, key, f))?,
        }
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Read { tx, tables } => {
                visit(RedbTransaction::reading(self.redb, tx, tables, table)?, (from, to), down, f)
            }
            Kind::Write(write) => {
                RedbTransaction::open(self.redb, write, table, |table| visit(table, (from, to), down, f))?
            }
        }
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Failure> {
        self.with_mut(table, |table| {
            let Some(mut guard) = table.get_mut(key)? else { return Ok(None) };
            let mut row = guard.value().to_vec();
            let answer = f(&mut row);
            guard.insert(row.as_slice())?;
            Ok(Some(answer))
        })?
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Failure> {
        self.with_mut(table, |table| match table.entry(key)? {
            redb::Entry::Occupied(_) => Ok(false),
            redb::Entry::Vacant(vacant) => {
                vacant.insert(row)?;
                Ok(true)
            }
        })?
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.with_mut(table, |table| {
            let first = match table.range::<&[u8]>(from..=to)?.next() {
                Some(row) => row?.0.value().to_vec(),
                None => return Ok(None),
            };
            table.remove(first.as_slice())?;
            Ok(Some(first))
        })?
    }

    fn commit(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Read { .. } => Ok(()),
            Kind::Write(write) => Ok(write.into_owner().commit()?),
        }
    }

    fn rollback(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Read { .. } => Ok(()),
            Kind::Write(write) => Ok(write.into_owner().abort()?),
        }
    }
}
