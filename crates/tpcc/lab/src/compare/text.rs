//! Terminal output of comparisons and grids.

use std::fmt::Write;

use super::ComparedRuns;
use super::ratio::RatioInterval;
use super::saved::Difference;
use super::sweep::Sweep;
use tpcc_core::report::NOTICE;
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::words::grouped;

pub(super) fn comparison(of: &ComparedRuns) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = write_comparison(&mut text, of);
    text
}

fn write_comparison(to: &mut String, of: &ComparedRuns) -> std::fmt::Result {
    writeln!(to, "{} {}: throughput of new over base, 95% interval", ratio(&of.ratio), of.verdict.name())?;
    writeln!(to, "{NOTICE}")?;
    writeln!(to)?;
    for (name, side) in [("base", &of.base), ("new", &of.new)] {
        let rate = grouped(side.throughput_per_s.round().max(0.0) as u64);
        let each = if of.rounds.is_empty() { "samples of a second" } else { "runs" };
        writeln!(to, "{name:<9} {rate} /s, {} {each}: {}", side.samples, side.name)?;
    }
    writeln!(to, "method    {}", of.method)?;
    if !of.differences.is_empty() {
        let words: Vec<String> = of.differences.iter().map(Difference::in_words).collect();
        writeln!(to, "differ in {}", words.join(", "))?;
    }
    of.remarks.iter().try_for_each(|remark| writeln!(to, "note      {remark}"))?;
    if of.interrupted {
        writeln!(to, "note      ended by {} after {} rounds", interrupt::name(), of.rounds.len())?;
    }
    writeln!(to)?;
    writeln!(to, "{:<14}{:<6}{:>12}{:>12}   new over base (below 1 is quicker)", "service, us", "", "base", "new")?;
    for kind in Kind::ALL {
        for (percentile, pair) in of.latencies.get(kind.name()).into_iter().flatten() {
            let (base, new) = (pair.base_us, pair.new_us);
            writeln!(to, "{:<14}{percentile:<6}{base:>12.1}{new:>12.1}   {}", kind.name(), ratio(&pair.ratio))?;
        }
    }
    Ok(())
}

/// Formats a ratio with its interval, for example "1.032 (1.010 to 1.055)".
pub(super) fn ratio(of: &RatioInterval) -> String {
    match (of.low, of.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3} to {high:.3})", of.value),
        _ => format!("{:.3}", of.value),
    }
}

pub(super) fn sweep(of: &Sweep) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = write_sweep(&mut text, of);
    text
}

fn write_sweep(to: &mut String, of: &Sweep) -> std::fmt::Result {
    writeln!(to, "{NOTICE}")?;
    writeln!(to, "base      tpcc run {}", of.base)?;
    let ended = if of.interrupted { format!(", ended by {}", interrupt::name()) } else { String::new() };
    writeln!(to, "rounds    {}{ended}; {}", of.rounds, of.method)?;
    writeln!(to)?;
    let longest = |at: usize| of.cells.iter().map(|cell| cell.values[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> =
        of.axes.iter().enumerate().map(|(at, axis)| 2 + longest(at).max(axis.flag.len())).collect();
    let begin = |to: &mut String, words: &mut dyn Iterator<Item = &String>| {
        words.zip(&widths).try_for_each(|(word, width)| write!(to, "{word:<width$}"))
    };
    begin(to, &mut of.axes.iter().map(|axis| &axis.flag))?;
    writeln!(to, "{:>12}{:>12}{:>12}{:>14}   ratio to the first", "/s", "slowest", "quickest", "order p99, us")?;
    for cell in &of.cells {
        begin(to, &mut cell.values.iter())?;
        let whole = |rate: f64| grouped(rate.round().max(0.0) as u64);
        writeln!(
            to,
            "{:>12}{:>12}{:>12}{:>14}   {}",
            whole(cell.throughput_per_s),
            whole(cell.throughput_min),
            whole(cell.throughput_max),
            cell.new_order_p99_us.map_or("-".to_owned(), |us| format!("{us:.1}")),
            ratio(&cell.ratio),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::sweep::{Cell, SweepAxis};

    #[test]
    fn a_grid_is_a_table_with_a_line_for_each_combination() {
        let cell = |value: &str, rate: f64, ratio: RatioInterval| Cell {
            values: vec![value.to_owned()],
            throughput_per_s: rate,
            throughput_min: rate,
            throughput_max: rate,
            ratio,
            new_order_p99_us: None,
            rounds: vec![rate],
        };
        let sweep = Sweep {
            schema: String::new(),
            notice: String::new(),
            base: "--workers 1".to_owned(),
            axes: vec![SweepAxis { flag: "order".to_owned(), values: vec!["spec".to_owned(), "hot-last".to_owned()] }],
            cells: vec![
                cell("spec", 1_000.0, RatioInterval::alone(1.0)),
                cell("hot-last", 1_500.0, RatioInterval { value: 1.5, low: Some(1.4), high: Some(1.6) }),
            ],
            rounds: 1,
            method: "by rounds".to_owned(),
            interrupted: true,
        };
        let text = super::sweep(&sweep);
        assert!(text.contains("tpcc run --workers 1\n") && text.contains("rounds    1, ended by Ctrl-C"), "{text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("hot-last") && last.contains("1,500") && last.ends_with("1.500 (1.400 to 1.600)"),
            "{text}"
        );
    }
}
