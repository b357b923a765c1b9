//! Unit tests of the latch, under each kind of reader.
#![allow(unsafe_code)]

use super::*;
use crate::base::clock::Clock;
use crate::base::config::LatchKind;
use crate::base::latches::assert_none_held;

#[test]
fn a_write_moves_the_version_and_fails_readers() {
    let latch = Latch::default();
    let seen = latch.optimistic();
    assert!(latch.validate(seen));
    latch.lock_exclusive();
    assert!(!latch.validate(seen));
    latch.unlock_exclusive();
    assert!(!latch.validate(seen));
    assert!(!latch.upgrade(seen));
    let now = latch.optimistic();
    assert!(latch.upgrade(now));
    latch.unlock_unchanged();
    assert!(latch.validate(now));
}

#[test]
fn shares_do_not_disturb_optimistic_readers_and_keep_writers_out() {
    let latch = Latch::default();
    let seen = latch.optimistic();
    let share = latch.lock_shared();
    assert!(latch.validate(seen));
    assert!(!latch.try_lock_exclusive());
    drop(share);
    assert!(latch.try_lock_exclusive());
    assert!(latch.try_lock_shared().is_none());
    latch.unlock_exclusive();
}

#[test]
#[cfg(debug_assertions)]
fn the_latches_a_thread_holds_are_counted() {
    // The test runs in a separate thread, because other tests leak latches that they hold, and may run on the same thread.
    std::thread::spawn(|| {
        let (a, b, plain) =
            (Latch::default(), Latch::default(), Latching::new(LatchKind::Plain, PROMOTE_AT, Clock::machine()));
        assert_none_held("the start");
        a.lock_exclusive();
        let share = ReadGuard::new(&b, &plain);
        let caught = std::panic::catch_unwind(|| assert_none_held("a point"));
        let text = *caught.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("a latch is held at a point"), "{text}");
        a.unlock_unchanged();
        assert!(std::panic::catch_unwind(|| assert_none_held("a point")).is_err());
        assert!(share.upgrade());
        assert!(std::panic::catch_unwind(|| assert_none_held("a point")).is_err());
        b.unlock_exclusive();
        assert_none_held("the end");
        // An optimistic reader holds no latch; without optimistic reads it takes a share.
        if !cfg!(any(miri, race_free)) {
            let _read = ReadGuard::new(&a, &Latching::default());
            assert_none_held("a read section");
        }
    })
    .join()
    .unwrap();
}

/// A latch and the words that it protects. The words are equal whenever no writer holds the latch.
#[derive(Default)]
struct Cell(Latch, std::cell::UnsafeCell<[u64; 8]>);

// SAFETY: the content is only touched under the latch.
unsafe impl Sync for Cell {}

impl Cell {
    fn add(&self) {
        self.0.lock_exclusive();
        // SAFETY: the exclusive mode is held.
        unsafe { (*self.1.get()).iter_mut().for_each(|x| *x += 1) };
        self.0.unlock_exclusive();
    }

    /// Asserts that a reader sees no torn write, and returns the value that it sees.
    fn read(&self, latching: &Latching) -> u64 {
        let guard = ReadGuard::new(&self.0, latching);
        // SAFETY: a share is held.
        let all = unsafe { *self.1.get() };
        assert!(guard.is_valid());
        drop(guard);
        assert!(all.iter().all(|x| *x == all[0]), "a torn read under a share: {all:?}");
        all[0]
    }
}

#[test]
fn exclusive_is_exclusive_between_threads() {
    for latching in [Latching::new(LatchKind::Plain, PROMOTE_AT, Clock::machine()), superlatches(1), superlatches(3)] {
        let (cell, latching) = (&Cell::default(), &latching);
        let rounds: u64 = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| (0..rounds).for_each(|_| cell.add()));
            }
            for _ in 0..2 {
                s.spawn(|| {
                    (0..rounds).fold(0, |before, _| {
                        let seen = cell.read(latching);
                        assert!(seen >= before, "what was written was read and is gone");
                        seen
                    })
                });
            }
        });
        assert_eq!(cell.read(latching), 2 * rounds);
        let stats = latching.stats();
        assert!(stats.demotions <= stats.promotions && stats.promotions - stats.demotions <= 1, "{stats:?}");
    }
}

/// Returns latch settings with superlatches that are promoted after `promote_at` reads.
fn superlatches(promote_at: u16) -> Latching {
    provide_words(2);
    Latching::new(LatchKind::Super, promote_at, Clock::machine())
}

#[test]
fn a_latch_that_is_read_often_is_promoted_and_a_writer_demotes_it() {
    let (latch, latching) = (Latch::default(), superlatches(3));
    let read = || drop(ReadGuard::new(&latch, &latching));
    let begin = latch.optimistic();
    (0..2).for_each(|_| read());
    assert!(!latch.is_promoted());
    read();
    assert!(latch.is_promoted() && latch.validate(begin), "a promotion is no write");
    read();
    assert_eq!(latch.word.load(Ordering::Relaxed) & EXCLUSIVE, 0);
    assert!(latch.try_lock_exclusive());
    latch.unlock_unchanged();
    assert!(!latch.is_promoted() && latch.validate(begin));
    (0..2).for_each(|_| read());
    assert!(!latch.is_promoted(), "it has to earn its promotion again");
    read();
    assert!(latch.is_promoted());
    assert!(latch.upgrade(begin));
    latch.unlock_exclusive();
    assert_eq!(latching.stats(), LatchStats { promotions: 2, demotions: 2, refused: 0 });
}

