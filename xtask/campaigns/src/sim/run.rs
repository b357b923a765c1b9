//! Run of a database on a simulated disk with its workers and services, from start to end. Also its recovery after a crash.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use storage::disk::{Disk, SimDisk};
use storage::{Background, Database, FrameHomes, Isolation, LargePages, LatchKind, OpenError, Options, Rule, TxnError};

use super::concurrent_load;
use super::history::{History, Moment};
use super::loops;
use super::notes::{LoopCounters, Notes, PowerLoss, RunError, lock};
use super::order::{Role, Sim};
use super::panics::catch_panic;
use super::rng::Rng;
use super::scheduler::Scheduler;
use super::schema_changes;
use super::script::Script;
use super::sizes;
use super::tables::{self, Rows, TABLES};
use super::watch::ObservedDisk;
use super::work::{self, SERVANTS, Shared};
use super::workload;

/// Results of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// Committed transactions.
    pub(crate) history: Arc<History>,
    /// Point in time at the end of the run. It determines the commits that recovery must find.
    pub(crate) moment: Moment,
    /// Sampled points of possible power loss.
    pub(crate) power_losses: Vec<PowerLoss>,
    /// Errors of statements, commits, services, opening and closing.
    pub(crate) errors: Vec<RunError>,
    /// Calls of the disk that the engine must never make, but made.
    pub(crate) forbidden: Vec<String>,
    /// Rows of the tables after all workers have ended; `None` if there were errors.
    pub(crate) rows: Option<[Rows; TABLES]>,
    /// Counters of the loops; zero without [`Script::speculate`].
    pub(crate) loop_counters: LoopCounters,
    /// Result of a transaction on the repaired disk, with [`Script::probe`]; `None` if the database never opened.
    pub(crate) probe: Option<Result<(), TxnError>>,
    /// Hashes of the decisions of the scheduler, and of the disk. Equal runs have equal hashes.
    pub(crate) trace: (u64, u32),
}

/// Returns random settings of the database.
fn settings(seed: u64, latches: Option<LatchKind>, now_ns: Arc<AtomicU64>) -> Options {
    let mut rng = Rng::new(seed ^ 0x5e77_1465);
    let options = sizes::options(&mut rng).checkpoint_every(rng.pick(&[64 << 10, 128 << 10, 1 << 20]));
    let options = if rng.once_in(2) { options.lock_timeout(Duration::MAX) } else { options };
    let drawn = rng.pick(&[LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super]);
    options
        .latches(latches.unwrap_or(drawn))
        .promote_at([1, 2, 5, 512][(seed % 4) as usize])
        .escalate_at(rng.pick(&[8, 5000]))
        .transactions(12)
        .lock_name_bits(rng.pick(&[u32::MAX, u32::MAX, 1, 5]))
        .frame_homes(rng.pick(&[FrameHomes::Shared, FrameHomes::PerThread]))
        .large_pages(rng.pick(&[LargePages::Try, LargePages::Off]))
        .latch_words(rng.pick(&[16, 128]).max(std::thread::available_parallelism().map_or(1, usize::from)))
        .reruns(rng.pick(&[0, 100]))
        // Workers choose the isolation level of each transaction. All other transactions must be serializable.
        .isolation(Isolation::Serializable)
        .on_recovery(|_| ControlFlow::Continue(()))
        .clock(now_ns)
        .database_id(seed)
}

/// Settings of a recovery and of the reads after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryPlan {
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// Scheduler of the reader, which is a thread or a team of fibers.
    pub(crate) scheduler: Scheduler,
    /// Page latch kind; `None` for a random kind.
    pub(crate) latches: Option<LatchKind>,
}

impl RecoveryPlan {
    /// Returns the same settings with the random choices of another case.
    pub(crate) fn of_case(self, case: u64) -> RecoveryPlan {
        RecoveryPlan { seed: Rng::of_case(self.seed, case).next(), ..self }
    }

    /// Opens a disk as after a crash, without background threads: transactions do the background work.
    fn open(self, disk: Arc<dyn Disk>) -> Result<(Database, Option<Arc<dyn Sim>>), OpenError> {
        let now_ns = Arc::new(AtomicU64::new(1));
        let options = settings(self.seed, self.latches, Arc::clone(&now_ns)).background(Background::Inline);
        if self.scheduler == Scheduler::Threads {
            return Ok((options.open_on(disk)?, None));
        }
        let sim = self.scheduler.sim(self.seed, 2, now_ns);
        let hook = Arc::clone(&sim);
        Ok((options.hook(hook).open_on(disk)?, Some(sim)))
    }

