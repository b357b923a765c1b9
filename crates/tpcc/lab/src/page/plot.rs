//! Draws figures as SVG.

use std::collections::{HashMap, HashSet};

use plotters::coord::Shift;
use plotters::prelude::{
    Circle, DrawingArea, EmptyElement, IntoDrawingArea, IntoFont, PathElement, Polygon, Rectangle, SVGBackend, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, ShapeStyle};

use super::figure::{Figure, Layout, PlotLine, Point, Source, XPosition};
use super::ink::{Canvas, Ink, MOST_LINES, painted};
use super::scale::{Axis, Zero, short};
use super::thin::DrawnFigure;

/// Width of a figure, in SVG units. A unit is about 0.65 pixels on a small screen and about 1 pixel on a large one.
const WIDTH: i32 = 560;
/// Height of the plot area of a line figure.
const PLOT: i32 = 220;
/// Height of a row of the legend.
const LEGEND: i32 = 22;
/// Font size of all texts, in SVG units.
const TEXT: i32 = 18;
/// Mean width of a character of text. The value is a generous estimate, because fonts are not measured.
const CHARACTER: f64 = 7.9;
/// Maximum number of points of a line that is drawn with a mark at each point.
const MOST_MARKS: usize = 32;

/// Draws a figure as an SVG element, with as many points as fit.
pub fn svg(figure: &Figure, place: Canvas) -> String {
    let DrawnFigure { figure, .. } = DrawnFigure::of(figure);
    let figure = &figure;
    let mut text = String::new();
    let (bars, order) = match figure.places() {
        Layout::Names(names) => (Some(Bars::of(figure, names)), vec![]),
        Layout::Ordered(names) => (None, names),
        Layout::Numbers => (None, vec![]),
    };
    let height = bars.as_ref().map_or_else(|| lines_height(figure), Bars::height);
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
        let pen = Pen { area };
        if place == Canvas::File {
            pen.filled(&[(0, 0), (WIDTH, 0), (WIDTH, height), (0, height)], Ink::Ground);
        }
        match bars {
            Some(bars) => bars.draw(&pen, height),
            None => lines(&pen, figure, &order, height),
        }
    }
    // Without a size the element takes the width of its container.
    let sized = format!("<svg width=\"{WIDTH}\" height=\"{height}\" ");
    let label = figure.title.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    let free = match place {
        Canvas::Page => format!("<svg role=\"img\" aria-label=\"{label}\" "),
        Canvas::File => format!("{sized}role=\"img\" aria-label=\"{label}\" "),
    };
    painted(text.replacen(&sized, &free, 1), place)
}

/// Draws in SVG units. Errors are ignored: drawing into a string cannot fail.
struct Pen<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

type SvgPoint = (i32, i32);

impl Pen<'_> {
    fn line(&self, points: &[SvgPoint], ink: Ink, width: u32) {
        let style = ShapeStyle { color: ink.stand_in().to_rgba(), filled: false, stroke_width: width };
        let _ = self.area.draw(&PathElement::new(points.to_vec(), style));
    }

    fn filled(&self, points: &[SvgPoint], ink: Ink) {
        let _ = self.area.draw(&Polygon::new(points.to_vec(), ink.stand_in().filled()));
    }

    fn text(&self, text: &str, at: SvgPoint, ink: Ink, horizontally: HPos, vertically: VPos) {
        let style = ("sans-serif", TEXT).into_font().color(&ink.stand_in()).pos(Pos::new(horizontally, vertically));
        let _ = self.area.draw(&(EmptyElement::at(at) + Text::new(text.to_owned(), (0, 0), style)));
    }

    /// Draws the mark of a series. Each series has its own shape; the mark of a paper is hollow.
    fn mark(&self, (x, y): SvgPoint, source: Source, number: usize) {
        let diamond = |r: i32| [(x, y - r), (x + r, y), (x, y + r), (x - r, y), (x, y - r)];
        let ink = Ink::Mark(number % MOST_LINES);
        match (source, number % MOST_LINES) {
            (Source::Paper, _) => {
                self.filled(&diamond(6), Ink::Ground);
                self.line(&diamond(6), Ink::Text, 2);
            }
            (_, 0) => {
                let _ = self.area.draw(&Circle::new((x, y), 4, ink.stand_in().filled()));
            }
            (_, 1) => {
                let _ = self.area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], ink.stand_in().filled()));
            }
            (_, 2) => self.filled(&[(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], ink),
            (_, 3) => self.filled(&diamond(5), ink),
            (_, 4) => self.filled(&[(x - 5, y - 4), (x + 5, y - 4), (x, y + 5)], ink),
            _ => {
                self.line(&[(x - 4, y - 4), (x + 4, y + 4)], ink, 2);
                self.line(&[(x - 4, y + 4), (x + 4, y - 4)], ink, 2);
            }
        }
    }
}

