//! HTML pages of comparisons and grids.

use maud::{Markup, html};

use super::ratio::RatioInterval;
use super::saved::Difference;
use super::sweep::{Cell, Sweep};
use super::text::ratio;
use super::{ComparedRuns, LatencyPair};
use crate::page::figure::{AxisSpacing, Figure, PlotLine, Point, Source, XPosition};
use crate::page::html::{cell, command, facts, figures, page, table};
use crate::page::ink::MOST_LINES;
use crate::page::scale::short;
use tpcc_core::report::model::Provenance;
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::words::grouped;

/// Returns the HTML page of two sets of flags whose runs alternated.
pub fn of_pair(of: &ComparedRuns) -> String {
    let rate = |rate: f64| grouped(rate.round().max(0.0) as u64);
    let body = html! {
        h1 { "Two sets of flags held against each other" }
        p.faint { (of.notice) }
        (ended(of.interrupted, of.rounds.len()))
        (facts(&[
            ("throughput, new over base", ratio(&of.ratio)),
            ("verdict on new", of.verdict.name().to_owned()),
            ("base, transactions a second", rate(of.base.throughput_per_s)),
            ("new, transactions a second", rate(of.new.throughput_per_s)),
        ]))
        p { "Base: " code { "tpcc run " (of.base.name) } }
        p { "New: " code { "tpcc run " (of.new.name) } }
        @if !of.differences.is_empty() {
            p { "They differ in " (of.differences.iter().map(Difference::in_words).collect::<Vec<_>>().join(", ")) "." }
        }
        @for remark in &of.remarks { p.faint { (remark) } }
        (figures(&pair_figures(of)))
        (repeat(&of.method))
    };
    page("tpcc compare", &body)
}

/// Returns the HTML page of a grid.
pub fn of_sweep(of: &Sweep) -> String {
    let best = of.cells.iter().max_by(|a, b| a.throughput_per_s.total_cmp(&b.throughput_per_s));
    let body = html! {
        h1 { "A grid of flags" }
        p.faint { (of.notice) }
        (ended(of.interrupted, of.rounds))
        p { "All runs: " code { "tpcc run " (of.base) } }
        @if let Some(best) = best {
            (facts(&[
                ("most transactions a second", grouped(best.throughput_per_s.round().max(0.0) as u64)),
                ("found with", named(of, &best.values, None)),
                ("over the first combination", ratio(&best.ratio)),
            ]))
        }
        (figures(&sweep_figures(of)))
        (cells(of))
        (repeat(&of.method))
    };
    page("tpcc compare --sweep", &body)
}

fn ended(interrupted: bool, rounds: usize) -> Markup {
    html! {
        @if interrupted { p.warning { "Ended by a signal, as Ctrl-C sends one; the figures are of the " (rounds) " rounds until then." } }
    }
}

fn repeat(method: &str) -> Markup {
    let here = Provenance::here();
    html! {
        h2 { "How to repeat it" }
        pre { (command(&here.command)) }
        p { "tpcc " (here.line()) "." }
        p { (method.get(..1).unwrap_or_default().to_uppercase()) (method.get(1..).unwrap_or_default()) "." }
    }
}

fn interval(of: &RatioInterval) -> Option<(f64, f64)> {
    of.low.zip(of.high)
}

