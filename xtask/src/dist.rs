//! Generates the files of a `tpcc` package beside the program (man pages, completions) from the definition of its command
//! line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Flags of `cargo xtask dist`.
#[derive(Debug, Args)]
pub(crate) struct DistFlags {
    /// Directory to write to; created if missing.
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(flags: &DistFlags) -> ExitCode {
    match write(&flags.out) {
        Ok(files) => {
            println!("{}: {files} files", flags.out.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}: {error}", flags.out.display());
            ExitCode::FAILURE
        }
    }
}

/// Writes a man page per command to `man` and completions per shell to `completions`; returns the number of files.
fn write(out: &Path) -> io::Result<usize> {
    let (pages, completions) = (out.join("man"), out.join("completions"));
    std::fs::create_dir_all(&pages)?;
    std::fs::create_dir_all(&completions)?;
    let command = tpcc::fuzzing::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command.clone(), &pages)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command.clone(), "tpcc", &completions)?;
    }
    Ok(std::fs::read_dir(&pages)?.count() + std::fs::read_dir(&completions)?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let out = std::env::temp_dir().join(format!("lockstep-dist-{}", std::process::id()));
        let files = write(&out).unwrap();
        let commands: Vec<String> = tpcc::fuzzing::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .map(|c| c.get_name().into())
            .collect();
        assert!(commands.len() > 5 && files >= commands.len() + 1 + Shell::value_variants().len());
        for command in &commands {
            let page = std::fs::read_to_string(out.join(format!("man/tpcc-{command}.1"))).unwrap();
            assert!(page.contains(".TH"), "{command}");
        }
        let page = std::fs::read_to_string(out.join("man/tpcc-run.1")).unwrap();
        assert!(page.contains("durability"), "flags are in the page");
        let bash = std::fs::read_to_string(out.join("completions/tpcc.bash")).unwrap();
        assert!(bash.contains("--durability") && bash.contains("reproduce"));
        std::fs::remove_dir_all(&out).unwrap();
    }
}
