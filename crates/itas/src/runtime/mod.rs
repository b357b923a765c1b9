//! Worker threads, one per core, whose fibers are scheduled by a [policy](crate::policy).
//!
//! A fiber stays on its thread. The runtime moves work that has not begun, and work between two operations ([`Work`]).
//! Such work moves to the core that the placement assigns to its group, or to an idle core.

mod builder;
mod clock;
mod control;
mod helpers;
mod order;
mod shared;
mod slice;
mod trace;
mod watchdog;
mod work;
mod worker;

use std::any::Any;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use builder::{BuildError, Builder};
use helpers::Helpers;
pub use helpers::blocking;
pub use slice::point;
pub use trace::Slice;
pub use watchdog::Stuck;
pub use work::{Progress, Work};

use crate::auto::Mode;
use crate::group::{Aggregation, GroupError, GroupId, Groups, nanos};
use crate::placement::{Placement, PlacementWord};
use crate::publish::Board;
use crate::stats::CoreStatistics;
use control::{Automatic, Tuning};
use shared::Shared;
use work::SingleOperation;
use worker::{Worker, WorkerReport};

/// Error of a run.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Work panicked. The remaining work has been run to its end.
    #[error("work on core {core} failed: {error}")]
    Failed {
        /// Number of the core.
        core: usize,
        /// Error of the fiber, with the name of the fiber.
        error: sched_steps::FiberError,
    },
    /// The operating system could not start a worker thread.
    #[error("core {core} has no thread: {error}")]
    Thread {
        /// Number of the core.
        core: usize,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The operating system could not start a thread for [`blocking`] work, or for monitoring the workers.
    #[error("no thread beside the workers: {error}; allow more (ulimit -u; pids.max of a container)")]
    Helper {
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A worker could not be set up: no memory for its stacks, or too many executors.
    #[error("core {core} could not begin: {error}")]
    Worker {
        /// Number of the core.
        core: usize,
        /// Error of building the executor.
        error: sched_steps::BuildError,
    },
}

impl std::fmt::Debug for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Statistics of each core, indexed by core.
    pub cores: Vec<CoreStatistics>,
    /// Proven upper bound of the time that a fiber waited for its turn, indexed by core. See [the
    /// bound](crate#bound-on-waiting).
    pub wait_bounds: Vec<Duration>,
    /// First slices of each core, up to the number set by [`Builder::trace`], indexed by core.
    pub slices: Vec<Vec<Slice>>,
    /// CPU time of each core's thread, indexed by core. It is less than `elapsed` if other threads had the processor or
    /// the core was idle.
    pub cpu: Vec<Duration>,
    /// Fibers that kept their cores for longer than [`Builder::watchdog`] permits.
    pub stuck: Vec<Stuck>,
    /// Duration of the run.
    pub elapsed: Duration,
}

impl Report {
    /// Sums the statistics of all cores.
    #[must_use]
    pub fn total(&self) -> CoreStatistics {
        let mut total = CoreStatistics::default();
        self.cores.iter().for_each(|core| total.add(core));
        total
    }

    /// Returns the largest ratio of a core's longest wait to its bound, over all cores: at most 1.
    #[must_use]
    pub fn longest_wait_to_bound(&self) -> f64 {
        let parts = self.cores.iter().zip(&self.wait_bounds).filter(|(_, bound)| !bound.is_zero());
        parts.map(|(core, bound)| core.longest_wait_ns() as f64 / bound.as_nanos() as f64).fold(0.0, f64::max)
    }
}

/// Schedules fibers of sibling groups on worker threads. Created by [`Runtime::builder`].
///
/// Threads exist only during a call of [`Runtime::run`]. So a process that is forked between two calls can run the
/// runtime. A process that is forked inside `with` has no workers, and may only execute another program or end without
/// returning (`exec`, `_exit`).
pub struct Runtime {
    pub(crate) config: builder::Config,
    groups: Arc<Groups>,
    board: Arc<Board>,
    placement: Arc<PlacementWord>,
    automatic: Option<Mutex<Automatic>>,
    tuning: Option<Mutex<Tuning>>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Returns a builder with the default settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Adds a group with the default weight and aggregation.
    ///
    /// # Errors
    /// The table of groups is full.
    pub fn group(&self, name: &str) -> Result<GroupId, GroupError> {
        self.groups.add(name, crate::DEFAULT_WEIGHT, Aggregation::default())
    }

    /// Returns the table of groups. Groups may be added, and their parameters changed, while fibers run.
    #[must_use]
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Returns the board with the roles of the cores, which may be changed while fibers run.
    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Returns the mode chosen by an automatic runtime; `None` while modes are compared, and for a runtime with a fixed
    /// policy. During a run the call blocks until the run ends.
    #[must_use]
    pub fn chosen_mode(&self) -> Option<Mode> {
        self.automatic.as_ref().and_then(|automatic| automatic.lock().chooser.chosen())
    }

    /// Returns the `agg_limit` that a tuned runtime has found for a group; `None` for other runtimes, and before the
    /// first run. During a run the call blocks until the run ends.
    #[must_use]
    pub fn tuned_limit(&self, group: GroupId) -> Option<u32> {
        self.tuning.as_ref().and_then(|tuning| tuning.lock().limit(group))
    }

    /// Returns a handle that changes the placement of work, even while fibers run.
    #[must_use]
    pub fn placement_changer(&self) -> PlacementChanger {
        PlacementChanger(Arc::clone(&self.placement))
    }

