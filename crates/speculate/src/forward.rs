//! Forwarding: a directory of the writes of epochs in flight, from which later epochs read uncommitted values.
//!
//! A write stays in the directory until no epoch in flight can have read it. Reads of keys without forwarded writes should
//! have no overhead: a reader first loads a counter that its key shares with few other keys, and takes a lock only if the
//! counter is not zero. If a reader misses a concurrent write, its validation detects that, because it happens after all
//! earlier epochs have committed.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::panic::Location;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::mutant::{Mutant, is_mutant};
use crate::quiet::quietly;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Source location in a program.
pub(crate) type Site = &'static Location<'static>;

/// Number of a forwarded write. No number is used twice, even if a write is withdrawn after a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteId(pub(crate) u64);

/// A write of an uncommitted or recently committed epoch.
#[derive(Debug)]
pub(crate) struct Write<V, T> {
    pub(crate) id: WriteId,
    pub(crate) epoch: u64,
    /// Index of the write in the log of the epoch.
    pub(crate) operation: usize,
    /// Written value; `None` for a deletion.
    pub(crate) value: Option<Arc<V>>,
    pub(crate) site: Site,
    /// Stamp of the value in the store. It is recorded only if the value may be replaced before a reader of the write
    /// commits.
    pub(crate) stamp: Option<T>,
}

type WritesByKey<K, V, T> = HashMap<K, SmallVec<[Write<V, T>; 2]>, FixedState>;

/// Forwarded writes of a part of the keys.
#[derive(Debug)]
struct Shard<K, V, T> {
    keys: Mutex<WritesByKey<K, V, T>>,
    /// Number of writes in the shard.
    writes: AtomicU32,
}

impl<K, V, T> Default for Shard<K, V, T> {
    fn default() -> Shard<K, V, T> {
        Shard { keys: Mutex::default(), writes: AtomicU32::new(0) }
    }
}

/// Returns the newest write in `writes` by an epoch from `first` to `last`.
#[inline]
fn newest_of<V, T>(writes: &[Write<V, T>], first: u64, last: u64) -> Option<&Write<V, T>> {
    let mut in_range = writes.iter().filter(|write| first <= write.epoch && write.epoch <= last);
    if is_mutant(Mutant::StaleForwarding) {
        return in_range.next();
    }
    in_range.max_by_key(|write| (write.epoch, write.operation))
}

// Under shuttle the numbers are small, so that keys share counters and shards, and a schedule takes less time.
const COUNTERS: usize = if cfg!(shuttle) { 4 } else { 2048 };
const SHARDS: usize = if cfg!(shuttle) { 2 } else { 64 };

/// Directory of all forwarded writes.
#[derive(Debug)]
pub(crate) struct Directory<K, V, T> {
    /// Numbers of forwarded writes, indexed by the counter index of the key's hash.
    counters: Box<[AtomicU32]>,
    shards: Box<[CachePadded<Shard<K, V, T>>]>,
    hasher: FixedState,
}

impl<K: Eq + Hash + Clone, V, T> Directory<K, V, T> {
    pub(crate) fn new() -> Directory<K, V, T> {
        Directory {
            counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            hasher: FixedState::default(),
        }
    }

    /// Computes the hash of a key.
    #[inline]
    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the index of the counter and the index of the shard for a hash.
    #[inline]
    fn indexes(hash: u64) -> (usize, usize) {
        let hash = (hash >> 32) as usize;
        (hash % COUNTERS, hash / COUNTERS % SHARDS)
    }

    /// Passes the newest write of a key by an epoch from `first` to `last` to `show`, if there is such a write.
    #[inline]
    pub(crate) fn newest<R>(
        &self,
        (key, hash): (&K, u64),
        first: u64,
        last: u64,
        show: impl FnOnce(&Write<V, T>) -> R,
    ) -> Option<R> {
        let (counter, shard) = Self::indexes(hash);
        if self.counters[counter].load(Ordering::Acquire) == 0 {
            return None;
        }
        let shard = self.shards[shard].keys.lock();
        newest_of(shard.get(key)?, first, last).map(show)
    }

    /// For each key for which `wanted` returns true, passes the newest write by an epoch from `first` to `last` to `show`.
    pub(crate) fn each_newest(
        &self,
        first: u64,
        last: u64,
        wanted: impl Fn(&K) -> bool,
        mut show: impl FnMut(&K, &Write<V, T>),
    ) {
        for shard in &self.shards {
            if shard.writes.load(Ordering::Acquire) == 0 {
                continue;
            }
            for (key, writes) in shard.keys.lock().iter().filter(|(key, _)| wanted(key)) {
                if let Some(newest) = newest_of(writes, first, last) {
                    show(key, newest);
                }
            }
        }
    }