fn width_of(text: &str) -> i32 {
    (text.chars().count() as f64 * CHARACTER).ceil() as i32
}

/// Cuts the text to fit the width.
fn cut(text: &str, width: i32) -> String {
    let most = (f64::from(width) / CHARACTER) as usize;
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Numbers the lines of a figure. Lines of this program and lines of the paper are numbered separately, so that the colours
/// of this program's lines do not depend on the paper.
fn numbered(figure: &Figure) -> Vec<(usize, &PlotLine)> {
    let (mut here, mut paper) = (0, 0);
    let mut number = |line: &PlotLine| {
        let next = if line.source == Source::Measured { &mut here } else { &mut paper };
        *next += 1;
        *next - 1
    };
    figure.lines.iter().map(|line| (number(line), line)).collect()
}

/// Returns the start and row of each entry of the legend, and the number of rows.
fn legend_places(figure: &Figure) -> (Vec<(i32, i32)>, i32) {
    if figure.lines.len() == 1 && figure.lines[0].name.is_empty() {
        return (vec![], 0);
    }
    let (mut x, mut row) = (4, 0);
    let mut places = Vec::new();
    for line in &figure.lines {
        let width = 40 + width_of(&line.name);
        if x > 4 && x + width > WIDTH - 4 {
            (x, row) = (4, row + 1);
        }
        places.push((x, row));
        x += width;
    }
    (places, row + 1)
}

fn legend(pen: &Pen<'_>, figure: &Figure, is_bars: bool) -> i32 {
    let (places, rows) = legend_places(figure);
    for ((number, line), (x, row)) in numbered(figure).into_iter().zip(places) {
        let y = 10 + row * LEGEND;
        if line.source == Source::Measured && !is_bars {
            pen.line(&[(x, y), (x + 26, y)], Ink::Line(number % MOST_LINES), 2);
        }
        pen.mark((x + 13, y), line.source, number);
        pen.text(&cut(&line.name, WIDTH - x - 36), (x + 32, y), Ink::Text, HPos::Left, VPos::Center);
    }
    rows * LEGEND
}

fn lines_height(figure: &Figure) -> i32 {
    legend_places(figure).1 * LEGEND + 30 + PLOT + 50
}

/// Returns the label of an axis, with a note if the axis is logarithmic.
fn labelled(label: &str, axis: &Axis) -> String {
    format!("{label}{}", if axis.log { " (by powers)" } else { "" })
}

/// Draws lines over numbers, or over `names` in their order, from left to right.
fn lines(pen: &Pen<'_>, figure: &Figure, names: &[String], height: i32) {
    let top = legend(pen, figure, false) + 30;
    let bottom = height - 50;
    let ys = Axis::of(figure.values(), Zero::IfNear);
    let y_ticks = ys.ticks(5);
    let left = 12 + y_ticks.iter().map(|tick| width_of(&short(*tick))).max().unwrap_or(0);
    let right = WIDTH - 14;
    let y_of = |y: f64| bottom - (ys.place(y) * f64::from(bottom - top)).round() as i32;

    pen.text(&cut(&labelled(&figure.y_label, &ys), WIDTH - 8), (4, top - 16), Ink::Faint, HPos::Left, VPos::Center);
    for tick in y_ticks {
        let y = y_of(tick);
        pen.line(&[(left, y), (right, y)], Ink::Grid, 1);
        pen.text(&short(tick), (left - 6, y), Ink::Faint, HPos::Right, VPos::Center);
    }
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
    let index = |name: &str| places.get(name).map_or(0.0, |n| *n as f64);
    let x_value = |at: &XPosition| match at {
        XPosition::Number(x) if names.is_empty() => *x,
        XPosition::Number(x) => index(&x.to_string()),
        XPosition::Name(name) => index(name),
    };
    let all = || figure.lines.iter().flat_map(|line| &line.points).map(|point| x_value(&point.x));
    let xs = match names.len() {
        0 => Axis::with_spacing(all().chain(figure.marks.iter().map(|mark| mark.x)), Zero::Never, figure.x_spacing),
        n => Axis::of([0.0, n as f64 - 1.0].into_iter(), Zero::Never),
    };
    let x_of = |x: f64| left + 8 + (xs.place(x) * f64::from(right - left - 16)).round() as i32;
    for (x, text) in x_ticks(names, &xs, all().collect(), &x_of) {
        pen.line(&[(x, bottom), (x, bottom + 4)], Ink::Faint, 1);
        let half = width_of(&text) / 2;
        pen.text(&text, (x.min(WIDTH - half).max(half), bottom + 8), Ink::Faint, HPos::Center, VPos::Top);
    }
    pen.line(&[(left, bottom), (right, bottom)], Ink::Faint, 1);
    let label = cut(&labelled(&figure.x_label, &xs), right - left);
    pen.text(&label, ((left + right) / 2, height - 12), Ink::Faint, HPos::Center, VPos::Center);

    // One event line for each distinct position.
    let marked: HashSet<i32> = figure.marks.iter().map(|mark| x_of(mark.x)).collect();
    let mut marked: Vec<i32> = marked.into_iter().collect();
    marked.sort_unstable();
    for x in marked {
        pen.line(&[(x, top), (x, bottom)], Ink::Event, 1);
    }
    if let Some(mark) = figure.marks.first() {
        pen.text(&format!("┆ {}", mark.what), (right, top - 16), Ink::Event, HPos::Right, VPos::Center);
    }
    for (number, line) in numbered(figure) {
        let number = number % MOST_LINES;
        let place = |point: &Point, y: f64| (x_of(x_value(&point.x)), y_of(y));
        if line.source == Source::Measured {
            // Points without a value leave a gap.
            for part in line.points.split(|point| point.y.is_none()) {
                let points: Vec<SvgPoint> = part.iter().filter_map(|point| Some(place(point, point.y?))).collect();
                pen.line(&points, Ink::Line(number), 2);
            }
        }
        for point in &line.points {
            if let (Some(_), Some((low, high))) = (point.y, point.interval) {
                let ((x, low), (_, high)) = (place(point, low), place(point, high));
                pen.line(&[(x, low), (x, high)], Ink::Mark(number), 1);
                for y in [low, high] {
                    pen.line(&[(x - 3, y), (x + 3, y)], Ink::Mark(number), 1);
                }
            }
        }
        if line.points.len() <= MOST_MARKS || line.source == Source::Paper {
            for point in &line.points {
                if let Some(y) = point.y {
                    pen.mark(place(point, y), line.source, number);
                }
            }
        }
    }
}

/// Returns the positions and texts of the ticks of the x axis. Ticks are names, the values of x themselves if there are few,
/// or round numbers.
fn x_ticks(names: &[String], xs: &Axis, values: Vec<f64>, x_of: &dyn Fn(f64) -> i32) -> Vec<(i32, String)> {
    let mut own = values;
    own.sort_by(f64::total_cmp);
    own.dedup();
    let fits = |ticks: &[(i32, String)]| {
        ticks.windows(2).all(|pair| {
            let [(a, left), (b, right)] = pair else { return true };
            b - a > (width_of(left) + width_of(right)) / 2 + 4
        })
    };
    if !names.is_empty() {
        let all: Vec<_> = names.iter().enumerate().map(|(n, name)| (x_of(n as f64), cut(name, LONGEST_NAME))).collect();
        let mut every = 1;
        loop {
            let some: Vec<_> = all.iter().step_by(every).cloned().collect();
            if fits(&some) || every > all.len() {
                return some;
            }
            every += 1;
        }
    }
    let at = |values: &[f64]| values.iter().map(|x| (x_of(*x), short(*x))).collect::<Vec<_>>();
    let of_own = at(&own);
    // Values with many digits are not used as ticks.
    let are_short = own.iter().all(|x| short(*x).parse() == Ok(*x));
    if own.len() <= 12 && are_short && fits(&of_own) {
        return of_own;
    }
    (1..=8).rev().map(|about| at(&xs.ticks(about))).find(|ticks| fits(ticks)).unwrap_or_default()
}

/// Height of a name, height of a bar, and space between names.
const NAME: i32 = 21;
const BAR: i32 = 16;
const GAP: i32 = 7;
/// Width reserved for the value beside a bar.
const VALUE: i32 = 70;

/// Maximum width of a name below an axis.
const LONGEST_NAME: i32 = WIDTH / 2;

/// A figure of bars by name, from top to bottom. Each name has the full width of the figure above its bars.
struct Bars<'a> {
    figure: &'a Figure,
    names: Vec<String>,
    /// Points of each line, keyed by name. Of several points with one name, the first is used.
    points: Vec<HashMap<String, &'a Point>>,
}