    /// Reads all rows. In a team, two fibers read all rows concurrently, and both must read the same.
    fn read(self, db: &Database, sim: Option<&dyn Sim>, deep: bool) -> Result<[Rows; TABLES], String> {
        let all = || tables::contents(db, deep).and_then(|rows| schema_changes::check(db).map(|()| rows));
        let Some(sim) = sim else { return all() };
        let found = [Mutex::new(None), Mutex::new(None)];
        let roles = found.iter().map(|found| {
            let work = Box::new(move || *lock(found) = Some(all()));
            Role { serves: false, work }
        });
        sim.run(roles.collect())?;
        let [one, two] = found.map(|found| lock(&found).take().unwrap_or_else(|| Err("stopped".into())));
        let (one, two) = (one?, two?);
        if one == two { Ok(one) } else { Err("two who read at once find different rows".into()) }
    }
}

/// Runs `work`. In a team, a second fiber repeats `meanwhile` until `work` has ended.
///
/// # Errors
/// Returns a panic, or a description of a state in which no fiber can continue.
pub(crate) fn run_with_teammate<T: Send>(
    sim: Option<&dyn Sim>,
    work: impl FnOnce() -> T + Send,
    mut meanwhile: impl FnMut() + Send,
) -> Result<T, String> {
    let Some(sim) = sim else { return Ok(work()) };
    let result = Mutex::new(None);
    let worker = Box::new(|| *lock(&result) = Some(work()));
    let teammate = Box::new(|| {
        while !sim.is_over() {
            meanwhile();
            sim.pause();
        }
    });
    sim.run(vec![Role { serves: false, work: worker }, Role { serves: true, work: teammate }])?;
    lock(&result).take().ok_or_else(|| "stopped".into())
}

/// Opens the disk after a crash and reads all rows. With `deep`, also reads all rows backwards, verifies every page, runs
/// more transactions, closes the database, and reads all rows again.
///
/// # Errors
/// Returns the first difference or error.
pub(crate) fn recover_and_read(disk: &SimDisk, recovery: RecoveryPlan, deep: bool) -> Result<[Rows; TABLES], String> {
    let recovered = catch_panic(|| -> Result<[Rows; TABLES], String> {
        let open = || recovery.open(Arc::new(disk.clone()));
        let (db, sim) = open().map_err(|e| format!("restart: {e}"))?;
        let found = recovery.read(&db, sim.as_deref(), deep)?;
        if deep {
            db.verify_pages().map_err(|e| format!("verify: {e}"))?;
            let structure =
                db.check_structure(|_, _| ControlFlow::Continue(())).map_err(|e| format!("structure: {e}"))?;
            // Orphaned pages are permitted, because an interrupted load or creation of a table leaves some, as documented.
            // Their space is lost, but no row.
            if let Some(finding) = structure.findings.iter().find(|finding| finding.rule != Rule::Orphan) {
                return Err(format!("structure: {finding}"));
            }
            let continued = run_with_teammate(sim.as_deref(), || run_more_transactions(&db), || ())?;
            continued.map_err(|e| format!("going on after the restart: {e}"))?;
            let changed = recovery.read(&db, sim.as_deref(), false)?;
            db.close().map_err(|e| format!("closing after the restart: {e}"))?;
            let (db, sim) = open().map_err(|e| format!("opening what was closed: {e}"))?;
            if recovery.read(&db, sim.as_deref(), false)? != changed {
                return Err("closed and opened again it holds something else".into());
            }
            disk.power_off_after(0);
        } else {
            // Closing is not part of this test and takes time, so it must not reach the disk.
            disk.power_off_after(0);
        }
        Ok(found)
    });
    recovered.and_then(|found| found.unwrap_or_else(|| Err("stopped".into())))
}

/// Recovers the database on a disk. Returns a sample of at most `power_losses` points of possible power loss during the
/// recovery.
///
/// # Errors
/// Returns an error if the recovery fails.
pub(crate) fn restart(disk: &SimDisk, recovery: RecoveryPlan, power_losses: usize) -> Result<Vec<PowerLoss>, String> {
    let notes = Arc::new(Notes::new(power_losses, recovery.seed));
    let recorder = Arc::clone(&notes);
    let observed = ObservedDisk::new(disk, move |disk, call| recorder.offer_power_losses(disk, call));
    let opened = catch_panic(|| recovery.open(Arc::new(observed)).map_err(|e| format!("restart: {e}")))?;
    let db = opened.unwrap_or_else(|| Err("stopped".into()))?;
    disk.power_off_after(0);
    let power_losses = notes.take_power_losses();
    drop(db);
    Ok(power_losses)
}

