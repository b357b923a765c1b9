//! Kinds of schedulers of a simulation. Also the scheduler for threads, which pass a baton.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use storage::{BlockReason, Hook, WaitToken};

use super::fibers::Fibers;
use super::order::{self, Decisions, MAX_SERVANT_STEPS, Role, Sim, nanos};
use super::panics::{self, catch_panic};
use super::rng::Rng;
use super::slots::{BatonSlots, Work};

/// Kind of scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheduler {
    /// Runs each worker on its own thread
    #[default]
    Threads,
    /// Runs workers as a team of fibers that switch at points inside their statements
    Steps,
    /// Runs workers as fibers of sibling groups that switch at points inside their statements
    Itas,
}

impl Scheduler {
    /// Creates the scheduler of a run with at most `actors` workers and servants.
    pub(crate) fn sim(self, seed: u64, actors: usize, now_ns: Arc<AtomicU64>) -> Arc<dyn Sim> {
        match self {
            Scheduler::Threads => Arc::new(Baton::new(seed, actors, now_ns)),
            Scheduler::Steps => Arc::new(Fibers::new(seed, actors, now_ns)),
            Scheduler::Itas => Arc::new(Fibers::of_siblings(seed, actors, now_ns)),
        }
    }

    /// Returns the command line flag that selects this scheduler.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Scheduler::Threads => "",
            Scheduler::Steps => " --scheduler steps",
            Scheduler::Itas => " --scheduler itas",
        }
    }
}

/// Scheduler for threads. Only the thread with the baton runs.
#[derive(Debug)]
pub(super) struct Baton {
    state: Mutex<BatonState>,
    slots: BatonSlots,
    now_ns: Arc<AtomicU64>,
}

#[derive(Debug)]
struct BatonState {
    decisions: Decisions,
    actors: Vec<Actor>,
    /// Number of the worker with the baton; `None` outside of [`Sim::run`].
    running: Option<usize>,
    /// Number of workers that have not ended.
    working: usize,
    servant_steps: u32,
    /// Reason for which the run was stopped, if it was.
    broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActorState {
    Ready,
    /// Waiting until the token at this address is woken, or until this time, if any.
    Waiting(usize, Option<u64>),
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Actor {
    state: ActorState,
    /// True for a servant. The run ends when all workers that are not servants have ended.
    serves: bool,
}

impl Baton {
    fn new(seed: u64, actors: usize, now_ns: Arc<AtomicU64>) -> Baton {
        let state = BatonState {
            decisions: Decisions::new(Rng::new(seed)),
            actors: Vec::new(),
            running: None,
            working: 0,
            servant_steps: 0,
            broken: None,
        };
        Baton { state: Mutex::new(state), slots: BatonSlots::new(actors), now_ns }
    }
}

impl Sim for Baton {
    fn trace(&self) -> u64 {
        self.state().decisions.trace()
    }

    fn run(&self, roles: Vec<Role<'_>>) -> Result<(), String> {
        let work = {
            let mut state = self.state();
            state.actors = roles.iter().map(|r| Actor { state: ActorState::Ready, serves: r.serves }).collect();
            state.working = roles.iter().filter(|r| !r.serves).count();
            state.servant_steps = 0;
            state.running = Some(0);
            let ends = roles.into_iter().enumerate().map(|(me, role)| -> Work<'_> {
                Box::new(move || {
                    let ended = catch_panic(role.work);
                    self.end(me, ended.err());
                })
            });
            ends.collect()
        };
        self.slots.run(work, 0);
        let mut state = self.state();
        state.running = None;
        state.broken.clone().map_or(Ok(()), Err)
    }

    fn pause(&self) {
        let mut state = self.state();
        let Some(me) = state.running else { return };
        self.stop_if_broken(&state);
        state.decisions.tick(&self.now_ns);
        if state.decisions.rng().once_in(3) {
            self.switch(state, me);
        }
    }

    fn is_over(&self) -> bool {
        self.state().working == 0
    }

    fn is_last(&self) -> bool {
        let state = self.state();
        let left = state.actors.iter().filter(|a| a.state != ActorState::Ended).count();
        left <= 1
    }
}

impl Baton {
    fn state(&self) -> MutexGuard<'_, BatonState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unwinds the calling worker if the run is stopped. The state of all workers is dropped with the run. Servants
    /// continue, because the rollback of a dropped transaction may need them.
    fn stop_if_broken(&self, state: &BatonState) {
        let serves = state.running.is_some_and(|me| state.actors[me].serves) && state.working > 0;
        if state.broken.is_some() && !serves && !std::thread::panicking() {
            panics::stop();
        }
    }

    fn end(&self, me: usize, panic: Option<String>) {
        let mut state = self.state();
        if let Some(message) = panic {
            state.broken.get_or_insert(message);
        }
        if !state.actors[me].serves {
            state.working -= 1;
        }
        state.actors[me].state = ActorState::Ended;
        if let Some(next) = state.choose(&self.now_ns) {
            drop(state);
            self.slots.pass(me, next, true);
        }
    }

