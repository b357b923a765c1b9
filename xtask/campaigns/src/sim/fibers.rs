//! Scheduler for workers that are a team of fibers. The engine runs as in a team, and every context switch, wait and wake-up
//! is an operation of `sched-steps`.
//!
//! At an enabled preemption point of storage ([`storage::Hook::point`]), the fiber switches to its teammate. A wait in
//! storage ([`storage::Hook::block`]) removes the fiber from the team and parks it. Between statements, the fiber may yield.
//! The seed decides the team size, the choice between one ring and one team per operation, the enabled points, and the
//! probability of a switch at an enabled point. This probability ranges from 1, as in production, to 1 in 16, with which one
//! worker advances far while another is suspended in the middle of a descent. Rules of the executor then determine the next
//! fiber. All fibers run on one thread, so the run is deterministic.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::panicking;
use std::time::Duration;

use itas::auto::Mode;
use itas::{Aggregation, Board, CoreOrder, CoreSettings, Groups, Scheduler, core_order};
use sched_steps::fiber::{self, Waker};
use sched_steps::team::{self, LargestFirst, LastInterest, Membership, OldestFirst, OperationId, Operations};
use sched_steps::{Executor, Idle};
use storage::{BlockReason, Hook, Operation, WaitToken, points};

use super::order::{self, Decisions, MAX_SERVANT_STEPS, Role, Sim, nanos};
use super::panics::{self, catch_panic};
use super::rng::Rng;

/// Size of a fiber's stack, in bytes. Debug builds need more than release builds.
const STACK_BYTES: usize = 512 << 10;
/// Number of statement kinds that have teams of their own. With one team per operation, there are `KINDS * INDEXES` teams.
const KINDS: usize = 12;
const INDEXES: usize = 4;

/// Scheduler, clock and [`Hook`] of one run.
#[derive(Debug)]
pub(crate) struct Fibers {
    shared: Arc<Shared>,
    enabled_points: Box<[bool]>,
    /// Average number of visits of enabled points per switch of a fiber.
    hop_period: u64,
    /// Maximum number of fibers in a team.
    team_size: usize,
    per_operation: Option<Teams>,
    /// Parameters of sibling groups. `Some` if the fibers run in sibling groups instead of teams.
    siblings: Option<Siblings>,
}

/// Parameters of sibling groups. The clock of the groups is the virtual clock of the run.
#[derive(Clone, Copy, Debug)]
struct Siblings {
    mode: Mode,
    groups: u32,
    settings: CoreSettings,
    aggregation: Aggregation,
}

/// Teams of fibers, one per operation, and the number of the policy that selects the next team to run.
#[derive(Debug)]
struct Teams {
    operations: Operations,
    by_number: Vec<OperationId>,
    policy: u64,
}

/// State shared by the fibers, the conditions on which they wait, and the thread of the executor.
#[derive(Debug)]
struct Shared {
    state: Mutex<FibersState>,
    now_ns: Arc<AtomicU64>,
}

#[derive(Debug)]
struct FibersState {
    decisions: Decisions,
    /// State of each worker and servant, indexed by fiber number; empty outside of [`Sim::run`].
    actors: Vec<Actor>,
    /// Number of workers that have not ended.
    working: usize,
    /// Number of consecutive steps of servants since the last step of a worker.
    servant_steps: u32,
    /// Reason for which the run was stopped, if it was.
    broken: Option<String>,
    /// Number of switches at each preemption point, indexed by point.
    hops: Vec<u64>,
    /// Number of waits in which a fiber was parked.
    parks: u64,
}

#[derive(Clone, Debug, Default)]
struct Actor {
    serves: bool,
    ended: bool,
    waits: Option<Wait>,
}

#[derive(Clone, Debug)]
struct Wait {
    /// Address of the wait token, which identifies it.
    token: usize,
    until: Option<u64>,
    waker: Waker,
}

