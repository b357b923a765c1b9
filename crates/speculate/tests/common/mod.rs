//! A store for tests: a map whose rows have stamps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::PoisonError;
#[cfg(not(shuttle))]
use std::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
use shuttle::sync::{Mutex, MutexGuard};
use speculate::{KeyRange, RangeRow, RangeStore, Seen, SeenRange, Store, Written};

/// Key of a row that counts as one megabyte.
#[allow(dead_code, reason = "one test uses it")]
pub(crate) const LARGE: u8 = 250;

/// Rows and their stamps; a deleted row keeps its stamp.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: HashMap<u8, (Option<u64>, u64)>,
    locked: HashSet<u8>,
    writes: u64,
}

/// A transaction on the map: the keys that it has locked.
#[derive(Debug, Default)]
pub(crate) struct Locks(HashSet<u8>);

#[allow(dead_code, reason = "each test uses some of it")]
impl Rows {
    pub(crate) fn with(rows: &BTreeMap<u8, u64>) -> Rows {
        let all = Rows::default();
        rows.iter().for_each(|(key, value)| all.state().put(*key, Some(*value)));
        all
    }

    /// Ignores poisoning: shuttle runs all tasks on one thread, so a guard that one task drops while another task unwinds
    /// poisons the mutex.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all rows.
    pub(crate) fn contents(&self) -> BTreeMap<u8, u64> {
        let state = self.state();
        state.rows.iter().filter_map(|(key, (value, _))| Some((*key, (*value)?))).collect()
    }

    /// An update by another transaction: increments a row unless it is locked; returns true if the row was not locked.
    pub(crate) fn count_up(&self, key: u8) -> bool {
        let mut state = self.state();
        let free = !state.locked.contains(&key);
        if free {
            let value = state.rows.get(&key).and_then(|(value, _)| *value).unwrap_or(0);
            state.put(key, Some(value + 1));
        }
        free
    }

    /// Ends a transaction and releases its locks.
    pub(crate) fn commit(&self, locks: Locks) {
        let mut state = self.state();
        state.locked.retain(|key| !locks.0.contains(key));
    }
}

impl State {
    fn put(&mut self, key: u8, value: Option<u64>) {
        self.writes += 1;
        self.rows.insert(key, (value, self.writes));
    }

    fn row(&self, key: u8) -> (Option<u64>, u64) {
        self.rows.get(&key).copied().unwrap_or_default()
    }

    fn range(&self, range: &KeyRange<u8>, most: usize) -> Vec<(u8, u64, u64)> {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .filter(|(key, _)| range.contains(key))
            .filter_map(|(key, (value, stamp))| Some((*key, (*value)?, *stamp)))
            .collect();
        rows.sort_unstable();
        rows.truncate(most);
        rows
    }

    /// Locks the keys of a range up to its row number `most`, present or not.
    fn lock_range(&mut self, locks: &mut Locks, range: &KeyRange<u8>, most: usize) {
        let rows = self.range(range, most);
        let last = if rows.len() < most { range.last } else { rows.last().map_or(range.first, |row| row.0) };
        (range.first..=last).for_each(|key| self.lock(locks, key));
    }

    fn lock(&mut self, locks: &mut Locks, key: u8) {
        self.locked.insert(key);
        locks.0.insert(key);
    }
}

impl Store for Rows {
    type Key = u8;
    type Value = u64;
    type Stamp = u64;
    type Local = ();
    type Order = Locks;
    type Error = Infallible;

    /// Each row is a group, so that traces contain the key.
    fn group(&self, key: &u8) -> u64 {
        u64::from(*key)
    }

    /// Rows with the key [`LARGE`] count as large.
    fn size(&self, key: &u8, _: Option<&u64>) -> usize {
        if *key == LARGE { 1 << 20 } else { 9 }
    }

    fn peek(&self, (): &mut (), key: &u8) -> Result<(Option<u64>, u64), Infallible> {
        Ok(self.state().row(*key))
    }

    fn confirm(&self, locks: &mut Locks, seen: Seen<'_, Self>) -> Result<bool, Infallible> {
        let mut state = self.state();
        state.lock(locks, *seen.key);
        let (value, stamp) = state.row(*seen.key);
        assert!(stamp != *seen.stamp || value == seen.value.copied(), "a stamp of key {} with another value", seen.key);
        Ok(stamp == *seen.stamp)
    }

    fn read(&self, locks: &mut Locks, key: &u8) -> Result<Option<u64>, Infallible> {
        let mut state = self.state();
        state.lock(locks, *key);
        Ok(state.row(*key).0)
    }

    fn write(&self, locks: &mut Locks, write: &Written<'_, Self>) -> Result<(), Infallible> {
        let Written { key, value, seen } = write;
        let mut state = self.state();
        state.lock(locks, **key);
        // The seen value is confirmed, and the epoch has not accessed the key since, so it equals the current value.
        if let Some(seen) = seen {
            let (value, stamp) = state.row(**key);
            assert_eq!((*seen.key, seen.value.copied()), (**key, value), "a hint of another row");
            // A range is confirmed by its values, so one of its rows may have been rewritten with the same value.
            assert!(*seen.stamp <= stamp, "a hint from the future");
            assert!(seen.to_write, "a write that was not announced");
        }
        state.put(**key, value.copied());
        Ok(())
    }
}

impl RangeStore for Rows {
    fn peek_range(&self, (): &mut (), range: &KeyRange<u8>, most: usize) -> Result<Vec<RangeRow<Self>>, Infallible> {
        let rows = self.state().range(range, most);
        Ok(rows.into_iter().map(|(key, value, stamp)| RangeRow { key, value, stamp }).collect())
    }

    fn confirm_range(&self, locks: &mut Locks, seen: SeenRange<'_, Self>) -> Result<bool, Infallible> {
        let mut state = self.state();
        state.lock_range(locks, seen.range, seen.most);
        let rows = state.range(seen.range, seen.most);
        Ok(rows.iter().map(|(key, value, _)| (key, value)).eq(seen.rows()))
    }

    fn read_range(&self, locks: &mut Locks, range: &KeyRange<u8>, most: usize) -> Result<Vec<(u8, u64)>, Infallible> {
        let mut state = self.state();
        state.lock_range(locks, range, most);
        Ok(state.range(range, most).into_iter().map(|(key, value, _)| (key, value)).collect())
    }
}
