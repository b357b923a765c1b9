//! Tests of threads with random locks. Counters detect two holders of incompatible modes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::base::stop::StopAtEnd;
use crate::lock::InsertCheck;

const THREADS: u16 = 4;
const SEED: u64 = 20_261_107;

fn rounds(n: u32) -> u32 {
    if cfg!(miri) { n / 500 + 2 } else { n }
}

/// Counter of the current holders: a writer adds 1000, a holder of U adds 50, and a reader adds 1.
#[derive(Default)]
struct Inside(AtomicI64);

impl Inside {
    const READ: i64 = 1;
    const ANNOUNCED: i64 = 50;
    const WRITE: i64 = 1000;

    fn enter(&self, weight: i64) {
        let sum = self.0.fetch_add(weight, Ordering::Relaxed) + weight;
        if weight >= Self::WRITE {
            assert_eq!(sum, weight, "a writer is not alone");
        }
        assert!(sum <= Self::WRITE, "another owner is inside beside a writer");
        assert!(sum % Self::WRITE < 2 * Self::ANNOUNCED, "two have announced a write");
    }

    fn leave(&self, weight: i64) {
        self.0.fetch_sub(weight, Ordering::Relaxed);
    }
}

fn threads(locks: &Arc<LockTable>, body: impl Fn(&mut LockOwner, &mut Pcg64Mcg) + Sync) {
    thread::scope(|scope| {
        for slot in 0..THREADS {
            let body = &body;
            let mut owner = locks.attach(SlotId(slot));
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(SEED + u64::from(slot));
                body(&mut owner, &mut random);
            });
        }
    });
    assert_idle(locks);
}

/// Repeats `body` on several threads until some owner has waited for another: a busy system may run the threads one after
/// the other.
fn threads_that_meet(locks: &Arc<LockTable>, body: impl Fn(&mut LockOwner, &mut Pcg64Mcg) + Sync) {
    loop {
        threads(locks, &body);
        if cfg!(miri) || locks.stats().waits > 0 {
            return;
        }
    }
}

/// Occasionally lets other threads run while the caller holds its locks, so that they conflict even on one core.
fn linger(random: &mut Pcg64Mcg) {
    if random.random_bool(0.02) {
        thread::yield_now();
    }
}

#[test]
fn records_exclude_as_their_modes_say() {
    for (names, buckets) in [(4u8, 2), (40, 1024)] {
        let locks = on_threads(LockOptions { buckets, ..small() });
        let inside: Vec<Inside> = (0..names).map(|_| Inside::default()).collect();
        let age = AtomicU64::new(0);
        threads(&locks, |owner, random| {
            for _ in 0..rounds(20_000) {
                owner.begin(age.fetch_add(1, Ordering::Relaxed));
                let mut weights = vec![0i64; names.into()];
                for _ in 0..random.random_range(1..5) {
                    let name = random.random_range(0..names);
                    let (mode, weight) = [
                        (RecordMode::S, Inside::READ),
                        (RecordMode::S_GAP, Inside::READ),
                        (RecordMode::U, Inside::ANNOUNCED),
                        (RecordMode::X, Inside::WRITE),
                    ][random.random_range(0..4)];
                    let mut got = owner.try_acquire(TABLE, key(name), mode, at(name)).map_err(|_| LockRefusal::Closed);
                    if got.is_err() && random.random_bool(0.8) {
                        got = owner.acquire_wait(TABLE, key(name), mode, at(name));
                        if got.is_err() {
                            break;
                        }
                    }
                    let had = &mut weights[usize::from(name)];
                    if got.is_ok() && weight > *had {
                        inside[usize::from(name)].leave(*had);
                        inside[usize::from(name)].enter(weight);
                        *had = weight;
                    }
                    if got == Ok(Acquired::New) && random.random_bool(0.1) {
                        inside[usize::from(name)].leave(std::mem::take(had));
                        assert!(owner.release_one(TABLE, key(name)));
                    }
                }
                linger(random);
                for (name, weight) in weights.into_iter().enumerate() {
                    inside[name].leave(weight);
                }
                owner.release_all();
            }
        });
        let stats = locks.stats();
        assert!(cfg!(miri) || names > 10 || (stats.waits > 0 && stats.deadlocks > 0), "nothing happened: {stats:?}");
    }
}

#[test]
fn tables_exclude_as_their_modes_say() {
    // Readers and writers of records (IS, IX) run against readers and writers of the whole table.
    let locks = on_threads(small());
    let (readers, writers) = (AtomicI64::new(0), AtomicI64::new(0));
    let (all_readers, all_writers) = (AtomicI64::new(0), AtomicI64::new(0));
    let age = AtomicU64::new(0);
    threads_that_meet(&locks, |owner, random| {
        for _ in 0..rounds(100_000) {
            owner.begin(age.fetch_add(1, Ordering::Relaxed));
            let mode = match random.random_range(0..40) {
                0 => TableMode::S,
                1 => TableMode::X,
                n if n % 2 == 0 => TableMode::IS,
                _ => TableMode::IX,
            };
            let got = if mode == TableMode::S || mode == TableMode::X {
                owner.lock_table(2, mode)
            } else {
                owner.intent(2, mode)
            };
            if got.is_ok() {
                let count = match mode {
                    TableMode::IS => &readers,
                    TableMode::IX => &writers,
                    TableMode::S => &all_readers,
                    _ => &all_writers,
                };
                count.fetch_add(1, Ordering::SeqCst);
                let [r, w, s, x] = [&readers, &writers, &all_readers, &all_writers].map(|c| c.load(Ordering::SeqCst));
                match mode {
                    TableMode::IS => assert_eq!(x, 0),
                    TableMode::IX => assert_eq!((s, x), (0, 0)),
                    TableMode::S => assert_eq!((w, x), (0, 0)),
                    _ => assert_eq!((r, w, s, x), (0, 0, 0, 1)),
                }
                linger(random);
                count.fetch_sub(1, Ordering::SeqCst);
            }
            owner.release_all();
        }
    });
}