impl Fibers {
    /// Creates a scheduler for at most `actors` workers and servants.
    pub(crate) fn new(seed: u64, actors: usize, now_ns: Arc<AtomicU64>) -> Fibers {
        let mut rng = Rng::new(seed);
        let all = rng.once_in(2);
        let enabled_points = points().iter().map(|_| all || rng.once_in(2)).collect();
        let hop_period = rng.pick(&[1, 1, 2, 4, 16]);
        let team_size = rng.pick(&[actors, actors, 2, 3, 1 + actors / 2]).clamp(2, actors.max(2));
        let per_operation = rng.once_in(3).then(|| Teams::new(rng.below(3))).flatten();
        let state = FibersState {
            decisions: Decisions::new(rng),
            actors: Vec::new(),
            working: 0,
            servant_steps: 0,
            broken: None,
            hops: vec![0; points().len()],
            parks: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), now_ns });
        Fibers { shared, enabled_points, hop_period, team_size, per_operation, siblings: None }
    }

    /// As [`Fibers::new`], but the fibers are in sibling groups and yield at preemption points.
    pub(crate) fn of_siblings(seed: u64, actors: usize, now_ns: Arc<AtomicU64>) -> Fibers {
        let mut rng = Rng::new(seed ^ 0x5349_424c);
        let slice = Duration::from_nanos(rng.pick(&[1, 1_000, 20_000, 1_000_000]).max(1_000));
        let siblings = Siblings {
            mode: rng.pick(&[Mode::Fair, Mode::Tas, Mode::Itas]),
            groups: 1 + rng.below(3) as u32,
            settings: CoreSettings { slice, sleeper_credit: slice, paper_slaves: rng.once_in(4) },
            aggregation: Aggregation { bonus: rng.pick(&[1, 10, 1000]) * slice, limit: rng.pick(&[0, 1, 4, 100]) },
        };
        Fibers { per_operation: None, siblings: Some(siblings), ..Fibers::new(seed, actors, now_ns) }
    }

    /// Returns the scheduling order of an executor for sibling groups; `None` for teams.
    fn order(&self) -> Result<Option<CoreOrder>, String> {
        let Some(Siblings { mode, groups, settings, aggregation }) = self.siblings else { return Ok(None) };
        let table = Groups::new();
        let ids = (0..groups).map(|n| table.add(&n.to_string(), itas::DEFAULT_WEIGHT, aggregation));
        let ids = ids.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        let scheduler = Scheduler::new(0, Arc::new(table), Arc::new(Board::new(1)), mode.policy(), settings);
        let now_ns = Arc::clone(&self.shared.now_ns);
        let ordered = core_order(scheduler, ids, move || now_ns.load(Ordering::Relaxed));
        ordered.map(|(order, _)| Some(order)).map_err(|e| e.to_string())
    }

    fn executor(&self, fibers: usize) -> Result<Executor, String> {
        let shared = Arc::clone(&self.shared);
        let builder = Executor::builder()
            .fibers(fibers)
            .team_size(self.team_size)
            .stack_bytes(STACK_BYTES)
            .idle(move |idle| shared.idle(idle));
        let builder = match &self.per_operation {
            None => builder,
            Some(teams) => {
                let builder = builder.membership(Membership::PerOperation).operations(teams.operations.clone());
                match teams.policy {
                    0 => builder.policy(LargestFirst),
                    1 => builder.policy(LastInterest),
                    _ => builder.policy(OldestFirst),
                }
            }
        };
        let builder = match self.order()? {
            Some(order) => builder.order(order),
            None => builder,
        };
        // SAFETY: a fiber switches only in calls of the engine, in `wait` and in `pause`. The engine keeps no reference to a
        // thread-local variable at these points (see `engines/storage/fibers.rs` of `tpcc`). The campaigns have no
        // thread-local variable except the message of `catch_panic`, which belongs to the fiber.
        let built = unsafe { builder.build() };
        built.map_err(|e| format!("no fibers: {e}"))
    }

    /// Waits until the token is woken or the limit has passed. Returns true if the token was woken.
    fn wait(&self, token: &WaitToken, reason: BlockReason, limit: Option<Duration>) -> bool {
        let limit = order::limit(limit);
        if token.try_consume() {
            return true;
        }
        let (Some(me), Some(waker)) = (fiber::index(), fiber::waker()) else {
            // No other worker is left. A wait with a limit ends at once; a wait without a limit would never end.
            if limit.is_none() {
                panics::raise_finding(format!("hang: a lone caller would wait for ever ({reason:?})"));
            }
            return false;
        };
        if panicking() {
            // During a panic, no other fiber may run.
            assert!(limit.is_some(), "a wait while unwinding ({reason:?})");
            return false;
        }
        let until = limit.map(|limit| self.shared.now().saturating_add(nanos(limit)));
        {
            let mut state = self.shared.state();
            stop_if_broken(&state);
            state.decisions.note(reason as u64 + 100);
            state.parks += 1;
            state.decisions.tick(&self.shared.now_ns);
            let token = std::ptr::from_ref(token).addr();
            state.actors[me].waits = Some(Wait { token, until, waker });
        }
        let mut woken = false;
        match until {
            None => {
                while !woken && !self.shared.is_broken() {
                    fiber::park();
                    woken = token.try_consume();
                }
            }
            Some(until) => {
                let consumed = std::cell::Cell::new(false);
                fiber::block_until(|| {
                    consumed.set(consumed.get() || token.try_consume());
                    consumed.get() || self.shared.now() >= until || self.shared.is_broken()
                });
                woken = consumed.get();
            }
        }
        let mut state = self.shared.state();
        state.actors[me].waits = None;
        state.resumed(me, self.shared.now());
        stop_if_broken(&state);
        woken
    }
}

