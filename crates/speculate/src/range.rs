//! Reads of ranges in an epoch: what the store has, with what earlier epochs and the epoch itself have written in between.

use std::panic::Location;
use std::sync::Arc;

use crate::epoch::Epoch;
use crate::log::{Op, Source};
use crate::scan::{Expected, Rows, Scan, forwarded};
use crate::store::{KeyAndValue, KeyRange, RangeStore};

impl<S: RangeStore> Epoch<'_, S> {
    /// The first `most` rows of a range (both ends included), in ascending order, as a sequential run would find them here.
    ///
    /// # Errors
    /// Those of the store.
    #[track_caller]
    pub fn range(&mut self, first: S::Key, last: S::Key, most: usize) -> Result<Arc<[KeyAndValue<S>]>, S::Error> {
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
        let forwarded = over.into_iter().map(|(_, id, ..)| id).collect();
        let scan = Scan::new(range, seen, expected, forwarded, Arc::clone(&rows));
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
