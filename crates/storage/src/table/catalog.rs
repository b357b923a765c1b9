//! The catalog: the existing tables and indexes, stored in the catalog's own table, and the open tables in memory.

use crate::base::sync::plain::{AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

use super::codec::Codec;
use super::codec::name::RAW;
use super::columns::WHOLE;
use super::contended::TableContention;
use super::creation::{CreationGuard, CreationTurn};
use super::declared::{Declared, LONGEST_NAME, TableHint};
use super::entry::{IndexEntry, TableEntry};
use super::index::{AccessMode, Index};
use super::info::TableInfo;
use super::mark::{INDEX_BOUND_KEY, PendingOperation};
use super::numbers::{MOST, Numbers, new_ticket};
use super::scan::{ScanEnd, ScanSpec};
use super::waits::TableWaits;
use crate::base::error::TxnError;
use crate::base::ids::{IndexId, PageId};
use crate::base::segmented_array::SegmentedArray;
use crate::base::sync::Mutex;
use crate::base::waits::Wait;
use crate::btree::Tree;
use crate::latch::LatchWaits;
use crate::lock::LockTable;
use crate::txn::active::SystemPurpose;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

/// Maximum number of tables of a database.
pub(crate) const MAX_TABLES: usize = MOST as usize - 2;

/// Number of index numbers that one write to the catalog reserves.
const AHEAD: u32 = 256;

/// Tree that stores the catalog's own table.
pub(crate) const CATALOG: Tree = Tree { index: IndexId(1), root: PageId(2) };
/// Table number of the catalog; numbers of other tables are higher.
pub(crate) const CATALOG_NUMBER: u32 = 1;

/// Name of a table, its primary tree, its tree of large values, and the names and trees of its secondary indexes.
pub(crate) type NamedTrees = (String, (Tree, Option<Tree>), Vec<(String, Tree)>);

/// The trees of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableTrees {
    /// Number of the table in memory, and the ticket under which the table is open; ticket 0 if the table is not open.
    pub(crate) open: (u32, u64),
    pub(crate) primary: Tree,
    pub(crate) overflow: Option<Tree>,
    /// Trees of the secondary indexes, each with its uniqueness.
    pub(crate) secondaries: Vec<(Tree, bool)>,
}

/// The catalog in memory.
#[derive(Debug)]
pub(crate) struct Catalog {
    tables: Mutex<Tables>,
    /// Exclusive turn to create or change a table. The turn is a flag protected by the mutex. The mutex itself is not
    /// held during a creation, because fibers of the creating thread may wait for the turn.
    pub(super) creation: Mutex<CreationTurn>,
    /// Assigned index numbers, which are never reused in a database.
    indexes: Mutex<UsedIndexes>,
    /// See [`Engine::instance`].
    instance: u64,
    /// Open and formerly open tables, indexed by table number. Handles find their tables here without a lock.
    open: SegmentedArray<OnceLock<Box<TableInfo>>>,
    /// Cache for [`Catalog::declared`]: numbers of open tables, indexed by a hash of the name's address. Written only
    /// after a cache miss. A cached number is checked against the open table.
    guesses: Box<[AtomicU32; GUESSES]>,
}

/// The existing tables and the free table numbers.
#[derive(Debug)]
struct Tables {
    entries: BTreeMap<Arc<str>, KnownTable>,
    /// Names of the tables that own the indexes, by index number.
    by_index: BTreeMap<u32, Arc<str>>,
    numbers: Numbers,
}

/// An existing table: its catalog entry, and its number in memory.
#[derive(Debug)]
struct KnownTable {
    /// The table's row in the catalog.
    entry: TableEntry,
    /// Number of the table in memory, assigned at the table's first use: see `table/numbers.rs`.
    number: Option<u32>,
}

impl Tables {
    fn put(&mut self, name: &str, entry: TableEntry, number: Option<u32>) {
        self.remove(name);
        let name: Arc<str> = name.into();
        self.by_index.extend(entry.trees().map(|tree| (tree.index.0, Arc::clone(&name))));
        self.entries.insert(name, KnownTable { entry, number });
    }

    fn remove(&mut self, name: &str) {
        if let Some(table) = self.entries.remove(name) {
            table.entry.trees().for_each(|tree| drop(self.by_index.remove(&tree.index.0)));
        }
    }
}

