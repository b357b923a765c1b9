//! `cargo xtask tidy`: checks project rules that no compiler checks, within seconds.
//!
//! Each rule is a function from the [`Tree`] to [`Finding`]s, in its own file. Its tests check that it finds an artificial
//! violation.

mod arguments;
mod campaigns;
mod code;
mod commands;
mod cycles;
mod dates;
mod graph;
mod length;
mod links;
mod modules;
mod names;
mod order;
mod safety;
mod tree;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use code::Code;
use tree::Tree;

#[derive(Debug, Args)]
pub(crate) struct TidyFlags {
    /// Workspace to check (default: the workspace of the running command).
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Path of the file relative to the workspace.
    file: String,
    /// Line number, from 1.
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// Names of the rules.
const RULES: [&str; 12] = [
    graph::RULE,
    order::RULE,
    cycles::RULE,
    length::RULE,
    modules::RULE,
    names::RULE,
    safety::RULE,
    arguments::RULE,
    campaigns::RULE,
    links::RULE,
    commands::RULE,
    dates::RULE,
];

/// Checks all rules and prints their violations.
pub(crate) fn run(flags: &TidyFlags) -> ExitCode {
    let begun = Instant::now();
    let root = match flags.root.clone().map_or_else(tree::workspace, Ok) {
        Ok(root) => root,
        Err(error) => return refuse(&error),
    };
    let tree = match Tree::read(&root) {
        Ok(tree) => tree,
        Err(error) => return refuse(&error),
    };
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} files, {} rules, {} findings ({seconds:.1} s)", tree.len(), RULES.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn refuse(error: &tree::TreeError) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

/// Returns all violations, ordered by file and line.
fn check(tree: &Tree) -> BTreeSet<Finding> {
    let mut findings = Vec::new();
    let code = Code::parse(tree, &mut findings);
    graph::check(tree, &mut findings);
    order::check(&code, &mut findings);
    cycles::check(&code, &mut findings);
    modules::check(tree, &code, &mut findings);
    length::check(tree, &mut findings);
    names::check(&code, &mut findings);
    safety::check(&code, &mut findings);
    arguments::check(&code, &mut findings);
    campaigns::check(&code, &mut findings);
    links::check(tree, &mut findings);
    commands::check(tree, &mut findings);
    dates::check(tree, &mut findings);
    findings.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let lines: Vec<String> = check(&Tree::read(&root).unwrap()).iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }

    #[test]
    fn a_finding_names_file_line_and_rule() {
        let tree = Tree::of(&[("crates/storage/src/lib.rs", "fn f() {\n    unsafe { g() }\n}\n")]);
        let lines: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line.starts_with("crates/storage/src/lib.rs:2: safety: ")), "{lines:?}");
    }
}
