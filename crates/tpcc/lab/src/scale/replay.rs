//! Replay of recorded transactions on modelled cores that wait for lines, latches and record locks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::locks::{FiberId, LockQueues};
use super::placement::{Mixing, PlacedTransaction, Sharing, Usage, is_fence};
use super::recording::{Effect, ScaleRecording};
use super::result::ScaleResult;
use crate::coherence::transfers::{BuildLineHasher, CoreModel, LineRequest, LineTransfers};
use crate::footprint::operand::AccessKind;

/// Maximum number of cores: four words of 64 bits.
const WORDS: usize = 4;
/// Number of failures of a section after which it goes on all the same. Otherwise a long section could fail for ever.
const MOST_AGAIN: u32 = 16;
/// Simulated address of the log.
const LOG: u64 = 0xf000 << 48;
/// Start times of cores, in picoseconds: multiples of the first number modulo the second one, so that copies of a home do not
/// run in step.
const START_PS: (u64, u64) = (1_009_000, 10_007_000);

/// Assignment of terminals to cores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum TerminalAssignment {
    /// A core runs the transactions of one home.
    ByHome,
    /// The terminals of a home are spread over the cores. A core runs those of several homes in rotation, as one thread.
    Spread { terminals: usize },
    /// As `Spread`, with a fiber for each terminal. A core runs fibers of one home for a time slice, and another fiber while
    /// one waits for a lock.
    Itas { terminals: usize, slice_ns: f64 },
}

/// Model of a machine and of its system.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ScaleModel {
    pub machine: CoreModel,
    /// Time from the release of a lock until a thread that waits for it runs again.
    pub wake_ns: f64,
}

/// Parameters of a replay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ReplayPlan {
    pub assignment: TerminalAssignment,
    /// True for the engine after splits for contention. The engine before them takes the line of a latch exclusively even if
    /// the attempt to take the latch fails; the one after them reads the latch first.
    pub after_splits: bool,
    /// Number of measured passes over the recorded transactions of a home.
    pub passes: usize,
}

/// A thread's or fiber's sequence of transactions, and its state in the current one.
#[derive(Default)]
struct Fiber {
    core: usize,
    /// Homes of the model, and numbers of placed transactions, which the fiber runs repeatedly.
    runs: Vec<(usize, usize)>,
    run: usize,
    step: usize,
    age: u64,
    /// Latches that it holds, each with the step from which the transaction goes on if it must give the latch up.
    latches: Vec<(u64, usize)>,
    /// Versions of latches at the begins of sections, with the instructions at these steps.
    versions: HashMap<u64, (u64, u64), BuildLineHasher>,
    /// Number of times that a section has begun again since the last one that was valid.
    again: u32,
    /// Locks that it holds.
    locks: Vec<u64>,
    /// Instructions since the begin of the transaction.
    instructions: u64,
}

struct Core {
    fibers: Vec<FiberId>,
    /// Index in `fibers` of the fiber that runs, or that ran last.
    current: usize,
    slice_end: u64,
    /// Time at which the core's plain writes have their lines, and the class of the last of these.
    written_ps: u64,
    written_class: u16,
    /// Begin of a wait, and its cause.
    wait: Option<(u64, WaitCause)>,
    is_idle: bool,
    done: usize,
    began_ps: u64,
    took_ps: Option<u64>,
    /// Position of the last reserved record in the log.
    record: u64,
}

#[derive(Clone, Copy)]
enum WaitCause {
    Latch(u16),
    Lock(u32),
}

#[derive(Default)]
struct Latch {
    holder: Option<FiberId>,
    /// Time at which the last release is visible.
    free_ps: u64,
    version: u64,
    /// Cores that wait.
    waiters: Vec<usize>,
}

struct Simulation {
    model: ScaleModel,
    assignment: TerminalAssignment,
    /// Access of an attempt to take a latch that fails because the page has changed.
    failed_attempt: AccessKind,
    homes: usize,
    transactions: Vec<PlacedTransaction>,
    instruction_ps: f64,
    /// Time of the instructions of a transaction, in the mean of all recorded ones.
    mean_work_ns: f64,
    /// Numbers of transactions of a core before the measurement, and in it.
    warm_up: usize,
    measured: usize,
    transfers: LineTransfers<WORDS>,
    cores: Vec<Core>,
    fibers: Vec<Fiber>,
    locks: LockQueues,
    latches: HashMap<u64, Latch, BuildLineHasher>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    tail: u64,
    ages: u64,
    under_way: usize,
    sums: ScaleResult,
}