#[test]
fn no_insert_into_a_range_that_is_being_read() {
    // The version of a page represents its latch: readers lock the gap and then check the version; writers make the version
    // odd and then check the gap. A reader must never find a new key in the range that it has locked.
    let locks = on_threads(small());
    let (version, keys) = (AtomicU64::new(0), AtomicU64::new(0));
    let age = AtomicU64::new(0);
    threads_that_meet(&locks, |owner, random| {
        for _ in 0..rounds(50_000) {
            owner.begin(age.fetch_add(1, Ordering::Relaxed));
            if random.random_bool(0.5) {
                let before = version.load(Ordering::SeqCst);
                if before % 2 == 0 {
                    let got = match owner.try_acquire(TABLE, key(10), RecordMode::GAP, at(3)) {
                        Ok(_) => true,
                        Err(_) => owner.acquire_wait(TABLE, key(10), RecordMode::GAP, at(3)).is_ok(),
                    };
                    let now = version.load(Ordering::SeqCst);
                    if got && now % 2 == 0 {
                        let seen = keys.load(Ordering::SeqCst);
                        linger(random);
                        if now == before {
                            assert_eq!(keys.load(Ordering::SeqCst), seen, "a phantom");
                        }
                    }
                }
            } else {
                let place = at(random.random_range(0..8));
                loop {
                    let even = version.load(Ordering::SeqCst) & !1;
                    if version.compare_exchange(even, even + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                        thread::yield_now();
                        continue;
                    }
                    let check = owner.check_insert(TABLE, key(10), place);
                    if check != InsertCheck::Blocked && place >= at(3) {
                        keys.fetch_add(1, Ordering::SeqCst);
                    }
                    version.store(even + 2, Ordering::SeqCst);
                    if check != InsertCheck::Blocked || owner.wait_insert(TABLE, key(10), place).is_err() {
                        break;
                    }
                }
            }
            owner.release_all();
        }
    });
}

#[test]
fn a_writer_gets_in_among_readers_that_never_stop() {
    let locks = on_threads(small());
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let _told = StopAtEnd(&stop);
        for slot in 1..4 {
            let (locks, stop) = (&locks, &stop);
            scope.spawn(move || {
                let mut owner = locks.attach(SlotId(slot));
                while !stop.load(Ordering::Relaxed) {
                    owner.acquire_wait(TABLE, key(1), RecordMode::S, Prefix::MIN).unwrap();
                    thread::sleep(Duration::from_micros(200));
                    owner.release_all();
                }
            });
        }
        let mut owner = locks.attach(SlotId(0));
        for _ in 0..rounds(200) {
            owner.acquire_wait(TABLE, key(1), RecordMode::X, Prefix::MIN).unwrap();
            owner.release_all();
        }
    });
    assert_idle(&locks);
}

/// Synchronises two threads in every round.
#[derive(Default)]
struct Meeting(AtomicU64);

impl Meeting {
    fn wait(&self, round: u64) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut spins = 0;
        while self.0.load(Ordering::SeqCst) < 2 * round {
            spins += 1;
            if spins % 1000 == 0 {
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

#[test]
fn an_intention_and_a_table_lock_that_meet_exclude_each_other() {
    let locks = on_threads(small());
    let (meeting, inside) = (Meeting::default(), AtomicU64::new(0));
    let n = u64::from(rounds(100_000));
    let mut broken = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut owner = locks.attach(SlotId(0));
            for round in 1..=n {
                meeting.wait(2 * round - 1);
                owner.intent(2, TableMode::IX).unwrap();
                inside.store(round, Ordering::SeqCst);
                meeting.wait(2 * round);
                owner.release_all();
            }
        });
        let mut owner = locks.attach(SlotId(1));
        for round in 1..=n {
            meeting.wait(2 * round - 1);
            if let Attempt::Done(_) = owner.attempt_table(2, TableMode::X, IfBlocked::GiveUp) {
                for _ in 0..20 {
                    if inside.load(Ordering::SeqCst) >= round {
                        broken.push(round);
                    }
                    std::hint::spin_loop();
                }
            }
            owner.release_all();
            meeting.wait(2 * round);
        }
    });
    assert!(broken.is_empty(), "IX beside X in rounds {broken:?}");
    assert_idle(&locks);
}

#[test]
fn a_table_lock_that_meets_a_release_is_not_forgotten() {
    let locks = on_threads(small());
    let meeting = Meeting::default();
    let n = u64::from(rounds(30_000));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut owner = locks.attach(SlotId(1));
            for round in 1..=n {
                meeting.wait(2 * round - 1);
                owner.lock_table(2, TableMode::X).expect("forgotten");
                owner.release_all();
                meeting.wait(2 * round);
            }
        });
        let mut owner = locks.attach(SlotId(0));
        for round in 1..=n {
            owner.intent(2, TableMode::IX).unwrap();
            meeting.wait(2 * round - 1);
            owner.release_all();
            let mut naps = 0;
            while meeting.0.load(Ordering::SeqCst) < 4 * round - 1 && !other.is_finished() {
                naps += 1;
                if naps > 20_000 {
                    thread::sleep(Duration::from_millis(1));
                }
                // After minutes the other thread has not been woken: it is not merely late.
                if naps > 320_000 {
                    locks.close();
                }
                std::hint::spin_loop();
            }
            if other.is_finished() && round < n {
                return;
            }
            meeting.wait(2 * round);
        }
    });
    assert_idle(&locks);
}
