//! Bulk load of the floor engine's maps. Rows arrive in key order. Several threads load different tables at the same time.

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

/// Maps that are being loaded. Several loader threads fill them, each thread its own tables.
pub struct LoadingMaps {
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

/// Creates the empty maps.
struct EmptyMaps;

impl TableMaker<SharedRows> for EmptyMaps {
    type Error = Infallible;
    fn make<T: TableDef>(&mut self) -> Result<Mutex<BTreeMap<T::Key, RowOf<T>>>, Infallible> {
        Ok(Mutex::default())
    }
}

impl IndexMaker<SharedEntries> for EmptyMaps {
    type Error = Infallible;
    fn make<I: IndexDef>(&mut self) -> Result<Mutex<BTreeMap<I::Key, <I::Table as TableDef>::Key>>, Infallible> {
        Ok(Mutex::default())
    }
}

/// Sums of the memory of a warehouse's rows and index entries, in bytes.
struct SizeSum {
    scale: Scale,
    bytes: u64,
    /// Size of the largest map (rows of a table, or entries of an index), in bytes.
    largest: u64,
}

/// Family of tables whose members are empty, because [`SizeSum`] computes sizes and keeps no data.
struct NoMembers;

impl TableFamily for NoMembers {
    type Of<T: TableDef> = ();
}

impl IndexFamily for NoMembers {
    type Of<I: IndexDef> = ();
}

impl SizeSum {
    fn add(&mut self, table: TableId, bytes: usize) {
        let bytes = load::rows_of_a_warehouse(table, &self.scale) * bytes as u64;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
    }
}

impl TableMaker<NoMembers> for SizeSum {
    type Error = Infallible;
    fn make<T: TableDef>(&mut self) -> Result<(), Infallible> {
        self.add(T::TABLE, size_of::<(T::Key, RowOf<T>)>());
        Ok(())
    }
}

impl IndexMaker<NoMembers> for SizeSum {
    type Error = Infallible;
    fn make<I: IndexDef>(&mut self) -> Result<(), Infallible> {
        self.add(I::Table::TABLE, size_of::<(I::Key, <I::Table as TableDef>::Key)>());
        Ok(())
    }
}

/// Returns the peak memory of a warehouse during the load, in bytes: all rows and index entries in maps, and the rows of one
/// table in a vector in addition.
pub(super) fn warehouse_bytes(scale: Scale) -> u64 {
    let mut measure = SizeSum { scale, bytes: 0, largest: 0 };
    let Ok(_) = PerTable::<NoMembers>::try_new(&mut measure);
    let Ok(_) = PerIndex::<NoMembers>::try_new(&mut measure);
    measure.bytes + measure.largest
}

/// Moves the maps out of their mutexes.
struct TakeMaps<'l>(&'l LoadingMaps);

impl TableMaker<RowMap> for TakeMaps<'_> {
    type Error = Infallible;
    fn make<T: TableDef>(&mut self) -> Result<BTreeMap<T::Key, RowOf<T>>, Infallible> {
        Ok(std::mem::take(&mut *T::of(&self.0.tables).lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl IndexMaker<EntryMap> for TakeMaps<'_> {
    type Error = Infallible;
    fn make<I: IndexDef>(&mut self) -> Result<BTreeMap<I::Key, <I::Table as TableDef>::Key>, Infallible> {
        Ok(std::mem::take(&mut *I::of(&self.0.indexes).lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Default for LoadingMaps {
    fn default() -> LoadingMaps {
        let Ok(tables) = PerTable::try_new(&mut EmptyMaps);
        let Ok(indexes) = PerIndex::try_new(&mut EmptyMaps);
        LoadingMaps { tables, indexes }
    }
}

impl LoadingMaps {
    /// Returns the loaded maps.
    pub(super) fn into_maps(self) -> Maps {
        let Ok(tables) = PerTable::try_new(&mut TakeMaps(&self));
        let Ok(indexes) = PerIndex::try_new(&mut TakeMaps(&self));
        Maps { tables, indexes }
    }
}

impl BulkSink for LoadingMaps {
    type Error = FloorError;
    type Appender<'a, T: TableDef> = FloorRowBuffer<'a, T>;
    type IndexAppender<'a, I: IndexDef> = FloorEntryBuffer<'a, I>;

    fn table<T: TableDef>(&self) -> Result<FloorRowBuffer<'_, T>, FloorError> {
        Ok(FloorRowBuffer { to: T::of(&self.tables), rows: Vec::new() })
    }

    fn index<I: IndexDef>(&self) -> Result<FloorEntryBuffer<'_, I>, FloorError> {
        Ok(FloorEntryBuffer { to: I::of(&self.indexes), entries: Vec::new() })
    }
}

/// Collects the rows of one table in key order.
pub struct FloorRowBuffer<'a, T: TableDef> {
    to: &'a Mutex<BTreeMap<T::Key, RowOf<T>>>,
    rows: Vec<(T::Key, RowOf<T>)>,
}

impl<T: TableDef> Append<T> for FloorRowBuffer<'_, T> {
    type Error = FloorError;

    #[inline]
    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), FloorError> {
        self.rows.push((*key, *row));
        Ok(())
    }

    fn finish(self) -> Result<(), FloorError> {
        // A map that is collected from a sorted list has full nodes. A map filled by single inserts in key order has
        // half-full nodes.
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = self.rows.into_iter().collect();
        Ok(())
    }
}

/// Collects the entries of one index in key order.
pub struct FloorEntryBuffer<'a, I: IndexDef> {
    to: &'a Mutex<BTreeMap<I::Key, <I::Table as TableDef>::Key>>,
    entries: Vec<(I::Key, <I::Table as TableDef>::Key)>,
}

impl<I: IndexDef> AppendIndex<I> for FloorEntryBuffer<'_, I> {
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