/// Replays a recording with as many homes as cores. Returns `None` if a home has no transaction.
pub(crate) fn replay(
    recording: &ScaleRecording,
    usage: &Usage<'_>,
    model: ScaleModel,
    plan: ReplayPlan,
) -> Option<ScaleResult> {
    let mut simulation = Simulation::new(recording, usage, model, plan)?;
    simulation.run();
    Some(simulation.result())
}

impl Simulation {
    fn new(recording: &ScaleRecording, usage: &Usage<'_>, model: ScaleModel, plan: ReplayPlan) -> Option<Simulation> {
        let cores = model.machine.cores;
        let homes = recording.homes();
        let mixing = if plan.assignment == TerminalAssignment::ByHome { Mixing::OneHome } else { Mixing::ManyHomes };
        let transactions = usage.place(cores.min(homes), mixing, plan.after_splits);
        let mut of_home: Vec<Vec<usize>> = vec![Vec::new(); cores.min(homes)];
        transactions.iter().enumerate().for_each(|(n, transaction)| of_home[transaction.home].push(n));
        let each = of_home.iter().map(Vec::len).max()?;
        if of_home.iter().any(Vec::is_empty) {
            return None;
        }
        let instruction_ps = model.machine.instruction_ns * 1e3;
        let mean_work_ns = model.machine.instruction_ns * recording.instructions();
        let mut fibers: Vec<Fiber> = Vec::new();
        let mut all: Vec<Core> = Vec::new();
        let of = |home: usize| &of_home[home % homes.min(cores)];
        for core in 0..cores {
            // A terminal begins at a transaction of its own.
            let terminal = |home: usize, terminal: usize, terminals: usize| -> Vec<(usize, usize)> {
                let list = of(home);
                let first = terminal * list.len() / terminals + home / homes;
                (0..list.len()).map(|n| (home, list[(first + n) % list.len()])).collect()
            };
            let mut lists: Vec<Vec<(usize, usize)>> = match plan.assignment {
                TerminalAssignment::ByHome => vec![terminal(core, 0, 1)],
                TerminalAssignment::Spread { terminals } | TerminalAssignment::Itas { terminals, .. } => {
                    (0..terminals).map(|n| terminal((core + cores - n % cores) % cores, n, terminals)).collect()
                }
            };
            if let TerminalAssignment::Spread { .. } = plan.assignment {
                let rounds = lists.iter().map(Vec::len).max().unwrap_or(0);
                let in_rotation = (0..rounds).flat_map(|round| lists.iter().map(move |list| list[round % list.len()]));
                lists = vec![in_rotation.collect()];
            }
            // Fibers of a core are ordered by home, so that all cores run the homes in the same order.
            lists.sort_by_key(|list| list.first().map(|(home, _)| *home));
            let first = fibers.len();
            fibers.extend(lists.into_iter().map(|runs| Fiber { core, runs, ..Fiber::default() }));
            all.push(Core {
                fibers: (first..fibers.len()).collect(),
                current: 0,
                slice_end: 0,
                written_ps: 0,
                written_class: 0,
                wait: None,
                is_idle: false,
                done: 0,
                began_ps: 0,
                took_ps: None,
                record: 0,
            });
        }
        let classes = recording.classes.len();
        let sums =
            ScaleResult { latch_wait_ns: vec![0.0; classes], again_ns: vec![0.0; classes], ..ScaleResult::default() };
        Some(Simulation {
            model,
            assignment: plan.assignment,
            failed_attempt: if plan.after_splits { AccessKind::Read } else { AccessKind::Atomic },
            homes,
            transactions,
            instruction_ps,
            mean_work_ns,
            warm_up: each,
            measured: each * plan.passes,
            transfers: LineTransfers::new(model.machine, classes),
            under_way: all.len(),
            cores: all,
            fibers,
            locks: LockQueues::default(),
            latches: HashMap::default(),
            queue: BinaryHeap::new(),
            tail: 0,
            ages: 0,
            sums,
        })
    }

