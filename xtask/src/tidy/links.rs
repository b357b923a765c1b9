//! Rule: targets of links in Markdown exist, and so do the files with paths in code format.

use std::collections::BTreeMap;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use super::tree::Tree;

pub(super) const RULE: &str = "link";

/// First components of paths from the root of the workspace.
const TOP_FOLDERS: [&str; 4] = ["crates/", "xtask/", "benches/", ".ci/"];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let anchors: BTreeMap<&str, Vec<String>> = tree.ending(".md").map(|(path, text)| (path, anchors(text))).collect();
    for (path, text) in tree.ending(".md") {
        let mut fail = |at: Range<usize>, what: String| {
            findings.push(Finding { file: path.to_owned(), line: line_of(text, at.start), rule: RULE, what });
        };
        for (event, at) in parse(text) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    // Links to other sites are not checked. Rustdoc checks paths of items.
                    if dest_url.contains("://") || dest_url.starts_with("mailto:") || dest_url.contains("::") {
                        continue;
                    }
                    let (file, anchor) = dest_url.split_once('#').unwrap_or((&dest_url, ""));
                    let target = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
                    if !tree.exists(&target) {
                        fail(at, format!("the link to {dest_url} leads nowhere"));
                    } else if !anchor.is_empty()
                        && anchors.get(target.as_str()).is_some_and(|a| !a.iter().any(|a| a == anchor))
                    {
                        fail(at, format!("{target} has no heading #{anchor}"));
                    }
                }
                Event::Code(code) if is_path(&code) && !tree.exists(&code) => {
                    fail(at, format!("{code} does not exist"));
                }
                _ => {}
            }
        }
    }
}

pub(super) fn parse(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
}

/// Returns the line number, from 1, of a byte offset in a text.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns true if a text in code format is a path from the root of the workspace, without placeholders.
fn is_path(code: &str) -> bool {
    TOP_FOLDERS.iter().any(|top| code.starts_with(top))
        && code.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
}

/// Resolves `link`, as written in the file `from`, to a path from the root of the workspace.
fn resolve(from: &str, link: &str) -> String {
    let mut at: Vec<&str> = from.split('/').collect();
    at.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if at.pop().is_none() {
                    return format!("{link}, which is outside");
                }
            }
            part => at.push(part),
        }
    }
    at.join("/")
}

/// Returns the anchors of a document's headings, in the form that code hosting sites use.
fn anchors(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut heading: Option<String> = None;
    for (event, _) in parse(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let words = heading.take().unwrap_or_default().to_lowercase().replace(' ', "-");
                found.push(words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect());
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(readme: &str) -> Vec<usize> {
        let other = ("crates/x/README.md", "# What it is\n[up](../../README.md)\n[self](#what-it-is)");
        let mut findings = Vec::new();
        check(&Tree::of(&[("README.md", readme), other]), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_to_files_folders_headings_and_other_sites_pass() {
        let readme = "[a](crates/x/README.md) [b](crates/x) [c](crates/x/README.md#what-it-is) [d](https://example.org)\n\
                      `crates/x/README.md` and `crates/*/src`";
        assert_eq!(lines(readme), [] as [usize; 0]);
    }

    #[test]
    fn what_leads_nowhere_is_found() {
        assert_eq!(lines("\n[a](crates/x/NOTHING.md)"), [2]);
        assert_eq!(lines("\n\n[a](crates/x/README.md#nothing)"), [3]);
        assert_eq!(lines("see `crates/x/src/nothing.rs`"), [1]);
        assert_eq!(lines("| a |\n| --- |\n| [a](../outside.md) |"), [3]);
    }
}
