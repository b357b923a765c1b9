//! A worker: an executor whose order is the core's scheduler, and an intake fiber that spawns fibers for new work.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use sched_steps::{Executor, Idle, Scope, fiber};

use super::RunError;
use super::builder::Config;
use super::clock::now_ns;
use super::helpers::HelperConnection;
use super::order::{CorePublicState, CoreState, WorkerOrder};
use super::shared::{AssignedJob, Job, OutstandingWork, Shared};
use super::slice::{self, point};
use super::trace::{Recorder, Slice};
use super::watchdog::MonitoredCore;
use super::work::Progress;
use crate::group::{GroupEntry, GroupId};
use crate::publish::Board;
use crate::scheduler::Scheduler;
use crate::stats::CoreStatistics;

/// Results of a worker.
pub(super) struct WorkerReport {
    pub(super) statistics: CoreStatistics,
    pub(super) bound: Duration,
    pub(super) cpu: Duration,
    pub(super) slices: Vec<Slice>,
}

/// Parameters of a worker.
pub(super) struct Worker<'run, 'env> {
    pub(super) core: usize,
    pub(super) config: &'run Config,
    pub(super) board: &'run Arc<Board>,
    pub(super) shared: &'run Shared<'env>,
    pub(super) monitored: &'run Mutex<Vec<Option<MonitoredCore>>>,
    pub(super) helpers: Sender<Box<dyn FnOnce() + Send>>,
    /// Channel that gets one message after the worker has begun.
    pub(super) ready: Sender<()>,
}

impl<'env> Worker<'_, 'env> {
    /// Runs a worker on its thread until the run is over.
    pub(super) fn work(self) -> Result<WorkerReport, RunError> {
        let (core, config, shared) = (self.core, self.config, self.shared);
        // Work is dropped by the last thread that holds it. If this worker fails, the guard aborts the run for the
        // other workers.
        let _abort = AbortGuard(&shared.outstanding);
        if config.pin {
            pin(core);
        }
        let _connection = HelperConnection::to(&self.helpers);
        drop(self.helpers);
        let slots = config.fibers + 1;
        let public_state = Arc::new(CorePublicState::new(slots));
        let policy = (config.policy)(core);
        let mut scheduler =
            Scheduler::new(core, Arc::clone(&shared.groups), Arc::clone(self.board), policy, config.core);
        scheduler.reset_statistics(now_ns());
        let recorder = Recorder::new(config.trace);
        let state = Rc::new(RefCell::new(CoreState::new(scheduler, Arc::clone(&public_state), recorder)));
        let mut idle_callback =
            IdleCallback::new(core, Arc::clone(&shared.outstanding), Duration::from_nanos(shared.reservation_ns));
        let builder = Executor::builder()
            .fibers(slots)
            .stack_bytes(config.stack_bytes)
            .order(WorkerOrder(Rc::clone(&state)))
            .idle(move |idle| idle_callback.call(idle));
        // SAFETY: the caller of `Builder::build` has promised the contract for all work. The runtime's own fibers are
        // suspended in the intake, in `point` and in `blocking`, where no thread-local is open: this crate's
        // thread-locals are cells that are read and written within one call.
        #[allow(unsafe_code)]
        let built = unsafe { builder.build() };
        let mut executor = built.map_err(|error| RunError::Worker { core, error })?;
        // The channel has room for one message per worker, so this does not block.
        let _ = self.ready.send(());
        drop(self.ready);
        let ran = executor.scope(|scope| {
            let state = &state;
            scope.spawn_named("intake", move || {
                let context = CoreContext { core, capacity: config.fibers, shared, state };
                self.monitored.lock()[core] =
                    fiber::monitor().map(|monitor| MonitoredCore { monitor, public_state: Arc::clone(&public_state) });
                context.run_intake(scope);
            });
        });
        slice::set_end(u64::MAX);
        self.monitored.lock()[core] = None;
        ran.map_err(|error| RunError::Failed { core, error })?;
        drop(executor);
        let Some(state) = Rc::into_inner(state) else { unreachable!("the executor's order is gone") };
        let CoreState { scheduler, recorder, .. } = state.into_inner();
        Ok(WorkerReport {
            statistics: scheduler.statistics().clone(),
            bound: scheduler.wait_bound(),
            cpu: cpu_time(),
            slices: recorder.into_slices(),
        })
    }
}

/// Guard that aborts the run for the other workers if this worker ends early.
struct AbortGuard<'a>(&'a OutstandingWork);

impl Drop for AbortGuard<'_> {
    fn drop(&mut self) {
        if !self.0.is_over() {
            self.0.abort();
        }
    }
}

/// Idle callback of a core.
struct IdleCallback {
    core: usize,
    outstanding: Arc<OutstandingWork>,
    /// Time after which an idle core may take work that was assigned to another core.
    reservation: Duration,
    /// True if the intake has searched for waiting work and has found none that this core may take yet.
    has_searched: bool,
}

