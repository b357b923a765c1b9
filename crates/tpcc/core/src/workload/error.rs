//! Error of a command. The first line of its text begins with the object that failed, and the second line names a remedy.

use std::fmt;

/// Error that stops a command.
#[derive(Debug)]
pub struct Error {
    /// True if the command line is wrong: exit status 2.
    is_usage: bool,
    message: String,
    help: Option<String>,
}

impl Error {
    /// Creates an error of the command line. `message` begins with the flag.
    pub fn usage(message: impl Into<String>) -> Error {
        Error { is_usage: true, message: message.into(), help: None }
    }

    /// Creates an error for a failure of a file, the engine or the run. `message` begins with the object that failed.
    pub fn failed(message: impl Into<String>) -> Error {
        Error { is_usage: false, message: message.into(), help: None }
    }

    /// Adds a remedy to the error.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }

    /// Returns the message without the remedy.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exit status of the command.
    pub fn status(&self) -> u8 {
        if self.is_usage { 2 } else { 1 }
    }
}

/// Formats a command on the database in the directory `data` for a help line: 'tpcc load --data d --replace'.
pub fn command(name: &str, data: &str, more: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:=@%".contains(c);
    let quoted = if !data.is_empty() && data.chars().all(is_plain) { data.to_owned() } else { format!("{data:?}") };
    let space = if more.is_empty() { "" } else { " " };
    format!("'tpcc {name} --data {quoted}{space}{more}'")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_in_a_help_line_can_be_typed() {
        assert_eq!(command("check", "/data/one", ""), "'tpcc check --data /data/one'");
        assert_eq!(command("load", "my data", "--replace"), "'tpcc load --data \"my data\" --replace'");
    }
}
