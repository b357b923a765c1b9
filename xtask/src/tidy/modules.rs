//! Rule: no dead source files. Every source file is a module of its crate, or a target that Cargo finds by its location.

use std::collections::BTreeSet;

use super::Finding;
use super::code::Code;
use super::tree::Tree;

pub(super) const RULE: &str = "dead";

pub(super) fn check(tree: &Tree, code: &Code, findings: &mut Vec<Finding>) {
    let alive: BTreeSet<&str> =
        (code.crates.iter()).flat_map(|of| of.modules.values().map(|module| module.file.as_str())).collect();
    for (path, _) in tree.ending(".rs") {
        let target = path.ends_with("src/main.rs") || path.ends_with("build.rs") || is_target(tree, path);
        if !target && !alive.contains(path) {
            let what = "no module declares this file".to_owned();
            findings.push(Finding { file: path.to_owned(), line: 1, rule: RULE, what });
        }
    }
}

/// Returns true if a file is a target by its location: each file directly in a folder of tests, benchmarks, examples or
/// programs is one, and so is `main.rs` in a subfolder. Other files in subfolders belong to the targets that declare them
/// as modules.
fn is_target(tree: &Tree, path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let place = |folder: &str| ["tests", "benches", "examples"].iter().any(|p| folder.ends_with(&format!("/{p}")));
    if place(folder) && !folder.contains("/src/") || folder.ends_with("/src/bin") {
        return true;
    }
    let Some((above, shared)) = folder.rsplit_once('/') else { return false };
    if place(above) && name == "main.rs" {
        return true;
    }
    let module = if name == "mod.rs" { shared } else { name.trim_end_matches(".rs") };
    let declared = format!("mod {module};");
    let beside = |file: &str| file.rsplit_once('/').is_some_and(|(at, _)| at == above || at == folder);
    place(above) && tree.ending(".rs").any(|(file, text)| beside(file) && file != path && text.contains(&declared))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let mut findings = Vec::new();
        check(&tree, &Code::parse(&tree, &mut Vec::new()), &mut findings);
        findings.into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn a_file_that_no_module_declares_is_found() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; #[cfg(test)] mod tests;"),
            ("crates/x/src/a/mod.rs", "mod b;"),
            ("crates/x/src/a/b.rs", ""),
            ("crates/x/src/a/c.rs", ""),
            ("crates/x/src/tests.rs", ""),
        ];
        assert_eq!(dead(&files), ["crates/x/src/a/c.rs"]);
    }

    #[test]
    fn targets_of_cargo_are_alive_and_what_they_share_if_it_is_declared() {
        let files = [
            ("crates/x/src/lib.rs", ""),
            ("crates/x/tests/model.rs", "mod shared;"),
            ("crates/x/tests/shared/mod.rs", ""),
            ("crates/x/tests/lost/mod.rs", ""),
            ("crates/x/tests/crash/main.rs", "mod torn;"),
            ("crates/x/tests/crash/torn.rs", ""),
            ("crates/x/tests/crash/gone.rs", ""),
            ("benches/benches/hop.rs", ""),
            ("benches/src/bin/hop.rs", ""),
        ];
        assert_eq!(dead(&files), ["crates/x/tests/crash/gone.rs", "crates/x/tests/lost/mod.rs"]);
    }
}
