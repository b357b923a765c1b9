//! Range read of an epoch, and its validation.

use std::sync::Arc;

use crate::error::LoopError;
use crate::forward::{Site, WriteId};
use crate::shared::{Shared, StaleRead};
use crate::store::{KeyAndValue, KeyRange, RangeRow, RangeStore, SeenRange, SeenRows, Store};

/// Rows that a body got from a range read, in ascending order. A body that is run again gets the same rows.
pub(crate) type Rows<S> = Arc<[KeyAndValue<S>]>;

/// Recorded range read of an epoch.
pub(crate) struct Scan<S: Store> {
    pub(crate) range: KeyRange<S::Key>,
    /// Rows that the store returned; `None` if the read was a locked read in order.
    store_rows: Option<Vec<RangeRow<S>>>,
    /// Rows that the store should have when all earlier epochs have committed.
    expected: ExpectedRows<S>,
    /// Numbers of the writes of earlier epochs that were overlaid on the rows, in the order of keys.
    forwarded: Vec<WriteId>,
    /// Rows that the body got; `None` if they are the same as the rows of the store.
    returned_rows: Option<Rows<S>>,
    /// True if the epoch also writes keys of the range.
    pub(crate) to_write: bool,
    /// Functions of [`RangeStore`], for code that is generic over [`Store`] only.
    vtable: Vtable<S>,
}

/// Rows that a range of the store should have when the range is confirmed in order.
pub(crate) enum ExpectedRows<S: Store> {
    /// The first rows of the range, at most `most`, should be the rows that the unlocked read returned.
    AsSeen { most: usize },
    /// Writes of earlier epochs, or of iterations that are followed by their `then`, have been overlaid on the rows of the
    /// unlocked read: in `range`, the store should have exactly `rows`.
    Overlaid { range: KeyRange<S::Key>, rows: Vec<(S::Key, S::Value)> },
}

/// Functions that only a store with ranges has.
struct Vtable<S: Store> {
    contains: fn(&KeyRange<S::Key>, &S::Key) -> bool,
    position: fn(&[RangeRow<S>], &S::Key) -> Option<usize>,
    confirm: ConfirmFn<S>,
    forwarded_writes: ForwardedWritesFn<S>,
}

