//! Reads of ranges in an epoch: what the store has, with what earlier epochs and the epoch itself have written in between.

use std::panic::Location;
use std::sync::Arc;

use crate::epoch::{Epoch, Shared, Stale};
use crate::error::LoopError;
use crate::forward::{Site, WriteId};
use crate::log::{Op, Source};
use crate::store::{KeyRange, RangeRow, RangeStore, SeenRange, SeenRows, Store};

/// Rows that a body got, in ascending order. A body that is run again gets the same.
pub(crate) type Rows<S> = Arc<[(<S as Store>::Key, <S as Store>::Value)]>;

/// A range that was read.
pub(crate) struct Scan<S: Store> {
    range: KeyRange<S::Key>,
    /// The store's rows; none if they were read in order.
    seen: Option<Vec<RangeRow<S>>>,
    /// What the store should have when all earlier epochs have committed.
    expected: Expected<S>,
    /// The writes of earlier epochs that were laid over them, in the order of keys.
    forwarded: Vec<WriteId>,
    /// What the body got.
    pub(crate) rows: Rows<S>,
    /// The epoch has also written keys of the range.
    pub(crate) to_write: bool,
    /// How the store confirms it, and how writes of earlier epochs are found: known where the range was read.
    vtable: Vtable<S>,
}

/// What a range of the store should have in order.
enum Expected<S: Store> {
    /// Its first rows, so many at most, are those that were seen.
    AsSeen { most: usize },
    /// Writes of earlier epochs lie over what was seen: up to this key the store has exactly these rows.
    With { range: KeyRange<S::Key>, rows: Vec<(S::Key, S::Value)> },
}

/// What only a store with ranges can do.
struct Vtable<S: Store> {
    contains: fn(&KeyRange<S::Key>, &S::Key) -> bool,
    position: fn(&[RangeRow<S>], &S::Key) -> Option<usize>,
    confirm: fn(&S, &mut S::Order, SeenRange<'_, S>) -> Result<bool, S::Error>,
    forwarded: Forwarded<S>,
}

/// The newest writes of earlier epochs to keys of a range, in the order of keys.
type Forwarded<S> =
    fn(&Shared<<S as Store>::Key, <S as Store>::Value>, u64, &KeyRange<<S as Store>::Key>) -> Vec<Overlay<S>>;

/// A write that lies over a range: its key, its number, where it was made, and its value.
type Overlay<S> = (<S as Store>::Key, WriteId, Site, Option<Arc<<S as Store>::Value>>);

impl<S: Store> Scan<S> {
    /// Whether a key lies in the range.
    pub(crate) fn contains(&self, key: &S::Key) -> bool {
        (self.vtable.contains)(&self.range, key)
    }

    /// The row of a key as it was peeked at.
    pub(crate) fn row(&self, key: &S::Key) -> Option<usize> {
        self.seen.as_ref().and_then(|rows| (self.vtable.position)(rows, key))
    }

    /// A row that was peeked at.
    pub(crate) fn seen(&self, row: usize) -> Option<&RangeRow<S>> {
        self.seen.as_ref().and_then(|rows| rows.get(row))
    }

    /// Whether other writes of earlier epochs lie over the range by now.
    pub(crate) fn stale(&self, shared: &Shared<S::Key, S::Value>, epoch: u64, at: usize) -> Option<Stale> {
        self.seen.as_ref()?;
        let now = (self.vtable.forwarded)(shared, epoch, &self.range);
        if now.iter().map(|(_, id, ..)| id).eq(&self.forwarded) {
            return None;
        }
        let writer = now.iter().find(|(_, id, ..)| !self.forwarded.contains(id)).map(|(_, _, site, _)| *site);
        Some(Stale { at, writer })
    }

