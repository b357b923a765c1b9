//! Changes the secondary indexes of a table, in a separate transaction that takes the table's exclusive lock.
//!
//! The table gets a new *number*, and its rows stay in place. Therefore old handles, and statements that wait for a
//! lock under the old number, are refused as if the table had been dropped. State that is found by a table number does
//! not change while transactions use it.
//!
//! 1. The trees of new indexes are created, and a small transaction writes a *mark* into the catalog (see
//!    `table/dropping.rs`): these trees must be dropped.
//! 2. The rows are read and the new indexes filled, by transactions that commit several times. Entries are sorted in
//!    *runs* of bounded size before they are inserted, so that the entries of a run that belong in one leaf are
//!    inserted together.
//! 3. One transaction on the catalog *decides*: it deletes the mark, rewrites the table's row, and marks the trees of
//!    removed indexes. Then these trees are dropped.
//!
//! A crash before the decision leaves the table unchanged; opening the database drops the new trees. After an error the
//! new trees are dropped at once; the next open frees pages that could not be freed then. The new trees are logged like
//! all rows: a restart must find the trees that it drops, and a tree that was loaded without the log would not be
//! found. (One gap: a crash between the creation of a tree and its mark loses the tree's one page, as in the creation
//! of a table.)

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::catalog::{Catalog, own_index};
use super::columns::WHOLE;
use super::creation::CreationGuard;
use super::declared::{Declared, IndexSpec};
use super::dropping::carry_out;
use super::entry::{IndexEntry, TableEntry};
use super::index::{AccessMode, Index};
use super::info::TableInfo;
use super::mark::PendingOperation;
use super::scan::{ScanEnd, ScanSpec};
use crate::base::error::TxnError;
use crate::base::ids::IndexId;
use crate::btree::Tree;
use crate::lock::TableMode;
use crate::txn::active::SystemPurpose;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

/// Maximum size of a sorted run of index entries, in bytes of memory outside the buffer pool. The inserts of each run
/// pass over the whole index, so fewer runs are better. Debug builds use several runs even for a small table.
const RUN_BYTES: usize = if cfg!(debug_assertions) { 64 << 10 } else { 8 << 20 };
/// Number of index entries that one transaction inserts. With more entries a rollback would take longer and keep more
/// of the log.
const PART: usize = 1024;

impl Catalog {
    /// Changes the indexes of a table to the declared ones. Returns the table and its ticket, or `None` if there is no
    /// such table.
    ///
    /// # Errors
    /// See [`Database::alter_indexes`](crate::Database::alter_indexes).
    pub(crate) fn alter(
        &self,
        engine: &Engine,
        declared: &Declared<'_>,
    ) -> Result<Option<(&TableInfo, u64)>, TxnError> {
        declared.check_names()?;
        loop {
            let mut owner = engine.begin_system(SystemPurpose::Maintenance)?;
            let Some((entry, number)) = self.entry(engine, declared.name)? else { return Ok(None) };
            entry.check_codecs(declared)?;
            let wanted: Vec<_> = declared.specs().map(|spec| (spec, entry.kept(spec))).collect();
            if wanted.iter().map(|(_, kept)| *kept).eq(entry.secondaries.iter().map(Some)) {
                return self.open(engine, declared);
            }
            match owner.lock_number(&entry.index(declared.name, number), TableMode::X) {
                Ok(()) => {}
                // Another transaction has dropped or altered the table.
                Err(TxnError::Dropped { .. }) => continue,
                Err(error) => return Err(error),
            }
            let mut change = Change::new(self, engine, declared, &entry)?;
            let new: Vec<_> = wanted.iter().filter(|(_, kept)| kept.is_none()).map(|(spec, _)| *spec).collect();
            change.make_trees(&new)?;
            for (spec, built) in new.iter().zip(&change.built) {
                change.fill(&mut owner, (&entry, number), spec, built)?;
            }
            let gone = change.decide((&entry, number), &wanted)?;
            let end = match gone {
                Some(gone) => carry_out(self, &mut owner, &gone, PendingOperation::Dropped)?,
                None => engine.log.tail(),
            };
            owner.commit()?;
            engine.answer(end)?;
        }
    }
}

