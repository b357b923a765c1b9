//! Memory and threads of many small databases. This file has a single test, because it measures the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod common;

use std::time::{Duration, Instant};

use common::{NUMBERS, ROWS};
use storage::{Database, Durability, Options, Services};

const DATABASES: usize = 32;

/// Resident memory of the process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Number of threads of the process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits until the process has this number of threads: a joined thread may still be exiting.
fn assert_threads(expected: usize, what: &str) {
    let begin = Instant::now();
    while threads() != expected {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {} threads, not {expected}", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn put_all(db: &Database, rows: u64) {
    db.transact(|tx| (0..rows).try_for_each(|n| tx.put(&NUMBERS, &n, &n))).unwrap();
}

#[test]
fn many_small_databases_cost_little_memory_and_no_threads() {
    let directory = std::env::temp_dir().join(format!("lockstep-small-{}", std::process::id()));
    let smallest = || {
        let sizes = Options::new().buffer_pool(1 << 20).log_segment(64 << 10).log_buffer(512 << 10);
        sizes.lock_table(256).transactions(4).durability(Durability::Async)
    };
    let at_first = threads();
    let services = Services::new().unwrap();
    let serving = threads();
    assert_eq!(serving - at_first, 7, "the number that `ServiceThreads` says");
    // The first database includes memory that the process needs only once.
    let first = smallest().services(&services).open(directory.join("first")).unwrap();
    put_all(&first, 1000);

    let before = resident();
    let dbs: Vec<Database> =
        (0..DATABASES).map(|n| smallest().services(&services).open(directory.join(n.to_string())).unwrap()).collect();
    let open = (resident() - before) / DATABASES;
    assert!(open < 1 << 20, "an open database takes {open} bytes");
    dbs.iter().for_each(|db| put_all(db, 1000));
    let small = (resident() - before) / DATABASES;
    assert!(small < 5 << 18, "a database of 1,000 rows takes {small} bytes");
    for db in &dbs {
        for from in [0, 250] {
            let row = |n: u64| (n.to_be_bytes().to_vec(), vec![n as u8; 3000]);
            let mut rows = (from..from + 250).map(row);
            db.transact(|tx| rows.try_for_each(|(key, row)| tx.put(&ROWS, &key, &row))).unwrap();
        }
    }
    dbs.iter().for_each(|db| db.checkpoint().unwrap());
    let full = (resident() - before) / DATABASES;
    assert!(full < 5 << 19, "a database that fills its pool takes {full} bytes");
    assert_threads(serving, "databases that share threads have started some");

    drop(services);
    assert_threads(serving, "the databases keep the threads");
    drop(dbs);
    assert_threads(serving, "a database keeps the threads");
    drop(first);
    assert_threads(at_first, "the threads outlive handle and databases");

    // By default each database has its own threads.
    let own = smallest().open(directory.join("first")).unwrap();
    assert_threads(at_first + 4, "a database of its own");
    drop(own);
    assert_threads(at_first, "it is closed");
    println!("bytes for each database: {open} open, {small} with 1,000 rows, {full} with a full pool");
    std::fs::remove_dir_all(directory).unwrap();
}
