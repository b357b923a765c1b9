//! Rule: crates of the workspace depend on each other only as declared here.

use super::Finding;
use super::tree::Tree;

pub(super) const RULE: &str = "crates";

/// Each crate, with the crates of the workspace that it may depend on.
const GRAPH: [(&str, &[&str]); 11] = [
    ("crates/speculate", &[]),
    ("crates/storage", &["speculate"]),
    ("crates/sched-steps", &[]),
    ("crates/itas", &["sched-steps"]),
    ("crates/tpcc/core", &["storage", "sched-steps", "speculate", "itas"]),
    ("crates/tpcc/pg", &["tpcc-core"]),
    ("crates/tpcc/lab", &["storage", "sched-steps", "speculate", "itas", "tpcc-core"]),
    ("crates/tpcc", &["storage", "sched-steps", "speculate", "itas", "tpcc-core", "tpcc-pg", "tpcc-lab"]),
    ("benches", &["storage", "sched-steps", "speculate", "itas", "tpcc-core"]),
    ("xtask/campaigns", &["storage", "sched-steps", "speculate", "itas", "tpcc-core", "tpcc"]),
    ("xtask", &["tpcc", "tpcc-lab", "xtask-campaigns"]),
];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (manifest, text) in tree.ending("Cargo.toml") {
        let Some(folder) = manifest.strip_suffix("/Cargo.toml") else { continue };
        let allowed = GRAPH.iter().find(|(of, _)| *of == folder).map(|(_, allowed)| *allowed);
        if allowed.is_none() {
            let what = format!("the crate {folder} has no place in the graph of crates");
            findings.push(Finding { file: manifest.to_owned(), line: 1, rule: RULE, what });
        }
        for (i, line) in text.lines().enumerate() {
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = name.trim();
            if value.contains("path = ") && !allowed.unwrap_or_default().contains(&name) {
                let what = format!("{folder} does not depend on {name}");
                findings.push(Finding { file: manifest.to_owned(), line: i + 1, rule: RULE, what });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_is_not_in_the_graph_is_found() {
        let manifest =
            "[dependencies]\nstorage = { path = \"../storage\" }\ntpcc = { path = \"../tpcc\" }\nclap = \"4\"\n";
        let tree = Tree::of(&[("crates/tpcc/Cargo.toml", manifest)]);
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let mut findings = Vec::new();
        check(&Tree::of(&[("crates/odd/Cargo.toml", "")]), &mut findings);
        assert_eq!(findings.len(), 1);
    }
}
