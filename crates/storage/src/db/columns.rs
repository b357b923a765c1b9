//! Typed statements on some columns of a row.

use super::table::AsTable;
use super::transaction::{Transaction, undecodable};
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::table::codec::{Columns, Key, Row};
use crate::table::index::{AccessMode, Index};
use crate::table::info::TableInfo;
use crate::txn::transaction::Txn;

impl Transaction<'_> {
    /// Reads some columns of a row. The type of the result names the columns ([`columns!`](crate::columns)). The row is
    /// locked as by [`Transaction::get`]; its other columns are neither copied nor decoded.
    ///
    /// # Errors
    /// [`TxnError::Decode`] if the row's bytes do not decode as these columns; see [`TxnError`].
    pub fn get_columns<K: Key, V: Row, C: Columns<V>>(
        &self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
    ) -> Result<Option<C>, TxnError> {
        let Some(info) = self.table_to_read(table, AccessMode::Read)? else { return Ok(None) };
        self.enter(OperationKind::Fetch, &info.primary);
        match self.read_key(&info.primary, key, AccessMode::Read, &[C::RANGE], C::decode)? {
            Some(None) => Err(undecodable::<C>(&info.primary)),
            found => Ok(found.flatten()),
        }
    }

    /// Locks a row for writing and calls `change` to edit some columns of the row. Returns the result of `change`, or
    /// `None` if there is no row. The type of the closure's argument names the columns ([`columns!`](crate::columns)).
    /// Other columns are not read, and only changed bytes are logged. If an index of the table may depend on the edited
    /// columns, the whole row is read and written instead.
    ///
    /// # Errors
    /// [`TxnError::Decode`] if the row's bytes do not decode as these columns; [`TxnError::Schema`] if `C` has no
    /// proper [`Columns::RANGE`], or if the changed columns encode to a different number of bytes. After an error the
    /// row is unchanged. See [`TxnError`].
    pub fn update_columns<K: Key, V: Row, C: Columns<V>, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.table_to_write(table)? else { return Ok(None) };
        self.enter(OperationKind::Update, &info.primary);
        if C::RANGE.start > C::RANGE.end || C::RANGE.end == usize::MAX {
            return Err(misfit::<C>(&info.primary, "lie at no fixed place"));
        }
        self.with_key(key, |tx, key| {
            let done = if info.secondaries.iter().any(|index| index.columns_from < C::RANGE.end) {
                update_with_indexes(tx.txn.get_mut(), info, key, change)?
            } else {
                tx.txn
                    .get_mut()
                    .update_columns(info, key, &[C::RANGE], |bytes, _| change_encoded::<V, C, R>(bytes, change))?
            };
            match done.transpose() {
                Ok(answer) => Ok(answer),
                Err(ColumnsError::NoColumns) => Err(undecodable::<C>(&info.primary)),
                Err(ColumnsError::OtherLength) => {
                    Err(misfit::<C>(&info.primary, "do not encode to as many bytes as they have in a row"))
                }
            }
        })
    }
}

/// Reason for which an update leaves columns unchanged.
enum ColumnsError {
    /// The row's bytes do not decode as these columns.
    NoColumns,
    /// The changed columns encode to a different number of bytes.
    OtherLength,
}

#[cold]
fn misfit<C>(index: &Index, what: &str) -> TxnError {
    let what = format!("the columns {} {what}", std::any::type_name::<C>());
    TxnError::Schema { table: index.table(), what }
}

/// Changes encoded columns in place. `bytes` must not be used after an error.
fn change_encoded<V: Row, C: Columns<V>, R>(
    bytes: &mut Vec<u8>,
    change: impl FnOnce(&mut C) -> R,
) -> Result<R, ColumnsError> {
    let mut columns = C::decode(bytes).ok_or(ColumnsError::NoColumns)?;
    let answer = change(&mut columns);
    let len = bytes.len();
    columns.encode(bytes);
    if bytes.len() == len { Ok(answer) } else { Err(ColumnsError::OtherLength) }
}

fn update_with_indexes<V: Row, C: Columns<V>, R>(
    txn: &mut Txn<'_>,
    info: &TableInfo,
    key: &[u8],
    change: impl FnOnce(&mut C) -> R,
) -> Result<Option<Result<R, ColumnsError>>, TxnError> {
    txn.update_row(info, key, |row| {
        let mut part = row.get(C::RANGE).ok_or(ColumnsError::NoColumns)?.to_vec();
        let answer = change_encoded::<V, C, R>(&mut part, change)?;
        row[C::RANGE].copy_from_slice(&part);
        Ok(answer)
    })
}
