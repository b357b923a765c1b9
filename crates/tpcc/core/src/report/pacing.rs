//! Figures of paced terminals, for JSON and for the summary.

use std::collections::BTreeMap;
use std::fmt::Write;

#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::Serialize;

use crate::driver::RunResult;
use crate::driver::pacing::figures::{limit_holds, limits_hold};
use crate::driver::pacing::times::{DEFERRED_LIMIT, MAXIMUM_PER_MIN, deck_maximum_per_min, requirements};
use crate::workload::generate::deck::Kind;
use crate::workload::words::grouped;

/// Figures of one kind of transaction at paced terminals. Times in seconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct PacedKind {
    /// Keying time, constant (5.2.5.2).
    pub keying_s: f64,
    /// Specified mean think time (5.2.5.4).
    pub think_mean_asked_s: f64,
    /// Mean of the drawn think times.
    pub think_mean_s: Option<f64>,
    /// Mean response time, from the request of the terminal to its response. The response to a Delivery is that it is
    /// queued.
    pub response_mean_s: Option<f64>,
    pub response_p90_s: Option<f64>,
    /// Limit of the 90th percentile (5.2.5.3).
    pub limit_s: f64,
    /// True if the 90th percentile is within the limit, and the mean at most 0.1 s above the 90th percentile (5.2.5.6);
    /// null without a response.
    pub holds: Option<bool>,
}

/// Figures of paced terminals (`--pacing spec`) over the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct PacedRun {
    /// True if every limit holds, including the limit of deferred Deliveries; null if a limit has no measurements and none
    /// is exceeded.
    pub limits_hold: Option<bool>,
    /// New-Orders per minute and warehouse.
    pub new_orders_per_min_per_warehouse: Option<f64>,
    /// Maximum that the specification allows, with the minimum shares of the other kinds.
    pub maximum_per_min_per_warehouse: f64,
    /// Fraction of that maximum.
    pub share_of_maximum: Option<f64>,
    /// Maximum with the deck in use, which has more Payments than the minimum.
    pub deck_maximum_per_min_per_warehouse: f64,
    /// Fraction of terminal time spent keying and thinking: the fraction of the offered load that was served.
    pub share_of_offered: Option<f64>,
    /// Figures by transaction type.
    pub transactions: BTreeMap<String, PacedKind>,
    /// Number of queued Deliveries.
    pub deliveries_queued: u64,
    /// Number of Deliveries that were done and durable when the run ended.
    pub deliveries_done: u64,
    /// Number of Deliveries that were not done when the run ended.
    pub deliveries_left: u64,
    /// 90th percentile of the time from queueing to durability, seconds.
    pub deferred_p90_s: Option<f64>,
    pub deferred_max_s: Option<f64>,
    /// Limit of that 90th percentile (2.7.2.2), seconds.
    pub deferred_limit_s: f64,
    /// True if the limit holds; null without a Delivery.
    pub deferred_holds: Option<bool>,
    /// Path of the result file of Deliveries.
    pub delivery_results: String,
    /// CPU time of the whole process divided by the duration of the measurement: 1 is one core that is always busy. Null if
    /// the system does not report it.
    pub cpu_share_of_core: Option<f64>,
    /// Parts of a terminal's cycle that are not emulated.
    pub left_out: Vec<String>,
}