    fn run(&mut self) {
        for core in 0..self.cores.len() {
            let first = self.cores[core].fibers[0];
            self.begin_transaction(first);
            let start = core as u64 * START_PS.0 % START_PS.1 + self.first_work(first);
            self.queue.push(Reverse((start, core)));
            for other in 1..self.cores[core].fibers.len() {
                self.begin_transaction(self.cores[core].fibers[other]);
            }
        }
        while self.under_way > 0 {
            let Some(Reverse((now, core))) = self.queue.pop() else {
                // Recorded latches taken in another order may wait for each other, which the engine avoids: one goes on.
                if !self.break_latch_cycle() {
                    return;
                }
                continue;
            };
            let mut now = now;
            while let Some(then) = self.step(core, now) {
                now = then;
                // The core goes on without the queue as long as it is the next one.
                if self.under_way == 0 || self.queue.peek().is_some_and(|Reverse((first, _))| *first < then) {
                    self.queue.push(Reverse((then, core)));
                    break;
                }
            }
        }
    }

    fn result(mut self) -> ScaleResult {
        let committed = (self.cores.len() * self.measured) as f64;
        let took: f64 = self.cores.iter().map(|core| core.took_ps.map_or(f64::INFINITY, |ps| ps as f64 / 1e3)).sum();
        let sums = &mut self.sums;
        for ns in sums.latch_wait_ns.iter_mut().chain(&mut sums.again_ns).chain(sums.lock_wait_ns.values_mut()) {
            *ns /= committed;
        }
        for sum in [
            &mut sums.again,
            &mut sums.lock_waits,
            &mut sums.aborts,
            &mut sums.abort_ns,
            &mut sums.log_bytes,
            &mut sums.work_ns,
        ] {
            *sum /= committed;
        }
        // The measured transactions may be longer or shorter than the mean of all recorded ones. The cores lose the same time,
        // and the work of a transaction takes its mean time.
        let lost_ns = (took / committed - sums.work_ns).max(0.0);
        sums.per_second = self.cores.len() as f64 * 1e9 / (self.mean_work_ns + lost_ns);
        sums.lines = self.transfers.kinds.iter().map(|kind| kind.over(committed)).collect();
        self.sums
    }

    fn work(&self, instructions: u64) -> u64 {
        (instructions as f64 * self.instruction_ps) as u64
    }

    fn fiber_of(&self, core: usize) -> FiberId {
        let core = &self.cores[core];
        core.fibers[core.current]
    }

    fn transaction_of(&self, fiber: FiberId) -> (usize, &PlacedTransaction) {
        let fiber = &self.fibers[fiber];
        let (home, number) = fiber.runs[fiber.run % fiber.runs.len()];
        (home, &self.transactions[number])
    }

    /// Time of the instructions before the next step of a fiber.
    fn first_work(&self, fiber: FiberId) -> u64 {
        let (_, transaction) = self.transaction_of(fiber);
        transaction
            .steps
            .get(self.fibers[fiber].step)
            .map_or(0, |placed| self.work(placed.step.instructions_before.into()))
    }

    fn begin_transaction(&mut self, fiber: FiberId) {
        self.ages += 1;
        self.fibers[fiber].age = self.ages;
        self.restart(fiber);
    }

    fn restart(&mut self, fiber: FiberId) {
        let fiber = &mut self.fibers[fiber];
        fiber.step = 0;
        fiber.instructions = 0;
        fiber.versions.clear();
    }

    fn is_measured(&self, core: usize) -> bool {
        let done = self.cores[core].done;
        (self.warm_up..self.warm_up + self.measured).contains(&done)
    }

    /// Ends the wait of a core that runs again.
    fn end_wait(&mut self, core: usize, now: u64) {
        let Some((began, cause)) = self.cores[core].wait.take() else { return };
        if !self.is_measured(core) {
            return;
        }
        let ns = now.saturating_sub(began) as f64 / 1e3;
        match cause {
            WaitCause::Latch(class) => self.sums.latch_wait_ns[usize::from(class)] += ns,
            WaitCause::Lock(table) => *self.sums.lock_wait_ns.entry(table).or_default() += ns,
        }
    }