    /// Chooses the next worker. Passes the baton to it, unless it is the calling worker.
    fn switch(&self, mut state: MutexGuard<'_, BatonState>, me: usize) {
        // There is a next worker: one is ready, or the run is stopped and the waiting workers are ready to stop.
        let next = state.choose(&self.now_ns).unwrap_or(me);
        drop(state);
        if next != me {
            self.slots.pass(me, next, false);
        }
        let state = self.state();
        self.stop_if_broken(&state);
    }

    fn wait(&self, token: &WaitToken, reason: BlockReason, limit: Option<Duration>) -> bool {
        let limit = order::limit(limit);
        if token.try_consume() {
            return true;
        }
        let mut state = self.state();
        self.stop_if_broken(&state);
        let Some(me) = state.running else {
            drop(state);
            // No other worker is left. A wait with a limit ends at once; a wait without a limit would never end.
            if limit.is_none() {
                panics::raise_finding(format!("hang: a lone caller would wait for ever ({reason:?})"));
            }
            return false;
        };
        let until = limit.map(|limit| self.now_ns.load(Ordering::Relaxed).saturating_add(nanos(limit)));
        if state.broken.is_some() && std::thread::panicking() && state.are_others_ended(me) {
            // The process is aborted, because neither the wait nor the run would ever end.
            eprintln!("a worker that unwinds waits for ever ({reason:?}), after: {:?}", state.broken);
            std::process::abort();
        }
        state.actors[me].state = ActorState::Waiting(std::ptr::from_ref(token).addr(), until);
        state.decisions.note(reason as u64 + 100);
        self.switch(state, me);
        token.try_consume()
    }
}

impl BatonState {
    fn are_others_ended(&self, me: usize) -> bool {
        self.actors.iter().enumerate().all(|(other, actor)| other == me || actor.state == ActorState::Ended)
    }

    /// Chooses the next worker and gives it the baton. Returns `None` if all workers have ended.
    fn choose(&mut self, now_ns: &AtomicU64) -> Option<usize> {
        loop {
            if self.actors.iter().all(|a| a.state == ActorState::Ended) {
                return None;
            }
            self.decisions.tick(now_ns);
            let now = now_ns.load(Ordering::Relaxed);
            let broken = self.broken.is_some();
            let can_go = |actor: &Actor| match actor.state {
                ActorState::Ready => true,
                ActorState::Waiting(_, Some(until)) => until <= now || broken,
                ActorState::Waiting(_, None) => broken,
                ActorState::Ended => false,
            };
            let ready: Vec<usize> = (0..self.actors.len()).filter(|i| can_go(&self.actors[*i])).collect();
            if ready.is_empty() {
                let next = self.actors.iter().filter_map(|a| match a.state {
                    ActorState::Waiting(_, until) => until,
                    _ => None,
                });
                match next.min() {
                    Some(until) => now_ns.fetch_max(until, Ordering::Relaxed),
                    None => return self.stop_run("everybody waits, and nobody will wake anybody"),
                };
                continue;
            }
            let chosen = self.decisions.rng().pick(&ready);
            self.servant_steps = if self.actors[chosen].serves { self.servant_steps + 1 } else { 0 };
            if self.servant_steps > MAX_SERVANT_STEPS && !broken && self.working > 0 {
                return self.stop_run("the workers wait for something that no service brings");
            }
            self.actors[chosen].state = ActorState::Ready;
            self.running = Some(chosen);
            self.decisions.note(chosen as u64);
            self.decisions.note(now);
            return Some(chosen);
        }
    }

    /// Stops the run. Every worker that receives the baton from now on unwinds.
    fn stop_run(&mut self, why: &str) -> Option<usize> {
        let waiting = self.actors.iter().filter(|a| matches!(a.state, ActorState::Waiting(..))).count();
        self.broken.get_or_insert(format!("hang: {why} ({waiting} of {} wait)", self.actors.len()));
        let next = (0..self.actors.len()).find(|i| self.actors[*i].state != ActorState::Ended)?;
        self.actors[next].state = ActorState::Ready;
        self.running = Some(next);
        Some(next)
    }
}

impl Hook for Baton {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn point(&self, _site: u32) {
        let mut state = self.state();
        let Some(me) = state.running else { return };
        // A statement has many preemption points, so the worker continues without a switch at most of them.
        if state.broken.is_none() && state.decisions.rng().once_in(16) {
            self.switch(state, me);
        }
    }

    fn task(&self) -> u64 {
        // The number of a thread is its position in the run, and therefore deterministic. Threads outside the run have other
        // numbers.
        self.state().running.map_or_else(|| u64::MAX - storage::thread_number(), |actor| actor as u64 + 1)
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
        let mut state = self.state();
        for actor in &mut state.actors {
            if matches!(actor.state, ActorState::Waiting(at, _) if at == address) {
                actor.state = ActorState::Ready;
            }
        }
    }
}
