//! Construction and settings of a runtime.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Runtime;
use super::control::{Automatic, Tuning};
use super::watchdog::Stuck;
use crate::auto::{AutoSettings, TunerSettings};
use crate::group::Groups;
use crate::placement::{Placement, PlacementWord};
use crate::policy::{Fair, Policy};
use crate::publish::Board;
use crate::scheduler::CoreSettings;

/// Maximum number of workers of a runtime.
const MAX_WORKERS: usize = 512;

/// Error of [`Builder::build`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {value}: {must}")]
pub struct BuildError {
    /// Name of the setting.
    pub name: &'static str,
    /// Rejected value.
    pub value: String,
    /// Permitted values.
    pub must: &'static str,
}

/// Creates the policy of the core with the given number.
type PolicyFactory = dyn Fn(usize) -> Box<dyn Policy> + Send + Sync;

/// Callback that reports a fiber that does not give up its core.
type StuckCallback = dyn Fn(&Stuck) + Send + Sync;

/// Settings with which a runtime was built.
pub(crate) struct Config {
    pub(crate) workers: usize,
    pub(super) fibers: usize,
    pub(super) stack_bytes: usize,
    pub(super) core: CoreSettings,
    pub(super) policy: Arc<PolicyFactory>,
    pub(super) pin: bool,
    pub(super) helpers: usize,
    pub(super) trace: usize,
    pub(super) watchdog: Option<Duration>,
    pub(super) on_stuck: Option<Box<StuckCallback>>,
    pub(super) automatic: Option<AutoSettings>,
    pub(super) tuned: Option<TunerSettings>,
}

impl Config {
    pub(super) fn slice(&self) -> Duration {
        self.core.slice
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("workers", &self.workers)
            .field("fibers", &self.fibers)
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`Runtime`].
#[derive(Debug)]
pub struct Builder {
    config: Config,
    placement: Placement,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            config: Config {
                workers: std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS),
                fibers: 256,
                stack_bytes: 64 * 1024,
                core: CoreSettings::default(),
                policy: Arc::new(|_| Box::new(Fair)),
                pin: false,
                helpers: 64,
                trace: 0,
                watchdog: None,
                on_stuck: None,
                automatic: None,
                tuned: None,
            },
            placement: Placement::Spread,
        }
    }
}

