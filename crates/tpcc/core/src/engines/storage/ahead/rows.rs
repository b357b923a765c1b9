//! Access to the rows of the storage engine as a [`speculate::Store`]. Epochs read rows optimistically, without locks. The
//! transaction then locks and validates the read rows in order.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;
use speculate::{KeyRange, RangeRow, RangeStore, Seen, SeenRange, Written};
use storage::optimistic::{Peeker, Place};
use storage::{OpenTable, Raw, Transaction};

use crate::engines::storage::codec::KeyBytes;
use crate::engines::storage::store::{Store, StoreError, bytes_of_part};
use crate::workload::schema::parts::Part;
use crate::workload::schema::tables::TableMaker;
use crate::workload::schema::{Key as _, PerTable, RowOf, TableDef, TableFamily, TableId};

/// Access to the rows of a store. Handles and row sizes of the tables are indexed by table number.
pub struct RowStore<'s> {
    store: &'s Store,
    tables: Vec<(OpenTable<Raw, Raw>, usize)>,
}

impl<'s> RowStore<'s> {
    /// Creates an accessor to the rows of all tables.
    pub fn new(store: &'s Store) -> RowStore<'s> {
        let mut collector = HandleCollector { store, tables: Vec::new() };
        let Ok(_) = PerTable::<NoMembers>::try_new(&mut collector);
        RowStore { store, tables: collector.tables }
    }

    fn table(&self, key: &RowKey) -> &OpenTable<Raw, Raw> {
        &self.tables[key.table as usize].0
    }
}

struct NoMembers;

impl TableFamily for NoMembers {
    type Of<T: TableDef> = ();
}

/// Collects the handle and the row size of each table, in the order of [`TableId::ALL`].
struct HandleCollector<'s> {
    store: &'s Store,
    tables: Vec<(OpenTable<Raw, Raw>, usize)>,
}

impl TableMaker<NoMembers> for HandleCollector<'_> {
    type Error = std::convert::Infallible;

    fn make<T: TableDef>(&mut self) -> Result<(), Self::Error> {
        self.tables.push((*T::of(&self.store.tables), size_of::<RowOf<T>>()));
        Ok(())
    }
}

/// Key of a row of a table, or of a part of a row.
#[derive(Clone, Copy)]
pub struct RowKey {
    table: TableId,
    len: u8,
    part: RowPart,
    bytes: KeyBytes,
}

/// Byte range of a part of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowPart {
    from: u16,
    to: u16,
}

impl RowPart {
    /// The whole row, of any length.
    const WHOLE: RowPart = RowPart { from: 0, to: u16::MAX };

    #[inline]
    fn range(self) -> Range<usize> {
        usize::from(self.from)..if self.to == u16::MAX { usize::MAX } else { usize::from(self.to) }
    }
}

impl RowKey {
    /// Creates the key of a whole row.
    #[inline]
    pub fn of<T: TableDef>(key: &T::Key) -> RowKey {
        RowKey { table: T::TABLE, len: T::Key::LEN as u8, part: RowPart::WHOLE, bytes: KeyBytes::of(key) }
    }

    /// Creates the key of a part of a row. An epoch treats the part as unrelated to the whole row, so the loop must not
    /// write the row.
    #[inline]
    pub(super) fn of_part<P: Part>(key: &<P::Table as TableDef>::Key) -> RowKey {
        let Range { start, end } = bytes_of_part::<P>();
        RowKey { part: RowPart { from: start as u16, to: end as u16 }, ..RowKey::of::<P::Table>(key) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.first(usize::from(self.len))
    }

    /// Creates the key of another row of the same table. All keys of a table have the same length.
    fn beside(&self, key: &[u8]) -> RowKey {
        RowKey { bytes: KeyBytes::from_bytes(key), ..*self }
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &RowKey) -> bool {
        self.table == other.table && self.part == other.part && self.bytes() == other.bytes()
    }
}

impl Eq for RowKey {}

impl Hash for RowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.table as u8);
        state.write(self.bytes());
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &RowKey) -> Ordering {
        let by_key = || self.bytes().cmp(other.bytes());
        self.table.cmp(&other.table).then_with(by_key).then_with(|| self.part.cmp(&other.part))
    }
}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &RowKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Bytes of a row, in a buffer that the thread reuses.
pub struct RowBytes {
    bytes: Vec<u8>,
    /// True for a row to be inserted, whose key must not exist.
    is_new: bool,
}

