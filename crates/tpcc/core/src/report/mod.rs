//! Output of a command: text on stdout, and one JSON object in a file.

pub mod build;
mod csv;
pub mod files;
mod hdr;
pub mod json;
pub mod machine;
pub mod model;
pub mod named;
pub mod out;
mod pacing;
pub mod progress;
#[cfg(any(test, feature = "schemas"))]
pub mod schemas;
pub mod text;

use std::collections::BTreeMap;
use std::ops::Range;

use sched_steps::team::{OperationStatistics, Statistics};

use crate::driver::counters::{Event, EventCounts, Ring};
use crate::driver::measure::{KindStats, Times};
use crate::driver::{RunResult, Sample};
use crate::workload::check::Audit;
use crate::workload::counters::{
    Counters, GeneratorCounters, LeafCounters, LogCounters, OperationCounters, PoolCounters, TeamCounters,
};
use crate::workload::database::RegionReport;
use crate::workload::engine::EngineFigures;
use crate::workload::generate::deck::Kind;
use crate::workload::loaded::Loaded;
use crate::workload::schema::TableId;
use crate::workload::settings::{
    EngineKind, LargePages, ResolvedCounts, RunConfig, Scheduling, Speculate, StoreConfig,
};

/// First line of every output.
pub const NOTICE: &str = "derived from TPC-C; not a TPC-C result (deviations: DEVIATIONS.md)";

/// Returns the settings that all commands on the storage engine report.
pub fn store_config(command: &str, store: &StoreConfig) -> model::Config {
    model::Config {
        command: command.to_owned(),
        engine: EngineKind::Storage.name().to_owned(),
        data: Some(store.shown()),
        workers: Some(store.workers),
        buffer_pool_mib: Some(store.buffer_pool_mib),
        background: Some(store.background.name().to_owned()),
        checkpoint_mib: Some(store.checkpoint_mib),
        page_checksums: Some(store.page_checksums),
        ..model::Config::default()
    }
}

