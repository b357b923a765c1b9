//! Atomicity tests of clause 3.2.2: a Payment happens completely or not at all, also across a restart and a crash.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use storage::disk::{Crash, Disk, SimDisk};
use storage::{Isolation, Options};
use tpcc_core::checkers::acid::{Figures, TestDatabase};

const C: (u32, u8, u32) = (1, 2, 11);
const AMOUNT: i64 = 4_321;

fn options() -> Options {
    Options::new().buffer_pool(4 << 20).log_segment(1 << 20).transactions(16)
}

fn on(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn figures(test_db: &TestDatabase) -> Figures {
    let mut tx = test_db.begin(Isolation::Serializable, true).unwrap();
    let figures = tx.figures(C).unwrap();
    tx.commit().unwrap();
    figures
}

fn paid(before: Figures) -> Figures {
    Figures {
        w_ytd: before.w_ytd + AMOUNT,
        d_ytd: before.d_ytd + AMOUNT,
        balance: before.balance - AMOUNT,
        ytd_payment: before.ytd_payment + AMOUNT,
        payments: before.payments + 1,
        history: before.history + 1,
    }
}

/// Runs a Payment that ends by commit or rollback. Checks the figures immediately, after a restart, and after each kind of
/// crash.
fn payment(commits: bool) {
    for hot_last in [false, true] {
        let disk = SimDisk::new(17);
        let test_db = TestDatabase::load(on(&disk), options(), 1).unwrap();
        let before = figures(&test_db);
        let mut tx = test_db.begin(Isolation::Serializable, hot_last).unwrap();
        tx.payment(C, AMOUNT).unwrap();
        assert_eq!(tx.figures(C).unwrap(), paid(before), "its own work is seen");
        let end = if commits { tx.commit() } else { tx.rollback() };
        end.unwrap();
        let want = if commits { paid(before) } else { before };
        assert_eq!(figures(&test_db), want);
        // Answers are sent only after their commits are durable. This test has no clients, so it waits explicitly.
        test_db.database().wait_durable(test_db.database().begin().unwrap().commit_async().unwrap()).unwrap();
        for how in [Crash::All, Crash::Nothing, Crash::Random(3), Crash::Random(4)] {
            let crashed = disk.crash(how);
            let test_db = TestDatabase::open(on(&crashed), options()).unwrap();
            assert_eq!(figures(&test_db), want, "{how:?}");
            assert_eq!(test_db.broken().unwrap(), [] as [String; 0], "{how:?}");
        }
        test_db.close().unwrap();
        let test_db = TestDatabase::open(on(&disk), options()).unwrap();
        assert_eq!(figures(&test_db), want);
        assert_eq!(test_db.broken().unwrap(), [] as [String; 0]);
    }
}

#[test]
fn a_payment_that_commits_changes_each_figure_by_its_amount() {
    payment(true);
}

#[test]
fn a_payment_that_rolls_back_changes_nothing() {
    payment(false);
}

/// The power fails before commit or rollback is called, but after the changes were written to disk.
#[test]
fn a_payment_under_way_when_the_power_goes_changes_nothing() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let test_db = TestDatabase::load(on(&disk), options(), 1).unwrap();
        let before = figures(&test_db);
        let mut tx = test_db.begin(Isolation::Serializable, true).unwrap();
        tx.payment(C, AMOUNT).unwrap();
        // Writes the pages with uncommitted changes, and their log records before.
        test_db.database().checkpoint().unwrap();
        let crashed = disk.crash(Crash::Random(seed));
        let again = TestDatabase::open(on(&crashed), options()).unwrap();
        assert_eq!(figures(&again), before, "seed {seed}");
        assert_eq!(again.broken().unwrap(), [] as [String; 0], "seed {seed}");
        drop(tx);
    }
}
