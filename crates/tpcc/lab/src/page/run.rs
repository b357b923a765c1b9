//! Page of one run, made from the JSON object of the run. The page of a saved run can therefore be made again.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::figure::{AxisSpacing, EventMark, Figure, PlotLine, Point, Source, XPosition};
use super::html::{cell, command, facts, figures, page, table};
use super::scale::short;
use super::schema::Schema;
use super::thin::MOST_NAMES;
use super::values::{MOST_TABLES, format_value, pairs};
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::words::grouped;

/// Keys with their own section of the page; every other object is shown as a mechanism.
const OWN_SECTIONS: &[&str] =
    &["provenance", "machine", "config", "transactions", "series", "check", "rows", "generator"];

/// Makes the page of a run.
pub fn run_page(run: &Value) -> String {
    let body = html! {
        h1 { "One run of tpcc" }
        p.faint { (format_value(&run["notice"])) }
        (ended(run))
        (head(run))
        h2 { "Throughput" }
        (figures(&[over_time(run)]))
        (noise(run))
        h2 { "Latency" }
        (figures(&[by_percentile(run, "service_us", "service: from begin to answer"), by_percentile(run, "response_us", "response: from when the terminal was ready to answer")]))
        (kinds(run))
        h2 { "Where time goes" }
        (where_time_goes(run))
        (mechanisms(run))
        h2 { "Consistency" }
        (check(run))
        h2 { "How to repeat it" }
        (repeat(run))
        h2 { "Machine" }
        (pairs(run["machine"].as_object(), &Schema::of_run(), &["machine"]))
    };
    page("tpcc run", &body)
}

fn ended(run: &Value) -> Markup {
    html! {
        @match &run["interrupted"] {
            Value::String(why) => p.warning { "The run ended by an error: " (why) },
            Value::Bool(true) => p.warning { "The run was ended by a signal, as Ctrl-C sends one; the figures are of the time until then." },
            _ => {}
        }
        @if run["check"]["passed"] == false { p.warning { "A consistency condition does not hold; see below." } }
    }
}

fn head(run: &Value) -> Markup {
    let number = |key: &str| run[key].as_f64().map_or("not known".to_owned(), |n| grouped(n.round() as u64));
    let p99 = run["transactions"]["new-order"]["p99_us"].as_f64();
    let check = match run["check"]["passed"].as_bool() {
        Some(true) => "all rules hold".to_owned(),
        Some(false) => "broken".to_owned(),
        None => "not checked".to_owned(),
    };
    let aborted = run["aborted"].as_u64().unwrap_or_default();
    let of = |key: &str| run[key].as_u64().unwrap_or_default();
    let all = of("committed").saturating_add(of("rolled_back"));
    let share = 100.0 * aborted as f64 / all.max(1) as f64;
    html! {
        (facts(&[
            ("transactions a second", number("throughput_per_s")),
            ("New-Orders a minute, rolled-back ones included", number("new_orders_per_min")),
            ("99 of 100 New-Orders within", p99.map_or("not known".to_owned(), |us| format!("{} us", short(us)))),
            ("victims, all run again", format!("{} ({}%)", grouped(aborted), short(share))),
            ("seconds measured", run["measured_s"].as_f64().map_or("not known".to_owned(), short)),
            ("consistency", check),
        ]))
    }
}

/// Returns the numbers of a list; `None` for an element that is not a number.
fn numbers(value: &Value) -> impl Iterator<Item = Option<f64>> {
    value.as_array().into_iter().flatten().map(Value::as_f64)
}

fn over_time(run: &Value) -> Figure {
    let series = &run["series"];
    let at = |of: &str| numbers(&series["t_s"]).zip(numbers(&series[of])).filter_map(|(t, n)| Some((t?, n)));
    let points = at("throughput_per_s").map(|(t, rate)| Point::exact(XPosition::Number(t), rate)).collect();
    let marks = at("checkpoints").filter(|(_, n)| n.is_some_and(|n| n > 0.0));
    Figure {
        title: "Throughput over time".to_owned(),
        x_label: "seconds since measuring began".to_owned(),
        y_label: "transactions a second, each second".to_owned(),
        lines: vec![PlotLine { name: String::new(), source: Source::Measured, points }],
        marks: marks.map(|(t, _)| EventMark { x: t, what: "a checkpoint ended" }).collect(),
        x_spacing: AxisSpacing::Linear,
    }
}