/// Returns the settings of a run for its report.
pub fn run_config(config: &RunConfig, counts: &ResolvedCounts, loaded: &Loaded) -> model::Config {
    let store = &config.store;
    let base = match config.engine {
        EngineKind::Storage => model::Config {
            durability: Some(store.durability.name().to_owned()),
            isolation: Some(store.isolation.name().to_owned()),
            latches: Some(store.latches.name().to_owned()),
            latch_words: store.latch_words,
            partition: Some(config.partition.name().to_owned()),
            large_pages: Some(store.large_pages.name().to_owned()),
            prefetch: Some(store.prefetch),
            preload: Some(store.preload),
            read_delay_us: Some(store.read_delay_us),
            ..store_config("run", store)
        },
        EngineKind::Floor | EngineKind::Postgres => model::Config {
            command: "run".to_owned(),
            engine: config.engine.name().to_owned(),
            partition: (config.engine == EngineKind::Postgres).then(|| config.partition.name().to_owned()),
            ..model::Config::default()
        },
    };
    model::Config {
        warehouses: Some(counts.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        workers: Some(counts.workers),
        terminals: Some(counts.terminals),
        duration_s: config.length.duration.map(|d| d.as_secs_f64()),
        warmup_s: Some(config.length.warmup.as_secs_f64()),
        transactions: config.length.transactions,
        mix: Some(config.mix.name().to_owned()),
        pacing: Some(config.pacing.name().to_owned()),
        order: Some(config.steps.name().to_owned()),
        scheduler: Some(config.scheduling.name().to_owned()),
        team_size: (config.scheduling != Scheduling::Threads).then(|| config.scheduling.team_size()),
        policy: config.scheduling.policy().map(|policy| policy.name().to_owned()),
        slice_us: config.scheduling.slice_us(),
        teams: config.scheduling.teams_of().map(|of| of.name().to_owned()),
        admission: Some(config.admission.name().to_owned()),
        ctx_points: config.scheduling.points(),
        speculate: Some(config.speculate.name().to_owned()),
        epoch_workers: (config.speculate != Speculate::Off).then_some(config.store.loop_threads),
        clock: Some(config.clock.name().to_owned()),
        counters: Some(config.counters),
        pin: Some(config.pin),
        check: Some(config.check),
        seed: Some(config.seed),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..base
    }
}

/// Creates the complete report of a run.
pub fn run(
    config: model::Config,
    machine: machine::Machine,
    measured: &RunResult,
    large_pages: Option<model::LargePagesReport>,
    checked: Option<&Audit>,
) -> model::Run {
    let stats = &measured.stats;
    let per_second = |count: u64| (measured.seconds > 0.0).then(|| count as f64 / measured.seconds);
    model::Run {
        schema: model::schema_of("run"),
        notice: NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine,
        interrupted: match &measured.failure {
            Some(why) => model::Interrupted::Failed(why.clone()),
            None => model::Interrupted::ByUser(measured.interrupted),
        },
        measured_s: measured.seconds,
        throughput_per_s: per_second(stats.completed()),
        new_orders_per_min: per_second(stats.kinds[Kind::NewOrder as usize].counters.count).map(|n| 60.0 * n),
        committed: stats.completed() - stats.rolled_back(),
        rolled_back: stats.rolled_back(),
        aborted: stats.aborts_in_all(),
        aborts: stats
            .aborts()
            .map(|(cause, table, count)| model::Aborts {
                cause: cause.name().to_owned(),
                table: table.map(|table| table.name().to_owned()),
                count,
            })
            .collect(),
        transactions: Kind::ALL
            .into_iter()
            .map(|kind| (kind.name().to_owned(), transaction(&stats.kinds[kind as usize])))
            .collect(),
        counters: stats.counters,
        generator: generator(&stats.drawn, config.warehouses.unwrap_or(1)),
        series: series(&measured.series),
        steps: config.ctx_points.as_ref().map(|_| steps(measured.team_size, &measured.teams)),
        siblings: measured.siblings.as_ref().map(|figures| model::Siblings {
            switches_within: figures.total.switches_within,
            switches_between: figures.total.switches_between,
            preferred: figures.total.preferred,
            overruled: figures.total.overruled,
            max_wait_us: figures.total.longest_wait_ns() as f64 / 1e3,
            wait_bound_us: figures.wait_bound.as_secs_f64() * 1e6,
            wait_to_bound: figures.wait_to_bound,
        }),
        speculation: measured.figures.speculation,
        log: log(&measured.figures, stats.completed()),
        pool: measured.figures.pool.map(|counters| model::Pool { hit_rate: hit_rate(&counters), counters }),
        latches: measured.figures.latches,
        leaf: leaf(&measured.leaves),
        waits: measured.figures.waits.clone(),
        events: measured.counted.as_ref().map(counters),
        large_pages,
        peak_rss_bytes: machine::peak_rss_bytes(),
        check: checked.map(check).unwrap_or_default(),
        rows: checked.and_then(rows),
        pacing: pacing::paced(measured, config.warehouses.unwrap_or(1)),
        config,
    }
}

/// Returns the contention for leaves, of all tables and of each table with contention; `None` for an engine without leaves.
fn leaf(tables: &BTreeMap<String, LeafCounters>) -> Option<model::Leaf> {
    let mut all = LeafCounters::default();
    tables.values().for_each(|table| all.add(table));
    let contended = tables.iter().filter(|(_, counters)| counters.contended > 0);
    let tables_contended = contended.map(|(name, counters)| (name.clone(), *counters)).collect();
    (!tables.is_empty()).then_some(model::Leaf { counters: all, tables: tables_contended })
}

/// Reports the requested and provided large pages of the memory regions of `engine`, of the program's code and of the
/// fibers' stacks.
pub fn large_pages(
    asked: LargePages,
    engine: Vec<RegionReport>,
    code: Option<Range<usize>>,
    measured: &RunResult,
) -> model::LargePagesReport {
    let map = storage::MemoryMap::read().ok();
    let code = code.zip(map.as_ref()).map(|(range, map)| {
        let given = map.within(&range);
        let (bytes, resident, large) = (range.len() as u64, given.resident, given.large);
        RegionReport { name: "code".to_owned(), bytes, resident, large }
    });
    let regions = engine.into_iter().chain(measured.stacks.clone()).chain(code).map(|found| {
        let RegionReport { name, bytes, resident, large } = found;
        (name, model::Region { bytes, resident_bytes: resident, given_bytes: large })
    });
    let regions: BTreeMap<_, _> = regions.collect();
    let none = asked != LargePages::Off && regions.values().all(|region| region.given_bytes == 0);
    model::LargePagesReport {
        asked: asked.name().to_owned(),
        given_bytes: map.map(|map| map.all().large),
        regions,
        reason: none.then(|| match storage::large_pages_available() {
            Err(why) => why,
            Ok(()) => "the pool is too small to ask for them: pass a --buffer-pool of 16 MiB or more".to_owned(),
        }),
    }
}

/// Converts hardware and operating system counts for the report.
fn counters(counted: &EventCounts) -> model::EventCounters {
    let of = |kind: Option<Kind>| -> BTreeMap<String, Option<model::EventMean>> {
        let mean = |event| {
            let (user, kernel) = (counted.mean(kind, event, Ring::User), counted.mean(kind, event, Ring::Kernel));
            (user.is_some() || kernel.is_some()).then_some(model::EventMean { user, kernel })
        };
        Event::ALL.into_iter().map(|event| (event.name().to_owned(), mean(event))).collect()
    };
    let kinds = Kind::ALL.into_iter().map(|kind| (kind.name().to_owned(), of(Some(kind))));
    let mut reasons = counted.reasons.clone();
    if !counted.apart {
        reasons.insert(
            "kinds".to_owned(),
            "transactions of different kinds share a worker in turns: only their sum is counted".to_owned(),
        );
    }
    let ran = Event::ALL.into_iter().filter_map(|event| Some((event.name().to_owned(), counted.ran(event)?)));
    model::EventCounters {
        transactions: kinds.chain([("all".to_owned(), of(None))]).collect(),
        software: model::SoftwareEvents {
            source: counted.software_source.name().to_owned(),
            task_clock_ms: counted.software.task_clock_ns as f64 / 1e6,
            page_faults: counted.software.page_faults,
            context_switches: counted.software.context_switches,
            migrations: counted.software.migrations,
        },
        ran: ran.collect(),
        reasons,
    }
}

/// Sums team statistics over all workers.
fn steps(team_size: usize, teams: &[Statistics]) -> model::Steps {
    // Mean over all workers: mean of the workers' means, weighted by their numbers of events.
    let mean = |all: &mut dyn Iterator<Item = (f64, u64)>| {
        let (sum, n) = all.fold((0.0, 0), |(sum, n), (mean, of)| (sum + mean * of as f64, n + of));
        (n > 0).then(|| sum / n as f64)
    };
    let operations = teams.first().map_or(0, |first| first.operations.len());
    let operations: Vec<_> = (0..operations)
        .map(|at| {
            let all = move || teams.iter().filter_map(move |team| team.operations.get(at));
            let mut counters = OperationCounters::default();
            for &OperationStatistics { begun, teams, strays, waits, .. } in all() {
                counters.add(&OperationCounters { begun, teams, strays, waits });
            }
            model::TeamOperation {
                name: all().next().map(|o| o.name.clone()).unwrap_or_default(),
                counters,
                mean_in: mean(&mut all().map(|o| (o.mean_in, o.teams))),
                mean_out: mean(&mut all().map(|o| (o.mean_out, o.teams))),
                mean_launches_waited: mean(&mut all().map(|o| (o.mean_launches_waited, o.begun))),
            }
        })
        .filter(|operation| operation.counters.begun > 0)
        .collect();
    model::Steps {
        team_size,
        counters: TeamCounters {
            launches: teams.iter().map(|team| team.launches).sum(),
            waits: operations.iter().map(|operation| operation.counters.waits).sum(),
        },
        mean_team: mean(&mut teams.iter().map(|team| (team.mean_team, team.launches))),
        mean_ready: mean(&mut teams.iter().map(|team| (team.mean_ready, team.launches))),
        operations,
    }
}

/// Converts the samples of each second to a time series.
fn series(samples: &[Sample]) -> model::ThroughputSeries {
    let log = |of: fn(&LogCounters) -> u64| samples.iter().map(|s| s.figures.log.as_ref().map(of)).collect();
    let pool = |of: fn(&PoolCounters) -> u64| samples.iter().map(|s| s.figures.pool.as_ref().map(of)).collect();
    model::ThroughputSeries {
        t_s: samples.iter().map(|sample| sample.t_s).collect(),
        throughput_per_s: samples.iter().map(|sample| sample.throughput_per_s).collect(),
        p99_us: samples.iter().map(|sample| sample.p99_us).collect(),
        aborted: samples.iter().map(|sample| sample.aborted).collect(),
        log_bytes: log(|log| log.bytes),
        checkpoints: log(|log| log.checkpoints),
        page_reads: pool(|pool| pool.reads),
        page_writes: pool(|pool| pool.page_writes),
    }
}

/// Quantiles of the latency curve in the report, denser towards the slowest transactions.
const SHARES: [f64; 14] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999, 1.0];