/// Runs a few more transactions.
fn run_more_transactions(db: &Database) -> Result<(), TxnError> {
    let tables = tables::open(db)?;
    for n in 0..3u64 {
        let mut tx = db.begin()?;
        tx.put(&tables[0], &tables::Bytes(workload::key(1_000_000 + n)), &vec![n as u8; 1000])?;
        tx.put(&tables[1], &tables::Bytes(workload::key(n)), &vec![n as u8; 12])?;
        tx.raw_mut().delete(&tables[1], &workload::key(n + 3))?;
        tx.commit()?;
    }
    Ok(())
}

/// Runs a script on a disk. The disk is empty, or has the state that an earlier run left.
///
/// # Errors
/// Returns a panic, or a description of a state in which no worker can continue.
pub(crate) fn run(disk: &SimDisk, script: &Script) -> Result<RunResult, String> {
    let now_ns = Arc::new(AtomicU64::new(1));
    let actors = script.profile.workers + concurrent_load::ACTORS + schema_changes::ACTORS + SERVANTS;
    let sim = script.scheduler.sim(Rng::new(!script.seed).next(), actors, Arc::clone(&now_ns));
    run_with(disk, script, sim, now_ns)
}

/// As [`run`], with a given scheduler and its virtual clock.
pub(super) fn run_with(
    disk: &SimDisk,
    script: &Script,
    sim: Arc<dyn Sim>,
    now_ns: Arc<AtomicU64>,
) -> Result<RunResult, String> {
    let notes = Arc::new(Notes::new(script.max_power_losses, script.seed));
    let recorder = Arc::clone(&notes);
    let observed = ObservedDisk::new(disk, move |disk, call| recorder.offer_power_losses(disk, call));
    let mut rng = Rng::new(script.seed);
    let alone = script.profile.workers == 1 && rng.once_in(2);
    let background = if alone { Background::Inline } else { Background::Stepped };
    let hook = Arc::clone(&sim);
    let open = || {
        let options = settings(script.seed, script.latches, now_ns).background(background).hook(hook);
        let options =
            if script.speculate { loops::with_epochs(options, &mut Rng::new(script.seed ^ 0x100b)) } else { options };
        options.open_on(Arc::new(observed.clone()))
    };
    let opened = catch_panic(open)?;
    match opened {
        Some(Ok(db)) => {
            let shared = Shared { db: &db, sim: &*sim, notes: &notes, script, disk, alone };
            if let Err(broken) = work::run_all(&shared, &mut rng) {
                // The database is leaked instead of closed, because its state is unknown, so closing might hang.
                std::mem::forget(db);
                return Err(broken);
            }
            work::end(db, disk, script, &notes)?;
        }
        Some(Err(error)) => notes.error(RunError::Open(error.to_string())),
        None => return Err("stopped".into()),
    }
    let trace = (sim.trace(), disk.trace());
    let moment = notes.moment();
    let (power_losses, errors) = (notes.take_power_losses(), std::mem::take(&mut *lock(&notes.errors)));
    let (rows, probe) = (lock(&notes.rows).take(), lock(&notes.probe).take());
    let (forbidden, loop_counters) = (observed.forbidden(), *lock(&notes.loop_counters));
    Ok(RunResult {
        history: Arc::clone(&notes.history),
        moment,
        power_losses,
        errors,
        forbidden,
        rows,
        loop_counters,
        probe,
        trace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run() {
        for scheduler in [Scheduler::Threads, Scheduler::Steps] {
            let mut traces = std::collections::BTreeSet::new();
            for seed in 0..12 {
                let script = Script::draw(&mut Rng::new(seed), scheduler);
                let once = |_| run(&SimDisk::new(seed), &script);
                let again = |n| once(n).unwrap_or_else(|e| panic!("{scheduler:?}, seed {seed}: {e}")).trace;
                let (one, two) = (again(1), again(2));
                assert_eq!(one, two, "{scheduler:?}, seed {seed}");
                traces.insert(one);
            }
            assert_eq!(traces.len(), 12, "{scheduler:?}: different seeds give different runs");
        }
    }
}
