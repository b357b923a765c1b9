//! Tests with many owners as fibers on one thread. One fiber runs at a time: the hook passes the turn to the next. A fiber
//! that blocked the thread permanently would stop all other fibers.

use std::collections::VecDeque;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::*;

/// Hook that runs one fiber at a time, in turn. If a fiber blocks, the next one runs.
#[derive(Debug, Default)]
struct Baton {
    state: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    running: Option<usize>,
    ready: VecDeque<usize>,
    /// For each fiber, the address of the token on which the fiber blocks; 0 if it is not blocked.
    blocked: Vec<usize>,
}

thread_local! {
    static FIBER: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

impl Baton {
    fn enter(&self, fiber: usize) {
        FIBER.set(fiber);
        self.wait_for_turn(self.state.lock(), fiber);
    }

    fn wait_for_turn(&self, mut turns: parking_lot::MutexGuard<'_, Turns>, fiber: usize) {
        while turns.running != Some(fiber) {
            self.changed.wait(&mut turns);
        }
    }

    fn pass(&self, turns: &mut Turns) {
        turns.running = turns.ready.pop_front();
        let stuck = turns.running.is_none() && turns.blocked.iter().any(|&token| token != 0);
        assert!(!stuck, "every fiber waits: a deadlock was not found");
        self.changed.notify_all();
    }

    /// Lets all other runnable fibers run first.
    fn pause(&self) {
        let mut turns = self.state.lock();
        turns.ready.push_back(FIBER.get());
        self.pass(&mut turns);
        self.wait_for_turn(turns, FIBER.get());
    }

    fn leave(&self) {
        self.pass(&mut self.state.lock());
    }
}

impl Hook for Baton {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        assert_eq!(reason, BlockReason::Lock);
        let fiber = FIBER.get();
        let mut turns = self.state.lock();
        if token.try_consume() {
            return;
        }
        turns.blocked[fiber] = std::ptr::from_ref(token).addr();
        self.pass(&mut turns);
        self.wait_for_turn(turns, fiber);
        assert!(token.try_consume(), "runs only when woken");
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, _: Duration) -> bool {
        self.block(token, reason);
        true
    }

    fn wake(&self, token: &WaitToken) {
        let mut turns = self.state.lock();
        token.set_woken();
        let address = std::ptr::from_ref(token).addr();
        if let Some(fiber) = turns.blocked.iter().position(|&token| token == address) {
            turns.blocked[fiber] = 0;
            turns.ready.push_back(fiber);
        }
    }
}

/// Runs `body` in `n` fibers, started in order.
fn run(n: usize, body: impl Fn(&Baton, usize, &mut LockOwner) + Sync) -> Arc<LockTable> {
    let baton = Arc::new(Baton::default());
    *baton.state.lock() = Turns { running: Some(0), ready: (1..n).collect(), blocked: vec![0; n] };
    let locks = LockTable::new(LockOptions { slots: n, ..small() }, baton.clone()).unwrap();
    thread::scope(|scope| {
        for fiber in 0..n {
            let (locks, baton, body) = (&locks, &baton, &body);
            scope.spawn(move || {
                baton.enter(fiber);
                {
                    let mut owner = locks.attach(SlotId(fiber as u16));
                    owner.begin(fiber as u64);
                    body(baton, fiber, &mut owner);
                }
                baton.leave();
            });
        }
    });
    assert_idle(&locks);
    locks
}

#[test]
fn a_ring_of_fibers_loses_one() {
    let n = 12;
    let ended = Mutex::new(Vec::new());
    let locks = run(n, |baton, fiber, owner| {
        owner.take(key(fiber as u8), RecordMode::X);
        baton.pause();
        let got = owner.acquire_wait(TABLE, key(((fiber + 1) % n) as u8), RecordMode::X, Prefix::MIN);
        ended.lock().push((fiber, got.is_err()));
        owner.release_all();
    });
    let lost: Vec<usize> = ended.lock().iter().filter(|(_, lost)| *lost).map(|&(fiber, _)| fiber).collect();
    assert_eq!(lost, [n - 1], "the youngest");
    assert_eq!(locks.stats().deadlocks, 1);
}

#[test]
fn fibers_take_a_hot_key_in_order() {
    let order = Mutex::new(Vec::new());
    let n = 16;
    run(n, |baton, fiber, owner| {
        for _ in 0..20 {
            owner.acquire_wait(TABLE, key(1), RecordMode::X, Prefix::MIN).unwrap();
            order.lock().push(fiber);
            baton.pause();
            owner.release_all();
        }
    });
    // The first owner releases after all others have queued, and queues again behind them.
    let expected: Vec<usize> = (0..20).flat_map(|_| 0..n).collect();
    assert_eq!(*order.lock(), expected);
}

#[test]
fn random_transactions_of_fibers_all_end() {
    use rand::{Rng, SeedableRng};
    for seed in 0..if cfg!(miri) { 2 } else { 200 } {
        let committed = Mutex::new(0);
        run(8, |_, fiber, owner| {
            let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed * 100 + fiber as u64);
            let mut done = 0;
            while done < 10 {
                let result = (|| {
                    for _ in 0..random.random_range(1..5) {
                        let name = key(random.random_range(0..6));
                        match random.random_range(0..8) {
                            0 => owner.lock_table(random.random_range(1..3), TableMode::S)?,
                            1 => owner.lock_table(random.random_range(1..3), TableMode::X)?,
                            2 => owner.wait_insert(TABLE, name, at(5))?,
                            3 => _ = owner.acquire_wait(TABLE, name, RecordMode::X, Prefix::MIN)?,
                            4 => _ = owner.acquire_wait(TABLE, name, RecordMode::GAP, at(4))?,
                            5 => _ = owner.acquire_wait(TABLE, name, RecordMode::U, Prefix::MIN)?,
                            _ => {
                                owner.intent(random.random_range(1..3), TableMode::IX)?;
                                owner.acquire_wait(TABLE, name, RecordMode::S, Prefix::MIN)?;
                            }
                        }
                    }
                    Ok::<_, LockRefusal>(())
                })();
                owner.release_all();
                match result {
                    Ok(()) => done += 1,
                    Err(LockRefusal::Deadlock { .. }) => {}
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            }
            *committed.lock() += done;
        });
        assert_eq!(*committed.lock(), 80, "seed {seed}");
    }
}
