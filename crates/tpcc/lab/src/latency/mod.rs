//! Measures the time of one transaction in five ways: on one core, without and with announcing groups of rows; with its loop
//! run ahead by speculation in buffers, on one core and on several; and with its loop in place on several cores (after the
//! TLS paper: Colohan, Ailamaki, Steffan, Mowry, TOCS 2008).
//!
//! Each way is a variant with its own copy of the database in memory; all run the same inputs. The variants alternate in
//! short blocks, so that disturbances of the machine affect all of them. At the end all copies must hold the same rows.

pub mod dependence;
pub mod simulation;
mod variant;

use std::time::Instant;

use hdrhistogram::Histogram;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use speculate::{Committer, Dependence, Forwarding, Options, Stats};

use self::simulation::{MeasuredMeans, Simulation, SimulationInput, TracedTransaction};
use self::variant::{ExecutionMode, TrialInput, Variant};
use crate::interval::Ratio;
use tpcc_core::engines::storage::in_order::TransactionLoop;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::input::InputSpace;
use tpcc_core::workload::generate::nurand::Constants;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::settings::{Speculate, StoreConfig};
use tpcc_core::workload::time::nanos;

/// Transaction to which speculation is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LatencyMix {
    /// 5 to 15 lines, which are the loop
    NewOrder,
    /// 50 to 150 lines
    #[value(name = "new-order-150")]
    NewOrder150,
    /// lines of each delivered order are the loop
    Delivery,
    /// districts are the loop
    DeliveryOuter,
    /// the last twenty orders are the loop
    StockLevel,
    /// warehouse with district, and customer, are the loop
    Payment,
    /// lines of the order are the loop
    OrderStatus,
}

impl LatencyMix {
    /// Returns the loop of the transaction that runs ahead.
    pub fn of_loop(self) -> TransactionLoop {
        match self {
            LatencyMix::NewOrder => TransactionLoop::OrderLines,
            LatencyMix::NewOrder150 => TransactionLoop::LongOrderLines,
            LatencyMix::Delivery => TransactionLoop::DeliveredLines,
            LatencyMix::DeliveryOuter => TransactionLoop::Districts,
            LatencyMix::StockLevel => TransactionLoop::RecentOrders,
            LatencyMix::Payment => TransactionLoop::Accounts,
            LatencyMix::OrderStatus => TransactionLoop::StatusLines,
        }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct LatencyPlan {
    /// Transaction to run.
    pub mix: LatencyMix,
    /// Number of threads of speculation.
    pub epoch_workers: usize,
    /// Condition for running loops ahead: always, or by decision of the governor.
    pub speculate: Speculate,
    /// Number of iterations of an epoch; `None` if the governor decides.
    pub grain: Option<usize>,
    /// Number of transactions of each variant.
    pub transactions: u64,
    /// Seed of the inputs and of the injected violations.
    pub seed: u64,
    /// Probability of an injected violation of a read.
    pub inject: f64,
    /// Forwarding of uncommitted writes of earlier epochs to reads.
    pub forwarding: ForwardWrites,
    /// Thread that validates and commits epochs.
    pub committer: CommitBy,
    /// If true, simulates other numbers of processors.
    pub simulate: bool,
}

/// Condition for running loops ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LatencySpeculate {
    /// loops run ahead of every transaction
    On,
    /// loops run ahead if the governor finds that faster
    Auto,
}

/// Forwarding of uncommitted writes of earlier epochs to reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ForwardWrites {
    /// forwarding after many violations, and if reads wait for writes
    Adaptive,
    /// forwarding in every loop
    Always,
    /// no forwarding
    Never,
}

/// Thread that validates and commits epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum CommitBy {
    /// thread that runs the transaction
    Caller,
    /// thread that has run the epoch
    Owner,
}

impl LatencyPlan {
    /// Returns the number of copies of the database in memory at the same time: one for each variant.
    pub fn copies(&self) -> u64 {
        (if self.simulate { VARIANTS + TRACED_VARIANTS } else { VARIANTS }) as u64
    }

    /// Returns the options of speculative loops on `workers` threads.
    fn options(&self, workers: usize, inject: f64) -> Options {
        let forwarding = match self.forwarding {
            ForwardWrites::Adaptive => Forwarding::Adaptive,
            ForwardWrites::Always => Forwarding::Always,
            ForwardWrites::Never => Forwarding::Never,
        };
        let committer = match self.committer {
            CommitBy::Caller => Committer::Caller,
            CommitBy::Owner => Committer::Owner,
        };
        let options = Options::new().workers(workers).forwarding(forwarding).committer(committer);
        options.inject_violations(inject, self.seed)
    }
}

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
    /// Speculation on one core.
    pub tls_seq: f64,
    /// Speculation on several cores.
    pub speculative: f64,
    /// The loop in place, on several cores.
    pub in_place: f64,
}

