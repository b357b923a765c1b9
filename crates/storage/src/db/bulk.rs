//! Bulk loads: many sorted rows into an empty table.
//!
//! A table is empty if it has no rows. Ghosts, left by deletes and rolled back inserts, do not count as rows. The load
//! removes ghosts under the table's exclusive lock, when no transaction needs them any more.

use std::marker::PhantomData;

use super::database::Database;
use super::table::OpenTable;
use crate::base::error::TxnError;
use crate::base::ids::TxnId;
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::bulk::{self, Builder, BuiltTree, BulkError};
use crate::btree::content::TreeContent;
use crate::btree::overflow::{CHUNK, Chain, MAX_LARGE, Reference};
use crate::btree::{MAX_KEY, StructureChange, Tree};
use crate::lock::TableMode;
use crate::log::RecordBuf;
use crate::page::layout::OVERFLOW;
use crate::table::codec::{Key, Row};
use crate::table::index::Index;
use crate::table::info::TableInfo;
use crate::table::overflow::fits_slot;
use crate::txn::active::SystemPurpose;
use crate::txn::transaction::Txn;

/// A bulk load of an empty table. Takes the rows in key order, fills one page after the other, and writes the pages
/// without the buffer pool and, except for the last step, without the log.
///
/// The load locks the table exclusively. The rows are visible and durable when [`BulkLoad::finish`] has returned. If
/// the load is dropped before that, the table stays empty and the load's pages are freed. After a crash, the next open
/// of the database frees them.
#[derive(Debug)]
pub struct BulkLoad<'db, K, V> {
    db: &'db Database,
    table: &'db TableInfo,
    /// Declared before `txn`, so that the builder is dropped first: it frees its pages in the transaction's slot.
    builder: RowBuilder<'db>,
    txn: Txn<'db>,
    /// Collected entries of each secondary index, in the order of declaration.
    entries: Vec<Entries>,
    key: Vec<u8>,
    row: Vec<u8>,
    types: PhantomData<fn(K, V)>,
}

/// A bulk load of a single tree of a table: the rows without their index entries, or the entries of one index. For
/// programs that produce rows and entries in key order, so that no memory is needed for sorting entries, as in
/// [`BulkLoad`]. The program must keep rows and entries consistent.
#[derive(Debug)]
pub struct BulkPart<'db> {
    db: &'db Database,
    table: &'db TableInfo,
    index: &'db Index,
    /// Declared before `txn`, so that the builder is dropped first: see [`BulkLoad`].
    builder: RowBuilder<'db>,
    txn: Txn<'db>,
}

/// Builder of a tree and, for the rows of a table, of the tree of their large values.
struct RowBuilder<'db> {
    change: StructureChange<'db>,
    rows: Builder<'db>,
    overflow: Option<Tree>,
    /// Builder of the tree of large values, and the next chain. Created when the first large value is added.
    large: Option<(Builder<'db>, Chain)>,
}

impl std::fmt::Debug for RowBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowBuilder").field("rows", &self.rows).field("large", &self.large).finish_non_exhaustive()
    }
}

impl<'db> RowBuilder<'db> {
    fn new(index: &Index, change: StructureChange<'db>) -> Result<RowBuilder<'db>, BulkError> {
        let rows = Builder::new(index.tree(), change)?;
        Ok(RowBuilder { change, rows, overflow: index.overflow(), large: None })
    }

    #[inline]
    fn push(&mut self, key: &[u8], row: &[u8]) -> Result<(), BulkError> {
        if fits_slot(key.len(), row.len()) { self.rows.push(key, row, 0) } else { self.push_large(key, row) }
    }

    #[cold]
    fn push_large(&mut self, key: &[u8], row: &[u8]) -> Result<(), BulkError> {
        if key.len() > MAX_KEY {
            return Err(BulkError::LongKey(key.len()));
        }
        if key.ends_with(row) {
            return self.rows.push(key, Reference::OfKey(row.len()).encode().as_bytes(), OVERFLOW);
        }
        let Some(tree) = self.overflow.filter(|_| row.len() <= MAX_LARGE) else {
            return Err(BulkError::LongRow(row.len()));
        };
        let (builder, next) = match &mut self.large {
            Some(large) => large,
            none => {
                // The builder allocates pages, which moves the log's tail. Therefore the number is unique among the
                // chains of this slot.
                let number = TxnId::of_first_record(self.change.log.tail(), self.change.slot).0;
                none.insert((Builder::new(tree, self.change)?, Chain { number, part: 0 }))
            }
        };
        let chain = *next;
        for (n, chunk) in row.chunks(CHUNK).enumerate() {
            builder.push(&chain.chunk(n), chunk, 0)?;
        }
        next.part += 1;
        self.rows.push(key, Reference::Chain(chain, row.len()).encode().as_bytes(), OVERFLOW)
    }

    fn into_builders(self) -> impl Iterator<Item = Builder<'db>> {
        std::iter::once(self.rows).chain(self.large.map(|(large, _)| large))
    }
}