/// Report of a run on `warehouses` warehouses; `None` without pacing.
pub(super) fn paced(measured: &RunResult, warehouses: u32) -> Option<PacedRun> {
    let paced = measured.paced.as_ref()?;
    let (stats, deferrals) = (&measured.stats, &paced.deferrals);
    let seconds = (measured.seconds > 0.0).then_some(measured.seconds);
    let orders = stats.kinds[Kind::NewOrder as usize].counters.count;
    let rate = seconds.map(|seconds| orders as f64 * 60.0 / seconds / f64::from(warehouses));
    let in_s = |us: Option<f64>| us.map(|us| us / 1e6);
    let kind = |kind: Kind| {
        let (asked, (n, thought)) = (requirements(kind), paced.cycles.thought[kind as usize]);
        let response = &stats.kinds[kind as usize].response;
        let of = PacedKind {
            keying_s: asked.keying.as_secs_f64(),
            think_mean_asked_s: asked.think_mean.as_secs_f64(),
            think_mean_s: (n > 0).then(|| thought.as_secs_f64() / n as f64),
            response_mean_s: in_s(response.mean_us()),
            response_p90_s: in_s(response.quantile_us(0.9)),
            limit_s: asked.limit.as_secs_f64(),
            holds: limit_holds(stats, kind),
        };
        (kind.name().to_owned(), of)
    };
    Some(PacedRun {
        limits_hold: limits_hold(stats, deferrals),
        new_orders_per_min_per_warehouse: rate,
        maximum_per_min_per_warehouse: MAXIMUM_PER_MIN,
        share_of_maximum: rate.map(|rate| rate / MAXIMUM_PER_MIN),
        deck_maximum_per_min_per_warehouse: deck_maximum_per_min(),
        share_of_offered: paced.cycles.share_of_offered(),
        transactions: Kind::ALL.into_iter().map(kind).collect(),
        deliveries_queued: paced.cycles.queued,
        deliveries_done: deferrals.done,
        deliveries_left: deferrals.left,
        deferred_p90_s: in_s(deferrals.times.quantile_us(0.9)),
        deferred_max_s: in_s(deferrals.times.max_us()),
        deferred_limit_s: DEFERRED_LIMIT.as_secs_f64(),
        deferred_holds: deferrals.limit_holds(),
        delivery_results: paced.results.display().to_string(),
        cpu_share_of_core: paced.cpu.zip(seconds).map(|(cpu, seconds)| cpu.as_secs_f64() / seconds),
        left_out: vec!["menu response time (5.2.5.1)".to_owned(), "display of the answer (2.2)".to_owned()],
    })
}

/// Writes the lines of the summary.
pub(super) fn text(to: &mut String, paced: &PacedRun) -> std::fmt::Result {
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
    writeln!(
        to,
        "pacing    {} New-Orders a minute and warehouse: {} of the possible {} ({:.2} with this deck)",
        number(paced.new_orders_per_min_per_warehouse, 2),
        percent(paced.share_of_maximum),
        paced.maximum_per_min_per_warehouse,
        paced.deck_maximum_per_min_per_warehouse,
    )?;
    writeln!(
        to,
        "          terminals key and think {} of their time, as 5.2.5 says; no time for the menu",
        percent(paced.share_of_offered),
    )?;
    let verdict = |holds: Option<bool>| match holds {
        Some(true) => "",
        Some(false) => " EXCEEDED",
        None => " not measured",
    };
    let limits: Vec<String> = Kind::ALL
        .into_iter()
        .filter_map(|kind| {
            let of = paced.transactions.get(kind.name())?;
            let p90 = number(of.response_p90_s, 4);
            Some(format!("{} {p90} of {}{}", kind.name(), of.limit_s, verdict(of.holds)))
        })
        .collect();
    let all = match paced.limits_hold {
        Some(true) => "all hold",
        Some(false) => "NOT all hold",
        None => "not all measured",
    };
    writeln!(to, "limits    {all}; 90th percentiles in seconds: {}", limits.join(", "))?;
    writeln!(
        to,
        "deferred  {} queued, {} done, {} left; 90th percentile {} of {} s{}; {}",
        match paced.deliveries_queued {
            1 => "1 Delivery".to_owned(),
            n => format!("{} Deliveries", grouped(n)),
        },
        grouped(paced.deliveries_done),
        grouped(paced.deliveries_left),
        number(paced.deferred_p90_s, 4),
        paced.deferred_limit_s,
        verdict(paced.deferred_holds),
        paced.delivery_results,
    )?;
    writeln!(to, "processor {} of a core", percent(paced.cpu_share_of_core))
}
