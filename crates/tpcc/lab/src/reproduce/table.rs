//! A report as tables for a terminal.

use std::fmt::Write;

use super::report::{Report, Series, XValue};

/// A table whose first column is left-aligned, and whose other columns are right-aligned.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<const N: usize>(head: [&str; N]) -> Table {
        Table { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &'_ Vec<String>, i: usize| row.get(i).map_or(0, |cell| cell.chars().count());
        let width: Vec<usize> =
            (0..columns).map(|i| self.rows.iter().map(|row| cell(row, i)).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from("  ");
            for (i, cell) in row.iter().enumerate() {
                let pad = " ".repeat(width[i] - cell.chars().count());
                line += &if i == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Formats a whole report.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\npaper     {}\n", report.id, report.paper);
    let _ = writeln!(text, "machine   {}", report.machine.line());
    let mut rest = &report.series[..];
    while let Some(first) = rest.first() {
        // Series over the same positions are columns of one table.
        let alike = rest.iter().take_while(|series| alike(first, series)).count();
        text += &series_table(&rest[..alike]);
        rest = &rest[alike..];
    }
    if !report.claims.is_empty() {
        text += "\n";
        let mut table = Table::new(["claim", "paper", "here", "verdict"]);
        for claim in &report.claims {
            let interval = claim
                .interval()
                .map_or(String::new(), |(low, high)| format!(" ({} to {})", shown(Some(low)), shown(Some(high))));
            let here = format!("{}{interval} {}", shown(claim.value), claim.unit);
            table.rows.push(vec![claim.name.clone(), shown(claim.paper_value), here, claim.verdict.name().to_owned()]);
        }
        text += &table.text();
        for claim in &report.claims {
            let _ = writeln!(text, "  {}: {}", claim.name, claim.note);
        }
    }
    text
}

/// Formats series as tables of up to five columns, which fit a line.
fn series_table(series: &[Series]) -> String {
    let mut text = String::new();
    for part in series.chunks(5) {
        let Some(first) = part.first() else { continue };
        let _ = writeln!(text, "\n{}", first.y_label);
        let mut table = Table::new([first.x_label.as_str()]);
        table.rows[0].extend(part.iter().map(|series| series.name.clone()));
        for (place, x) in first.x.iter().enumerate() {
            let mut row = vec![match x {
                XValue::Number(number) => shown(Some(*number)),
                XValue::Name(name) => name.clone(),
            }];
            row.extend(part.iter().map(|series| value(series, place)));
            table.rows.push(row);
        }
        text += &table.text();
    }
    text
}

fn alike(a: &Series, b: &Series) -> bool {
    a.x == b.x && a.x_label == b.x_label && a.y_label == b.y_label
}

/// Formats a value with its interval, for example "12.3 (11.9 to 12.8)".
fn value(series: &Series, place: usize) -> String {
    let of = |list: &[Option<f64>]| list.get(place).copied().flatten();
    match (of(&series.y), of(&series.low), of(&series.high)) {
        (Some(y), Some(low), Some(high)) if low < high => {
            format!("{} ({} to {})", shown(Some(y)), shown(Some(low)), shown(Some(high)))
        }
        (y, ..) => shown(y),
    }
}

/// Formats a number with three to four significant digits.
fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(v) if v.abs() >= 1e6 => format!("{:.2}M", v / 1e6),
        Some(v) if v.abs() >= 1e4 => format!("{:.1}k", v / 1e3),
        Some(v) if v.fract() == 0.0 => format!("{v:.0}"),
        Some(v) if v.abs() >= 100.0 => format!("{v:.0}"),
        Some(v) if v.abs() >= 10.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 1.0, 0.8512, 12.34, 123.4, 4096.0, 54321.0, 1.5e7];
        let shown: Vec<_> = all.iter().map(|v| shown(Some(*v))).collect();
        assert_eq!(shown, ["0", "1", "0.851", "12.3", "123", "4096", "54.3k", "15.00M"]);
    }

    #[test]
    fn series_over_one_axis_share_a_table() {
        let mut a = Series::new("off", "threads", "misses");
        let mut b = Series::new("on", "threads", "misses");
        for (x, ya, yb) in [(1_u32, 10.0, 10.0), (10, 100.0, 12.5)] {
            a.push_exact(x, Some(ya));
            b.push_exact(x, Some(yb));
        }
        assert_eq!(
            series_table(&[a, b]),
            "\nmisses\n  threads  off    on\n  1         10    10\n  10       100  12.5\n"
        );
    }
}
