//! A counter that survives a crash of its process.
//!
//! The program starts itself as a child process. The child increments the counter and then exits in the middle of a
//! transaction, without closing the database. The parent opens the database again: it has every acknowledged increment,
//! and nothing else.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use storage::{Database, Options, RecoveryPass, Table, TxnError};

const COUNTERS: Table<String, u64> = Table::new("counters");

/// Adds one to the counter. The new value is on disk when this returns.
fn count(db: &Database, name: &str) -> Result<u64, TxnError> {
    db.transact(|tx| {
        let next = tx.get_for_update(&COUNTERS, name)?.unwrap_or(0) + 1;
        tx.put(&COUNTERS, name, &next)?;
        Ok(next)
    })
}

fn child(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let db = Database::open(directory, Options::new())?;
    for _ in 0..10 {
        count(&db, "visits")?;
    }
    let mut tx = db.begin()?;
    tx.put(&COUNTERS, "visits", &1_000_000)?;
    // Gives the log time to reach the disk, so that the restart has changes to undo.
    std::thread::sleep(std::time::Duration::from_millis(50));
    // No commit, no destructor: a crash for the database.
    std::process::exit(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(directory) = std::env::args_os().nth(1) {
        return child(Path::new(&directory));
    }
    let directory = std::env::temp_dir().join(format!("lockstep-counter-{}", std::process::id()));
    let status = Command::new(std::env::current_exe()?).arg(&directory).status()?;
    assert!(status.success(), "the child failed: {status}");

    // Recovery reports its progress here, and could be cancelled.
    let options = Options::new().on_recovery(|r| {
        if r.pass == RecoveryPass::Done {
            println!("recovered: {} log records read, {} open transactions rolled back", r.records, r.losers);
        }
        ControlFlow::Continue(())
    });
    let db = Database::open(&directory, options)?;
    let visits = count(&db, "visits")?;
    println!("visits: {visits}");
    assert_eq!(visits, 11);
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
