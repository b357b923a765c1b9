//! Timing of checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{NUMBERS, on, small};
use storage::disk::SimDisk;
use storage::{Table, TxnError};

const ROWS: Table<u64, Vec<u8>> = Table::new("rows");

/// Regression: the service estimated the gain of a checkpoint only five times per second, while a fast log grows in one
/// second by fifty times the allowed distance between two checkpoints.
#[test]
fn checkpoints_keep_up_with_a_fast_log() {
    const EVERY: u64 = 1 << 20;
    let now_ns = Arc::new(AtomicU64::new(1));
    let disk = SimDisk::new(1);
    let db = small().checkpoint_every(EVERY).clock(Arc::clone(&now_ns)).open_on(on(&disk)).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &0, &0)).unwrap();
    let mut n = 0u64;
    while db.stats().log_bytes < 24 * EVERY {
        db.transact(|tx| {
            (0..8).try_for_each(|_| {
                n += 1;
                tx.put(&ROWS, &(n % 100), &vec![n as u8; 500])
            })?;
            Ok::<_, TxnError>(())
        })
        .unwrap();
        // About 60 MiB per second.
        now_ns.fetch_add(150_000, Ordering::Relaxed);
        db.step().unwrap();
    }
    let stats = db.stats();
    let due = stats.log_bytes / EVERY;
    assert!(stats.checkpoints >= due / 2, "{} checkpoints in {due} times what may lie between two", stats.checkpoints);
}