impl<'a> Bars<'a> {
    fn of(figure: &'a Figure, names: Vec<String>) -> Bars<'a> {
        let by_name = |line: &'a PlotLine| {
            let mut points = HashMap::new();
            for point in &line.points {
                points.entry(point.x.text()).or_insert(point);
            }
            points
        };
        Bars { figure, names, points: figure.lines.iter().map(by_name).collect() }
    }

    fn height(&self) -> i32 {
        let bars: usize = self.points.iter().map(HashMap::len).sum();
        let rows = legend_places(self.figure).1 * LEGEND;
        rows + 8 + self.names.len() as i32 * (NAME + GAP) + bars as i32 * BAR + 50
    }

    fn draw(&self, pen: &Pen<'_>, height: i32) {
        let top = legend(pen, self.figure, true) + 4;
        let bottom = height - 46;
        let scale = Axis::of(self.figure.values(), Zero::Always);
        let (left, right) = (8, WIDTH - VALUE);
        let x_of = |value: f64| left + (scale.place(value) * f64::from(right - left)).round() as i32;
        let ticks: Vec<(i32, String)> = (1..=6)
            .rev()
            .map(|about| scale.ticks(about))
            .map(|ticks| ticks.iter().map(|t| (x_of(*t), short(*t))).collect())
            .find(|ticks: &Vec<(i32, String)>| {
                ticks
                    .windows(2)
                    .all(|pair| pair[1].0 - pair[0].0 > (width_of(&pair[0].1) + width_of(&pair[1].1)) / 2 + 8)
            })
            .unwrap_or_default();
        for (x, text) in ticks {
            pen.line(&[(x, top), (x, bottom)], Ink::Grid, 1);
            let half = width_of(&text) / 2;
            pen.text(&text, (x.max(half), bottom + 4), Ink::Faint, HPos::Center, VPos::Top);
        }
        let label = cut(&self.figure.y_label, WIDTH - 16);
        pen.text(&label, (WIDTH / 2, height - 10), Ink::Faint, HPos::Center, VPos::Center);
        let zero = x_of(0.0);
        pen.line(&[(zero, top), (zero, bottom)], Ink::Faint, 1);
        let lines = numbered(self.figure);
        let mut y = top + 2;
        for name in &self.names {
            pen.text(&cut(name, WIDTH - 16), (left, y + NAME / 2), Ink::Text, HPos::Left, VPos::Center);
            y += NAME;
            for ((number, line), points) in lines.iter().zip(&self.points) {
                let Some(point) = points.get(name) else { continue };
                bar(pen, point, line.source, *number, y + BAR / 2, zero, &x_of);
                y += BAR;
            }
            y += GAP;
        }
    }
}

