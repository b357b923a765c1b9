//! Interface between speculative loops and the data that they read and write.

use std::hash::Hash;

/// Data that speculative loops read and write: a map, a database, or a part of one.
///
/// An epoch reads with [`Store::peek`] while earlier epochs still run. After all earlier epochs have committed (the epoch is
/// then *homefree*), [`Store::confirm`] checks that each value is still the value that was read, and [`Store::write`]
/// receives the epoch's writes. The store therefore gets all locked reads and writes in loop order, from one thread at a
/// time.
///
/// # Requirements
/// - `peek` never returns a partial write.
/// - A value that `confirm` accepts is the value that was read. A store can compare values or stamps. A stamp changes
///   whenever the value of its key changes, appears or disappears, and a key never gets an earlier stamp again. A key
///   without a value has a stamp, too.
/// - Rows that `confirm` has accepted, and rows that `read` and `write` have accessed, are not changed by another
///   transaction before the transaction behind `Order` ends. A store without other writers needs no locks for this
///   requirement.
///
/// If a store violates a requirement, a loop may compute a result that differs from a sequential run; memory safety is not
/// affected.
pub trait Store: Sync {
    /// Key of a value.
    type Key: Clone + Eq + Hash + Send + Sync;
    /// Value of a key. An epoch keeps a copy of each value that it reads or writes.
    type Value: Clone + Send + Sync;
    /// Version stamp of an unlocked read, used to check later that the value has not changed. It may also hold data that
    /// makes `confirm` cheap, for example the position of the row.
    type Stamp: Send;
    /// State that a worker keeps for the store between operations: buffers, positions of announced keys.
    type Local: Default + Send;
    /// In-order access to the store, for example a transaction.
    type Order: Send;
    /// Error of the store.
    type Error: Send;

    /// Announces that a worker will soon peek at these keys: a hint that lets a store search for many keys at a time.
    fn announce(&self, _local: &mut Self::Local, _keys: &[Self::Key]) {}

    /// Returns the group of a key, for example its table. Traces record it ([`Options::trace`](crate::Options::trace)).
    fn group(&self, _key: &Self::Key) -> u64 {
        0
    }

    /// Returns the size of a copy of a key and its value in bytes, with the memory to which they point. The sizes serve to
    /// count and to limit the memory of epochs.
    fn size(&self, _key: &Self::Key, value: Option<&Self::Value>) -> usize {
        size_of::<Self::Key>() + value.map_or(0, |_| size_of::<Self::Value>())
    }

    /// Reads a key without a lock, from any thread, concurrently with writers. The read should see all writes of the loop's
    /// own `Order`, including the writes before the loop. A body that has read an older value runs again in order. A body
    /// that has read a write of an earlier epoch also runs again in order if a peek does not return the stamp of this write.
    ///
    /// # Errors
    /// Returns an error of the store. If a violated epoch gets an error, the error is discarded with the epoch.
    #[expect(clippy::type_complexity, reason = "a value and its stamp")]
    fn peek(&self, local: &mut Self::Local, key: &Self::Key)
    -> Result<(Option<Self::Value>, Self::Stamp), Self::Error>;

    /// Locks a key. Returns true if its value is still the value that was read.
    ///
    /// # Errors
    /// Returns an error of the store, for example a deadlock. An error ends the loop.
    fn confirm(&self, order: &mut Self::Order, seen: Seen<'_, Self>) -> Result<bool, Self::Error>;

    /// Locks and reads a key.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn read(&self, order: &mut Self::Order, key: &Self::Key) -> Result<Option<Self::Value>, Self::Error>;

    /// Writes or deletes the value of a key.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn write(&self, order: &mut Self::Order, write: &Written<'_, Self>) -> Result<(), Self::Error>;

    /// Performs all writes of an iteration, or of all iterations of an epoch
    /// ([`Speculator::collect`](crate::Speculator::collect)). The writes are in loop order; a store to which the order does
    /// not matter may perform them in another order.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn write_all(&self, order: &mut Self::Order, writes: &[Written<'_, Self>]) -> Result<(), Self::Error> {
        writes.iter().try_for_each(|write| self.write(order, write))
    }
}

