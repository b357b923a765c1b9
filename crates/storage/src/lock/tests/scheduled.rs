//! Tests of the lock table under random schedules: `cargo xtask shuttle`. A lost wake leaves all tasks blocked, which
//! shuttle reports.

use std::cell::Cell;

use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use shuttle::thread;

use super::*;
use crate::db::shuttle_tests::{TaskHook, schedules};

fn locks() -> Arc<LockTable> {
    LockTable::new(LockOptions { slots: 4, dense_tables: 2, ..small() }, Arc::new(TaskHook::default())).unwrap()
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

/// Random locks in all modes, including gaps. Checks that owners which hold a lock together are compatible, that every owner
/// gets its lock, and that no lock is left at the end.
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
                // The victim of a deadlock keeps its age, so that it is not the victim repeatedly.
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

/// Checks a ring of owners, each of which requests the lock that the next owner holds. There must never be two victims. If
/// all owners have waited, there must be exactly one victim, the youngest owner.
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

/// Readers of a gap and inserters into it, which wait for each other and for the key that splits the gap.
#[test]
fn shuttle_inserts_wait_for_readers_of_the_gap() {
    schedules(|| {
        let locks = locks();
        tasks(&locks, 3, move |slot, owner| {
            for round in 0..2 {
                owner.begin(u64::from(slot) + 10 * round);
                let done = if slot == 0 {
                    // Like a real writer, the owner checks under the page's latch and waits without the latch.
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
