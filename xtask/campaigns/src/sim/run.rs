//! A database on a simulated disk, its workers and services, from begin to end; and opening the disk after a crash.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use storage::disk::{Disk, SimDisk};
use storage::{Background, Database, FrameHomes, Isolation, LargePages, LatchKind, OpenError, Options, Rule, TxnError};

use super::beside;
use super::caught::caught;
use super::history::{History, Moment};
use super::notes::{Cut, Looped, Notes, RunError, lock};
use super::order::{Role, Sim};
use super::remodelled;
use super::rng::Rng;
use super::scheduler::Scheduler;
use super::script::Script;
use super::sizes;
use super::tables::{self, Rows, TABLES};
use super::watch::Watched;
use super::work::{self, SERVANTS, Shared};
use super::workload;

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The committed transactions.
    pub(crate) history: Arc<History>,
    /// The commits that must be found from now on.
    pub(crate) moment: Moment,
    /// Moments at which power might have been lost.
    pub(crate) cuts: Vec<Cut>,
    /// Errors that statements, commits, services, opening and closing gave.
    pub(crate) errors: Vec<RunError>,
    /// Calls of the disk that the engine must never make.
    pub(crate) forbidden: Vec<String>,
    /// The content of the tables when the workers had ended, if there were no errors.
    pub(crate) rows: Option<[Rows; TABLES]>,
    /// With [`Script::speculate`]: the speculative loops that have run.
    pub(crate) looped: Looped,
    /// With [`Script::probe`]: the result of a transaction when the disk was sound again; `None` if it never opened.
    pub(crate) probe: Option<Result<(), TxnError>>,
    /// Differs between two different runs.
    pub(crate) trace: (u64, u32),
}

/// All settings, from the seed.
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
        // Workers draw the level of each transaction; all others must read what is.
        .isolation(Isolation::Serializable)
        .on_recovery(|_| ControlFlow::Continue(()))
        .clock(now_ns)
        .database_id(seed)
}

/// How the database is read after a crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// Whether a thread reads, or a team of fibers.
    pub(crate) scheduler: Scheduler,
    /// The kind of page latches; none if the seed draws it.
    pub(crate) latches: Option<LatchKind>,
}

impl Visit {
    /// The same of another case: it opens with other sizes.
    pub(crate) fn of_case(self, case: u64) -> Visit {
        Visit { seed: Rng::of_case(self.seed, case).next(), ..self }
    }

    /// Opens a disk as after a crash; the users do the services' work themselves.
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