/// The assigned index numbers, which identify trees on disk.
#[derive(Debug)]
struct UsedIndexes {
    /// Highest index number assigned so far.
    last: u32,
    /// Upper bound (inclusive) of the assigned index numbers, as stored in the catalog.
    reserved_up_to: u32,
}

/// Number of entries of the cache `guesses`: a power of two, far above the number of table declarations in most
/// programs.
const GUESSES: usize = 512;

impl Catalog {
    /// Drops a table; returns false if there is no table of this name.
    ///
    /// # Errors
    /// An error of the wait for the table's lock; no space. See `table/dropping.rs` for failures after the decision.
    pub(crate) fn drop_table(&self, engine: &Engine, name: &str) -> Result<bool, TxnError> {
        self.end(engine, name, PendingOperation::Dropped)
    }

    /// Removes all rows of a table; returns false if there is no table of this name.
    ///
    /// # Errors
    /// As [`Catalog::drop_table`].
    pub(crate) fn truncate(&self, engine: &Engine, name: &str) -> Result<bool, TxnError> {
        self.end(engine, name, PendingOperation::Emptied)
    }

    /// Reads the catalog, and completes drops and truncations of tables that a crash interrupted.
    ///
    /// # Errors
    /// An error if the catalog cannot be read or decoded.
    pub(crate) fn load(engine: &Engine) -> Result<Catalog, TxnError> {
        let (entries, by_index) = (BTreeMap::new(), BTreeMap::new());
        let mut tables = Tables { entries, by_index, numbers: Numbers::new(CATALOG_NUMBER + 1) };
        let mut damaged = false;
        let mut marks = Vec::new();
        let mut reserved_up_to = CATALOG.index.0;
        let mut txn = engine.begin_system(SystemPurpose::Open)?;
        let wanted = ScanSpec { from: &[], to: ScanEnd::Never, access: AccessMode::Read, likely: usize::MAX };
        txn.scan(&own_index(), wanted, |key, row| {
            if let (INDEX_BOUND_KEY, Some(number)) = (key, row.first_chunk()) {
                reserved_up_to = reserved_up_to.max(u32::from_le_bytes(*number));
                return ControlFlow::Continue(());
            }
            match (PendingOperation::of_mark(key), String::from_utf8(key.to_vec()), TableEntry::decode(row)) {
                (Some(operation), _, Some(entry)) => marks.push((operation, entry)),
                (None, Ok(name), Some(entry)) if name.len() <= LONGEST_NAME => tables.put(&name, entry, None),
                _ => damaged = true,
            }
            ControlFlow::Continue(())
        })?;
        txn.commit()?;
        let marked = marks.iter().flat_map(|(_, entry)| entry.trees()).map(|tree| tree.index_number());
        if damaged
            || marked
                .chain(tables.by_index.keys().map(|index| Tree::number_of(IndexId(*index))))
                .any(|index| index > reserved_up_to)
        {
            let what = "has a row that is no table: it is damaged; restore a copy".into();
            return Err(TxnError::Schema { table: "catalog".into(), what });
        }
        let catalog = Catalog {
            tables: Mutex::new(tables),
            creation: Mutex::default(),
            // Numbers between the last assigned one and `reserved_up_to` are skipped.
            indexes: Mutex::new(UsedIndexes { last: reserved_up_to, reserved_up_to }),
            instance: engine.instance,
            open: SegmentedArray::default(),
            guesses: Box::new([const { AtomicU32::new(0) }; GUESSES]),
        };
        catalog.finish(engine, marks)?;
        Ok(catalog)
    }

    /// Returns the catalog's entry of a table, and the table's number. The number is not reused before the end of a
    /// transaction that the caller began before this call.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if no number is free.
    pub(super) fn entry(&self, engine: &Engine, name: &str) -> Result<Option<(TableEntry, u32)>, TxnError> {
        let Tables { entries, numbers, .. } = &mut *self.tables.lock();
        let Some(table) = entries.get_mut(name) else { return Ok(None) };
        let number = match table.number {
            Some(number) => number,
            None => numbers.take(engine, 0, |_| true).ok_or_else(|| too_many(name))?,
        };
        table.number = Some(number);
        Ok(Some((table.entry.clone(), number)))
    }

    /// Returns true if there is a table of this name.
    fn has(&self, name: &str) -> bool {
        self.tables.lock().entries.contains_key(name)
    }

