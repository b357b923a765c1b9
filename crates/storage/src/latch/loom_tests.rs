//! The latch under every order of steps and every outcome that the memory model allows: `cargo xtask loom`.
//!
//! Page bytes are relaxed atomics here: that is how optimistic readers use them. Bytes that are read under a share or
//! written under the exclusive mode are loom's cells as well, which detect an access that nothing orders.
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::*;

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
    /// The caller holds the exclusive mode.
    fn write(&self, value: u64) {
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
        // SAFETY: what is being tested.
        self.latched.with_mut(|cell| unsafe { *cell = value });
    }

    fn words(&self) -> [u64; 2] {
        [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)]
    }

    /// The caller holds a share or the exclusive mode.
    fn latched(&self) -> u64 {
        // SAFETY: what is being tested.
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

/// Reads until it has a validated pair, at most twice.
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
            page.latch.lock_shared();
            assert_eq!(page.words(), [page.latched(); 2]);
            page.latch.unlock_shared();
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
            page.latch.lock_shared();
            let seen = page.latched();
            assert_eq!(page.latched(), seen);
            page.latch.unlock_shared();
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
        let shared = page.latch.lock_shared();
        page.latch.unlock_shared();
        let last = page.latch.optimistic();
        assert!(first.0 <= shared.0 && shared.0 <= last.0);
        assert!(first == last || !page.latch.validate(first));
        writer.join().unwrap();
        assert_eq!(page.latch.optimistic().0, VERSION, "one write, and one release without any");
    });
}

/// The canary: without the fence between word and bytes the same reader validates a torn pair.
#[test]
#[should_panic(expected = "a torn read was validated")]
fn loom_a_latch_without_its_fence_is_found_out() {
    model(|page| {
        let writer = spawn(page, |page| {
            let word = page.latch.0.load(Ordering::Relaxed);
            // As `try_lock_exclusive`, but for `writes_follow`.
            page.latch.0.compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).unwrap();
            page.write(1);
            page.latch.unlock_exclusive();
        });
        read_optimistically(page);
        writer.join().unwrap();
    });
}