/// A dependence between a read and a write, which caused violations.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "DependenceFound"))]
pub struct DependenceReport {
    /// Location of the premature read.
    pub read: String,
    /// Location of the write; null if no epoch wrote the value.
    pub written: Option<String>,
    /// Number of violations.
    pub violations: u64,
    /// Number of rewound operations.
    pub rewound: u64,
    /// Time of the rewound operations, in microseconds.
    pub lost_us: f64,
}

/// Ratios of means between ways that all announce groups of rows.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct AnnouncedRatios {
    /// Speculation on one core.
    pub tls_seq: AnnouncedRatio,
    /// Speculation on as many cores as there are workers.
    pub speculative: AnnouncedRatio,
    /// The loop in place, on as many cores as there are workers.
    pub in_place: AnnouncedRatio,
}

/// A ratio with its 95% interval.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct AnnouncedRatio {
    /// Ratio of the sums.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
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
    /// Number of threads of speculation.
    pub epoch_workers: usize,
    /// Number of cores of the machine.
    pub cores: usize,
    /// on: the loop ran ahead in each transaction; auto: only if the governor had decided so.
    pub speculate: String,
    /// Iterations of an epoch; with auto the last choice of the governor, null if loops ran in order.
    pub grain: Option<usize>,
    /// Number of measured transactions of each way.
    pub transactions: u64,
    /// Seed of the inputs.
    pub seed: u64,
    /// Probability of an injected violation of a read.
    pub inject_violations: f64,
    /// Forwarding of uncommitted writes of earlier epochs to reads: adaptive, always or never.
    pub forwarding: String,
    /// Thread that validated and committed epochs: caller or owner.
    pub committer: String,
    /// Times on one core, steps one after the other, without announcing groups of rows.
    pub sequential: TrialTimes,
    /// Times on one core, with announcing groups of rows: the engine's default.
    pub sequential_prefetch: TrialTimes,
    /// Times of speculation on one core.
    pub tls_seq: TrialTimes,
    /// Times of speculation on as many cores as there are workers.
    pub speculative: TrialTimes,
    /// Times with the loop in place, on as many cores as there are workers, with announcing groups of rows.
    pub in_place: TrialTimes,
    /// Ratio of the mean of each way to the mean of `sequential`.
    pub ratio: PerWay,
    /// Lower ends of 95% intervals of `ratio`.
    pub ratio_low: PerWay,
    /// Upper ends of 95% intervals of `ratio`.
    pub ratio_high: PerWay,
    /// Ratio of the mean of each way of speculation to the mean of `sequential_prefetch`.
    pub ratio_to_announced: AnnouncedRatios,
    /// Number of committed epochs of `speculative`.
    pub epochs: u64,
    /// Number of times that an epoch was rewound.
    pub violations: u64,
    /// Number of these violations that were injected.
    pub injected: u64,
    /// Time of rewound work, microseconds per transaction.
    pub rewound_us: f64,
    /// Time that epochs held the token, which passes in order, microseconds per transaction.
    pub in_order_us: f64,
    /// Time that epochs held the token, microseconds per iteration of the loop.
    pub in_order_us_per_item: f64,
    /// Time that workers waited for the token, microseconds per transaction.
    pub waited_us: f64,
    /// Time of an empty loop of two epochs, microseconds.
    pub fork_join_us: f64,
    /// Dependences that rewound epochs, the costliest first.
    pub dependences: Vec<DependenceReport>,
    /// Simulated times on other numbers of processors; null without `--simulate`.
    pub simulation: Option<Simulation>,
    /// Digest of all rows after `sequential`.
    pub fingerprint: String,
    /// True if all ways left the same rows.
    pub equal: bool,
}

/// Number of transactions of a variant before the next variant runs.
const BLOCK_TRANSACTIONS: u64 = 10;
/// Ratio of the number of measured blocks to the number of warm-up blocks, which are not measured.
const WARM_UP_DIVISOR: u64 = 20;
/// Number of measured variants.
const VARIANTS: usize = 5;
/// Number of the variant whose loop runs in place.
const IN_PLACE: usize = 4;
/// Number of additional variants whose loops are traced: on one worker and on two.
const TRACED_VARIANTS: usize = 2;
/// Approximate number of traces that are kept for each traced variant.
const TRACED_TRANSACTIONS: u64 = 400;