impl Teams {
    fn new(policy: u64) -> Option<Teams> {
        let mut operations = Operations::new();
        let by_number = (0..KINDS * INDEXES).map(|n| operations.add(&n.to_string(), "").ok());
        let by_number = by_number.collect::<Option<Vec<_>>>()?;
        Some(Teams { operations, by_number, policy })
    }

    fn of(&self, operation: Operation) -> OperationId {
        self.by_number[operation.kind as usize % KINDS * INDEXES + operation.index as usize % INDEXES]
    }
}

/// Unwinds the calling fiber if the run is stopped. The state of all fibers is dropped with the run.
fn stop_if_broken(state: &FibersState) {
    if state.broken.is_some() && !panicking() {
        panics::stop();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, FibersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn is_broken(&self) -> bool {
        self.state().broken.is_some()
    }

    /// Called when no fiber can run. Advances the clock to the earliest limit of a wait. Stops the run if no wait has a
    /// limit.
    fn idle(&self, _: &Idle<'_>) {
        let mut state = self.state();
        let waits = state.actors.iter().filter_map(|actor| actor.waits.as_ref());
        match waits.filter_map(|wait| wait.until).min() {
            Some(until) => drop(self.now_ns.fetch_max(until, Ordering::Relaxed)),
            None => state.stop_run("everybody waits, and nobody will wake anybody"),
        }
    }
}

impl FibersState {
    /// Records that a fiber continues.
    fn resumed(&mut self, me: usize, now: u64) {
        self.decisions.note(me as u64);
        self.decisions.note(now);
        if !self.actors[me].serves {
            self.servant_steps = 0;
        }
    }

    /// Stops the run: wakes all waiting fibers. Every fiber that continues from now on unwinds.
    fn stop_run(&mut self, why: &str) {
        let waiting = self.actors.iter().filter(|actor| actor.waits.is_some()).count();
        self.broken.get_or_insert(format!("hang: {why} ({waiting} of {} wait)", self.actors.len()));
        self.wake_all();
    }

    fn wake_all(&self) {
        self.actors.iter().filter_map(|actor| actor.waits.as_ref()).for_each(|wait| wait.waker.wake());
    }
}

impl Sim for Fibers {
    fn trace(&self) -> u64 {
        self.shared.state().decisions.trace()
    }

    fn run(&self, roles: Vec<Role<'_>>) -> Result<(), String> {
        let mut roles: Vec<Role<'_>> = roles;
        {
            let mut state = self.shared.state();
            for at in (1..roles.len()).rev() {
                roles.swap(at, state.decisions.rng().below(at as u64 + 1) as usize);
            }
            state.actors = roles.iter().map(|role| Actor { serves: role.serves, ..Actor::default() }).collect();
            state.working = roles.iter().filter(|role| !role.serves).count();
            state.servant_steps = 0;
        }
        let mut executor = self.executor(roles.len())?;
        let ran = catch_panic(|| {
            executor.scope(|scope| {
                // A new executor numbers its fibers 0, 1, 2, ... in the order of creation.
                for role in roles {
                    scope.spawn(move || {
                        let Some(me) = fiber::index() else { return };
                        self.shared.state().resumed(me, self.shared.now());
                        let ended = catch_panic(role.work);
                        self.end(me, ended.err());
                    });
                }
            })
        });
        drop(executor);
        let mut state = self.shared.state();
        state.actors.clear();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        match ran? {
            Some(Err(e)) => Err(e.to_string()),
            _ => Ok(()),
        }
    }

    fn pause(&self) {
        let Some(me) = fiber::index() else { return };
        let yields = {
            let mut state = self.shared.state();
            stop_if_broken(&state);
            state.decisions.tick(&self.shared.now_ns);
            if state.actors[me].serves {
                state.servant_steps += 1;
                if state.servant_steps > MAX_SERVANT_STEPS && state.working > 0 {
                    state.stop_run("the workers wait for something that no service brings");
                }
            }
            state.decisions.rng().once_in(3)
        };
        if yields {
            fiber::yield_now();
            let mut state = self.shared.state();
            state.resumed(me, self.shared.now());
            stop_if_broken(&state);
        }
    }

    fn is_over(&self) -> bool {
        let state = self.shared.state();
        state.working == 0 || state.broken.is_some()
    }

    fn is_last(&self) -> bool {
        let state = self.shared.state();
        state.broken.is_some() || state.actors.iter().filter(|actor| !actor.ended).count() <= 1
    }
}

impl Fibers {
    fn end(&self, me: usize, panic: Option<String>) {
        let mut state = self.shared.state();
        state.actors[me].ended = true;
        if !state.actors[me].serves {
            state.working -= 1;
        }
        if let Some(message) = panic {
            state.broken.get_or_insert(message);
            state.wake_all();
        }
    }
}

impl Hook for Fibers {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn point(&self, site: u32) {
        let may_switch = if self.siblings.is_some() { fiber::latches_held() == 0 } else { fiber::may_hop() };
        if !may_switch || panicking() {
            return;
        }
        let Some(me) = fiber::index() else { return };
        let hops = {
            let mut state = self.shared.state();
            let hops = state.broken.is_none()
                && self.enabled_points[site as usize]
                && state.decisions.rng().once_in(self.hop_period);
            state.hops[site as usize] += u64::from(hops);
            hops
        };
        if hops {
            if self.siblings.is_some() {
                fiber::yield_now()
            } else {
                fiber::hop()
            }
            self.shared.state().resumed(me, self.shared.now());
        }
    }

    fn enter(&self, operation: Operation) {
        if let (Some(teams), Some(me), false) = (&self.per_operation, fiber::index(), panicking()) {
            team::begin_operation(teams.of(operation));
            self.shared.state().resumed(me, self.shared.now());
        }
    }

    fn task(&self) -> u64 {
        fiber::index().map_or(0, |index| index as u64 + 1)
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        while !self.wait(token, reason, None) {}
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.wait(token, reason, Some(limit))
    }

    fn wake(&self, token: &WaitToken) {
        token.set_woken();
        let address = std::ptr::from_ref(token).addr();
        let state = self.shared.state();
        let waiting = state.actors.iter().filter_map(|actor| actor.waits.as_ref());
        waiting.filter(|wait| wait.token == address).for_each(|wait| wait.waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use storage::disk::MemDisk;
    use storage::{Background, Options, Service, Table};

    use super::super::calls::DatabaseCall;
    use super::super::run;
    use super::super::scheduler::Scheduler;
    use super::super::script::Script;
    use super::super::{tables, workload};
    use super::*;

    /// A campaign tests a preemption point only if fibers switch at it.
    #[test]
    fn fibers_hop_at_every_point_and_wait_for_each_other() {
        let (mut hops, mut parks) = (vec![0; points().len()], 0);
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let mut script = Script::draw(&mut rng, Scheduler::Steps);
            script.profile.workers = 4;
            if seed % 10 == 0 {
                // These are enough rows for a tree of three levels, so that there is an inner page below the root.
                script.profile = script.profile.large();
                script.profile.loaded = 1_500;
                script.profile.keys = 3_000;
            }
            let now_ns = Arc::new(AtomicU64::new(1));
            let sim = Arc::new(Fibers::new(seed, 6, Arc::clone(&now_ns)));
            let disk = storage::disk::SimDisk::new(seed);
            run::run_with(&disk, &script, Arc::clone(&sim) as Arc<dyn Sim>, now_ns).unwrap();
            let state = sim.shared.state();
            hops.iter_mut().zip(&state.hops).for_each(|(all, one)| *all += one);
            parks += state.parks;
        }
        for (point, hops) in points().iter().zip(hops) {
            assert!(hops > 0, "no fiber hopped at {}", point.name());
        }
        assert!(parks > 100, "{parks} waits");
    }

    /// A waiting fiber must not hold a resource that another fiber of its thread needs. While one fiber waits for the log in
    /// a checkpoint, a commit or the creation of a table, the others make every kind of call.
    #[test]
    fn all_fibers_of_a_thread_may_call_anything_while_others_wait() {
        const WORKERS: usize = 4;
        let mut parks = 0;
        for seed in 0..12 {
            let now_ns = Arc::new(AtomicU64::new(1));
            let sim = Arc::new(Fibers::new(seed, WORKERS + 2, Arc::clone(&now_ns)));
            let hook = Arc::clone(&sim);
            let options = Options::new().hook(hook).clock(now_ns).background(Background::Stepped);
            let db = options.buffer_pool(storage::MIN_POOL_BYTES).open_on(Arc::new(MemDisk::new())).unwrap();
            let context = format!("seed {seed}");
            let work = &|me: usize| {
                let tables = tables::open(&db).expect(&context);
                let mut rng = Rng::new(seed + me as u64);
                for turn in 0..2 * DatabaseCall::ALL.len() {
                    let row = vec![me as u8; 300];
                    db.transact(|tx| tx.put(&tables[turn % 2], &tables::Bytes(workload::key(turn as u64)), &row))
                        .expect(&context);
                    sim.pause();
                    let call = DatabaseCall::ALL[(turn + me * 2) % DatabaseCall::ALL.len()];
                    call.make(&db, &tables, &mut rng).unwrap_or_else(|e| panic!("seed {seed}, {call:?}: {e}"));
                }
            };
            let serve = &|services: [Service; 2]| {
                while !sim.is_last() && (services[0] == Service::Flusher || !sim.is_over()) {
                    for service in services {
                        let _worked: bool = db.step_service(service).expect(&context);
                    }
                    sim.pause();
                }
            };
            let workers = (0..WORKERS).map(|me| Role { serves: false, work: Box::new(move || work(me)) });
            let servants = [[Service::Flusher, Service::SegmentMaker], [Service::Cleaner, Service::Checkpointer]];
            let servants = servants.map(|of| Role { serves: true, work: Box::new(move || serve(of)) });
            sim.run(workers.chain(servants).collect()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            parks += sim.shared.state().parks;
        }
        assert!(parks > 200, "{parks} waits");
    }

    #[test]
    fn a_team_may_open_the_same_new_tables_at_once() {
        const TABLES: [Table<u64, u64>; 3] = [Table::new("one"), Table::new("two"), Table::new("three")];
        for seed in 0..30 {
            let now_ns = Arc::new(AtomicU64::new(1));
            let sim = Scheduler::Steps.sim(seed, 4, Arc::clone(&now_ns));
            let hook = Arc::clone(&sim);
            let options = Options::new().hook(hook).clock(now_ns).background(Background::Inline);
            let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
            let roles = (0..4).map(|me| {
                let (db, sim) = (&db, &sim);
                let work = Box::new(move || {
                    for at in 0..3 {
                        let table = db.table(&TABLES[(at + me) % 3]).unwrap();
                        sim.pause();
                        db.transact(|tx| tx.put(&table, &(me as u64), &seed)).unwrap();
                    }
                });
                Role { serves: false, work }
            });
            sim.run(roles.collect()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(db.table_names().len(), 3, "seed {seed}");
            for table in TABLES {
                let rows = db.transact(|tx| tx.range(&table, ..)?.collect::<Result<Vec<_>, _>>()).unwrap();
                assert_eq!(rows, (0..4).map(|me| (me, seed)).collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }
}
