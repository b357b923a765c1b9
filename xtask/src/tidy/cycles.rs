//! Rule: sibling modules do not depend on each other in a cycle, at any depth.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::code::{Code, Crate, Path};

pub(super) const RULE: &str = "circle";

pub(super) fn check(code: &Code, findings: &mut Vec<Finding>) {
    for of in &code.crates {
        for (parent, edges) in siblings(of) {
            for cycle in find_cycles(&edges) {
                let names: Vec<&str> = cycle.iter().map(String::as_str).collect();
                let file = of.modules.get(&parent).map_or_else(String::new, |module| module.file.clone());
                let arrows: Vec<String> = (cycle.iter())
                    .flat_map(|from| edges[from].iter().filter(|(to, _)| cycle.contains(*to)).map(move |e| (from, e)))
                    .map(|(from, (to, (file, line)))| format!("{from} -> {to} ({file}:{line})"))
                    .collect();
                let what = format!("{} use each other: {}", names.join(", "), arrows.join(", "));
                findings.push(Finding { file, line: 1, rule: RULE, what });
            }
        }
    }
}

/// Dependences between sibling modules: for each module, the siblings that it names, each with the file and line of one
/// occurrence.
type Edges = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// Returns the dependences between the children of each module.
fn siblings(of: &Crate) -> BTreeMap<Path, Edges> {
    let mut all: BTreeMap<Path, Edges> = BTreeMap::new();
    for (path, module) in of.modules.iter().filter(|(_, module)| !module.test) {
        for named in &module.uses {
            let home = of.home(&named.path);
            let shared = path.iter().zip(&home).take_while(|(a, b)| a == b).count();
            // A parent and a child that name each other are not siblings.
            let (Some(from), Some(to)) = (path.get(shared), home.get(shared)) else { continue };
            let edges = all.entry(path[..shared].to_vec()).or_default();
            let place = (module.file.clone(), named.line);
            edges.entry(from.clone()).or_default().entry(to.clone()).or_insert(place);
            edges.entry(to.clone()).or_default();
        }
    }
    all
}

/// Returns the sets of two or more modules in which each module reaches all others.
fn find_cycles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges.keys().map(|from| (from, reach(edges, from))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for from in edges.keys() {
        if found.iter().any(|cycle| cycle.contains(from)) {
            continue;
        }
        let both = |to: &&&String| reached[**to].contains(from);
        let cycle: BTreeSet<String> = reached[from].iter().filter(both).map(|to| (*to).clone()).collect();
        if cycle.len() > 1 {
            found.push(cycle);
        }
    }
    found
}

fn reach<'e>(edges: &'e Edges, from: &String) -> BTreeSet<&'e String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&'e String> = edges[from].keys().collect();
    while let Some(at) = open.pop() {
        if reached.insert(at) {
            open.extend(edges[at].keys());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn findings(b: &str) -> Vec<Finding> {
        let files = [
            ("crates/x/src/lib.rs", "mod top;"),
            ("crates/x/src/top/mod.rs", "mod a; mod b; mod c; pub struct Here;"),
            ("crates/x/src/top/a.rs", "use super::b::B;"),
            ("crates/x/src/top/b.rs", b),
            ("crates/x/src/top/c.rs", "use super::a;"),
        ];
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(&files), &mut Vec::new()), &mut findings);
        findings
    }

    #[test]
    fn modules_in_order_pass_and_so_does_a_child_that_names_its_parent() {
        assert_eq!(findings("pub struct B; use super::Here;"), []);
    }

    #[test]
    fn a_circle_is_found_with_the_places_that_close_it() {
        let found = findings("pub struct B;\nuse super::c;");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.starts_with("a, b, c use each other"), "{found:?}");
        assert!(found[0].what.contains("b -> c (crates/x/src/top/b.rs:2)"), "{found:?}");
    }

    #[test]
    fn tests_close_no_circle() {
        assert_eq!(findings("pub struct B;\n#[cfg(test)]\nmod tests { use super::super::c; }"), []);
    }
}