/// Runs a plan on copies of the database in memory.
pub fn run(
    plan: &LatencyPlan,
    config: &StoreConfig,
    database: &Store,
    loaded: &Loaded,
) -> Result<LatencyReport, Error> {
    let stores = (0..plan.copies())
        .map(|index| {
            let loop_threads = if index == IN_PLACE as u64 { plan.epoch_workers } else { 1 };
            let config = StoreConfig { prefetch: index != 0, loop_threads, ..config.clone() };
            database.copy_in_memory(&config, None)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let measured = measure(plan, &stores, loaded)?;
    stores.into_iter().try_for_each(Database::close)?;
    Ok(measured)
}

fn measure(plan: &LatencyPlan, stores: &[Store], loaded: &Loaded) -> Result<LatencyReport, Error> {
    let traced = |workers| ExecutionMode::Speculative(plan.options(workers, 0.0).trace(usize::MAX), Speculate::On);
    let modes = [
        ExecutionMode::InOrder,
        ExecutionMode::InOrder,
        ExecutionMode::Speculative(plan.options(1, 0.0), Speculate::On),
        ExecutionMode::Speculative(plan.options(plan.epoch_workers, plan.inject), plan.speculate),
        ExecutionMode::InPlace,
        traced(1),
        traced(2),
    ];
    let mut traces: [Vec<TracedTransaction>; TRACED_VARIANTS] = Default::default();
    let mut variants =
        stores.iter().zip(modes).map(|(store, mode)| Variant::new(store, mode, plan)).collect::<Result<Vec<_>, _>>()?;

    let constants = Constants::for_run(&mut Random::stream(plan.seed, u64::MAX), loaded.c_load);
    let world = InputSpace { scale: loaded.scale, warehouses: loaded.warehouses, constants };
    let mut random = Random::stream(plan.seed, 1);
    let blocks = plan.transactions.div_ceil(BLOCK_TRANSACTIONS);
    let warm = blocks.div_ceil(WARM_UP_DIVISOR).max(variants[3].warm_up().div_ceil(BLOCK_TRANSACTIONS));
    let mut sums: [Vec<f64>; VARIANTS] = Default::default();
    let mut times = [(); VARIANTS].map(|()| TimeHistogram::new());
    let mut items = 0;
    // Traces are spread over the whole run, because the database changes during it.
    let every = (plan.transactions / TRACED_TRANSACTIONS).max(1);
    for block in 0..warm + blocks {
        if interrupt::requested() {
            return Err(Error::failed("latency: interrupted"));
        }
        let jobs: Vec<TrialInput> = (0..BLOCK_TRANSACTIONS)
            .map(|n| {
                let w = random.in_range(1, world.warehouses);
                TrialInput::draw(plan.mix, &world, &mut random, w, block * BLOCK_TRANSACTIONS + n + 1)
            })
            .collect();
        if block == warm {
            variants.iter_mut().for_each(Variant::reset_statistics);
        }
        // The order rotates from block to block, so that each variant runs at each position.
        for turn in 0..variants.len() {
            let index = (turn + block as usize) % variants.len();
            let variant = &mut variants[index];
            variant.run_services()?;
            if index >= VARIANTS {
                let mut ran = block * BLOCK_TRANSACTIONS;
                for job in &jobs {
                    let begun = Instant::now();
                    variant.transact(job)?;
                    let (ns, loops) = (nanos(begun.elapsed()), variant.take_traces());
                    ran += 1;
                    if block >= warm && ran.is_multiple_of(every) {
                        traces[index - VARIANTS].push(TracedTransaction::new(ns, loops));
                    }
                }
                continue;
            }
            let mut sum = 0;
            for job in &jobs {
                let begun = Instant::now();
                variant.transact(job)?;
                let ns = nanos(begun.elapsed());
                sum += ns;
                if block >= warm {
                    times[index].add(ns);
                }
            }
            if block >= warm {
                sums[index].push(sum as f64);
            }
        }
        items += if block >= warm { jobs.iter().map(TrialInput::items).sum::<u64>() } else { 0 };
    }

    let (stats, profile) = variants[3].speculation();
    let fork_join_us = variants[3].fork_join_us()?;
    let empty_loop_us = (variants[2].fork_join_us()?, fork_join_us);
    let prints = stores.iter().map(fingerprint).collect::<Result<Vec<_>, _>>()?;
    let ratios = [1, 2, 3, IN_PLACE].map(|index| Ratio::of(&sums[index], &sums[0]));
    let per_way = |pick: fn(&Ratio) -> f64| {
        let [sequential_prefetch, tls_seq, speculative, in_place] = ratios.each_ref().map(pick);
        PerWay { sequential_prefetch, tls_seq, speculative, in_place }
    };
    let to_announced = |index: usize| {
        let Ratio { value, low, high } = Ratio::of(&sums[index], &sums[1]);
        AnnouncedRatio { value, low, high }
    };
    let transactions = blocks * BLOCK_TRANSACTIONS;
    let us = |ns: u64| ns as f64 / 1e3 / transactions as f64;
    let [sequential, sequential_prefetch, tls_seq, speculative, in_place] = times.each_ref().map(TimeHistogram::times);
    let simulation = plan.simulate.then(|| {
        let [one_worker, two_workers] = traces;
        let ahead = plan.speculate == Speculate::On;
        let measured = MeasuredMeans {
            sequential_us: sequential.mean_us,
            tls_seq_us: tls_seq.mean_us,
            speculative: ahead.then_some((plan.epoch_workers, speculative.mean_us)),
        };
        simulation::run(
            &SimulationInput { one_worker, two_workers, empty_loop_us },
            &measured,
            plan.forwarding == ForwardWrites::Always,
        )
    });
    let Stats { epochs, violations, injected, rewound_ns, in_order_ns, waited_ns, .. } = stats;
    Ok(LatencyReport {
        schema: schema_of("latency"),
        mix: name_of(plan.mix),
        warehouses: loaded.warehouses,
        epoch_workers: plan.epoch_workers,
        speculate: plan.speculate.name().to_owned(),
        grain: variants[3].grain(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        transactions,
        seed: plan.seed,
        inject_violations: plan.inject,
        forwarding: name_of(plan.forwarding),
        committer: name_of(plan.committer),
        sequential,
        sequential_prefetch,
        tls_seq,
        speculative,
        in_place,
        ratio: per_way(|ratio| ratio.value),
        ratio_low: per_way(|ratio| ratio.low),
        ratio_high: per_way(|ratio| ratio.high),
        ratio_to_announced: AnnouncedRatios {
            tls_seq: to_announced(2),
            speculative: to_announced(3),
            in_place: to_announced(IN_PLACE),
        },
        epochs,
        violations,
        injected,
        rewound_us: us(rewound_ns),
        in_order_us: us(in_order_ns),
        in_order_us_per_item: in_order_ns as f64 / 1e3 / items as f64,
        waited_us: us(waited_ns),
        fork_join_us,
        dependences: profile.iter().map(dependence_report).collect(),
        simulation,
        equal: prints.iter().all(|print| *print == prints[0]),
        fingerprint: prints[0].clone(),
    })
}

/// Returns the name of a value, as typed on the command line.
fn name_of(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn fingerprint(store: &Store) -> Result<String, Error> {
    let mut look = |_| {
        if interrupt::requested() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    };
    Database::fingerprint(store, &mut look)?.ok_or_else(|| Error::failed("latency: interrupted"))
}

fn dependence_report(dependence: &Dependence) -> DependenceReport {
    let written = match dependence.written {
        speculate::Writer::Epoch(site) => Some(site.to_string()),
        speculate::Writer::Other => None,
    };
    DependenceReport {
        read: dependence.read.to_string(),
        written,
        violations: dependence.violations,
        rewound: dependence.rewound,
        lost_us: dependence.lost.as_nanos() as f64 / 1e3,
    }
}

/// Distribution of the times of one variant.
struct TimeHistogram {
    sum: u64,
    number: u64,
    histogram: Histogram<u64>,
}

impl TimeHistogram {
    fn new() -> TimeHistogram {
        // 1 ns to 2 minutes with three digits: the library accepts these bounds.
        let histogram = Histogram::new_with_bounds(1, 120_000_000_000, 3)
            .unwrap_or_else(|_| unreachable!("the bounds are in its range"));
        TimeHistogram { sum: 0, number: 0, histogram }
    }

    fn add(&mut self, ns: u64) {
        self.sum += ns;
        self.number += 1;
        self.histogram.saturating_record(ns);
    }

    fn times(&self) -> TrialTimes {
        let us = |ns: u64| ns as f64 / 1e3;
        TrialTimes {
            mean_us: us(self.sum) / self.number as f64,
            p50_us: us(self.histogram.value_at_quantile(0.5)),
            p99_us: us(self.histogram.value_at_quantile(0.99)),
        }
    }
}
