//! Assigns the series of an experiment to figures.
//!
//! Series of an experiment with the same x and the same y share a figure, up to six series, the maximum that can be
//! distinguished. If there are more, each group of series whose names begin alike ("uniform, itas" and "uniform, tas") makes
//! a figure.

use std::fmt::Write;

use indexmap::IndexMap;

use super::report::{Series, XValue};
use crate::page::figure::{AxisSpacing, Figure, PlotLine, Point, Source, XPosition, quoted};
use crate::page::ink::MOST_LINES;

/// A series with its short name.
#[derive(Clone, Debug)]
struct Part<'a> {
    series: &'a Series,
    /// Name of the series without the experiment's id.
    name: String,
}

/// Returns the figures of an experiment.
pub(super) fn figures<'a>(experiment: &str, series: impl IntoIterator<Item = &'a Series>) -> Vec<Figure> {
    // Series, grouped by the properties that the series of a figure share.
    let mut groups: IndexMap<_, Vec<Part<'_>>> = IndexMap::new();
    for series in series {
        let (name, table) = name_of(experiment, &series.name);
        // "processors, measured" and "processors, simulated" are one axis. The second word becomes part of the name of the
        // series.
        let (x, how) = match series.x_label.split_once(", ") {
            Some((x, how @ ("measured" | "simulated"))) => (x.to_owned(), format!(", {how}")),
            _ => (series.x_label.clone(), String::new()),
        };
        let key = (x, series.y_label.as_str(), table);
        let part = Part { series, name: name + &how };
        groups.entry(key).or_default().push(part);
    }
    let mut figures = Vec::new();
    for ((x, y, table), parts) in groups {
        for (what, parts) in split_groups(parts) {
            figures.push(figure(experiment, &x, y, &table, &what, &parts));
        }
    }
    figures
}

/// Returns the name of a series without the experiment's id, and the table or figure of the paper with which the name
/// begins, if any.
fn name_of(experiment: &str, name: &str) -> (String, String) {
    let rest = name.strip_prefix(experiment).unwrap_or(name).trim_start();
    let is_table = |word: &str| {
        let number = word.strip_prefix("table").or_else(|| word.strip_prefix("fig"));
        number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    };
    match rest.split_once(' ') {
        Some((first, rest)) if is_table(first) => (rest.to_owned(), first.to_owned()),
        _ => (rest.to_owned(), String::new()),
    }
}

/// Splits parts into groups of at most six, each with the common start of the names of its parts.
fn split_groups(parts: Vec<Part<'_>>) -> Vec<(String, Vec<Part<'_>>)> {
    if parts.len() <= MOST_LINES {
        return vec![(String::new(), parts)];
    }
    let mut groups: IndexMap<String, Vec<Part<'_>>> = IndexMap::new();
    for part in parts {
        let first = part.name.split_once(", ").map_or(part.name.as_str(), |(first, _)| first).to_owned();
        groups.entry(first).or_default().push(part);
    }
    if groups.iter().all(|(_, parts)| parts.len() == 1) {
        // The names have no common start: the groups keep the order of the parts.
        let all: Vec<Part<'_>> = groups.into_iter().flat_map(|(_, parts)| parts).collect();
        return all.chunks(MOST_LINES).map(|some| (String::new(), some.to_vec())).collect();
    }
    groups
        .into_iter()
        .flat_map(|(first, parts)| {
            parts.chunks(MOST_LINES).map(|some| (first.clone(), some.to_vec())).collect::<Vec<_>>()
        })
        .collect()
}

