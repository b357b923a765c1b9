//! Superlatches under random schedules, with more threads and repetitions than loom can explore: `cargo xtask shuttle`.
//!
//! Each access to a latch's word or to a reader word is a step. Memory is sequentially consistent here; loom covers the
//! effects of weaker orders.

use std::sync::Arc;

use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use super::*;
use crate::base::clock::Clock;
use crate::base::config::LatchKind;
use crate::db::shuttle_tests::schedules;

/// A page that counts the threads that access it. A writer counts for more than all readers.
#[derive(Default)]
struct Page {
    latch: Latch,
    inside: AtomicU64,
    writes: AtomicU64,
}

const WRITER: u64 = 1 << 32;

impl Page {
    fn read(&self, latching: &Latching) -> u64 {
        let guard = ReadGuard::new(&self.latch, latching);
        self.look();
        assert!(guard.is_valid());
        self.writes.load(Ordering::SeqCst)
    }

    /// Simulates the work of a holder of a share, while other threads take steps.
    fn look(&self) {
        let before = self.inside.fetch_add(1, Ordering::SeqCst);
        assert!(before < WRITER, "a writer is not alone");
        let seen = self.writes.load(Ordering::SeqCst);
        assert_eq!(self.writes.load(Ordering::SeqCst), seen, "a page has changed under a share");
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn write(&self) {
        self.latch.lock_exclusive();
        self.change();
        self.latch.unlock_exclusive();
    }

    /// Simulates the work of a holder of the exclusive mode, while other threads take steps.
    fn change(&self) {
        assert_eq!(self.inside.fetch_add(WRITER, Ordering::SeqCst), 0, "a writer is not alone");
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(WRITER, Ordering::SeqCst);
    }
}

/// Runs threads on pages with superlatches. Checks at the end that no latch is held and no set of words is lost. If
/// `promoted` is true, the latch of the first page is promoted before the threads start.
fn model(promoted: bool, workers: &'static [fn(&[Page; 2], &Latching)]) {
    schedules(move || {
        let pages: Arc<[Page; 2]> = Arc::default();
        let latching = Arc::new(Latching::new(LatchKind::Super, 1, Clock::machine()));
        if promoted {
            pages[0].read(&latching);
            assert!(pages[0].latch.is_promoted());
        }
        let threads: Vec<_> = workers
            .iter()
            .map(|work| {
                let (pages, latching) = (pages.clone(), latching.clone());
                thread::spawn(move || work(&pages, &latching))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for page in &*pages {
            assert!(page.latch.try_lock_exclusive(), "a share was never given back");
            page.latch.unlock_unchanged();
        }
        let stats = latching.stats();
        assert_eq!(stats.promotions, stats.demotions);
    });
}

fn reads(pages: &[Page; 2], latching: &Latching) {
    let mut last = 0;
    for _ in 0..4 {
        let seen = pages[0].read(latching);
        assert!(last <= seen, "a reader has seen a page go back");
        last = seen;
    }
}

fn writes(pages: &[Page; 2], _: &Latching) {
    for _ in 0..2 {
        pages[0].write();
    }
}

#[test]
fn shuttle_a_promotion_meets_readers() {
    model(false, &[reads, reads, reads]);
}

#[test]
fn shuttle_a_promotion_meets_a_writer() {
    model(false, &[reads, writes]);
}

#[test]
fn shuttle_a_demotion_meets_readers_that_arrive() {
    model(true, &[reads, reads, writes]);
}

#[test]
fn shuttle_two_writers_demote_one_after_the_other() {
    model(true, &[writes, writes, reads]);
}

/// Case: readers and writers of two pages, so that sets of words move between the latches.
#[test]
fn shuttle_sets_change_their_latch_and_lose_no_reader() {
    fn both(pages: &[Page; 2], latching: &Latching) {
        for _ in 0..6 {
            let page = &pages[shuttle::rand::thread_rng().gen_range(0..2)];
            match shuttle::rand::thread_rng().gen_range(0..3) {
                0 => page.write(),
                _ => _ = page.read(latching),
            }
        }
    }
    model(false, &[both, both, both]);
}

/// Case: shares of the cleaner, and evictions, which fail while readers hold the latch.
#[test]
fn shuttle_background_work_and_evictions_keep_to_the_protocol() {
    fn cleans(pages: &[Page; 2], _: &Latching) {
        for _ in 0..2 {
            let (share, _) = pages[0].latch.lock_shared();
            pages[0].look();
            drop(share);
        }
    }
    fn evicts(pages: &[Page; 2], _: &Latching) {
        for _ in 0..4 {
            if pages[0].latch.try_lock_exclusive() {
                pages[0].change();
                pages[0].latch.unlock_exclusive();
            }
        }
    }
    model(true, &[reads, cleans, evicts]);
}

/// Case: two readers that upgrade. At least one of them writes, and it replaces only the value that it has read.
#[test]
fn shuttle_upgrades_write_over_what_was_read() {
    fn upgrades(pages: &[Page; 2], latching: &Latching) {
        let guard = ReadGuard::new(&pages[0].latch, latching);
        let seen = pages[0].writes.load(Ordering::SeqCst);
        if guard.upgrade() {
            assert_eq!(pages[0].writes.load(Ordering::SeqCst), seen, "another thread wrote in between");
            pages[0].change();
            pages[0].latch.unlock_exclusive();
        }
    }
    model(true, &[upgrades, upgrades, reads]);
}

/// Canary: the reader trusts the word that it loaded before it counted itself.
#[test]
#[should_panic(expected = "a writer is not alone")]
fn shuttle_a_reader_that_does_not_look_again_is_found_out() {
    fn trusts(pages: &[Page; 2], _: &Latching) {
        for _ in 0..8 {
            let word = pages[0].latch.word.load(Ordering::SeqCst);
            if word & (EXCLUSIVE | PROMOTED) == PROMOTED {
                let readers = words::word(words::own_row(), ((word & MOST_READERS) >> 1) as usize);
                readers.fetch_add(READER, Ordering::SeqCst);
                pages[0].look();
                readers.fetch_sub(READER, Ordering::SeqCst);
            }
        }
    }
    model(true, &[trusts, reads, writes]);
}

/// Canary: the writer does not check the reader words.
#[test]
#[should_panic(expected = "a writer is not alone")]
fn shuttle_a_writer_that_looks_at_no_word_is_found_out() {
    fn tramples(pages: &[Page; 2], _: &Latching) {
        for _ in 0..8 {
            let latch = &pages[0].latch;
            let word = latch.word.load(Ordering::SeqCst);
            if word & (EXCLUSIVE | PROMOTED) == PROMOTED
                && latch.word.compare_exchange(word, word | EXCLUSIVE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                pages[0].change();
                latch.word.store(word, Ordering::SeqCst);
            }
        }
    }
    model(true, &[tramples, reads, reads]);
}
