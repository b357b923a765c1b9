//! Rules about extreme arguments: no cast truncates a duration, and a debug assertion is never the only check of an argument
//! of the public interface.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, Type, Visibility};

use super::Finding;
use super::code::{Code, File, is_test};

pub(super) const RULE: &str = "ends";

/// Accessors of a duration, with the number of bits of their results.
const ACCESSORS: [(&str, u32); 4] = [("as_nanos", 128), ("as_micros", 128), ("as_millis", 128), ("as_secs", 64)];
/// Folder of the public interface of `storage`. Its arguments come from callers, so it must not use debug assertions.
const INTERFACE: &str = "crates/storage/src/db/";
/// Folders of libraries whose public functions other programs call.
const LIBRARIES: [&str; 4] = ["crates/storage/", "crates/sched-steps/", "crates/speculate/", "crates/itas/"];

pub(super) fn check(code: &Code, findings: &mut Vec<Finding>) {
    for file in &code.files {
        let is_library = LIBRARIES.iter().any(|library| file.path.starts_with(library));
        let mut visitor = ArgumentVisitor { file, is_library, parameters: Vec::new(), findings };
        visitor.visit_file(&file.syntax);
    }
}

/// Visitor of a file. Keeps the parameter names of the enclosing public functions.
struct ArgumentVisitor<'a> {
    file: &'a File,
    is_library: bool,
    parameters: Vec<BTreeSet<String>>,
    findings: &'a mut Vec<Finding>,
}

impl ArgumentVisitor<'_> {
    fn report(&mut self, line: usize, what: String) {
        self.findings.push(Finding { file: self.file.path.clone(), line, rule: RULE, what });
    }

    /// Visits a function; `is_public` is true if other programs call it.
    fn function(&mut self, is_public: bool, signature: &syn::Signature, visit: impl FnOnce(&mut Self)) {
        let mut names = PatternNames::default();
        if is_public && self.is_library {
            for argument in &signature.inputs {
                if let FnArg::Typed(argument) = argument {
                    names.visit_pat(&argument.pat);
                }
            }
        }
        self.parameters.push(names.0);
        visit(self);
        self.parameters.pop();
    }
}

/// Names that patterns bind.
#[derive(Default)]
struct PatternNames(BTreeSet<String>);

