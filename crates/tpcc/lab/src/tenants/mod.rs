//! Several databases in one process, scheduled by several policies (after the ITAS paper: Yamada and Kusakabe, AJIT 2009).
//!
//! Each tenant has its own database in memory; its terminals are fibers of one sibling group. The policies alternate, one
//! round each, on the same databases, so that disturbances of the machine affect all of them. The report has figures of each
//! policy, and the ratio of its throughput to that of `fair`, paired by round. Fibers begin each round in random order:
//! sorted by tenant, `fair` would aggregate siblings by accident.

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

/// Stack size of a fiber, in bytes. Transactions keep groups of rows on the stack.
const STACK_BYTES: usize = 128 << 10;

/// Scheduling policy of the tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, clap::ValueEnum)]
pub enum TenantPolicy {
    /// smallest vruntime next
    Fair,
    /// siblings one after the other on each core
    Tas,
    /// as tas, with all siblings on one core
    Packed,
    /// siblings on all cores at the same time
    Itas,
    /// fastest of these policies, chosen by trial
    Auto,
}

impl TenantPolicy {
    /// Returns the name of the policy, as on the command line.
    pub fn name(self) -> &'static str {
        self.mode().map_or("auto", Mode::name)
    }

    /// Returns the fixed mode of the policy; `None` if the policy chooses its mode.
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

/// Distribution of the chosen rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Access {
    /// all rows equally likely
    Uniform,
    /// around the middle row, with a standard deviation of a tenth of the rows
    Gaussian,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct TenantsPlan {
    /// Number of tenants, each with a database of its own.
    pub tenants: usize,
    /// Terminals of each tenant.
    pub terminals: usize,
    /// Rows of each tenant; ignored with the mix tpcc.
    pub rows: u64,
    /// Distribution of the rows that terminals choose.
    pub access: Access,
    /// Transactions of the terminals.
    pub mix: TenantMix,
    /// Number of loop programs besides the tenants.
    pub background: usize,
    /// Policies that take turns.
    pub policies: Vec<TenantPolicy>,
    /// Worker threads of each policy.
    pub workers: usize,
    /// Duration of a time slice.
    pub slice: Duration,
    /// Limit and bonus of the preference for siblings.
    pub aggregation: Aggregation,
    /// Measured time of each policy over all its rounds.
    pub duration: Duration,
    /// Seed of the random number generators.
    pub seed: u64,
    /// Output file for the slices of the first rounds.
    pub trace: Option<PathBuf>,
}

impl TenantsPlan {
    /// Returns the time in which each group has one full turn on a core.
    fn cycle(&self) -> Duration {
        (self.tenants + self.background) as u32 * self.max_aggregation()
    }

    /// Returns the time in which each fiber, on all workers together, has as many consecutive slices as its siblings may
    /// have.
    fn fiber_cycle(&self) -> Duration {
        self.fibers() as u32 * self.max_aggregation() / self.workers as u32
    }

    /// Returns the number of fibers: terminals and loops.
    fn fibers(&self) -> usize {
        self.tenants * self.terminals + self.background
    }

    /// Returns the number of stack bytes that a fiber uses. A fiber has one stack for each policy, because the runtimes are
    /// kept over all rounds.
    pub fn stack_bytes(&self) -> u64 {
        /// Used part of a stack, in bytes; the rest is reserved and never touched.
        const USED: usize = 16 << 10;
        (self.policies.len() * USED) as u64
    }

    /// Returns the memory of a row of a tenant, in bytes.
    pub fn row_bytes() -> u64 {
        tenant::row_bytes()
    }

    /// Returns the memory of a tenant without its fibers, in bytes. With the mix tpcc the rows are not included: their size
    /// is known once the warehouse is loaded.
    pub fn tenant_bytes(&self) -> u64 {
        let rows = if self.mix == TenantMix::Tpcc { 0 } else { self.rows };
        tenant::database_bytes(self.terminals).saturating_add(rows.saturating_mul(TenantsPlan::row_bytes()))
    }

    /// Returns the maximum duration of an aggregation.
    fn max_aggregation(&self) -> Duration {
        (self.aggregation.limit + 1).min(64) * self.slice
    }

    /// Returns the runtime settings of a policy.
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

    /// Creates the runtime of a policy, whose workers record `trace` slices each.
    pub fn runtime(&self, policy: TenantPolicy, trace: usize) -> Result<Runtime, Error> {
        fibers::runtime(self.builder(policy).trace(trace)).map_err(|error| Error::usage(error.to_string()))
    }
}