/// Returns the figures of a comparison: throughputs of each round, and ratios of latencies.
fn pair_figures(of: &ComparedRuns) -> Vec<Figure> {
    let line = |name: &str, rates: &mut dyn Iterator<Item = f64>| PlotLine {
        name: name.to_owned(),
        source: Source::Measured,
        points: (1_u32..)
            .zip(rates)
            .map(|(n, rate)| Point::exact(XPosition::Number(f64::from(n)), Some(rate)))
            .collect(),
    };
    let base = line("base", &mut of.rounds.iter().map(|round| round.base));
    let new = line("new", &mut of.rounds.iter().map(|round| round.new));
    let latency = |kind: &Kind, (percentile, pair): (&String, &LatencyPair)| Point {
        x: XPosition::Name(format!("{} {percentile}", kind.name())),
        y: Some(pair.ratio.value),
        interval: interval(&pair.ratio),
    };
    let all: Vec<Point> = Kind::ALL
        .iter()
        .flat_map(|kind| of.latencies.get(kind.name()).into_iter().flatten().map(|pair| latency(kind, pair)))
        .collect();
    let mut figures = vec![Figure {
        title: "Throughput of each round".to_owned(),
        x_label: "round".to_owned(),
        y_label: "transactions a second".to_owned(),
        lines: vec![base, new],
        marks: vec![],
        x_spacing: AxisSpacing::Linear,
    }];
    if !all.is_empty() {
        figures.push(Figure {
            title: "Service times, new over base".to_owned(),
            x_label: "type and percentile".to_owned(),
            y_label: "ratio with its 95% interval; below 1, new is quicker".to_owned(),
            lines: vec![PlotLine { name: String::new(), source: Source::Measured, points: all }],
            marks: vec![],
            x_spacing: AxisSpacing::Auto,
        });
    }
    figures
}

/// Formats the flags of a combination, for example "order spec, workers 2". Omits the axis `without`.
fn named(of: &Sweep, values: &[String], without: Option<usize>) -> String {
    let own = of.axes.iter().zip(values).enumerate().filter(|(at, _)| Some(*at) != without);
    own.map(|(_, (axis, value))| format!("{} {value}", axis.flag)).collect::<Vec<_>>().join(", ")
}

/// Returns the index of the x axis: the axis with the most values among the numeric axes, or among all axes if none is
/// numeric. On a tie, the first axis is chosen.
fn x_axis(of: &Sweep) -> usize {
    let is_numbers = |at: &usize| of.axes[*at].values.iter().all(|value| value.parse::<f64>().is_ok());
    let longest = |all: Vec<usize>| all.into_iter().rev().max_by_key(|at| of.axes[*at].values.len());
    let all = 0..of.axes.len();
    longest(all.clone().filter(is_numbers).collect()).or_else(|| longest(all.collect())).unwrap_or(0)
}

/// Returns the figures of a grid, with one line for each combination of the other axes. A figure has at most as many lines
/// as there are colours.
fn sweep_figures(of: &Sweep) -> Vec<Figure> {
    let x_axis = x_axis(of);
    let Some(axis) = of.axes.get(x_axis) else { return vec![] };
    let all_numbers = axis.values.iter().all(|value| value.parse::<f64>().is_ok());
    let place = |value: &String| match value.parse() {
        Ok(number) if all_numbers => XPosition::Number(number),
        _ => XPosition::Name(value.clone()),
    };
    let mut lines: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in &of.cells {
        let name = named(of, &cell.values, Some(x_axis));
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => lines.push((name, vec![cell])),
        }
    }
    let number = |cell: &Cell| cell.values[x_axis].parse().unwrap_or(0.0_f64);
    if all_numbers {
        lines.iter_mut().for_each(|(_, cells)| cells.sort_by(|a, b| number(a).total_cmp(&number(b))));
    }
    let draw = |title: &str, y_label: &str, point: &dyn Fn(&Cell) -> Point| {
        let parts = lines.chunks(MOST_LINES).map(|part| Figure {
            title: title.to_owned(),
            x_label: axis.flag.clone(),
            y_label: y_label.to_owned(),
            lines: part
                .iter()
                .map(|(name, cells)| PlotLine {
                    name: name.clone(),
                    source: Source::Measured,
                    points: cells.iter().map(|cell| point(cell)).collect(),
                })
                .collect(),
            marks: vec![],
            x_spacing: AxisSpacing::Auto,
        });
        parts.filter(Figure::has_values).collect::<Vec<_>>()
    };
    let rate = |cell: &Cell| Point {
        x: place(&cell.values[x_axis]),
        y: Some(cell.throughput_per_s),
        interval: (cell.rounds.len() > 1).then_some((cell.throughput_min, cell.throughput_max)),
    };
    let p99 = |cell: &Cell| Point::exact(place(&cell.values[x_axis]), cell.new_order_p99_us);
    let title = format!("Throughput by {}", axis.flag);
    let mut figures = draw(&title, "transactions a second; slowest and quickest round", &rate);
    let title = format!("99th percentile of New-Order by {}", axis.flag);
    figures.extend(draw(&title, "service time, microseconds", &p99));
    figures
}