/// Returns the section on the variation of the throughput, by which a reader can judge small differences.
fn noise(run: &Value) -> Markup {
    let mut rates: Vec<f64> = numbers(&run["series"]["throughput_per_s"]).flatten().collect();
    rates.sort_by(f64::total_cmp);
    let (Some(&least), Some(&median), Some(&most)) = (rates.first(), rates.get(rates.len() / 2), rates.last()) else {
        return html! { p.faint { "Too short for a sample of a second." } };
    };
    let share = spread(&rates).map_or("not known".to_owned(), |share| format!("{}%", short(100.0 * share)));
    html! {
        p {
            "Seconds differ by " (share) " (standard deviation): least " (short(least)) ", median " (short(median))
            ", most " (short(most)) ". The hypervisor gave "
            (run["machine"]["steal"].as_f64().map_or("an unknown share".to_owned(), |steal| format!("{}%", short(100.0 * steal))))
            " of the processors to others meanwhile."
        }
    }
}

/// Returns the standard deviation relative to the mean; `None` if the mean is not above 0.
fn spread(values: &[f64]) -> Option<f64> {
    // Values are scaled by the largest value, so that sums and squares are finite.
    let unit = values.iter().copied().map(f64::abs).fold(0.0, f64::max);
    let (n, scaled) = (values.len() as f64, || values.iter().map(|value| value / unit));
    let mean = scaled().sum::<f64>() / n;
    let variance = scaled().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

/// Returns the transaction types that ran, with their JSON objects.
fn kinds_of(run: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let all = run["transactions"].as_object().into_iter().flatten();
    let is_kind = |name: &str| Kind::ALL.iter().any(|kind| kind.name() == name);
    all.filter(move |(name, of)| is_kind(name) && of["count"].as_u64().is_some_and(|n| n > 0))
}

fn by_percentile(run: &Value, key: &str, what: &str) -> Figure {
    let lines = kinds_of(run).map(|(kind, of)| {
        let curve = numbers(&of["curve"]["share"]).zip(numbers(&of["curve"][key]));
        let points = curve.filter_map(|(share, us)| Some((share?, us))).take(MOST_NAMES).map(|(share, us)| {
            let name = if share >= 1.0 { "max".to_owned() } else { format!("{}%", round(100.0 * share)) };
            Point::exact(XPosition::Name(name), us)
        });
        PlotLine { name: kind.clone(), source: Source::Measured, points: points.collect() }
    });
    Figure {
        title: format!("Latency, {what}"),
        x_label: "share of transactions that were no slower".to_owned(),
        y_label: "microseconds".to_owned(),
        lines: lines.collect(),
        marks: vec![],
        x_spacing: AxisSpacing::Auto,
    }
}

fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

fn kinds(run: &Value) -> Markup {
    let us = |of: &Value, key: &str| cell(of[key].as_f64().map_or("-".to_owned(), short));
    let rows = kinds_of(run).map(|(kind, of)| {
        let mut row = vec![cell(kind), cell(format_value(&of["count"])), cell(format_value(&of["rolled_back"]))];
        let times = ["mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us", "response_p99_us"];
        row.extend(times.map(|key| us(of, key)));
        row
    });
    table(
        &["transaction", "count", "rolled back", "mean, us", "p50", "p90", "p99", "p99.9", "max", "response p99"],
        1,
        rows,
    )
}

/// Returns the section on the time of the workers.
fn where_time_goes(run: &Value) -> Markup {
    let Some(time) = WorkerTime::of(run) else {
        return html! { p.faint { "Nothing was measured." } };
    };
    let figure = Figure {
        title: "Time of the workers, by kind of transaction".to_owned(),
        y_label: "per cent of the workers' time".to_owned(),
        lines: vec![PlotLine { name: String::new(), source: Source::Measured, points: time.bars }],
        ..Figure::default()
    };
    html! {
        (figures(&[figure]))
        @if time.overlaps {
            p { "Transactions of a worker are under way together: the kinds' parts are of the time of all transactions." }
        } @else {
            p.faint { "Between transactions a worker waits for answers to be durable, and has them sent." }
        }
        @if run["counters"].is_null() {
            p.faint { "The processor's counters were not read; --counters on reads those that the machine offers." }
        }
    }
}

/// Time of the workers by activity, in per cent.
struct WorkerTime {
    bars: Vec<Point>,
    /// True if transactions of a team overlap, so that their times add up to more than the time of the workers. The bars of
    /// the transaction types are then shares of the sum of these times.
    overlaps: bool,
}

impl WorkerTime {
    /// Computes the times of a run; `None` if nothing was measured.
    fn of(run: &Value) -> Option<WorkerTime> {
        let workers = run["config"]["workers"].as_f64().unwrap_or(1.0);
        let seconds = run["measured_s"].as_f64()? * workers;
        if !(seconds > 0.0 && seconds.is_finite()) {
            return None;
        }
        let of_kinds: Vec<(&String, f64)> =
            kinds_of(run).filter_map(|(kind, of)| Some((kind, of["run_ns"].as_f64()? / 1e9))).collect();
        let sum: f64 = of_kinds.iter().map(|(_, part)| part).sum();
        let overlaps = sum > seconds;
        let bar =
            |name: &str, part: f64, of: f64| Point::exact(XPosition::Name(name.to_owned()), Some(100.0 * part / of));
        let mut bars: Vec<Point> = of_kinds.iter().map(|(kind, part)| bar(kind, *part, sum.max(seconds))).collect();
        if !of_kinds.is_empty() && !overlaps {
            bars.push(bar("between transactions", seconds - sum, seconds));
        }
        if let Some(ms) = run.pointer("/counters/software/task_clock_ms").and_then(Value::as_f64) {
            bars.push(bar("on a processor, all of it", ms / 1e3, seconds));
        }
        Some(WorkerTime { bars, overlaps })
    }
}

/// Returns the section on the mechanisms: every object of the run without its own section of the page.
fn mechanisms(run: &Value) -> Markup {
    let schema = Schema::of_run();
    let all = run.as_object().into_iter().flatten();
    let all: Vec<_> = all.filter(|(key, value)| value.is_object() && !OWN_SECTIONS.contains(&key.as_str())).collect();
    html! {
        h2 { "Mechanisms" }
        @if all.is_empty() { p.faint { "None counted anything." } }
        @if all.len() > MOST_TABLES { p.faint { "The first " (MOST_TABLES) " of " (grouped(all.len() as u64)) "." } }
        @for (key, value) in all.into_iter().take(MOST_TABLES) {
            h3 { (key.replace('_', " ")) }
            @if let Some(about) = schema.about(&[key]).0 { p.faint { (about) } }
            (pairs(value.as_object(), &schema, &[key]))
        }
    }
}

fn check(run: &Value) -> Markup {
    let rules = run["check"]["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = rules.iter().map(|rule| {
        let (class, holds) = if rule["holds"] == true { ("holds", "✓ holds") } else { ("contradicts", "✗ broken") };
        vec![
            cell(format_value(&rule["id"])),
            cell(format_value(&rule["text"])),
            html! { span.verdict.(class) { (holds) } },
        ]
    });
    html! {
        @if rules.is_empty() { p.faint { "The conditions were not checked." } } @else {
            details {
                summary { (format_value(&run["check"]["conditions_held"])) " of 12 conditions hold; all rules" }
                (table(&["rule", "says", "holds"], 9, rows))
            }
        }
        p.faint {
            "The generator drew "
            @if run["generator"]["as_specified"] == true { "as specified." } @else { "outside the specified bands." }
        }
    }
}

