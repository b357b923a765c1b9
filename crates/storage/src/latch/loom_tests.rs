//! Tests of the latch under every order of steps and every outcome that the memory model allows: `cargo xtask loom`.
//!
//! Page bytes are relaxed atomics here, as optimistic readers use them. Bytes that are read under a share or written under
//! the exclusive mode are cells of loom as well, which detect unordered accesses.
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::*;
use crate::base::clock::Clock;
use crate::base::config::LatchKind;

/// A page of two words that are equal whenever no writer holds the latch.
#[derive(Default)]
struct Page {
    latch: Latch,
    words: [AtomicU64; 2],
    /// Data that only holders of a latch access.
    latched: UnsafeCell<u64>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

impl Page {
    /// Writes the page. The caller holds the exclusive mode.
    fn write(&self, value: u64) {
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
        // SAFETY: the exclusive mode excludes all other accesses. That is the property under test; loom checks the access.
        self.latched.with_mut(|cell| unsafe { *cell = value });
    }

    fn words(&self) -> [u64; 2] {
        [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)]
    }

    /// Reads the cell. The caller holds a share or the exclusive mode.
    fn latched(&self) -> u64 {
        // SAFETY: a share or the exclusive mode excludes writes. That is the property under test; loom checks the access.
        self.latched.with(|cell| unsafe { *cell })
    }
}

fn model(f: impl Fn(&Arc<Page>) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    builder.check(move || f(&Arc::new(Page::default())));
}

fn spawn<R: 'static>(page: &Arc<Page>, f: impl FnOnce(&Page) -> R + 'static) -> thread::JoinHandle<R> {
    let page = page.clone();
    thread::spawn(move || f(&page))
}

/// Reads the page optimistically until a pair of words is validated, at most twice.
fn read_optimistically(page: &Page) {
    for _ in 0..2 {
        let version = page.latch.optimistic();
        let words = page.words();
        if page.latch.validate(version) {
            assert_eq!(words[0], words[1], "a torn read was validated");
            return;
        }
    }
}

#[test]
fn loom_no_torn_read_is_validated() {
    model(|page| {
        let writer = spawn(page, |page| {
            for value in 1..=2 {
                page.latch.lock_exclusive();
                page.write(value);
                page.latch.unlock_exclusive();
            }
        });
        read_optimistically(page);
        writer.join().unwrap();
        read_optimistically(page);
        assert_eq!(page.words(), [2, 2]);
    });
}

#[test]
fn loom_a_reader_that_upgrades_writes_over_what_it_has_read() {
    model(|page| {
        let add = |page: &Page| {
            let version = page.latch.optimistic();
            let seen = page.words()[0];
            let upgraded = page.latch.upgrade(version);
            if upgraded {
                assert_eq!(page.latched(), seen, "another thread wrote between reading and upgrading");
                page.write(seen + 1);
                page.latch.unlock_exclusive();
            }
            upgraded
        };
        let other = spawn(page, add);
        let mine = add(page);
        let done = u64::from(mine) + u64::from(other.join().unwrap());
        assert!(done >= 1, "both gave way");
        assert_eq!(page.words(), [done, done]);
    });
}

#[test]
fn loom_writers_exclude_writers() {
    model(|page| {
        let write = |page: &Page| {
            page.latch.lock_exclusive();
            let next = page.latched() + 1;
            page.write(next);
            page.latch.unlock_exclusive();
        };
        let other = spawn(page, write);
        write(page);
        other.join().unwrap();
        assert_eq!(page.latched(), 2);
    });
}

#[test]
fn loom_writers_exclude_shares_and_shares_do_not_exclude_each_other() {
    model(|page| {
        let read = |page: &Page| {
            let share = page.latch.lock_shared();
            assert_eq!(page.words(), [page.latched(); 2]);
            drop(share);
        };
        let reader = spawn(page, read);
        page.latch.lock_exclusive();
        page.write(1);
        page.latch.unlock_exclusive();
        read(page);
        reader.join().unwrap();
        assert_eq!(page.latched(), 1);
    });
}

#[test]
fn loom_an_upgrade_waits_for_shares_and_keeps_its_version() {
    model(|page| {
        let version = page.latch.optimistic();
        let reader = spawn(page, |page| {
            let share = page.latch.lock_shared();
            let seen = page.latched();
            assert_eq!(page.latched(), seen);
            drop(share);
        });
        // A share does not count as a change.
        assert!(page.latch.upgrade(version));
        page.write(1);
        page.latch.unlock_exclusive();
        reader.join().unwrap();
        assert!(!page.latch.validate(version));
    });
}

