//! What is told of tenants.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// One policy, over its rounds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PolicyFigures {
    /// Transactions of all tenants, a second.
    pub(crate) throughput_per_s: f64,
    /// Jain's index of the time that tenants ran: 1 if all got the same.
    pub(crate) jain: f64,
    /// The longest wait of a fiber that could run, in microseconds.
    pub(crate) max_wait_us: f64,
    /// How long one waited at most by proof, on that core in that round, in microseconds.
    pub(crate) wait_bound_us: f64,
    /// The largest part of its bound that a wait reached in any round.
    pub(crate) wait_to_bound: f64,
    /// Half of the waits were shorter, in microseconds.
    pub(crate) wait_p50_us: f64,
    /// 99 of 100 were shorter, in microseconds.
    pub(crate) wait_p99_us: f64,
    /// Choices after which a fiber of another group ran, a second.
    pub(crate) group_switches: f64,
    /// Choices after which a fiber of the same group ran, a second.
    pub(crate) sibling_switches: f64,
    /// Slices that ran on for more than twice their time.
    pub(crate) overruns: u64,
    /// Iterations of the background loops, a second; none without them.
    pub(crate) background_per_s: Option<f64>,
    /// What the automatic choice came to; none for other policies, and while it is not made.
    pub(crate) chosen: Option<String>,
    /// Share of the time of the workers in which their threads had a processor.
    pub(crate) cpu_share: f64,
}

/// `tpcc tenants`, as written with `--json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TenantsReport {
    /// The schema's `$id`.
    pub(crate) schema: String,
    /// Databases.
    pub(crate) tenants: usize,
    /// Terminals of each.
    pub(crate) terminals_per_tenant: usize,
    /// Rows of each, where they are not warehouses.
    pub(crate) rows: Option<u64>,
    /// How rows are chosen.
    pub(crate) access: String,
    /// What terminals do.
    pub(crate) mix: String,
    /// Loop programs beside the tenants.
    pub(crate) background: usize,
    /// Worker threads.
    pub(crate) workers: usize,
    /// Time of a slice, in microseconds.
    pub(crate) slice_us: f64,
    /// `agg_limit`.
    pub(crate) agg_limit: u32,
    /// `agg_bonus`, in microseconds.
    pub(crate) agg_bonus_us: f64,
    /// Seed of everything random.
    pub(crate) seed: u64,
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// Rounds that do not, because a worker's thread had a processor for less than 97% of the time. Where too few would be
    /// left, all count, and this is 0: see `cpu_share`.
    pub(crate) rounds_dropped: usize,
    /// By policy.
    pub(crate) policies: BTreeMap<String, PolicyFigures>,
    /// Throughput of each other policy to that of fair; empty without fair.
    pub(crate) ratio: BTreeMap<String, f64>,
    /// The lower ends of their 95% intervals.
    pub(crate) ratio_low: BTreeMap<String, f64>,
    /// The upper ends.
    pub(crate) ratio_high: BTreeMap<String, f64>,
}