    /// Reserves a table number for the changed table that `declared` describes and whose catalog entry will be `entry`.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if no number is free.
    pub(super) fn number_for(
        &self,
        engine: &Engine,
        declared: &Declared<'_>,
        entry: &TableEntry,
    ) -> Result<u32, TxnError> {
        self.take_number(engine, &mut self.tables.lock().numbers, declared, entry)
    }

    fn take_number(
        &self,
        engine: &Engine,
        numbers: &mut Numbers,
        declared: &Declared<'_>,
        entry: &TableEntry,
    ) -> Result<u32, TxnError> {
        let fits = |number| self.table(number).is_none_or(|info| info.can_be_reused_for(declared, entry));
        numbers.take(engine, entry.shape(declared), fits).ok_or_else(|| too_many(declared.name))
    }

    /// Releases a reserved number that no table uses.
    pub(super) fn give_number_back(&self, engine: &Engine, number: u32) {
        let shape = self.table(number).map_or(0, |info| info.shape);
        self.tables.lock().numbers.retire(engine, shape, number);
    }

    /// Assigns consecutive numbers to `n` new indexes; returns the first number. The caller holds the [`CreationGuard`]
    /// and has no open creating transaction.
    ///
    /// # Errors
    /// No space; [`TxnError::Schema`] if all index numbers have been used.
    pub(super) fn new_indexes(&self, engine: &Engine, declared: &Declared<'_>, n: u32) -> Result<u32, TxnError> {
        let (first, reserved_up_to) = {
            let mut used = self.indexes.lock();
            let Some(last) = used.last.checked_add(n).filter(|last| Tree::number_of(IndexId(*last)) == *last) else {
                let what = "no number is left for another index: every one of two billion has been used since the \
                            database was made; move its tables to a new database";
                return Err(declared.schema(what.into()));
            };
            let first = used.last + 1;
            used.last = last;
            (first, (last > used.reserved_up_to).then(|| last.saturating_add(AHEAD)))
        };
        if let Some(reserved_up_to) = reserved_up_to {
            let mut txn = engine.begin_creating()?;
            let row = reserved_up_to.to_le_bytes();
            match txn.fetch_for_write(&own_index(), INDEX_BOUND_KEY, WHOLE)? {
                Some(spot) => {
                    let after = &mut txn.slot.state().after;
                    after.clear();
                    after.extend_from_slice(&row);
                    txn.store(&own_index(), INDEX_BOUND_KEY, spot)?;
                }
                None => txn.insert(&own_index(), INDEX_BOUND_KEY, &row)?,
            }
            // The commit need not be durable yet: log records about the new indexes follow it in the log.
            txn.commit()?;
            self.indexes.lock().reserved_up_to = reserved_up_to;
        }
        Ok(first)
    }

    /// Records that the table with the number `old` now has other indexes and the number `new`, and opens it.
    pub(super) fn replace(&self, engine: &Engine, declared: &Declared<'_>, (old, new): (u32, u32), entry: TableEntry) {
        let mut tables = self.tables.lock();
        self.end_open(engine, &mut tables.numbers, old);
        self.place(declared, &entry, new);
        tables.put(declared.name, entry, Some(new));
    }

    /// Records that the table has been dropped.
    pub(super) fn forget(&self, engine: &Engine, name: &str, number: u32) {
        let mut tables = self.tables.lock();
        tables.remove(name);
        self.end_open(engine, &mut tables.numbers, number);
    }

    /// Closes an exclusively locked table: no statement finds the table any more, and lock requests of transactions
    /// that found the table earlier are refused.
    fn end_open(&self, engine: &Engine, numbers: &mut Numbers, number: u32) {
        let info = self.table(number);
        info.inspect(|info| info.end());
        engine.locks.mark_table_dropped(number);
        numbers.retire(engine, info.map_or(0, |info| info.shape), number);
    }

    /// Opens a table under the table number `number`; returns the open table and its ticket.
    fn place(&self, declared: &Declared<'_>, entry: &TableEntry, number: u32) -> (&TableInfo, u64) {
        let place = self.open.at(number as usize);
        let info = place.get_or_init(|| Box::new(TableInfo::new(number, declared, entry.shape(declared))));
        let ticket = new_ticket(self.instance);
        info.set_table(declared.name, entry, ticket);
        (info, ticket)
    }

