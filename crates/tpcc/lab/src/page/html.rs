//! Elements of a page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figure::Figure;
use super::ink::Canvas;
use super::plot::svg;
use super::style::style;
use super::thin::DrawnFigure;
use tpcc_core::workload::words::grouped;

/// Maximum number of rows of a table.
pub(super) const MOST_ROWS: usize = 1_000;

/// Returns a complete HTML page with this title and body.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(style())) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// Returns figures side by side, as many in a row as fit.
pub fn figures(all: &[Figure]) -> Markup {
    html! {
        @if !all.is_empty() {
            div.figures { @for figure in all { (figure_block(figure)) } }
        }
    }
}

fn figure_block(figure: &Figure) -> Markup {
    let DrawnFigure { figure, points, left_out } = DrawnFigure::of(figure);
    html! {
        figure {
            figcaption { (figure.title) }
            @if figure.has_values() {
                (PreEscaped(svg(&figure, Canvas::Page)))
            } @else {
                p.faint { "Nothing could be measured." }
            }
            @if left_out > 0 {
                p.faint {
                    (grouped((points - left_out) as u64)) " of " (grouped(points as u64))
                    " points are shown, of a long line the extremes of each stretch; the file has all."
                }
            }
            details {
                summary { "Data" }
                pre { (figure.csv()) }
            }
        }
    }
}

/// Returns the key figures at the top of a page.
pub fn facts(all: &[(&str, String)]) -> Markup {
    html! {
        dl.facts { @for (name, value) in all { div { dt { (name) } dd { (value) } } } }
    }
}

/// Returns a table of the first `MOST_ROWS` rows, which become blocks on a small screen. Columns from index `numbers` on
/// contain numbers.
pub fn table(head: &[&str], numbers: usize, rows: impl IntoIterator<Item = Vec<Markup>>) -> Markup {
    let mut rows = rows.into_iter();
    let shown: Vec<Vec<Markup>> = rows.by_ref().take(MOST_ROWS).collect();
    let more = rows.count() as u64;
    html! {
        table.stacks {
            thead { tr { @for (n, name) in head.iter().enumerate() { th.n[n >= numbers] { (name) } } } }
            tbody {
                @for row in &shown {
                    tr {
                        @for (n, cell) in row.iter().enumerate() {
                            td.n[n >= numbers] data-label=[(n > 0).then(|| head.get(n)).flatten()] { (cell) }
                        }
                    }
                }
                @if more > 0 { tr { td colspan=(head.len()) { "and " (grouped(more)) " more" } } }
            }
        }
    }
}

/// Returns a table cell with this text.
pub fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// Formats the words of a command line, quoted for a shell. The program is shown without its directory.
pub fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:=@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let name = |program: &String| program.rsplit('/').next().unwrap_or_default().to_owned();
    let all = words.iter().take(1).map(name).chain(words.iter().skip(1).cloned());
    all.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_from_outside() {
        let page = page("a < b", &html! { p { "x & y" } });
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("a &lt; b") && page.contains("x &amp; y"));
        for outside in ["http:", "https:", "src=", "@import", "url(", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("LIGHT") && !page.contains("DARK") && page.contains("--s5: "), "colours are put in");
    }

    #[test]
    fn a_long_table_ends_with_how_many_rows_are_left_out() {
        let rows = |n: usize| (0..n).map(|n| vec![cell(n.to_string())]);
        let text = table(&["n"], 0, rows(MOST_ROWS + 1_234)).into_string();
        assert_eq!(text.matches("<tr>").count(), MOST_ROWS + 2, "with its head and its end");
        assert!(text.contains("and 1,234 more"), "{text}");
        assert!(!table(&["n"], 0, rows(MOST_ROWS)).into_string().contains("more"));
    }

    #[test]
    fn commands_can_be_typed() {
        let words = ["/opt/bin/tpcc", "run", "--data", "my data", ""].map(str::to_owned);
        assert_eq!(command(&words), "tpcc run --data 'my data' ''");
    }
}
