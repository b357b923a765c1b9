//! Adapter for RocksDB: a log-structured merge tree, with optimistic transactions that are validated at commit.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DBCompressionType, DBRawIteratorWithThreadMode, IngestExternalFileOptions,
    OptimisticTransactionDB, OptimisticTransactionOptions, Options, ReadOptions, SingleThreaded,
    SnapshotWithThreadMode, SstFileWriter, WriteOptions,
};
use storage::Durability;
use tpcc_core::peers::{Access, Peer, PeerSession, PeerTransaction};

use super::syncer::Syncer;
use super::{CACHE_BYTES, Engine, Failure};

type Db = OptimisticTransactionDB<SingleThreaded>;
type Snapshot<'t> = SnapshotWithThreadMode<'t, Db>;
type Transaction<'t> = rocksdb::Transaction<'t, Db>;

/// Size of a table's write buffer, in bytes.
const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// Open RocksDB database with its column families, one per table.
pub(super) struct RocksDb {
    // Declared first, so that it is dropped before the database.
    _syncer: Option<Syncer>,
    db: Arc<Db>,
    options: Options,
    names: Vec<&'static str>,
    durability: Durability,
    directory: PathBuf,
    /// Number of files that were ingested so far.
    loads: AtomicU32,
}

impl From<rocksdb::Error> for Failure {
    fn from(error: rocksdb::Error) -> Failure {
        use rocksdb::ErrorKind;
        match error.kind() {
            ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut | ErrorKind::Expired => {
                Failure::conflict(error)
            }
            _ => Failure::new(error),
        }
    }
}

/// Returns the options that RocksDB's tuning guide recommends for block-based tables.
fn options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES as usize));
    blocks.set_block_size(16 << 10);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_bytes_per_sync(1 << 20);
    options.set_max_background_jobs(2);
    options
}

impl Engine for RocksDb {
    const NAME: &'static str = "rocksdb";
    const SETTINGS: &'static str = "OptimisticTransactionDB, a snapshot a transaction, LRU cache 1 GiB, blocks of 16 KiB, bloom filters of 10 bits, LZ4; sync: WriteOptions::sync; async: manual_wal_flush, and a thread that flushes and syncs the log every 20 ms; loads by ingestion";

    fn open(directory: &Path, durability: Durability, tables: &[&'static str]) -> Result<RocksDb, Failure> {
        let mut options = options();
        options.set_manual_wal_flush(durability == Durability::Async);
        let families = tables.iter().map(|name| (*name, options.clone()));
        let db = Arc::new(Db::open_cf_descriptors(
            &options,
            directory,
            families.map(|(name, options)| rocksdb::ColumnFamilyDescriptor::new(name, options)),
        )?);
        let syncer = Syncer::start(durability, &db, |db: &Db| {
            if let Err(error) = db.flush_wal(true) {
                eprintln!("rocksdb: commits are not durable: {error}");
            }
        });
        Ok(RocksDb {
            _syncer: syncer,
            db,
            options,
            names: tables.to_vec(),
            durability,
            directory: directory.to_owned(),
            loads: AtomicU32::new(0),
        })
    }
}

impl RocksDb {
    fn family(&self, table: usize) -> Result<&ColumnFamily, Failure> {
        let name = self.names[table];
        self.db.cf_handle(name).ok_or_else(|| Failure::new(format!("{name}: no such column family")))
    }
}

impl Peer for RocksDb {
    type Error = Failure;
    type Session<'a> = RocksSession<'a>;

    fn session(&self) -> Result<RocksSession<'_>, Failure> {
        let families = (0..self.names.len()).map(|table| self.family(table)).collect::<Result<_, _>>()?;
        let mut write = WriteOptions::default();
        write.set_sync(self.durability == Durability::Sync);
        let mut begin = OptimisticTransactionOptions::default();
        begin.set_snapshot(true);
        Ok(RocksSession { db: &self.db, families, write, begin })
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Failure> {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let number = self.loads.fetch_add(1, Ordering::Relaxed);
        let file = self.directory.join(format!("load-{number}.sst"));
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(&file)?;
        for (key, row) in rows {
            writer.put(key, row)?;
        }
        writer.finish()?;
        let mut how = IngestExternalFileOptions::default();
        how.set_move_files(true);
        Ok(self.db.ingest_external_file_cf_opts(self.family(table)?, &how, vec![&file])?)
    }
}

/// Column families of a session, which are looked up once, and the options of its transactions.
pub(super) struct RocksSession<'a> {
    db: &'a Db,
    families: Vec<&'a ColumnFamily>,
    write: WriteOptions,
    begin: OptimisticTransactionOptions,
}

