//! Where ranges are: a seat for each owner that has some, and for each table the seats with ranges there. The protocol is in
//! `range`.

use std::ops::Bound;

use super::mode::{GapMode, KeyMode, RecordMode};
use super::name::{LockName, Prefix};
use super::request::WrittenLock;
use super::sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::base::ids::{IndexId, SlotId};
use crate::base::mutant::{Mutant, is_mutant};

/// Owners that may have ranges at a time: the bits of a word.
pub(super) const SEATS: usize = u64::BITS as usize;

/// Ranges of one owner that are not adjacent. Other owners go through them one by one.
pub(super) const MOST: usize = 64;

/// A key of an index, and the name of its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyAt<'k> {
    /// The table's number.
    pub(crate) table: u32,
    pub(crate) index: IndexId,
    pub(crate) key: &'k [u8],
    pub(crate) name: LockName,
}

/// Keys from `low`, itself included, up to `high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'k> {
    pub(crate) low: &'k [u8],
    pub(crate) high: Bound<&'k [u8]>,
}

impl Span<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self.high {
            Bound::Excluded(high) => high <= self.low,
            Bound::Included(high) => high < self.low,
            Bound::Unbounded => false,
        }
    }
}

/// The seats that have ranges in one table, a bit each. Both words are in one cache line, since every lock reads both.
#[derive(Default)]
#[repr(align(16))]
pub(super) struct Seated {
    shared: AtomicU64,
    exclusive: AtomicU64,
}

impl Seated {
    pub(super) fn of(&self, mode: KeyMode) -> &AtomicU64 {
        if mode == KeyMode::X { &self.exclusive } else { &self.shared }
    }

    /// Whether no seat but `own` has ranges, of whatever mode: then none is in the way of any claim. Ordered after all that
    /// the caller has done.
    #[inline]
    pub(super) fn is_free_for(&self, own: u64) -> bool {
        (now(&self.shared) | now(&self.exclusive)) & !own == 0
    }

    /// The seats but `own` whose ranges may be in the way of a claim on a key, ordered as [`Seated::is_free_for`].
    pub(super) fn in_the_way(&self, key: KeyMode, own: u64) -> u64 {
        let seats = match key {
            KeyMode::None => 0,
            KeyMode::S | KeyMode::U => now(&self.exclusive),
            KeyMode::X => now(&self.exclusive) | now(&self.shared),
        };
        seats & !own
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        now(&self.shared) | now(&self.exclusive) == 0
    }
}

/// The word, ordered after everything this thread did before: see `Bucket::is_empty_now`.
#[inline]
fn now(word: &AtomicU64) -> u64 {
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        word.load(Ordering::SeqCst)
    } else {
        word.fetch_or(0, Ordering::AcqRel)
    }
}

/// The numbers of the seats in a word.
pub(super) fn each(mut seats: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (seats != 0).then_some(seats.trailing_zeros() as usize)?;
        seats &= seats - 1;
        Some(at)
    })
}

/// What owners share about ranges.
pub(super) struct Ranges {
    /// By table number.
    pub(super) tables: Arc<[Seated]>,
    pub(super) seats: Box<[Seat]>,
}

impl Ranges {
    pub(super) fn new(tables: usize) -> Ranges {
        Ranges {
            tables: (0..tables).map(|_| Seated::default()).collect(),
            seats: (0..SEATS).map(|_| Seat::default()).collect(),
        }
    }
}

#[derive(Default)]
#[repr(align(128))]
pub(super) struct Seat {
    /// The slot of the owner that has it, plus one, or 0.
    pub(super) taken: AtomicU32,
    pub(super) list: Mutex<RangeList>,
}

/// The ranges of one owner.
#[derive(Default)]
pub(super) struct RangeList {
    pub(super) owner: SlotId,
    /// The first `used` are ranges, the others keep their buffers.
    ranges: Vec<LockedRange>,
    pub(super) used: usize,
    /// The words in which the seat's bit is set.
    pub(super) words: Vec<(u32, KeyMode)>,
    /// Locks that other owners have written down for this one.
    pub(super) written: Vec<WrittenLock>,
}

impl RangeList {
    pub(super) fn ranges(&self) -> impl Iterator<Item = &LockedRange> {
        self.ranges[..self.used].iter()
    }

    /// The range that keeps others from a claim on this key.
    pub(super) fn met_by(&self, at: &KeyAt<'_>, key: KeyMode) -> Option<&LockedRange> {
        self.ranges().find(|r| r.is_of(at.table, at.index) && r.excludes(key) && r.holds(at.key))
    }