/// Data with ordered keys that can be read by ranges.
pub trait RangeStore: Store<Key: Ord> {
    /// Reads the first `most` rows of a range (both ends included), in ascending order, without a lock.
    ///
    /// # Errors
    /// As for [`Store::peek`].
    fn peek_range(
        &self,
        local: &mut Self::Local,
        range: &KeyRange<Self::Key>,
        most: usize,
    ) -> Result<Vec<RangeRow<Self>>, Self::Error>;

    /// Locks the first `most` rows of a range and the gaps between them. Returns true if these rows are still the rows that
    /// were read. If fewer than `most` rows were read, the range had no more rows.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn confirm_range(&self, order: &mut Self::Order, seen: SeenRange<'_, Self>) -> Result<bool, Self::Error>;

    /// Locks and reads the first `most` rows of a range, and the gaps between them.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn read_range(
        &self,
        order: &mut Self::Order,
        range: &KeyRange<Self::Key>,
        most: usize,
    ) -> Result<Vec<KeyAndValue<Self>>, Self::Error>;
}

/// A key and its value.
pub type KeyAndValue<S> = (<S as Store>::Key, <S as Store>::Value);

/// Range of keys, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange<K> {
    /// First key of the range.
    pub first: K,
    /// Last key of the range.
    pub last: K,
}

impl<K: Ord> KeyRange<K> {
    /// Returns true if a key is in the range.
    pub fn contains(&self, key: &K) -> bool {
        self.first <= *key && *key <= self.last
    }
}

/// Row of a range, as an unlocked read returned it.
pub struct RangeRow<S: Store + ?Sized> {
    /// Key of the row.
    pub key: S::Key,
    /// Value of the row.
    pub value: S::Value,
    /// Stamp of the row, as [`Store::peek`] would return it for the key.
    pub stamp: S::Stamp,
}

/// Unlocked range read of an epoch, to be confirmed.
pub struct SeenRange<'a, S: Store + ?Sized> {
    /// Range to confirm.
    pub range: &'a KeyRange<S::Key>,
    /// Maximum number of rows to lock and compare.
    pub most: usize,
    pub(crate) rows: SeenRows<'a, S>,
    /// True if the epoch also writes keys of the range.
    pub to_write: bool,
}

/// Rows that a range should have when it is confirmed.
pub(crate) enum SeenRows<'a, S: Store + ?Sized> {
    /// The rows as the unlocked read returned them.
    Peeked(&'a [RangeRow<S>]),
    /// Rows of the unlocked read, overlaid with the writes that earlier epochs have made since.
    Overlaid(&'a [(S::Key, S::Value)]),
}

impl<'a, S: Store + ?Sized> SeenRange<'a, S> {
    /// Returns the rows that the store should have now, in ascending order.
    pub fn rows(&self) -> impl Iterator<Item = (&'a S::Key, &'a S::Value)> + use<'a, S> {
        let (peeked, overlaid): (&[_], &[_]) = match self.rows {
            SeenRows::Peeked(rows) => (rows, &[]),
            SeenRows::Overlaid(rows) => (&[], rows),
        };
        peeked
            .iter()
            .map(|row: &RangeRow<S>| (&row.key, &row.value))
            .chain(overlaid.iter().map(|(key, value): &(S::Key, S::Value)| (key, value)))
    }
}

/// Value to be confirmed. It comes from an unlocked read of an epoch, or from a write of this or an earlier epoch. For a
/// write, the stamp is the one that a peek found after the write.
pub struct Seen<'a, S: Store + ?Sized> {
    /// Key of the value.
    pub key: &'a S::Key,
    /// Value that the key should have; `None` if the key should have no value.
    pub value: Option<&'a S::Value>,
    /// Stamp of the value.
    pub stamp: &'a S::Stamp,
    /// True if the epoch also writes the key: a store with locks then takes the write lock at once.
    pub to_write: bool,
}

/// Write of an epoch.
pub struct Written<'a, S: Store + ?Sized> {
    /// Key to write.
    pub key: &'a S::Key,
    /// New value; `None` deletes the key.
    pub value: Option<&'a S::Value>,
    /// Unlocked read of the key by the epoch, alone or in a range, which may help the store to find the row. `None` if there
    /// was no such read, if it is not confirmed, or if the epoch performed another operation on the key between the read and
    /// this write.
    pub seen: Option<Seen<'a, S>>,
}