/// A tree of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The rows, in the primary tree.
    Rows,
    /// The entries of a secondary index, counted in the order of declaration. The key of an entry is the index key,
    /// followed by the primary key unless the index is unique. The value of an entry is the primary key.
    Index(usize),
}

/// Index entries collected for sorting. `bytes` contains the key and the value of each entry, one entry after the
/// other.
#[derive(Debug, Default)]
struct Entries {
    bytes: Vec<u8>,
    /// For each entry: offset of its start in `bytes`, and distances from there to the end of its key and to the end of
    /// its value.
    places: Vec<(u64, u32, u32)>,
}

impl Database {
    /// Begins a bulk load of a table, which must be empty. Waits for the transactions that use the table.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has rows, [`TxnError::ForeignHandle`] if another database returned the handle,
    /// and errors of lock waits.
    pub fn bulk_load<K, V>(&self, table: &OpenTable<K, V>) -> Result<BulkLoad<'_, K, V>, TxnError> {
        let mut txn = self.engine.begin_system(SystemPurpose::Maintenance)?;
        let info = table.info(self)?;
        txn.lock_whole(info, TableMode::X)?;
        let change = self.engine.structure_change(txn.slot.peek().id);
        let trees: Vec<_> = info.trees().collect();
        self.remove_ghosts(info, &trees)?;
        let builder = RowBuilder::new(&info.primary, change).map_err(|e| bulk_error(e, info))?;
        let entries = info.secondaries.iter().map(|_| Entries::default()).collect();
        Ok(BulkLoad {
            db: self,
            table: info,
            txn,
            builder,
            entries,
            key: Vec::new(),
            row: Vec::new(),
            types: PhantomData,
        })
    }
}

impl Database {
    /// Removes the ghosts of trees that have more than one page. The caller holds the table's exclusive lock.
    fn remove_ghosts(&self, table: &TableInfo, trees: &[Tree]) -> Result<(), TxnError> {
        let mut of_ghosts = Vec::new();
        for tree in trees {
            match tree.content(&self.engine.pool)? {
                TreeContent::Empty => {}
                TreeContent::GhostPages => of_ghosts.push(*tree),
                TreeContent::Rows => return Err(bulk_error(BulkError::NotEmpty, table)),
            }
        }
        self.catalog.remove_ghosts(&self.engine, &of_ghosts)
    }

    /// Begins a bulk load of one tree of a table; the tree must be empty. Several trees may be loaded concurrently,
    /// each by its own thread. The load holds no lock before [`BulkPart::finish`]: until then all transactions find an
    /// empty table.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the tree is not empty or does not exist; errors of lock waits.
    pub fn bulk_load_part<K, V>(&self, table: &OpenTable<K, V>, part: Part) -> Result<BulkPart<'_>, TxnError> {
        // The transaction begins before the lookup, so that the table's number cannot be reused for another table while
        // the transaction runs.
        let txn = self.engine.begin_system(SystemPurpose::Maintenance)?;
        let info = table.info(self)?;
        let index = match part {
            Part::Rows => Some(&info.primary),
            Part::Index(i) => info.secondaries.get(i).map(|s| &s.index),
        };
        let Some(index) = index else {
            return Err(TxnError::Schema { table: info.primary.table(), what: format!("has no {part:?}") });
        };
        // The IX lock waits for a transaction that has locked the table exclusively. While the IX lock is held, the
        // table exists. If the table has rows, the X lock waits for all transactions that use the table, because they
        // may roll the rows back.
        for mode in [TableMode::IX, TableMode::X] {
            let mut asking = self.engine.begin_system(SystemPurpose::Companion)?;
            asking.lock_whole(info, mode)?;
            let rows = index.tree().content(&self.engine.pool)? == TreeContent::Rows;
            asking.commit()?;
            if !rows {
                break;
            }
            if mode == TableMode::X {
                return Err(bulk_error(BulkError::NotEmpty, info));
            }
        }
        let change = self.engine.structure_change(txn.slot.peek().id);
        let builder = RowBuilder::new(index, change).map_err(|e| bulk_error(e, info))?;
        Ok(BulkPart { db: self, table: info, index, txn, builder })
    }
}

impl BulkPart<'_> {
    /// Adds a row or an index entry to the tree. Keys must ascend.
    ///
    /// # Errors
    /// As [`BulkLoad::push_raw`].
    #[inline]
    pub fn push_raw(&mut self, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        self.builder.push(key, value).map_err(|e| bulk_error(e, self.table))
    }

    /// Installs the tree and makes it durable; returns the number of added rows or entries. Waits until the
    /// transactions that use the table have ended, because they may rely on the table being empty.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if rows were inserted since the load began; [`TxnError::Dropped`] if the table was dropped;
    /// errors of lock waits; no space, a failed write.
    pub fn finish(mut self) -> Result<u64, TxnError> {
        let mode = if is_mutant(Mutant::ShareBulkTable) { TableMode::IX } else { TableMode::X };
        self.txn.lock_whole(self.table, mode)?;
        let change = self.db.engine.structure_change(self.txn.slot.peek().id);
        let trees: Vec<_> = std::iter::once(self.index.tree()).chain(self.index.overflow()).collect();
        self.db.remove_ghosts(self.table, &trees)?;
        let rows = install(change, self.builder.into_builders().map(Builder::seal), self.table)?;
        self.txn.commit()?;
        self.db.engine.make_durable(self.db.engine.log.tail())?;
        Ok(rows)
    }
}