#[test]
fn loom_versions_never_go_back() {
    model(|page| {
        let writer = spawn(page, |page| {
            page.latch.lock_exclusive();
            page.write(1);
            page.latch.unlock_exclusive();
            if page.latch.try_lock_exclusive() {
                page.latch.unlock_unchanged();
            }
        });
        let first = page.latch.optimistic();
        let (share, shared) = page.latch.lock_shared();
        drop(share);
        let last = page.latch.optimistic();
        assert!(first.0 <= shared.0 && shared.0 <= last.0);
        assert!(first == last || !page.latch.validate(first));
        writer.join().unwrap();
        assert_eq!(page.latch.optimistic().0, VERSION, "one write, and one release without any");
    });
}

/// Canary: without the fence between the latch's word and the page bytes, the same reader validates a torn pair.
#[test]
#[should_panic(expected = "a torn read was validated")]
fn loom_a_latch_without_its_fence_is_found_out() {
    model(|page| {
        let writer = spawn(page, |page| {
            let word = page.latch.word.load(Ordering::Relaxed);
            // Like `try_lock_exclusive`, but without `writes_follow`.
            page.latch.word.compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).unwrap();
            page.write(1);
            page.latch.unlock_exclusive();
        });
        read_optimistically(page);
        writer.join().unwrap();
    });
}

// Tests of superlatches. In these models the first reader that finds no other reader promotes the latch.

/// Reads under a share and checks that no writer is active at the same time.
fn read_super(page: &Page, latching: &Latching) -> u64 {
    let guard = ReadGuard::new(&page.latch, latching);
    let seen = page.latched();
    assert_eq!(page.words(), [seen; 2], "a torn read under a share");
    assert!(guard.is_valid());
    seen
}

fn write(page: &Page) {
    page.latch.lock_exclusive();
    let next = page.latched() + 1;
    page.write(next);
    page.latch.unlock_exclusive();
}

/// Runs a model with superlatches. If `promoted` is true, the latch is promoted before `f` runs.
fn super_model(promoted: bool, f: impl Fn(&Arc<Page>, &Arc<Latching>) + Sync + Send + 'static) {
    model(move |page| {
        let latching = Arc::new(Latching::new(LatchKind::Super, 1, Clock::machine()));
        if promoted {
            read_super(page, &latching);
            assert!(page.latch.is_promoted());
        }
        f(page, &latching);
        // In every execution the latch ends without holders, and no set of words is lost.
        assert!(page.latch.try_lock_exclusive(), "a share was never given back");
        page.latch.unlock_unchanged();
        let stats = latching.stats();
        assert_eq!((stats.promotions, stats.refused), (stats.demotions, 0));
    });
}

/// Spawns a reader in another thread.
fn spawn_reader(page: &Arc<Page>, latching: &Arc<Latching>) -> thread::JoinHandle<u64> {
    let latching = latching.clone();
    spawn(page, move |page| read_super(page, &latching))
}

#[test]
fn loom_a_promotion_loses_no_reader() {
    super_model(false, |page, latching| {
        let reader = spawn_reader(page, latching);
        read_super(page, latching);
        write(page);
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(page.latched(), 1);
    });
}

#[test]
fn loom_a_promotion_meets_a_writer() {
    super_model(false, |page, latching| {
        let writer = spawn(page, write);
        let seen = read_super(page, latching);
        writer.join().unwrap();
        assert!(seen <= 1);
        assert_eq!(read_super(page, latching), 1);
    });
}

#[test]
fn loom_a_demotion_meets_a_reader_that_arrives() {
    super_model(true, |page, latching| {
        let reader = spawn_reader(page, latching);
        write(page);
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(page.latched(), 1);
    });
}

#[test]
fn loom_two_writers_demote_once() {
    super_model(true, |page, latching| {
        let other = spawn(page, write);
        write(page);
        other.join().unwrap();
        assert_eq!(page.latched(), 2);
        assert_eq!(latching.stats().demotions, 1);
    });
}

#[test]
fn loom_an_upgrade_of_a_promoted_latch_waits_for_readers_and_keeps_its_version() {
    super_model(true, |page, latching| {
        let reader = spawn_reader(page, latching);
        let guard = ReadGuard::new(&page.latch, latching);
        let seen = page.latched();
        assert!(guard.upgrade(), "a promotion or a share has counted as a change");
        assert_eq!(page.latched(), seen);
        page.write(seen + 1);
        page.latch.unlock_exclusive();
        assert!(reader.join().unwrap() <= 1);
    });
}

