//! Result tables of long runs in `crates/storage/campaigns`: one line for each run of a campaign or checker.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

/// Column names of a table.
const COLUMNS: &str = "date,state,flags,seed,tried,failures,seconds,remark";

/// Flag to record the run in a table.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RecordFlag {
    /// Appends a line about the run to its table in this directory, for example crates/storage/campaigns.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
}

impl RecordFlag {
    /// If the flag is given, appends the run's line to `table`. Returns false, and prints the reason, if that fails.
    pub(crate) fn append(&self, table: &str, run: &RunRecord) -> bool {
        let Some(directory) = &self.record else { return true };
        append(directory, table, &run.line()).inspect_err(|what| eprintln!("--record: {what}")).is_ok()
    }
}

/// Result of a run, for its line of the table. The date and the commit of the sources are added to the line.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunRecord {
    /// Flags of the run's command line, except budget and seed.
    pub(crate) flags: String,
    /// Seed of the run, if it has one.
    pub(crate) seed: Option<u64>,
    /// Number of cases, tests or inputs that were run.
    pub(crate) tried: u64,
    pub(crate) failures: u64,
    pub(crate) elapsed: Duration,
    pub(crate) remark: String,
}

impl RunRecord {
    fn line(&self) -> String {
        let seed = self.seed.map(|seed| seed.to_string()).unwrap_or_default();
        format!(
            "{},{},{},{seed},{},{},{:.0},{}",
            output_of("date", &["-u", "+%F"]),
            output_of("git", &["describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]),
            self.flags,
            self.tried,
            self.failures,
            self.elapsed.as_secs_f64(),
            self.remark,
        )
    }
}

/// Returns the output of a program without surrounding white space; an empty string if the program fails.
fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Appends a line to a table. Creates the table with its column names if it does not exist.
fn append(directory: &Path, table: &str, line: &str) -> Result<(), String> {
    let path = directory.join(format!("{table}.csv"));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
    let head = if file.metadata().map_err(failed)?.len() == 0 { format!("{COLUMNS}\n") } else { String::new() };
    file.write_all(format!("{head}{line}\n").as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_cell_for_each_column() {
        let directory = std::env::temp_dir().join(format!("lockstep-record-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let flags = "--scheduler steps".into();
        let run = RunRecord { flags, seed: Some(1), tried: 3, elapsed: Duration::from_secs(2), ..RunRecord::default() };
        append(&directory, "crash", &run.line()).unwrap();
        append(&directory, "crash", &RunRecord::default().line()).unwrap();
        let text = std::fs::read_to_string(directory.join("crash.csv")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let cells = |line: &str| line.split(',').count();
        assert_eq!(text.lines().map(cells).collect::<Vec<_>>(), [cells(COLUMNS); 3], "{text}");
        assert!(text.contains(",--scheduler steps,1,3,0,2,\n") && text.ends_with(",,,0,0,0,\n"), "{text}");
    }
}