    /// Locks the range and says whether it is still as it was seen.
    pub(crate) fn confirm<E>(&self, store: &S, order: &mut S::Order) -> Result<bool, LoopError<E, S::Error>> {
        let Some(rows) = &self.seen else { return Ok(true) };
        let to_write = self.to_write;
        let seen = match &self.expected {
            Expected::AsSeen { most } => {
                SeenRange { range: &self.range, most: *most, rows: SeenRows::Peeked(rows), to_write }
            }
            Expected::With { range, rows } => {
                SeenRange { range, most: usize::MAX, rows: SeenRows::Overlaid(rows), to_write }
            }
        };
        (self.vtable.confirm)(store, order, seen).map_err(LoopError::Store)
    }
}

impl<S: RangeStore> Epoch<'_, S> {
    /// The first `most` rows of a range (both ends included), in ascending order, as a sequential run would find them here.
    ///
    /// # Errors
    /// Those of the store.
    #[track_caller]
    pub fn range(&mut self, first: S::Key, last: S::Key, most: usize) -> Result<Arc<[(S::Key, S::Value)]>, S::Error> {
        let (site, range) = (Location::caller(), KeyRange { first, last });
        let recorded = self.replay(|op| match op {
            Op::Scan { scan, .. } if scan.range == range => Some(Arc::clone(&scan.rows)),
            _ => None,
        });
        if let Some(rows) = recorded {
            return Ok(rows);
        }
        let over = forwarded::<S>(self.shared, self.number, &range);
        let own = own(self, &range);
        // As many more of the store's rows as may be deleted by what lies over them.
        let asked = most.saturating_add(over.len() + own.len());
        let (seen, mut rows) = match &mut self.order {
            Some(order) => (None, self.store.read_range(order, &range, asked)?),
            None => match self.store.peek_range(self.local, &range, asked) {
                Ok(seen) => {
                    let rows = seen.iter().map(|row| (row.key.clone(), row.value.clone())).collect();
                    (Some(seen), rows)
                }
                Err(error) => {
                    let hash = self.shared.directory.hash(&range.first);
                    let (key, value, source) = (range.first, None::<S::Value>.into(), Source::Failed);
                    self.log.push(Op::Read { key, hash, value, source, to_write: false, site }, hash);
                    self.next += 1;
                    return Err(error);
                }
            },
        };
        // Beyond the last row that the store was asked for nothing is known.
        let whole = rows.len() < asked;
        let known = rows.last().map(|(key, _)| key.clone()).filter(|_| !whole);
        overlay(&mut rows, known.as_ref(), over.iter().map(|(key, _, _, value)| (key, value.as_deref())));
        let expected = if over.is_empty() {
            Expected::AsSeen { most: asked }
        } else {
            let last = known.clone().unwrap_or_else(|| range.last.clone());
            Expected::With { range: KeyRange { first: range.first.clone(), last }, rows: rows.clone() }
        };
        overlay(&mut rows, known.as_ref(), own.iter().map(|(key, value)| (key, value.as_ref())));
        rows.truncate(most);
        let rows: Rows<S> = rows.into();
        let scan = Scan {
            range,
            seen,
            expected,
            forwarded: over.into_iter().map(|(_, id, ..)| id).collect(),
            rows: Arc::clone(&rows),
            to_write: false,
            vtable: Vtable {
                contains: KeyRange::contains,
                position: |rows, key| rows.binary_search_by(|row| row.key.cmp(key)).ok(),
                confirm: S::confirm_range,
                forwarded: forwarded::<S>,
            },
        };
        self.log.push_scan(scan, site);
        self.next += 1;
        Ok(rows)
    }
}

/// Lays writes over rows that are known up to a key (`None`: all of them).
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

/// See [`Forwarded`].
fn forwarded<S: RangeStore>(
    shared: &Shared<S::Key, S::Value>,
    epoch: u64,
    range: &KeyRange<S::Key>,
) -> Vec<Overlay<S>> {
    let Some(last) = shared.last_before(epoch) else { return Vec::new() };
    let mut found: Vec<Overlay<S>> = Vec::new();
    shared.directory.each_newest(
        shared.first_beside(epoch),
        last,
        |key| range.contains(key),
        |key, write| found.push((key.clone(), write.id, write.site, write.value.clone())),
    );
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// What the epoch itself has written in a range: the last value of each key, `None` if it was deleted.
fn own<S: RangeStore>(epoch: &Epoch<'_, S>, range: &KeyRange<S::Key>) -> Vec<(S::Key, Option<S::Value>)> {
    let mut found: Vec<(S::Key, Option<S::Value>)> = Vec::new();
    for op in &epoch.log.ops {
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