impl<K, V> BulkLoad<'_, K, V> {
    /// Adds an encoded row. Keys must ascend.
    ///
    /// # Errors
    /// [`TxnError::NotAscending`], a key or row that is too long, no space.
    pub fn push_raw(&mut self, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        self.builder.push(key, row).map_err(|e| bulk_error(e, self.table))?;
        for (secondary, entries) in self.table.secondaries.iter().zip(&mut self.entries) {
            let begin = entries.bytes.len();
            if !(secondary.extract)(key, row, &mut entries.bytes) {
                entries.bytes.truncate(begin);
                continue;
            }
            if !secondary.unique {
                entries.bytes.extend_from_slice(key);
            }
            let key_len = entries.bytes.len() - begin;
            entries.bytes.extend_from_slice(key);
            let len = entries.bytes.len() - begin;
            entries.places.push((begin as u64, key_len as u32, len as u32));
        }
        Ok(())
    }

    /// Builds the indexes and makes the loaded table durable; returns the number of rows.
    ///
    /// # Errors
    /// [`TxnError::DuplicateKey`] if two rows have the same key in a unique index; no space.
    pub fn finish(self) -> Result<u64, TxnError> {
        let BulkLoad { db, table, txn, builder, entries, .. } = self;
        let change = db.engine.structure_change(txn.slot.peek().id);
        let mut trees = Vec::new();
        for (secondary, mut entries) in table.secondaries.iter().zip(entries) {
            let key = |p: &(u64, u32, u32)| &entries.bytes[p.0 as usize..p.0 as usize + p.1 as usize];
            entries.places.sort_unstable_by(|a, b| key(a).cmp(key(b)));
            let mut tree = RowBuilder::new(&secondary.index, change).map_err(|e| bulk_error(e, table))?;
            for (begin, key_len, len) in &entries.places {
                let (begin, key_end) = (*begin as usize, *begin as usize + *key_len as usize);
                let pushed = tree.push(&entries.bytes[begin..key_end], &entries.bytes[key_end..begin + *len as usize]);
                pushed.map_err(|e| match e {
                    BulkError::Order => {
                        TxnError::DuplicateKey { table: secondary.index.table(), index: secondary.index.name() }
                    }
                    other => bulk_error(other, table),
                })?;
            }
            trees.extend(tree.into_builders());
        }
        let rows = install(change, builder.into_builders().chain(trees).map(Builder::seal), table)?;
        txn.commit()?;
        db.engine.make_durable(db.engine.log.tail())?;
        Ok(rows)
    }
}

impl<K: Key, V: Row> BulkLoad<'_, K, V> {
    /// Adds a row. Keys must ascend.
    ///
    /// # Errors
    /// As [`BulkLoad::push_raw`].
    pub fn push(&mut self, key: &K, row: &V) -> Result<(), TxnError> {
        let (mut k, mut r) = (std::mem::take(&mut self.key), std::mem::take(&mut self.row));
        k.clear();
        r.clear();
        key.encode(&mut k);
        row.encode(&mut r);
        let result = self.push_raw(&k, &r);
        (self.key, self.row) = (k, r);
        result
    }
}

/// Installs finished trees atomically; returns the number of rows of the first tree.
fn install<'p>(
    change: StructureChange<'p>,
    trees: impl IntoIterator<Item = Result<BuiltTree<'p>, BulkError>>,
    table: &TableInfo,
) -> Result<u64, TxnError> {
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>();
    let installed = trees.and_then(|mut trees| {
        bulk::install(change, &mut RecordBuf::new(), &mut trees)?;
        Ok(trees.first().map_or(0, |tree| tree.rows))
    });
    installed.map_err(|e| bulk_error(e, table))
}

fn bulk_error(error: BulkError, table: &TableInfo) -> TxnError {
    let name = table.primary.table();
    match error {
        BulkError::Order => TxnError::NotAscending { table: name },
        BulkError::LongKey(bytes) => TxnError::KeyTooLong { table: name, bytes, limit: MAX_KEY },
        BulkError::LongRow(bytes) => TxnError::RowTooLarge { table: name, bytes, limit: MAX_LARGE },
        BulkError::NotEmpty => {
            TxnError::Schema { table: name, what: "is not empty: only an empty table can be loaded".into() }
        }
        BulkError::Storage(error) => TxnError::Storage(error),
    }
}
