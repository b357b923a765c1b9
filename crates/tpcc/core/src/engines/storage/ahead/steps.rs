//! Statements of loop iterations, in epochs that run ahead of the transaction.

use std::ops::ControlFlow;

use smallvec::SmallVec;
use speculate::{Change, Epoch, LoopError, Speculator};
use zerocopy::FromBytes;

use super::rows::{RUN, RowBytes, RowKey, RowStore};
use crate::engines::storage::codec::{bytes_of, key_of, row_of};
use crate::engines::storage::store::{StoreError, StoreTransaction, all_fit, decoded, layout};
use crate::workload::ops::RowOps;
use crate::workload::schema::parts::Part;
use crate::workload::schema::{RowOf, TableDef, TableId};
use crate::workload::txn::Failure;

impl<'s> StoreTransaction<'s> {
    /// Runs the iterations of a loop ahead of the transaction, on the threads of `speculator`. `take` receives their results
    /// in order. The iterations write no table of `read_only`.
    pub fn run_ahead<I, T: Send>(
        &mut self,
        speculator: &mut Speculator<RowStore<'s>>,
        rows: &RowStore<'s>,
        items: I,
        read_only: &[TableId],
        body: impl Fn(&mut EpochOps<'_, '_, 's>, &I::Item) -> Result<T, Failure<StoreError>> + Sync,
        take: impl FnMut(T) + Send,
    ) -> Result<(), Failure<StoreError>>
    where
        I: IntoIterator<Item: Send>,
        I::IntoIter: Send,
    {
        // A transaction can move between threads: the thread that holds the token continues it.
        self.tx.hand_over();
        let body = |epoch: &mut Epoch<'_, RowStore<'s>>, item: &I::Item| body(&mut EpochOps { epoch, read_only }, item);
        speculator.collect(rows, &mut self.tx, items, body, take).map_err(|error| match error {
            LoopError::Body(failure) => failure,
            LoopError::Store(error) => Failure::Engine(error),
            other => Failure::Engine(StoreError::Speculation(other.to_string())),
        })
    }
}

/// Statements of a loop iteration, in an epoch that runs ahead of the transaction.
pub struct EpochOps<'e, 'l, 's> {
    epoch: &'e mut Epoch<'l, RowStore<'s>>,
    /// Tables that the loop does not write.
    read_only: &'e [TableId],
}

impl EpochOps<'_, '_, '_> {
    /// Returns true if an epoch may read a part of a row of this table separately. A separately read part does not contain
    /// the epoch's own writes to the row.
    #[inline]
    fn reads_only<T: TableDef>(&self) -> bool {
        self.read_only.contains(&T::TABLE)
    }

    /// Fails if the loop has declared that it does not write the table.
    #[inline]
    fn check_written<T: TableDef>(&self) -> Result<(), StoreError> {
        if self.reads_only::<T>() {
            return Err(StoreError::Speculation(format!("a loop that only reads {:?} has written to it", T::TABLE)));
        }
        Ok(())
    }

    /// Announces rows, possibly of several tables, that will be needed soon.
    pub fn announce_rows(&mut self, rows: &[RowKey]) {
        self.epoch.announce(rows);
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
        decoded::<T, _>(
            self.epoch.view(&RowKey::of::<T>(key), |row| row.map(|row| row_of::<T>(row.get()).map(&mut f)))?,
        )
    }

    #[track_caller]
    fn row_part<P: Part, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        mut f: impl FnMut(&P) -> R,
    ) -> Result<Option<R>, StoreError> {
        if !self.reads_only::<P::Table>() {
            return self.row::<P::Table, R>(key, |row| f(&P::of(row)));
        }
        let key = RowKey::of_part::<P>(key);
        let shown = |part: &RowBytes| P::ref_from_bytes(part.get()).ok().map(&mut f);
        decoded::<P::Table, _>(self.epoch.view(&key, |part| part.map(shown))?)
    }

    #[track_caller]
    fn update_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.rewrite_row::<T, R>(key, |row| f(&mut row.hot, &row.cold))
    }

    #[track_caller]
    fn rewrite_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.check_written::<T>()?;
        let key = RowKey::of::<T>(key);
        let Some(row) = self.epoch.get(&key)? else { return Ok(None) };
        let mut row = row.replacing();
        let Ok(columns) = RowOf::<T>::mut_from_bytes(row.get_mut()) else { return decoded::<T, _>(Some(None)) };
        let answer = f(columns);
        self.epoch.put(key, row);
        Ok(Some(answer))
    }

    #[track_caller]
    fn insert_row<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), StoreError> {
        self.check_written::<T>()?;
        self.epoch.put(RowKey::of::<T>(key), RowBytes::inserted(bytes_of::<T>(row)));
        Ok(())
    }

    #[track_caller]
    fn rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut fits = true;
        self.epoch.each(RowKey::of::<T>(from), RowKey::of::<T>(to), usize::MAX, |key, row| {
            let (Some(key), Some(row)) = (key_of::<T::Key>(key.bytes()), row_of::<T>(row.get())) else {
                fits = false;
                return ControlFlow::Break(());
            };
            f(&key, row)
        })?;
        all_fit::<T, _>(fits, ())
    }

    #[track_caller]
    fn update_rows<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, StoreError> {
        self.check_written::<T>()?;
        let mut fits = true;
        let rows = self.epoch.change_each(RowKey::of::<T>(from), RowKey::of::<T>(to), usize::MAX, |key, row| {
            let mut row = row.clone().replacing();
            match (key_of::<T::Key>(key.bytes()), RowOf::<T>::mut_from_bytes(row.get_mut())) {
                (Some(key), Ok(columns)) => f(&key, &mut columns.hot, &columns.cold),
                _ => fits = false,
            }
            Change::Replace(row)
        })?;
        all_fit::<T, _>(fits, rows)
    }

    #[track_caller]
    fn remove_first_row<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, StoreError> {
        self.check_written::<T>()?;
        let mut first = None;
        self.epoch.change_each(RowKey::of::<T>(from), RowKey::of::<T>(to), 1, |key, _| {
            first = Some(*key);
            Change::Delete
        })?;
        let Some(key) = first else { return Ok(None) };
        key_of(key.bytes()).ok_or_else(layout::<T>).map(Some)
    }

    fn announce<T: TableDef>(&mut self, keys: &[T::Key]) {
        let keys: SmallVec<[RowKey; RUN]> = keys.iter().map(RowKey::of::<T>).collect();
        self.epoch.announce(&keys);
    }

    fn announce_part<P: Part>(&mut self, keys: &[<P::Table as TableDef>::Key]) {
        if !self.reads_only::<P::Table>() {
            return self.announce::<P::Table>(keys);
        }
        let keys: SmallVec<[RowKey; RUN]> = keys.iter().map(RowKey::of_part::<P>).collect();
        self.epoch.announce(&keys);
    }
}