fn repeat(run: &Value) -> Markup {
    let provenance = &run["provenance"];
    let line: Vec<String> = provenance["command"].as_array().into_iter().flatten().map(format_value).collect();
    // A run without `--seed` drew its seed.
    let seed = run["config"]["seed"].as_u64().filter(|_| !line.iter().any(|word| word.starts_with("--seed")));
    let set = run["config"].as_object().map(|config| {
        config.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect::<Map<_, _>>()
    });
    let schema = Schema::of_run();
    html! {
        pre { (command(&line)) @if let Some(seed) = &seed { " --seed " (seed) } }
        p {
            "Built from commit " (format_value(&provenance["commit"]))
            @if provenance["dirty"] == true { ", with changes" }
            " by " (format_value(&provenance["rustc"])) " as " (format_value(&provenance["profile"])) "."
        }
        details { summary { "Every setting" } (pairs(set.as_ref(), &schema, &["config"])) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a run of 2 workers for 1 s. Each worker has ten terminals, which waited for the disk most of the time.
    fn run(new_order_ns: u64) -> Value {
        json!({
            "config": { "workers": 2 },
            "measured_s": 1.0,
            "transactions": {
                "new-order": { "count": 1000, "mean_us": 4000.0, "run_ns": new_order_ns },
                "payment": { "count": 1000, "mean_us": 4000.0, "run_ns": 500_000_000_u64 },
            },
        })
    }

    fn bars(time: &WorkerTime) -> Vec<(XPosition, f64)> {
        time.bars.iter().map(|bar| (bar.x.clone(), bar.y.unwrap())).collect()
    }

    #[test]
    fn the_wait_for_the_disk_is_not_the_workers_time() {
        let time = WorkerTime::of(&run(1_000_000_000)).unwrap();
        let named = |name: &str, percent| (XPosition::Name(name.to_owned()), percent);
        assert_eq!(
            bars(&time),
            [named("new-order", 50.0), named("payment", 25.0), named("between transactions", 25.0)]
        );
        assert!(!time.overlaps);
    }

    #[test]
    fn transactions_under_way_together_have_shares_of_their_sum() {
        let time = WorkerTime::of(&run(9_500_000_000)).unwrap();
        let named = |name: &str, percent| (XPosition::Name(name.to_owned()), percent);
        assert_eq!(bars(&time), [named("new-order", 95.0), named("payment", 5.0)]);
        assert!(time.overlaps);
    }
}