/// A change of a table's indexes. Dropping it before the decision drops the new trees.
struct Change<'c> {
    catalog: &'c Catalog,
    engine: &'c Engine,
    declared: &'c Declared<'c>,
    /// Number of the table after the change.
    number: u32,
    /// New indexes, in the order of declaration.
    built: Vec<IndexEntry>,
    decided: bool,
}

impl<'c> Change<'c> {
    /// Reserves a number for the changed table.
    fn new(
        catalog: &'c Catalog,
        engine: &'c Engine,
        declared: &'c Declared<'c>,
        entry: &TableEntry,
    ) -> Result<Change<'c>, TxnError> {
        let number = catalog.number_for(engine, declared, entry)?;
        Ok(Change { catalog, engine, declared, number, built: Vec::new(), decided: false })
    }

    /// Creates the trees of new indexes, and a mark that makes a restart drop them.
    fn make_trees(&mut self, new: &[&IndexSpec]) -> Result<(), TxnError> {
        if new.is_empty() {
            return Ok(());
        }
        let _guard = CreationGuard::acquire(&self.catalog.creation, &*self.engine.hook);
        let first = self.catalog.new_indexes(self.engine, self.declared, new.len() as u32)?;
        let mut txn = self.engine.begin_creating()?;
        for (index, spec) in (first..).zip(new) {
            let state = txn.slot.state();
            let tree = Tree::create(IndexId(index), self.engine.structure_change(state.id), &mut state.rec)?;
            self.built.push(IndexEntry {
                name: spec.name.to_owned(),
                unique: spec.unique,
                codec: spec.codec_text(),
                tree,
            });
        }
        if let Some(trees) = TableEntry::of_trees(&self.built) {
            txn.insert(&own_index(), &PendingOperation::Dropped.mark(&trees), &trees.encode())?;
        }
        txn.commit()?;
        Ok(())
    }

    /// Fills a new index from the table's rows, which `owner` has locked exclusively.
    fn fill(
        &self,
        owner: &mut Txn<'_>,
        (table, number): (&TableEntry, u32),
        spec: &IndexSpec,
        built: &IndexEntry,
    ) -> Result<(), TxnError> {
        let table = table.index(self.declared.name, number);
        let index = Index::new((built.tree, None), self.number, self.declared.name, Some(built.name.as_str().into()));
        let mut run = Run::default();
        let wanted = ScanSpec { from: &[], to: ScanEnd::Never, access: AccessMode::Read, likely: usize::MAX };
        let mut large = Vec::new();
        owner.scan_batches(&table, wanted, |owner, batch, _| {
            for i in 0..batch.len() {
                if batch.row(i).is_reference {
                    // The table is locked, so the row has not changed since the scan.
                    owner.read_referred(&table, batch.key(i), batch.value(i), &mut large)?;
                    run.add(spec, batch.key(i), &large);
                } else {
                    run.add(spec, batch.key(i), batch.value(i));
                }
                if run.size() >= RUN_BYTES {
                    run.insert(self.engine, &index)?;
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        run.insert(self.engine, &index)
    }

    /// Commits the decision: from then on the table has the kept and the new indexes. Returns the indexes whose trees
    /// must be dropped.
    fn decide(
        &mut self,
        (old, number): (&TableEntry, u32),
        wanted: &[(&IndexSpec, Option<&IndexEntry>)],
    ) -> Result<Option<TableEntry>, TxnError> {
        let engine = self.engine;
        let mut built = self.built.iter();
        let secondaries: Vec<_> =
            wanted.iter().filter_map(|(_, kept)| kept.or_else(|| built.next())).cloned().collect();
        let stays: BTreeSet<u32> = secondaries.iter().map(|index| index.tree.index.0).collect();
        let gone: Vec<_> = old.secondaries.iter().filter(|i| !stays.contains(&i.tree.index.0)).cloned().collect();
        let gone = TableEntry::of_trees(&gone);
        let new = TableEntry { secondaries, ..old.clone() };

        let _guard = CreationGuard::acquire(&self.catalog.creation, &*engine.hook);
        let mut decision = engine.begin_creating()?;
        if let Some(built) = TableEntry::of_trees(&self.built) {
            decision.delete(&own_index(), &PendingOperation::Dropped.mark(&built))?;
        }
        if let Some(gone) = &gone {
            decision.insert(&own_index(), &PendingOperation::Dropped.mark(gone), &gone.encode())?;
        }
        let row = new.encode();
        if let Some(spot) = decision.fetch_for_write(&own_index(), self.declared.name.as_bytes(), WHOLE)? {
            let after = &mut decision.slot.state().after;
            after.clear();
            after.extend_from_slice(&row);
            decision.store(&own_index(), self.declared.name.as_bytes(), spot)?;
        }
        decision.commit()?;
        self.decided = true;
        self.catalog.replace(engine, self.declared, (number, self.number), new);
        Ok(gone)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.decided {
            return;
        }
        self.catalog.give_number_back(self.engine, self.number);
        if let Some(built) = TableEntry::of_trees(&self.built)
            && self.engine.poison.check().is_ok()
            && let Ok(mut txn) = self.engine.begin_system(SystemPurpose::Companion)
        {
            // The next open frees pages that this call cannot free: the mark is still in the catalog.
            let _ = carry_out(self.catalog, &mut txn, &built, PendingOperation::Dropped);
        }
    }
}

/// Index entries collected for sorting.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// Offsets in `bytes` of each entry: start of the entry's key, start of the row's primary key (which follows the
    /// entry's key), and end.
    places: Vec<(usize, usize, usize)>,
}

impl Run {
    /// Returns the memory use of the run in bytes.
    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.places)
    }

    /// Adds the index entry of a row, unless the index excludes the row.
    fn add(&mut self, spec: &IndexSpec, key: &[u8], row: &[u8]) {
        let begin = self.bytes.len();
        if !(spec.extract)(key, row, &mut self.bytes) {
            self.bytes.truncate(begin);
            return;
        }
        if !spec.unique {
            self.bytes.extend_from_slice(key);
        }
        let value = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.places.push((begin, value, self.bytes.len()));
    }

    /// Inserts all entries and empties the run.
    fn insert(&mut self, engine: &Engine, index: &Index) -> Result<(), TxnError> {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|a, b| bytes[a.0..a.1].cmp(&bytes[b.0..b.1]));
        let entry = |&(begin, value, end): &(usize, usize, usize)| (&bytes[begin..value], &bytes[value..end]);
        if let Some(pair) = self.places.windows(2).find(|pair| entry(&pair[0]).0 == entry(&pair[1]).0) {
            return Err(not_unique(index, entry(&pair[0]).1, entry(&pair[1]).1));
        }
        for part in self.places.chunks(PART) {
            let entries: Vec<_> = part.iter().map(entry).collect();
            let mut txn = engine.begin_system(SystemPurpose::Companion)?;
            txn.lock_number(index, TableMode::X)?;
            match txn.insert_run(index, &entries) {
                Err(TxnError::DuplicateKey { .. }) => return Err(duplicate_rows_error(&mut txn, index, &entries)),
                inserted => inserted?,
            }
            txn.commit()?;
        }
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }
}

