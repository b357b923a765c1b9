//! Implements the record operations of the workload as operations on byte strings. An index is a table with index keys and
//! empty rows.

use std::ops::ControlFlow;

use zerocopy::FromBytes;

use super::{Access, PeerFailure, PeerSession, PeerTransaction, index_number, number};
use crate::engines::storage::codec::{KeyBytes, bytes_of, key_of, row_mut, row_of};
use crate::workload::engine::{OpenTransaction, Ticket};
use crate::workload::generate::input::Input;
use crate::workload::ops::{Direction, Ops, Read};
use crate::workload::schema::{IndexDef, IndexVisitor, RowOf, TableDef};
use crate::workload::txn::{self, Scratch, StepOrder, TxnResult};

type Failure<S> = PeerFailure<<S as PeerSession>::Error>;

fn layout<T: TableDef, S: PeerSession>() -> Failure<S> {
    PeerFailure::Layout { table: T::TABLE.name() }
}

/// A transaction of the workload. The engine's transaction begins when the input is known, which determines the access mode,
/// or else with the first operation.
pub struct PeerOps<'t, S: PeerSession + 't> {
    session: &'t S,
    open: Option<S::Transaction<'t>>,
}

impl<'t, S: PeerSession> PeerOps<'t, S> {
    pub(super) fn new(session: &'t S) -> PeerOps<'t, S> {
        PeerOps { session, open: None }
    }

    /// Returns the engine's transaction, and begins it if necessary.
    #[inline]
    fn tx(&mut self, access: Access) -> Result<&mut S::Transaction<'t>, Failure<S>> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.session.begin(access)?,
        };
        Ok(self.open.insert(open))
    }
}

impl<S: PeerSession> OpenTransaction for PeerOps<'_, S> {
    #[inline]
    fn run(&mut self, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<Self> {
        let access = if input.kind().writes() { Access::Write } else { Access::Read };
        self.tx(access)?;
        txn::run(self, steps, input, scratch)
    }

    fn commit(mut self) -> Result<Ticket, Failure<S>> {
        if let Some(open) = self.open.take() {
            open.commit()?;
        }
        Ok(Ticket(0))
    }

    fn rollback(mut self) -> Result<Ticket, Failure<S>> {
        if let Some(open) = self.open.take() {
            open.rollback()?;
        }
        Ok(Ticket(0))
    }
}

fn read<T: TableDef, S: PeerSession, R>(
    tx: &mut S::Transaction<'_>,
    key: &T::Key,
    mut f: impl FnMut(&RowOf<T>) -> R,
) -> Result<Option<R>, Failure<S>> {
    let found = tx.read(number::<T>(), KeyBytes::of(key).get::<T::Key>(), |row| row_of::<T>(row).map(&mut f))?;
    found.map(|row| row.ok_or_else(layout::<T, S>)).transpose()
}

fn scan<T: TableDef, S: PeerSession>(
    tx: &mut S::Transaction<'_>,
    (from, to): (&T::Key, &T::Key),
    mut f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
) -> Result<(), Failure<S>> {
    let (from, to) = (KeyBytes::of(from), KeyBytes::of(to));
    let mut fits = true;
    tx.scan(number::<T>(), from.get::<T::Key>(), to.get::<T::Key>(), false, |key, row| {
        let (Some(key), Some(row)) = (key_of(key), row_of::<T>(row)) else {
            fits = false;
            return ControlFlow::Break(());
        };
        f(&key, row)
    })?;
    if fits { Ok(()) } else { Err(layout::<T, S>()) }
}

fn scan_index<I: IndexDef, S: PeerSession>(
    tx: &mut S::Transaction<'_>,
    (from, to): (&I::Key, &I::Key),
    direction: Direction,
    mut f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
) -> Result<(), Failure<S>> {
    let (from, to) = (KeyBytes::of(from), KeyBytes::of(to));
    let down = direction == Direction::Down;
    let mut fits = true;
    tx.scan(index_number::<I>(), from.get::<I::Key>(), to.get::<I::Key>(), down, |key, _| {
        let Some(key) = key_of::<I::Key>(key) else {
            fits = false;
            return ControlFlow::Break(());
        };
        f(&key, &I::primary(&key))
    })?;
    if fits { Ok(()) } else { Err(layout::<I::Table, S>()) }
}

