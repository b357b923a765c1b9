//! The catalog: which tables and indexes exist, kept in a table of its own; and the tables that are open.

use crate::base::sync::plain::{AtomicU32, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::OnceLock;

use super::codec::Codec;
use super::codec::name::RAW;
use super::creation::{Creation, Creator};
use super::declared::Declared;
use super::entry::{IndexEntry, TableEntry};
use super::index::{Index, Want};
use super::info::TableInfo;
use super::mark::{Fate, Retired};
use super::scan::{ScanEnd, ScanSpec};
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::ids::{IndexId, PageId};
use crate::base::sync::Mutex;
use crate::btree::Tree;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

/// Most tables of a database.
pub(crate) const MAX_TABLES: usize = 1000;

/// The catalog's own tree.
pub(crate) const CATALOG: Tree = Tree { index: IndexId(1), root: PageId(2) };
/// The catalog's number among the tables; real tables count from here on.
pub(crate) const CATALOG_NUMBER: u32 = 1;

/// A table's name, its primary tree with that of its large values, and the trees of its indexes with their names.
pub(crate) type NamedTrees = (String, (Tree, Option<Tree>), Vec<(String, Tree)>);

/// The trees of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableTrees {
    pub(crate) number: u32,
    pub(crate) primary: Tree,
    pub(crate) overflow: Option<Tree>,
    /// Each with whether it is unique.
    pub(crate) secondaries: Vec<(Tree, bool)>,
}

/// The catalog in memory.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// The content of the catalog's table.
    entries: Mutex<BTreeMap<String, TableEntry>>,
    /// Tables are created one after the other. A fiber of the thread that creates one may wait for its turn, so the
    /// turn is no mutex that is held meanwhile.
    pub(super) creation: Mutex<Creation>,
    /// Numbers of tables and indexes that were dropped.
    retired: Mutex<Retired>,
    /// Open tables by number: found by handles without a lock.
    open: Box<[OnceLock<TableInfo>]>,
    /// Numbers of open tables by the address of their name: guesses for [`Catalog::declared`], written only when they
    /// were wrong. A guess is compared with the open table itself.
    guesses: Box<[AtomicU32; GUESSES]>,
}

/// A power of two, and far more than the declarations of most programs.
const GUESSES: usize = 512;

impl Catalog {
    /// Drops a table; false if there is none of this name.
    ///
    /// # Errors
    /// Those of waiting for the table's lock; no space. See `table/dropping.rs` for failures on the way.
    pub(crate) fn drop_table(&self, engine: &Engine, name: &str) -> Result<bool, TxnError> {
        self.end(engine, name, Fate::Dropped)
    }

    /// Removes all rows of a table; false if there is none of this name.
    ///
    /// # Errors
    /// As [`Catalog::drop_table`].
    pub(crate) fn truncate(&self, engine: &Engine, name: &str) -> Result<bool, TxnError> {
        self.end(engine, name, Fate::Emptied)
    }

