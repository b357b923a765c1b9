//! RowStore of the storage engine as a [`speculate::Store`]: epochs peek at them without locks, and the transaction locks and
//! confirms them in order.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;

use smallvec::SmallVec;
use speculate::{Epoch, KeyRange, LoopError, RangeRow, RangeStore, Seen, SeenRange, Speculator, Written};
use storage::optimistic::{Peeker, Place};
use storage::{OpenTable, Raw, Transaction};
use zerocopy::FromBytes;

use super::codec::{KeyBytes, bytes_of, key_of, row_of};
use super::store::{Store, StoreError, StoreTransaction, decoded, layout};
use crate::workload::ops::RowOps;
use crate::workload::schema::tables::TableMaker;
use crate::workload::schema::{Key as _, PerTable, RowOf, TableDef, TableFamily, TableId};
use crate::workload::txn::Failure;

/// The tables of a store, by number.
pub(crate) struct RowStore<'s> {
    store: &'s Store,
    tables: Vec<(OpenTable<Raw, Raw>, usize)>,
}

impl<'s> RowStore<'s> {
    /// All tables.
    pub(crate) fn new(store: &'s Store) -> RowStore<'s> {
        let mut by_number = ByNumber { store, tables: Vec::new() };
        let Ok(_) = PerTable::<Nothing>::try_new(&mut by_number);
        RowStore { store, tables: by_number.tables }
    }

    fn table(&self, key: &RowKey) -> &OpenTable<Raw, Raw> {
        &self.tables[key.table as usize].0
    }
}

struct Nothing;

impl TableFamily for Nothing {
    type Of<T: TableDef> = ();
}

/// Lists the handle and the size of a row of each table, in the order of [`TableId::ALL`].
struct ByNumber<'s> {
    store: &'s Store,
    tables: Vec<(OpenTable<Raw, Raw>, usize)>,
}

impl TableMaker<Nothing> for ByNumber<'_> {
    type Error = std::convert::Infallible;

    fn make<T: TableDef>(&mut self) -> Result<(), Self::Error> {
        self.tables.push((*T::of(&self.store.tables), size_of::<RowOf<T>>()));
        Ok(())
    }
}

/// A row of a table.
#[derive(Clone, Copy)]
pub(crate) struct RowKey {
    table: TableId,
    len: u8,
    bytes: KeyBytes,
}

