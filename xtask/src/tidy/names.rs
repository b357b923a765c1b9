//! Rule: a type name that is visible in several files of a crate denotes only one type.

use std::collections::BTreeMap;

use super::Finding;
use super::code::Code;

pub(super) const RULE: &str = "name";

pub(super) fn check(code: &Code, findings: &mut Vec<Finding>) {
    for of in &code.crates {
        let mut first: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
        for module in of.modules.values() {
            for (name, line) in &module.types {
                if let Some((file, at)) = first.get(name.as_str()) {
                    let what = format!("{name} is also the name of a type at {file}:{at}");
                    findings.push(Finding { file: module.file.clone(), line: *line, rule: RULE, what });
                } else {
                    first.insert(name, (&module.file, *line));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn findings(other: &str) -> usize {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b;"),
            ("crates/x/src/a.rs", "pub(crate) struct Place;"),
            ("crates/x/src/b.rs", other),
        ];
        let mut findings = Vec::new();
        check(&Code::parse(&Tree::of(&files), &mut Vec::new()), &mut findings);
        findings.len()
    }

    #[test]
    fn a_second_type_of_a_name_is_found() {
        assert_eq!(findings("pub enum Place {}"), 1);
        assert_eq!(findings("pub type Place = u8;"), 1);
    }

    #[test]
    fn private_types_and_those_of_tests_have_their_names_to_themselves() {
        assert_eq!(findings("struct Place;"), 0);
        assert_eq!(findings("#[cfg(test)] mod tests { pub struct Place; }"), 0);
    }
}
