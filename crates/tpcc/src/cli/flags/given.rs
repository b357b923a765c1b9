//! Flags that the command line contains, as opposed to flags with their default values.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::{AccessFlags, DirectoryFlag, ResourceFlags};

/// Names of the flags that the command line contains. It must be the first field of a command's flags, because the fields
/// after it take their values out of the matches.
#[derive(Debug)]
pub(crate) struct GivenFlags(Vec<String>);

impl GivenFlags {
    /// Returns the first flag of group `G` that the command line contains, with its dashes.
    pub(crate) fn first_of<G: Args>(&self) -> Option<String> {
        let group = G::augment_args(Command::new(""));
        let given = group.get_arguments().find(|flag| self.0.iter().any(|given| given == flag.get_id().as_str()))?;
        given.get_long().map(|name| format!("--{name}"))
    }

    /// Returns the first flag of the storage engine that the command line contains and that no other engine has.
    pub(crate) fn first_of_storage(&self) -> Option<String> {
        self.first_of::<DirectoryFlag>()
            .or_else(|| self.first_of::<ResourceFlags>())
            .or_else(|| self.first_of::<AccessFlags>())
    }
}

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenFlags, clap::Error> {
        let names = matches.ids().map(|id| id.as_str());
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        Ok(GivenFlags(given.map(str::to_owned).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = GivenFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for GivenFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::flags::{AccessFlags, Cli, Command, DirectoryFlag, LatchFlags, TransactionFlags};

    #[test]
    fn a_flag_is_given_if_the_command_line_contains_it() {
        let words = ["tpcc", "run", "--latches", "plain", "--durability", "sync"];
        let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else { panic!("not run") };
        assert_eq!(run.given.first_of::<AccessFlags>().as_deref(), Some("--latches"), "a group in a group");
        assert_eq!(run.given.first_of::<LatchFlags>().as_deref(), Some("--latches"));
        assert_eq!(run.given.first_of::<TransactionFlags>().as_deref(), Some("--durability"), "also its default");
        assert_eq!(run.given.first_of::<DirectoryFlag>(), None);
    }
}