#[cfg(test)]
mod tests {
    use speculate::Options;

    use super::*;
    use crate::engines::storage::fingerprint::tests::loaded;
    use crate::workload::engine::{Engine, Session};
    use crate::workload::ops::Read;
    use crate::workload::schema::keys::StockKey;
    use crate::workload::schema::parts::StockQuantity;
    use crate::workload::schema::tables::Stock;

    const STOCK: StockKey = StockKey { w: 1, i: 1 };

    /// Runs a loop whose body accesses one stock row. The tables of `read_only` are declared as read-only. Returns the
    /// results of the body, and the quantity before and after the loop.
    fn quantities(
        read_only: &[TableId],
        body: impl Fn(&mut EpochOps<'_, '_, '_>) -> Result<i16, Failure<StoreError>> + Sync,
    ) -> (Result<Vec<i16>, Failure<StoreError>>, i16, i16) {
        let store = loaded(8 << 20, 1, 5);
        let rows = RowStore::new(&store);
        let mut speculator = Speculator::new(Options::new().workers(2)).unwrap();
        let mut session = store.session(0).unwrap();
        let mut tx = session.begin().unwrap();
        let quantity = |tx: &mut StoreTransaction<'_>| {
            tx.read_part::<StockQuantity, _>(&STOCK, |part| part.quantity.get()).unwrap().unwrap()
        };
        let before = quantity(&mut tx);
        let mut seen = Vec::new();
        let ran = tx.run_ahead(&mut speculator, &rows, 0..3, read_only, |epoch, _| body(epoch), |q| seen.push(q));
        (ran.map(|()| seen), before, quantity(&mut tx))
    }

    fn read(epoch: &mut EpochOps<'_, '_, '_>) -> Result<i16, Failure<StoreError>> {
        Ok(epoch.row_part::<StockQuantity, _>(&STOCK, |part| part.quantity.get())?.unwrap())
    }

    fn add(epoch: &mut EpochOps<'_, '_, '_>) -> Result<(), Failure<StoreError>> {
        let changed = epoch.update_row::<Stock, _>(&STOCK, |hot, _| hot.quantity.set(hot.quantity.get() + 1))?;
        assert!(changed.is_some());
        Ok(())
    }

    #[test]
    fn a_part_of_a_row_that_is_only_read_is_read_alone() {
        let (ran, before, after) = quantities(&[TableId::Stock], read);
        assert_eq!((ran.unwrap(), after), (vec![before; 3], before));
    }

    #[test]
    fn a_part_of_a_row_that_is_written_shows_what_was_written() {
        let (ran, before, after) = quantities(&[], |epoch| {
            add(epoch)?;
            read(epoch)
        });
        assert_eq!((ran.unwrap(), after), (vec![before + 1, before + 2, before + 3], before + 3));
    }

    #[test]
    fn a_write_to_a_table_that_is_only_read_is_refused() {
        let (ran, before, after) = quantities(&[TableId::Stock], |epoch| {
            add(epoch)?;
            read(epoch)
        });
        let told = ran.unwrap_err().to_string();
        assert!(told.contains("only reads") && told.contains("Stock"), "{told}");
        assert_eq!(before, after);
    }
}