impl Builder {
    /// Sets the number of worker threads, 1 to 512. Default: the number of available processors. A worker corresponds
    /// to a core in the paper.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Builder {
        self.config.workers = workers;
        self
    }

    /// Sets the maximum number of live fibers on a worker, 1 to 64,999. Default: 256. Work beyond this number waits
    /// until a fiber ends.
    #[must_use]
    pub fn fibers(mut self, fibers: usize) -> Builder {
        self.config.fibers = fibers;
        self
    }

    /// Sets the stack size of a fiber in bytes, at least [`sched_steps::MIN_STACK_BYTES`]. Default: 64 KiB.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.config.stack_bytes = bytes;
        self
    }

    /// Sets the length of the time slice, 1 us to 10 s. Default: 50 us. A fiber yields at the first
    /// [`point`](crate::point) after the end of its slice.
    #[must_use]
    pub fn slice(mut self, slice: Duration) -> Builder {
        self.config.core.slice = slice;
        self
    }

    /// Sets the slice, the sleeper credit, and the rule for slaves of all cores.
    #[must_use]
    pub fn core_settings(mut self, settings: CoreSettings) -> Builder {
        self.config.core = settings;
        self
    }

    /// Sets the policy of all cores. Default: [`Fair`].
    #[must_use]
    pub fn policy(self, policy: impl Policy + Clone + Sync + 'static) -> Builder {
        self.policies(move |_| Box::new(policy.clone()))
    }

    /// Sets the policy of each core. `make` is called with the number of the core at the start of each run.
    #[must_use]
    pub fn policies(mut self, make: impl Fn(usize) -> Box<dyn Policy> + Send + Sync + 'static) -> Builder {
        self.config.policy = Arc::new(make);
        self
    }

    /// Chooses policy and placement automatically by measured work: see [`auto`](crate::auto). The choice is kept from
    /// one run to the next. A policy or placement that was set otherwise has no effect.
    #[must_use]
    pub fn automatic(mut self, settings: AutoSettings) -> Builder {
        self.config.automatic = Some(settings);
        self
    }

    /// Sets `agg_bonus` and `agg_limit` of every group at run time, from the cost of operations early and late in a row
    /// of siblings: see [`Tuner`](crate::auto::Tuner). The results are kept from one run to the next.
    #[must_use]
    pub fn tuned(mut self, settings: TunerSettings) -> Builder {
        self.config.tuned = Some(settings);
        self
    }

    /// Sets the placement of the groups' work on cores. Default: [`Placement::Spread`].
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Builder {
        self.placement = placement;
        self
    }

    /// Binds worker `i` to the `i`-th processor that the process may use, if the system permits it. Default: false.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Builder {
        self.config.pin = pin;
        self
    }

    /// Sets the maximum number of helper threads for work that [blocks](crate::blocking), 1 to 512. Default: 64.
    /// Helpers are started on demand.
    #[must_use]
    pub fn helpers(mut self, helpers: usize) -> Builder {
        self.config.helpers = helpers;
        self
    }

    /// Sets the maximum number of slices that each worker records. Default: 0.
    #[must_use]
    pub fn trace(mut self, slices: usize) -> Builder {
        self.config.trace = slices;
        self
    }

    /// Enables the watchdog, which reports fibers that do not give up their core for `limit`, at least 1 ms. `callback`
    /// is called on the watchdog thread, and the report of the run lists the fibers. By default no fiber is watched.
    #[must_use]
    pub fn watchdog(mut self, limit: Duration, callback: impl Fn(&Stuck) + Send + Sync + 'static) -> Builder {
        self.config.watchdog = Some(limit);
        self.config.on_stuck = Some(Box::new(callback));
        self
    }

    /// Builds the runtime. Threads are started only by a run.
    ///
    /// # Safety
    /// All work that the runtime ever runs keeps the contract of [`sched_steps::Builder::build`]: where it is suspended
    /// (at [`point`](crate::point), in [`blocking`](crate::blocking), in waits of `sched_steps::fiber`), nothing is open
    /// that must be closed in reverse order of opening with respect to everything that opens it on its thread.
    ///
    /// # Errors
    /// [`BuildError`] names the setting that is out of range.
    #[allow(unsafe_code)]
    pub unsafe fn build(self) -> Result<Runtime, BuildError> {
        let Config { workers, fibers, stack_bytes, core, helpers, watchdog, .. } = &self.config;
        let check = |holds: bool, name, value: String, must| {
            if holds { Ok(()) } else { Err(BuildError { name, value, must }) }
        };
        check((1..=MAX_WORKERS).contains(workers), "workers", workers.to_string(), "from 1 to 512")?;
        check((1..65_000).contains(fibers), "fibers", fibers.to_string(), "from 1 to 64,999")?;
        check(*stack_bytes >= sched_steps::MIN_STACK_BYTES, "stack bytes", stack_bytes.to_string(), "at least 24,576")?;
        let slices = Duration::from_micros(1)..=Duration::from_secs(10);
        check(slices.contains(&core.slice), "slice", format!("{:?}", core.slice), "from 1 us to 10 s")?;
        let credit = core.sleeper_credit;
        check(credit <= Duration::from_secs(3600), "sleeper credit", format!("{credit:?}"), "at most an hour")?;
        check((1..=512).contains(helpers), "helpers", helpers.to_string(), "from 1 to 512")?;
        let least = Duration::from_millis(1);
        let limit = watchdog.unwrap_or(least);
        check(limit >= least, "watchdog", format!("{limit:?}"), "at least 1 ms")?;
        if let Some(AutoSettings { window, .. }) = self.config.automatic {
            check(window >= least, "window", format!("{window:?}"), "at least 1 ms")?;
        }
        if let Some(TunerSettings { interval, .. }) = self.config.tuned {
            check(interval >= least, "interval", format!("{interval:?}"), "at least 1 ms")?;
        }
        let mut config = self.config;
        let automatic = config.automatic.map(Automatic::new);
        if let Some(automatic) = &automatic {
            let policy = automatic.policy();
            config.policy = Arc::new(move |_| Box::new(policy.clone()));
        }
        Ok(Runtime {
            board: Arc::new(Board::new(config.workers)),
            groups: Arc::new(Groups::new()),
            placement: Arc::new(PlacementWord::new(self.placement)),
            automatic: automatic.map(Mutex::new),
            tuning: config.tuned.map(|settings| Mutex::new(Tuning::new(settings))),
            config,
        })
    }
}
