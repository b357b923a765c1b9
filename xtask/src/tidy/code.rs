//! Parsed Rust code: crates, their modules, and the paths by which modules refer to each other.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Attribute, Item, UseTree};

use super::Finding;
use super::tree::Tree;

/// Name of the rule for findings about parsing.
const RULE: &str = "parse";

/// All parsed source files of the workspace.
pub(super) struct Code {
    pub(super) files: Vec<File>,
    pub(super) crates: Vec<Crate>,
}

/// Parsed source file.
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) syntax: syn::File,
}

/// Library or program, with its modules.
pub(super) struct Crate {
    /// Folder of the crate's manifest.
    pub(super) folder: String,
    /// Modules, indexed by their paths below the crate. The root module has the empty path.
    pub(super) modules: BTreeMap<Path, Module>,
}

/// Path of a module: names from the root of its crate to the module.
pub(super) type Path = Vec<String>;

/// Module, in its own file or in its parent's file.
#[derive(Default)]
pub(super) struct Module {
    pub(super) file: String,
    /// True if the module exists only in tests (or under model checkers).
    pub(super) test: bool,
    /// Paths of the same crate that the module names, except in its tests.
    pub(super) uses: Vec<Use>,
    /// Names that `use` declarations bring into scope, with the paths to which the names refer.
    aliases: BTreeMap<String, Path>,
    /// Names and lines of types, traits and aliases that other modules may name. Types of tests are excluded.
    pub(super) types: Vec<(String, usize)>,
}

/// Path within the crate that a module names.
#[derive(Clone)]
pub(super) struct Use {
    /// Path from the root of the crate.
    pub(super) path: Path,
    /// Line number, from 1.
    pub(super) line: usize,
}

impl Code {
    pub(super) fn parse(tree: &Tree, findings: &mut Vec<Finding>) -> Code {
        let mut files = Vec::new();
        for (path, text) in tree.ending(".rs") {
            match syn::parse_file(text) {
                Ok(syntax) => files.push(File { path: path.to_owned(), text: text.to_owned(), syntax }),
                Err(error) => {
                    let line = error.span().start().line;
                    findings.push(Finding { file: path.to_owned(), line, rule: RULE, what: error.to_string() });
                }
            }
        }
        let mut code = Code { files, crates: Vec::new() };
        for root in ["src/lib.rs", "src/main.rs"] {
            for (path, _) in tree.ending(root) {
                let Some(folder) = path.strip_suffix(root) else { continue };
                let folder = folder.trim_end_matches('/').to_owned();
                // A program with a library in the same folder uses only the library.
                if root == "src/main.rs" && code.crates.iter().any(|c| c.folder == folder) {
                    continue;
                }
                let mut modules = BTreeMap::new();
                code.walk(&mut modules, Vec::new(), path, false);
                code.crates.push(Crate { folder, modules });
            }
        }
        code
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Adds the module at `path` and all modules below it to `modules`. The module is the whole content of `file`.
    fn walk(&self, modules: &mut BTreeMap<Path, Module>, path: Path, file: &str, test: bool) {
        let Some(parsed) = self.file(file) else { return };
        let test = test || is_test(&parsed.syntax.attrs);
        self.items(modules, path, file, &parsed.syntax.items, test);
    }

    fn items(&self, modules: &mut BTreeMap<Path, Module>, path: Path, file: &str, items: &[Item], test: bool) {
        let mut module = Module { file: file.to_owned(), test, ..Module::default() };
        let mut below = Vec::new();
        let is_child = |name: &String| items.iter().any(|item| matches!(item, Item::Mod(inner) if inner.ident == name));
        for item in items {
            let only_tests = test || is_test(attributes(item));
            match item {
                Item::Mod(inner) => below.push((inner, only_tests)),
                Item::Use(item) => {
                    let mut found = Vec::new();
                    flatten(&item.tree, &mut Vec::new(), &mut found);
                    for (name, mut named, line) in found {
                        if named.first().is_some_and(is_child) {
                            named.insert(0, "self".to_owned());
                        }
                        let Some(named) = from_root(&path, &named) else { continue };
                        module.aliases.insert(name, named.clone());
                        if !only_tests {
                            module.uses.push(Use { path: named, line });
                        }
                    }
                }
                _ if only_tests => {}
                item => {
                    module.types.extend(visible_type(item));
                    named_inline(item.to_token_stream(), &path, &mut module.uses);
                }
            }
        }
        modules.insert(path.clone(), module);
        for (inner, only_tests) in below {
            let mut to = path.clone();
            to.push(inner.ident.to_string());
            match &inner.content {
                Some((_, items)) => self.items(modules, to, file, items, only_tests),
                None => {
                    if let Some(file) = self.file_of(file, path.is_empty(), inner) {
                        self.walk(modules, to, &file, only_tests);
                    }
                }
            }
        }
    }

    /// Returns the path of the file of a module that is declared in the file `parent`.
    fn file_of(&self, parent: &str, at_root: bool, module: &syn::ItemMod) -> Option<String> {
        let (folder, name) = parent.rsplit_once('/')?;
        let folder = match name {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            _ if at_root => folder.to_owned(),
            other => format!("{folder}/{}", other.strip_suffix(".rs")?),
        };
        let name = module.ident.to_string();
        let name = name.trim_start_matches("r#");
        let both = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        both.into_iter().find(|path| self.file(path).is_some())
    }
}

impl Crate {
    /// Returns the path of the module that defines the item at `path`. Names from a `use` are resolved to their origin.
    pub(super) fn home(&self, path: &[String]) -> Path {
        self.follow(path, 8)
    }

