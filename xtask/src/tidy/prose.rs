//! Prose names the actor: no words that leave the reader to guess which one is meant.

use regex::Regex;

use super::Finding;
use super::tree::Tree;

pub(super) const RULE: &str = "prose";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Ok(riddle) = Regex::new(r"(?i)\b(whoever|nobody|who (is|has|asks|looks|found|was|would)|he|himself)\b") else {
        return;
    };
    for (path, text) in tree.ending("") {
        // The rule's own words.
        if path.ends_with("tidy/prose.rs") {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            let prose = if path.ends_with(".md") { Some(line) } else { line.find("//").map(|at| &line[at..]) };
            if let Some(found) = prose.and_then(|prose| riddle.find(prose)) {
                let what = format!("\"{}\": name the actor", found.as_str());
                findings.push(Finding { file: path.to_owned(), line: i + 1, rule: RULE, what });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_without_a_name_is_found_in_comments_and_documents() {
        let files = [
            ("README.md", "A reader that waits is woken.\nWhoever comes first is woken."),
            ("crates/x/src/lib.rs", "fn f() {} // for nobody\nconst WHO: &str = \"nobody\";\n/// The cache there."),
        ];
        let mut findings = Vec::new();
        check(&Tree::of(&files), &mut findings);
        let lines: Vec<(&str, usize)> = findings.iter().map(|f| (f.file.as_str(), f.line)).collect();
        assert_eq!(lines, [("README.md", 2), ("crates/x/src/lib.rs", 1)]);
    }
}