    /// Reads everything. A team does so twice at once, and both must find the same.
    fn read(self, db: &Database, sim: Option<&dyn Sim>, deep: bool) -> Result<[Rows; TABLES], String> {
        let all = || tables::contents(db, deep).and_then(|rows| remodelled::check(db).map(|()| rows));
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

/// Runs `work` in a team, if there is one, with a mate that goes on with `meanwhile` until `work` has ended.
///
/// # Errors
/// A panic, or a state in which no fiber could go on.
pub(crate) fn in_company<T: Send>(
    sim: Option<&dyn Sim>,
    work: impl FnOnce() -> T + Send,
    mut meanwhile: impl FnMut() + Send,
) -> Result<T, String> {
    let Some(sim) = sim else { return Ok(work()) };
    let result = Mutex::new(None);
    let worker = Box::new(|| *lock(&result) = Some(work()));
    let mate = Box::new(|| {
        while !sim.is_over() {
            meanwhile();
            sim.pause();
        }
    });
    sim.run(vec![Role { serves: false, work: worker }, Role { serves: true, work: mate }])?;
    lock(&result).take().ok_or_else(|| "stopped".into())
}

/// Opens the disk after a crash and reads all of it. With `deep` it also reads backwards, verifies every page, goes on
/// working, closes, and reads again.
///
/// # Errors
/// The difference that it found.
pub(crate) fn look(disk: &SimDisk, visit: Visit, deep: bool) -> Result<[Rows; TABLES], String> {
    let looked = caught(|| -> Result<[Rows; TABLES], String> {
        let open = || visit.open(Arc::new(disk.clone()));
        let (db, sim) = open().map_err(|e| format!("restart: {e}"))?;
        let found = visit.read(&db, sim.as_deref(), deep)?;
        if deep {
            db.verify_pages().map_err(|e| format!("verify: {e}"))?;
            let structure =
                db.check_structure(|_, _| ControlFlow::Continue(())).map_err(|e| format!("structure: {e}"))?;
            // An interrupted load or creation of a table leaves its pages behind: space is lost, as documented, no row.
            if let Some(finding) = structure.findings.iter().find(|finding| finding.rule != Rule::Orphan) {
                return Err(format!("structure: {finding}"));
            }
            let went_on = in_company(sim.as_deref(), || go_on(&db), || ())?;
            went_on.map_err(|e| format!("going on after the restart: {e}"))?;
            let changed = visit.read(&db, sim.as_deref(), false)?;
            db.close().map_err(|e| format!("closing after the restart: {e}"))?;
            let (db, sim) = open().map_err(|e| format!("opening what was closed: {e}"))?;
            if visit.read(&db, sim.as_deref(), false)? != changed {
                return Err("closed and opened again it holds something else".into());
            }
            disk.power_off_after(0);
        } else {
            // Closing is not what is tested here, and takes time.
            disk.power_off_after(0);
        }
        Ok(found)
    });
    looked.and_then(|found| found.unwrap_or_else(|| Err("stopped".into())))
}

/// Restarts a disk, and keeps at most so many of the moments at which power may be lost meanwhile.
///
/// # Errors
/// When the restart fails.
pub(crate) fn restart(disk: &SimDisk, visit: Visit, cuts: usize) -> Result<Vec<Cut>, String> {
    let notes = Arc::new(Notes::new(cuts, visit.seed));
    let hearing = Arc::clone(&notes);
    let watched = Watched::new(disk, move |disk, call| hearing.cut(disk, call));
    let opened = caught(|| visit.open(Arc::new(watched)).map_err(|e| format!("restart: {e}")))?;
    let db = opened.unwrap_or_else(|| Err("stopped".into()))?;
    disk.power_off_after(0);
    let cuts = notes.take_cuts();
    drop(db);
    Ok(cuts)
}

/// A few more transactions.
fn go_on(db: &Database) -> Result<(), TxnError> {
    let tables = tables::open(db)?;
    for n in 0..3u64 {
        let mut tx = db.begin()?;
        tx.put(&tables[0], &tables::Bytes(workload::key(1_000_000 + n)), &vec![n as u8; 1000])?;
        tx.put(&tables[1], &tables::Bytes(workload::key(n)), &vec![n as u8; 12])?;
        tx.delete_raw(&tables[1], &workload::key(n + 3))?;
        tx.commit()?;
    }
    Ok(())
}

/// Runs a script on a disk, which holds nothing or what an earlier run left.
///
/// # Errors
/// A panic, or a run in which no worker could go on.
pub(crate) fn run(disk: &SimDisk, script: &Script) -> Result<Ran, String> {
    let now_ns = Arc::new(AtomicU64::new(1));
    let actors = script.profile.workers + beside::ACTORS + remodelled::ACTORS + SERVANTS;
    let sim = script.scheduler.sim(Rng::new(!script.seed).next(), actors, Arc::clone(&now_ns));
    run_with(disk, script, sim, now_ns)
}

/// [`run`] with a scheduler of that clock.
pub(super) fn run_with(
    disk: &SimDisk,
    script: &Script,
    sim: Arc<dyn Sim>,
    now_ns: Arc<AtomicU64>,
) -> Result<Ran, String> {
    let notes = Arc::new(Notes::new(script.cuts, script.seed));
    let hearing = Arc::clone(&notes);
    let watched = Watched::new(disk, move |disk, call| hearing.cut(disk, call));
    let mut rng = Rng::new(script.seed);
    let alone = script.profile.workers == 1 && rng.once_in(2);
    let background = if alone { Background::Inline } else { Background::Stepped };
    let hook = Arc::clone(&sim);
    let open = || {
        settings(script.seed, script.latches, now_ns)
            .background(background)
            .hook(hook)
            .open_on(Arc::new(watched.clone()))
    };
    let opened = caught(open)?;
    match opened {
        Some(Ok(db)) => {
            let shared = Shared { db: &db, sim: &*sim, notes: &notes, script, disk, alone };
            if let Err(broken) = work::all(&shared, &mut rng) {
                // It is unknown what closing would need now.
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
    let (cuts, errors) = (notes.take_cuts(), std::mem::take(&mut *lock(&notes.errors)));
    let (rows, probe) = (lock(&notes.rows).take(), lock(&notes.probe).take());
    let (forbidden, looped) = (watched.forbidden(), *lock(&notes.looped));
    Ok(Ran { history: Arc::clone(&notes.history), moment, cuts, errors, forbidden, rows, looped, probe, trace })
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