    /// Executes the next step of a core. Returns the time of the step after it; `None` if the core waits for another core.
    fn step(&mut self, core: usize, now: u64) -> Option<u64> {
        self.end_wait(core, now);
        self.cores[core].is_idle = false;
        let fiber = self.fiber_of(core);
        let (home, transaction) = self.transaction_of(fiber);
        let at = self.fibers[fiber].step;
        let Some(placed) = transaction.steps.get(at).copied() else {
            let after = u64::from(transaction.instructions_after);
            return Some(self.end_transaction(core, fiber, now + self.work(after).max(1)));
        };
        let step = placed.step;
        self.fibers[fiber].instructions += u64::from(step.instructions_before);
        let tag = placed.sharing.tag(home, self.homes, core) << 48;
        let address = match step.effect {
            Effect::WriteRecord => LOG + self.cores[core].record + step.address,
            _ => step.address ^ tag,
        };
        let measured = self.is_measured(core);
        let mut start = now;
        if is_fence(&step) {
            // Earlier writes of the core become visible first.
            let Core { written_ps, written_class, .. } = self.cores[core];
            start = start.max(written_ps);
            if measured {
                self.transfers.kinds[usize::from(written_class)].wait_ns += (start - now) as f64 / 1e3;
            }
        }
        // A latch that is held, or whose version is not that of the section.
        if let Effect::ReadLatch { .. } | Effect::TakeLatch { .. } = step.effect
            && let Some(next) = self.latch_conflict(core, fiber, address, start)
        {
            return next;
        }
        let request = LineRequest { core, address, kind: step.class, operation: step.operation, measured };
        let ready = self.transfers.access(request, start);
        if step.operation == AccessKind::Write {
            let core = &mut self.cores[core];
            if ready > core.written_ps {
                (core.written_ps, core.written_class) = (ready, step.class);
            }
        }
        let mut then = if step.operation.waits() { ready } else { start };
        match step.effect {
            Effect::None | Effect::WriteRecord => {}
            Effect::ReadLatch { .. } => {
                let version = self.latches.entry(address).or_default().version;
                let fiber = &mut self.fibers[fiber];
                fiber.versions.insert(address, (version, fiber.instructions));
            }
            Effect::TakeLatch { begin } => {
                self.latches.entry(address).or_default().holder = Some(fiber);
                self.fibers[fiber].latches.push((address, begin.map_or(at, |begin| begin as usize)));
            }
            Effect::ReleaseLatch => {
                let visible = self.cores[core].written_ps.max(start);
                self.release_latch(fiber, address, visible, true);
            }
            Effect::Lock { group } => {
                if let Some(next) = self.lock(core, fiber, home, group, then) {
                    return next;
                }
            }
            Effect::Unlock { group } => self.unlock(fiber, home, group, then),
            Effect::Reserve { bytes } => {
                self.cores[core].record = self.tail;
                self.tail += u64::from(bytes);
                if measured {
                    self.sums.log_bytes += f64::from(bytes);
                }
            }
        }
        self.fibers[fiber].step += 1;
        then += self.first_work(fiber);
        Some(then)
    }

    /// Checks the latch before a read or an exclusive acquisition. Returns `None` if the step can go on; otherwise the time of
    /// the core's next step, or `Some(None)` if the core waits.
    fn latch_conflict(&mut self, core: usize, fiber: FiberId, address: u64, now: u64) -> Option<Option<u64>> {
        let at = self.fibers[fiber].step;
        let (_, transaction) = self.transaction_of(fiber);
        let step = transaction.steps[at].step;
        let begin = match step.effect {
            Effect::ReadLatch { begin } => Some(begin as usize),
            Effect::TakeLatch { begin } => begin.map(|begin| begin as usize),
            _ => None,
        };
        let takes = matches!(step.effect, Effect::TakeLatch { .. });
        let latch = self.latches.entry(address).or_default();
        if latch.holder == Some(fiber) {
            return None;
        }
        let is_held = latch.holder.is_some() || now < latch.free_ps;
        let version = latch.version;
        let measured = self.is_measured(core);
        let known = self.fibers[fiber].versions.get(&address).copied();
        if let Some(begin) = begin.filter(|begin| *begin < at)
            && let Some((known, instructions)) = known
            && (is_held || known != version)
            && self.fibers[fiber].latches.is_empty()
            && self.fibers[fiber].again < MOST_AGAIN
        {
            // The section begins again, after the line with the changed version has come.
            let operation = if takes { self.failed_attempt } else { AccessKind::Read };
            let request = LineRequest { core, address, kind: step.class, operation, measured };
            let ready = self.transfers.access(request, now);
            let again = self.fibers[fiber].instructions - instructions;
            if measured {
                self.sums.again += 1.0;
                self.sums.again_ns[usize::from(step.class)] += self.work(again) as f64 / 1e3;
            }
            let fiber = &mut self.fibers[fiber];
            fiber.step = begin;
            fiber.instructions = instructions;
            fiber.versions.remove(&address);
            fiber.again += 1;
            return Some(Some(ready.max(now + 1)));
        }
        let begins = begin == Some(at) || known.is_none();
        if is_held && (takes || begins) {
            self.cores[core].wait = Some((now, WaitCause::Latch(step.class)));
            // The step will be executed again.
            self.fibers[fiber].instructions -= u64::from(step.instructions_before);
            let latch = self.latches.entry(address).or_default();
            if latch.holder.is_none() {
                return Some(Some(latch.free_ps));
            }
            latch.waiters.push(core);
            return Some(None);
        }
        if !begins {
            self.fibers[fiber].again = 0;
        }
        None
    }

