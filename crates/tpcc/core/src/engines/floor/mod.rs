//! The floor engine: the workload on ordered maps of the standard library, with one worker thread. It has no locks, no log,
//! no pages, no isolation and no durability. It is the baseline that shows how much these services cost in other engines.
//!
//! It supports only the service that the workload requires: rollback of an order with an unused item number.

mod loading;
mod undo;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::workload::abort::{Abort, EngineError};
use crate::workload::database::{Database, RegionReport, StructureReport};
use crate::workload::engine::{Engine, EngineFigures, OpenTransaction, Session, Ticket};
use crate::workload::error::Error;
use crate::workload::load;
use crate::workload::loaded::Loaded;
use crate::workload::ops::{Direction, Ops, Read};
use crate::workload::schema::{
    IndexDef, IndexFamily, IndexVisitor, PerIndex, PerTable, RowOf, Scale, TableDef, TableFamily,
};
use crate::workload::settings::StoreConfig;
pub use loading::LoadingMaps;
use undo::Undo;

/// Maps of the engine: one for each table and each index.
pub(super) struct Maps {
    tables: PerTable<RowMap>,
    indexes: PerIndex<EntryMap>,
}

struct RowMap;

impl TableFamily for RowMap {
    type Of<T: TableDef> = BTreeMap<T::Key, RowOf<T>>;
}

struct EntryMap;

impl IndexFamily for EntryMap {
    type Of<I: IndexDef> = BTreeMap<I::Key, <I::Table as TableDef>::Key>;
}

impl Maps {
    #[inline]
    fn table<T: TableDef>(&mut self) -> &mut BTreeMap<T::Key, RowOf<T>> {
        T::of_mut(&mut self.tables)
    }

    #[inline]
    fn index<I: IndexDef>(&mut self) -> &mut BTreeMap<I::Key, <I::Table as TableDef>::Key> {
        I::of_mut(&mut self.indexes)
    }

    /// Inserts a row and its index entries. If a row with this key exists, replaces it and returns false.
    #[inline]
    fn put<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> bool {
        if self.table::<T>().insert(*key, *row).is_some() {
            return false;
        }
        T::indexes(&mut AddEntry::<T> { maps: self, key, cold: &row.cold });
        true
    }

    /// Removes a row and its index entries.
    #[inline]
    fn remove<T: TableDef>(&mut self, key: &T::Key) {
        if let Some(row) = self.table::<T>().remove(key) {
            T::indexes(&mut DropEntry::<T> { maps: self, key, cold: &row.cold });
        }
    }
}

struct AddEntry<'m, T: TableDef> {
    maps: &'m mut Maps,
    key: &'m T::Key,
    cold: &'m T::Cold,
}

impl<T: TableDef> IndexVisitor<T> for AddEntry<'_, T> {
    fn visit<I: IndexDef<Table = T>>(&mut self) {
        self.maps.index::<I>().insert(I::key_of(self.key, self.cold), *self.key);
    }
}

struct DropEntry<'m, T: TableDef> {
    maps: &'m mut Maps,
    key: &'m T::Key,
    cold: &'m T::Cold,
}

impl<T: TableDef> IndexVisitor<T> for DropEntry<'_, T> {
    fn visit<I: IndexDef<Table = T>>(&mut self) {
        self.maps.index::<I>().remove(&I::key_of(self.key, self.cold));
    }
}

/// Error of the floor engine.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// A row with this key exists already.
    #[error("{table}: a row {key} is there already; this is a fault of the workload")]
    Duplicate {
        /// Name of the table.
        table: &'static str,
        /// The duplicate key.
        key: String,
    },
}

impl EngineError for FloorError {
    fn abort(&self) -> Option<Abort> {
        None
    }
}

fn duplicate<T: TableDef>(key: &T::Key) -> FloorError {
    FloorError::Duplicate { table: T::TABLE.name(), key: format!("{key:?}") }
}

