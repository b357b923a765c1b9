//! Range reads of an epoch: the rows of the store, overlaid with the uncommitted writes of earlier epochs and of the epoch
//! itself.

use std::ops::{ControlFlow, Range};
use std::panic::Location;
use std::sync::Arc;

use crate::epoch::Epoch;
use crate::forward::Site;
use crate::log::{Op, Source};
use crate::scan::{ExpectedRows, Scan, forwarded_writes};
use crate::store::{KeyAndValue, KeyRange, RangeStore};

impl<S: RangeStore> Epoch<'_, S> {
    /// Returns the first `most` rows of the range from `first` to `last` (both included), in ascending order. These are the
    /// rows that a sequential run would read here.
    ///
    /// # Errors
    /// Returns an error of the store.
    #[track_caller]
    pub fn range(&mut self, first: S::Key, last: S::Key, most: usize) -> Result<Arc<[KeyAndValue<S>]>, S::Error> {
        let at = self.scan(KeyRange { first, last }, most, Location::caller())?;
        Ok(self.log.scan(at).map(Scan::rows).unwrap_or_default())
    }

    /// Passes the rows that `Epoch::range` would return to `show` one by one, without copies, until `show` breaks.
    ///
    /// # Errors
    /// As for [`Epoch::range`].
    #[track_caller]
    pub fn each(
        &mut self,
        first: S::Key,
        last: S::Key,
        most: usize,
        mut show: impl FnMut(&S::Key, &S::Value) -> ControlFlow<()>,
    ) -> Result<(), S::Error> {
        let at = self.scan(KeyRange { first, last }, most, Location::caller())?;
        if let Some(scan) = self.log.scan(at) {
            let mut rows = (0..scan.len()).map_while(|row| scan.returned_row(row));
            let _ = rows.try_for_each(|(key, value)| show(key, value));
        }
        Ok(())
    }

    /// Passes each row that `Epoch::range` would return to `change` and writes the result. Returns the number of rows.
    ///
    /// # Errors
    /// As for [`Epoch::range`].
    #[track_caller]
    pub fn change_each(
        &mut self,
        first: S::Key,
        last: S::Key,
        most: usize,
        mut change: impl FnMut(&S::Key, &S::Value) -> Change<S::Value>,
    ) -> Result<usize, S::Error> {
        let site = Location::caller();
        let at = self.scan(KeyRange { first, last }, most, site)?;
        let rows = self.log.scan(at).map_or(0, Scan::len);
        for row in 0..rows {
            let Some(scan) = self.log.scan(at) else { break };
            let Some((key, value)) = scan.returned_row(row) else { break };
            let value = match change(key, value) {
                Change::Keep => continue,
                Change::Replace(value) => Some(value),
                Change::Delete => None,
            };
            let (key, of) = (key.clone(), scan.store_index(row).map(|row| (at, row)));
            self.write(key, value, of, site);
        }
        Ok(rows)
    }

    /// Reads a range, or replays a recorded read. Returns the index of the range read in the log.
    fn scan(&mut self, range: KeyRange<S::Key>, most: usize, site: Site) -> Result<usize, S::Error> {
        let at = self.next;
        let recorded = self.replay(|op| matches!(op, Op::Scan { scan, .. } if scan.range == range).then_some(()));
        if recorded.is_some() {
            return Ok(at);
        }
        self.wait_at(site, None);
        let overlays =
            self.last_before().map_or_else(Vec::new, |_| forwarded_writes::<S>(self.shared, self.number, &range));
        let all = own_writes(self, &range, self.first_unwritten()..self.next);
        // Writes of earlier iterations: the store has received them when it confirms the range.
        let written = if self.in_turn {
            own_writes(self, &range, self.first_unwritten()..self.iteration_start)
        } else {
            Vec::new()
        };
        // More rows than `most` are requested from the store, because the overlaid writes may delete some rows.
        let store_limit = most.saturating_add(overlays.len() + all.len());
        let (seen, mut rows) = match &mut self.order {
            Some(order) => {
                let read = self.store.read_range(order, &range, store_limit).inspect_err(|_| self.refused = true);
                (None, read?)
            }
            None => match self.store.peek_range(self.local, &range, store_limit) {
                Ok(seen) if overlays.is_empty() && all.is_empty() => {
                    let expected = ExpectedRows::AsSeen { most: store_limit };
                    self.log.push_scan(self.store, Scan::new(range, Some(seen), expected, Vec::new(), None), site);
                    self.next += 1;
                    return Ok(at);
                }
                Ok(seen) => {
                    let rows = seen.iter().map(|row| (row.key.clone(), row.value.clone())).collect();
                    (Some(seen), rows)
                }
                Err(error) => {
                    let hash = self.shared.directory.hash(&range.first);
                    let (key, value, source) = (range.first, None::<S::Value>.into(), Source::Failed);
                    self.log.push(self.store, Op::Read { key, hash, value, source, to_write: false, site }, hash);
                    self.next += 1;
                    return Err(error);
                }
            },
        };
        // The rows of the range behind the last row that the store returned are unknown.
        let whole = rows.len() < store_limit;
        let known = rows.last().map(|(key, _)| key.clone()).filter(|_| !whole);
        overlay(&mut rows, known.as_ref(), overlays.iter().map(|(key, _, _, value)| (key, value.as_deref())));
        overlay(&mut rows, known.as_ref(), written.iter().map(|(key, value)| (key, value.as_ref())));
        let expected = if overlays.is_empty() && written.is_empty() {
            ExpectedRows::AsSeen { most: store_limit }
        } else {
            let last = known.clone().unwrap_or_else(|| range.last.clone());
            ExpectedRows::Overlaid { range: KeyRange { first: range.first.clone(), last }, rows: rows.clone() }
        };
        overlay(&mut rows, known.as_ref(), all.iter().map(|(key, value)| (key, value.as_ref())));
        rows.truncate(most);
        let forwarded = overlays.into_iter().map(|(_, id, ..)| id).collect();
        self.log.push_scan(self.store, Scan::new(range, seen, expected, forwarded, Some(rows.into())), site);
        self.next += 1;
        Ok(at)
    }
}