    /// Releases a latch at `visible`, and lets the cores go on that wait for it.
    fn release_latch(&mut self, fiber: FiberId, address: u64, visible: u64, has_written: bool) {
        self.fibers[fiber].latches.retain(|(held, _)| *held != address);
        let latch = self.latches.entry(address).or_default();
        if latch.holder == Some(fiber) {
            latch.holder = None;
            latch.free_ps = visible;
            latch.version += u64::from(has_written);
            for core in std::mem::take(&mut latch.waiters) {
                self.queue.push(Reverse((visible, core)));
            }
        }
    }

    /// Requests the locks of a group. Returns `None` if all are granted; otherwise as [`Simulation::latch_conflict`].
    fn lock(&mut self, core: usize, fiber: FiberId, home: usize, group: u32, now: u64) -> Option<Option<u64>> {
        let (_, transaction) = self.transaction_of(fiber);
        for lock in transaction.locks[group as usize].clone() {
            let name = lock_name(lock.name, lock.sharing, home, self.homes, core);
            if self.locks.request(name, fiber, lock.is_exclusive) {
                if !self.fibers[fiber].locks.contains(&name) {
                    self.fibers[fiber].locks.push(name);
                }
                continue;
            }
            if self.is_measured(core) {
                self.sums.lock_waits += 1.0;
            }
            self.give_up_latches(fiber, now);
            if let Some(cycle) = self.locks.cycle(fiber)
                && let Some(victim) = cycle.into_iter().max_by_key(|fiber| self.fibers[*fiber].age)
            {
                self.abort(victim, now);
                if victim == fiber {
                    return Some(Some(now + self.first_work(fiber).max(1)));
                }
                if self.locks.awaited(fiber).is_none() {
                    // The victim held the lock, which is granted now.
                    return Some(Some(now + self.first_work(fiber).max(1)));
                }
            }
            return Some(self.switch(core, now, Some(lock.table)));
        }
        None
    }

    /// Releases the latches of a fiber that is about to wait for a lock. It will repeat the steps since the first of them.
    fn give_up_latches(&mut self, fiber: FiberId, now: u64) {
        let first = self.fibers[fiber].latches.iter().map(|(_, step)| *step).min();
        for (address, _) in self.fibers[fiber].latches.clone() {
            self.release_latch(fiber, address, now, false);
        }
        let (_, transaction) = self.transaction_of(fiber);
        let at = self.fibers[fiber].step;
        let first = first.unwrap_or(at);
        let repeated: u64 =
            transaction.steps[first..=at].iter().map(|placed| u64::from(placed.step.instructions_before)).sum();
        let fiber = &mut self.fibers[fiber];
        fiber.step = first;
        fiber.instructions = fiber.instructions.saturating_sub(repeated);
    }