    /// What the owner has of this key.
    pub(super) fn held_by_owner(&self, at: &KeyAt<'_>) -> KeyMode {
        let holds = |r: &&LockedRange| r.is_of(at.table, at.index) && r.holds(at.key);
        self.ranges().filter(holds).map(|r| r.mode).max().unwrap_or_default()
    }

    /// The range into which keys from `first` to `last` would come.
    pub(super) fn met_by_insert(&self, table: u32, index: IndexId, first: &[u8], last: &[u8]) -> Option<&LockedRange> {
        self.ranges().find(|r| {
            r.is_of(table, index) && (r.holds(first) || r.holds(last) || (first..=last).contains(&r.low.as_slice()))
        })
    }

    /// Adds a range, to one that it touches if there is one.
    pub(super) fn add(&mut self, table: u32, index: IndexId, mode: KeyMode, span: Span<'_>) {
        let used = self.used;
        let mut same = self.ranges[..used].iter_mut().filter(|r| r.is_of(table, index) && r.mode == mode);
        if let Some(range) = same.find(|r| r.touches(span)) {
            range.grow(span);
            return;
        }
        if used == self.ranges.len() {
            self.ranges.push(LockedRange::default());
        }
        let range = &mut self.ranges[used];
        (range.table, range.index, range.mode) = (table, index, mode);
        range.unbounded = false;
        set(&mut range.low, span.low);
        range.set_end(span.high);
        self.used += 1;
    }
}

fn set(to: &mut Vec<u8>, key: &[u8]) {
    to.clear();
    to.extend_from_slice(key);
}

#[derive(Default)]
pub(super) struct LockedRange {
    table: u32,
    index: IndexId,
    /// S or X.
    pub(super) mode: KeyMode,
    /// The first key.
    pub(super) low: Vec<u8>,
    /// The first key behind it, unless it is unbounded.
    high: Vec<u8>,
    unbounded: bool,
}

impl LockedRange {
    #[inline]
    pub(super) fn is_of(&self, table: u32, index: IndexId) -> bool {
        self.table == table && self.index == index
    }

    #[inline]
    fn ends_behind(&self, key: &[u8]) -> bool {
        self.unbounded || key < self.high.as_slice()
    }

    #[inline]
    fn holds(&self, key: &[u8]) -> bool {
        let begins =
            if is_mutant(Mutant::RangeWithoutLow) { self.low.as_slice() < key } else { self.low.as_slice() <= key };
        begins && self.ends_behind(key)
    }

    pub(super) fn overlaps(&self, span: Span<'_>) -> bool {
        let begins = match span.high {
            Bound::Excluded(high) => self.low.as_slice() < high,
            Bound::Included(high) => self.low.as_slice() <= high,
            Bound::Unbounded => true,
        };
        begins && self.ends_behind(span.low)
    }

    /// Whether it has all keys up to this bound, from its first one on.
    fn reaches(&self, high: Bound<&[u8]>) -> bool {
        self.unbounded
            || match high {
                Bound::Excluded(high) => high <= self.high.as_slice(),
                Bound::Included(high) => high < self.high.as_slice(),
                Bound::Unbounded => false,
            }
    }

    /// Whether it has all keys of a span. A scan mostly comes behind the ranges that there are, so the end decides first.
    pub(super) fn covers(&self, span: Span<'_>) -> bool {
        self.reaches(span.high) && self.low.as_slice() <= span.low
    }

    /// Whether the two together have no key between them.
    fn touches(&self, span: Span<'_>) -> bool {
        let begins = match span.high {
            Bound::Excluded(high) | Bound::Included(high) => self.low.as_slice() <= high,
            Bound::Unbounded => true,
        };
        (self.unbounded || span.low <= self.high.as_slice()) && begins
    }

    /// Extends it over keys that it touches.
    fn grow(&mut self, span: Span<'_>) {
        if span.low < self.low.as_slice() {
            set(&mut self.low, span.low);
        }
        if !self.reaches(span.high) {
            self.set_end(span.high);
        }
    }

    fn set_end(&mut self, end: Bound<&[u8]>) {
        match end {
            Bound::Excluded(high) => set(&mut self.high, high),
            Bound::Included(high) => {
                set(&mut self.high, high);
                self.high.push(0);
            }
            Bound::Unbounded => self.unbounded = true,
        }
    }

    /// Whether it keeps others from this claim on one of its keys.
    pub(super) fn excludes(&self, key: KeyMode) -> bool {
        let claim = |mode| GapMode { mode: RecordMode::of_key(mode), low: Prefix::MIN };
        claim(self.mode).excludes(claim(key))
    }
}
