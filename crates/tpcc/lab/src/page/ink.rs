//! Colours of figures. A figure is drawn in stand-in colours, which are then replaced by the colours of its destination:
//! variables of the page, which follow light, dark and print styles, or plain colours in a file. Lines differ in colour,
//! dash and mark, so that colour is never the only difference.

use plotters::style::RGBColor;

/// Maximum number of distinguishable lines of a figure.
pub const MOST_LINES: usize = 6;

/// Role of a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ink {
    /// Text, axes, values of a paper.
    Text,
    /// Text of less importance.
    Faint,
    /// Text, axes, and values of a paper.
    Grid,
    /// Background of the figure.
    Ground,
    /// Lines that mark events.
    Event,
    /// Line of a series, with the dashes of the series.
    Line(usize),
    /// Marks, bars and intervals of a series.
    Mark(usize),
}

/// Destination of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canvas {
    /// A page with the style sheet.
    Page,
    /// A separate file, on white.
    File,
}

/// Colours of series on a light and on a dark page. Each has a contrast of at least 3 to the page.
pub(super) const SERIES: [(&str, &str); MOST_LINES] = [
    ("#0b62a4", "#62b0f0"),
    ("#c2410c", "#ff9258"),
    ("#0f7b5f", "#4fcfa5"),
    ("#9d3b8f", "#e28fd6"),
    ("#8a6500", "#e0b83c"),
    ("#44546a", "#a9b8cb"),
];

/// Dash patterns of lines.
const DASHES: [&str; MOST_LINES] = ["", "7 3", "2 3", "9 3 2 3", "5 5", "1 4"];

impl Ink {
    /// Returns the inks of all roles.
    fn all() -> impl Iterator<Item = Ink> {
        [Ink::Text, Ink::Faint, Ink::Grid, Ink::Ground, Ink::Event]
            .into_iter()
            .chain((0..MOST_LINES).flat_map(|n| [Ink::Line(n), Ink::Mark(n)]))
    }

    /// Returns the stand-in colour. Figures use stand-in colours for nothing else.
    pub(super) fn stand_in(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(1, 0, 1),
            Ink::Faint => RGBColor(1, 0, 2),
            Ink::Grid => RGBColor(1, 0, 3),
            Ink::Ground => RGBColor(1, 0, 4),
            Ink::Event => RGBColor(1, 0, 5),
            Ink::Line(n) => RGBColor(2, 0, n as u8),
            Ink::Mark(n) => RGBColor(3, 0, n as u8),
        }
    }

    fn paint(self, place: Canvas) -> String {
        let variable = match (self, place) {
            (Ink::Text, Canvas::File) => return "#1b1f24".to_owned(),
            (Ink::Faint, Canvas::File) => return "#5b6470".to_owned(),
            (Ink::Grid, Canvas::File) => return "#d9dde2".to_owned(),
            (Ink::Ground, Canvas::File) => return "#ffffff".to_owned(),
            (Ink::Event, Canvas::File) => return "#8f3b3b".to_owned(),
            (Ink::Line(n) | Ink::Mark(n), Canvas::File) => return SERIES[n % MOST_LINES].0.to_owned(),
            (Ink::Text, _) => "text".to_owned(),
            (Ink::Faint, _) => "faint".to_owned(),
            (Ink::Grid, _) => "grid".to_owned(),
            (Ink::Ground, _) => "card".to_owned(),
            (Ink::Event, _) => "event".to_owned(),
            (Ink::Line(n) | Ink::Mark(n), _) => format!("s{n}"),
        };
        format!("var(--{variable})")
    }
}

/// Replaces the stand-in colours of an SVG by the colours of its destination.
pub(super) fn painted(mut svg: String, place: Canvas) -> String {
    for ink in Ink::all() {
        let RGBColor(r, g, b) = ink.stand_in();
        let stand_in = format!("#{r:02X}{g:02X}{b:02X}");
        let paint = ink.paint(place);
        let dash = match ink {
            Ink::Line(n) if !DASHES[n].is_empty() => format!(" stroke-dasharray=\"{}\"", DASHES[n]),
            Ink::Event => " stroke-dasharray=\"3 3\"".to_owned(),
            _ => String::new(),
        };
        svg = svg.replace(&format!("fill=\"{stand_in}\""), &format!("fill=\"{paint}\""));
        svg = svg.replace(&format!("stroke=\"{stand_in}\""), &format!("stroke=\"{paint}\"{dash}"));
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_all_different_and_all_replaced() {
        let all: Vec<_> = Ink::all().map(Ink::stand_in).collect();
        for (n, a) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|b| (a.0, a.1, a.2) != (b.0, b.1, b.2)));
        }
        let svg = painted("fill=\"#010001\" stroke=\"#020001\"".into(), Canvas::Page);
        assert_eq!(svg, "fill=\"var(--text)\" stroke=\"var(--s1)\" stroke-dasharray=\"7 3\"");
        assert_eq!(painted("fill=\"#030000\"".into(), Canvas::File), "fill=\"#0b62a4\"");
    }

    /// Contrast to the page as required by the accessibility guidelines (WCAG 2.1): at least 3 for graphics.
    #[test]
    fn series_can_be_seen_on_light_and_on_dark() {
        let luminance = |hex: &str| {
            let of = |at: usize| {
                let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
                if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * of(1) + 0.7152 * of(3) + 0.0722 * of(5)
        };
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for (light, dark) in SERIES {
            assert!(contrast(light, "#ffffff") >= 3.0 && contrast(dark, "#1b1f24") >= 3.0, "{light} {dark}");
        }
    }
}
