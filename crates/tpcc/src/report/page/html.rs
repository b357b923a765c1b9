//! The parts of a page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figure::Figure;
use super::ink::Canvas;
use super::plot::svg;
use super::style::style;

/// A whole page.
pub(crate) fn page(title: &str, body: &Markup) -> String {
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

/// Figures, as many beside each other as there is room for.
pub(crate) fn figures(all: &[Figure]) -> Markup {
    html! {
        @if !all.is_empty() {
            div.figures { @for figure in all { (one(figure)) } }
        }
    }
}

fn one(figure: &Figure) -> Markup {
    html! {
        figure {
            figcaption { (figure.title) }
            @if figure.has_values() {
                (PreEscaped(svg(figure, Canvas::Page)))
            } @else {
                p.faint { "Nothing could be measured." }
            }
            details {
                summary { "Data" }
                pre { (figure.csv()) }
            }
        }
    }
}

/// Large figures at the top.
pub(crate) fn facts(all: &[(&str, String)]) -> Markup {
    html! {
        dl.facts { @for (name, value) in all { div { dt { (name) } dd { (value) } } } }
    }
}

/// A table whose rows become blocks on a small screen. Columns from `numbers` on are numbers.
pub(crate) fn table(head: &[&str], numbers: usize, rows: &[Vec<Markup>]) -> Markup {
    html! {
        table.stacks {
            thead { tr { @for (n, name) in head.iter().enumerate() { th.n[n >= numbers] { (name) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (n, cell) in row.iter().enumerate() {
                            td.n[n >= numbers] data-label=[(n > 0).then(|| head.get(n)).flatten()] { (cell) }
                        }
                    }
                }
            }
        }
    }
}

/// Text as a cell.
pub(crate) fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// Words of a command line as a shell takes them; of the program its name.
pub(crate) fn command(words: &[String]) -> String {
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
    fn commands_can_be_typed() {
        let words = ["/opt/bin/tpcc", "run", "--data", "my data", ""].map(str::to_owned);
        assert_eq!(command(&words), "tpcc run --data 'my data' ''");
    }
}