    /// Starts the workers. Calls `with` on the calling thread after all workers have begun. Returns after `with` has
    /// returned and all spawned work has ended. Work may borrow values that outlive the call.
    ///
    /// The work keeps the contract of [`Builder::build`].
    ///
    /// # Errors
    /// The first [`RunError`]. If a worker could not begin, `with` was not called. The other cause is work that
    /// panicked.
    ///
    /// # Panics
    /// If `with` panics; all spawned work is run to its end before the panic is resumed.
    pub fn run<'env, R>(&mut self, with: impl FnOnce(&Spawner<'_, 'env>) -> R) -> Result<(R, Report), RunError> {
        let began = Instant::now();
        let cores = self.config.workers;
        let slice_ns = nanos(self.config.slice());
        let shared = Shared::new(Arc::clone(&self.groups), cores, Arc::clone(&self.placement), slice_ns);
        let (calls, waiting) = helpers::channel();
        let helpers = Helpers::new(waiting, self.config.helpers);
        let (over, is_over) = crossbeam_channel::bounded::<()>(0);
        let monitored = Mutex::new(vec![None; cores]);
        let stuck = Mutex::new(Vec::new());
        let (ready, begun) = crossbeam_channel::bounded(cores);
        let (result, ends) = std::thread::scope(|threads| {
            let mut started = helpers.grow(threads).map_err(|error| RunError::Helper { error });
            if let Some(limit) = self.config.watchdog {
                let (monitored, stuck, tell) = (&monitored, &stuck, &self.config.on_stuck);
                let is_over = is_over.clone();
                let work = move || {
                    watchdog::watch(monitored, limit, &is_over, |found| {
                        if let Some(tell) = tell {
                            tell(&found);
                        }
                        stuck.lock().push(found);
                    });
                };
                started = started.and_then(|()| spawn_service_thread(threads, "itas-watchdog", work));
            }
            if let Some(automatic) = &self.automatic {
                let (monitored, placement, is_over) = (&monitored, &self.placement, is_over.clone());
                let work = move || automatic.lock().control(monitored, placement, &is_over);
                started = started.and_then(|()| spawn_service_thread(threads, "itas-chooser", work));
            }
            if let Some(tuning) = &self.tuning {
                let (monitored, groups, is_over) = (&monitored, &self.groups, is_over.clone());
                let work = move || tuning.lock().control(monitored, groups, slice_ns, &is_over);
                started = started.and_then(|()| spawn_service_thread(threads, "itas-tuner", work));
            }
            let workers: Vec<_> = (0..cores)
                .map(|core| {
                    let worker = Worker {
                        core,
                        config: &self.config,
                        board: &self.board,
                        shared: &shared,
                        monitored: &monitored,
                        helpers: calls.clone(),
                        ready: ready.clone(),
                    };
                    std::thread::Builder::new()
                        .name(format!("itas-{core}"))
                        .spawn_scoped(threads, move || worker.work())
                        .map_err(|error| RunError::Thread { core, error })
                })
                .collect();
            drop((calls, ready));
            let spawner = Spawner { shared: &shared };
            // A worker that cannot begin drops its sender.
            let have_begun = started.is_ok() && begun.iter().take(cores).count() == cores;
            if !have_begun {
                shared.outstanding.abort();
            }
            let result = have_begun.then(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| with(&spawner))));
            shared.outstanding.close();
            let ends: Vec<_> = workers.into_iter().map(|worker| worker.map(ScopedJoinHandle::join)).collect();
            drop(over);
            (result, started.map(|()| ends))
        });
        shared.clear();
        let result = result.transpose().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        let mut report = Report {
            cores: Vec::new(),
            wait_bounds: Vec::new(),
            slices: Vec::new(),
            cpu: Vec::new(),
            stuck: stuck.into_inner(),
            elapsed: began.elapsed(),
        };
        for end in ends? {
            let WorkerReport { statistics, bound, cpu, slices } =
                end?.unwrap_or_else(|payload: Box<dyn Any + Send>| std::panic::resume_unwind(payload))?;
            report.cores.push(statistics);
            report.wait_bounds.push(bound);
            report.slices.push(slices);
            report.cpu.push(cpu);
        }
        // A worker that did not begin has returned its error above.
        let Some(result) = result else { unreachable!("all workers ended well, and not all had begun") };
        Ok((result, report))
    }
}

/// Starts a helper or control thread of the run.
fn spawn_service_thread<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), RunError> {
    let begun = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
    begun.map(drop).map_err(|error| RunError::Helper { error })
}

/// Handle that changes the placement of a runtime's work.
#[derive(Clone, Debug)]
pub struct PlacementChanger(Arc<PlacementWord>);

impl PlacementChanger {
    /// Sets the placement, which applies to work from its next operation on.
    pub fn set(&self, placement: Placement) {
        self.0.set(placement);
    }
}

/// Passes work to the workers of a run, from any thread.
pub struct Spawner<'run, 'env> {
    shared: &'run Shared<'env>,
}

impl std::fmt::Debug for Spawner<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl<'env> Spawner<'_, 'env> {
    /// Runs `call` on a fiber of `group`. The work waits for a free slot if all are taken.
    ///
    /// # Errors
    /// The group is unknown.
    pub fn spawn(&self, group: GroupId, call: impl FnOnce() + Send + 'env) -> Result<(), GroupError> {
        self.spawn_work(group, SingleOperation(Some(call)))
    }

    /// Runs `work` on fibers of `group`, operation by operation. Between two operations it may be moved to another core.
    ///
    /// # Errors
    /// The group is unknown.
    pub fn spawn_work(&self, group: GroupId, work: impl Work + 'env) -> Result<(), GroupError> {
        self.shared.submit(group, Box::new(work))
    }
}