fn transaction(stats: &KindStats) -> model::Transaction {
    let curve = |times: &Times| SHARES.iter().map(|share| times.quantile_us(*share)).collect();
    model::Transaction {
        counters: stats.counters,
        mean_us: stats.service.mean_us(),
        p50_us: stats.service.quantile_us(0.5),
        p90_us: stats.service.quantile_us(0.9),
        p99_us: stats.service.quantile_us(0.99),
        p999_us: stats.service.quantile_us(0.999),
        max_us: stats.service.max_us(),
        response_p50_us: stats.response.quantile_us(0.5),
        response_p90_us: stats.response.quantile_us(0.9),
        response_p99_us: stats.response.quantile_us(0.99),
        curve: model::Curve {
            share: SHARES.to_vec(),
            service_us: curve(&stats.service),
            response_us: curve(&stats.response),
        },
    }
}

/// Returns the fraction `part / of`, and true if the fraction is within the specification's band (5.5.1.5) or within four
/// standard deviations of the expected value `asked`.
fn fraction(part: u64, of: u64, asked: f64, band: f64) -> (Option<f64>, bool) {
    if of == 0 {
        return (None, true);
    }
    let share = part as f64 / of as f64;
    let deviation = (asked * (1.0 - asked) / of as f64).sqrt();
    (Some(share), (share - asked).abs() <= band.max(4.0 * deviation))
}