    /// Chooses the next fiber of a core whose fiber waits for a lock of this table, or whose time slice is over. Returns the
    /// time of its step; `None` if all fibers wait.
    fn switch(&mut self, core: usize, now: u64, waits_for: Option<u32>) -> Option<u64> {
        let Core { fibers, current, .. } = &self.cores[core];
        let count = fibers.len();
        let is_ready = |n: &usize| self.locks.awaited(fibers[*n]).is_none();
        let next = (1..=count).map(|n| (current + n) % count).find(is_ready);
        let Some(next) = next else {
            let cause = WaitCause::Lock(waits_for.unwrap_or_default());
            let core = &mut self.cores[core];
            (core.wait, core.is_idle) = (Some((now, cause)), true);
            return None;
        };
        self.cores[core].current = next;
        if let TerminalAssignment::Itas { slice_ns, .. } = self.assignment {
            self.cores[core].slice_end = now + (slice_ns * 1e3) as u64;
        }
        Some(now + self.first_work(self.fiber_of(core)).max(1))
    }

    fn unlock(&mut self, fiber: FiberId, home: usize, group: u32, now: u64) {
        let (_, transaction) = self.transaction_of(fiber);
        let core = self.fibers[fiber].core;
        for lock in transaction.locks[group as usize].clone() {
            self.release_lock(fiber, lock_name(lock.name, lock.sharing, home, self.homes, core), now);
        }
    }

    fn release_lock(&mut self, fiber: FiberId, name: u64, now: u64) {
        self.fibers[fiber].locks.retain(|held| *held != name);
        for granted in self.locks.release(name, fiber) {
            self.fibers[granted].locks.push(name);
            self.wake(granted, now);
        }
    }

    /// Lets a fiber go on that was granted a lock or rolled back.
    fn wake(&mut self, fiber: FiberId, now: u64) {
        let number = self.fibers[fiber].core;
        let core = &mut self.cores[number];
        if core.is_idle {
            core.is_idle = false;
            core.current = core.fibers.iter().position(|of| *of == fiber).unwrap_or(0);
            self.queue.push(Reverse((now + (self.model.wake_ns * 1e3) as u64, number)));
        }
    }

    /// Rolls a transaction back and begins it again.
    fn abort(&mut self, victim: FiberId, now: u64) {
        let core = self.fibers[victim].core;
        if self.is_measured(core) {
            self.sums.aborts += 1.0;
            self.sums.abort_ns += self.work(self.fibers[victim].instructions) as f64 / 1e3;
        }
        self.restart(victim);
        if let Some(name) = self.locks.awaited(victim) {
            for granted in self.locks.release(name, victim) {
                self.fibers[granted].locks.push(name);
                self.wake(granted, now);
            }
            self.wake(victim, now);
        }
        self.release_locks(victim, now);
    }

    fn release_locks(&mut self, fiber: FiberId, now: u64) {
        while let Some(&name) = self.fibers[fiber].locks.last() {
            self.release_lock(fiber, name, now);
        }
    }

    /// Ends the transaction of a fiber. Returns the time of the core's next step.
    fn end_transaction(&mut self, core: usize, fiber: FiberId, now: u64) -> u64 {
        if self.is_measured(core) {
            let (_, transaction) = self.transaction_of(fiber);
            self.sums.work_ns += self.work(transaction.instructions) as f64 / 1e3;
        }
        self.release_locks(fiber, now);
        self.fibers[fiber].run += 1;
        self.begin_transaction(fiber);
        let state = &mut self.cores[core];
        state.done += 1;
        if state.done == self.warm_up {
            state.began_ps = now;
        } else if state.done == self.warm_up + self.measured {
            state.took_ps = Some(now - state.began_ps);
            self.under_way -= 1;
        }
        if matches!(self.assignment, TerminalAssignment::Itas { .. })
            && now >= self.cores[core].slice_end
            && let Some(next) = self.switch(core, now, None)
        {
            return next;
        }
        now + self.first_work(fiber).max(1)
    }

    /// Lets one core go on that waits for a latch. Returns false if none waits.
    fn break_latch_cycle(&mut self) -> bool {
        let waiting = self.latches.values_mut().find(|latch| !latch.waiters.is_empty());
        let Some(latch) = waiting else { return false };
        latch.holder = None;
        let free = latch.free_ps;
        for core in std::mem::take(&mut latch.waiters) {
            let began = self.cores[core].wait.map_or(0, |(began, _)| began);
            self.queue.push(Reverse((free.max(began) + 1, core)));
        }
        true
    }
}

/// Name of a lock in the model.
fn lock_name(name: u64, sharing: Sharing, home: usize, recorded: usize, core: usize) -> u64 {
    name ^ sharing.tag(home, recorded, core).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
