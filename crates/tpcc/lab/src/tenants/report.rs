//! Report of `tpcc tenants`.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// Figures of one policy over its rounds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct PolicyFigures {
    /// Transactions of all tenants, per second.
    pub throughput_per_s: f64,
    /// Jain's index of the time that tenants ran: 1 if all ran equally long.
    pub jain: f64,
    /// Longest wait of a runnable fiber, in microseconds.
    pub max_wait_us: f64,
    /// Proved bound of the longest wait, on its core in its round, in microseconds.
    pub wait_bound_us: f64,
    /// Largest ratio of a wait to its bound in any round.
    pub wait_to_bound: f64,
    /// Median wait, in microseconds.
    pub wait_p50_us: f64,
    /// 99th percentile of waits, in microseconds.
    pub wait_p99_us: f64,
    /// Switches to a fiber of another group, per second.
    pub group_switches: f64,
    /// Switches to a fiber of the same group, per second.
    pub sibling_switches: f64,
    /// Number of slices that took more than twice their time.
    pub overruns: u64,
    /// Iterations of the background loops, per second; none without loops.
    pub background_per_s: Option<f64>,
    /// Mode that the automatic policy chose; none for other policies, and before the choice.
    pub chosen: Option<String>,
    /// Share of the workers' time in which their threads had a processor.
    pub cpu_share: f64,
}

/// Output of `tpcc tenants --json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TenantsReport {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Number of tenants, each with a database.
    pub tenants: usize,
    /// Number of terminals of each tenant.
    pub terminals_per_tenant: usize,
    /// Rows of each tenant; null for warehouses.
    pub rows: Option<u64>,
    /// Distribution of the chosen rows.
    pub access: String,
    /// Transactions of the terminals.
    pub mix: String,
    /// Number of loop programs besides the tenants.
    pub background: usize,
    /// Number of worker threads.
    pub workers: usize,
    /// Time of a slice, in microseconds.
    pub slice_us: f64,
    /// `agg_limit`: maximum number of consecutive choices of siblings.
    pub agg_limit: u32,
    /// `agg_bonus`: a sibling is preferred while its vruntime exceeds the smallest one by at most this, in microseconds.
    pub agg_bonus_us: f64,
    /// Seed of the random number generators.
    pub seed: u64,
    /// Number of rounds in the figures.
    pub rounds: usize,
    /// Number of dropped rounds, in which a worker's thread had a processor for less than 97% of the time. If too few rounds
    /// were left, all are kept, and this is 0: see `cpu_share`.
    pub rounds_dropped: usize,
    /// Figures by policy.
    pub policies: BTreeMap<String, PolicyFigures>,
    /// Ratio of the throughput of each other policy to that of fair; empty without fair.
    pub ratio: BTreeMap<String, f64>,
    /// Lower ends of the 95% intervals of `ratio`.
    pub ratio_low: BTreeMap<String, f64>,
    /// Upper ends of the 95% intervals of `ratio`.
    pub ratio_high: BTreeMap<String, f64>,
}
