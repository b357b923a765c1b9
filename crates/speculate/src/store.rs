//! What a speculative loop knows of the data that it works on.

use std::hash::Hash;

/// Data that speculative loops read and write: a map, a database, a part of one.
///
/// An epoch reads with [`Store::peek`] while earlier epochs still run. When all of them have committed (the epoch is
/// *homefree*), [`Store::confirm`] says of each value whether it is still the one that was seen, and [`Store::write`]
/// gets the epoch's writes. So the store sees all locks and writes in the order of the loop, from one thread at a time.
///
/// # What a store promises
/// - A `peek` never sees half a write.
/// - What `confirm` confirms is the value that was seen. A store can compare values, or stamps: then a stamp changes whenever
///   the value of its key does, comes or goes included, and never returns to what it was. A key that has no value has a
///   stamp too.
/// - What `confirm` has confirmed, and what `read` and `write` have touched, no other transaction changes before the
///   one behind `Order` ends. A store without other writers has nothing to do for that.
///
/// A store that breaks a promise makes loops compute something else than a sequential run; it does not break memory
/// safety.
pub trait Store: Sync {
    /// What names a value.
    type Key: Clone + Eq + Hash + Send + Sync;
    /// What is read and written. An epoch keeps a copy of each that it reads or writes.
    type Value: Clone + Send + Sync;
    /// What a read without a lock remembers, to see later whether the value is still the same. Also the place for what
    /// makes `confirm` cheap, for example where the row was found.
    type Stamp: Send;
    /// What a worker keeps for the store from one operation to the next: buffers, places of announced keys.
    type Local: Default + Send;
    /// The side of the store that works in the order of the loop, for example a transaction.
    type Order: Send;
    /// Why the store refuses.
    type Error: Send;

    /// Says that a worker will soon peek at these keys: a hint, by which a store may search for many at a time.
    fn announce(&self, _local: &mut Self::Local, _keys: &[Self::Key]) {}

    /// What a key shares with others, its table say: traces have it ([`Options::trace`](crate::Options::trace)).
    fn group(&self, _key: &Self::Key) -> u64 {
        0
    }

    /// Bytes that a copy of a key and of its value takes, with what they point to: what epochs keep is counted so, and bounded.
    fn size(&self, _key: &Self::Key, value: Option<&Self::Value>) -> usize {
        size_of::<Self::Key>() + value.map_or(0, |_| size_of::<Self::Value>())
    }

    /// Reads without a lock, from any thread, beside writers. It should see what the loop's own `Order` has written, and
    /// whatever that wrote before the loop: a body that has read something older runs again in order, and so does one that has
    /// read a write of an epoch whose stamp a peek does not tell.
    ///
    /// # Errors
    /// Those of the store. An error that a violated epoch has seen is forgotten with the epoch.
    #[expect(clippy::type_complexity, reason = "a value and its stamp")]
    fn peek(&self, local: &mut Self::Local, key: &Self::Key)
    -> Result<(Option<Self::Value>, Self::Stamp), Self::Error>;

    /// Locks a key, and says whether its value is still the one that was seen.
    ///
    /// # Errors
    /// Those of the store, for example a deadlock. They end the loop.
    fn confirm(&self, order: &mut Self::Order, seen: Seen<'_, Self>) -> Result<bool, Self::Error>;

    /// Locks and reads a key.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn read(&self, order: &mut Self::Order, key: &Self::Key) -> Result<Option<Self::Value>, Self::Error>;

    /// Writes a value, or deletes it.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn write(&self, order: &mut Self::Order, write: &Written<'_, Self>) -> Result<(), Self::Error>;

    /// Writes all that an iteration has written, or all iterations of an epoch
    /// ([`Speculator::collect`](crate::Speculator::collect)), in this order as far as it matters for the store.
    ///
    /// # Errors
    /// As for [`Store::confirm`].
    fn write_all(&self, order: &mut Self::Order, writes: &[Written<'_, Self>]) -> Result<(), Self::Error> {
        writes.iter().try_for_each(|write| self.write(order, write))
    }
}

/// Data whose keys have an order, and that can be read by ranges.
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

    /// Locks the first `most` rows of a range and the gaps between them, and says whether they are still those that were
    /// seen. Fewer than `most` were all that the range had.
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

/// Keys from the first to the last, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange<K> {
    /// The first key.
    pub first: K,
    /// The last key.
    pub last: K,
}

impl<K: Ord> KeyRange<K> {
    /// Whether a key lies in the range.
    pub fn contains(&self, key: &K) -> bool {
        self.first <= *key && *key <= self.last
    }
}

/// A row of a range, as it was peeked at.
pub struct RangeRow<S: Store + ?Sized> {
    /// Its key.
    pub key: S::Key,
    /// Its value.
    pub value: S::Value,
    /// As [`Store::peek`] would return it for the key.
    pub stamp: S::Stamp,
}

/// A range that an epoch has peeked at.
pub struct SeenRange<'a, S: Store + ?Sized> {
    /// The range.
    pub range: &'a KeyRange<S::Key>,
    /// So many rows were asked for.
    pub most: usize,
    pub(crate) rows: SeenRows<'a, S>,
    /// Whether the epoch also writes keys of the range.
    pub to_write: bool,
}

/// Rows of a range.
pub(crate) enum SeenRows<'a, S: Store + ?Sized> {
    /// As they were peeked at.
    Peeked(&'a [RangeRow<S>]),
    /// With what earlier epochs have written since.
    Overlaid(&'a [(S::Key, S::Value)]),
}

impl<'a, S: Store + ?Sized> SeenRange<'a, S> {
    /// The rows, in ascending order, as the store should have them now.
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

/// What an epoch has peeked at; or what it, or an earlier one, has written, with the stamp that a peek found afterwards.
pub struct Seen<'a, S: Store + ?Sized> {
    /// Its key.
    pub key: &'a S::Key,
    /// The value; `None` if there was none.
    pub value: Option<&'a S::Value>,
    /// Its stamp.
    pub stamp: &'a S::Stamp,
    /// Whether the epoch also writes the key: a store with locks takes at once the lock that a write needs.
    pub to_write: bool,
}

/// What an epoch has written.
pub struct Written<'a, S: Store + ?Sized> {
    /// Its key.
    pub key: &'a S::Key,
    /// The value; `None` to delete it.
    pub value: Option<&'a S::Value>,
    /// Where the epoch has peeked at the key before, alone or in a range, if it did, that is confirmed, and it did nothing else
    /// to the key since.
    pub seen: Option<Seen<'a, S>>,
}