/// The floor engine: ordered maps, used by one worker at a time.
pub struct Floor {
    maps: RwLock<Maps>,
}

impl Floor {
    /// Creates the engine from loaded maps, and adds the description of the load (the rows of META).
    pub fn new(loading: LoadingMaps, loaded: &Loaded) -> Floor {
        let mut maps = loading.into_maps();
        maps.tables.meta.extend(loaded.rows());
        Floor { maps: RwLock::new(maps) }
    }
}

impl Floor {
    /// Returns the maximum memory of a warehouse, in bytes. The maximum occurs during the load.
    pub fn warehouse_bytes() -> u64 {
        loading::warehouse_bytes(Scale::FULL)
    }
}

impl Engine for Floor {
    type Error = FloorError;
    type Session<'a> = FloorSession<'a>;
    type Reader<'a> = FloorReader<'a>;

    fn session(&self, _worker: usize) -> Result<FloorSession<'_>, FloorError> {
        let maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        Ok(FloorSession { maps, undo: Undo::default() })
    }

    fn reader(&self) -> Result<FloorReader<'_>, FloorError> {
        Ok(FloorReader(self.maps.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}

/// Reader for the consistency checker.
pub struct FloorReader<'a>(RwLockReadGuard<'a, Maps>);

/// Session of the single worker. It holds the write lock of the maps for the whole run.
pub struct FloorSession<'a> {
    maps: RwLockWriteGuard<'a, Maps>,
    undo: Undo,
}

impl Session for FloorSession<'_> {
    type Error = FloorError;
    type Transaction<'t>
        = FloorTransaction<'t>
    where
        Self: 't;

    #[inline]
    fn begin(&mut self) -> Result<FloorTransaction<'_>, FloorError> {
        Ok(FloorTransaction { maps: &mut self.maps, undo: &mut self.undo })
    }

    fn begin_again(&mut self) -> Result<FloorTransaction<'_>, FloorError> {
        self.begin()
    }

    #[inline]
    fn durable(&mut self) -> Ticket {
        Ticket::ALL
    }

    fn request(&mut self, _ticket: Ticket) {}

    fn wait_for(&mut self, _ticket: Ticket) -> Result<Ticket, FloorError> {
        Ok(Ticket::ALL)
    }
}

/// A transaction of the floor engine.
pub struct FloorTransaction<'t> {
    maps: &'t mut Maps,
    undo: &'t mut Undo,
}

impl OpenTransaction for FloorTransaction<'_> {
    #[inline]
    fn commit(self) -> Result<Ticket, FloorError> {
        self.undo.forget();
        Ok(Ticket(0))
    }

    fn rollback(self) -> Result<Ticket, FloorError> {
        drop(self);
        Ok(Ticket(0))
    }
}

impl Drop for FloorTransaction<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.undo.is_empty() {
            self.undo.roll_back(self.maps);
        }
    }
}

fn read<T: TableDef, R>(maps: &Maps, key: &T::Key, mut f: impl FnMut(&RowOf<T>) -> R) -> Option<R> {
    T::of(&maps.tables).get(key).map(&mut f)
}

fn scan<T: TableDef>(
    maps: &Maps,
    from: &T::Key,
    to: &T::Key,
    mut f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
) {
    let _ = T::of(&maps.tables).range(*from..=*to).try_for_each(|(key, row)| f(key, row));
}

fn scan_index<I: IndexDef>(
    maps: &Maps,
    from: &I::Key,
    to: &I::Key,
    direction: Direction,
    mut f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
) {
    let mut range = I::of(&maps.indexes).range(*from..=*to);
    let _ = match direction {
        Direction::Up => range.try_for_each(|(key, primary)| f(key, primary)),
        Direction::Down => range.rev().try_for_each(|(key, primary)| f(key, primary)),
    };
}

