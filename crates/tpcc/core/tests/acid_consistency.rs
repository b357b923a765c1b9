//! Consistency test of clause 3.3.3: all conditions hold after terminals have run the mix with concurrent checkpoints.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use storage::Options;
use storage::disk::MemDisk;
use tpcc_core::checkers::acid::TestDatabase;

/// Approximate number of transactions, and number of terminals that run them.
const TRANSACTIONS: u64 = 3_000;
const TERMINALS: u32 = 8;

#[test]
fn conditions_hold_before_and_after_a_load_of_terminals() {
    // The pool is small, so that pages are written and read again.
    let options = Options::new().buffer_pool(1 << 20).log_segment(1 << 20).checkpoint_every(1 << 20);
    let test_db = TestDatabase::load(Arc::new(MemDisk::new()), options, 2).unwrap();
    assert_eq!(test_db.broken().unwrap(), [] as [String; 0]);
    let run = test_db.run_number().unwrap();
    let (stop, orders) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let terminals: Vec<_> = (0..TERMINALS)
            .map(|number| {
                let (test_db, stop, orders) = (&test_db, &stop, &orders);
                scope.spawn(move || {
                    let each = |_| {
                        // 45 of 100 transactions are orders.
                        if orders.fetch_add(1, Ordering::Relaxed) * 100 > TRANSACTIONS * 45 {
                            stop.store(true, Ordering::Relaxed);
                        }
                    };
                    test_db.terminal(run, number, 5, stop, each)
                })
            })
            .collect();
        // At least one checkpoint runs, even if this thread is scheduled late.
        loop {
            test_db.database().checkpoint().unwrap();
            if stop.load(Ordering::Relaxed) || terminals.iter().all(|t| t.is_finished()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let done: u64 = terminals.into_iter().map(|t| t.join().unwrap().unwrap()).sum();
        assert!(done > TRANSACTIONS / 2, "{done}");
    });
    assert!(test_db.database().stats().checkpoints > 0);
    assert_eq!(test_db.broken().unwrap(), [] as [String; 0]);
    test_db.close().unwrap();
}