impl<'ast> Visit<'ast> for PatternNames {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

impl<'ast> Visit<'ast> for ArgumentVisitor<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !matches!(item, syn::Item::Mod(inner) if is_test(&inner.attrs)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let is_public = is_called(&item.vis, &item.attrs);
        self.function(is_public, &item.sig, |this| visit::visit_item_fn(this, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let is_public = is_called(&item.vis, &item.attrs);
        self.function(is_public, &item.sig, |this| visit::visit_impl_item_fn(this, item));
    }

    fn visit_expr_cast(&mut self, cast: &'ast syn::ExprCast) {
        if let (Some(accessor), Some(bits)) = (duration_accessor(&cast.expr), integer_bits(&cast.ty))
            && bits < accessor.1
        {
            let what =
                format!("`{}` cut by a cast: a duration may be longer; count it so that it saturates", accessor.0);
            self.report(cast.span().start().line, what);
        }
        visit::visit_expr_cast(self, cast);
    }

    fn visit_expr_binary(&mut self, sum: &'ast syn::ExprBinary) {
        if matches!(sum.op, syn::BinOp::Add(_)) && is_now(&sum.left) && !is_constant(&sum.right) {
            let what = "`Instant::now() +` panics for a long duration: `checked_add`".to_owned();
            self.report(sum.span().start().line, what);
        }
        visit::visit_expr_binary(self, sum);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let is_debug = mac.path.segments.last().is_some_and(|name| name.ident.to_string().starts_with("debug_assert"));
        if is_debug {
            let line = mac.span().start().line;
            let named = self.parameters.iter().flatten().find(|name| names(mac.tokens.clone(), name)).cloned();
            if let Some(name) = named {
                self.report(line, format!("a debug assertion alone guards `{name}`, which a caller gives: refuse it"));
            } else if self.file.path.starts_with(INTERFACE) && !self.file.path.ends_with("tests.rs") {
                self.report(line, "a debug assertion in the public interface: refuse what a caller gives".to_owned());
            }
        }
        visit::visit_macro(self, mac);
    }
}

/// Returns true if other programs can call a function: it is public, and not a part of a macro's expansion.
fn is_called(visibility: &Visibility, attributes: &[syn::Attribute]) -> bool {
    let is_hidden = attributes.iter().any(|attribute| {
        matches!(&attribute.meta, syn::Meta::List(list) if list.path.is_ident("doc") && names(list.tokens.clone(), "hidden"))
    });
    matches!(visibility, Visibility::Public(_)) && !is_hidden
}

/// Returns the accessor of a duration that is the outermost call of an expression, ignoring parentheses, and the number of
/// bits of its result.
fn duration_accessor(mut expr: &Expr) -> Option<(&'static str, u32)> {
    while let Expr::Paren(inner) = expr {
        expr = &inner.expr;
    }
    let Expr::MethodCall(call) = expr else { return None };
    ACCESSORS.into_iter().find(|(name, _)| call.args.is_empty() && call.method == name)
}

/// Returns the number of bits of an integer type; `None` for other types.
fn integer_bits(of: &Type) -> Option<u32> {
    let Type::Path(path) = of else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    match name.as_str() {
        "usize" => Some(64),
        "isize" => Some(63),
        _ => match name.split_at_checked(1)? {
            ("u", bits) => bits.parse().ok(),
            ("i", bits) => bits.parse::<u32>().ok()?.checked_sub(1),
            _ => None,
        },
    }
}

fn is_now(expr: &Expr) -> bool {
    let Expr::Call(call) = expr else { return false };
    let Expr::Path(path) = &*call.func else { return false };
    let names: Vec<String> = path.path.segments.iter().map(|name| name.ident.to_string()).collect();
    names.ends_with(&["Instant".to_owned(), "now".to_owned()])
}

/// Returns true if an expression is the name of a constant, or a duration made of literals.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => path.path.segments.last().is_some_and(|name| {
            let name = name.ident.to_string();
            name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        }),
        Expr::Call(call) => call.args.iter().all(|argument| matches!(argument, Expr::Lit(_))),
        _ => false,
    }
}

fn names(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => names(group.stream(), name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(&[(path, text)]), &mut Vec::new()), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_cast_that_cuts_a_duration_is_found() {
        let text = "fn f(d: Duration) {\n    a(d.as_nanos() as u64);\n    a((d.as_millis()) as usize);\n    \
                    a(d.as_secs() as u32);\n    a(d.as_secs() as i64);\n    a(d.as_secs() as u64);\n    \
                    a(d.as_nanos() as f64);\n    a(d.as_nanos() as u128);\n    a(d.subsec_nanos() as u16);\n}";
        assert_eq!(found("xtask/src/a.rs", text), [2, 3, 4, 5]);
    }

    #[test]
    fn a_time_that_may_be_too_far_is_found() {
        let text = "fn f(d: Duration) {\n    let a = Instant::now() + d;\n    let a = Instant::now() + EVERY;\n    \
                    let a = std::time::Instant::now() + Duration::from_millis(5);\n    let a = now + d;\n}";
        assert_eq!(found("crates/x/src/lib.rs", text), [2]);
    }

    #[test]
    fn a_debug_assertion_on_what_a_caller_gives_is_found() {
        let text = "pub fn f(n: usize, (a, b): (u8, u8)) {\n    debug_assert!(n < 5);\n    debug_assert_eq!(g(&[b]), 1);\n    \
                    debug_assert!(m < 5);\n}\npub(crate) fn g(n: usize) {\n    debug_assert!(n < 5);\n}\nimpl A {\n    \
                    pub fn h(&self, n: usize) {\n        debug_assert_ne!(n, self.n);\n    }\n}\n\
                    #[doc(hidden)]\npub fn at(n: usize) {\n    debug_assert!(n < 5);\n}\n\
                    #[cfg(test)]\nmod tests {\n    pub fn f(n: usize) {\n        debug_assert!(n < 5);\n    }\n}";
        assert_eq!(found("crates/itas/src/a.rs", text), [2, 3, 11]);
        assert_eq!(found("crates/storage/src/db/a.rs", text), [2, 3, 4, 7, 11, 16]);
        assert_eq!(found("crates/tpcc/src/a.rs", text), [] as [usize; 0], "a program has no callers");
    }
}
