//! Several databases in one process, scheduled in several ways (after the ITAS paper: Yamada and Kusakabe, AJIT 2009).
//!
//! Each tenant has a database of its own, in memory; its terminals are fibers of one sibling group. The policies take turns,
//! a round each, on the same databases, so that what else happens on the machine concerns all of them; what is told of a
//! policy beside its figures is the ratio to `fair` over the rounds, in pairs. In a round fibers begin in random order:
//! sorted by tenant, `fair` would aggregate by accident.

pub mod background;
mod report;
mod rounds;
mod tenant;
pub mod terminal;
mod trace;

use std::path::PathBuf;
use std::time::Duration;

use itas::auto::{AutoSettings, Mode};
use itas::{Aggregation, Builder, Runtime};

pub use self::report::TenantsReport;
pub use self::rounds::{Warehouse, run};
pub use self::tenant::TenantMix;
use tpcc_core::engines::storage::fibers;
use tpcc_core::workload::error::Error;

/// Stack of a fiber: transactions keep groups of rows on theirs.
const STACK_BYTES: usize = 128 << 10;

/// How tenants share the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, clap::ValueEnum)]
pub enum TenantPolicy {
    /// the smallest vruntime next
    Fair,
    /// siblings one after the other on each core
    Tas,
    /// so, and all siblings on one core
    Packed,
    /// siblings on all cores at the same time
    Itas,
    /// the one of these that does most, by trial
    Auto,
}

impl TenantPolicy {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        self.mode().map_or("auto", Mode::name)
    }

    /// What it is fixed to; none if it chooses.
    fn mode(self) -> Option<Mode> {
        match self {
            TenantPolicy::Fair => Some(Mode::Fair),
            TenantPolicy::Tas => Some(Mode::Tas),
            TenantPolicy::Packed => Some(Mode::Packed),
            TenantPolicy::Itas => Some(Mode::Itas),
            TenantPolicy::Auto => None,
        }
    }
}

/// How rows are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Access {
    /// each as likely as any other
    Uniform,
    /// around the middle one, with a standard deviation of a tenth of the rows
    Gaussian,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct TenantsPlan {
    pub tenants: usize,
    pub terminals: usize,
    pub rows: u64,
    pub access: Access,
    pub mix: TenantMix,
    /// Loop programs beside the tenants.
    pub background: usize,
    pub policies: Vec<TenantPolicy>,
    pub workers: usize,
    pub slice: Duration,
    pub aggregation: Aggregation,
    /// Time that each policy is measured, in all its rounds.
    pub duration: Duration,
    pub seed: u64,
    /// Where slices of the first rounds are written.
    pub trace: Option<PathBuf>,
}

impl TenantsPlan {
    /// Time in which each group has had a full turn on a core.
    fn cycle(&self) -> Duration {
        (self.tenants + self.background) as u32 * self.turn()
    }

    /// Time in which each fiber has had as many slices in a row as its siblings may have.
    fn fiber_cycle(&self) -> Duration {
        self.fibers() as u32 * self.turn() / self.workers as u32
    }

    /// Terminals and loops.
    fn fibers(&self) -> usize {
        self.tenants * self.terminals + self.background
    }

    /// Bytes of stacks that a fiber uses: of one under each policy, whose runtimes are kept over all rounds.
    pub fn stack_bytes(&self) -> u64 {
        /// The rest of a stack is reserved, and never touched.
        const USED: usize = 16 << 10;
        (self.policies.len() * USED) as u64
    }

    /// Bytes that a row of a tenant takes.
    pub fn row_bytes() -> u64 {
        tenant::bytes_of_a_row()
    }

    /// Bytes that a tenant takes, without its fibers. One of the mix tpcc is known once its warehouse is loaded.
    pub fn tenant_bytes(&self) -> u64 {
        let rows = if self.mix == TenantMix::Tpcc { 0 } else { self.rows };
        tenant::bytes_of_a_database(self.terminals).saturating_add(rows.saturating_mul(TenantsPlan::row_bytes()))
    }

    /// The longest aggregation.
    fn turn(&self) -> Duration {
        (self.aggregation.limit + 1).min(64) * self.slice
    }

    /// The settings of a policy's runtime.
    fn builder(&self, policy: TenantPolicy) -> Builder {
        let builder = Runtime::builder()
            .workers(self.workers)
            .fibers(self.fibers())
            .stack_bytes(STACK_BYTES)
            .slice(self.slice)
            .pin(true);
        match policy.mode() {
            Some(mode) => builder.policies(move |_| mode.policy()).placement(mode.placement()),
            None => builder.automatic(AutoSettings::for_cycle(self.cycle())),
        }
    }

    /// The runtime of a policy.
    pub fn runtime(&self, policy: TenantPolicy, trace: usize) -> Result<Runtime, Error> {
        fibers::runtime(self.builder(policy).trace(trace)).map_err(|error| Error::usage(error.to_string()))
    }
}