    /// Reads the catalog's table, and finishes the dropping and emptying of tables that a crash has interrupted.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub(crate) fn load(engine: &Engine) -> Result<Catalog, TxnError> {
        let mut entries = BTreeMap::new();
        let mut damaged = false;
        let mut marks = Vec::new();
        let mut txn = engine.begin(Isolation::Serializable, None)?;
        let wanted = ScanSpec { from: &[], to: ScanEnd::Never, want: Want::Read, likely: usize::MAX };
        txn.scan(&own_index(), wanted, |key, row| {
            if let (Some(fate), Some(entry)) = (Fate::of_mark(key), TableEntry::decode(row)) {
                marks.push((fate, entry));
                return ControlFlow::Continue(());
            }
            match (String::from_utf8(key.to_vec()), TableEntry::decode(row)) {
                (Ok(name), Some(entry)) if (entry.number as usize) < MAX_TABLES + 2 => {
                    drop(entries.insert(name, entry))
                }
                _ => damaged = true,
            }
            ControlFlow::Continue(())
        })?;
        txn.commit()?;
        if damaged {
            let what = "has a row that is no table: it is damaged; restore a copy".into();
            return Err(TxnError::Schema { table: "catalog".into(), what });
        }
        let open = (0..MAX_TABLES + 2).map(|_| OnceLock::new()).collect();
        let guesses = Box::new([const { AtomicU32::new(0) }; GUESSES]);
        let (creation, retired) = (Mutex::default(), Mutex::default());
        let catalog = Catalog { entries: Mutex::new(entries), creation, retired, open, guesses };
        catalog.finish(engine, marks)?;
        Ok(catalog)
    }

    /// The catalog's entry for a table.
    pub(super) fn entry(&self, name: &str) -> Option<TableEntry> {
        self.entries.lock().get(name).cloned()
    }

    /// Numbers for one more table: its own, and the highest that an index has had.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if all are in use.
    pub(super) fn free_numbers(&self, declared: &Declared<'_>) -> Result<(u32, u32), TxnError> {
        let (entries, retired) = (self.entries.lock(), self.retired.lock());
        let used: BTreeSet<u32> = entries.values().map(|e| e.number).chain(retired.tables.iter().copied()).collect();
        let index = entries.values().flat_map(TableEntry::trees).map(|tree| tree.index_number()).max();
        let index = index.unwrap_or(CATALOG.index.0).max(retired.index);
        let number = (CATALOG_NUMBER + 1..MAX_TABLES as u32 + 2).find(|number| !used.contains(number));
        number.map(|number| (number, index)).ok_or_else(|| {
            let what = format!(
                "a database has at most {MAX_TABLES} tables, counting those that were dropped, and one more for each \
                 change of a table's indexes, since it was opened"
            );
            declared.schema(what)
        })
    }

    /// Notes that the table has other indexes now, and with them another number.
    pub(super) fn replace(&self, name: &str, old: &TableEntry, new: TableEntry) {
        self.retire(old);
        self.entries.lock().insert(name.to_owned(), new);
        self.unnote(old.number);
    }

    /// Keeps the numbers of a table from being used again.
    pub(super) fn retire(&self, entry: &TableEntry) {
        let index = entry.trees().map(|tree| tree.index_number()).max();
        self.retire_numbers(entry.number, index.unwrap_or(0));
    }

    /// Keeps a table's number, and those of indexes up to one, from being used again.
    pub(super) fn retire_numbers(&self, number: u32, index: u32) {
        let mut retired = self.retired.lock();
        retired.tables.insert(number);
        retired.index = retired.index.max(index);
    }

    /// Notes that the table has been dropped.
    pub(super) fn forget(&self, name: &str, entry: &TableEntry) {
        self.retire(entry);
        self.entries.lock().remove(name);
        self.unnote(entry.number);
    }

    /// Clears all guesses of a number, after its entry: [`Catalog::open`] notes one and then looks for the entry again.
    fn unnote(&self, number: u32) {
        self.guesses.iter().for_each(|guess| self.unnote_guess(guess, number));
    }

    fn unnote_guess(&self, guess: &AtomicU32, number: u32) {
        let _ = guess.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The open table of this number.
    #[inline]
    pub(crate) fn table(&self, number: u32) -> Option<&TableInfo> {
        self.open.get(number as usize)?.get()
    }

    /// Names of all tables.
    pub(crate) fn names(&self) -> Vec<String> {
        self.entries.lock().keys().cloned().collect()
    }

    /// The trees of all tables, the catalog's own first.
    pub(crate) fn trees(&self) -> Vec<TableTrees> {
        let own = TableTrees { number: CATALOG_NUMBER, primary: CATALOG, overflow: None, secondaries: Vec::new() };
        let entries = self.entries.lock();
        let tables = entries.values().map(|e| TableTrees {
            number: e.number,
            primary: e.primary,
            overflow: e.overflow,
            secondaries: e.secondaries.iter().map(|index| (index.tree, index.unique)).collect(),
        });
        std::iter::once(own).chain(tables).collect()
    }

    /// The tree with this index number, and the number of its table; `None` if no table has such a tree (any more).
    pub(crate) fn tree(&self, index: IndexId) -> Option<(Tree, u32)> {
        if index == CATALOG.index {
            return Some((CATALOG, CATALOG_NUMBER));
        }
        let entries = self.entries.lock();
        entries.values().find_map(|entry| Some((entry.trees().find(|tree| tree.index == index)?, entry.number)))
    }

    /// The index of this number, for locks; `None` if there is none (any more).
    pub(crate) fn index(&self, number: IndexId) -> Option<Index> {
        if number == CATALOG.index {
            return Some(own_index());
        }
        let entries = self.entries.lock();
        entries.iter().find_map(|(table, entry)| {
            let tree = entry.trees().find(|tree| tree.index == number)?;
            let secondary = entry.secondaries.iter().find(|index| index.tree == tree);
            let name = secondary.map_or(table.as_str(), |index| index.name.as_str()).into();
            let overflow = entry.overflow.filter(|_| tree == entry.primary);
            Some(Index { tree, overflow, lock_table: entry.number, table: table.as_str().into(), name })
        })
    }

    /// The tree with the next higher index number, and the number of its table.
    pub(crate) fn tree_after(&self, index: IndexId) -> Option<(Tree, u32)> {
        if index < CATALOG.index {
            return Some((CATALOG, CATALOG_NUMBER));
        }
        let entries = self.entries.lock();
        let all = entries.values().flat_map(|entry| entry.trees().map(|tree| (tree, entry.number)));
        all.filter(|(tree, _)| tree.index > index).min_by_key(|(tree, _)| tree.index)
    }

    /// Every table by name, with its primary tree and those of its indexes by their names.
    pub(crate) fn named_trees(&self) -> Vec<NamedTrees> {
        let indexes = |entry: &TableEntry| entry.secondaries.iter().map(|i| (i.name.clone(), i.tree)).collect();
        let trees =
            |(name, entry): (&String, &TableEntry)| (name.clone(), (entry.primary, entry.overflow), indexes(entry));
        self.entries.lock().iter().map(trees).collect()
    }

    /// Number, table and name of every index; a primary one has the table's name.
    pub(crate) fn indexes(&self) -> Vec<(u32, String, String)> {
        let entries = self.entries.lock();
        let mut all = Vec::new();
        for (table, entry) in entries.iter() {
            all.push((entry.primary.index.0, table.clone(), table.clone()));
            let secondaries = entry.secondaries.iter();
            all.extend(secondaries.map(|index| (index.tree.index.0, table.clone(), index.name.clone())));
        }
        all.sort_unstable();
        all
    }

    /// Root pages of all trees.
    pub(crate) fn roots(&self) -> Vec<PageId> {
        let entries = self.entries.lock();
        std::iter::once(CATALOG).chain(entries.values().flat_map(TableEntry::trees)).map(|tree| tree.root).collect()
    }

    /// The number of the open table that a program declares so, if it is known to match: takes no lock and writes
    /// nothing.
    #[inline]
    pub(crate) fn declared(&self, declared: &Declared<'_>) -> Option<u32> {
        self.guesses(declared.name).into_iter().find_map(|guess| {
            let number = guess.load(Ordering::Relaxed);
            self.table(number)?.fits(declared).then_some(number)
        })
    }

    /// Where a name's number may be: two places, so that only three names that share them are looked up again and
    /// again.
    #[inline]
    fn guesses(&self, name: &'static str) -> [&AtomicU32; 2] {
        let hash = (name.as_ptr() as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
        let at = hash >> (usize::BITS - GUESSES.ilog2());
        [&self.guesses[at], &self.guesses[at ^ 1]]
    }

    fn note_guess(&self, name: &'static str, number: u32) {
        let [first, second] = self.guesses(name);
        let free = [first, second].into_iter().find(|guess| guess.load(Ordering::Relaxed) == 0);
        free.unwrap_or(first).store(number, Ordering::Relaxed);
    }

    /// Opens a table that exists; returns its number, or `None` if there is none of this name.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has other indexes, [`TxnError::OtherCodec`] if it was created with other
    /// codecs.
    pub(crate) fn open(&self, declared: &Declared<'_>) -> Result<Option<u32>, TxnError> {
        let Some(entry) = self.entries.lock().get(declared.name).cloned() else { return Ok(None) };
        entry.check(declared)?;
        let info = self.open[entry.number as usize].get_or_init(|| entry.open(declared));
        if !info.has_indexes(declared) {
            let what = "an index of it was declared otherwise where this process opened it first: one declaration for \
                        all, or the same handle";
            return Err(declared.schema(what.into()));
        }
        if let Some((key, row)) = declared.codecs {
            info.verified.get_or_init(|| (declared.name, key, row));
            self.note_guess(declared.name, entry.number);
            if self.entry(declared.name).is_none_or(|now| now.number != entry.number) {
                // The table has been dropped since, and this guess may have been noted after all guesses were cleared.
                self.guesses(declared.name).into_iter().for_each(|guess| self.unnote_guess(guess, entry.number));
            }
        }
        Ok(Some(entry.number))
    }

    /// Creates the table if there is none; [`Catalog::open`] then finds it. `absence_held`: the caller's transaction
    /// has locked the table's absence (`table/absent.rs`). False if another transaction has, and the caller has to lock
    /// it first.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the name is not allowed or there are too many tables; no space.
    pub(crate) fn create(
        &self,
        engine: &Engine,
        declared: &Declared<'_>,
        absence_held: bool,
    ) -> Result<bool, TxnError> {
        declared.check_names()?;
        let _creator = Creator::wait(&self.creation, &*engine.hook);
        if self.entries.lock().contains_key(declared.name) {
            // Another transaction has created it meanwhile.
            return Ok(true);
        }
        let mut txn = engine.begin_creating()?;
        if !absence_held && !txn.try_lock_absence(declared.name)? {
            return Ok(false);
        }
        self.create_in(txn, declared)?;
        Ok(true)
    }

    /// Creates a table. The caller holds the turn: no other transaction creates one meanwhile.
    fn create_in(&self, mut txn: Txn<'_>, declared: &Declared<'_>) -> Result<(), TxnError> {
        let (number, mut index) = self.free_numbers(declared)?;
        let engine = txn.engine;
        let state = txn.slot.state();
        let change = engine.structure_change(state.id);
        let mut tree = |rec: &mut crate::log::RecordBuf| {
            index += 1;
            Tree::create(IndexId(index), change, rec)
        };
        let primary = tree(&mut state.rec)?;
        let overflow = Tree::create(Tree::overflow_index(primary.index), change, &mut state.rec)?;
        let mut secondaries = Vec::new();
        for spec in declared.specs() {
            let (name, unique, codec) = (spec.name.to_owned(), spec.unique, spec.codec_text());
            secondaries.push(IndexEntry { name, unique, codec, tree: tree(&mut state.rec)? });
        }
        let text = |codec: Option<&Codec>| codec.map_or_else(|| RAW.to_owned(), Codec::text);
        let (key, row) = (text(declared.codecs.map(|c| c.0)), text(declared.codecs.map(|c| c.1)));
        let entry = TableEntry { number, primary, overflow: Some(overflow), key, row, secondaries };
        txn.insert(&own_index(), declared.name.as_bytes(), &entry.encode())?;
        let end = txn.commit()?;
        engine.make_durable(end)?;
        self.entries.lock().insert(declared.name.to_owned(), entry);
        Ok(())
    }
}

/// The catalog's own index, for its rows and for the absence of tables.
pub(super) fn own_index() -> Index {
    let name: std::sync::Arc<str> = "catalog".into();
    Index { tree: CATALOG, overflow: None, lock_table: CATALOG_NUMBER, table: name.clone(), name }
}