fn bar(pen: &Pen<'_>, point: &Point, source: Source, number: usize, y: i32, zero: i32, x_of: &dyn Fn(f64) -> i32) {
    let Some(value) = point.y else {
        return pen.text("not measured", (zero + 6, y), Ink::Faint, HPos::Left, VPos::Center);
    };
    let number = number % MOST_LINES;
    let x = x_of(value);
    let mut end = x.max(zero);
    if source == Source::Measured {
        let _ = pen
            .area
            .draw(&Rectangle::new([(x.min(zero), y - 4), (x.max(zero), y + 4)], Ink::Mark(number).stand_in().filled()));
    }
    pen.mark((x, y), source, number);
    if let Some((low, high)) = point.interval {
        let (low, high) = (x_of(low), x_of(high));
        // The ends of an interval are taller than the bar, so that they are visible on it.
        pen.line(&[(low, y), (high, y)], Ink::Text, 1);
        for x in [low, high] {
            pen.line(&[(x, y - 5), (x, y + 5)], Ink::Text, 1);
        }
        end = end.max(high);
    }
    pen.text(&short(value), (end + 9, y), Ink::Text, HPos::Left, VPos::Center);
}

#[cfg(test)]
mod tests {
    use super::super::figure::EventMark;
    use super::super::thin::MOST_POINTS;
    use super::*;

