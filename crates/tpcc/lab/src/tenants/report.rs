//! What is told of tenants.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// One policy, over its rounds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct PolicyFigures {
    /// Transactions of all tenants, a second.
    pub throughput_per_s: f64,
    /// Jain's index of the time that tenants ran: 1 if all got the same.
    pub jain: f64,
    /// The longest wait of a fiber that could run, in microseconds.
    pub max_wait_us: f64,
    /// How long one waited at most by proof, on that core in that round, in microseconds.
    pub wait_bound_us: f64,
    /// The largest part of its bound that a wait reached in any round.
    pub wait_to_bound: f64,
    /// Half of the waits were shorter, in microseconds.
    pub wait_p50_us: f64,
    /// 99 of 100 were shorter, in microseconds.
    pub wait_p99_us: f64,
    /// Choices after which a fiber of another group ran, a second.
    pub group_switches: f64,
    /// Choices after which a fiber of the same group ran, a second.
    pub sibling_switches: f64,
    /// Slices that ran on for more than twice their time.
    pub overruns: u64,
    /// Iterations of the background loops, a second; none without them.
    pub background_per_s: Option<f64>,
    /// What the automatic choice came to; none for other policies, and while it is not made.
    pub chosen: Option<String>,
    /// Share of the time of the workers in which their threads had a processor.
    pub cpu_share: f64,
}

/// `tpcc tenants`, as written with `--json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TenantsReport {
    /// The schema's `$id`.
    pub schema: String,
    /// Databases.
    pub tenants: usize,
    /// Terminals of each.
    pub terminals_per_tenant: usize,
    /// Rows of each, where they are not warehouses.
    pub rows: Option<u64>,
    /// How rows are chosen.
    pub access: String,
    /// What terminals do.
    pub mix: String,
    /// Loop programs beside the tenants.
    pub background: usize,
    /// Worker threads.
    pub workers: usize,
    /// Time of a slice, in microseconds.
    pub slice_us: f64,
    /// `agg_limit`.
    pub agg_limit: u32,
    /// `agg_bonus`, in microseconds.
    pub agg_bonus_us: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds that do not, because a worker's thread had a processor for less than 97% of the time. Where too few would be
    /// left, all count, and this is 0: see `cpu_share`.
    pub rounds_dropped: usize,
    /// By policy.
    pub policies: BTreeMap<String, PolicyFigures>,
    /// Throughput of each other policy to that of fair; empty without fair.
    pub ratio: BTreeMap<String, f64>,
    /// The lower ends of their 95% intervals.
    pub ratio_low: BTreeMap<String, f64>,
    /// The upper ends.
    pub ratio_high: BTreeMap<String, f64>,
}
