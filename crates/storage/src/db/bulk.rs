//! Loading many sorted rows into an empty table at once.
//!
//! A table is empty if it has no rows. Ghosts, which deletes and rolled back inserts leave, are none: they are removed
//! under the table's exclusive lock, when no transaction needs them any more.

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
use crate::txn::active::Own;
use crate::txn::transaction::Txn;

/// Loads rows, in the order of their keys, into an empty table: fills pages one after the other and writes
/// them past the buffer pool and, but for the last step, past the log.
///
/// No other transaction may use the table meanwhile. The rows appear when [`BulkLoad::finish`] has returned, and are
/// durable then. If the load is dropped before, the table stays empty, and its pages are given back; those of a load that
/// a crash breaks off are given back when the database is opened.
#[derive(Debug)]
pub struct BulkLoad<'db, K, V> {
    db: &'db Database,
    table: &'db TableInfo,
    /// Before `txn`, so that it is dropped first: it gives its pages back under the transaction's slot.
    builder: RowBuilder<'db>,
    txn: Txn<'db>,
    /// Index entries by index: key, value, one after the other with their ends.
    entries: Vec<Entries>,
    key: Vec<u8>,
    row: Vec<u8>,
    types: PhantomData<fn(K, V)>,
}

/// One tree of a table being loaded on its own: the rows without their index entries, or the entries of one index. For
/// programs that can produce each in order, which saves the memory in which [`BulkLoad`] sorts entries; the program is
/// responsible for rows and entries being consistent.
#[derive(Debug)]
pub struct BulkPart<'db> {
    db: &'db Database,
    table: &'db TableInfo,
    index: &'db Index,
    /// Before `txn`, as in [`BulkLoad`].
    builder: RowBuilder<'db>,
    txn: Txn<'db>,
}

/// A tree being built, and beside it, for the rows of a table, that of their large values.
struct RowBuilder<'db> {
    change: StructureChange<'db>,
    rows: Builder<'db>,
    overflow: Option<Tree>,
    /// Made for the first large value, with the number of the next chain.
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
                // The builder takes pages, which moves the log's tail: no other chain of this slot has this number.
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

/// Which tree of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The rows.
    Rows,
    /// The entries of a secondary index, counted in the order of declaration: what the index extracts (and, unless it
    /// is unique, the primary key behind it), with the primary key as value.
    Index(usize),
}

/// Entries of an index, to be sorted.
#[derive(Debug, Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Begin, end of key, end of value.
    places: Vec<(u64, u32, u32)>,
}

impl Database {
    /// Begins to load a table, which must be empty. Waits for the transactions that use it.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if it has rows, [`TxnError::ForeignHandle`] if the handle is another database's; those of
    /// waiting for a lock.
    pub fn bulk_load<K, V>(&self, table: &OpenTable<K, V>) -> Result<BulkLoad<'_, K, V>, TxnError> {
        let mut txn = self.engine.begin_own(Own::Maintenance)?;
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
    /// Removes the ghosts of trees of a table that the caller has locked exclusively, unless they fit on one page.
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

    /// Begins to load one tree of a table, which must be empty. Several may be loaded at once, each by its thread.
    /// Nothing is locked before [`BulkPart::finish`]: until then the table is an empty one to all transactions.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the tree is not empty or there is none; those of waiting for a lock.
    pub fn bulk_load_part<K, V>(&self, table: &OpenTable<K, V>, part: Part) -> Result<BulkPart<'_>, TxnError> {
        // Before the table is found: it cannot become another as long as this transaction runs.
        let txn = self.engine.begin_own(Own::Maintenance)?;
        let info = table.info(self)?;
        let index = match part {
            Part::Rows => Some(&info.primary),
            Part::Index(i) => info.secondaries.get(i).map(|s| &s.index),
        };
        let Some(index) = index else {
            return Err(TxnError::Schema { table: info.primary.table(), what: format!("has no {part:?}") });
        };
        // Under the lock the table still exists; it waits for a transaction that has locked it exclusively. If there are
        // rows, a stronger one waits for those that use the table: they may take back what they have written.
        for mode in [TableMode::IX, TableMode::X] {
            let mut asking = self.engine.begin_own(Own::Beside)?;
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
    /// Adds an entry; keys must ascend.
    ///
    /// # Errors
    /// As [`BulkLoad::push_raw`].
    #[inline]
    pub fn push_raw(&mut self, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        self.builder.push(key, value).map_err(|e| bulk_error(e, self.table))
    }

    /// Puts the tree in its place and makes it durable; returns the number of entries. Waits until the transactions
    /// that use the table have ended: those that have found it empty rely on that.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if rows have come into the tree since the load began; [`TxnError::Dropped`] if the table
    /// has gone; those of waiting for a lock; no space, a failed write.
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
    /// Adds a row, encoded; keys must ascend.
    ///
    /// # Errors
    /// [`TxnError::NotAscending`], sizes, no space.
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

    /// Builds the indexes and makes everything durable; returns the number of rows.
    ///
    /// # Errors
    /// [`TxnError::DuplicateKey`] if two rows have one value in a unique index; no space.
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
    /// Adds a row; keys must ascend.
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

/// Puts finished trees in their places, together; returns the rows of the first.
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
