//! Data of figures, before they are drawn.

use std::collections::HashSet;
use std::fmt::Write;

/// Data of a figure: line series over numbers, or bars over names.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figure {
    /// Title of the figure.
    pub title: String,
    /// Label of the x axis, with its unit.
    pub x_label: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// Series of the figure.
    pub lines: Vec<PlotLine>,
    /// Events along the x axis.
    pub marks: Vec<EventMark>,
    /// Spacing of the x axis.
    pub x_spacing: AxisSpacing,
}

/// Spacing of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AxisSpacing {
    /// Linear, or logarithmic if a linear axis would show only the largest values.
    #[default]
    Auto,
    /// Linear in any case, as for time.
    Linear,
}

/// Series of a figure: a curve, or a bar for each name.
#[derive(Clone, PartialEq, Debug)]
pub struct PlotLine {
    /// Name of the series; empty if it is the only series of the figure.
    pub name: String,
    /// Source of the values of the series.
    pub source: Source,
    /// Points of the series, in the order of x.
    pub points: Vec<Point>,
}

/// Source of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Measured by this program.
    Measured,
    /// Published in a paper.
    Paper,
}

/// Point of a series.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Position on the x axis.
    pub x: XPosition,
    /// Value of the point; `None` if nothing could be measured.
    pub y: Option<f64>,
    /// Lower and upper end of the interval of the value; `None` if the value is exact.
    pub interval: Option<(f64, f64)>,
}

/// Position on the x axis.
#[derive(Clone, PartialEq, Debug)]
pub enum XPosition {
    /// Position on an axis of numbers.
    Number(f64),
    /// Position on an axis of names.
    Name(String),
}

/// An event at a position on the x axis.
#[derive(Clone, PartialEq, Debug)]
pub struct EventMark {
    /// Position on the x axis.
    pub x: f64,
    /// Description of the event. All events of a kind have the same description.
    pub what: &'static str,
}

/// Layout of the x axis.
#[derive(Clone, PartialEq, Debug)]
pub enum Layout {
    /// Numbers, from left to right.
    Numbers,
    /// Names, most of which are numbers (others are "full" or "max"), evenly spaced from left to right.
    Ordered(Vec<String>),
    /// Names, from top to bottom.
    Names(Vec<String>),
}

impl Point {
    /// Creates a point without an interval.
    pub fn exact(x: XPosition, y: Option<f64>) -> Point {
        Point { x, y, interval: None }
    }
}

impl PlotLine {
    /// Returns a copy of the line without its points.
    pub(super) fn empty(&self) -> PlotLine {
        PlotLine { name: self.name.clone(), source: self.source, points: Vec::new() }
    }
}

impl XPosition {
    /// Formats the position as text.
    pub(super) fn text(&self) -> String {
        match self {
            XPosition::Number(number) => number.to_string(),
            XPosition::Name(name) => name.clone(),
        }
    }
}

impl Figure {
    /// Returns the values of all points, with the ends of their intervals.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points).filter(|point| point.y.is_some());
        points.flat_map(|point| {
            let (low, high) = point.interval.unzip();
            point.y.into_iter().chain(low).chain(high)
        })
    }

    /// Returns true if there is a value to draw.
    pub fn has_values(&self) -> bool {
        self.values().next().is_some()
    }

    /// Returns a copy of the figure without its lines and marks.
    pub(super) fn empty(&self) -> Figure {
        Figure {
            title: self.title.clone(),
            x_label: self.x_label.clone(),
            y_label: self.y_label.clone(),
            lines: Vec::new(),
            marks: Vec::new(),
            x_spacing: self.x_spacing,
        }
    }

    /// Returns true if the x axis shows names: one point with a name is enough.
    pub(super) fn is_named(&self) -> bool {
        self.lines.iter().flat_map(|line| &line.points).any(|point| matches!(point.x, XPosition::Name(_)))
    }

    /// Returns the layout of the x axis.
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

    /// Formats the data of the figure as CSV, with a row for each point.
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

/// Formats a field of a CSV file, quoted if necessary (RFC 4180).
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
        let point = |name: &&str| Point::exact(XPosition::Name((*name).to_owned()), Some(1.0));
        let line =
            PlotLine { name: "a, b".into(), source: Source::Measured, points: names.iter().map(point).collect() };
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
        figure.lines[0].points.push(Point::exact(XPosition::Number(2.0), None));
        assert_eq!(figure.csv(), "series,x,y,low,high\n\"a, b\",\"say \"\"x\"\"\",1,0.5,1.5\n\"a, b\",2,,,\n");
    }
}
