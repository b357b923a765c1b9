//! Output of `tpcc latency`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::simulation::Simulation;
use crate::interval::Ratio;

/// Times of a transaction.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TrialTimes {
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Median, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
}

/// A number for each way except the sequential one.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct PerWay {
    /// One core, with announcing groups of rows.
    pub sequential_prefetch: f64,
    /// The loop in epochs, on one core.
    pub tls_seq: f64,
    /// The loop in epochs, on several cores.
    pub speculative: f64,
}

/// Ratios of means between ways that all announce groups of rows.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RatiosToAnnounced {
    /// The loop in epochs, on one core.
    pub tls_seq: RatioRange,
    /// The loop in epochs, on as many cores as there are workers.
    pub speculative: RatioRange,
}

/// A ratio with its 95% interval.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RatioRange {
    /// Ratio of the sums.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl From<Ratio> for RatioRange {
    fn from(Ratio { value, low, high }: Ratio) -> RatioRange {
        RatioRange { value, low, high }
    }
}

/// Output of `tpcc latency --json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc latency --json"))]
pub struct LatencyReport {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Name of the transaction.
    pub mix: String,
    /// Warehouses of the database.
    pub warehouses: u32,
    /// Number of threads of a loop of `speculative`.
    pub epoch_workers: usize,
    /// Number of cores of the machine.
    pub cores: usize,
    /// on: the loop ran in epochs in each transaction; auto: only if the governor had decided so.
    pub speculate: String,
    /// Iterations of an epoch, as set by `--grain`; null if they are divided evenly.
    pub grain: Option<usize>,
    /// Largest number of epochs into which the iterations of a loop of `speculative` were divided evenly; with auto the last choice
    /// of the governor. Null with `grain`, and if the governor chose to run loops without epochs.
    pub epochs_each: Option<usize>,
    /// Number of measured transactions of each way.
    pub transactions: u64,
    /// Number of iterations of the loops of these transactions.
    pub iterations: u64,
    /// Seed of the inputs.
    pub seed: u64,
    /// Probability of an injected violation, for each row that an epoch uses.
    pub inject_violations: f64,
    /// Times on one core, steps one after the other, without announcing groups of rows.
    pub sequential: TrialTimes,
    /// Times on one core, with announcing groups of rows: the engine's default.
    pub sequential_prefetch: TrialTimes,
    /// Times of the loop in epochs, on one core.
    pub tls_seq: TrialTimes,
    /// Times of the loop in epochs, on as many cores as there are workers.
    pub speculative: TrialTimes,
    /// Ratio of the mean of each way to the mean of `sequential`.
    pub ratio: PerWay,
    /// Lower ends of 95% intervals of `ratio`.
    pub ratio_low: PerWay,
    /// Upper ends of 95% intervals of `ratio`.
    pub ratio_high: PerWay,
    /// Ratio of the mean of each way with epochs to the mean of `sequential_prefetch`.
    pub ratio_to_announced: RatiosToAnnounced,
    /// Ideal of this machine: as many independent transactions at the same time as there are workers, at most one for each core,
    /// each on a database of its own. Ratio of the time for each transaction to the mean of `sequential_prefetch`. Null for one
    /// worker.
    pub ideal: Option<RatioRange>,
    /// Number of committed epochs of `speculative`.
    pub epochs: u64,
    /// Number of times that an epoch was rolled back and ran again.
    pub violations: u64,
    /// Number of these violations that were injected.
    pub injected: u64,
    /// Time of an empty loop of two epochs, microseconds.
    pub fork_join_us: f64,
    /// Simulated times on other numbers of processors; null without `--simulate`.
    pub simulation: Option<Simulation>,
    /// Digest of all rows after `sequential`.
    pub fingerprint: String,
    /// True if all ways left the same rows.
    pub equal: bool,
}

/// Output of `tpcc latency --only WAY --json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc latency --only --json"))]
pub struct WayReport {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Name of the transaction.
    pub mix: String,
    /// Name of the way.
    pub only: String,
    /// Number of transactions.
    pub transactions: u64,
    /// Times of the transactions.
    pub times: TrialTimes,
}
