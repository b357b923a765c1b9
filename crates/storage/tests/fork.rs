//! A database in a forked child of the process that opened it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

mod common;

use std::time::{Duration, Instant};

use common::NUMBERS;
use storage::{Database, Options, StorageError, TxnError};

/// Returns the refusals in the child, encoded as its exit status.
fn in_the_child(db: Database) -> i32 {
    let wrote = db.transact(|tx| tx.put(&NUMBERS, &1, &2));
    let begun = db.begin().map(drop);
    let closed = db.close();
    let is_told = matches!(wrote, Err(TxnError::Storage(StorageError::Forked)))
        && matches!(begun, Err(TxnError::Storage(StorageError::Forked)))
        && matches!(closed, Err(StorageError::Forked));
    i32::from(!is_told)
}

#[test]
fn a_forked_child_is_refused_and_the_parent_goes_on() {
    let directory = std::env::temp_dir().join(format!("storage-fork-{}", std::process::id()));
    let db = Database::open(&directory, Options::new()).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    // SAFETY: the child only makes calls that are refused, and exits without running destructors of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(in_the_child(db)) };
    }
    assert!(child > 0, "no child: {}", std::io::Error::last_os_error());
    let (begun, mut status) = (Instant::now(), 0);
    let ended = loop {
        // SAFETY: the child belongs to this process; the status pointer is valid.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended != 0 {
            break ended;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            // SAFETY: as above.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((ended, status), (child, 0), "the child was refused nothing, or did not end");
    db.transact(|tx| tx.put(&NUMBERS, &2, &2)).unwrap();
    db.close().unwrap();
    let db = Database::open(&directory, Options::new()).unwrap();
    let rows = db.transact(|tx| tx.range(&NUMBERS, ..)?.collect::<Result<Vec<_>, TxnError>>()).unwrap();
    assert_eq!(rows, [(1, 1), (2, 2)]);
    drop(db);
    let _ = std::fs::remove_dir_all(directory);
}
