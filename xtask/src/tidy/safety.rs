//! Rule: every `unsafe` block and implementation has a `// SAFETY:` comment with the proof of its soundness.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::code::{Code, File};

pub(super) const RULE: &str = "safety";

pub(super) fn check(code: &Code, findings: &mut Vec<Finding>) {
    for file in &code.files {
        let mut visitor = UnsafeVisitor { file, start_lines: Vec::new(), findings };
        visitor.visit_file(&file.syntax);
    }
}

/// Visitor of a file. Keeps the start lines of the enclosing items and statements, because a comment may be above the
/// innermost one.
struct UnsafeVisitor<'a> {
    file: &'a File,
    start_lines: Vec<usize>,
    findings: &'a mut Vec<Finding>,
}

impl UnsafeVisitor<'_> {
    fn within(&mut self, line: usize, visit: impl FnOnce(&mut Self)) {
        self.start_lines.push(line);
        visit(self);
        self.start_lines.pop();
    }

    fn require_comment(&mut self, line: usize) {
        // Only a comment above the innermost statement counts, because a comment proves only one statement.
        let above = [Some(line), self.start_lines.last().copied()];
        if !above.into_iter().flatten().any(|line| is_proved(&self.file.text, line)) {
            let what = "`unsafe` without a `// SAFETY:` comment that proves it".to_owned();
            self.findings.push(Finding { file: self.file.path.clone(), line, rule: RULE, what });
        }
    }

    /// Searches macro arguments, which are token streams.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut unsafe_at = None;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if ident == "unsafe" => unsafe_at = Some(ident.span().start().line),
                TokenTree::Group(group) => {
                    if let (Some(line), Delimiter::Brace) = (unsafe_at.take(), group.delimiter()) {
                        self.require_comment(line);
                    }
                    self.tokens(group.stream());
                }
                _ => unsafe_at = None,
            }
        }
    }
}

impl<'ast> Visit<'ast> for UnsafeVisitor<'_> {
    fn visit_stmt(&mut self, stmt: &'ast syn::Stmt) {
        self.within(stmt.span().start().line, |this| visit::visit_stmt(this, stmt));
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.within(item.span().start().line, |this| visit::visit_item(this, item));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.within(arm.span().start().line, |this| visit::visit_arm(this, arm));
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.within(field.span().start().line, |this| visit::visit_field_value(this, field));
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.require_comment(block.unsafe_token.span.start().line);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.require_comment(token.span.start().line);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
    }
}

/// Returns true if a `SAFETY:` comment is on the line or ends on the line before it. Attributes between comment and line are
/// ignored.
fn is_proved(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    let Some((own, above)) = lines.split_last() else { return false };
    let comment = |line: &&&str| line.starts_with("//") || line.starts_with("#[");
    own.contains("// SAFETY:") || above.iter().rev().take_while(comment).any(|line| line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn lines(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(&[("crates/x/src/lib.rs", text)]), &mut Vec::new()), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_comment_above_the_block_or_its_statement_will_do() {
        for text in [
            "fn f() {\n    // SAFETY: proved.\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: proved\n    // at length.\n    let x =\n        unsafe { g() };\n}",
            "// SAFETY: proved.\n#[cfg(unix)]\nunsafe impl Send for X {}",
        ] {
            assert_eq!(lines(text), [] as [usize; 0], "{text}");
        }
    }

    #[test]
    fn a_block_without_one_is_found_also_in_what_a_macro_is_given() {
        assert_eq!(lines("fn f() {\n    unsafe { g() }\n}"), [2]);
        assert_eq!(lines("// SAFETY: of what?\nfn f() {\n    let x = 1;\n    unsafe { g() }\n}"), [4]);
        assert_eq!(lines("fn f() {\n    assert!(unsafe { g() });\n}"), [2]);
        assert_eq!(lines("struct X;\n\nunsafe impl Send for X {}"), [3]);
    }
}