macro_rules! reads {
    ($($reader:ty, $maps:tt;)*) => {$(
        impl Read for $reader {
            type Error = FloorError;

            #[inline]
            fn read<T: TableDef, R>(
                &mut self,
                key: &T::Key,
                f: impl FnMut(&RowOf<T>) -> R,
            ) -> Result<Option<R>, FloorError> {
                Ok(read::<T, R>(&self.$maps, key, f))
            }

            #[inline]
            fn scan<T: TableDef>(
                &mut self,
                from: &T::Key,
                to: &T::Key,
                f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
            ) -> Result<(), FloorError> {
                scan::<T>(&self.$maps, from, to, f);
                Ok(())
            }

            #[inline]
            fn scan_index<I: IndexDef>(
                &mut self,
                from: &I::Key,
                to: &I::Key,
                direction: Direction,
                f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
            ) -> Result<(), FloorError> {
                scan_index::<I>(&self.$maps, from, to, direction, f);
                Ok(())
            }
        }
    )*};
}
reads! {
    FloorReader<'_>, 0;
    FloorTransaction<'_>, maps;
}

impl Ops for FloorTransaction<'_> {
    #[inline]
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, FloorError> {
        Ok(self.maps.table::<T>().get_mut(key).map(|row| {
            self.undo.update::<T>(key, &row.hot);
            f(&mut row.hot, &row.cold)
        }))
    }

    #[inline]
    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, FloorError> {
        Ok(self.maps.table::<T>().get_mut(key).map(|row| {
            self.undo.rewrite::<T>(key, row);
            f(row)
        }))
    }

    #[inline]
    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, FloorError> {
        let mut rows = 0;
        for (key, row) in self.maps.table::<T>().range_mut(*from..=*to) {
            self.undo.update::<T>(key, &row.hot);
            f(key, &mut row.hot, &row.cold);
            rows += 1;
        }
        Ok(rows)
    }

    #[inline]
    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), FloorError> {
        if !self.maps.put::<T>(key, row) {
            return Err(duplicate::<T>(key));
        }
        self.undo.insert::<T>(key);
        Ok(())
    }

    #[inline]
    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), FloorError> {
        rows.iter().try_for_each(|(key, row)| self.insert::<T>(key, row))
    }

    #[inline]
    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, FloorError> {
        let Some((key, row)) = self.maps.table::<T>().range(*from..=*to).next() else { return Ok(None) };
        let key = *key;
        self.undo.remove::<T>(&key, row);
        self.maps.remove::<T>(&key);
        Ok(Some(key))
    }

    #[inline]
    fn prefetch<T: TableDef>(&mut self, _keys: &[T::Key]) {}
}

impl Database for Floor {
    type Hook = Infallible;

    fn open(_: &StoreConfig, _: Option<&Infallible>) -> Result<Option<(Self, Loaded)>, Error> {
        Ok(None)
    }

    fn clear(_: &StoreConfig, _: u32, _: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        Ok(())
    }

    fn load(
        config: &StoreConfig,
        _: Option<&Infallible>,
        plan: &load::Population,
        progress: &load::RowsDone,
    ) -> Result<Option<Self>, Error> {
        let maps = LoadingMaps::default();
        let loaded = load::populate(plan, &maps, config.workers, progress);
        match loaded.map_err(|error| error.into_error(|error| Error::failed(error.to_string())))? {
            load::LoadEnd::Done => Ok(Some(Floor::new(maps, &plan.loaded()))),
            load::LoadEnd::Cancelled => Ok(None),
        }
    }

    fn preload(&self) -> Result<(), Error> {
        Ok(())
    }

    fn verify(&self) -> Result<(), Error> {
        Ok(())
    }

    fn structure(&self, _: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<StructureReport, Error> {
        Err(Error::usage("--structure: the floor has no pages"))
    }

    fn fingerprint(&self, _: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error> {
        Err(Error::usage("--fingerprint: the floor keeps nothing"))
    }

    fn memory(&self) -> Option<Vec<RegionReport>> {
        None
    }

    fn close(self) -> Result<(), Error> {
        Ok(())
    }
}