/// Returns the error for two rows with the same key in a unique index.
#[cold]
fn duplicate_rows_error(txn: &mut Txn<'_>, index: &Index, entries: &[(&[u8], &[u8])]) -> TxnError {
    for (value, key) in entries {
        match txn.read(index, value, AccessMode::Read, <[u8]>::to_vec) {
            Ok(Some(other)) if other != *key => return not_unique(index, &other, key),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
    TxnError::DuplicateKey { table: index.table(), index: index.name() }
}

fn not_unique(index: &Index, one: &[u8], other: &[u8]) -> TxnError {
    let rows = Box::new([one.to_vec(), other.to_vec()]);
    TxnError::NotUnique { table: index.table(), index: index.name(), rows }
}

impl TableEntry {
    /// Returns the existing index that matches the declaration `spec`.
    fn kept(&self, spec: &IndexSpec) -> Option<&IndexEntry> {
        let is =
            |has: &&IndexEntry| has.name == spec.name && has.unique == spec.unique && has.codec == spec.codec_text();
        self.secondaries.iter().find(is)
    }

    /// Returns a catalog entry that names only the trees of these indexes, for a mark; `None` if `indexes` is empty.
    fn of_trees(indexes: &[IndexEntry]) -> Option<TableEntry> {
        let (first, rest) = indexes.split_first()?;
        let (key, row) = (String::new(), String::new());
        Some(TableEntry { primary: first.tree, overflow: None, key, row, secondaries: rest.to_vec() })
    }
}
