//! Record operations that the workload requires of an engine. Transactions are written once against [`Ops`], the checker
//! against [`Read`]; both are monomorphised for each engine.

use std::ops::ControlFlow;

use crate::workload::schema::parts::{ColdPart, Part};
use crate::workload::schema::{IndexDef, RowOf, TableDef};

/// Direction of an index scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the smallest key.
    Up,
    /// From the largest key.
    Down,
}

/// Reads by key and by range. Ranges include both ends.
///
/// A closure receives the rows, so that an engine need not copy them. An engine that reads optimistically may call the
/// closure again for the same row; only the last result counts.
pub trait Read {
    /// Error of the engine.
    type Error;

    /// Calls `f` with the row of `key`; returns `None` if there is no row.
    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, Self::Error>;

    /// Reads a row as [`Self::read`] does, for a closure that reads only the columns of a part.
    fn read_part<P: Part, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        mut f: impl FnMut(&P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.read::<P::Table, R>(key, |row| f(&P::of(row)))
    }

    /// Reads several rows as [`Self::read_part`] does. `f` receives the position of the key in the list. Keys without a row
    /// are skipped. An engine may search for all rows together.
    fn read_parts<P: Part>(
        &mut self,
        keys: &[<P::Table as TableDef>::Key],
        mut f: impl FnMut(usize, &P),
    ) -> Result<(), Self::Error> {
        keys.iter().enumerate().try_for_each(|(i, key)| self.read_part::<P, _>(key, |part| f(i, part)).map(drop))
    }

    /// Calls `f` once for each row of `from..=to`, in ascending order, until `f` breaks.
    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Calls `f` once for each entry `from..=to` of an index, in the given direction, until `f` breaks.
    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;
}

/// An open transaction.
pub trait Ops: Read {
    /// Updates hot columns in place. The row is locked for update from the start. Returns `None` if there is no row.
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// Updates a row as [`Self::update`] does, for a closure that reads only the cold columns of a part.
    fn update_part<P: ColdPart, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        f: impl FnOnce(&mut <P::Table as TableDef>::Hot, &P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.update::<P::Table, R>(key, |hot, cold| f(hot, &P::of_cold(cold)))
    }

    /// Updates hot columns of several rows, with the effect of [`Self::update`] for each key in turn. `f` receives the
    /// position of the key in the list. A key may occur twice. Returns the number of keys that have a row. An engine may
    /// lock all rows first and write them together.
    fn update_many<T: TableDef>(
        &mut self,
        keys: &[T::Key],
        mut f: impl FnMut(usize, &mut T::Hot, &T::Cold),
    ) -> Result<usize, Self::Error> {
        let mut rows = 0;
        for (i, key) in keys.iter().enumerate() {
            rows += usize::from(self.update::<T, _>(key, |hot, cold| f(i, hot, cold))?.is_some());
        }
        Ok(rows)
    }

    /// Changes a row as [`Self::update`] does, but `f` may change every column that is in no index. The row keeps its
    /// length.
    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// Updates hot columns of every row of `from..=to`, in ascending order. Returns the number of rows.
    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, Self::Error>;

    /// Inserts a row and its index entries. A duplicate key is an error that is not retried.
    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error>;

    /// Inserts rows with ascending, neighbouring keys. An engine may place them in one descent.
    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), Self::Error>;

    /// Removes the row with the smallest key of `from..=to`, which is locked for update from the start. Returns its key, or
    /// `None` if there is no row.
    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, Self::Error>;

    /// Announces rows that will be needed soon, so that the engine can prefetch them. Costs little and changes nothing.
    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]);

    /// Announces the hot columns and this part of rows, as [`Self::prefetch`] does for whole rows.
    fn prefetch_part<P: Part>(&mut self, keys: &[<P::Table as TableDef>::Key]) {
        self.prefetch::<P::Table>(keys);
    }

    /// Announces a row. Its hot columns and this part are prefetched together with the rows of the next [`Self::prefetch`]
    /// or of the next statement on several rows.
    fn prefetch_along<P: Part>(&mut self, _key: &<P::Table as TableDef>::Key) {}

    /// Announces the insert of a row with this key except for the last column. Costs little and changes nothing.
    fn prefetch_insert<T: TableDef>(&mut self, _key: &T::Key) {}
}
