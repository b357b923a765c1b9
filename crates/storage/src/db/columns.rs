//! Typed statements on some columns of a row.

use super::table::AsTable;
use super::transaction::{Transaction, undecodable};
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::table::codec::{Columns, Key, Row};
use crate::table::index::Want;
use crate::table::info::TableInfo;
use crate::txn::transaction::Txn;

impl Transaction<'_> {
    /// Reads some columns of a row: which, the type of the result says ([`columns!`](crate::columns)). The row is locked
    /// as [`Transaction::get`] does; the rest of it is neither copied nor decoded.
    ///
    /// # Errors
    /// [`TxnError::Decode`] if the row's bytes at that place are no such columns; see [`TxnError`].
    pub fn get_columns<K: Key, V: Row, C: Columns<V>>(
        &self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
    ) -> Result<Option<C>, TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(None) };
        self.enter(OperationKind::Fetch, &info.primary);
        match self.read_key(&info.primary, key, Want::Read, &[C::RANGE], C::decode)? {
            Some(None) => Err(undecodable::<C>(&info.primary)),
            found => Ok(found.flatten()),
        }
    }

    /// Lets `change` edit some columns of a row, locked for writing; `None` if there is no row. Which columns, the type
    /// of the closure's argument says ([`columns!`](crate::columns)). The rest of the row is not read, and only bytes
    /// that have changed are logged; unless an index of the table may depend on these columns: then this is like
    /// reading and writing all of the row.
    ///
    /// # Errors
    /// [`TxnError::Decode`] if the row's bytes at that place are no such columns; nothing is changed then. See
    /// [`TxnError`].
    pub fn update_columns<K: Key, V: Row, C: Columns<V>, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(None) };
        self.enter(OperationKind::Update, &info.primary);
        self.with_key(key, |tx, key| {
            let done = if info.secondaries.iter().any(|index| index.columns_from < C::RANGE.end) {
                update_with_indexes(tx.txn.get_mut(), info, key, change)?
            } else {
                tx.txn.get_mut().update_columns(info, key, &[C::RANGE], |bytes, _| changed::<V, C, R>(bytes, change))?
            };
            match done {
                Some(None) => Err(undecodable::<C>(&info.primary)),
                done => Ok(done.flatten()),
            }
        })
    }
}

/// Changes columns where they lie; `None`, and nothing is changed, if these bytes are none.
fn changed<V: Row, C: Columns<V>, R>(bytes: &mut Vec<u8>, change: impl FnOnce(&mut C) -> R) -> Option<R> {
    let mut columns = C::decode(bytes)?;
    let answer = change(&mut columns);
    columns.encode(bytes);
    Some(answer)
}

fn update_with_indexes<V: Row, C: Columns<V>, R>(
    txn: &mut Txn<'_>,
    info: &TableInfo,
    key: &[u8],
    change: impl FnOnce(&mut C) -> R,
) -> Result<Option<Option<R>>, TxnError> {
    txn.update_row(info, key, |row| {
        let mut part = row.get(C::RANGE)?.to_vec();
        let answer = changed::<V, C, R>(&mut part, change)?;
        row[C::RANGE].copy_from_slice(&part);
        Some(answer)
    })
}