fn generator(drawn: &GeneratorCounters, warehouses: u32) -> model::Generator {
    // With a single warehouse, there is no remote warehouse, so no remote values are expected.
    let remote = |asked: f64| if warehouses > 1 { asked } else { 0.0 };
    let (rollback, a) = fraction(drawn.rollbacks, drawn.new_orders, 0.01, 0.001);
    let (remote_lines, b) = fraction(drawn.remote_lines, drawn.lines, remote(0.01), 0.0005);
    let (remote_payments, c) = fraction(drawn.remote_payments, drawn.payments, remote(0.15), 0.01);
    let (by_name, d) = fraction(drawn.by_name, drawn.customers, 0.6, 0.03);
    let lines_per_order = (drawn.new_orders > 0).then(|| drawn.lines as f64 / drawn.new_orders as f64);
    // The number of lines is uniform over 5..=15: the variance of one value is 10.
    let room = 0.5f64.max(4.0 * (10.0 / drawn.new_orders.max(1) as f64).sqrt());
    let e = lines_per_order.is_none_or(|lines| (lines - 10.0).abs() <= room);
    let as_specified = a && b && c && d && e;
    model::Generator { rollback, remote_lines, remote_payments, by_name, lines_per_order, as_specified }
}

fn log(figures: &EngineFigures, transactions: u64) -> Option<model::Log> {
    figures.log.map(|counters| model::Log {
        bytes_per_transaction: (transactions > 0).then(|| counters.bytes as f64 / transactions as f64),
        direct: figures.log_direct,
        counters,
    })
}

/// Returns the fraction of page requests that found the page in the buffer pool. `None` without requests.
pub fn hit_rate(pool: &PoolCounters) -> Option<f64> {
    let requests = pool.hits + pool.reads;
    (requests > 0).then(|| pool.hits as f64 / requests as f64)
}

/// Converts the result of the consistency check for JSON.
pub fn check(checked: &Audit) -> model::Check {
    if checked.interrupted {
        return model::Check::default();
    }
    let rules = checked.checked_rules.iter().map(|&rule| {
        let broken = checked.findings.of(rule);
        model::Rule {
            id: rule.id().to_owned(),
            text: rule.text().to_owned(),
            holds: broken.times == 0,
            broken: broken.times,
            first: broken.first.clone(),
        }
    });
    model::Check {
        passed: Some(checked.passed()),
        conditions_held: Some(checked.conditions_held()),
        seconds: Some(checked.seconds),
        rules: rules.collect(),
    }
}

/// Returns the number of rows of each of the nine tables, for JSON.
pub fn rows(checked: &Audit) -> Option<BTreeMap<String, u64>> {
    (!checked.interrupted)
        .then(|| TableId::ALL.iter().zip(checked.rows).map(|(table, rows)| (table.name().to_owned(), rows)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_widen_when_few_were_drawn() {
        assert_eq!(fraction(0, 0, 0.01, 0.001), (None, true));
        assert!(fraction(3, 100, 0.01, 0.001).1);
        assert!(!fraction(3_000, 100_000, 0.01, 0.001).1);
        assert!(fraction(1_090, 100_000, 0.01, 0.001).1);
        // Without expected remote values, only a fraction of zero is within the band.
        assert!(fraction(0, 1_000_000, 0.0, 0.0005).1 && !fraction(1_000, 1_000_000, 0.0, 0.0005).1);
    }
}
