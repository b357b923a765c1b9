//! Store of loops in buffers: an adapter from the loops' interface to the tables of a database.

use std::ops::ControlFlow;

use speculate::{KeyAndValue, KeyRange, RangeRow, RangeStore, Seen, SeenRange, Store, Written};
use storage::optimistic::{Peeker, Place};
use storage::{Database, OpenTable, Transaction, TxnError};

use super::tables::{Bytes, UNIQUE};

/// Position of a row: the number of its table, then its key. All positions of a range have the same table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowPosition {
    pub(crate) table: usize,
    pub(crate) key: Vec<u8>,
}

/// Tables of which loops read rows speculatively, before the transaction reads them.
pub(crate) struct LoopStore<'d> {
    db: &'d Database,
    tables: Vec<OpenTable<Bytes, Vec<u8>>>,
}

impl<'d> LoopStore<'d> {
    /// Creates a store for tables of a database.
    pub(crate) fn new(db: &'d Database, tables: &[OpenTable<Bytes, Vec<u8>>]) -> LoopStore<'d> {
        LoopStore { db, tables: tables.to_vec() }
    }

    fn table(&self, position: &RowPosition) -> &OpenTable<Bytes, Vec<u8>> {
        &self.tables[position.table]
    }
}

/// Returns the key, place and new value of a row that has been read and is now overwritten. Returns `None` for a table with
/// a unique index: its rows are written one by one, because the order of writes determines the duplicates.
fn replacement<'w>(write: &Written<'w, LoopStore<'_>>) -> Option<(&'w [u8], Place, &'w [u8])> {
    let seen = write.seen.as_ref().filter(|seen| seen.value.is_some() && write.key.table != UNIQUE)?;
    Some((&write.key.key, *seen.stamp, write.value?))
}

impl<'d> Store for LoopStore<'d> {
    type Key = RowPosition;
    type Value = Vec<u8>;
    type Stamp = Place;
    type Local = Peeker;
    type Order = Transaction<'d>;
    type Error = TxnError;

    fn size(&self, position: &RowPosition, row: Option<&Vec<u8>>) -> usize {
        size_of::<RowPosition>() + position.key.len() + row.map_or(0, |row| size_of::<Vec<u8>>() + row.len())
    }

    fn announce(&self, peeker: &mut Peeker, positions: &[RowPosition]) {
        let rows = positions.iter().map(|position| (*self.table(position), position.key.as_slice(), 64));
        self.db.raw().announce(peeker, rows);
    }

    fn peek(&self, peeker: &mut Peeker, position: &RowPosition) -> Result<(Option<Vec<u8>>, Place), TxnError> {
        let (row, place) = self.db.raw().peek(peeker, self.table(position), &position.key)?;
        Ok((row.map(<[u8]>::to_vec), place))
    }

    fn confirm(&self, tx: &mut Transaction<'d>, seen: Seen<'_, Self>) -> Result<bool, TxnError> {
        let (table, row) = (self.table(seen.key), seen.value.map(Vec::as_slice));
        tx.raw_mut().confirm(table, &seen.key.key, seen.stamp, row, seen.to_write)
    }

    fn read(&self, tx: &mut Transaction<'d>, position: &RowPosition) -> Result<Option<Vec<u8>>, TxnError> {
        tx.raw().read(self.table(position), &position.key, <[u8]>::to_vec)
    }

    fn write(&self, tx: &mut Transaction<'d>, write: &Written<'_, Self>) -> Result<(), TxnError> {
        let (table, key) = (self.table(write.key), &write.key.key);
        match write.value {
            Some(row) => tx.raw_mut().put(table, key, row),
            None => tx.raw_mut().delete(table, key).map(drop),
        }
    }

    fn write_all(&self, tx: &mut Transaction<'d>, writes: &[Written<'_, Self>]) -> Result<(), TxnError> {
        for (number, table) in self.tables.iter().enumerate() {
            let mut rows = writes.iter().filter(|write| write.key.table == number).filter_map(replacement).peekable();
            if rows.peek().is_some() {
                tx.raw_mut().replace_many(table, rows)?;
            }
        }
        writes.iter().filter(|write| replacement(write).is_none()).try_for_each(|write| self.write(tx, write))
    }
}

impl<'d> RangeStore for LoopStore<'d> {
    fn peek_range(
        &self,
        peeker: &mut Peeker,
        KeyRange { first, last }: &KeyRange<RowPosition>,
        most: usize,
    ) -> Result<Vec<RangeRow<Self>>, TxnError> {
        let (table, mut rows) = (first.table, Vec::new());
        let range = (&first.key[..], &last.key[..]);
        self.db.raw().peek_range(peeker, self.table(first), range, most, |key, row, stamp| {
            rows.push(RangeRow { key: RowPosition { table, key: key.to_vec() }, value: row.to_vec(), stamp });
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn confirm_range(&self, tx: &mut Transaction<'d>, seen: SeenRange<'_, Self>) -> Result<bool, TxnError> {
        let KeyRange { first, last } = seen.range;
        let (mut expected, mut same) = (seen.rows(), true);
        let range = (&first.key[..], &last.key[..]);
        tx.raw_mut().lock_range(self.table(first), range, seen.most, seen.to_write, |key, row| {
            same = expected.next().is_some_and(|(position, value)| position.key == key && value == row);
            if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(same && expected.next().is_none())
    }

    fn read_range(
        &self,
        tx: &mut Transaction<'d>,
        KeyRange { first, last }: &KeyRange<RowPosition>,
        most: usize,
    ) -> Result<Vec<KeyAndValue<Self>>, TxnError> {
        let (table, mut rows) = (first.table, Vec::new());
        let range = (&first.key[..], &last.key[..]);
        tx.raw_mut().lock_range(self.table(first), range, most, false, |key, row| {
            rows.push((RowPosition { table, key: key.to_vec() }, row.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}