    fn follow(&self, path: &[String], depth: usize) -> Path {
        let mut at = Vec::new();
        for (i, name) in path.iter().enumerate() {
            let mut to = at.clone();
            to.push(name.clone());
            if self.modules.contains_key(&to) {
                at = to;
                continue;
            }
            let alias = self.modules.get(&at).and_then(|module| module.aliases.get(name));
            if let Some(alias) = alias
                && depth > 0
                && alias.as_slice() != &path[..=i]
            {
                let mut whole = alias.clone();
                whole.extend_from_slice(&path[i + 1..]);
                return self.follow(&whole, depth - 1);
            }
            break;
        }
        at
    }
}

/// Returns true for `cfg(test)`, `cfg(loom)`, `cfg(all(test, ...))` and similar attributes; not for `cfg(not(test))`, which
/// is product code.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && asks_for_test(list.tokens.clone()),
        syn::Meta::NameValue(_) => false,
    })
}

/// Returns true if a condition names a test configuration outside `not(...)`.
fn asks_for_test(condition: TokenStream) -> bool {
    let mut negated = false;
    for token in condition {
        match token {
            TokenTree::Ident(ident) => {
                if ["test", "loom", "shuttle", "doctest"].iter().any(|word| ident == word) {
                    return true;
                }
                negated = ident == "not";
            }
            TokenTree::Group(group) if !negated && asks_for_test(group.stream()) => return true,
            _ => negated = false,
        }
    }
    false
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Returns the name and line of a type or trait that other modules may name.
fn visible_type(item: &Item) -> Option<(String, usize)> {
    let (visibility, name) = match item {
        Item::Struct(i) => (&i.vis, &i.ident),
        Item::Enum(i) => (&i.vis, &i.ident),
        Item::Union(i) => (&i.vis, &i.ident),
        Item::Trait(i) => (&i.vis, &i.ident),
        Item::Type(i) => (&i.vis, &i.ident),
        _ => return None,
    };
    let visible = !matches!(visibility, syn::Visibility::Inherited);
    visible.then(|| (name.to_string(), name.span().start().line))
}

/// Collects the names that a `use` brings into scope, with the paths and lines of the names.
fn flatten(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(String, Path, usize)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => {
            let mut whole = before.clone();
            if name.ident != "self" {
                whole.push(name.ident.to_string());
            }
            found.push((whole.last().cloned().unwrap_or_default(), whole, name.span().start().line));
        }
        UseTree::Rename(name) => {
            let mut whole = before.clone();
            if name.ident != "self" {
                whole.push(name.ident.to_string());
            }
            found.push((name.rename.to_string(), whole, name.span().start().line));
        }
        UseTree::Glob(glob) => found.push((String::new(), before.clone(), glob.span().start().line)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
    }
}

/// Resolves a path, as written in the module `here`, to a path from the crate's root; returns `None` for a path that leads
/// to another crate or cannot be distinguished from one.
fn from_root(here: &[String], path: &[String]) -> Option<Path> {
    let mut names = path.iter().peekable();
    let mut at: Path = match names.peek()?.as_str() {
        "crate" => {
            names.next();
            Vec::new()
        }
        "self" => {
            names.next();
            here.to_vec()
        }
        "super" => here.to_vec(),
        _ => return None,
    };
    while names.next_if(|name| *name == "super").is_some() {
        at.pop()?;
    }
    at.extend(names.cloned());
    Some(at)
}

/// Collects paths that begin with `crate`, `self` or `super` in expressions, types and macro arguments.
fn named_inline(tokens: TokenStream, here: &[String], uses: &mut Vec<Use>) {
    let mut path: Vec<String> = Vec::new();
    let mut line = 0;
    let mut colons = 0;
    let close = |path: &mut Vec<String>, line: usize, uses: &mut Vec<Use>| {
        if path.len() > 1
            && let Some(path) = from_root(here, path)
        {
            uses.push(Use { path, line });
        }
        path.clear();
    };
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                let begins = matches!(name.as_str(), "crate" | "super" | "self");
                if colons == 2 && !path.is_empty() {
                    path.push(name);
                } else {
                    close(&mut path, line, uses);
                    if begins {
                        line = ident.span().start().line;
                        path.push(name);
                    }
                }
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                close(&mut path, line, uses);
                colons = 0;
                named_inline(group.stream(), here, uses);
            }
            _ => {
                close(&mut path, line, uses);
                colons = 0;
            }
        }
    }
    close(&mut path, line, uses);
}
