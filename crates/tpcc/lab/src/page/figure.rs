//! What a figure is, before it is drawn.

use std::collections::HashSet;
use std::fmt::Write;

/// Lines over numbers, or bars over names.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What x is, with its unit.
    pub x_label: String,
    /// What y is, with its unit.
    pub y_label: String,
    /// What is drawn.
    pub lines: Vec<PlotLine>,
    /// Events along x.
    pub marks: Vec<EventMark>,
    /// What equal distances along x are.
    pub x_steps: AxisSteps,
}

/// What equal distances along an axis are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AxisSteps {
    /// Equal sums, or equal factors where values span so much that sums would show the largest alone.
    #[default]
    AsTheySpan,
    /// Equal sums, whatever they span: of time, say.
    Sums,
}

/// A curve, or a bar for each name.
#[derive(Clone, PartialEq, Debug)]
pub struct PlotLine {
    /// What it shows; empty where the figure has no other.
    pub name: String,
    /// Where it was found.
    pub of: Finder,
    /// Its points, in the order of x.
    pub points: Vec<Point>,
}

/// Where a value was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finder {
    /// Here, by this program.
    Here,
    /// In a paper, by its authors.
    Paper,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Where.
    pub x: At,
    /// None where nothing could be measured.
    pub y: Option<f64>,
    /// Lower and upper end of its interval; none where it is exact.
    pub interval: Option<(f64, f64)>,
}

/// A place on the x axis.
#[derive(Clone, PartialEq, Debug)]
pub enum At {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
}

/// Something that happened at x.
#[derive(Clone, PartialEq, Debug)]
pub struct EventMark {
    /// Where.
    pub x: f64,
    /// What, the same text for all of a kind.
    pub what: &'static str,
}

/// How x is laid out.
#[derive(Clone, PartialEq, Debug)]
pub enum Layout {
    /// Numbers, from left to right.
    Numbers,
    /// Names that are numbers but for a few ("full", "max"): from left to right, evenly.
    Ordered(Vec<String>),
    /// Names, from top to bottom.
    Names(Vec<String>),
}

impl Point {
    /// A value without an interval.
    pub fn exact(x: At, y: Option<f64>) -> Point {
        Point { x, y, interval: None }
    }
}

impl PlotLine {
    /// The line without its points.
    pub(super) fn empty(&self) -> PlotLine {
        PlotLine { name: self.name.clone(), of: self.of, points: Vec::new() }
    }
}

impl At {
    /// The place as a name.
    pub(super) fn text(&self) -> String {
        match self {
            At::Number(number) => number.to_string(),
            At::Name(name) => name.clone(),
        }
    }
}

impl Figure {
    /// All values, intervals included.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points).filter(|point| point.y.is_some());
        points.flat_map(|point| {
            let (low, high) = point.interval.unzip();
            point.y.into_iter().chain(low).chain(high)
        })
    }

    /// Whether there is anything to draw.
    pub fn has_values(&self) -> bool {
        self.values().next().is_some()
    }

    /// The figure without its lines and marks.
    pub(super) fn empty(&self) -> Figure {
        Figure {
            title: self.title.clone(),
            x_label: self.x_label.clone(),
            y_label: self.y_label.clone(),
            lines: Vec::new(),
            marks: Vec::new(),
            x_steps: self.x_steps,
        }
    }

    /// Whether the x axis shows names: one point with a name is enough.
    pub(super) fn is_named(&self) -> bool {
        self.lines.iter().flat_map(|line| &line.points).any(|point| matches!(point.x, At::Name(_)))
    }

    /// How x is laid out.
    pub fn places(&self) -> Layout {
        if !self.is_named() {
            return Layout::Numbers;
        }
        let mut known = HashSet::new();
        let mut names = self.lines.iter().flat_map(|line| &line.points).map(|point| point.x.text()).collect::<Vec<_>>();
        names.retain(|name| known.insert(name.clone()));
        let numbers = names.iter().filter(|name| name.trim_end_matches('%').parse::<f64>().is_ok()).count();
        match names.len() > 2 && 2 * numbers > names.len() {
            true => Layout::Ordered(names),
            false => Layout::Names(names),
        }
    }

    /// Its data: a line for each point.
    pub fn csv(&self) -> String {
        let mut text = "series,x,y,low,high\n".to_owned();
        for line in &self.lines {
            let name = if line.name.is_empty() { &self.title } else { &line.name };
            for point in &line.points {
                let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                let (low, high) = point.interval.unzip();
                let (name, x) = (quoted(name), quoted(&point.x.text()));
                let _ = writeln!(text, "{name},{x},{},{},{}", number(point.y), number(low), number(high));
            }
        }
        text
    }
}

/// A field of a CSV file (RFC 4180).
pub fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(names: &[&str]) -> Figure {
        let point = |name: &&str| Point::exact(At::Name((*name).to_owned()), Some(1.0));
        let line = PlotLine { name: "a, b".into(), of: Finder::Here, points: names.iter().map(point).collect() };
        Figure { lines: vec![line], ..Figure::default() }
    }

    #[test]
    fn names_that_are_numbers_are_in_order() {
        assert!(matches!(over(&["1", "2", "4", "full"]).places(), Layout::Ordered(names) if names.len() == 4));
        assert!(matches!(over(&["fetch", "update", "2"]).places(), Layout::Names(_)));
        assert!(matches!(over(&["50%", "99.9%", "max"]).places(), Layout::Ordered(_)));
    }

    #[test]
    fn data_is_quoted_where_it_must_be() {
        let mut figure = over(&["say \"x\""]);
        figure.lines[0].points[0].interval = Some((0.5, 1.5));
        figure.lines[0].points.push(Point::exact(At::Number(2.0), None));
        assert_eq!(figure.csv(), "series,x,y,low,high\n\"a, b\",\"say \"\"x\"\"\",1,0.5,1.5\n\"a, b\",2,,,\n");
    }
}