impl RowKey {
    /// The key's row.
    #[inline]
    pub(crate) fn of<T: TableDef>(key: &T::Key) -> RowKey {
        RowKey { table: T::TABLE, len: T::Key::LEN as u8, bytes: KeyBytes::of(key) }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.first(usize::from(self.len))
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &RowKey) -> bool {
        self.table == other.table && self.bytes() == other.bytes()
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
        self.table.cmp(&other.table).then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &RowKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// RowStore up to this length need no memory of their own.
const INLINE: usize = 320;

/// A row's bytes.
pub(crate) struct RowBytes {
    bytes: SmallVec<[u8; INLINE]>,
    /// To be inserted under a key that must be new.
    is_new: bool,
}

impl RowBytes {
    /// A row that is there.
    fn of(row: &[u8]) -> RowBytes {
        RowBytes { bytes: SmallVec::from_slice(row), is_new: false }
    }
}

impl Clone for RowBytes {
    fn clone(&self) -> RowBytes {
        RowBytes { bytes: SmallVec::from_slice(&self.bytes), is_new: self.is_new }
    }
}

impl<'s> speculate::Store for RowStore<'s> {
    type Key = RowKey;
    type Value = RowBytes;
    type Stamp = Place;
    type Local = Peeker;
    type Order = Transaction<'s>;
    type Error = StoreError;

    fn announce(&self, peeker: &mut Peeker, keys: &[RowKey]) {
        if self.store.prefetch {
            let rows = keys.iter().map(|key| {
                let (table, len) = self.tables[key.table as usize];
                (table, key.bytes(), len)
            });
            self.store.db.announce_raw(peeker, rows);
        }
    }

    fn peek(&self, peeker: &mut Peeker, key: &RowKey) -> Result<(Option<RowBytes>, Place), StoreError> {
        let (row, place) = self.store.db.peek_raw(peeker, self.table(key), key.bytes())?;
        Ok((row.map(RowBytes::of), place))
    }

    fn confirm(&self, tx: &mut Transaction<'s>, seen: Seen<'_, Self>) -> Result<bool, StoreError> {
        let Seen { key, value, stamp, to_write } = seen;
        Ok(tx.confirm_raw(self.table(key), key.bytes(), stamp, value.map(|row| &row.bytes[..]), to_write)?)
    }

    fn read(&self, tx: &mut Transaction<'s>, key: &RowKey) -> Result<Option<RowBytes>, StoreError> {
        Ok(tx.read_raw(self.table(key), key.bytes(), RowBytes::of)?)
    }

    fn write(&self, tx: &mut Transaction<'s>, write: &Written<'_, Self>) -> Result<(), StoreError> {
        let (table, key) = (self.table(write.key), write.key.bytes());
        match write.value {
            None => drop(tx.delete_raw(table, key)?),
            Some(row) if row.is_new => tx.insert_raw(table, key, &row.bytes)?,
            Some(row) => {
                tx.update_raw(table, key, |old| {
                    old.clear();
                    old.extend_from_slice(&row.bytes);
                })?;
            }
        }
        Ok(())
    }

    /// RowStore that were seen are replaced first, table by table; then comes what is left, neighbours that are inserted
    /// together. What happens to one row keeps its order: the first that an epoch does to a row is what it does to the
    /// row that it has seen.
    fn write_all(&self, tx: &mut Transaction<'s>, writes: &[Written<'_, Self>]) -> Result<(), StoreError> {
        let replacing = writes.iter().filter(|write| replaces(write));
        let replaced_in = replacing.fold(0_u32, |tables, write| tables | 1 << write.key.table as u8);
        for table in TableId::ALL {
            if replaced_in & 1 << table as u8 != 0 {
                let replaced = |write: &'_ &Written<'_, Self>| write.key.table == table && replaces(write);
                let rows = writes.iter().filter(replaced).filter_map(|write| {
                    let (seen, row) = (write.seen.as_ref()?, write.value?);
                    Some((write.key.bytes(), *seen.stamp, &row.bytes[..]))
                });
                tx.replace_many_raw(&self.tables[table as usize].0, rows)?;
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
                    inserts.push((key, &row.bytes));
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

impl RowKey {
    /// The same table's row of another key. Keys of a table have one length.
    fn beside(&self, key: &[u8]) -> RowKey {
        RowKey { bytes: KeyBytes::from_bytes(key), ..*self }
    }
}

/// Both ends of a range.
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
        let mut rows = Vec::new();
        let table = self.table(&range.first);
        self.store.db.peek_range_raw(peeker, table, range_bytes(range), most, |key, row, stamp| {
            rows.push(RangeRow { key: range.first.beside(key), value: RowBytes::of(row), stamp });
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn confirm_range(&self, tx: &mut Transaction<'s>, seen: SeenRange<'_, Self>) -> Result<bool, StoreError> {
        let SeenRange { range, most, to_write, .. } = seen;
        let (mut expected, mut same) = (seen.rows(), true);
        tx.lock_range_raw(self.table(&range.first), range_bytes(range), most, to_write, |key, row| {
            same = expected.next().is_some_and(|(k, value)| k.bytes() == key && value.bytes[..] == *row);
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
        tx.lock_range_raw(self.table(&range.first), range_bytes(range), most, false, |key, row| {
            rows.push((range.first.beside(key), RowBytes::of(row)));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

/// RowStore of a run for which no memory is taken.
const RUN: usize = 32;

/// Whether a write replaces a row that was seen.
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
            tx.insert_run_raw(&self.tables[table as usize].0, rows)?;
            rows.clear();
        }
        Ok(())
    }
}

impl<'s> StoreTransaction<'s> {
    /// Runs the steps of a loop ahead of the transaction, on the threads of `speculator`; `take` gets what they return, in
    /// order.
    pub(crate) fn run_ahead<I, T: Send>(
        &mut self,
        speculator: &mut Speculator<RowStore<'s>>,
        rows: &RowStore<'s>,
        items: I,
        body: impl Fn(&mut EpochOps<'_, '_, 's>, &I::Item) -> Result<T, Failure<StoreError>> + Sync,
        take: impl FnMut(T) + Send,
    ) -> Result<(), Failure<StoreError>>
    where
        I: IntoIterator<Item: Send>,
        I::IntoIter: Send,
    {
        // Each thread that holds the token goes on with the transaction.
        self.tx.hand_over();
        let body = |epoch: &mut Epoch<'_, RowStore<'s>>, item: &I::Item| body(&mut EpochOps(epoch), item);
        speculator.collect(rows, &mut self.tx, items, body, take).map_err(|error| match error {
            LoopError::Body(failure) => failure,
            LoopError::Store(error) => Failure::Engine(error),
            other => Failure::Engine(StoreError::Speculation(other.to_string())),
        })
    }
}

/// The statements of a transaction's steps, in an epoch that runs ahead of it.
pub(crate) struct EpochOps<'e, 'l, 's>(&'e mut Epoch<'l, RowStore<'s>>);

impl EpochOps<'_, '_, '_> {
    /// Says which rows, perhaps of several tables, will be needed soon.
    pub(crate) fn announce_rows(&mut self, rows: &[RowKey]) {
        self.0.announce(rows);
    }
}

impl RowOps for EpochOps<'_, '_, '_> {
    type Error = StoreError;

    #[track_caller]
    fn row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        mut f: impl FnMut(&RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        decoded::<T, _>(self.0.view(&RowKey::of::<T>(key), |row| row.map(|row| row_of::<T>(&row.bytes).map(&mut f)))?)
    }

    #[track_caller]
    fn update_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, StoreError> {
        let key = RowKey::of::<T>(key);
        let Some(mut row) = self.0.get(&key)? else { return Ok(None) };
        row.is_new = false;
        let Ok(columns) = RowOf::<T>::mut_from_bytes(&mut row.bytes) else { return decoded::<T, _>(Some(None)) };
        let answer = f(&mut columns.hot, &columns.cold);
        self.0.put(key, row);
        Ok(Some(answer))
    }

    #[track_caller]
    fn insert_row<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), StoreError> {
        let bytes = SmallVec::from_slice(bytes_of::<T>(row));
        self.0.put(RowKey::of::<T>(key), RowBytes { bytes, is_new: true });
        Ok(())
    }

    #[track_caller]
    fn rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        for (key, row) in &*self.0.range(RowKey::of::<T>(from), RowKey::of::<T>(to), usize::MAX)? {
            let (Some(key), Some(row)) = (key_of::<T::Key>(key.bytes()), row_of::<T>(&row.bytes)) else {
                return Err(layout::<T>());
            };
            if f(&key, row).is_break() {
                break;
            }
        }
        Ok(())
    }

    #[track_caller]
    fn update_rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, StoreError> {
        let rows = self.0.range(RowKey::of::<T>(from), RowKey::of::<T>(to), usize::MAX)?;
        for (key, row) in &*rows {
            let mut row = RowBytes { is_new: false, ..row.clone() };
            let (Some(decoded), Ok(columns)) =
                (key_of::<T::Key>(key.bytes()), RowOf::<T>::mut_from_bytes(&mut row.bytes))
            else {
                return Err(layout::<T>());
            };
            f(&decoded, &mut columns.hot, &columns.cold);
            self.0.put(*key, row);
        }
        Ok(rows.len())
    }

    #[track_caller]
    fn remove_first_row<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, StoreError> {
        let rows = self.0.range(RowKey::of::<T>(from), RowKey::of::<T>(to), 1)?;
        let Some((key, _)) = rows.first() else { return Ok(None) };
        self.0.delete(*key);
        key_of(key.bytes()).ok_or_else(layout::<T>).map(Some)
    }

    fn announce<T: TableDef>(&mut self, keys: &[T::Key]) {
        let keys: SmallVec<[RowKey; RUN]> = keys.iter().map(RowKey::of::<T>).collect();
        self.0.announce(&keys);
    }
}
