//! Optimistic reads: rows are read without locks, from any thread, and locked and validated later.

use std::fmt;
use std::ops::{ControlFlow, Range};

use super::database::Database;
use super::raw::{RawDatabase, RawWriter};
use super::table::OpenTable;
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::base::ids::PageId;
use crate::btree::group::RowPart;
use crate::table::columns::WHOLE;
use crate::table::index::AccessMode;
use crate::table::peek::{AnnouncedPositions, PeekedRows, ReplacementRow, TOGETHER};
use crate::table::scan::{ScanEnd, ScanSpec};
use crate::txn::positions::{LeafSpot, RememberedPosition};

/// Buffers of a thread that reads rows without locks, and the cached positions of the rows that the thread has
/// announced. One value can be used for reads of any number of databases, one read after the other.
///
/// The result of an optimistic read is a complete row, without other guarantees: the row may be uncommitted, may be
/// rolled back later, and may be inconsistent with other rows. A transaction that uses the row later locks the row,
/// without another search, and checks that the row has not changed:
///
/// ```
/// use storage::optimistic::Peeker;
/// use storage::{Database, Options, Raw, Table};
/// # let directory = std::env::temp_dir().join(format!("lockstep-peek-{}", std::process::id()));
/// # let db = Database::open(&directory, Options::new())?;
/// let stock = db.raw_table(&Table::<Raw, Raw>::new("stock"))?;
/// let mut tx = db.begin()?;
/// tx.raw_mut().put(&stock, b"nails", b"700")?;
/// tx.commit()?;
///
/// // Another thread reads ahead.
/// let mut peeker = Peeker::default();
/// let (row, place) = db.raw().peek(&mut peeker, &stock, b"nails")?;
/// let seen = row.map(<[u8]>::to_vec);
///
/// // The transaction locks the row and checks that it is unchanged.
/// let mut tx = db.begin()?;
/// assert!(tx.raw_mut().confirm(&stock, b"nails", &place, seen.as_deref(), true)?);
/// tx.raw_mut().put(&stock, b"nails", b"699")?;
/// tx.commit()?;
///
/// // The row that was read before is not current any more.
/// let mut tx = db.begin()?;
/// assert!(!tx.raw_mut().confirm(&stock, b"nails", &place, seen.as_deref(), true)?);
/// # drop(tx); drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The row itself is compared, not a version number: a row that was changed and changed back is confirmed. A program
/// whose computation depends only on rows gets the same result from the restored row.
#[derive(Default)]
pub struct Peeker {
    row: Vec<u8>,
    rows: PeekedRows,
    /// Cached positions of announced rows of the database `instance`.
    announced: AnnouncedPositions,
    instance: u64,
}

impl fmt::Debug for Peeker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peeker").finish_non_exhaustive()
    }
}

/// Position at which a key was found, or would be inserted. An outdated position only costs another search.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    instance: u64,
    remembered: RememberedPosition,
}

impl Peeker {
    /// Discards the cached positions if they belong to another database than `db`.
    fn serve(&mut self, db: &Database) {
        if self.instance != db.engine.instance {
            (self.instance, self.announced) = (db.engine.instance, AnnouncedPositions::default());
        }
    }
}

impl RawDatabase<'_> {
    /// Prefetches rows of one or more tables into the processor's caches, a group of rows at a time. Each item has the
    /// table, the key, and the number of bytes of the row. The positions of the rows are cached in the peeker. Locks
    /// and changes nothing; skips tables of other databases.
    pub fn announce<'k, K, V>(
        self,
        peeker: &mut Peeker,
        rows: impl Iterator<Item = (OpenTable<K, V>, &'k [u8], usize)>,
    ) {
        peeker.serve(self.db);
        let keys = rows.filter_map(|(table, key, bytes)| {
            Some((table.info(self.db).ok()?.primary.tree(), key, RowPart::to_read(bytes)))
        });
        self.db.engine.announce(&mut peeker.announced, keys);
    }

    /// Reads the current row of a key without a lock: see [`Peeker`].
    ///
    /// # Errors
    /// [`TxnError::ForeignHandle`]; [`TxnError::Dropped`] if the table was dropped or its indexes were changed;
    /// [`TxnError::Storage`] if a page cannot be read.
    pub fn peek<'p, K, V>(
        self,
        peeker: &'p mut Peeker,
        table: &OpenTable<K, V>,
        key: &[u8],
    ) -> Result<(Option<&'p [u8]>, Place), TxnError> {
        self.peek_columns(peeker, table, key, WHOLE)
    }

    /// As [`RawDatabase::peek`], but returns only some columns of the row, concatenated. Columns are ranges of bytes; a
    /// range that ends at `usize::MAX` extends to the row's end. If the row ends before a range does, the result lacks
    /// this range and all later ranges.
    ///
    /// # Errors
    /// As for [`RawDatabase::peek`].
    pub fn peek_columns<'p, K, V>(
        self,
        peeker: &'p mut Peeker,
        table: &OpenTable<K, V>,
        key: &[u8],
        columns: &[Range<usize>],
    ) -> Result<(Option<&'p [u8]>, Place), TxnError> {
        peeker.serve(self.db);
        let info = table.info(self.db)?;
        let peeked = self.db.engine.peek(&peeker.announced, &info.primary, key, columns, &mut peeker.row);
        table.is_still(info, self.db)?;
        let (there, remembered) = peeked?;
        Ok((there.then_some(&*peeker.row), Place { instance: self.db.engine.instance, remembered }))
    }

    /// Calls `visit` for the first `most` rows of `[from, to]`, with their positions, in ascending order until `visit`
    /// breaks. Takes no locks. The rows of one page are a consistent state of this page.
    ///
    /// # Errors
    /// As for [`RawDatabase::peek`].
    pub fn peek_range<K, V>(
        self,
        peeker: &mut Peeker,
        table: &OpenTable<K, V>,
        (from, to): (&[u8], &[u8]),
        most: usize,
        mut visit: impl FnMut(&[u8], &[u8], Place) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let info = table.info(self.db)?;
        let index = &info.primary;
        let instance = self.db.engine.instance;
        let show = |rows: &PeekedRows, (spot, leaf): (LeafSpot, PageId)| {
            // If the table was dropped during the read, its rows are not passed to `visit`.
            !info.is_unchanged(table.ticket())
                || rows.iter().any(|(key, row, position)| {
                    let name = self.db.engine.locks.names.of(index.id(), key);
                    let remembered =
                        RememberedPosition { name, spot: LeafSpot { position, ..spot }, leaf, exact: true };
                    visit(key, row, Place { instance, remembered }).is_break()
                })
        };
        let peeked = self.db.engine.peek_range(index, from, to, most, &mut peeker.rows, show);
        table.is_still(info, self.db)?;
        Ok(peeked?)
    }
}