impl PeerSession for RocksSession<'_> {
    type Error = Failure;
    type Transaction<'t>
        = RocksTransaction<'t>
    where
        Self: 't;

    fn begin(&self, access: Access) -> Result<RocksTransaction<'_>, Failure> {
        let kind = match access {
            Access::Read => Kind::Read(self.db.snapshot()),
            Access::Write => Kind::Write(self.db.transaction_opt(&self.write, &self.begin)),
        };
        let options = kind.at_snapshot();
        Ok(RocksTransaction { db: self.db, families: &self.families, options, kind })
    }
}

/// Transaction of RocksDB.
pub(super) struct RocksTransaction<'t> {
    db: &'t Db,
    families: &'t [&'t ColumnFamily],
    /// Options for reads at the snapshot of `kind`. Declared before `kind`, so that they are dropped first.
    options: ReadOptions,
    kind: Kind<'t>,
}

enum Kind<'t> {
    Read(Snapshot<'t>),
    Write(Transaction<'t>),
}

impl Kind<'_> {
    /// Returns options for reads at the snapshot of the transaction.
    fn at_snapshot(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        match self {
            Kind::Read(snapshot) => options.set_snapshot(snapshot),
            // The handle of the snapshot may be dropped here, because the transaction owns the snapshot.
            Kind::Write(tx) => options.set_snapshot(&tx.snapshot()),
        }
        options
    }
}

impl<'t> RocksTransaction<'t> {
    fn writing(&self) -> Result<&Transaction<'t>, Failure> {
        match &self.kind {
            Kind::Read(_) => Err(Failure::read_only()),
            Kind::Write(tx) => Ok(tx),
        }
    }

    /// Returns options for an iterator over `from..=to`, at the snapshot of this transaction.
    fn range(&self, from: &[u8], to: &[u8]) -> ReadOptions {
        let mut options = self.kind.at_snapshot();
        options.set_iterate_lower_bound(from);
        // The upper bound is exclusive, so it is the next key after `to`: the bytes of `to`, and a zero byte.
        options.set_iterate_upper_bound([to, &[0]].concat());
        options
    }
}

/// Calls `f` with each row of an iterator's range, in ascending or descending order, until `f` breaks.
fn visit<D: rocksdb::DBAccess>(
    rows: &mut DBRawIteratorWithThreadMode<'_, D>,
    down: bool,
    mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), Failure> {
    match down {
        false => rows.seek_to_first(),
        true => rows.seek_to_last(),
    }
    while let Some((key, row)) = rows.item() {
        if f(key, row).is_break() {
            return Ok(());
        }
        match down {
            false => rows.next(),
            true => rows.prev(),
        }
    }
    Ok(rows.status()?)
}

impl PeerTransaction for RocksTransaction<'_> {
    type Error = Failure;

    fn read<R>(&mut self, table: usize, key: &[u8], mut f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Failure> {
        let family = self.families[table];
        let row = match &self.kind {
            Kind::Read(_) => self.db.get_pinned_cf_opt(family, key, &self.options)?,
            // The read is validated at commit: a concurrent write to this row is then a conflict.
            Kind::Write(tx) => tx.get_pinned_for_update_cf_opt(family, key, false, &self.options)?,
        };
        Ok(row.map(|row| f(&row)))
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let (family, options) = (self.families[table], self.range(from, to));
        match &self.kind {
            Kind::Read(_) => visit(&mut self.db.raw_iterator_cf_opt(family, options), down, f),
            Kind::Write(tx) => visit(&mut tx.raw_iterator_cf_opt(family, options), down, f),
        }
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Failure> {
        let (family, tx) = (self.families[table], self.writing()?);
        let Some(mut row) = tx.get_for_update_cf_opt(family, key, true, &self.options)? else { return Ok(None) };
        let answer = f(&mut row);
        tx.put_cf(family, key, row)?;
        Ok(Some(answer))
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Failure> {
        let (family, tx) = (self.families[table], self.writing()?);
        if tx.get_pinned_for_update_cf_opt(family, key, true, &self.options)?.is_some() {
            return Ok(false);
        }
        tx.put_cf(family, key, row)?;
        Ok(true)
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let (family, options, tx) = (self.families[table], self.range(from, to), self.writing()?);
        let mut first = None;
        visit(&mut tx.raw_iterator_cf_opt(family, options), false, |key, _| {
            first = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        if let Some(key) = &first {
            tx.delete_cf(family, key)?;
        }
        Ok(first)
    }

    fn commit(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Read(_) => Ok(()),
            Kind::Write(tx) => Ok(tx.commit()?),
        }
    }

    fn rollback(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Read(_) => Ok(()),
            Kind::Write(tx) => Ok(tx.rollback()?),
        }
    }
}
