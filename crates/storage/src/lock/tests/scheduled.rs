//! The lock table under random schedules: `cargo xtask shuttle`. A wake that is lost leaves all tasks blocked, which
//! shuttle reports.

use std::cell::Cell;

use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use shuttle::thread;

use super::*;
use crate::db::shuttle_tests::{TaskHook, schedules};

fn locks() -> Arc<LockTable> {
    LockTable::new(LockOptions { slots: 4, tables: 3, ..small() }, Arc::new(TaskHook::default())).unwrap()
}

fn below(n: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..n)
}

fn tasks(locks: &Arc<LockTable>, n: u16, work: impl Fn(u16, &mut LockOwner) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let tasks: Vec<_> = (0..n)
        .map(|slot| {
            let (work, mut owner) = (work.clone(), locks.attach(SlotId(slot)));
            thread::spawn(move || work(slot, &mut owner))
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_idle(locks);
}

/// Locks at random in all modes, gaps among them: owners that hold a lock together are compatible, every owner gets its
/// lock, and at the end nothing is left.
#[test]
fn shuttle_locks_exclude_and_nobody_is_forgotten() {
    const NAMES: usize = 3;
    schedules(|| {
        let locks = locks();
        let inside: Arc<[AtomicI64; NAMES]> = Arc::default();
        let ages = AtomicU64::new(0);
        tasks(&locks, 3, move |_, owner| {
            for _ in 0..2 {
                let age = ages.fetch_add(1, Ordering::SeqCst);
                // A victim keeps its age, so that it does not become the victim again and again.
                while !transaction(owner, age, &inside) {}
            }
        });
    });

    fn transaction(owner: &mut LockOwner, age: u64, inside: &[AtomicI64; NAMES]) -> bool {
        owner.begin(age);
        let weights: [Cell<i64>; NAMES] = Default::default();
        let mut whole = true;
        for _ in 0..3 {
            let name = below(NAMES);
            let (mode, weight) =
                [(RecordMode::S, 1), (RecordMode::S_GAP, 1), (RecordMode::U, 50), (RecordMode::X, 1000)][below(4)];
            match owner.acquire_wait(TABLE, key(name as u8), mode, Prefix::MIN) {
                Ok(_) => {}
                Err(LockRefusal::Deadlock { .. }) => {
                    whole = false;
                    break;
                }
                Err(other) => panic!("{other}"),
            }
            let more = (weight - weights[name].get()).max(0);
            let sum = inside[name].fetch_add(more, Ordering::SeqCst) + more;
            weights[name].set(weights[name].get() + more);
            let mine = weights[name].get();
            assert!(mine < 1000 || sum == mine, "a writer is not alone: {sum}");
            assert!(mine >= 1000 || sum < 100, "another owner is inside beside a writer, or two have announced: {sum}");
        }
        for (inside, weight) in inside.iter().zip(&weights) {
            inside.fetch_sub(weight.get(), Ordering::SeqCst);
        }
        owner.release_all();
        whole
    }
}

/// A ring of owners, each of which holds what the next wants: never two victims, and if all have waited exactly one,
/// the youngest of them.
#[test]
fn shuttle_a_ring_has_one_victim() {
    schedules(|| {
        let n = 2 + below(2) as u16;
        let locks = locks();
        let victims = Arc::new(AtomicU64::new(0));
        let held = Arc::new(shuttle::sync::Barrier::new(n.into()));
        let counted = victims.clone();
        tasks(&locks, n, move |slot, owner| {
            owner.begin(slot.into());
            assert!(owner.acquire_wait(TABLE, key(slot as u8), RecordMode::X, Prefix::MIN).is_ok());
            held.wait();
            let wanted = key(((slot + 1) % n) as u8);
            match owner.acquire_wait(TABLE, wanted, RecordMode::X, Prefix::MIN) {
                Ok(_) => {}
                Err(LockRefusal::Deadlock { .. }) => {
                    assert_eq!(slot, n - 1, "the victim is not the youngest");
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Err(other) => panic!("{other}"),
            }
            owner.release_all();
        });
        assert_eq!(victims.load(Ordering::SeqCst), 1);
    });
}

/// Readers of a gap and inserters into it, which wait for each other and for the key that splits it.
#[test]
fn shuttle_inserts_wait_for_readers_of_the_gap() {
    schedules(|| {
        let locks = locks();
        tasks(&locks, 3, move |slot, owner| {
            for round in 0..2 {
                owner.begin(u64::from(slot) + 10 * round);
                let done = if slot == 0 {
                    // As a writer does: it asks under the page's latch, and waits without.
                    loop {
                        if owner.check_insert(TABLE, key(9), at(5)) == InsertCheck::Granted {
                            break Ok(());
                        }
                        if let Err(error) = owner.wait_insert(TABLE, key(9), at(5)) {
                            break Err(error);
                        }
                    }
                } else {
                    owner.acquire_wait(TABLE, key(9), RecordMode::S_GAP, Prefix::MIN).map(|_| thread::yield_now())
                };
                assert!(done.is_ok(), "there is no ring of waits here");
                owner.release_all();
            }
        });
    });
}

/// A scan that publishes its range against a writer of a row and an inserter: what the scan has validated does not change
/// before it ends.
#[test]
fn shuttle_a_range_is_seen_or_sees() {
    use std::ops::Bound;

    use crate::base::ids::IndexId;
    use crate::lock::mode::KeyMode;
    use crate::lock::{KeyAt, Opened, Span};

    const INDEX: IndexId = IndexId(1);

    /// Two keys, of which the second may not be there yet; `version` is odd while the leaf is latched.
    #[derive(Default)]
    struct Leaf {
        version: AtomicU64,
        values: [AtomicU64; 2],
    }

    impl Leaf {
        fn latch(&self) {
            loop {
                let version = self.version.load(Ordering::SeqCst);
                let latched = version % 2 == 0
                    && self.version.compare_exchange(version, version + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
                if latched {
                    return;
                }
                thread::yield_now();
            }
        }

        fn release(&self) {
            self.version.fetch_add(1, Ordering::SeqCst);
        }

        fn read(&self) -> [u64; 2] {
            [0, 1].map(|k: usize| self.values[k].load(Ordering::SeqCst))
        }
    }

    fn at(k: &[u8; 1]) -> KeyAt<'_> {
        KeyAt { table: TABLE, index: INDEX, key: k, name: key(k[0]) }
    }

    fn scan(owner: &mut LockOwner, leaf: &Leaf) -> bool {
        let version = leaf.version.load(Ordering::SeqCst);
        if version % 2 == 1 {
            return false;
        }
        let locks = Arc::clone(&owner.locks);
        let span = Span { low: &[0], high: Bound::Included(&[1]) };
        let Opened::Range(range) = locks.open_range(owner, (TABLE, INDEX), KeyMode::S, span) else { return false };
        let seen = leaf.read();
        // A key without a value is not in the leaf: then the gap below the end is asked for alone.
        let names = [(0, RecordMode::S_GAP, true), (1, RecordMode::S_GAP, seen[1] > 0), (2, RecordMode::GAP, true)];
        let free = names.iter().filter(|n| n.2).all(|n| range.admits(owner, &at(&[n.0]), n.1, Prefix::of(&[0])));
        if !free || leaf.version.load(Ordering::SeqCst) != version {
            return false;
        }
        range.keep(span);
        thread::yield_now();
        assert_eq!(leaf.read(), seen, "what was read has changed");
        true
    }

    fn write(owner: &mut LockOwner, leaf: &Leaf, k: u8) {
        while owner.try_acquire_at(at(&[k]), RecordMode::X, Prefix::MIN).is_err() {
            if owner.acquire_wait_at(&at(&[k]), RecordMode::X, Prefix::MIN).is_err() {
                return;
            }
        }
        loop {
            leaf.latch();
            let is_new = leaf.values[usize::from(k)].load(Ordering::SeqCst) == 0;
            if !is_new || owner.check_insert_at((TABLE, INDEX), key(k + 1), &[k], &[k]) == InsertCheck::Granted {
                leaf.values[usize::from(k)].fetch_add(1, Ordering::SeqCst);
                leaf.release();
                return;
            }
            // Unchanged: the version stays what it was.
            leaf.version.fetch_sub(1, Ordering::SeqCst);
            if owner.wait_insert_at(&at(&[k]), key(k + 1)).is_err() {
                return;
            }
        }
    }

    schedules(|| {
        let locks = locks();
        let leaf = Arc::new(Leaf::default());
        leaf.values[0].store(1, Ordering::SeqCst);
        tasks(&locks, 3, move |slot, owner| {
            for round in 0..2 {
                owner.begin(u64::from(slot) + 10 * round);
                assert!(owner.intent(TABLE, TableMode::IX).is_ok());
                match slot {
                    0 => {
                        scan(owner, &leaf);
                    }
                    1 => write(owner, &leaf, 0),
                    _ => write(owner, &leaf, 1),
                }
                owner.release_all();
            }
        });
    });
}