impl RawWriter<'_, '_> {
    /// Locks a key that was read optimistically (for writing if `to_write`). Returns true if the key's row is
    /// unchanged, or still absent. Later statements of the transaction on this key need no search.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn confirm<K, V>(
        self,
        table: &OpenTable<K, V>,
        key: &[u8],
        place: &Place,
        seen: Option<&[u8]>,
        to_write: bool,
    ) -> Result<bool, TxnError> {
        self.confirm_columns(table, key, place, (WHOLE, seen), to_write)
    }

    /// As [`RawWriter::confirm`], for columns that [`RawDatabase::peek_columns`] has read. The whole row is locked, but
    /// the row's other columns are not compared.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn confirm_columns<K, V>(
        self,
        table: &OpenTable<K, V>,
        key: &[u8],
        place: &Place,
        (columns, seen): (&[Range<usize>], Option<&[u8]>),
        to_write: bool,
    ) -> Result<bool, TxnError> {
        let access = if to_write { AccessMode::Write } else { AccessMode::Read };
        let Some(info) = self.tx.table_to_read(table, access)? else { return Ok(seen.is_none()) };
        self.tx.enter(OperationKind::Fetch, &info.primary);
        let remembered = (place.instance == self.tx.db.engine.instance).then_some(place.remembered);
        let result = self.tx.txn.get_mut().confirm(&info.primary, key, remembered, (columns, seen), access);
        self.tx.record_victim(result)
    }

    /// Locks the first `most` rows of `[from, to]` (for writing if `to_write`) and the gaps between them. Calls `visit`
    /// for each row in ascending order until it breaks: for comparison with the rows of [`RawDatabase::peek_range`].
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn lock_range<K, V>(
        self,
        table: &OpenTable<K, V>,
        (from, to): (&[u8], &[u8]),
        most: usize,
        to_write: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let access = if to_write { AccessMode::Write } else { AccessMode::Read };
        let Some(info) = self.tx.table_to_read(table, access)? else { return Ok(()) };
        self.tx.enter(OperationKind::Scan, &info.primary);
        let mut left = most;
        let wanted = ScanSpec { from, to: ScanEnd::With(to), access, likely: most };
        let result = self.tx.visit_forward(&info.primary, wanted, |key, row| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            match visit(key, row) {
                ControlFlow::Continue(()) if left > 0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        self.tx.record_victim(result)
    }

    /// Replaces rows that were read optimistically, at their cached positions. Up to sixteen distinct rows share a log
    /// record. Keys without a row are skipped. Returns the number of replaced rows. On an error no row is changed.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn replace_many<'r, K, V>(
        self,
        table: &OpenTable<K, V>,
        rows: impl Iterator<Item = (&'r [u8], Place, &'r [u8])>,
    ) -> Result<usize, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(0) };
        self.tx.enter(OperationKind::Update, &info.primary);
        let instance = self.tx.db.engine.instance;
        let mut rows = rows.map(|(key, Place { instance: of, remembered }, row)| ReplacementRow {
            key,
            place: (of == instance).then_some(remembered),
            row,
        });
        let result = self.tx.txn.get_mut().atomically(|txn| {
            let mut found = 0;
            loop {
                let mut group = [ReplacementRow::default(); TOGETHER];
                let n = group.iter_mut().zip(&mut rows).map(|(to, row)| *to = row).count();
                if n == 0 {
                    return Ok(found);
                }
                found += txn.replace_rows(info, &group[..n])?;
            }
        });
        self.tx.record_victim(result)
    }
}
