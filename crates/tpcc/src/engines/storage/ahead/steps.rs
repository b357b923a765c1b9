//! The steps of a transaction's loop, in epochs that run ahead of it.

use std::ops::ControlFlow;

use smallvec::SmallVec;
use speculate::{Change, Epoch, LoopError, Speculator};
use zerocopy::FromBytes;

use super::rows::{RUN, RowBytes, RowKey, RowStore};
use crate::engines::storage::codec::{bytes_of, key_of, row_of};
use crate::engines::storage::store::{StoreError, StoreTransaction, all_fit, decoded, layout};
use crate::workload::ops::RowOps;
use crate::workload::schema::{RowOf, TableDef};
use crate::workload::txn::Failure;

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
        self.rewrite_row::<T, R>(key, |row| f(&mut row.hot, &row.cold))
    }

    #[track_caller]
    fn rewrite_row<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        let key = RowKey::of::<T>(key);
        let Some(mut row) = self.0.get(&key)? else { return Ok(None) };
        row.is_new = false;
        let Ok(columns) = RowOf::<T>::mut_from_bytes(&mut row.bytes) else { return decoded::<T, _>(Some(None)) };
        let answer = f(columns);
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
        let mut fits = true;
        self.0.each(RowKey::of::<T>(from), RowKey::of::<T>(to), usize::MAX, |key, row| {
            let (Some(key), Some(row)) = (key_of::<T::Key>(key.bytes()), row_of::<T>(&row.bytes)) else {
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
        let mut fits = true;
        let rows = self.0.change_each(RowKey::of::<T>(from), RowKey::of::<T>(to), usize::MAX, |key, row| {
            let mut row = RowBytes { is_new: false, ..row.clone() };
            match (key_of::<T::Key>(key.bytes()), RowOf::<T>::mut_from_bytes(&mut row.bytes)) {
                (Some(key), Ok(columns)) => f(&key, &mut columns.hot, &columns.cold),
                _ => fits = false,
            }
            Change::Replace(row)
        })?;
        all_fit::<T, _>(fits, rows)
    }

    #[track_caller]
    fn remove_first_row<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, StoreError> {
        let mut first = None;
        self.0.change_each(RowKey::of::<T>(from), RowKey::of::<T>(to), 1, |key, _| {
            first = Some(*key);
            Change::Delete
        })?;
        let Some(key) = first else { return Ok(None) };
        key_of(key.bytes()).ok_or_else(layout::<T>).map(Some)
    }

    fn announce<T: TableDef>(&mut self, keys: &[T::Key]) {
        let keys: SmallVec<[RowKey; RUN]> = keys.iter().map(RowKey::of::<T>).collect();
        self.0.announce(&keys);
    }
}