    /// Returns the open or formerly open table with this table number.
    #[inline]
    pub(crate) fn table(&self, number: u32) -> Option<&TableInfo> {
        self.open.get(number as usize)?.get().map(|info| &**info)
    }

    /// Returns the names of all tables.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tables.lock().entries.keys().map(|name| name.as_ref().to_owned()).collect()
    }

    /// Returns the trees of all tables, the catalog's own first.
    pub(crate) fn trees(&self) -> Vec<TableTrees> {
        let own = TableTrees { open: (0, 0), primary: CATALOG, overflow: None, secondaries: Vec::new() };
        let open = |number: u32| self.table(number).map_or((0, 0), |info| (number, info.ticket()));
        let tables = self.tables.lock();
        let tables = tables.entries.values().map(|KnownTable { entry, number }| TableTrees {
            open: number.map_or((0, 0), open),
            primary: entry.primary,
            overflow: entry.overflow,
            secondaries: entry.secondaries.iter().map(|index| (index.tree, index.unique)).collect(),
        });
        std::iter::once(own).chain(tables).collect()
    }

    /// Returns the tree with this index number, and the number of its table; `None` if no table has (any longer) such a
    /// tree. The table number is not reused before the end of a transaction that the caller began before this call.
    pub(crate) fn tree(&self, engine: &Engine, index: IndexId) -> Option<(Tree, u32)> {
        if index == CATALOG.index {
            return Some((CATALOG, CATALOG_NUMBER));
        }
        let Tables { entries, by_index, numbers } = &mut *self.tables.lock();
        let table = entries.get_mut(by_index.get(&index.0)?)?;
        let tree = table.entry.trees().find(|tree| tree.index == index)?;
        let number = match table.number {
            Some(number) => number,
            None => numbers.take(engine, 0, |_| true)?,
        };
        table.number = Some(number);
        Some((tree, number))
    }

    /// Returns the index with this number, for lock requests; `None` if no table has (any longer) such an index. The
    /// note of [`Catalog::tree`] on the reuse of table numbers applies.
    pub(crate) fn index(&self, engine: &Engine, id: IndexId) -> Option<Index> {
        if id == CATALOG.index {
            return Some(own_index());
        }
        let (tree, number) = self.tree(engine, id)?;
        let tables = self.tables.lock();
        let (table, KnownTable { entry, .. }) = tables.entries.get_key_value(tables.by_index.get(&id.0)?)?;
        let secondary = entry.secondaries.iter().find(|index| index.tree == tree);
        let overflow = entry.overflow.filter(|_| tree == entry.primary);
        Some(Index::new((tree, overflow), number, table, secondary.map(|index| index.name.as_str().into())))
    }

    /// Returns the number of the tree with the next higher index number.
    pub(crate) fn index_after(&self, index: IndexId) -> Option<IndexId> {
        if index < CATALOG.index {
            return Some(CATALOG.index);
        }
        let above = (Bound::Excluded(index.0), Bound::Unbounded);
        self.tables.lock().by_index.range(above).next().map(|(index, _)| IndexId(*index))
    }

    /// Returns the name, the primary tree and the named index trees of every table.
    pub(crate) fn named_trees(&self) -> Vec<NamedTrees> {
        let indexes = |entry: &TableEntry| entry.secondaries.iter().map(|i| (i.name.clone(), i.tree)).collect();
        let tables = self.tables.lock();
        let tables = tables.entries.iter().map(|(name, table)| (name, &table.entry));
        tables
            .map(|(name, entry)| (name.as_ref().to_owned(), (entry.primary, entry.overflow), indexes(entry)))
            .collect()
    }

    /// Returns the number, the table's name and the index's name of every index, in ascending order of numbers. A
    /// primary index has the name of its table.
    pub(crate) fn indexes(&self) -> Vec<(u32, String, String)> {
        let tables = self.tables.lock();
        let name_in = |table: &str, number: u32| {
            let entry = &tables.entries.get(table)?.entry;
            entry.secondaries.iter().find(|index| index.tree.index.0 == number).map(|index| index.name.clone())
        };
        let indexes = tables.by_index.iter().filter(|(number, _)| Tree::number_of(IndexId(**number)) == **number);
        let named = indexes.map(|(number, table)| {
            let name = name_in(table, *number).unwrap_or_else(|| table.as_ref().to_owned());
            (*number, table.as_ref().to_owned(), name)
        });
        named.collect()
    }

    /// Returns the number for locks and the name of every open table.
    #[cfg(feature = "measure")]
    pub(crate) fn lock_tables(&self) -> Vec<(u32, String)> {
        let tables = self.tables.lock();
        tables.entries.iter().filter_map(|(name, table)| Some((table.number?, name.as_ref().to_owned()))).collect()
    }

    /// Returns the contention for the leaves of every table that was used since the database was opened.
    pub(crate) fn contention(&self) -> Vec<TableContention> {
        let tables = self.tables.lock();
        let open = tables.entries.iter().filter_map(|(name, table)| {
            let counters = self.table(table.number?)?.primary.contention();
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Some(TableContention {
                table: name.as_ref().to_owned(),
                leaves_contended: read(&counters.contended),
                splits_for_contention: read(&counters.splits),
            })
        });
        open.collect()
    }

    /// Adds up the waits for locks and for latches of each table that was used since the database was opened, in the order
    /// of their names.
    pub(crate) fn waits(&self, locks: &LockTable, latches: &LatchWaits) -> Vec<TableWaits> {
        let tables = self.tables.lock();
        let mut waits: BTreeMap<&str, TableWaits> = BTreeMap::new();
        for (name, table) in &tables.entries {
            let Some(number) = table.number else { continue };
            let lock = locks.waits_of(number);
            waits.insert(name, TableWaits { table: name.as_ref().to_owned(), lock, latch: Wait::default() });
        }
        for (index, wait) in latches.by_index() {
            let table = tables.by_index.get(&index.0).and_then(|name| waits.get_mut(name.as_ref()));
            if let Some(table) = table {
                table.latch += wait;
            }
        }
        waits.into_values().collect()
    }

    /// Returns the root pages of all trees.
    pub(crate) fn roots(&self) -> Vec<PageId> {
        let tables = self.tables.lock();
        let trees = tables.entries.values().flat_map(|table| table.entry.trees());
        std::iter::once(CATALOG).chain(trees).map(|tree| tree.root).collect()
    }

    /// Returns the open table of a declaration, if the table is already known to match the declaration. Takes no lock
    /// and writes nothing.
    #[inline]
    pub(crate) fn declared(&self, declared: &Declared<'_>) -> Option<&TableInfo> {
        if let Some(hint) = declared.hint {
            return self.table_at_hint(hint);
        }
        self.guesses(declared.name).into_iter().find_map(|guess| {
            let info = self.table(guess.load(Ordering::Relaxed))?;
            info.fits(declared).then_some(info)
        })
    }

    #[inline(never)]
    fn table_at_hint(&self, hint: &TableHint) -> Option<&TableInfo> {
        let (number, ticket) = hint.get();
        self.table(number).filter(|info| ticket != 0 && info.is(ticket))
    }

    /// Returns the two cache entries that may contain a name. With two possible entries, names evict each other
    /// repeatedly only if at least three of them share the same entries.
    #[inline]
    fn guesses(&self, name: &str) -> [&AtomicU32; 2] {
        let hash = (name.as_ptr() as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
        let at = hash >> (usize::BITS - GUESSES.ilog2());
        [&self.guesses[at], &self.guesses[at ^ 1]]
    }

    fn note_guess(&self, name: &str, number: u32) {
        let [first, second] = self.guesses(name);
        let is_free = |guess: &&AtomicU32| self.table(guess.load(Ordering::Relaxed)).is_none_or(|info| info.is(0));
        let free = [first, second].into_iter().find(is_free);
        free.unwrap_or(first).store(number, Ordering::Relaxed);
    }

    /// Opens an existing table; returns the table and its ticket, or `None` if there is no table of this name.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has other indexes, [`TxnError::OtherCodec`] if it was created with other
    /// codecs.
    pub(crate) fn open(&self, engine: &Engine, declared: &Declared<'_>) -> Result<Option<(&TableInfo, u64)>, TxnError> {
        let Tables { entries, numbers, .. } = &mut *self.tables.lock();
        let Some(KnownTable { entry, number }) = entries.get_mut(declared.name) else { return Ok(None) };
        entry.check(declared)?;
        let at = match *number {
            Some(at) => at,
            None => self.take_number(engine, numbers, declared, entry)?,
        };
        *number = Some(at);
        let (info, ticket) = match self.table(at) {
            Some(info) if !info.is(0) => (info, info.ticket()),
            _ => self.place(declared, entry, at),
        };
        if !info.has_indexes(declared) {
            let what = "an index of it was declared otherwise where this process opened it first: one declaration for \
                        all, or the same handle";
            return Err(declared.schema(what.into()));
        }
        info.verified(declared);
        match (declared.codecs, declared.hint) {
            (None, _) => {}
            (Some(_), Some(hint)) => hint.set(at, ticket),
            (Some(_), None) => self.note_guess(declared.name, at),
        }
        Ok(Some((info, ticket)))
    }

    /// Creates the table if it does not exist; [`Catalog::open`] then finds it. `absence_held` is true if the caller's
    /// transaction has locked the table's absence (`table/absent.rs`). Returns false if another transaction has locked
    /// the absence; the caller must then lock the absence first.
    ///
    /// The table is durable with the next commit.
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
        let _guard = CreationGuard::acquire(&self.creation, &*engine.hook);
        if self.has(declared.name) {
            // Another transaction has created the table.
            return Ok(true);
        }
        if self.tables.lock().entries.len() >= MAX_TABLES {
            return Err(too_many(declared.name));
        }
        let index = self.new_indexes(engine, declared, 1 + declared.specs().count() as u32)?;
        let mut txn = engine.begin_creating()?;
        if !absence_held && !txn.try_lock_absence(declared.name)? {
            return Ok(false);
        }
        self.create_in(txn, declared, index)?;
        Ok(true)
    }

    /// Creates a table whose first index has the number `first`. The caller holds the [`CreationGuard`], so no other
    /// transaction creates a table at the same time.
    fn create_in(&self, mut txn: Txn<'_>, declared: &Declared<'_>, first: u32) -> Result<(), TxnError> {
        let mut trees = Vec::new();
        let entry = match make(&mut txn, declared, first, &mut trees) {
            Ok(entry) => entry,
            Err(error) => {
                let change = txn.engine.structure_change(txn.slot.peek().id);
                for tree in trees {
                    // Pages that cannot be freed now are lost: no catalog row refers to them.
                    let _ = tree.give_root_back(change, &mut txn.slot.state().rec);
                }
                return Err(error);
            }
        };
        txn.commit()?;
        self.tables.lock().put(declared.name, entry, None);
        Ok(())
    }
}

