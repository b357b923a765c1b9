//! Setting up a runtime.

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

/// Most workers of a runtime.
const MAX_WORKERS: usize = 512;

/// Why a runtime was not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {value}: {must}")]
pub struct BuildError {
    /// The setting.
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it must be.
    pub must: &'static str,
}

/// Makes the policy of a core.
type MakePolicy = dyn Fn(usize) -> Box<dyn Policy> + Send + Sync;

/// Is told of a fiber that does not give way.
type TellStuck = dyn Fn(&Stuck) + Send + Sync;

/// What a runtime was built with.
pub(crate) struct Config {
    pub(crate) workers: usize,
    pub(super) fibers: usize,
    pub(super) stack_bytes: usize,
    pub(super) core: CoreSettings,
    pub(super) policy: Arc<MakePolicy>,
    pub(super) pin: bool,
    pub(super) helpers: usize,
    pub(super) trace: usize,
    pub(super) watchdog: Option<Duration>,
    pub(super) on_stuck: Option<Box<TellStuck>>,
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
    /// Worker threads, 1 to 512; as many as the machine has cores. Each is a core of the paper.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Builder {
        self.config.workers = workers;
        self
    }

    /// Fibers that live at a time on a worker, from 1; 256. More work waits for one to end.
    #[must_use]
    pub fn fibers(mut self, fibers: usize) -> Builder {
        self.config.fibers = fibers;
        self
    }

    /// Bytes of stack per fiber; 64 KiB.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.config.stack_bytes = bytes;
        self
    }

    /// How long a fiber runs before another may; 50 us. It gives way at the first [`point`](crate::point) after that.
    #[must_use]
    pub fn slice(mut self, slice: Duration) -> Builder {
        self.config.core.slice = slice;
        self
    }

    /// Slices, credit of sleepers, and whether slaves keep to the paper's rules only.
    #[must_use]
    pub fn core_settings(mut self, settings: CoreSettings) -> Builder {
        self.config.core = settings;
        self
    }

    /// The policy of all cores; [`Fair`].
    #[must_use]
    pub fn policy(self, policy: impl Policy + Clone + Sync + 'static) -> Builder {
        self.policies(move |_| Box::new(policy.clone()))
    }

    /// The policy of each core, made when a run begins.
    #[must_use]
    pub fn policies(mut self, make: impl Fn(usize) -> Box<dyn Policy> + Send + Sync + 'static) -> Builder {
        self.config.policy = Arc::new(make);
        self
    }

    /// Chooses policy and placement by what they do for the work: see [`auto`](crate::auto). What is chosen stays known from
    /// one run to the next. A policy and a placement that were given mean nothing then.
    #[must_use]
    pub fn automatic(mut self, settings: AutoSettings) -> Builder {
        self.config.automatic = Some(settings);
        self
    }

    /// Sets `agg_bonus` and `agg_limit` of every group while it runs, by what operations cost early and late in a row of
    /// siblings: see [`Tuner`](crate::auto::Tuner). What was found stays known from one run to the next.
    #[must_use]
    pub fn tuned(mut self, settings: TunerSettings) -> Builder {
        self.config.tuned = Some(settings);
        self
    }

    /// On which core a group's work begins; [`Placement::Spread`].
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Builder {
        self.placement = placement;
        self
    }

    /// Binds worker `i` to the `i`-th processor that the process may use, where the system lets it; false.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Builder {
        self.config.pin = pin;
        self
    }

    /// Threads for work that [blocks](crate::blocking), at most, 1 to 512; 64. They are started as they are needed.
    #[must_use]
    pub fn helpers(mut self, helpers: usize) -> Builder {
        self.config.helpers = helpers;
        self
    }

    /// Slices that each worker records; none.
    #[must_use]
    pub fn trace(mut self, slices: usize) -> Builder {
        self.config.trace = slices;
        self
    }

    /// Watches for fibers that do not give way for `limit`: `tell` is called on the watching thread, and the report of the
    /// run names them. Without it no fiber is watched.
    #[must_use]
    pub fn watchdog(mut self, limit: Duration, tell: impl Fn(&Stuck) + Send + Sync + 'static) -> Builder {
        self.config.watchdog = Some(limit);
        self.config.on_stuck = Some(Box::new(tell));
        self
    }

    /// Builds the runtime. No thread is started before it runs.
    ///
    /// # Safety
    /// All work that the runtime ever runs keeps the contract of [`sched_steps::Builder::build`]: where it gives way (at
    /// [`point`](crate::point), in [`blocking`](crate::blocking), in waits of `sched_steps::fiber`), nothing is open that must
    /// be closed in reverse order of opening among all that opens it on its thread.
    ///
    /// # Errors
    /// [`BuildError`] names the setting that makes no sense.
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