fn cells(of: &Sweep) -> Markup {
    let head = ["combination", "a second", "slowest", "quickest", "New-Order p99, us", "over the first"];
    let whole = |rate: f64| cell(grouped(rate.round().max(0.0) as u64));
    let row = |of_cell: &Cell| {
        vec![
            cell(named(of, &of_cell.values, None)),
            whole(of_cell.throughput_per_s),
            whole(of_cell.throughput_min),
            whole(of_cell.throughput_max),
            cell(of_cell.new_order_p99_us.map_or("none".to_owned(), short)),
            cell(ratio(&of_cell.ratio)),
        ]
    };
    html! {
        h2 { "All combinations" }
        (table(&head, 1, of.cells.iter().map(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sweep::{SweepAxis, combinations};
    use super::*;

    fn sweep(axes: &[(&str, &[&str])]) -> Sweep {
        let axes: Vec<SweepAxis> = axes
            .iter()
            .map(|(flag, values)| SweepAxis {
                flag: (*flag).to_owned(),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            })
            .collect();
        let cells = combinations(&axes).into_iter().zip(1_u32..).map(|(values, n)| Cell {
            values,
            throughput_per_s: f64::from(n),
            throughput_min: 0.9 * f64::from(n),
            throughput_max: 1.1 * f64::from(n),
            ratio: RatioInterval::alone(f64::from(n)),
            new_order_p99_us: None,
            rounds: vec![1.0, 2.0],
        });
        Sweep {
            schema: String::new(),
            notice: "derived".to_owned(),
            base: "--workers 1".to_owned(),
            cells: cells.collect(),
            axes,
            rounds: 2,
            method: "by rounds".to_owned(),
            interrupted: false,
        }
    }

    #[test]
    fn lines_go_along_the_axis_of_numbers() {
        let of = sweep(&[("workers", &["4", "1", "2"]), ("order", &["spec", "hot-last"])]);
        let figures = sweep_figures(&of);
        assert_eq!(figures.len(), 1, "no percentile was measured");
        assert_eq!(figures[0].x_label, "workers");
        let names: Vec<&str> = figures[0].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["order spec", "order hot-last"]);
        let points: Vec<_> = figures[0].lines[0].points.iter().map(|point| (point.x.clone(), point.y)).collect();
        let at = |x: f64, y: f64| (XPosition::Number(x), Some(y));
        assert_eq!(points, [at(1.0, 3.0), at(2.0, 5.0), at(4.0, 1.0)], "in the order of x");
        let (low, high) = figures[0].lines[0].points[0].interval.unwrap();
        assert!(low < 3.0 && high > 3.0, "{low} {high}");
        let page = of_sweep(&of);
        assert!(page.matches("<svg").count() == 1 && page.contains("workers 2, order hot-last"), "{page}");
    }

    #[test]
    fn words_have_bars_and_many_lines_several_figures() {
        let figures = sweep_figures(&sweep(&[("order", &["spec", "hot-last"])]));
        assert!(figures.len() == 1 && figures[0].lines[0].name.is_empty() && figures[0].lines[0].points.len() == 2);
        let seeds = ["1", "2", "3", "4", "5", "6", "7"];
        let figures = sweep_figures(&sweep(&[("seed", &seeds), ("workers", &seeds)]));
        assert_eq!(figures.iter().map(|figure| figure.lines.len()).collect::<Vec<_>>(), [MOST_LINES, 1]);
    }
}
