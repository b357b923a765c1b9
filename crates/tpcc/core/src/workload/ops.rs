//! The record operations that the workload needs of an engine. Transactions are written once against [`Ops`], the checker
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

/// Reading by key and by range. Ranges include both ends.
///
/// Rows are shown to a closure so that an engine need not copy them. A closure must not assume that it runs only once
/// for a row: an engine that reads optimistically may show a row again; only the last result counts.
pub trait Read {
    /// What can go wrong.
    type Error;

    /// Shows the row of `key`; none when there is none.
    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, Self::Error>;

    /// As [`Self::read`], where no columns but those of a part are looked at.
    fn read_part<P: Part, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        mut f: impl FnMut(&P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.read::<P::Table, R>(key, |row| f(&P::of(row)))
    }

    /// As [`Self::read_part`] of several rows; `f` is told which key it is. Keys without a row are left out. An engine may
    /// look for all of them together.
    fn read_parts<P: Part>(
        &mut self,
        keys: &[<P::Table as TableDef>::Key],
        mut f: impl FnMut(usize, &P),
    ) -> Result<(), Self::Error> {
        keys.iter().enumerate().try_for_each(|(i, key)| self.read_part::<P, _>(key, |part| f(i, part)).map(drop))
    }

    /// Shows the rows of `from..=to` in ascending order, each once, until `f` breaks.
    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Shows the entries `from..=to` of an index, each once, until `f` breaks.
    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;
}

/// Reading and writing rows by their primary keys: all that the loops of transactions need, so that their steps are written
/// once for transactions and for epochs that run ahead of one.
pub trait RowOps {
    /// What can go wrong.
    type Error;

    /// Shows the row of `key`, as [`Read::read`].
    #[track_caller]
    fn row<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, Self::Error>;

    /// As [`Read::read_part`].
    #[track_caller]
    #[inline(always)]
    fn row_part<P: Part, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        mut f: impl FnMut(&P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.row::<P::Table, R>(key, |row| f(&P::of(row)))
    }

    /// As [`Read::read_parts`].
    #[track_caller]
    #[inline(always)]
    fn row_parts<P: Part>(
        &mut self,
        keys: &[<P::Table as TableDef>::Key],
        mut f: impl FnMut(usize, &P),
    ) -> Result<(), Self::Error> {
        self.announce_part::<P>(keys);
        keys.iter().enumerate().try_for_each(|(i, key)| self.row_part::<P, _>(key, |part| f(i, part)).map(drop))
    }

    /// As [`Ops::update_part`].
    #[track_caller]
    #[inline(always)]
    fn update_row_part<P: ColdPart, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        f: impl FnOnce(&mut <P::Table as TableDef>::Hot, &P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.update_row::<P::Table, R>(key, |hot, cold| f(hot, &P::of_cold(cold)))
    }

    /// As [`Ops::update`].
    #[track_caller]
    fn update_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// As [`Ops::rewrite`].
    #[track_caller]
    fn rewrite_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// As [`Ops::insert`].
    #[track_caller]
    fn insert_row<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error>;

    /// As [`Read::scan`].
    #[track_caller]
    fn rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// As [`Ops::update_run`].
    #[track_caller]
    fn update_rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, Self::Error>;

    /// As [`Ops::remove_first`].
    #[track_caller]
    fn remove_first_row<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, Self::Error>;

    /// As [`Ops::prefetch`].
    fn announce<T: TableDef>(&mut self, keys: &[T::Key]);

    /// As [`Ops::prefetch_part`].
    #[inline(always)]
    fn announce_part<P: Part>(&mut self, keys: &[<P::Table as TableDef>::Key]) {
        self.announce::<P::Table>(keys);
    }
}

impl<O: Ops> RowOps for O {
    type Error = O::Error;

    #[inline(always)]
    fn row<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, Self::Error> {
        self.read::<T, R>(key, f)
    }

    #[inline(always)]
    fn update_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.update::<T, R>(key, f)
    }

    #[inline(always)]
    fn rewrite_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.rewrite::<T, R>(key, f)
    }

    #[inline(always)]
    fn insert_row<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error> {
        self.insert::<T>(key, row)
    }

    #[inline(always)]
    fn rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error> {
        self.scan::<T>(from, to, f)
    }

    #[inline(always)]
    fn update_rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, Self::Error> {
        self.update_run::<T>(from, to, f)
    }

    #[inline(always)]
    fn remove_first_row<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, Self::Error> {
        self.remove_first::<T>(from, to)
    }

    #[inline(always)]
    fn announce<T: TableDef>(&mut self, keys: &[T::Key]) {
        self.prefetch::<T>(keys);
    }

    #[inline(always)]
    fn row_part<P: Part, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        f: impl FnMut(&P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.read_part::<P, R>(key, f)
    }

    #[inline(always)]
    fn row_parts<P: Part>(
        &mut self,
        keys: &[<P::Table as TableDef>::Key],
        f: impl FnMut(usize, &P),
    ) -> Result<(), Self::Error> {
        self.read_parts::<P>(keys, f)
    }

    #[inline(always)]
    fn update_row_part<P: ColdPart, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        f: impl FnOnce(&mut <P::Table as TableDef>::Hot, &P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.update_part::<P, R>(key, f)
    }

    #[inline(always)]
    fn announce_part<P: Part>(&mut self, keys: &[<P::Table as TableDef>::Key]) {
        self.prefetch_part::<P>(keys);
    }
}

/// One transaction in progress.
pub trait Ops: Read {
    /// Updates hot columns in place, under a lock for update from the start; none when there is no such row.
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// As [`Self::update`], where no cold columns but those of a part are looked at.
    fn update_part<P: ColdPart, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        f: impl FnOnce(&mut <P::Table as TableDef>::Hot, &P) -> R,
    ) -> Result<Option<R>, Self::Error> {
        self.update::<P::Table, R>(key, |hot, cold| f(hot, &P::of_cold(cold)))
    }

    /// Updates hot columns of several rows, as [`Self::update`] of each in turn would; `f` is told which key it is. A key
    /// may occur twice. Returns how many had a row. An engine may lock all of them first and write them together.
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

    /// Like [`Self::update`], but `f` may change every column that is in no index; the row keeps its length.
    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// Updates hot columns of every row of `from..=to`, in ascending order; returns how many there were.
    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, Self::Error>;

    /// Inserts a row and its index entries. A duplicate key is an error, and not one to retry.
    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error>;

    /// Inserts rows whose keys ascend and are neighbours: an engine may place them in one descent.
    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), Self::Error>;

    /// Removes the row with the smallest key of `from..=to`, locked for update from the start; returns its key.
    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, Self::Error>;

    /// Says that these rows will be needed soon. Costs little and changes nothing.
    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]);

    /// As [`Self::prefetch`], of rows whose hot columns and this part will be needed.
    fn prefetch_part<P: Part>(&mut self, keys: &[<P::Table as TableDef>::Key]) {
        self.prefetch::<P::Table>(keys);
    }

    /// Notes a row whose hot columns and this part the next [`Self::prefetch`], or the next statement on several rows, brings
    /// along.
    fn prefetch_along<P: Part>(&mut self, _key: &<P::Table as TableDef>::Key) {}

    /// Says that a row will be inserted whose key is like this one but for its last column. Costs little and changes
    /// nothing.
    fn prefetch_insert<T: TableDef>(&mut self, _key: &T::Key) {}
}
