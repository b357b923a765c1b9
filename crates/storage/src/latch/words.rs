//! The reader words of superlatches: one table for the process.
//!
//! A *set* is the words of one superlatch, a *row* the words of one thread in all sets. Words of a row are neighbours, so
//! that a cache fetches no word of another core beside its own; each word has a cache line of its own. The table's
//! memory is the program's zeroed segment: the system gives it when it is first touched, and sets are given out from the
//! lowest number on.
//!
//! A word is a counter and not a flag: threads may share one, and a reader that was late for a latch whose set has gone
//! to another latch takes back what it has added. That reader can make a writer wait, and nothing else.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::sync::word::AtomicU64;
use crate::latch::stats::LatchCounters;

/// Whether a model checker runs the code: its models are small.
pub(super) const CHECKED: bool = cfg!(any(loom, shuttle));

/// Most words of a set, that of the background work not counted: more cores than this cannot have superlatches.
pub(crate) const MOST_WORDS: usize = if CHECKED { 2 } else { 128 };

/// Superlatches at once, in the whole process.
pub(crate) const SETS: usize = if CHECKED { 2 } else { 1024 };

/// The number of [`background_row`].
const BACKGROUND: usize = 0;

const ROWS: usize = 1 + MOST_WORDS;

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Word(AtomicU64);

/// The words of some threads, one for each set. (Under a checker there are few sets, and arrays have defaults.)
pub(super) type WordRow = [Word; SETS];

/// All words. Apart from what was given out, which does not begin with zeros: this would be a part of the program's file then.
type Words = [WordRow; ROWS];

/// What the table has given out. Its mutex is held for a few instructions and across no step of a checker, hence not one
/// of `base::sync`.
struct Given {
    /// Sets from this one on were never given out.
    untouched: usize,
    free: Vec<u32>,
    /// The database whose latch has the set.
    owners: Vec<Option<Arc<LatchCounters>>>,
    /// Words of a set that threads may use, from row 1 on.
    words: usize,
    /// Threads that use a row.
    threads: [u32; ROWS],
}

impl Given {
    const fn new() -> Given {
        Given { untouched: 0, free: Vec::new(), owners: Vec::new(), words: 1, threads: [0; ROWS] }
    }

    /// The least used row, for one more thread.
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
    static GIVEN: parking_lot::Mutex<Given> = parking_lot::Mutex::new(Given::new());

    /// Rows that may be in use, that of the background included. Only grows.
    static ROWS_USED: AtomicU64 = AtomicU64::new(2);

    thread_local! {
        /// This thread's row, once it has one.
        pub(super) static ROW: Cell<Option<&'static WordRow>> = const { Cell::new(None) };
    }

    #[inline(always)]
    pub(super) fn all() -> &'static Words {
        &WORDS
    }

    pub(super) fn given() -> &'static parking_lot::Mutex<Given> {
        &GIVEN
    }

    /// Sequentially consistent, as all that decides whether a writer sees a reader: a thread enters a row after the row
    /// was added here, so a writer that does not see the row comes before the reader.
    #[inline]
    pub(super) fn rows_used() -> usize {
        (ROWS_USED.load(Ordering::SeqCst) as usize).min(ROWS)
    }

    pub(super) fn use_rows(rows: usize) {
        ROWS_USED.fetch_max(rows as u64, Ordering::SeqCst);
    }
}

/// Under a checker each execution of a model has a table of its own.
#[cfg(any(loom, shuttle))]
mod in_force {
    #[cfg(loom)]
    use loom::{lazy_static, thread_local};
    #[cfg(shuttle)]
    use shuttle::{lazy_static, thread_local};

    use super::*;

    lazy_static! {
        static ref WORDS: Words = Default::default();
        static ref GIVEN: parking_lot::Mutex<Given> =
            parking_lot::Mutex::new(Given { words: MOST_WORDS, ..Given::new() });
    }

    thread_local! {
        pub(super) static ROW: Cell<Option<&'static WordRow>> = Cell::new(None);
    }

    pub(super) fn all() -> &'static Words {
        &WORDS
    }

    pub(super) fn given() -> &'static parking_lot::Mutex<Given> {
        &GIVEN
    }

    pub(super) fn rows_used() -> usize {
        ROWS
    }

    pub(super) fn use_rows(_: usize) {}
}

