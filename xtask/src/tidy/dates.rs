//! Rule: prose has no dated measurements. They belong in tables and data files, which are replaced as a whole.

use pulldown_cmark::{Event, Tag, TagEnd};
use regex::Regex;

use super::Finding;
use super::links::{line_of, parse};
use super::tree::Tree;

pub(super) const RULE: &str = "date";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Ok(date) = Regex::new(r"\b20\d\d-[01]\d(-[0-3]\d)?\b") else { return };
    let mut fail = |file: &str, line: usize, found: &str| {
        let what = format!("{found}: what was measured on a day stands in a table, not in prose");
        findings.push(Finding { file: file.to_owned(), line, rule: RULE, what });
    };
    for (path, text) in tree.ending(".md") {
        let mut outside_prose = 0;
        for (event, at) in parse(text) {
            match event {
                Event::Start(Tag::Table(_) | Tag::CodeBlock(_) | Tag::Heading { .. }) => outside_prose += 1,
                Event::End(TagEnd::Table | TagEnd::CodeBlock | TagEnd::Heading(_)) => outside_prose -= 1,
                Event::Text(words) if outside_prose == 0 => {
                    if let Some(found) = date.find(&words) {
                        fail(path, line_of(text, at.start), found.as_str());
                    }
                }
                _ => {}
            }
        }
    }
    for (path, text) in tree.ending(".rs") {
        for (i, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let table = comment.trim_start_matches(['/', '!', ' ']).starts_with('|');
            if let Some(found) = date.find(comment)
                && !table
            {
                fail(path, i + 1, found.as_str());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_date_in_prose_or_in_a_comment_is_found() {
        assert_eq!(lines("README.md", "# Figures\n\nOn 2026-01-02 it took 3 ns."), [3]);
        assert_eq!(lines("crates/x/src/lib.rs", "// Took 3 ns on 2026-01-02.\nconst DAY: &str = \"2026-01-02\";"), [1]);
    }

    #[test]
    fn tables_headings_and_code_may_have_dates() {
        let text = "# 2026-01-02\n\n| when | ns |\n| --- | --- |\n| 2026-01-02 | 3 |\n\n```\n2026-01-02\n```\n";
        assert_eq!(lines("README.md", text), [] as [usize; 0]);
    }
}
