//! Worker whose transactions are scheduled by home warehouse (ITAS, AJIT 2009). The fibers of a worker take transactions of
//! terminals; a fiber belongs to the sibling group of its transaction's home warehouse. Sibling fibers run one after the
//! other, so that the rows of a warehouse stay in the caches. A warehouse has one home worker, or several if there are more
//! workers than warehouses. With the policy `itas`, the workers of a warehouse run its group at the same time; in the paper
//! these are all workers (`--partition none`).
//!
//! A time slice ends only between transactions. A transaction preempted in the middle would keep its locks, and other
//! transactions of its group, which use the same rows, would wait for these locks. While a transaction waits for a lock or a
//! page, other transactions run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use itas::auto::Mode;
use itas::{Aggregation, Board, CoreHandle, CoreSettings, CoreStatistics, GroupId, Groups, Scheduler, core_order};
use sched_steps::{Executor, fiber};

use super::fiber_pool::{FiberPool, SchedulerCallbacks};
use super::{Runner, STACK_BYTES, Workplace};
use crate::driver::WorkerResult;
use crate::driver::admission::Ready;
use crate::driver::worker_terminals::{Job, WorkerTerminals};
use crate::engines::storage::fiber_hook::{FiberHook, StoreHook};
use crate::engines::storage::fibers;
use crate::engines::storage::waits_only::WaitsOnly;
use crate::workload::engine::Engine;
use crate::workload::error::Error;
use crate::workload::time::nanos;

/// Runner with fibers that are scheduled by warehouse.
pub struct ItasRunner {
    fibers: usize,
    mode: Mode,
    slice: Duration,
    groups: Arc<Groups>,
    board: Arc<Board>,
    /// Identifier of the sibling group of each warehouse.
    ids: Vec<GroupId>,
    began: Instant,
    /// True if fiber stacks request large pages.
    large_stacks: bool,
    figures: Mutex<SiblingFigures>,
}

/// Statistics of sibling groups over the workers of a run.
#[derive(Clone, Debug, Default)]
pub struct SiblingFigures {
    /// Sum of the statistics of all workers.
    pub total: CoreStatistics,
    /// Largest upper bound of a group's wait for its turn, over the workers.
    pub wait_bound: Duration,
    /// Largest ratio of a wait to the wait bound of its worker.
    pub wait_to_bound: f64,
}

impl ItasRunner {
    /// Creates a runner with up to `fibers` concurrent transactions per worker, for `workers` workers and `warehouses`
    /// warehouses.
    pub fn new(
        fibers: usize,
        mode: Mode,
        slice: Duration,
        workers: usize,
        warehouses: u32,
    ) -> Result<ItasRunner, Error> {
        let groups = Groups::new();
        let ids = (1..=warehouses)
            .map(|w| groups.add(&format!("warehouse {w}"), itas::DEFAULT_WEIGHT, Aggregation::default()))
            .collect::<Result<_, _>>()
            .map_err(|error| Error::failed(error.to_string()))?;
        Ok(ItasRunner {
            fibers,
            mode,
            slice,
            groups: Arc::new(groups),
            board: Arc::new(Board::new(workers)),
            ids,
            began: Instant::now(),
            large_stacks: false,
            figures: Mutex::default(),
        })
    }

    /// Sets the use of large pages for stacks.
    pub fn large_stacks(self, large: bool) -> ItasRunner {
        ItasRunner { large_stacks: large, ..self }
    }

    /// Creates the hook with which the engine must be opened.
    pub fn hook() -> Arc<dyn StoreHook> {
        Arc::new(FiberHook::new(WaitsOnly))
    }

    /// Returns the statistics of all workers, after the run.
    pub fn figures(&self) -> SiblingFigures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Scheduler callbacks of a worker's fibers.
struct ByWarehouse<'a> {
    core: CoreHandle,
    ids: &'a [GroupId],
    began: Instant,
}

impl SchedulerCallbacks for ByWarehouse<'_> {
    #[inline]
    fn begins(&self, job: &Job) {
        let group = self.ids[job.warehouse as usize - 1];
        // The change cannot fail: the runner created all groups.
        let another = self.core.change_group(group).unwrap_or(false);
        if another || self.core.slice_is_over() {
            fiber::yield_now();
        }
    }

    fn measuring(&self) {
        let now = nanos(self.began.elapsed());
        self.core.with(|scheduler| scheduler.reset_statistics(now));
    }
}

impl Runner for ItasRunner {
    fn team_size(&self) -> usize {
        self.fibers
    }

    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, terminals: WorkerTerminals<'_, R>) -> WorkerResult {
        let settings = CoreSettings { slice: self.slice, sleeper_credit: self.slice, paper_slaves: false };
        let (groups, board) = (Arc::clone(&self.groups), Arc::clone(&self.board));
        let scheduler = Scheduler::new(place.number, groups, board, self.mode.policy(), settings);
        let began = self.began;
        let ordered = core_order(scheduler, self.ids.clone(), move || nanos(began.elapsed()));
        let (order, core) = match ordered {
            Ok(ordered) => ordered,
            Err(error) => return WorkerResult::failed(error.to_string()),
        };
        let builder = Executor::builder().fibers(place.size.max(1)).stack_bytes(STACK_BYTES).order(order);
        let builder = builder.large_pages(self.large_stacks);
        let mut executor = match fibers::executor(builder) {
            Ok(executor) => executor,
            Err(e) => return WorkerResult::failed(format!("{e}; pass a smaller --team-size")),
        };
        let callbacks = ByWarehouse { core: core.clone(), ids: &self.ids, began };
        let result = FiberPool::new(callbacks, terminals, place.steps).run(&mut executor, place.size.max(1), place);
        let stacks = fibers::stacks(&executor);
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        core.with(|scheduler| {
            figures.total.add(scheduler.statistics());
            figures.wait_bound = figures.wait_bound.max(scheduler.wait_bound());
            figures.wait_to_bound = figures.wait_to_bound.max(scheduler.longest_wait_to_bound());
        });
        WorkerResult { stacks, ..result }
    }
}
