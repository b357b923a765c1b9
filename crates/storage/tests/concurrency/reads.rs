//! A missing page blocks only the fiber that needs it: two transactions of one thread, run as fibers would run them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use storage::disk::{Disk, DiskFile, DiskLock, LockError, MemDisk, OpenMode};
use storage::{BlockReason, Database, Hook, Isolation, Options, Table, ThreadHook, TxnError, WaitToken};

/// A disk that blocks reads of pages while its gate is closed.
#[derive(Clone, Debug)]
struct Door {
    disk: MemDisk,
    is_shut: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
    /// Number of reads of pages that have begun.
    begun: Arc<AtomicU64>,
}

impl Door {
    fn new() -> Door {
        Door { disk: MemDisk::new(), is_shut: Arc::default(), fails: Arc::default(), begun: Arc::default() }
    }
}

#[derive(Debug)]
struct Behind {
    file: Arc<dyn DiskFile>,
    door: Door,
}

impl Disk for Door {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, mode)?;
        Ok(if name.starts_with("pages.") { Arc::new(Behind { file, door: self.clone() }) } else { file })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        self.disk.lock()
    }

    fn show(&self, name: &str) -> String {
        self.disk.show(name)
    }
}

impl DiskFile for Behind {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.door.begun.fetch_add(1, Ordering::AcqRel);
        let begun = Instant::now();
        while self.door.is_shut.load(Ordering::Acquire) {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        if self.door.fails.load(Ordering::Acquire) {
            return Err(io::Error::other("injected"));
        }
        self.file.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.file.write_at(buf, off)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.file.allocate(off, len)
    }

    fn name(&self) -> &str {
        self.file.name()
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
    let door = Door::new();
    let loading = Options::new().open_on(Arc::new(door.clone()))?;
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
    let db: Arc<Database> = Arc::new(Options::new().hook(hook.clone()).open_on(Arc::new(door.clone())).unwrap());
    let get = |db: &Database, key: u64| -> Result<u8, TxnError> {
        let tx = db.begin_at(Isolation::Serializable)?;
        let row = tx.get(&ROWS, &key)?;
        tx.commit()?;
        Ok(row.unwrap()[0])
    };
    assert_eq!(get(&db, 999).unwrap(), 999u64 as u8);

    door.is_shut.store(true, Ordering::Release);
    let went_on = Arc::new(AtomicBool::new(false));
    let (mate, opens, went) = (db.clone(), door.clone(), went_on.clone());
    hook.mates.lock().unwrap().push_back(Box::new(move || {
        assert_eq!(get(&mate, 999).unwrap(), 999u64 as u8);
        went.store(true, Ordering::Release);
        opens.is_shut.store(false, Ordering::Release);
    }));
    assert_eq!(get(&db, 0).unwrap(), 0);
    assert!(went_on.load(Ordering::Acquire));

    // A read that the disk refuses is an error of the transaction that needs the page; the next transaction tries
    // again.
    door.fails.store(true, Ordering::Release);
    let error = get(&db, 500).unwrap_err();
    assert!(error.to_string().contains("read at byte"), "{error}");
    door.fails.store(false, Ordering::Release);
    assert_eq!(get(&db, 500).unwrap(), 500u64 as u8);
    hook.mates.lock().unwrap().clear();
    Arc::into_inner(db).unwrap().close().unwrap();
}

#[test]
fn rows_that_a_thread_asks_for_in_advance_are_read_at_the_same_time() {
    let door = loaded().unwrap();
    let db = Options::new().open_on(Arc::new(door.clone())).unwrap();
    let keys: Vec<u64> = (0..8).map(|i| 50 + 100 * i).collect();
    let tx = db.begin_at(Isolation::ReadCommitted).unwrap();
    assert!(tx.get(&ROWS, &999).unwrap().is_some(), "the inner pages are in memory");
    let before = door.begun.load(Ordering::Acquire);
    door.is_shut.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while door.begun.load(Ordering::Acquire) < before + 8 && begun.elapsed() < Duration::from_secs(9) {
                std::thread::yield_now();
            }
            door.is_shut.store(false, Ordering::Release);
        });
        tx.prefetch(&ROWS, &keys).unwrap();
    });
    assert_eq!(door.begun.load(Ordering::Acquire) - before, 8, "all are under way before one has come");
    door.fails.store(true, Ordering::Release);
    for key in &keys {
        assert_eq!(tx.get(&ROWS, key).unwrap().unwrap()[0], *key as u8, "row {key} needs no read any more");
    }
    // An announced row that cannot be read is an error of the statement that needs it.
    tx.prefetch(&ROWS, &[20, 320]).unwrap();
    assert!(tx.get(&ROWS, &20).is_err());
    door.fails.store(false, Ordering::Release);
    drop(tx);
    assert_eq!(db.transact(|tx| tx.get(&ROWS, &320)).unwrap().unwrap()[0], 320u64 as u8);
    db.close().unwrap();
}
