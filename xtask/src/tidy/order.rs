//! Rule: a module uses only modules that are lower in the order that is declared here.

use super::Finding;
use super::code::Code;

pub(super) const RULE: &str = "order";

/// Modules of each crate, from the lowest to the highest. `ARCHITECTURE.md` describes their contents.
const ORDERS: [(&str, &[&str]); 8] = [
    (
        "crates/storage",
        &["base", "io", "page", "latch", "log", "buffer", "btree", "lock", "txn", "recovery", "table", "db", "fuzzing"],
    ),
    ("crates/sched-steps", &["fifo", "context", "point", "teams", "executor", "measure", "testing"]),
    (
        "crates/speculate",
        &[
            "quiet",
            "sync",
            "mutant",
            "store",
            "prefetch",
            "last_op",
            "forward",
            "error",
            "sites",
            "stats",
            "shared",
            "scan",
            "times",
            "log",
            "trace",
            "fork",
            "pool",
            "in_place",
            "nesting",
            "mailbox",
            "epoch",
            "range",
            "worker",
            "commit",
            "speculator",
            "governor",
            "simulate",
        ],
    ),
    (
        "crates/itas",
        &[
            "mutant",
            "group",
            "publish",
            "queue",
            "bound",
            "stats",
            "policy",
            "scheduler",
            "executor",
            "virtual_time",
            "placement",
            "auto",
            "simulate",
            "runtime",
        ],
    ),
    ("crates/tpcc/core", &["workload", "engines", "driver", "report", "peers", "checkers"]),
    (
        "crates/tpcc/lab",
        &[
            "filler",
            "interval",
            "page",
            "footprint",
            "coherence",
            "scale",
            "index_fetch",
            "latency",
            "tenants",
            "reproduce",
            "compare",
        ],
    ),
    ("crates/tpcc", &["cli"]),
    ("xtask/campaigns", &["record", "parallel", "sim", "torture", "checkers", "fuzz"]),
];

pub(super) fn check(code: &Code, findings: &mut Vec<Finding>) {
    for of in &code.crates {
        let Some((_, order)) = ORDERS.iter().find(|(folder, _)| of.folder == *folder) else { continue };
        let place = |name: &str| order.iter().position(|module| *module == name);
        for (path, module) in &of.modules {
            let Some(top) = path.first() else { continue };
            let Some(here) = place(top) else {
                // An inline module of the root file belongs to the root.
                let at_root = of.modules.get(&Vec::new()).is_some_and(|root| root.file == module.file);
                if path.len() == 1 && !module.test && !at_root {
                    let what = format!("the module `{top}` has no place in the order of {}", of.folder);
                    findings.push(Finding { file: module.file.clone(), line: 1, rule: RULE, what });
                }
                continue;
            };
            if module.test {
                continue;
            }
            for named in &module.uses {
                let home = of.home(&named.path);
                let Some(other) = home.first() else { continue };
                if place(other).is_some_and(|there| there > here) {
                    let what = format!("`{top}` names `{}`, but `{other}` stands above it", named.path.join("::"));
                    findings.push(Finding { file: module.file.clone(), line: named.line, rule: RULE, what });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn findings(files: &[(&str, &str)]) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(files), &mut Vec::new()), &mut findings);
        findings
    }

    const ROOT: (&str, &str) =
        ("crates/storage/src/lib.rs", "mod base;\nmod page;\nmod btree;\npub use btree::Tree;\n");

    #[test]
    fn what_points_downward_passes() {
        let files = [
            ROOT,
            ("crates/storage/src/base.rs", "pub struct Lsn;"),
            ("crates/storage/src/page.rs", "use crate::base::Lsn;"),
            ("crates/storage/src/btree.rs", "pub struct Tree; use crate::{base::Lsn, page};"),
        ];
        assert_eq!(findings(&files), []);
    }

    #[test]
    fn a_use_that_points_upward_is_found_in_every_way_to_write_it() {
        for text in [
            "\nuse crate::btree as _;",
            "\nuse crate::{btree::Tree};",
            "\nuse super::btree::Tree;",
            "\nuse crate::Tree;",
            "\nfn f(_: &crate::btree::Tree) {}",
            "\nfn f() { let _ = (1, crate::btree::Tree); }",
            "\nfn f() { assert!(crate::btree::is_sound()); }",
        ] {
            let files =
                [ROOT, ("crates/storage/src/page.rs", text), ("crates/storage/src/btree.rs", "pub struct Tree;")];
            let found = findings(&files);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!((found[0].file.as_str(), found[0].line), ("crates/storage/src/page.rs", 2), "{text}");
        }
    }

    #[test]
    fn tests_may_look_up() {
        let text = "#[cfg(test)]\nmod tests { use crate::btree::Tree; }\n#[cfg(test)]\nuse crate::btree as _;";
        assert_eq!(findings(&[ROOT, ("crates/storage/src/page.rs", text), ("crates/storage/src/btree.rs", "")]), []);
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        let files = [("crates/storage/src/lib.rs", "mod odd;"), ("crates/storage/src/odd.rs", "")];
        assert_eq!(findings(&files).len(), 1);
    }
}