impl IdleCallback {
    fn new(core: usize, outstanding: Arc<OutstandingWork>, reservation: Duration) -> IdleCallback {
        IdleCallback { core, outstanding, reservation, has_searched: false }
    }

    /// Lets the intake search for waiting work on other cores, if there is any. If there is none, marks the core as
    /// idle and waits.
    fn call(&mut self, idle: &Idle<'_>) {
        let IdleCallback { core, outstanding, reservation, has_searched } = self;
        if outstanding.has_backlog() && !std::mem::replace(has_searched, true) {
            outstanding.wake(*core);
            return;
        }
        *has_searched = false;
        let bit = if *core < 64 { 1u64 << *core } else { 0 };
        outstanding.idle_cores.fetch_or(bit, Ordering::SeqCst);
        if outstanding.has_backlog() {
            // The work is still reserved for another core. If the work was queued before the bit was set, this core was
            // not woken for it, so this core parks for the time of the reservation only.
            idle.park(Some(*reservation));
        } else {
            idle.wait();
        }
        outstanding.idle_cores.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Next work of a core.
enum NextJob<'env> {
    /// Work of this core. An idle core may take it until its fiber begins.
    Own(GroupEntry, Arc<AssignedJob<'env>>),
    /// Work taken from another core. It begins at once, because this core has no other work.
    Stolen(Job<'env>),
}

/// Data of a core that its fibers use.
struct CoreContext<'a, 'env> {
    core: usize,
    capacity: usize,
    shared: &'a Shared<'env>,
    state: &'a Rc<RefCell<CoreState>>,
}

impl<'a, 'env> CoreContext<'a, 'env> {
    /// Runs the intake fiber, which spawns fibers for new work until the run is over.
    fn run_intake<'scope>(&self, scope: &'scope Scope<'scope, '_>)
    where
        'env: 'scope,
        'a: 'scope,
    {
        self.shared.outstanding.set_intake(self.core, fiber::waker());
        while !self.shared.outstanding.is_over() {
            if self.state.borrow().scheduler.live() == self.capacity {
                self.state.borrow_mut().intake_waker = fiber::waker();
                fiber::park();
                continue;
            }
            match self.next() {
                Some(NextJob::Own(group, assigned)) => self.spawn(scope, group.id(), move |context| {
                    let _group = group;
                    if let Some(job) = context.shared.begin(&assigned) {
                        context.serve(job);
                    }
                }),
                Some(NextJob::Stolen(job)) => self.spawn(scope, job.group, move |context| context.serve(job)),
                None => fiber::park(),
            }
        }
        self.shared.outstanding.set_intake(self.core, None);
    }

    /// Returns the next work of this core. If there is none and no fiber of this core can run, returns work of another
    /// core.
    fn next(&self) -> Option<NextJob<'env>> {
        if let Some((group, assigned)) = self.shared.take(self.core) {
            return Some(NextJob::Own(group, assigned));
        }
        let state = self.state.borrow();
        if state.scheduler.queued() > 0 {
            return None;
        }
        self.shared.steal(self.core, state.scheduler.last_group()).map(NextJob::Stolen)
    }

    /// Runs `serve` on a fiber of `group`.
    fn spawn<'scope>(
        &self,
        fibers: &'scope Scope<'scope, '_>,
        group: GroupId,
        serve: impl FnOnce(&CoreContext<'a, 'env>) + 'scope,
    ) where
        'env: 'scope,
        'a: 'scope,
    {
        let CoreContext { core, capacity, shared, state } = *self;
        state.borrow_mut().spawning_group = Some(group);
        fibers.spawn(move || serve(&CoreContext { core, capacity, shared, state }));
    }

    /// Runs the body of a fiber: runs operations of one piece of work until the work is done or moves to another core.
    fn serve(&self, mut job: Job<'env>) {
        let (_, version) = self.shared.placement();
        let public_state = Arc::clone(&self.state.borrow().public_state);
        loop {
            let progress = job.work.run();
            public_state.count_operation();
            if progress == Progress::Done {
                return;
            }
            let others_wait = || self.state.borrow().scheduler.queued() > 0;
            if let Some(other) = self.shared.moves_to(self.core, &job, version, others_wait) {
                self.shared.enqueue(other, job);
                return;
            }
            point();
        }
    }
}

/// Returns the CPU time of the calling thread. The thread has done no other work than the worker's.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Binds the calling thread to the `core`-th processor that it may use. Does nothing if there is no such processor, or
/// if the system refuses.
fn pin(core: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).nth(core) else { return };
    let mut one = CpuSet::new();
    one.set(cpu);
    let _ = sched_setaffinity(None, &one);
}