/// New state of a row: see [`Epoch::change_each`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// The row is not written.
    Keep,
    /// The row gets this value.
    Replace(V),
    /// The row is deleted.
    Delete,
}

/// Applies `writes` to `rows`, which are complete up to the key `known`; if `known` is `None`, all rows are complete.
fn overlay<'w, K: Ord + Clone + 'w, V: Clone + 'w>(
    rows: &mut Vec<(K, V)>,
    known: Option<&K>,
    writes: impl Iterator<Item = (&'w K, Option<&'w V>)>,
) {
    for (key, value) in writes.filter(|(key, _)| known.is_none_or(|known| *key <= known)) {
        match (rows.binary_search_by(|(other, _)| other.cmp(key)), value) {
            (Ok(at), Some(value)) => rows[at].1 = value.clone(),
            (Ok(at), None) => drop(rows.remove(at)),
            (Err(at), Some(value)) => rows.insert(at, (key.clone(), value.clone())),
            (Err(_), None) => {}
        }
    }
}

/// Returns the writes of the epoch's operations in an index range to keys of a key range: for each key its last value, or
/// `None` if the key was deleted.
fn own_writes<S: RangeStore>(
    epoch: &Epoch<'_, S>,
    range: &KeyRange<S::Key>,
    operations: Range<usize>,
) -> Vec<(S::Key, Option<S::Value>)> {
    let mut found: Vec<(S::Key, Option<S::Value>)> = Vec::new();
    for op in &epoch.log.ops[operations] {
        if let Op::Write { key, value, .. } = op
            && range.contains(key)
        {
            let value = value.get().cloned();
            match found.iter_mut().find(|(other, _)| other == key) {
                Some((_, last)) => *last = value,
                None => found.push((key.clone(), value)),
            }
        }
    }
    found
}
