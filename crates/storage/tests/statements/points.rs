//! Points: the operations that reach them, the absence of latches there, and the validation of reads across a point.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::disk::{Disk, MemDisk};
use storage::{
    BlockReason, Database, Durability, Hook, LatchKind, Operation, OperationKind, Options, Table, ThreadHook,
    WaitToken, points,
};

const ROWS: Table<u64, [u8; 200]> = Table::new("rows");

type Work = Box<dyn FnMut(u32)>;

thread_local! {
    /// The function that this thread calls at a point; `None` on threads that are not under test.
    static AT_POINT: RefCell<Option<Work>> = const { RefCell::new(None) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static ENTERED: RefCell<Vec<Operation>> = const { RefCell::new(Vec::new()) };
}

/// Calls the thread's function at each point, as if another fiber ran. (Debug builds assert at each point that the
/// caller holds no latch; otherwise the function could wait forever for a latch.)
#[derive(Debug, Default)]
struct Interrupting {
    threads: ThreadHook,
    points: AtomicU64,
}

impl Hook for Interrupting {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn point(&self, site: u32) {
        // Statements have separate points, outside every descent.
        if storage::points()[site as usize].name().starts_with("btree/") {
            self.points.fetch_add(1, Ordering::Relaxed);
        }
        if BUSY.replace(true) {
            return;
        }
        AT_POINT.with_borrow_mut(|work| {
            if let Some(work) = work {
                work(site);
            }
        });
        BUSY.set(false);
    }

    fn enter(&self, operation: Operation) {
        if !BUSY.get() {
            ENTERED.with_borrow_mut(|all| all.push(operation));
        }
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        self.threads.block(token, reason);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.threads.block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
    }
}

fn open(latches: LatchKind) -> (Arc<Database>, Arc<Interrupting>) {
    let hook = Arc::new(Interrupting::default());
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let options = Options::new()
        .latches(latches)
        .durability(Durability::Async)
        .buffer_pool(64 << 20)
        .hook(Arc::clone(&hook) as Arc<dyn Hook>);
    (Arc::new(options.open_on(disk).unwrap()), hook)
}

fn row(n: u64) -> [u8; 200] {
    [n as u8; 200]
}

fn fill(db: &Database, keys: impl Iterator<Item = u64>) {
    let keys: Vec<_> = keys.collect();
    for chunk in keys.chunks(500) {
        db.transact(|tx| chunk.iter().try_for_each(|k| tx.put(&ROWS, k, &row(*k)))).unwrap();
    }
}

fn at_points<T>(work: impl FnMut(u32) + 'static, f: impl FnOnce() -> T) -> T {
    AT_POINT.set(Some(Box::new(work)));
    let result = f();
    AT_POINT.set(None);
    result
}

#[test]
fn statements_announce_themselves_and_meet_points() {
    let (db, hook) = open(LatchKind::Optimistic);
    fill(&db, (0..4000).map(|k| 2 * k));
    let met = std::rc::Rc::new(RefCell::new(BTreeSet::new()));
    let seen = std::rc::Rc::clone(&met);
    ENTERED.take();
    at_points(
        move |site| {
            seen.borrow_mut().insert(points()[site as usize].name());
        },
        || {
            let mut tx = db.begin().unwrap();
            tx.prefetch(&ROWS, &[2, 4000, 6000]).unwrap();
            assert_eq!(tx.get(&ROWS, &4000).unwrap(), Some(row(4000)));
            tx.update(&ROWS, &4002, &row(1)).unwrap();
            tx.insert(&ROWS, &4003, &row(2)).unwrap();
            tx.delete(&ROWS, &4004).unwrap();
            assert_eq!(tx.range(&ROWS, 10..20).unwrap().count(), 5);
            tx.commit().unwrap();
        },
    );
    use OperationKind::*;
    let kinds: Vec<_> = ENTERED.take().iter().map(|o| o.kind).collect();
    assert_eq!(kinds, [Begin, Prefetch, Fetch, Update, Insert, Delete, Scan, Commit]);
    let met = met.borrow();
    for name in ["btree/leaf-head", "btree/leaf-segment", "btree/row", "btree/group-leaf", "btree/group-row"] {
        assert!(met.contains(name), "{name} was not met: {met:?}");
    }
    assert!(hook.points.load(Ordering::Relaxed) > 10);
    let index = db.indexes().into_iter().find(|(_, table, name)| table == "rows" && name == "rows").unwrap().0;
    assert!(index > 0);
}

#[test]
fn under_latch_coupling_no_point_is_met_inside_a_descent() {
    let (db, hook) = open(LatchKind::Plain);
    fill(&db, 0..3000);
    let before = hook.points.load(Ordering::Relaxed);
    let tx = db.begin().unwrap();
    for k in 0..100 {
        assert_eq!(tx.get(&ROWS, &(k * 7)).unwrap(), Some(row(k * 7)));
    }
    tx.commit().unwrap();
    assert_eq!(hook.points.load(Ordering::Relaxed), before);
}

/// At every point of a statement another transaction changes the tree: splits the leaf to which the statement descends,
/// deletes rows, updates rows. Each statement must have the same result as without these changes.
#[test]
fn what_is_read_across_a_point_is_validated() {
    let (db, _) = open(LatchKind::Optimistic);
    const STEP: u64 = 1000;
    fill(&db, (0..3000).map(|k| k * STEP));
    let other = Arc::clone(&db);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut round = 0u64;
    let work = move |_| {
        // Fills the surrounding leaves with rows that the statements do not read; sometimes deletes some.
        round += 1;
        let base = (round / 40 % 3000) * STEP;
        other
            .transact(|tx| {
                for i in 0..12 {
                    let key = base + 1 + rng.u64(..400);
                    if i % 4 == 3 {
                        tx.delete(&ROWS, &key)?;
                    } else {
                        tx.put(&ROWS, &key, &row(key))?;
                    }
                }
                Ok::<_, storage::TxnError>(())
            })
            .unwrap();
    };
    at_points(work, || {
        for k in 0..1500u64 {
            let key = k * STEP;
            let mut tx = db.begin_at(storage::Isolation::RepeatableRead).unwrap();
            assert_eq!(tx.get(&ROWS, &key).unwrap(), Some(row(key)), "get {key}");
            if k % 3 == 0 {
                assert!(tx.update(&ROWS, &key, &row(key + 1)).unwrap(), "update {key}");
                assert_eq!(tx.get(&ROWS, &key).unwrap(), Some(row(key + 1)));
                assert!(tx.update(&ROWS, &key, &row(key)).unwrap());
            }
            if k % 5 == 0 {
                tx.insert(&ROWS, &(key + 500), &row(9)).unwrap();
            }
            if k % 7 == 0 {
                assert!(tx.delete(&ROWS, &key).unwrap(), "delete {key}");
                assert_eq!(tx.get(&ROWS, &key).unwrap(), None);
                tx.insert(&ROWS, &key, &row(key)).unwrap();
            }
            tx.commit().unwrap();
        }
    });
    let tx = db.begin().unwrap();
    let all: Vec<(u64, [u8; 200])> = tx.range(&ROWS, ..).unwrap().collect::<Result<_, _>>().unwrap();
    assert!(all.windows(2).all(|w| w[0].0 < w[1].0), "keys ascend");
    assert_eq!(all.iter().filter(|(k, _)| k % STEP == 0).count(), 3000);
    assert_eq!(all.iter().filter(|(k, v)| k % STEP == 500 && *v == row(9)).count(), 300);
    assert!(all.iter().filter(|(k, _)| k % STEP != 500).all(|(k, v)| *v == row(*k)), "each row is its own");
    tx.commit().unwrap();
    assert!(all.len() > 6000, "the others have inserted: {}", all.len());
}

/// A cached position in a leaf that still covers the key needs no descent.
#[test]
fn a_put_descends_once_and_not_at_all_where_its_place_is_remembered() {
    let (db, _hook) = open(LatchKind::Optimistic);
    fill(&db, (0..4000).map(|k| 2 * k));
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &0, &row(9)).unwrap();
    let descents = std::rc::Rc::new(Cell::new(0));
    let counted = std::rc::Rc::clone(&descents);
    let count = move |site: u32| {
        counted.set(counted.get() + u32::from(storage::points()[site as usize].name() == "btree/before-root"));
    };
    at_points(count, || {
        for (key, what, needed) in [(3001, "a new key", 1), (3000, "an old one", 1), (3001, "the new one again", 0)] {
            descents.set(0);
            tx.put(&ROWS, &key, &row(1)).unwrap();
            assert_eq!(descents.get(), needed, "{what}");
        }
        tx.delete(&ROWS, &3001).unwrap();
        descents.set(0);
        tx.put(&ROWS, &3001, &row(2)).unwrap();
        assert_eq!(descents.get(), 0, "one that the transaction has deleted");
    });
    tx.commit().unwrap();
    assert_eq!(db.transact(|tx| tx.get(&ROWS, &3001)).unwrap(), Some(row(2)));
}