    fn line(name: &str, source: Source, points: &[(XPosition, Option<f64>)]) -> PlotLine {
        let points = points.iter().map(|(x, y)| Point { x: x.clone(), y: *y, interval: y.map(|y| (0.9 * y, 1.1 * y)) });
        PlotLine { name: name.into(), source, points: points.collect() }
    }

    fn numbers(name: &str, source: Source) -> PlotLine {
        line(
            name,
            source,
            &[
                (XPosition::Number(1.0), Some(10.0)),
                (XPosition::Number(2.0), None),
                (XPosition::Number(4.0), Some(30.0)),
            ],
        )
    }

    #[test]
    fn a_gap_is_where_nothing_was_measured() {
        let figure = Figure { lines: vec![numbers("a < b & c", Source::Measured)], ..Figure::default() };
        let svg = svg(&figure, Canvas::Page);
        assert_eq!(svg.matches("<circle").count(), 3, "two points and the legend: {svg}");
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("var(--s0)") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("#01") && !svg.contains("#02"), "{svg}");
    }

    #[test]
    fn what_the_paper_found_is_points() {
        let figure = Figure {
            lines: vec![numbers("here", Source::Measured), numbers("the paper's", Source::Paper)],
            ..Figure::default()
        };
        let svg = svg(&figure, Canvas::Page);
        // Each hollow diamond has a background of its own.
        assert_eq!(svg.matches("<polygon").count(), 3, "{svg}");
    }

    #[test]
    fn names_have_bars_with_their_values() {
        let at = |name: &str| XPosition::Name(name.to_owned());
        let line =
            line("", Source::Measured, &[(at("fetch"), Some(12.0)), (at("update"), None), (at("both"), Some(-3.0))]);
        let figure = Figure { lines: vec![line], ..Figure::default() };
        let svg = svg(&figure, Canvas::File);
        for text in ["fetch", "update", "not measured", "12", "-3"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text}: {svg}");
        }
        assert!(!svg.contains("var(") && svg.starts_with("<svg width"), "a file needs no page: {svg}");
    }

    #[test]
    fn a_long_series_is_drawn_in_as_many_points_as_a_short_one() {
        let drawn = |seconds: u32| {
            let points: Vec<_> =
                (0..seconds).map(|n| (XPosition::Number(f64::from(n)), Some(f64::from(n % 97)))).collect();
            let marks = (0..seconds).map(|n| EventMark { x: f64::from(n), what: "a checkpoint ended" });
            let lines = vec![line("", Source::Measured, &points)];
            svg(&Figure { lines, marks: marks.collect(), ..Figure::default() }, Canvas::Page)
        };
        // Each point has an interval of three strokes, and each position one event.
        let most = 3 * MOST_POINTS + WIDTH as usize + 100;
        for seconds in [100, 4_000, 200_000, 400_000] {
            let parts = drawn(seconds).matches('<').count();
            assert!(parts > seconds.min(2_000) as usize && parts < most, "{seconds}: {parts} of {most}");
        }
    }

    #[test]
    fn long_words_stay_within_the_figure() {
        let long = |n: usize| XPosition::Name(format!("{n}{}", "0".repeat(300)));
        let points: Vec<_> = (1..4).map(|n| (long(n), Some(1.0))).collect();
        let figure = Figure { lines: vec![line(&"name ".repeat(99), Source::Measured, &points)], ..Figure::default() };
        assert!(matches!(figure.places(), Layout::Ordered(_)) && svg(&figure, Canvas::Page).contains('…'));
    }

    #[test]
    fn an_empty_figure_is_still_a_figure() {
        let empty =
            Figure { lines: vec![line("x", Source::Measured, &[(XPosition::Number(1.0), None)])], ..Figure::default() };
        assert!(!empty.has_values() && svg(&empty, Canvas::Page).contains("</svg>"));
    }
}
