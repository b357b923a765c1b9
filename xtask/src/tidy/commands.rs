//! Rule: the command line accepts the commands in documents and help texts, with their flags and values.

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use pulldown_cmark::{Event, Tag, TagEnd};

use super::Finding;
use super::links::{line_of, parse};
use super::tree::Tree;
use crate::Cli;

pub(super) const RULE: &str = "command";

/// Beginnings of commands, each with the program that parses the rest of the command.
const PREFIXES: [(&str, Program); 4] = [
    ("cargo run --release -p tpcc -- ", Program::Tpcc),
    ("target/release/tpcc ", Program::Tpcc),
    ("tpcc ", Program::Tpcc),
    ("cargo xtask ", Program::Xtask),
];

#[derive(Debug, Clone, Copy)]
enum Program {
    Tpcc,
    Xtask,
}

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut fail = |file: &str, line: usize, what: String| {
        findings.push(Finding { file: file.to_owned(), line, rule: RULE, what });
    };
    for (path, text) in tree.ending(".md") {
        // The changelog may name commands that no longer exist.
        if path.ends_with("CHANGELOG.md") {
            continue;
        }
        let mut block = false;
        for (event, at) in parse(text) {
            match event {
                Event::Start(Tag::CodeBlock(_)) => block = true,
                Event::End(TagEnd::CodeBlock) => block = false,
                Event::Text(code) if block => {
                    let first = line_of(text, at.start);
                    for (i, line) in code.lines().enumerate() {
                        let command = line.trim_start_matches("$ ").split("  #").next().unwrap_or(line);
                        if let Some(why) = refusal(command) {
                            fail(path, first + i, why);
                        }
                    }
                }
                Event::Code(code) => {
                    if let Some(why) = refusal(&code) {
                        fail(path, line_of(text, at.start), why);
                    }
                }
                _ => {}
            }
        }
    }
    for (what, help) in helps() {
        for command in help.split('`').skip(1).step_by(2).chain(help.lines().map(str::trim)) {
            if let Some(why) = refusal(command) {
                fail(what, 1, format!("in the help: {why}"));
            }
        }
    }
}

/// Returns the error message for a command of this workspace that the command line does not accept.
fn refusal(text: &str) -> Option<String> {
    let (begin, program) = PREFIXES.iter().find(|(begin, _)| text.starts_with(begin))?;
    let rest = &text[begin.len()..];
    // Usage lines with placeholders, and shell code that uses the output, are not checked.
    if rest.contains(['[', '<', '{', '*']) || rest.contains("...") || text.contains("->") {
        return None;
    }
    let rest = rest.split(['|', '>', '&', ';']).next().unwrap_or(rest);
    let words = shlex::split(rest)?;
    // Prose about `tpcc` in code format does not begin with the name of a command.
    let first = words.first()?;
    if !first.starts_with('-')
        && !is_subcommand(*program, first)
        && text.split(' ').count() > 1
        && !is_command_line(text)
    {
        return None;
    }
    let error = command(*program)
        .try_get_matches_from(std::iter::once("command").chain(words.iter().map(String::as_str)))
        .err()?;
    // The name of a command alone is a reference to the command, so missing arguments are no error.
    let named = matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand);
    if named || matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return None;
    }
    // Words in capitals are placeholders for values.
    let is_placeholder = |word: &String| word.chars().all(|c| c.is_ascii_uppercase());
    if error.kind() == ErrorKind::InvalidValue && words.iter().any(is_placeholder) {
        return None;
    }
    let error = error.to_string();
    let first = error.lines().next().unwrap_or_default();
    Some(format!("`{text}` is refused: {first}"))
}

fn is_command_line(text: &str) -> bool {
    text.starts_with("cargo") || text.starts_with("target/") || text.contains(" --")
}

fn is_subcommand(program: Program, word: &str) -> bool {
    command(program).get_subcommands().any(|sub| sub.get_name() == word)
}

fn command(program: Program) -> Command {
    match program {
        Program::Tpcc => tpcc::fuzzing::command(),
        Program::Xtask => Cli::command(),
    }
}

/// Returns the long help texts of all commands of both programs.
fn helps() -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for (file, command) in [("crates/tpcc/src/lib.rs", Program::Tpcc), ("xtask/src/main.rs", Program::Xtask)] {
        let mut open = vec![self::command(command)];
        while let Some(mut command) = open.pop() {
            all.push((file, command.render_long_help().to_string()));
            open.extend(command.get_subcommands().cloned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(readme: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Tree::of(&[("README.md", readme)]), &mut findings);
        findings.into_iter().filter(|finding| finding.file == "README.md").map(|finding| finding.line).collect()
    }

    #[test]
    fn what_can_be_typed_passes() {
        let readme = "`tpcc run --scheduler steps`, `cargo xtask torture crash --budget 9`, `tpcc footprint`, `tpcc`\n\
                      ```\ncargo run --release -p tpcc -- run\n```\n";
        assert_eq!(lines(readme), [] as [usize; 0]);
    }

    #[test]
    fn what_is_refused_is_found() {
        assert_eq!(lines("\n`tpcc run --no-such-flag`"), [2]);
        assert_eq!(lines("```\ncargo xtask torture nothing\n```"), [2]);
        assert_eq!(lines("`cargo run --release -p tpcc -- walk`"), [1]);
    }
}