use in_force::{ROW, all, given, rows_used, use_rows};

/// Lets threads use so many words of each set, at most [`MOST_WORDS`]. The largest number that was asked for holds:
/// threads that have a word keep it.
pub(crate) fn provide(words: usize) {
    let words = words.clamp(1, MOST_WORDS);
    // Before any thread can enter a new row.
    use_rows(1 + words);
    let mut given = given().lock();
    given.words = given.words.max(words);
}

/// The word of a row in a set.
#[inline(always)]
pub(super) fn word(row: &'static WordRow, set: usize) -> &'static AtomicU64 {
    // Spares a test on the way of every reader.
    &row[set % SETS].0
}

/// The row of shares that background work takes, now and then, so that no worker has to share its word with it.
pub(super) fn background_row() -> &'static WordRow {
    &all()[BACKGROUND]
}

/// Addresses of the words that threads use, and how far those of one row are from those of the next.
#[cfg(feature = "measure")]
pub(crate) fn lines() -> (std::ops::Range<usize>, usize) {
    let rows = all()[1..].as_ptr_range();
    (rows.start.addr()..rows.end.addr(), size_of::<WordRow>())
}

/// The words of a set, of all rows that readers may use.
pub(super) fn of_set(set: usize) -> impl Iterator<Item = &'static AtomicU64> {
    all()[..rows_used()].iter().map(move |row| word(row, set))
}

/// This thread's row.
#[inline(always)]
pub(super) fn own_row() -> &'static WordRow {
    match ROW.with(Cell::get) {
        Some(row) => row,
        None => enter_row(),
    }
}

#[cold]
fn enter_row() -> &'static WordRow {
    let row = given().lock().enter_row();
    #[cfg(not(any(loom, shuttle)))]
    if LEAVES.try_with(|leaves| leaves.0.set(row)).is_err() {
        // The thread is ending: it does not stay.
        given().lock().threads[row] -= 1;
        return &all()[row];
    }
    let row = &all()[row];
    ROW.with(|own| own.set(Some(row)));
    row
}

/// Gives the row back when the thread ends.
#[cfg(not(any(loom, shuttle)))]
struct Leaves(Cell<usize>);

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    static LEAVES: Leaves = const { Leaves(Cell::new(0)) };
}

#[cfg(not(any(loom, shuttle)))]
impl Drop for Leaves {
    fn drop(&mut self) {
        let row = self.0.get();
        if row != BACKGROUND {
            ROW.set(None);
            given().lock().threads[row] -= 1;
        }
    }
}

/// A set for a latch of the database that counts there; `None` if all sets are in use.
pub(super) fn take(owner: &Arc<LatchCounters>) -> Option<usize> {
    let mut given = given().lock();
    let set = match given.free.pop() {
        Some(set) => set as usize,
        None if given.untouched < SETS => {
            given.untouched += 1;
            given.owners.push(None);
            given.untouched - 1
        }
        None => return None,
    };
    debug_assert!(given.owners[set].is_none(), "set {set} has two owners");
    given.owners[set] = Some(Arc::clone(owner));
    Some(set)
}

/// The set is free again; returns the counters of the database whose latch had it.
pub(super) fn give_back(set: usize) -> Option<Arc<LatchCounters>> {
    let mut given = given().lock();
    let owner = given.owners[set].take();
    debug_assert!(owner.is_some(), "set {set} is given back twice");
    given.free.push(set as u32);
    owner
}

/// Frees the sets of a database whose pages are gone, and with them all its latches.
pub(crate) fn give_back_all(owner: &Arc<LatchCounters>) {
    let mut given = given().lock();
    for set in 0..given.owners.len() {
        if given.owners[set].as_ref().is_some_and(|other| Arc::ptr_eq(other, owner)) {
            given.owners[set] = None;
            given.free.push(set as u32);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn threads_enter_the_least_used_row() {
        let mut given = Given { words: 3, ..Given::new() };
        assert_eq!([(); 4].map(|()| given.enter_row()), [1, 2, 3, 1]);
        given.threads[2] -= 1;
        assert_eq!((given.enter_row(), given.enter_row()), (2, 2));
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
