//! Record operations with a callback after each of them, at which a test can stop a transaction.

use std::ops::ControlFlow;

use crate::workload::ops::{Direction, Ops, Read};
use crate::workload::schema::{IndexDef, RowOf, TableDef};

/// Wraps the record operations of `ops`. After each operation it calls `after` with the table name, and true if a row was
/// found.
pub(super) struct ObservedOps<'o, O> {
    pub(super) ops: &'o mut O,
    pub(super) after: &'o mut dyn FnMut(&'static str, bool),
}

impl<O: Ops> ObservedOps<'_, O> {
    fn notify<T: TableDef, R>(
        &mut self,
        answer: Result<R, O::Error>,
        found: impl Fn(&R) -> bool,
    ) -> Result<R, O::Error> {
        if let Ok(answer) = &answer {
            (self.after)(T::TABLE.name(), found(answer));
        }
        answer
    }
}

impl<O: Ops> Read for ObservedOps<'_, O> {
    type Error = O::Error;

    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, O::Error> {
        let answer = self.ops.read::<T, R>(key, f);
        self.notify::<T, _>(answer, Option::is_some)
    }

    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), O::Error> {
        let answer = self.ops.scan::<T>(from, to, f);
        self.notify::<T, _>(answer, |()| true)
    }

    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), O::Error> {
        let answer = self.ops.scan_index::<I>(from, to, direction, f);
        self.notify::<I::Table, _>(answer, |()| true)
    }
}

impl<O: Ops> Ops for ObservedOps<'_, O> {
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, O::Error> {
        let answer = self.ops.update::<T, R>(key, f);
        self.notify::<T, _>(answer, Option::is_some)
    }

    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, O::Error> {
        let answer = self.ops.rewrite::<T, R>(key, f);
        self.notify::<T, _>(answer, Option::is_some)
    }

    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, O::Error> {
        let answer = self.ops.update_run::<T>(from, to, f);
        self.notify::<T, _>(answer, |rows| *rows > 0)
    }

    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), O::Error> {
        let answer = self.ops.insert::<T>(key, row);
        self.notify::<T, _>(answer, |()| true)
    }

    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), O::Error> {
        let answer = self.ops.insert_run::<T>(rows);
        self.notify::<T, _>(answer, |()| true)
    }

    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, O::Error> {
        let answer = self.ops.remove_first::<T>(from, to);
        self.notify::<T, _>(answer, Option::is_some)
    }

    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]) {
        self.ops.prefetch::<T>(keys);
    }
}