#[test]
fn loom_an_attempt_that_gives_way_leaves_the_readers_alone() {
    super_model(true, |page, latching| {
        let reader = spawn_reader(page, latching);
        // The thread acts like an eviction: either the page is replaced, or nothing changes.
        let evicted = page.latch.try_lock_exclusive();
        if evicted {
            page.write(7);
            page.latch.unlock_exclusive();
        }
        let seen = reader.join().unwrap();
        assert!(seen == 0 || (evicted && seen == 7));
    });
}

#[test]
fn loom_optimistic_readers_do_not_see_promotions() {
    super_model(true, |page, latching| {
        let writer = spawn(page, write);
        read_optimistically(page);
        writer.join().unwrap();
        let version = page.latch.optimistic();
        read_super(page, latching);
        assert!(page.latch.is_promoted() && page.latch.validate(version));
    });
}

/// Case: a reader that is late for one latch counts itself in a set that now belongs to another latch.
#[test]
fn loom_a_late_reader_of_a_set_disturbs_no_other_latch() {
    super_model(true, |page, latching| {
        let reader = spawn_reader(page, latching);
        write(page);
        let other = Arc::new(Page::default());
        read_super(&other, latching);
        assert!(other.latch.is_promoted());
        write(&other);
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(other.latched(), 1);
    });
}

/// Case: while a reader is late, a whole write takes place. The reader finds its latch unlocked again, with another version,
/// and must not get a share.
#[test]
fn loom_a_reader_that_is_late_by_a_write_looks_at_the_whole_word() {
    super_model(true, |page, latching| {
        let reader = spawn_reader(page, latching);
        write(page);
        write(page);
        assert!(reader.join().unwrap() <= 2);
        assert_eq!(page.latched(), 2);
    });
}

/// Case: as in the test above, but the set of reader words now belongs to another latch. The late reader is counted there,
/// and its own latch is written again.
#[test]
fn loom_a_set_that_changes_hands_gives_no_share_of_the_latch_that_had_it() {
    super_model(true, |page, latching| {
        let reader = spawn_reader(page, latching);
        write(page);
        let other = Arc::new(Page::default());
        read_super(&other, latching);
        write(page);
        assert!(reader.join().unwrap() <= 2);
        write(&other);
        assert_eq!((page.latched(), other.latched()), (2, 1));
    });
}

/// Canary: the reader trusts the word that it loaded before it counted itself.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_reader_that_does_not_look_again_is_found_out() {
    super_model(true, |page, _| {
        let reader = spawn(page, |page| {
            let word = page.latch.word.load(Ordering::Relaxed);
            if word & (EXCLUSIVE | PROMOTED) == PROMOTED {
                let set = (word & MOST_READERS) >> 1;
                let readers = words::word(words::own_row(), set as usize);
                readers.fetch_add(READER, Ordering::SeqCst);
                page.latched();
                readers.fetch_sub(READER, Ordering::Release);
            }
        });
        write(page);
        reader.join().unwrap();
    });
}

/// Canaries: the writer checks only the first `words` of the reader words.
fn demote_after_a_look_at(words: usize) {
    super_model(true, move |page, latching| {
        let reader = spawn_reader(page, latching);
        let word = page.latch.word.load(Ordering::Relaxed);
        let taken =
            page.latch.word.compare_exchange(word, word | EXCLUSIVE, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if taken {
            loom::sync::atomic::fence(Ordering::SeqCst);
            let set = ((word & MOST_READERS) >> 1) as usize;
            let free = words::of_set(set).take(words).all(|readers| readers.load(Ordering::SeqCst) == 0);
            if free {
                page.write(1);
            }
            page.latch.word.store(word, Ordering::Release);
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_writer_that_looks_at_all_words_is_right() {
    demote_after_a_look_at(usize::MAX);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_writer_that_skips_a_word_is_found_out() {
    demote_after_a_look_at(2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_writer_that_looks_at_no_word_is_found_out() {
    demote_after_a_look_at(0);
}

/// Canary: a share that is counted in the latch's word is lost.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_promotion_over_readers_is_found_out() {
    super_model(false, |page, _| {
        let (share, _) = page.latch.lock_shared();
        // After the promotion below no word counts this share, so its release would only hide that the writer did not wait
        // for it.
        std::mem::forget(share);
        let set = words::take(&Default::default()).unwrap_or_default() as u64;
        let word = page.latch.word.load(Ordering::Relaxed);
        let promoted = word & VERSION_MASK | PROMOTED | set << 1;
        page.latch.word.compare_exchange(word, promoted, Ordering::SeqCst, Ordering::Relaxed).unwrap();
        let writer = spawn(page, write);
        page.latched();
        writer.join().unwrap();
    });
}