/// Creates the trees of a table, and the table's row in the catalog. Appends the created trees to `trees`, also on an
/// error.
fn make(txn: &mut Txn<'_>, declared: &Declared<'_>, first: u32, trees: &mut Vec<Tree>) -> Result<TableEntry, TxnError> {
    let change = txn.engine.structure_change(txn.slot.peek().id);
    let mut index = first;
    let mut tree = |txn: &mut Txn<'_>| {
        let tree = Tree::create(IndexId(index), change, &mut txn.slot.state().rec)?;
        trees.push(tree);
        index += 1;
        Ok::<_, TxnError>(tree)
    };
    let primary = tree(txn)?;
    let mut secondaries = Vec::new();
    for spec in declared.specs() {
        let (name, unique, codec) = (spec.name.to_owned(), spec.unique, spec.codec_text());
        secondaries.push(IndexEntry { name, unique, codec, tree: tree(txn)? });
    }
    let overflow = Tree::create(Tree::overflow_index(primary.index), change, &mut txn.slot.state().rec)?;
    trees.push(overflow);
    let text = |codec: Option<&Codec>| codec.map_or_else(|| RAW.to_owned(), Codec::text);
    let (key, row) = (text(declared.codecs.map(|c| c.0)), text(declared.codecs.map(|c| c.1)));
    let entry = TableEntry { primary, overflow: Some(overflow), key, row, secondaries };
    txn.insert(&own_index(), declared.name.as_bytes(), &entry.encode())?;
    Ok(entry)
}

/// Returns the error for a database without a free table number.
#[cold]
fn too_many(name: &str) -> TxnError {
    let what = format!(
        "cannot be used: {MAX_TABLES} tables are, beside each other or in transactions that began before they were \
         dropped; end those, or drop tables"
    );
    TxnError::Schema { table: name.into(), what }
}

/// Returns the primary index of the catalog's own table.
pub(super) fn own_index() -> Index {
    Index::new((CATALOG, None), CATALOG_NUMBER, "catalog", None)
}