impl<S: PeerSession> Read for PeerOps<'_, S> {
    type Error = Failure<S>;

    #[inline]
    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, Failure<S>> {
        read::<T, S, R>(self.tx(Access::Write)?, key, f)
    }

    #[inline]
    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), Failure<S>> {
        scan::<T, S>(self.tx(Access::Write)?, (from, to), f)
    }

    #[inline]
    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), Failure<S>> {
        scan_index::<I, S>(self.tx(Access::Write)?, (from, to), direction, f)
    }
}

/// Reader for the checker. Each call is a transaction of its own. No other transaction may run meanwhile.
pub struct Reader<S>(pub(super) S);

impl<S: PeerSession> Read for Reader<S> {
    type Error = Failure<S>;

    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, Failure<S>> {
        read::<T, S, R>(&mut self.0.begin(Access::Read)?, key, f)
    }

    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), Failure<S>> {
        scan::<T, S>(&mut self.0.begin(Access::Read)?, (from, to), f)
    }

    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), Failure<S>> {
        scan_index::<I, S>(&mut self.0.begin(Access::Read)?, (from, to), direction, f)
    }
}

/// Adds the entries of a new row to the indexes of its table.
struct AddEntries<'a, 't, T: TableDef, S: PeerSession + 't> {
    tx: &'a mut S::Transaction<'t>,
    key: &'a T::Key,
    row: &'a RowOf<T>,
    done: Result<(), Failure<S>>,
}

impl<T: TableDef, S: PeerSession> IndexVisitor<T> for AddEntries<'_, '_, T, S> {
    fn visit<I: IndexDef<Table = T>>(&mut self) {
        if self.done.is_ok() {
            let entry = KeyBytes::of(&I::key_of(self.key, &self.row.cold));
            self.done = match self.tx.insert(index_number::<I>(), entry.get::<I::Key>(), &[]) {
                Ok(true) => Ok(()),
                Ok(false) => Err(PeerFailure::Duplicate { table: I::INDEX.name() }),
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl<S: PeerSession> Ops for PeerOps<'_, S> {
    #[inline]
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, Failure<S>> {
        self.rewrite::<T, R>(key, |row| f(&mut row.hot, &row.cold))
    }

    #[inline]
    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, Failure<S>> {
        let key = KeyBytes::of(key);
        let tx = self.tx(Access::Write)?;
        let changed = tx.update(number::<T>(), key.get::<T::Key>(), |row| row_mut::<T>(row).map(f))?;
        changed.map(|row| row.ok_or_else(layout::<T, S>)).transpose()
    }

    #[inline]
    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, Failure<S>> {
        let (from, to) = (KeyBytes::of(from), KeyBytes::of(to));
        let mut fits = true;
        let tx = self.tx(Access::Write)?;
        let rows = tx.update_run(number::<T>(), from.get::<T::Key>(), to.get::<T::Key>(), |key, row| {
            match (key_of(key), RowOf::<T>::mut_from_bytes(row)) {
                (Some(key), Ok(row)) => f(&key, &mut row.hot, &row.cold),
                _ => fits = false,
            }
        })?;
        if fits { Ok(rows) } else { Err(layout::<T, S>()) }
    }

    #[inline]
    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Failure<S>> {
        let tx = self.tx(Access::Write)?;
        if !tx.insert(number::<T>(), KeyBytes::of(key).get::<T::Key>(), bytes_of::<T>(row))? {
            return Err(PeerFailure::Duplicate { table: T::TABLE.name() });
        }
        let mut add = AddEntries::<T, S> { tx, key, row, done: Ok(()) };
        T::indexes(&mut add);
        add.done
    }

    #[inline]
    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), Failure<S>> {
        rows.iter().try_for_each(|(key, row)| self.insert::<T>(key, row))
    }

    /// Supports only tables without indexes, because the workload removes rows from no other tables.
    #[inline]
    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, Failure<S>> {
        let (from, to) = (KeyBytes::of(from), KeyBytes::of(to));
        let taken = self.tx(Access::Write)?.take_first(number::<T>(), from.get::<T::Key>(), to.get::<T::Key>())?;
        taken.map(|key| key_of(&key).ok_or_else(layout::<T, S>)).transpose()
    }

    #[inline]
    fn prefetch<T: TableDef>(&mut self, _keys: &[T::Key]) {}
}