/// Maximum number of free row buffers per thread.
const SPARE: usize = 256;

thread_local! {
    /// Free row buffers of the thread.
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl RowBytes {
    /// Copies an existing row.
    #[inline]
    pub(super) fn of(row: &[u8]) -> RowBytes {
        let mut bytes = SPARES.with_borrow_mut(Vec::pop).unwrap_or_default();
        bytes.extend_from_slice(row);
        RowBytes { bytes, is_new: false }
    }

    /// Copies a row to be inserted.
    #[inline]
    pub(super) fn inserted(row: &[u8]) -> RowBytes {
        let mut inserted = RowBytes::of(row);
        inserted.is_new = true;
        inserted
    }

    /// Marks the row as the replacement of an existing row.
    #[inline]
    pub(super) fn replacing(mut self) -> RowBytes {
        self.is_new = false;
        self
    }

    /// Returns the bytes of the row.
    #[inline]
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of the row for changes.
    #[inline]
    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Clone for RowBytes {
    #[inline]
    fn clone(&self) -> RowBytes {
        let mut copy = RowBytes::of(&self.bytes);
        copy.is_new = self.is_new;
        copy
    }
}

impl Drop for RowBytes {
    #[inline]
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // At the end of the thread, the thread-local may be destroyed already.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARE {
                spares.push(bytes);
            }
        });
    }
}

impl<'s> speculate::Store for RowStore<'s> {
    type Key = RowKey;
    type Value = RowBytes;
    type Stamp = Place;
    type Local = Peeker;
    type Order = Transaction<'s>;
    type Error = StoreError;

    fn size(&self, _: &RowKey, row: Option<&RowBytes>) -> usize {
        size_of::<RowKey>() + row.map_or(0, |row| size_of::<RowBytes>() + row.bytes.len())
    }

    fn announce(&self, peeker: &mut Peeker, keys: &[RowKey]) {
        if self.store.prefetch {
            let rows = keys.iter().map(|key| {
                let (table, len) = self.tables[key.table as usize];
                (table, key.bytes(), len.min(usize::from(key.part.to)))
            });
            self.store.db.raw().announce(peeker, rows);
        }
    }

    fn group(&self, key: &RowKey) -> u64 {
        key.table as u64
    }

    fn peek(&self, peeker: &mut Peeker, key: &RowKey) -> Result<(Option<RowBytes>, Place), StoreError> {
        let (row, place) =
            self.store.db.raw().peek_columns(peeker, self.table(key), key.bytes(), &[key.part.range()])?;
        Ok((row.map(RowBytes::of), place))
    }

    fn confirm(&self, tx: &mut Transaction<'s>, seen: Seen<'_, Self>) -> Result<bool, StoreError> {
        let Seen { key, value, stamp, to_write } = seen;
        let seen = value.map(RowBytes::get);
        Ok(tx.raw_mut().confirm_columns(self.table(key), key.bytes(), stamp, (&[key.part.range()], seen), to_write)?)
    }

    fn read(&self, tx: &mut Transaction<'s>, key: &RowKey) -> Result<Option<RowBytes>, StoreError> {
        Ok(tx.raw().read_columns(self.table(key), key.bytes(), &[key.part.range()], RowBytes::of)?)
    }

    fn write(&self, tx: &mut Transaction<'s>, write: &Written<'_, Self>) -> Result<(), StoreError> {
        let (table, key) = (self.table(write.key), write.key.bytes());
        match write.value {
            None => drop(tx.raw_mut().delete(table, key)?),
            Some(row) if row.is_new => tx.raw_mut().insert(table, key, row.get())?,
            Some(row) => {
                tx.raw_mut().update(table, key, |old| {
                    old.clear();
                    old.extend_from_slice(row.get());
                })?;
            }
        }
        Ok(())
    }

