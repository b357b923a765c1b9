//! Reader words of superlatches: one table for the process.
//!
//! A *set* contains the words of one superlatch, a *row* the words of one thread in all sets. Each word has its own cache
//! line. Words of a row are adjacent, so that a prefetch of the adjacent line loads no word of another core. The table lies
//! in the program's zero-initialised segment: the system allocates its memory on first touch, and sets are handed out in
//! ascending order.
//!
//! A word is a counter and not a flag. Several threads may share a word, and a late reader, whose latch has lost its set to
//! another latch, subtracts the count that it has added. Such a reader can make a writer wait, and has no other effect.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::sync::word::AtomicU64;
use crate::latch::stats::LatchCounters;

/// True if a model checker runs the code, with small models.
pub(super) const CHECKED: bool = cfg!(any(loom, shuttle));

/// Maximum number of words of a set, not counting the word of background work. Superlatches need at least as many words as
/// there are cores.
pub(crate) const MOST_WORDS: usize = if CHECKED { 2 } else { 128 };

/// Maximum number of superlatches in the whole process.
pub(crate) const SETS: usize = if CHECKED { 2 } else { 1024 };

/// Index of [`background_row`].
const BACKGROUND: usize = 0;

const ROWS: usize = 1 + MOST_WORDS;

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Word(AtomicU64);

/// Words of one row, one word for each set. (Under a checker there are few sets, and arrays implement `Default`.)
pub(super) type WordRow = [Word; SETS];

/// All reader words. They are separate from `WordAllocator`, whose initial value is not all zeros: together they would take
/// space in the program's file.
type Words = [WordRow; ROWS];

/// Assignment of sets and rows. Its mutex is held for a few instructions and across no step of a checker, so it is not a
/// mutex of `base::sync`.
struct WordAllocator {
    /// Number of the first set that was never assigned to a latch.
    untouched: usize,
    free: Vec<u32>,
    /// Counters of the database whose latch has the set, indexed by number of the set.
    owners: Vec<Option<Arc<LatchCounters>>>,
    /// Number of words of a set that threads may use, from row 1 on.
    words: usize,
    /// Number of threads that use each row, indexed by row.
    threads: [u32; ROWS],
}

impl WordAllocator {
    const fn new() -> WordAllocator {
        WordAllocator { untouched: 0, free: Vec::new(), owners: Vec::new(), words: 1, threads: [0; ROWS] }
    }

    /// Assigns the least used row to one more thread.
    fn enter_row(&mut self) -> usize {
        let row = (1..=self.words).min_by_key(|row| self.threads[*row]).unwrap_or(1);
        self.threads[row] += 1;
        row
    }
}

#[cfg(not(any(loom, shuttle)))]
mod in_force {
    use std::sync::atomic::Ordering;

    use super::*;

    static WORDS: Words = [const { [const { Word(AtomicU64::new(0)) }; SETS] }; ROWS];
    static ALLOCATOR: parking_lot::Mutex<WordAllocator> = parking_lot::Mutex::new(WordAllocator::new());

    /// Number of rows that may be in use, including the background row. This number only grows.
    static ROWS_USED: AtomicU64 = AtomicU64::new(2);

    thread_local! {
        /// Row of this thread, once assigned.
        pub(super) static ROW: Cell<Option<&'static WordRow>> = const { Cell::new(None) };
    }

    #[inline(always)]
    pub(super) fn all() -> &'static Words {
        &WORDS
    }

    pub(super) fn allocator() -> &'static parking_lot::Mutex<WordAllocator> {
        &ALLOCATOR
    }

    /// Returns the number of rows that may be in use. The load is sequentially consistent, like all accesses that decide
    /// whether a writer sees a reader: a thread enters a row after the row was added to this number, so a writer that does
    /// not see the row comes before the reader.
    #[inline]
    pub(super) fn rows_used() -> usize {
        (ROWS_USED.load(Ordering::SeqCst) as usize).min(ROWS)
    }

    pub(super) fn use_rows(rows: usize) {
        ROWS_USED.fetch_max(rows as u64, Ordering::SeqCst);
    }
}

/// Under a checker each execution of a model has its own table.
#[cfg(any(loom, shuttle))]
mod in_force {
    #[cfg(loom)]
    use loom::{lazy_static, thread_local};
    #[cfg(shuttle)]
    use shuttle::{lazy_static, thread_local};

    use super::*;

    lazy_static! {
        static ref WORDS: Words = Default::default();
        static ref ALLOCATOR: parking_lot::Mutex<WordAllocator> =
            parking_lot::Mutex::new(WordAllocator { words: MOST_WORDS, ..WordAllocator::new() });
    }

    thread_local! {
        pub(super) static ROW: Cell<Option<&'static WordRow>> = Cell::new(None);
    }

    pub(super) fn all() -> &'static Words {
        &WORDS
    }

    pub(super) fn allocator() -> &'static parking_lot::Mutex<WordAllocator> {
        &ALLOCATOR
    }

    pub(super) fn rows_used() -> usize {
        ROWS
    }

    pub(super) fn use_rows(_: usize) {}
}

use in_force::{ROW, all, allocator, rows_used, use_rows};

/// Lets threads use `words` words of each set, at most [`MOST_WORDS`]. The largest number requested so far applies: threads
/// that have a word keep it.
pub(crate) fn provide(words: usize) {
    let words = words.clamp(1, MOST_WORDS);
    // The number of rows is published before any thread can enter a new row.
    use_rows(1 + words);
    let mut allocator = allocator().lock();
    allocator.words = allocator.words.max(words);
}

