//! Rows that are read and written as streams.

use std::io::{self, BufRead, Read};

use super::raw::{RawReader, RawWriter};
use super::table::AsTable;
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::table::codec::{BorrowedKey, Key};
use crate::table::index::{AccessMode, Index};
use crate::table::streaming::OpenedRow;

/// A reader that streams the bytes of a row: see [`Transaction::read_value`].
///
/// The reader implements [`Read`]; [`ValueReader::piece`] returns a typed error.
#[derive(Debug)]
pub struct ValueReader<'tx, 'db> {
    tx: &'tx Transaction<'db>,
    index: &'db Index,
    key: Vec<u8>,
    row: OpenedRow,
    /// Number of bytes of the row before the current piece.
    at: usize,
    /// The current piece; `taken` is the number of its bytes that were already read.
    piece: Vec<u8>,
    taken: usize,
}

impl<'db> Transaction<'db> {
    /// Opens a row of bytes as a stream, so that only some kilobytes of a long row are in memory at a time. Returns
    /// `None` if there is no row. The row is locked as by [`Transaction::get`]; below repeatable read a row of more
    /// than some kilobytes also cannot be replaced or deleted until the transaction ends.
    ///
    /// ```
    /// # use std::io::Read;
    /// # use storage::{Database, Options, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-values-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// const FILMS: Table<String, Vec<u8>> = Table::new("films");
    /// let mut tx = db.begin()?;
    /// let source = std::io::repeat(7).take(1_000_000);
    /// assert_eq!(tx.write_value(&FILMS, "seven", source)?, 1_000_000);
    /// let mut film = tx.read_value(&FILMS, "seven")?.expect("it was written");
    /// assert_eq!(film.len(), 1_000_000);
    /// std::io::copy(&mut film, &mut std::io::sink())?;
    /// # drop(tx); drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_value<'tx, K: Key>(
        &'tx self,
        table: &impl AsTable<K, Vec<u8>>,
        key: &K::Borrowed,
    ) -> Result<Option<ValueReader<'tx, 'db>>, TxnError> {
        let mut bytes = Vec::new();
        key.encode_key(&mut bytes);
        self.raw().read_value(table, &bytes)
    }

    /// Inserts a row, or replaces the existing one. The new row consists of all bytes of `source`, which is read in
    /// pieces. Returns the number of bytes. On an error, or if the source panics, nothing is changed.
    ///
    /// # Errors
    /// [`TxnError::Source`] if the source cannot be read, [`TxnError::RowTooLarge`] if the source has more bytes than a
    /// row may have; errors of [`RawWriter::write_value`]; see [`TxnError`].
    pub fn write_value<K: Key>(
        &mut self,
        table: &impl AsTable<K, Vec<u8>>,
        key: &K::Borrowed,
        source: impl Read,
    ) -> Result<u64, TxnError> {
        let mut bytes = Vec::new();
        key.encode_key(&mut bytes);
        self.raw_mut().write_value(table, &bytes, source)
    }
}

impl ValueReader<'_, '_> {
    /// Returns the length of the row in bytes.
    pub fn len(&self) -> u64 {
        self.whole_len() as u64
    }

    /// Returns true if the row has no bytes.
    pub fn is_empty(&self) -> bool {
        self.whole_len() == 0
    }

    fn whole_len(&self) -> usize {
        match &self.row {
            OpenedRow::Whole(row) => row.len(),
            OpenedRow::Chain(_, len) => *len,
        }
    }

    /// Returns the next bytes of the row, at most some kilobytes; an empty slice at the row's end. Bytes that [`Read`]
    /// has returned are skipped.
    ///
    /// # Errors
    /// An error if a page cannot be read; see [`TxnError`]. The next call tries to read the same bytes again.
    pub fn piece(&mut self) -> Result<&[u8], TxnError> {
        self.at_hand()?;
        let from = std::mem::replace(&mut self.taken, self.piece.len());
        Ok(&self.piece[from..])
    }

    /// Loads the next piece if all bytes of the current one were read, unless the row is at its end.
    fn at_hand(&mut self) -> Result<(), TxnError> {
        let at = self.at + self.piece.len();
        if self.taken < self.piece.len() || at == self.whole_len() {
            return Ok(());
        }
        let ValueReader { tx, index, key, row, piece, .. } = self;
        match row {
            OpenedRow::Whole(row) => piece.clone_from(row),
            OpenedRow::Chain(chain, len) => {
                let mut next = Vec::new();
                tx.step(|txn| txn.read_piece(index, key, (*chain, *len), at, &mut next))?;
                *piece = next;
            }
        }
        (self.at, self.taken) = (at, 0);
        Ok(())
    }
}

impl Read for ValueReader<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut left = self.fill_buf()?;
        let read = left.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for ValueReader<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.at_hand().map_err(io::Error::other)?;
        Ok(&self.piece[self.taken..])
    }

    fn consume(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.piece.len());
    }
}

impl<'t, 'db> RawReader<'t, 'db> {
    /// As [`Transaction::read_value`], for the encoded row of any table.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_value<K, V>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
    ) -> Result<Option<ValueReader<'t, 'db>>, TxnError> {
        let Some(info) = self.tx.table_to_read(table, AccessMode::Read)? else { return Ok(None) };
        let index = &info.primary;
        self.tx.enter(OperationKind::Fetch, index);
        let opened = self.tx.step(|txn| txn.open_row(index, key))?;
        Ok(opened.map(|row| ValueReader {
            tx: self.tx,
            index,
            key: key.to_vec(),
            row,
            at: 0,
            piece: Vec::new(),
            taken: 0,
        }))
    }
}

impl RawWriter<'_, '_> {
    /// As [`Transaction::write_value`], for the encoded row of any table.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has secondary indexes, because index entries are computed from whole rows; see
    /// [`Transaction::write_value`].
    pub fn write_value<K, V>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        mut source: impl Read,
    ) -> Result<u64, TxnError> {
        let info = self.tx.table_to_insert(table)?;
        self.tx.enter(OperationKind::Insert, &info.primary);
        if !info.secondaries.is_empty() {
            let what = "has secondary indexes, which are made from whole rows: put the row".into();
            return Err(TxnError::Schema { table: info.primary.table(), what });
        }
        let result = self.tx.txn.get_mut().put_from(info, key, &mut source);
        self.tx.record_victim(result)
    }
}
