//! Errors of the command line: a message that begins with the flag, and a help line that names the remedy.

use std::error::Error as _;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::flags::Cli;
use super::values::{ValueError, without_password};
use tpcc_core::workload::error::Error;

/// Converts a parser error about the words of `command` into a usage error in the format of this program.
pub(crate) fn usage_error(error: &clap::Error, command: &str) -> Error {
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    // The flag without its placeholder: "--mix" of "--mix <MIX>".
    let flag = text(ContextKind::InvalidArg).map(|arg| arg.split([' ', '=']).next().unwrap_or_default().to_owned());
    let value = text(ContextKind::InvalidValue);
    let choices = text(ContextKind::ValidValue);
    // If no command is known, the help line names the help of the whole program.
    let all = commands();
    let own = if all.iter().any(|name| name == command) { format!("tpcc {command}") } else { "tpcc".to_owned() };
    match (error.kind(), flag, value) {
        (ErrorKind::InvalidValue, Some(flag), Some(value)) if value.is_empty() => {
            Error::usage(format!("{flag}: needs a value")).help(one_of(choices, &flag, &own))
        }
        (ErrorKind::InvalidValue, Some(flag), Some(value)) => {
            Error::usage(format!("{flag} {value}: not one of its values")).help(one_of(choices, &flag, &own))
        }
        (ErrorKind::ValueValidation, Some(flag), Some(value)) => {
            let Some(value_error) = error.source().and_then(|source| source.downcast_ref::<ValueError>()) else {
                return Error::usage(format!("{flag} {value}: not a number in its range"))
                    .help(format!("'{own} --help' gives the units"));
            };
            let help = value_error.help.map_or_else(|| format!("'{own} --help' explains {flag}"), str::to_owned);
            Error::usage(format!("{flag}{}", value_error.message)).help(help)
        }
        (ErrorKind::UnknownArgument, Some(word), _) if !word.starts_with('-') => {
            Error::usage(format!("{}: a word too many", without_password(&word)))
                .help(format!("'tpcc {command} -h' shows how to call it"))
        }
        (ErrorKind::UnknownArgument, Some(flag), _) => {
            Error::usage(format!("{flag}: no such flag")).help(match text(ContextKind::SuggestedArg) {
                Some(other) => format!("did you mean {other}?"),
                None => format!("'{own} -h' lists the flags"),
            })
        }
        (ErrorKind::MissingRequiredArgument, ..) => {
            let flag = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(flags)) => flags.first().cloned().unwrap_or_default(),
                _ => String::new(),
            };
            Error::usage(format!("{flag}: missing")).help(format!("'tpcc {command} -h' shows how to call it"))
        }
        (ErrorKind::ArgumentConflict, Some(flag), _) => {
            Error::usage(format!("{flag}: given twice")).help("pass it once")
        }
        (ErrorKind::InvalidSubcommand, ..) => {
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            Error::usage(format!("{name}: no such command")).help(format!("one of {}", all.join(", ")))
        }
        (ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ..) => {
            Error::usage("no command given")
                .help(format!("one of {}; 'tpcc run' loads and runs one warehouse", all.join(", ")))
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Error::usage(line).help("'tpcc -h' shows how to call it")
        }
    }
}

/// Returns the names of all commands, in the order of their declaration.
fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

fn one_of(choices: Option<String>, flag: &str, own: &str) -> String {
    match choices {
        Some(choices) if !choices.is_empty() => format!("one of {choices}"),
        _ => format!("'{own} --help' explains {flag}"),
    }
}