/// Function that confirms a range: see [`RangeStore::confirm_range`].
type ConfirmFn<S> = fn(&S, &mut <S as Store>::Order, SeenRange<'_, S>) -> Result<bool, <S as Store>::Error>;

/// Function that returns the newest writes of earlier epochs to keys of a range, in the order of keys.
type ForwardedWritesFn<S> = fn(&Shared<S>, u64, &KeyRange<<S as Store>::Key>) -> Vec<Overlay<S>>;

/// Write that is overlaid on a range: its key, number, site and value.
pub(crate) type Overlay<S> = (<S as Store>::Key, WriteId, Site, Option<Arc<<S as Store>::Value>>);

impl<S: RangeStore> Scan<S> {
    pub(crate) fn new(
        range: KeyRange<S::Key>,
        store_rows: Option<Vec<RangeRow<S>>>,
        expected: ExpectedRows<S>,
        forwarded: Vec<WriteId>,
        returned_rows: Option<Rows<S>>,
    ) -> Scan<S> {
        let vtable = Vtable {
            contains: KeyRange::contains,
            position: |rows: &[RangeRow<S>], key| rows.binary_search_by(|row| row.key.cmp(key)).ok(),
            confirm: S::confirm_range,
            forwarded_writes: forwarded_writes::<S>,
        };
        Scan { range, store_rows, expected, forwarded, returned_rows, to_write: false, vtable }
    }
}

impl<S: Store> Scan<S> {
    /// Returns the number of rows that the body got.
    pub(crate) fn len(&self) -> usize {
        self.returned_rows.as_ref().map_or(self.store_rows.as_ref().map_or(0, Vec::len), |rows| rows.len())
    }

    /// Returns the size of the keys and values that the scan keeps, in bytes.
    pub(crate) fn bytes(&self, store: &S) -> usize {
        let size = |(key, value): (&S::Key, &S::Value)| store.size(key, Some(value));
        let store_rows = self.store_rows.iter().flatten().map(|row| size((&row.key, &row.value)));
        let returned_rows =
            self.returned_rows.iter().flat_map(|rows| rows.iter()).map(|(key, value)| size((key, value)));
        let expected: &[_] = match &self.expected {
            ExpectedRows::AsSeen { .. } => &[],
            ExpectedRows::Overlaid { rows, .. } => rows,
        };
        store_rows.chain(returned_rows).chain(expected.iter().map(|(key, value)| size((key, value)))).sum()
    }

    /// Returns row number `row` of the rows that the body got.
    pub(crate) fn returned_row(&self, row: usize) -> Option<(&S::Key, &S::Value)> {
        match &self.returned_rows {
            Some(rows) => rows.get(row).map(|(key, value)| (key, value)),
            None => self.store_row(row).map(|row| (&row.key, &row.value)),
        }
    }

    /// Returns all rows that the body got.
    pub(crate) fn rows(&self) -> Rows<S> {
        match &self.returned_rows {
            Some(rows) => Arc::clone(rows),
            None => self.store_rows.iter().flatten().map(|row| (row.key.clone(), row.value.clone())).collect(),
        }
    }

    /// Converts the index of a row that the body got to the index of the row in the store's rows; `None` if the body got
    /// other rows.
    pub(crate) fn store_index(&self, row: usize) -> Option<usize> {
        self.returned_rows.is_none().then_some(row)
    }

    /// Returns true if a key is in the range of this read.
    pub(crate) fn contains(&self, key: &S::Key) -> bool {
        (self.vtable.contains)(&self.range, key)
    }

    /// Returns the index of a key in the store's rows. `None` if the range is confirmed with overlaid writes, because an
    /// earlier epoch may have deleted the row since.
    pub(crate) fn position(&self, key: &S::Key) -> Option<usize> {
        if matches!(self.expected, ExpectedRows::Overlaid { .. }) {
            return None;
        }
        self.store_rows.as_ref().and_then(|rows| (self.vtable.position)(rows, key))
    }

    /// Returns row number `row` of the store, as the unlocked read returned it.
    pub(crate) fn store_row(&self, row: usize) -> Option<&RangeRow<S>> {
        self.store_rows.as_ref().and_then(|rows| rows.get(row))
    }

    /// Checks that the overlaid writes of earlier epochs are still the newest writes. If not, returns the violation.
    pub(crate) fn stale_read(&self, shared: &Shared<S>, epoch: u64, at: usize) -> Option<StaleRead> {
        self.store_rows.as_ref()?;
        let now = (self.vtable.forwarded_writes)(shared, epoch, &self.range);
        if now.iter().map(|(_, id, ..)| id).eq(&self.forwarded) {
            return None;
        }
        let writer = now.iter().find(|(_, id, ..)| !self.forwarded.contains(id)).map(|(_, _, site, _)| *site);
        Some(StaleRead { at, writer, may_wait: true, injected: false })
    }

    /// Locks the range. Returns true if the store has the expected rows.
    pub(crate) fn confirm<E>(&self, store: &S, order: &mut S::Order) -> Result<bool, LoopError<E, S::Error>> {
        let Some(rows) = &self.store_rows else { return Ok(true) };
        let to_write = self.to_write;
        let seen = match &self.expected {
            ExpectedRows::AsSeen { most } => {
                SeenRange { range: &self.range, most: *most, rows: SeenRows::Peeked(rows), to_write }
            }
            ExpectedRows::Overlaid { range, rows } => {
                SeenRange { range, most: usize::MAX, rows: SeenRows::Overlaid(rows), to_write }
            }
        };
        (self.vtable.confirm)(store, order, seen).map_err(LoopError::Store)
    }
}

/// Returns the newest writes of earlier epochs to keys of a range: see [`ForwardedWritesFn`].
pub(crate) fn forwarded_writes<S: RangeStore>(
    shared: &Shared<S>,
    epoch: u64,
    range: &KeyRange<S::Key>,
) -> Vec<Overlay<S>> {
    let Some(last) = shared.last_before(epoch) else { return Vec::new() };
    let mut found: Vec<Overlay<S>> = Vec::new();
    shared.directory.each_newest(
        shared.first_concurrent(epoch),
        last,
        |key| range.contains(key),
        |key, write| found.push((key.clone(), write.id, write.site, write.value.clone())),
    );
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}