fn figure(experiment: &str, x: &str, y: &str, table: &str, what: &str, parts: &[Part<'_>]) -> Figure {
    let lines = parts.iter().map(|part| {
        let series = part.series;
        let own = match part.name.strip_prefix(what).filter(|_| !what.is_empty()) {
            Some(rest) if !rest.is_empty() => rest.trim_start_matches(", ").to_owned(),
            _ => part.name.clone(),
        };
        let points = series.x.iter().enumerate().map(|(place, x)| {
            let of = |list: &[Option<f64>]| list.get(place).copied().flatten();
            Point {
                x: match x {
                    XValue::Number(number) => XPosition::Number(*number),
                    XValue::Name(name) => XPosition::Name(name.clone()),
                },
                y: of(&series.y),
                interval: of(&series.low).zip(of(&series.high)).filter(|(low, high)| low < high),
            }
        });
        let source = if part.name.split(|c: char| !c.is_alphanumeric()).any(|word| word == "paper") {
            Source::Paper
        } else {
            Source::Measured
        };
        PlotLine { name: own, source, points: points.collect() }
    });
    let mut lines: Vec<PlotLine> = lines.collect();
    let mut title = experiment.to_owned();
    for more in [table, what] {
        if !more.is_empty() {
            let _ = write!(title, ", {more}");
        }
    }
    let _ = write!(title, ": {y}");
    if let [only] = &mut lines[..]
        && (only.name == what || only.name.is_empty())
    {
        only.name.clear();
    }
    Figure { title, x_label: x.to_owned(), y_label: y.to_owned(), lines, marks: vec![], x_spacing: AxisSpacing::Auto }
}

/// Formats a series as a CSV file.
pub(super) fn series_csv(series: &Series) -> String {
    let mut text = format!("{},{},low,high\n", quoted(&series.x_label), quoted(&series.y_label));
    for (place, x) in series.x.iter().enumerate() {
        let number =
            |list: &[Option<f64>]| list.get(place).copied().flatten().map_or(String::new(), |value| value.to_string());
        let x = match x {
            XValue::Number(x) => x.to_string(),
            XValue::Name(name) => quoted(name),
        };
        let _ = writeln!(text, "{x},{},{},{}", number(&series.y), number(&series.low), number(&series.high));
    }
    text
}

/// Converts a name to a part of a file name.
pub(super) fn file_name(name: &str) -> String {
    let mut file: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    while file.contains("--") {
        file = file.replace("--", "-");
    }
    file.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, x: &str, y: &str) -> Series {
        let mut series = Series::new(name, x, y);
        series.push_exact(1_u32, Some(2.0));
        series
    }

    fn titles(experiment: &str, all: &[Series]) -> Vec<(String, Vec<String>)> {
        let names = |figure: &Figure| figure.lines.iter().map(|line| line.name.clone()).collect();
        figures(experiment, all).iter().map(|figure| (figure.title.clone(), names(figure))).collect()
    }

    #[test]
    fn series_over_one_axis_share_a_figure() {
        let all = [series("e-1 a", "n", "ns"), series("e-1 other", "n", "us"), series("e-1 b", "n", "ns")];
        assert_eq!(
            titles("e-1", &all),
            [("e-1: ns".into(), vec!["a".into(), "b".into()]), ("e-1: us".into(), vec!["other".into()])]
        );
    }

    #[test]
    fn too_many_are_parted_by_how_they_begin() {
        let names = ["u, fair", "u, tas", "u, itas", "g, fair", "g, tas", "g, itas", "g, auto"];
        let all: Vec<_> = names.iter().map(|name| series(&format!("e-1 {name}"), "n", "ns")).collect();
        let titles = titles("e-1", &all);
        assert_eq!(titles[0], ("e-1, u: ns".into(), vec!["fair".into(), "tas".into(), "itas".into()]));
        assert_eq!(titles.len(), 2);
        let alone: Vec<_> = (0..13).map(|n| series(&format!("e-1 {n}"), "n", "ns")).collect();
        assert_eq!(figures("e-1", &alone).iter().map(|f| f.lines.len()).collect::<Vec<_>>(), [6, 6, 1]);
    }

    #[test]
    fn simulated_and_measured_stand_side_by_side() {
        let all = [series("e-1 x", "cores, simulated", "ns"), series("e-1 x", "cores, measured", "ns")];
        assert_eq!(titles("e-1", &all), [("e-1: ns".into(), vec!["x, simulated".into(), "x, measured".into()])]);
    }

    #[test]
    fn the_papers_values_are_known_by_their_name() {
        let all = [series("e-1 table2 paper, large", "n", "ns"), series("e-1 table2 here", "n", "ns")];
        let figures = figures("e-1", &all);
        assert_eq!(figures[0].title, "e-1, table2: ns");
        assert_eq!(
            figures[0].lines.iter().map(|line| line.source).collect::<Vec<_>>(),
            [Source::Paper, Source::Measured]
        );
    }

    #[test]
    fn files_have_plain_names() {
        assert_eq!(file_name("steps-fig2 32 KiB, 8 ways / on"), "steps-fig2-32-kib-8-ways-on");
        let mut of = series("s", "what, of", "ns");
        of.push("a, b", None);
        assert_eq!(series_csv(&of), "\"what, of\",ns,low,high\n1,2,2,2\n\"a, b\",,,\n");
    }
}
