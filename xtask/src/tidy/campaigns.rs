//! Rule: a campaign calls every public method of the engine. Exceptions are listed here with their reasons.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{ImplItem, Item, Visibility};

use super::Finding;
use super::code::{Code, is_test};

pub(super) const RULE: &str = "campaigns";

/// Files of the engine's public interface, and of the simulated disk.
const INTERFACE: [&str; 2] = ["crates/storage/src/db/", "crates/storage/src/io/sim/mod.rs"];
/// Folders of the campaigns.
const CAMPAIGNS: [&str; 2] = ["xtask/campaigns/src/sim/", "xtask/campaigns/src/torture/"];

/// Methods that no campaign can call, with the reasons.
const UNCALLED_METHODS: [(&str, &str); 20] = [
    ("claim", "takes a directory of files: tests/directory.rs"),
    ("foreign", "names files of a directory: tests/directory.rs"),
    ("passed", "campaigns look at the findings, of which some are no failure after a crash"),
    ("page_checksums", "off they find nothing, which is what campaigns look for: tests/statements/settings.rs"),
    ("shared_lines", "addresses, for tools that follow accesses"),
    ("lock_tables", "names, for tools that follow accesses"),
    ("frame_layout", "offsets, for tools that follow accesses"),
    ("held_locks", "locks, for tools that follow accesses"),
    ("take_loop_traces", "times, for experiments: crates/storage/src/db/loop_figures.rs"),
    ("injected_repeats", "a counter, for experiments: crates/storage/src/db/loop_figures.rs"),
    ("get_or_insert_with", "a read and an insert, which campaigns call: tests/statements/entries.rs"),
    ("modify", "a read for update and a write, which campaigns call: tests/statements/entries.rs"),
    ("compare_and_swap", "a read for update and a write, which campaigns call: tests/statements/entries.rs"),
    ("prefix", "a range with other bounds: tests/statements/entries.rs"),
    ("begin_owned", "a transaction as any other: tests/statements/owned.rs"),
    ("begin_owned_at", "a transaction as any other: tests/statements/owned.rs"),
    ("database", "a handle that the program has given"),
    ("planned", "counts the faults of a disk, which campaigns plan themselves"),
    ("drop_syncs", "a canary, which the tests of the log and of the disks set"),
    ("poke", "damage of a byte: campaigns have disks of their own that damage (torture/damage)"),
];

pub(super) fn check(code: &Code, findings: &mut Vec<Finding>) {
    let called = called(code);
    // A tree without campaigns is a test of another rule.
    if called.is_empty() {
        return;
    }
    let public = public(code);
    for (name, (file, line)) in &public {
        let excused = UNCALLED_METHODS.iter().any(|(other, _)| other == name);
        let what = match (called.contains(name), excused) {
            (false, false) => {
                format!("no campaign calls `{name}`: let `xtask/campaigns/src/sim` do it, or say why not")
            }
            (true, true) => format!("a campaign calls `{name}`, which is said to be in none"),
            _ => continue,
        };
        findings.push(Finding { file: file.clone(), line: *line, rule: RULE, what });
    }
    for (name, _) in UNCALLED_METHODS.iter().filter(|(name, _)| !public.contains_key(*name)) {
        let what = format!("there is no public method `{name}` to excuse");
        findings.push(Finding { file: "xtask/src/tidy/campaigns.rs".to_owned(), line: 1, rule: RULE, what });
    }
}

/// Returns the file and line of each public function and method, by name. Methods of the views on bytes (`RawReader`, ..) are
/// named `raw.NAME`, as typed methods have the same names.
fn public(code: &Code) -> BTreeMap<String, (String, usize)> {
    let mut all = BTreeMap::new();
    for file in code.files.iter().filter(|file| INTERFACE.iter().any(|of| file.path.starts_with(of))) {
        for item in &file.syntax.items {
            let mut add = |view: &str, name: &syn::Ident| {
                all.insert(format!("{view}{name}"), (file.path.clone(), name.span().start().line));
            };
            match item {
                Item::Fn(item) if matches!(item.vis, Visibility::Public(_)) && !is_test(&item.attrs) => {
                    add("", &item.sig.ident);
                }
                Item::Impl(item) if item.trait_.is_none() && !is_test(&item.attrs) => {
                    let view = if is_view(&item.self_ty) { RAW } else { "" };
                    for inner in &item.items {
                        if let ImplItem::Fn(method) = inner
                            && matches!(method.vis, Visibility::Public(_))
                        {
                            add(view, &method.sig.ident);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    all
}

/// Prefix of the names of methods of views on bytes.
const RAW: &str = "raw.";

/// Returns true for the types of the views on bytes.
fn is_view(of: &syn::Type) -> bool {
    matches!(of, syn::Type::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with("Raw")))
}

/// Returns the names that campaigns call: all identifiers after a dot or two colons; those after `.raw().` or `.raw_mut().`
/// with the prefix of views.
fn called(code: &Code) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in code.files.iter().filter(|file| CAMPAIGNS.iter().any(|of| file.path.starts_with(of))) {
        for item in &file.syntax.items {
            if !matches!(item, Item::Mod(inner) if is_test(&inner.attrs)) {
                collect_called(item.to_token_stream(), &mut names);
            }
        }
    }
    names
}

fn collect_called(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect_called(group.stream(), names),
            TokenTree::Ident(ident)
                if at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(p) if ".:".contains(p.as_char())) =>
            {
                let of_view = matches!(&tokens[..at], [.., TokenTree::Ident(view), TokenTree::Group(_), TokenTree::Punct(_)]
                    if view == "raw" || view == "raw_mut");
                names.insert(format!("{}{ident}", if of_view { RAW } else { "" }));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    #[test]
    fn a_method_that_no_campaign_calls_is_found() {
        let interface = "impl Database {\n    pub fn used(&self) {}\n    pub fn also(&self) {}\n    \
                         pub fn alone(&self) {}\n    pub(crate) fn inner(&self) {}\n}\nimpl Drop for Database {\n    \
                         fn drop(&mut self) {}\n}\npub fn free() {}\n";
        let campaign = "fn f(db: &Database) {\n    db.used();\n    Database::also(db);\n    let alone = 1;\n}\n\
                        #[cfg(test)]\nmod tests {\n    fn g() { free::free() }\n}\n";
        let files = [("crates/storage/src/db/a.rs", interface), ("xtask/campaigns/src/sim/a.rs", campaign)];
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(&files), &mut Vec::new()), &mut findings);
        let lines: Vec<usize> = findings.iter().filter(|f| f.file.ends_with("a.rs")).map(|f| f.line).collect();
        assert_eq!(lines, [4, 10], "{findings:?}");
    }

    #[test]
    fn a_typed_call_is_none_of_the_view_on_bytes() {
        let interface = "impl Transaction {\n    pub fn read(&self) {}\n    pub fn raw_mut(&self) {}\n}\n\
                         impl RawWriter<'_> {\n    pub fn read(self) {}\n    pub fn put(self) {}\n}\n";
        let campaign = "fn f(tx: &Transaction) {\n    tx.read();\n    tx.raw_mut().put();\n}\n";
        let files = [("crates/storage/src/db/a.rs", interface), ("xtask/campaigns/src/sim/a.rs", campaign)];
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(&files), &mut Vec::new()), &mut findings);
        let lines: Vec<usize> = findings.iter().filter(|f| f.file.ends_with("a.rs")).map(|f| f.line).collect();
        assert_eq!(lines, [6], "{findings:?}");
    }
}