    pub(crate) fn publish(&self, (key, hash): (&K, u64), write: Write<V, T>) {
        let (counter, shard) = Self::indexes(hash);
        let counted = &self.shards[shard].writes;
        let mut shard = self.shards[shard].keys.lock();
        match shard.get_mut(key) {
            Some(writes) => writes.push(write),
            None => drop(shard.insert(key.clone(), smallvec::smallvec![write])),
        }
        // The counter is incremented under the lock, so that it is never less than the number of writes.
        self.counters[counter].fetch_add(1, Ordering::Release);
        counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Replaces the stamp of a write by `stamp` and returns the previous stamp. Only the holder of the token calls this
    /// function.
    pub(crate) fn replace_stamp(
        &self,
        (key, hash): (&K, u64),
        is_wanted: impl Fn(&Write<V, T>) -> bool,
        stamp: Option<T>,
    ) -> Option<T> {
        let mut shard = self.shards[Self::indexes(hash).1].keys.lock();
        let write = shard.get_mut(key)?.iter_mut().find(|write| is_wanted(write))?;
        std::mem::replace(&mut write.stamp, stamp)
    }

    /// Removes a write of an epoch that is rewound.
    pub(crate) fn withdraw(&self, key: &K, epoch: u64, operation: usize) {
        self.remove(key, |write| write.epoch == epoch && write.operation == operation);
    }

    /// Removes the writes of a key by epochs up to `last`. No epoch in flight can have read these writes.
    pub(crate) fn retire(&self, key: &K, last: u64) {
        self.remove(key, |write| write.epoch <= last);
    }

    fn remove(&self, key: &K, is_removed: impl Fn(&Write<V, T>) -> bool) {
        let (counter, shard) = Self::indexes(self.hash(key));
        let counted = &self.shards[shard].writes;
        let mut shard = self.shards[shard].keys.lock();
        let Some(writes) = shard.get_mut(key) else { return };
        let before = writes.len();
        writes.retain(|write| !is_removed(write));
        let gone = before - writes.len();
        if writes.is_empty() {
            shard.remove(key);
        }
        self.counters[counter].fetch_sub(gone as u32, Ordering::Release);
        counted.store(counted.load(Ordering::Relaxed) - gone as u32, Ordering::Release);
    }

    /// Removes all writes.
    pub(crate) fn clear(&mut self) {
        for shard in &mut self.shards {
            let keys = std::mem::take(shard.keys.get_mut());
            quietly(|| drop(keys));
            *shard.writes.get_mut() = 0;
        }
        self.counters.iter_mut().for_each(|counter| *counter.get_mut() = 0);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.keys.lock().values().map(SmallVec::len).sum::<usize>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(id: u64, epoch: u64, operation: usize) -> Write<u64, ()> {
        Write { id: WriteId(id), epoch, operation, value: Some(Arc::new(id)), site: Location::caller(), stamp: None }
    }

    #[test]
    fn a_reader_gets_the_newest_write_of_the_epochs_before_it() {
        let directory = Directory::new();
        let hashed = |key: &'static char| (key, directory.hash(key));
        let newest = |first, last| directory.newest(hashed(&'k'), first, last, |w| w.id.0);
        assert_eq!(newest(0, 9), None);
        directory.publish(hashed(&'k'), write(1, 4, 0));
        directory.publish(hashed(&'k'), write(2, 2, 7));
        directory.publish(hashed(&'k'), write(3, 4, 3));
        directory.publish(hashed(&'l'), write(4, 5, 0));
        assert_eq!(
            [newest(0, 9), newest(0, 3), newest(0, 1), newest(3, 3), newest(3, 4)],
            [Some(3), Some(2), None, None, Some(3)]
        );
        directory.withdraw(&'k', 4, 3);
        assert_eq!(newest(0, 9), Some(1));
        directory.retire(&'k', 4);
        assert_eq!((newest(0, 9), directory.len()), (None, 1));
    }

    #[test]
    fn nothing_is_left_of_cleared_writes() {
        let mut directory: Directory<u64, u64, ()> = Directory::new();
        (0..100).for_each(|key| directory.publish((&key, directory.hash(&key)), write(key, key, 0)));
        directory.clear();
        assert_eq!(directory.len(), 0);
        assert!((0..100).all(|key| directory.newest((&key, directory.hash(&key)), 0, 100, |_| ()).is_none()));
        assert!(directory.counters.iter().all(|counter| counter.load(Ordering::Relaxed) == 0));
    }
}