/// Returns the word of a row in a set.
#[inline(always)]
pub(super) fn word(row: &'static WordRow, set: usize) -> &'static AtomicU64 {
    // The remainder removes the bounds check, which every reader would execute.
    &row[set % SETS].0
}

/// Returns the row for the occasional shares of background work, so that no worker shares its word with it.
pub(super) fn background_row() -> &'static WordRow {
    &all()[BACKGROUND]
}

/// Returns the address range of the words that threads use, and the distance between two rows.
#[cfg(feature = "measure")]
pub(crate) fn lines() -> (std::ops::Range<usize>, usize) {
    let rows = all()[1..].as_ptr_range();
    (rows.start.addr()..rows.end.addr(), size_of::<WordRow>())
}

/// Returns the words of a set in all rows that readers may use.
pub(super) fn of_set(set: usize) -> impl Iterator<Item = &'static AtomicU64> {
    all()[..rows_used()].iter().map(move |row| word(row, set))
}

/// Returns this thread's row. The first call assigns it.
#[inline(always)]
pub(super) fn own_row() -> &'static WordRow {
    match ROW.with(Cell::get) {
        Some(row) => row,
        None => enter_row(),
    }
}

#[cold]
fn enter_row() -> &'static WordRow {
    let row = allocator().lock().enter_row();
    #[cfg(not(any(loom, shuttle)))]
    if ROW_RELEASER.try_with(|releaser| releaser.0.set(row)).is_err() {
        // A thread that is ending cannot release the row later, so the row is released here.
        allocator().lock().threads[row] -= 1;
        return &all()[row];
    }
    let row = &all()[row];
    ROW.with(|own| own.set(Some(row)));
    row
}

/// Guard that releases the thread's row when the thread ends.
#[cfg(not(any(loom, shuttle)))]
struct RowReleaser(Cell<usize>);

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    static ROW_RELEASER: RowReleaser = const { RowReleaser(Cell::new(0)) };
}

#[cfg(not(any(loom, shuttle)))]
impl Drop for RowReleaser {
    fn drop(&mut self) {
        let row = self.0.get();
        if row != BACKGROUND {
            ROW.set(None);
            allocator().lock().threads[row] -= 1;
        }
    }
}

/// Takes a free set for a latch of the database with these counters. Returns `None` if all sets are in use.
pub(super) fn take(owner: &Arc<LatchCounters>) -> Option<usize> {
    let mut allocator = allocator().lock();
    let set = match allocator.free.pop() {
        Some(set) => set as usize,
        None if allocator.untouched < SETS => {
            allocator.untouched += 1;
            allocator.owners.push(None);
            allocator.untouched - 1
        }
        None => return None,
    };
    debug_assert!(allocator.owners[set].is_none(), "set {set} has two owners");
    allocator.owners[set] = Some(Arc::clone(owner));
    Some(set)
}

/// Frees a set. Returns the counters of the database whose latch had it.
pub(super) fn give_back(set: usize) -> Option<Arc<LatchCounters>> {
    let mut allocator = allocator().lock();
    let owner = allocator.owners[set].take();
    debug_assert!(owner.is_some(), "set {set} is given back twice");
    allocator.free.push(set as u32);
    owner
}

/// Frees the sets of a database whose pages, and with them all its latches, no longer exist.
pub(crate) fn give_back_all(owner: &Arc<LatchCounters>) {
    let mut allocator = allocator().lock();
    for set in 0..allocator.owners.len() {
        if allocator.owners[set].as_ref().is_some_and(|other| Arc::ptr_eq(other, owner)) {
            allocator.owners[set] = None;
            allocator.free.push(set as u32);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn threads_enter_the_least_used_row() {
        let mut allocator = WordAllocator { words: 3, ..WordAllocator::new() };
        assert_eq!([(); 4].map(|()| allocator.enter_row()), [1, 2, 3, 1]);
        allocator.threads[2] -= 1;
        assert_eq!((allocator.enter_row(), allocator.enter_row()), (2, 2));
    }

    #[test]
    fn a_thread_keeps_its_row_and_the_background_has_its_own() {
        provide(4);
        let row = own_row();
        assert!(std::ptr::eq(own_row(), row));
        assert!(rows_used() >= 5);
        let other = std::thread::scope(|s| s.spawn(own_row).join()).unwrap();
        for row in [row, other] {
            let among_those_of_threads = all()[1..].iter().any(|one| std::ptr::eq(one, row));
            assert!(among_those_of_threads && !std::ptr::eq(row, background_row()));
        }
    }

    #[test]
    fn words_lie_on_lines_of_their_own() {
        let at = |row: usize, set| std::ptr::from_ref(word(&all()[row], set)).addr();
        assert_eq!((at(1, 1) - at(1, 0), at(1, 0) % 64), (64, 0));
        assert!(at(2, 0) - at(1, 0) >= 128, "the words of two cores are neighbours");
    }

    #[test]
    fn sets_come_back() {
        let (mine, other) = (Arc::default(), Arc::default());
        let (a, b) = (take(&mine).unwrap(), take(&other).unwrap());
        assert_ne!(a, b);
        give_back_all(&mine);
        assert!(give_back(b).is_some_and(|owner| Arc::ptr_eq(&owner, &other)));
        let c = take(&mine).unwrap();
        assert!(give_back(c).is_some_and(|owner| Arc::ptr_eq(&owner, &mine)));
        assert_eq!((Arc::strong_count(&mine), Arc::strong_count(&other)), (1, 1));
    }
}
