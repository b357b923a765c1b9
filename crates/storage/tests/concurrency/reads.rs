//! A missing page blocks only the fiber that needs it: two transactions of one thread, run as fibers would run them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use storage::disk::{Disk, DiskFile, Layer, LayeredDisk, MemDisk};
use storage::{BlockReason, Database, Hook, Isolation, Options, Table, ThreadHook, TxnError, WaitToken};

/// A disk in memory with a [`Gate`] for the reads of pages.
#[derive(Clone, Debug, Default)]
struct Door {
    disk: MemDisk,
    gate: Arc<Gate>,
}

impl Door {
    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(LayeredDisk::new(self.disk.clone(), "pages.", Arc::clone(&self.gate)))
    }
}

/// Blocks reads while it is shut.
#[derive(Debug, Default)]
struct Gate {
    is_shut: AtomicBool,
    fails: AtomicBool,
    /// Number of reads that have begun.
    begun: AtomicU64,
}

impl Layer for Gate {
    fn read_at(&self, file: &dyn DiskFile, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let begun = Instant::now();
        while self.is_shut.load(Ordering::Acquire) {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        if self.fails.load(Ordering::Acquire) {
            return Err(io::Error::other("injected"));
        }
        file.read_at(buf, off)
    }
}

type Mate = Box<dyn FnOnce() + Send>;

/// Runs another fiber on the thread of the blocked one.
#[derive(Default)]
struct Mates {
    mates: Mutex<VecDeque<Mate>>,
    threads: ThreadHook,
}

impl std::fmt::Debug for Mates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mates").finish_non_exhaustive()
    }
}

impl Mates {
    fn next(&self) -> Option<Mate> {
        self.mates.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Hook for Mates {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        if reason == BlockReason::PageRead
            && let Some(mate) = self.next()
        {
            mate();
        }
        self.threads.block(token, reason);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.threads.block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
    }
}

const ROWS: Table<u64, Vec<u8>> = Table::new("rows");

/// Returns a disk with a thousand rows on about seventy pages.
fn loaded() -> Result<Door, Box<dyn std::error::Error>> {
    let door = Door::default();
    let loading = Options::new().open_on(door.disk())?;
    loading.transact(|tx| {
        (0..1000u64).try_for_each(|key| tx.insert(&ROWS, &key, &vec![key as u8; 500]))?;
        Ok::<_, TxnError>(())
    })?;
    loading.close()?;
    Ok(door)
}

#[test]
fn while_one_transaction_waits_for_a_page_another_of_its_thread_goes_on() {
    let door = loaded().unwrap();
    let hook = Arc::new(Mates::default());
    let db: Arc<Database> = Arc::new(Options::new().hook(hook.clone()).open_on(door.disk()).unwrap());
    let get = |db: &Database, key: u64| -> Result<u8, TxnError> {
        let tx = db.begin_at(Isolation::Serializable)?;
        let row = tx.get(&ROWS, &key)?;
        tx.commit()?;
        Ok(row.unwrap()[0])
    };
    assert_eq!(get(&db, 999).unwrap(), 999u64 as u8);

    door.gate.is_shut.store(true, Ordering::Release);
    let went_on = Arc::new(AtomicBool::new(false));
    let (mate, opens, went) = (db.clone(), door.clone(), went_on.clone());
    hook.mates.lock().unwrap().push_back(Box::new(move || {
        assert_eq!(get(&mate, 999).unwrap(), 999u64 as u8);
        went.store(true, Ordering::Release);
        opens.gate.is_shut.store(false, Ordering::Release);
    }));
    assert_eq!(get(&db, 0).unwrap(), 0);
    assert!(went_on.load(Ordering::Acquire));

    // A read that the disk refuses is an error of the transaction that needs the page; the next transaction tries
    // again.
    door.gate.fails.store(true, Ordering::Release);
    let error = get(&db, 500).unwrap_err();
    assert!(error.to_string().contains("read at byte"), "{error}");
    door.gate.fails.store(false, Ordering::Release);
    assert_eq!(get(&db, 500).unwrap(), 500u64 as u8);
    hook.mates.lock().unwrap().clear();
    Arc::into_inner(db).unwrap().close().unwrap();
}

#[test]
fn rows_that_a_thread_asks_for_in_advance_are_read_at_the_same_time() {
    let door = loaded().unwrap();
    let db = Options::new().open_on(door.disk()).unwrap();
    let keys: Vec<u64> = (0..8).map(|i| 50 + 100 * i).collect();
    let tx = db.begin_at(Isolation::ReadCommitted).unwrap();
    assert!(tx.get(&ROWS, &999).unwrap().is_some(), "the inner pages are in memory");
    let before = door.gate.begun.load(Ordering::Acquire);
    door.gate.is_shut.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while door.gate.begun.load(Ordering::Acquire) < before + 8 && begun.elapsed() < Duration::from_secs(9) {
                std::thread::yield_now();
            }
            door.gate.is_shut.store(false, Ordering::Release);
        });
        tx.prefetch(&ROWS, &keys).unwrap();
    });
    assert_eq!(door.gate.begun.load(Ordering::Acquire) - before, 8, "all are under way before one has come");
    door.gate.fails.store(true, Ordering::Release);
    for key in &keys {
        assert_eq!(tx.get(&ROWS, key).unwrap().unwrap()[0], *key as u8, "row {key} needs no read any more");
    }
    // An announced row that cannot be read is an error of the statement that needs it.
    tx.prefetch(&ROWS, &[20, 320]).unwrap();
    assert!(tx.get(&ROWS, &20).is_err());
    door.gate.fails.store(false, Ordering::Release);
    drop(tx);
    assert_eq!(db.transact(|tx| tx.get(&ROWS, &320)).unwrap().unwrap()[0], 320u64 as u8);
    db.close().unwrap();
}
