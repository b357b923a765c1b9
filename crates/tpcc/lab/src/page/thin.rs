//! Selects the points of a figure to draw. The work of drawing depends on the size of the figure on the page, not on the
//! length of a run. Of a long line, some points of each stretch are drawn, including its extremes. Of many names, the first
//! ones are drawn.

use std::collections::HashSet;

use super::figure::{Figure, PlotLine, Point, XPosition};

/// Maximum number of drawn points of a line over numbers: some for each unit of the figure's width.
pub(super) const MOST_POINTS: usize = 2_000;
/// Number of points that represent a stretch of a line: first, last, minimum, maximum, and one gap.
const POINTS_PER_STRETCH: usize = 5;
/// Maximum number of drawn names of a figure.
pub(super) const MOST_NAMES: usize = 200;

/// A figure reduced to the points to draw.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct DrawnFigure {
    /// Figure with finite numbers only, and with at most the maximum number of points.
    pub(super) figure: Figure,
    /// Number of points of the original figure.
    pub(super) points: usize,
    /// Number of points that are not drawn.
    pub(super) left_out: usize,
}

impl DrawnFigure {
    /// Reduces a figure to the points to draw.
    pub(super) fn of(figure: &Figure) -> DrawnFigure {
        let count = |lines: &[PlotLine]| lines.iter().map(|line| line.points.len()).sum::<usize>();
        let is_named = figure.is_named();
        let mut names = HashSet::new();
        let mut is_drawn = |point: &&Point| match &point.x {
            XPosition::Number(x) if !is_named => x.is_finite(),
            x => {
                let name = x.text();
                names.contains(&name) || names.len() < MOST_NAMES && names.insert(name)
            }
        };
        let lines: Vec<PlotLine> = figure
            .lines
            .iter()
            .map(|line| {
                let points: Vec<Point> = line.points.iter().filter(&mut is_drawn).map(finite).collect();
                PlotLine { points: if is_named { points } else { thinned(points) }, ..line.empty() }
            })
            .collect();
        let marks = figure.marks.iter().filter(|mark| mark.x.is_finite()).cloned().collect();
        let points = count(&figure.lines);
        let left_out = points - count(&lines);
        DrawnFigure { figure: Figure { lines, marks, ..figure.empty() }, points, left_out }
    }
}

/// Returns a copy of a point without values that are not finite.
fn finite(point: &Point) -> Point {
    let y = point.y.filter(|y| y.is_finite());
    let interval = point.interval.filter(|(low, high)| y.is_some() && low.is_finite() && high.is_finite());
    Point { x: point.x.clone(), y, interval }
}

/// Selects at most [`MOST_POINTS`] points of a line, in their order.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points;
    }
    let length = points.len().div_ceil(MOST_POINTS / POINTS_PER_STRETCH);
    let stretches = points.chunks(length).enumerate().flat_map(|(number, stretch)| {
        let values = || stretch.iter().enumerate().filter_map(|(at, point)| Some((at, point.y?)));
        let least = values().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at);
        let most = values().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at);
        let gap = stretch.iter().position(|point| point.y.is_none());
        let mut kept: Vec<usize> = [Some(0), least, most, gap, Some(stretch.len() - 1)].into_iter().flatten().collect();
        kept.sort_unstable();
        kept.dedup();
        kept.into_iter().map(move |at| number * length + at)
    });
    stretches.filter_map(|at| points.get(at).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure::{EventMark, Source};
    use super::*;

    fn line(points: impl Iterator<Item = (XPosition, Option<f64>)>) -> PlotLine {
        PlotLine {
            name: String::new(),
            source: Source::Measured,
            points: points.map(|(x, y)| Point::exact(x, y)).collect(),
        }
    }

    fn long(seconds: usize) -> Figure {
        let rate = |n: usize| match n {
            n if n == seconds / 3 => Some(1e6),
            n if n == seconds / 2 => Some(-1.0),
            n if n == seconds / 5 => None,
            n => Some((n % 10) as f64),
        };
        let points = line((0..seconds).map(|n| (XPosition::Number(n as f64), rate(n))));
        Figure { lines: vec![points], ..Figure::default() }
    }

    #[test]
    fn a_long_line_has_as_many_points_as_the_figure_has_room_for() {
        for seconds in [1, 2, 1_999, 2_000, 2_001, 10_000, 200_000] {
            let drawn = DrawnFigure::of(&long(seconds));
            let points = &drawn.figure.lines[0].points;
            assert!(points.len() <= MOST_POINTS && (seconds > MOST_POINTS || points.len() == seconds), "{seconds}");
            assert_eq!((drawn.points, drawn.left_out), (seconds, seconds - points.len()));
            assert!(
                points
                    .windows(2)
                    .all(|two| matches!((&two[0].x, &two[1].x), (XPosition::Number(a), XPosition::Number(b)) if a < b))
            );
            if seconds >= 10_000 {
                let of = |y: Option<f64>| points.iter().filter(|point| point.y == y).count();
                assert!(
                    of(Some(1e6)) == 1 && of(Some(-1.0)) == 1 && of(None) == 1,
                    "extremes and gaps stay: {seconds}"
                );
                let at = |point: Option<&Point>| point.map(|point| point.x.clone());
                let ends = (Some(XPosition::Number(0.0)), Some(XPosition::Number(seconds as f64 - 1.0)));
                assert_eq!((at(points.first()), at(points.last())), ends);
            }
            assert_eq!(DrawnFigure::of(&drawn.figure).left_out, 0, "what is drawn is drawn whole");
        }
    }

    #[test]
    fn names_end_at_a_number_that_can_be_read() {
        let names = || (0..1_000).map(|n| (XPosition::Name(format!("n{n}")), Some(1.0)));
        let figure = Figure { lines: vec![line(names()), line(names().rev())], ..Figure::default() };
        let drawn = DrawnFigure::of(&figure);
        assert_eq!(drawn.left_out, 2 * (1_000 - MOST_NAMES));
        assert!(drawn.figure.lines.iter().all(|line| line.points.len() == MOST_NAMES));
    }

    #[test]
    fn what_is_no_number_is_a_gap_or_has_no_place() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, f64::INFINITY), (f64::NAN, 3.0)];
        let mut of = line(points.into_iter().map(|(x, y)| (XPosition::Number(x), Some(y))));
        of.points[0].interval = Some((0.0, f64::INFINITY));
        let marks = [1.0, f64::NAN].map(|x| EventMark { x, what: "" }).to_vec();
        let drawn = DrawnFigure::of(&Figure { lines: vec![of], marks, ..Figure::default() });
        let points: Vec<_> = drawn.figure.lines[0].points.iter().map(|point| (point.y, point.interval)).collect();
        assert_eq!(points, [(Some(1.0), None), (None, None), (None, None)]);
        assert_eq!((drawn.left_out, drawn.figure.marks.len()), (1, 1));
    }
}
