//! Tests of the whole engine under random schedules: group commit with early lock release, and checkpoints with log
//! truncation. Run by `cargo xtask shuttle`; a failure prints the schedule that reproduces it.
//!
//! Each service is run by its own task. Power losses are simulated at random moments: the disk's content after the loss
//! is copied, and the copy is opened after all tasks have ended.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use super::database::Database;
use super::options::Options;
use super::table::Table;
use crate::base::config::{Background, Service};
use crate::base::error::TxnError;
use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::io::{Crash, SimDisk};

const COUNTERS: Table<u64, u64> = Table::new("counters");

/// A hook without timeouts, so that a lost wake-up leaves tasks blocked and shuttle reports a deadlock.
#[derive(Debug, Default)]
pub(crate) struct TaskHook {
    lock: shuttle::sync::Mutex<()>,
    woken: shuttle::sync::Condvar,
}

impl Hook for TaskHook {
    /// Returns the number of the task. All tasks run on one thread, so thread numbers would not distinguish them.
    fn task(&self) -> u64 {
        1 + usize::from(shuttle::current::me()) as u64
    }

    fn block(&self, token: &WaitToken, _: BlockReason) {
        let mut guard = self.lock.lock().unwrap();
        while !token.try_consume() {
            guard = self.woken.wait(guard).unwrap();
        }
    }

    fn block_for(&self, token: &WaitToken, _: BlockReason, _: Duration) -> bool {
        thread::yield_now();
        token.try_consume()
    }

    fn wake(&self, token: &WaitToken) {
        let guard = self.lock.lock().unwrap();
        token.set_woken();
        drop(guard);
        self.woken.notify_all();
    }
}

/// Runs `test` under random schedules. The environment variable `LOCKSTEP_SHUTTLE_ITERATIONS` sets their number; 100 by
/// default.
pub(crate) fn schedules(test: impl Fn() + Send + Sync + 'static) {
    let wanted = std::env::var("LOCKSTEP_SHUTTLE_ITERATIONS").ok().and_then(|n| n.parse().ok());
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(5_000_000);
    let scheduler = shuttle::scheduler::RandomScheduler::new(wanted.unwrap_or(100));
    shuttle::Runner::new(scheduler, config).run(test);
}

fn options(background: Background) -> Options {
    Options::new()
        .buffer_pool(1 << 20)
        .log_segment(64 << 10)
        .log_buffer(512 << 10)
        .checkpoint_every(1 << 20)
        .transactions(4)
        .reruns(1000)
        .database_id(1)
        .clock(Arc::default())
        .hook(Arc::new(TaskHook::default()))
        .background(background)
}

/// A database whose services run as tasks, and the disks after simulated crashes.
struct Bench {
    db: Database,
    disk: SimDisk,
    /// Number of workers that have not ended.
    working: AtomicUsize,
    crashes: std::sync::Mutex<Vec<Crashed>>,
}

/// A disk after a crash, and the state that it must contain.
struct Crashed {
    disk: SimDisk,
    /// Counters and their minimum values.
    at_least: Vec<(u64, u64)>,
}

impl Bench {
    fn new(workers: usize, counters: u64) -> Arc<Bench> {
        let disk = SimDisk::new(1);
        let db = options(Background::Inline).open_on(Arc::new(disk.clone())).unwrap();
        db.transact(|tx| (0..counters).try_for_each(|k| tx.put(&COUNTERS, &k, &0))).unwrap();
        db.close().unwrap();
        let db = options(Background::Stepped).open_on(Arc::new(disk.clone())).unwrap();
        Arc::new(Bench { db, disk, working: AtomicUsize::new(workers), crashes: std::sync::Mutex::default() })
    }

    /// Simulates a power loss at this moment on a copy of the disk.
    fn crash(&self, how: Crash, at_least: Vec<(u64, u64)>) {
        let disk = self.disk.crash(how);
        self.crashes.lock().unwrap().push(Crashed { disk, at_least });
    }

    /// Adds one to a counter; returns the new value after it is durable.
    fn add(&self, counter: u64) -> u64 {
        self.db
            .transact(|tx| {
                let value = tx.get_for_update(&COUNTERS, &counter)?.unwrap() + 1;
                tx.put(&COUNTERS, &counter, &value)?;
                Ok::<_, TxnError>(value)
            })
            .unwrap()
    }

