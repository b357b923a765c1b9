//! Reference of the command line of `tpcc`, generated from the definition of its flags.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use clap::{Arg, Command};

/// Path of the reference in the repository.
pub(super) const FILE: &str = "docs/COMMANDS.md";

/// Returns the reference as Markdown.
pub(super) fn draw(_root: &Path) -> io::Result<String> {
    let mut command = tpcc::fuzzing::command().disable_help_subcommand(true);
    command.build();
    let commands: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    let mut page = "# Commands of `tpcc`\n\nMade by `cargo xtask picture` from the definitions behind `--help`. \
        Examples by purpose: the [README](../README.md).\n\n| command | |\n| --- | --- |\n"
        .to_owned();
    for sub in &commands {
        let name = sub.get_name();
        let _ = writeln!(page, "| [`tpcc {name}`](#tpcc-{name}) | {} |", escaped(&about(sub)));
    }
    commands.iter().for_each(|sub| section(&mut page, sub));
    Ok(page)
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Appends the section of one command: its purpose, a table of its flags for each heading, its closing text.
fn section(page: &mut String, command: &Command) {
    let _ = write!(page, "\n## `tpcc {}`\n\n{}.\n", command.get_name(), about(command));
    let arguments: Vec<&Arg> =
        command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help").collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in arguments.iter().map(|arg| arg.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let _ = write!(page, "\n| {} | default | |\n| --- | --- | --- |\n", heading.unwrap_or("Arguments"));
        for argument in arguments.iter().filter(|arg| arg.get_help_heading() == heading) {
            row(page, argument);
        }
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = write!(page, "\n```text\n{}\n```\n", after.to_string().trim_end());
    }
}

/// Appends the table row of one flag.
fn row(page: &mut String, argument: &Arg) {
    let values = argument.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>"));
    let values =
        if argument.get_action().takes_values() { values.collect::<Vec<_>>().join(" ") } else { String::new() };
    let name = match argument.get_long() {
        Some(long) => format!("--{long} {values}"),
        None => values,
    };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let (help, named) = without_default(&help);
    let default = match argument.get_default_values() {
        [] => named,
        _ if argument.is_hide_default_value_set() => named,
        defaults => defaults.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(","),
    };
    let possible: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| argument.get_action().takes_values() && !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let possible = match argument.is_hide_possible_values_set() || possible.is_empty() {
        true => String::new(),
        false => format!(" One of {}.", possible.join(", ")),
    };
    let _ = writeln!(page, "| `{}` | {} | {}{possible} |", escaped(name.trim()), escaped(&default), escaped(&help));
}

/// Splits a help text into the text without its default value, and the default value.
fn without_default(help: &str) -> (String, String) {
    let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
    match flat.split_once("[default: ").and_then(|(before, rest)| Some((before, rest.split_once(']')?))) {
        Some((before, (default, after))) => {
            let text = [before.trim_end(), after.trim_start()].into_iter().filter(|part| !part.is_empty());
            (text.collect::<Vec<_>>().join(". "), default.to_owned())
        }
        None => (flat, String::new()),
    }
}

/// Escapes a text for a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_that_the_text_names_gets_a_cell_of_its_own() {
        let split = |text| without_default(text);
        assert_eq!(split("Seconds [default: 10]"), ("Seconds".into(), "10".into()));
        assert_eq!(split("Seconds\n[default: 10]\n\nMore."), ("Seconds. More.".into(), "10".into()));
        assert_eq!(split("Seconds"), ("Seconds".into(), String::new()));
    }

    #[test]
    fn each_command_has_a_section() {
        let page = draw(Path::new("")).unwrap();
        for sub in tpcc::fuzzing::command().get_subcommands() {
            assert!(page.contains(&format!("\n## `tpcc {}`\n", sub.get_name())), "{}", sub.get_name());
        }
        assert!(page.contains("| `--durability <sync\\|async>` | sync |"), "{page}");
    }
}