    /// Replaces the rows that were read first, table by table. Then performs the other writes, and groups inserts of
    /// neighbouring rows. The writes to one row keep their order: only the first write of an epoch to a row can replace a
    /// row that the epoch has read.
    fn write_all(&self, tx: &mut Transaction<'s>, writes: &[Written<'_, Self>]) -> Result<(), StoreError> {
        let replacing = writes.iter().filter(|write| replaces(write));
        let replaced_in = replacing.fold(0_u32, |tables, write| tables | 1 << write.key.table as u8);
        for table in TableId::ALL {
            if replaced_in & 1 << table as u8 != 0 {
                let replaced = |write: &'_ &Written<'_, Self>| write.key.table == table && replaces(write);
                let rows = writes.iter().filter(replaced).filter_map(|write| {
                    let (seen, row) = (write.seen.as_ref()?, write.value?);
                    Some((write.key.bytes(), *seen.stamp, row.get()))
                });
                tx.raw_mut().replace_many(&self.tables[table as usize].0, rows)?;
            }
        }
        let mut inserts: SmallVec<[(&[u8], &[u8]); RUN]> = SmallVec::new();
        let mut of = None;
        for write in writes.iter().filter(|write| !replaces(write)) {
            match write.value {
                Some(row) if row.is_new => {
                    let key = write.key.bytes();
                    let goes_on = of == Some(write.key.table) && inserts.last().is_none_or(|(last, _)| *last < key);
                    if !goes_on {
                        self.insert_run(tx, of, &mut inserts)?;
                    }
                    of = Some(write.key.table);
                    inserts.push((key, row.get()));
                }
                _ => {
                    self.insert_run(tx, of, &mut inserts)?;
                    self.write(tx, write)?;
                }
            }
        }
        self.insert_run(tx, of, &mut inserts)
    }
}

/// Returns both ends of a key range as bytes.
fn range_bytes(range: &KeyRange<RowKey>) -> (&[u8], &[u8]) {
    (range.first.bytes(), range.last.bytes())
}

impl<'s> RangeStore for RowStore<'s> {
    fn peek_range(
        &self,
        peeker: &mut Peeker,
        range: &KeyRange<RowKey>,
        most: usize,
    ) -> Result<Vec<RangeRow<Self>>, StoreError> {
        let mut rows = Vec::with_capacity(most.min(RUN));
        let table = self.table(&range.first);
        self.store.db.raw().peek_range(peeker, table, range_bytes(range), most, |key, row, stamp| {
            rows.push(RangeRow { key: range.first.beside(key), value: RowBytes::of(row), stamp });
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn confirm_range(&self, tx: &mut Transaction<'s>, seen: SeenRange<'_, Self>) -> Result<bool, StoreError> {
        let SeenRange { range, most, to_write, .. } = seen;
        let (mut expected, mut same) = (seen.rows(), true);
        tx.raw_mut().lock_range(self.table(&range.first), range_bytes(range), most, to_write, |key, row| {
            same = expected.next().is_some_and(|(k, value)| k.bytes() == key && value.get() == row);
            if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(same && expected.next().is_none())
    }

    fn read_range(
        &self,
        tx: &mut Transaction<'s>,
        range: &KeyRange<RowKey>,
        most: usize,
    ) -> Result<Vec<(RowKey, RowBytes)>, StoreError> {
        let mut rows = Vec::new();
        tx.raw_mut().lock_range(self.table(&range.first), range_bytes(range), most, false, |key, row| {
            rows.push((range.first.beside(key), RowBytes::of(row)));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

/// Inline capacity of lists of neighbouring rows and of announced keys.
pub(super) const RUN: usize = 32;

/// Returns true if a write replaces a row that was read.
fn replaces(write: &Written<'_, RowStore<'_>>) -> bool {
    write.value.is_some_and(|row| !row.is_new) && write.seen.as_ref().is_some_and(|seen| seen.value.is_some())
}

impl<'s> RowStore<'s> {
    fn insert_run(
        &self,
        tx: &mut Transaction<'s>,
        table: Option<TableId>,
        rows: &mut SmallVec<[(&[u8], &[u8]); RUN]>,
    ) -> Result<(), StoreError> {
        if let Some(table) = table
            && !rows.is_empty()
        {
            tx.raw_mut().insert_run(&self.tables[table as usize].0, rows)?;
            rows.clear();
        }
        Ok(())
    }
}
