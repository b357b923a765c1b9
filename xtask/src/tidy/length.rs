//! Rule: a file holds one idea, so no file exceeds the maximum length.

use super::Finding;
use super::tree::Tree;

pub(super) const RULE: &str = "length";

/// Maximum number of lines of a source file.
const MAX_LINES: usize = 800;

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.ending(".rs") {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let what = format!("{lines} lines; more than {MAX_LINES} hold more than one idea");
            findings.push(Finding { file: path.to_owned(), line: MAX_LINES + 1, rule: RULE, what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_too_many_is_found() {
        for (lines, expected) in [(MAX_LINES, 0), (MAX_LINES + 1, 1)] {
            let tree = Tree::of(&[("crates/x/src/lib.rs", &"//\n".repeat(lines))]);
            let mut findings = Vec::new();
            check(&tree, &mut findings);
            assert_eq!(findings.len(), expected);
        }
    }
}