    fn spawn(self: &Arc<Self>, work: impl FnOnce(&Bench) + Send + 'static) -> thread::JoinHandle<()> {
        let bench = Arc::clone(self);
        thread::spawn(move || {
            work(&bench);
            bench.working.fetch_sub(1, Ordering::SeqCst);
        })
    }

    /// Runs steps of a service, in a new task, until all workers have ended.
    fn serve(self: &Arc<Self>, service: Service) -> thread::JoinHandle<()> {
        let bench = Arc::clone(self);
        thread::spawn(move || {
            while bench.working.load(Ordering::SeqCst) > 0 {
                bench.db.step_service(service).unwrap();
                thread::yield_now();
            }
        })
    }

    /// Opens the disks of all simulated crashes and checks the counters.
    fn judge(&self) {
        for crashed in self.crashes.lock().unwrap().drain(..) {
            let db = options(Background::Inline).open_on(Arc::new(crashed.disk)).unwrap();
            let tx = db.begin().unwrap();
            for (counter, least) in crashed.at_least {
                let found = tx.get(&COUNTERS, &counter).unwrap().unwrap();
                assert!(found >= least, "counter {counter} is {found}; {least} was acknowledged");
            }
            drop(tx);
            db.close().unwrap();
        }
    }
}

/// Checks that values acknowledged to a writer, or to a read-only transaction, survive a power loss, although writers
/// release their locks before their commits are durable.
#[test]
fn shuttle_nothing_acknowledged_is_lost_though_locks_go_early() {
    schedules(|| {
        let bench = Bench::new(3, 1);
        let mut tasks = vec![bench.serve(Service::Flusher)];
        for _ in 0..2 {
            tasks.push(bench.spawn(|bench| {
                for _ in 0..2 {
                    let value = bench.add(0);
                    bench.crash(Crash::Nothing, vec![(0, value)]);
                }
            }));
        }
        tasks.push(bench.spawn(|bench| {
            for _ in 0..2 {
                let tx = bench.db.begin().unwrap();
                let value = tx.get(&COUNTERS, &0).unwrap().unwrap();
                tx.commit().unwrap();
                bench.crash(Crash::Nothing, vec![(0, value)]);
            }
        }));
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(bench.db.begin().unwrap().get(&COUNTERS, &0).unwrap(), Some(4));
        bench.judge();
    });
}

/// Takes checkpoints and truncates the log while transactions run. One of the transactions is older than the
/// checkpoints and is rolled back, either before the crash or by the restart.
#[test]
fn shuttle_the_log_keeps_what_a_restart_needs() {
    schedules(|| {
        let bench = Bench::new(2, 2);
        let mut tasks = vec![bench.serve(Service::Flusher), bench.serve(Service::Cleaner)];
        tasks.push(bench.spawn(|bench| {
            let mut old = bench.db.begin().unwrap();
            old.put(&COUNTERS, &1, &999).unwrap();
            for _ in 0..2 {
                bench.db.step_service(Service::Checkpointer).unwrap();
                bench.crash(Crash::Random(shuttle::rand::thread_rng().r#gen()), vec![]);
            }
            old.rollback().unwrap();
            bench.db.checkpoint().unwrap();
            bench.crash(Crash::Nothing, vec![]);
        }));
        tasks.push(bench.spawn(|bench| {
            // Each transaction fills part of a segment, so that old segments are truncated.
            const FILLER: Table<u64, Vec<u8>> = Table::new("filler");
            for n in 0..12 {
                bench.db.transact(|tx| tx.put(&FILLER, &(n % 4), &vec![n as u8; 3000])).unwrap();
                if n % 4 == 3 {
                    let value = bench.add(0);
                    bench.crash(Crash::Nothing, vec![(0, value)]);
                }
            }
        }));
        tasks.into_iter().for_each(|task| task.join().unwrap());
        let tx = bench.db.begin().unwrap();
        assert_eq!((tx.get(&COUNTERS, &0).unwrap(), tx.get(&COUNTERS, &1).unwrap()), (Some(3), Some(0)));
        drop(tx);
        bench.judge();
    });
}
