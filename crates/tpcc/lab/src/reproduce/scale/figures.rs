//! Series of the model: throughput, efficiency, log volume, and causes of lost time.

use serde_json::json;

use super::measured::{self, CLAIMED};
use crate::reproduce::Results;
use crate::reproduce::report::Series;
use crate::scale::recording::ScaleRecording;
use crate::scale::result::ScaleResult;

/// Maximum number of causes of a figure.
const MOST_CAUSES: usize = 6;

/// Results of one mix and assignment by number of cores.
pub(super) struct Curve<'a> {
    pub(super) name: &'static str,
    pub(super) recording: &'a ScaleRecording,
    /// True for the engine after splits for contention.
    pub(super) after: bool,
    pub(super) results: Vec<(usize, ScaleResult)>,
}

/// Throughput on 16 cores by the time of a transfer in nanoseconds.
pub(super) struct TransferCurve {
    pub(super) after: bool,
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// Returns the words for the engine before or after splits.
pub(super) fn when(after: bool) -> &'static str {
    if after { "after splits" } else { "before splits" }
}

/// A cause of lost time on one number of cores.
struct FirstCause {
    name: String,
    /// Share of the lost time, and nanoseconds per transaction.
    share: f64,
    ns: f64,
}

fn first_cause(curve: &Curve<'_>, result: &ScaleResult) -> Option<FirstCause> {
    let all = result.lost_ns(curve.recording);
    let (name, ns) = result.losses(curve.recording).into_iter().next()?;
    Some(FirstCause { name, share: ns / all, ns })
}

/// Adds all series. `by_transfer`: throughput on 16 cores by the time of a transfer, before and after splits.
pub(super) fn add(findings: &mut Results, curves: &[Curve<'_>], by_transfer: &[TransferCurve]) {
    throughput(findings, curves);
    causes(findings, curves);
    for TransferCurve { after, points } in by_transfer {
        let name = format!("scale-cores transfer time, {CLAIMED} cores, mix, {}", when(*after));
        let mut series = Series::new(name, "ns of a line from another core", "transactions a second");
        points.iter().for_each(|(ns, rate)| series.push_exact(*ns, *rate));
        findings.series.push(series);
    }
}

fn throughput(findings: &mut Results, curves: &[Curve<'_>]) {
    let label = "transactions a second";
    for curve in curves {
        let named = |what: &str, label: &str| {
            Series::new(format!("scale-cores {what}{}, {}", curve.name, when(curve.after)), "cores", label)
        };
        let one = curve.results.first().map(|(_, result)| result.per_second);
        let mut rate = named("", label);
        let mut efficiency = named("", "share of cores times one core");
        let mut log = named("", "MB of log a second");
        for (cores, result) in &curve.results {
            let cores = *cores as f64;
            rate.push_exact(cores, Some(result.per_second));
            efficiency.push_exact(cores, one.map(|one| result.per_second / one / cores));
            log.push_exact(cores, Some(result.per_second * result.log_bytes / 1e6));
        }
        findings.series.extend([rate, efficiency, log]);
    }
    let mut mix = Series::new("scale-cores mix, measured", "cores", label);
    let mut efficiency = Series::new("scale-cores mix, measured", "cores", "share of cores times one core");
    for (cores, rate) in measured::MIX {
        mix.push_exact(cores as f64, Some(rate));
        efficiency.push_exact(cores as f64, Some(rate / measured::MIX[0].1 / cores as f64));
    }
    findings.series.extend([mix, efficiency]);
    for (name, rate) in [
        ("payment", measured::PAYMENT_16),
        ("new-order", measured::NEW_ORDER_16),
        ("partition none", measured::SPREAD_16),
        ("itas, groups on all cores", measured::ITAS_16),
    ] {
        let mut series = Series::new(format!("scale-cores {name}, measured"), "cores", label);
        series.push_exact(16_u32, Some(rate));
        findings.series.push(series);
    }
}

/// Adds what stops the growth: the first cause on each number of cores, the greatest causes, and all lines on 16 cores.
fn causes(findings: &mut Results, curves: &[Curve<'_>]) {
    let mut told = Vec::new();
    for curve in curves {
        let of = format!("{}, {}", curve.name, when(curve.after));
        let mut first = Series::new(
            format!("scale-cores first cause of lost growth, {of}"),
            "cores and cause",
            "share of the lost time",
        );
        for (cores, result) in &curve.results {
            if let Some(FirstCause { name, share, ns }) = first_cause(curve, result) {
                first.push_exact(format!("{cores}: {name}"), Some(share));
                told.push(format!("{of}, {cores} cores: {name}, {:.0}% of the lost time, {ns:.0} ns", 100.0 * share));
            }
        }
        findings.series.push(first);
        let Some((_, at)) = curve.results.iter().find(|(cores, _)| *cores == CLAIMED) else { continue };
        let losses = at.losses(curve.recording);
        for (cause, _) in losses.iter().take(MOST_CAUSES) {
            let name = format!("scale-cores who waits, {of}, {cause}");
            let mut series = Series::new(name, "cores", format!("ns of a transaction, {of}").as_str());
            for (cores, result) in &curve.results {
                let ns = result
                    .losses(curve.recording)
                    .into_iter()
                    .find(|(name, _)| name == cause)
                    .map_or(0.0, |(_, ns)| ns);
                series.push_exact(*cores as f64, Some(ns));
            }
            findings.series.push(series);
        }
        let mut waits =
            Series::new(format!("scale-cores waits on {CLAIMED} cores, {of}"), "cause", "ns of a transaction");
        losses.iter().for_each(|(cause, ns)| waits.push_exact(cause.as_str(), Some(*ns)));
        let mut moved = Series::new(
            format!("scale-cores lines on {CLAIMED} cores, {of}"),
            "line",
            "lines from other cores, a transaction",
        );
        for (class, lines) in curve.recording.classes.iter().zip(&at.lines).filter(|(_, lines)| lines.transfers() > 0.0)
        {
            moved.push_exact(class.name(), Some(lines.transfers()));
        }
        let mut rates =
            Series::new(format!("scale-cores counts on {CLAIMED} cores, {of}"), "event", "of a transaction");
        for (name, value) in [
            ("waits for record locks", at.lock_waits),
            ("rolled back", at.aborts),
            ("sections again", at.again),
            ("ns of its instructions", at.work_ns),
        ] {
            rates.push_exact(name, Some(value));
        }
        findings.series.extend([waits, moved, rates]);
    }
    findings.config.insert("scale_first_causes".into(), json!(told));
}
