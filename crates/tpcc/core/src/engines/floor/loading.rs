//! Loading the maps: each table's rows arrive in key order, from several threads.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use super::{EntryMap, FloorError, Maps, RowMap};
use crate::workload::load;
use crate::workload::load::sink::{Append, AppendIndex, BulkSink};
use crate::workload::schema::tables::{IndexMaker, TableMaker};
use crate::workload::schema::{
    IndexDef, IndexFamily, PerIndex, PerTable, RowOf, Scale, TableDef, TableFamily, TableId,
};

/// Maps that several loader threads fill, each its own table.
pub struct Loading {
    tables: PerTable<SharedRows>,
    indexes: PerIndex<SharedEntries>,
}

struct SharedRows;

impl TableFamily for SharedRows {
    type Of<T: TableDef> = Mutex<BTreeMap<T::Key, RowOf<T>>>;
}

struct SharedEntries;

impl IndexFamily for SharedEntries {
    type Of<I: IndexDef> = Mutex<BTreeMap<I::Key, <I::Table as TableDef>::Key>>;
}

/// Makes empty maps.
struct Empty;

impl TableMaker<SharedRows> for Empty {
    type Error = Infallible;
    fn make<T: TableDef>(&mut self) -> Result<Mutex<BTreeMap<T::Key, RowOf<T>>>, Infallible> {
        Ok(Mutex::default())
    }
}

impl IndexMaker<SharedEntries> for Empty {
    type Error = Infallible;
    fn make<I: IndexDef>(&mut self) -> Result<Mutex<BTreeMap<I::Key, <I::Table as TableDef>::Key>>, Infallible> {
        Ok(Mutex::default())
    }
}

/// Adds up what rows and entries take.
struct Measure {
    scale: Scale,
    bytes: u64,
    /// Those of the largest table.
    largest: u64,
}

/// Nothing: it is measured, not kept.
struct Measured;

impl TableFamily for Measured {
    type Of<T: TableDef> = ();
}

impl IndexFamily for Measured {
    type Of<I: IndexDef> = ();
}

impl Measure {
    fn add(&mut self, table: TableId, bytes: usize) {
        let bytes = load::rows_of_a_warehouse(table, &self.scale) * bytes as u64;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
    }
}

impl TableMaker<Measured> for Measure {
    type Error = Infallible;
    fn make<T: TableDef>(&mut self) -> Result<(), Infallible> {
        self.add(T::TABLE, size_of::<(T::Key, RowOf<T>)>());
        Ok(())
    }
}

impl IndexMaker<Measured> for Measure {
    type Error = Infallible;
    fn make<I: IndexDef>(&mut self) -> Result<(), Infallible> {
        self.add(I::Table::TABLE, size_of::<(I::Key, <I::Table as TableDef>::Key)>());
        Ok(())
    }
}

/// Bytes that a warehouse takes while it is loaded: its rows and index entries in maps, and the rows of one table beside its map.
pub(super) fn warehouse_bytes(scale: Scale) -> u64 {
    let mut measure = Measure { scale, bytes: 0, largest: 0 };
    let Ok(_) = PerTable::<Measured>::try_new(&mut measure);
    let Ok(_) = PerIndex::<Measured>::try_new(&mut measure);
    measure.bytes + measure.largest
}

/// Takes the maps out of their locks.
struct Unlock<'l>(&'l Loading);

impl TableMaker<RowMap> for Unlock<'_> {
    type Error = Infallible;
    fn make<T: TableDef>(&mut self) -> Result<BTreeMap<T::Key, RowOf<T>>, Infallible> {
        Ok(std::mem::take(&mut *T::of(&self.0.tables).lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl IndexMaker<EntryMap> for Unlock<'_> {
    type Error = Infallible;
    fn make<I: IndexDef>(&mut self) -> Result<BTreeMap<I::Key, <I::Table as TableDef>::Key>, Infallible> {
        Ok(std::mem::take(&mut *I::of(&self.0.indexes).lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Loading {
    /// Empty maps.
    pub fn new() -> Loading {
        let Ok(tables) = PerTable::try_new(&mut Empty);
        let Ok(indexes) = PerIndex::try_new(&mut Empty);
        Loading { tables, indexes }
    }

    /// The loaded maps.
    pub(super) fn into_maps(self) -> Maps {
        let Ok(tables) = PerTable::try_new(&mut Unlock(&self));
        let Ok(indexes) = PerIndex::try_new(&mut Unlock(&self));
        Maps { tables, indexes }
    }
}

impl BulkSink for Loading {
    type Error = FloorError;
    type Appender<'a, T: TableDef> = SortedRows<'a, T>;
    type IndexAppender<'a, I: IndexDef> = Entries<'a, I>;

    fn table<T: TableDef>(&self) -> Result<SortedRows<'_, T>, FloorError> {
        Ok(SortedRows { to: T::of(&self.tables), rows: Vec::new() })
    }

    fn index<I: IndexDef>(&self) -> Result<Entries<'_, I>, FloorError> {
        Ok(Entries { to: I::of(&self.indexes), entries: Vec::new() })
    }
}

/// Rows of one table in key order.
pub struct SortedRows<'a, T: TableDef> {
    to: &'a Mutex<BTreeMap<T::Key, RowOf<T>>>,
    rows: Vec<(T::Key, RowOf<T>)>,
}

impl<T: TableDef> Append<T> for SortedRows<'_, T> {
    type Error = FloorError;

    #[inline]
    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), FloorError> {
        self.rows.push((*key, *row));
        Ok(())
    }

    fn finish(self) -> Result<(), FloorError> {
        // Collected at once, the map's nodes are full; inserted one by one in order, half full.
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = self.rows.into_iter().collect();
        Ok(())
    }
}

/// Entries of one index in key order.
pub struct Entries<'a, I: IndexDef> {
    to: &'a Mutex<BTreeMap<I::Key, <I::Table as TableDef>::Key>>,
    entries: Vec<(I::Key, <I::Table as TableDef>::Key)>,
}

impl<I: IndexDef> AppendIndex<I> for Entries<'_, I> {
    type Error = FloorError;

    #[inline]
    fn push(&mut self, key: &I::Key) -> Result<(), FloorError> {
        self.entries.push((*key, I::primary(key)));
        Ok(())
    }

    fn finish(self) -> Result<(), FloorError> {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = self.entries.into_iter().collect();
        Ok(())
    }
}