#[test]
fn reads_with_writes_in_between_promote_nothing() {
    let (latch, latching) = (Latch::default(), superlatches(3));
    for _ in 0..50 {
        (0..2).for_each(|_| drop(ReadGuard::new(&latch, &latching)));
        latch.lock_exclusive();
        latch.unlock_exclusive();
    }
    assert_eq!(latching.stats(), LatchStats::default());
}

#[test]
fn holders_of_a_promoted_latch_keep_writers_out_wherever_they_let_go() {
    let (latch, latching) = (&Latch::default(), &superlatches(1));
    let mine = ReadGuard::new(latch, latching);
    assert!(latch.is_promoted());
    let (version, background) = (mine.version(), latch.lock_shared().0);
    assert!(!latch.try_lock_exclusive() && !latch.try_upgrade(version));
    assert!(latch.is_promoted(), "an attempt that fails leaves the latch as it is");
    drop(mine);
    assert!(!latch.try_upgrade(version), "the cleaner holds a share");
    // If another thread releases a share, the share is released in the word that counted it.
    std::thread::scope(|scope| {
        let theirs = scope.spawn(move || (drop(background), ReadGuard::new(latch, latching)).1).join().unwrap();
        assert!(!latch.try_upgrade(version));
        drop(theirs);
    });
    assert!(latch.try_upgrade(version));
    assert!(latch.try_lock_shared().is_none());
    latch.unlock_exclusive();
}

#[test]
fn an_upgrade_gives_its_own_share_back_first() {
    let (latch, latching) = (Latch::default(), superlatches(1));
    let (one, two) = (ReadGuard::new(&latch, &latching), ReadGuard::new(&latch, &latching));
    let version = one.version();
    drop(one);
    assert!(two.upgrade());
    assert!(latch.unlock_exclusive() != version);
    let late = ReadGuard::new(&latch, &latching);
    drop(late);
    assert!(!latch.upgrade(version), "the page has changed since");
}

#[test]
fn a_latch_with_readers_is_not_promoted_until_they_leave() {
    let (latch, latching) = (Latch::default(), superlatches(2));
    let first = ReadGuard::new(&latch, &latching);
    drop(ReadGuard::new(&latch, &latching));
    assert!(!latch.is_promoted(), "the first reader's share is counted in the latch's word");
    drop(first);
    (0..2).for_each(|_| drop(ReadGuard::new(&latch, &latching)));
    assert!(latch.is_promoted());
    latch.lock_exclusive();
    latch.unlock_exclusive();
}

#[test]
fn a_database_that_closes_leaves_no_reader_words_behind() {
    // The loop takes more sets in all than exist.
    for _ in 0..3 * words::SETS {
        let (latch, latching) = (Latch::default(), superlatches(1));
        drop(ReadGuard::new(&latch, &latching));
        assert!(latch.is_promoted(), "{:?}", latching.stats());
    }
}

/// Operations on a latch in the model. One thread executes all of them, so that the outcome is known.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Background,
    LetGo(usize),
    Write,
    Touch,
    Upgrade,
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let step = prop_oneof![
        4 => Just(Step::Read),
        1 => Just(Step::Background),
        4 => (0..8_usize).prop_map(Step::LetGo),
        1 => Just(Step::Write),
        1 => Just(Step::Touch),
        1 => Just(Step::Upgrade),
    ];
    proptest::collection::vec(step, 1..120)
}

enum Held<'a> {
    Guard(ReadGuard<'a>),
    Share(Share<'a>),
}

proptest::proptest! {
    /// A latch of any kind behaves as a count of readers and a version: a writer gets it exactly when there are no readers.
    #[test]
    #[cfg_attr(miri, ignore = "takes long")]
    fn any_kind_of_share_is_a_count_of_readers(steps in steps(), promote_at in 1..6_u16, is_super: bool) {
        let kind = if is_super { LatchKind::Super } else { LatchKind::Plain };
        let (latch, latching) = (Latch::default(), Latching::new(kind, promote_at, Clock::machine()));
        let (mut held, mut writes) = (Vec::new(), 0_u64);
        for step in steps {
            match step {
                Step::Read => held.push(Held::Guard(ReadGuard::new(&latch, &latching))),
                Step::Background => held.push(Held::Share(latch.lock_shared().0)),
                Step::LetGo(n) if n < held.len() => match held.swap_remove(n) {
                    Held::Guard(guard) => drop(guard),
                    Held::Share(share) => drop(share),
                },
                Step::LetGo(_) => {}
                Step::Write | Step::Touch => {
                    let taken = latch.try_lock_exclusive();
                    proptest::prop_assert_eq!(taken, held.is_empty());
                    match step {
                        _ if !taken => {}
                        Step::Touch => latch.unlock_unchanged(),
                        _ => {
                            latch.unlock_exclusive();
                            writes += 1;
                        }
                    }
                }
                // If there were other holders, the upgrade would wait for them.
                Step::Upgrade if held.len() != 1 => {}
                Step::Upgrade => match held.remove(0) {
                    Held::Guard(guard) => {
                        proptest::prop_assert!(guard.upgrade());
                        latch.unlock_exclusive();
                        writes += 1;
                    }
                    share => held.push(share),
                },
            }
            proptest::prop_assert_eq!(latch.optimistic().0, writes * VERSION);
            for guard in held.iter().filter_map(|held| if let Held::Guard(guard) = held { Some(guard) } else { None }) {
                proptest::prop_assert!(guard.is_valid() && guard.version().0 == writes * VERSION);
            }
        }
        drop(held);
        proptest::prop_assert!(latch.try_lock_exclusive());
        latch.unlock_exclusive();
        let stats = latching.stats();
        proptest::prop_assert_eq!(stats.promotions, stats.demotions);
    }
}
