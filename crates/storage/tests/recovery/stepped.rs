//! Services stepped by the program: the test chooses the work between the steps of a service.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::common::{NUMBERS, ROWS, on, small};
use storage::disk::{Crash, SimDisk};
use storage::{Background, BlockReason, Database, Hook, Service, TxnError, WaitToken};

type Act = Box<dyn FnOnce(&Database) + Send>;

/// Hook for a single thread: a transaction that waits for the log first runs the prepared work, then steps the flusher.
#[derive(Default)]
struct Meanwhile {
    db: OnceLock<Database>,
    acts: Mutex<Vec<Act>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Hook for Meanwhile {
    fn block(&self, token: &WaitToken, reason: BlockReason) {
        assert_eq!(reason, BlockReason::LogFlush);
        let db = self.db.get().unwrap();
        while !token.try_consume() {
            let act = self.acts.lock().unwrap().pop();
            if let Some(act) = act {
                act(db);
            }
            db.step_service(Service::Flusher).unwrap();
        }
    }

    fn block_for(&self, token: &WaitToken, _: BlockReason, _: Duration) -> bool {
        token.try_consume()
    }

    fn wake(&self, token: &WaitToken) {
        token.set_woken();
    }
}

fn open(disk: &SimDisk) -> Arc<Meanwhile> {
    let hook = Arc::new(Meanwhile::default());
    let db = small()
        .background(Background::Stepped)
        .hook(hook.clone())
        .clock(Arc::new(AtomicU64::new(1)))
        .database_id(7)
        .open_on(on(disk))
        .unwrap();
    hook.db.set(db).unwrap();
    hook
}

fn put(db: &Database, key: u64) {
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &key, &key).unwrap();
    tx.commit_async().unwrap();
}

#[test]
fn commits_wait_for_the_flusher_s_step() {
    let disk = SimDisk::new(1);
    let hook = open(&disk);
    let db = hook.db.get().unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &[1], &vec![2]).unwrap();
    let lsn = tx.commit_async().unwrap();
    assert!(db.durable() < lsn);
    db.wait_durable(lsn).unwrap();
    let after = disk.crash(Crash::Nothing);
    let db = small().open_on(on(&after)).unwrap();
    assert_eq!(db.begin().unwrap().get(&ROWS, &[1]).unwrap(), Some(vec![2]));
}

/// A page that changes while it is written stays dirty. A checkpoint taken then names a log position at which a record
/// begins, so that a restart can read from there.
#[test]
fn a_page_that_changed_while_it_was_written_does_not_spoil_the_checkpoint() {
    let disk = SimDisk::new(2);
    let hook = open(&disk);
    let db = hook.db.get().unwrap();
    put(db, 1);
    hook.acts.lock().unwrap().push(Box::new(|db| put(db, 2)));
    db.checkpoint().unwrap();
    assert!(hook.acts.lock().unwrap().is_empty());
    let after = disk.crash(Crash::All);
    let db = small().open_on(on(&after)).unwrap_or_else(|e| panic!("{e}"));
    let tx = db.begin().unwrap();
    let rows: Vec<_> = tx.range(&NUMBERS, ..).unwrap().collect::<Result<_, TxnError>>().unwrap();
    assert_eq!(rows, [(1, 1), (2, 2)]);
}
