//! Test counts of a cargo run, parsed from its output.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::thread;

use parking_lot::Mutex;

use crate::parallel::in_parallel;

/// Test counts of one or more cargo runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// Number of failed cargo runs, including runs that a tool ended in the middle of a test.
    pub(super) failed_runs: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failed_runs += other.failed_runs;
    }
}

impl Tally {
    /// Adds the counts in a line of the test harness: `test result: ok. 3 passed; 0 failed; ...`.
    fn count(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        let number = |what: &str| {
            let part = counts.split(';').find_map(|part| part.trim().strip_suffix(what));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
    }

    /// Runs a command, prints its output, and counts its tests.
    pub(super) fn of(command: &mut Command) -> Result<Tally, String> {
        Tally::read(command).map_err(|e| format!("{}: {e}", command.get_program().display()))
    }

    /// Runs commands, as many at once as there are cores, prints their output line by line, and counts their tests.
    pub(super) fn of_all(commands: Vec<Command>) -> Result<Tally, String> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let commands: Vec<_> = commands.into_iter().map(Mutex::new).collect();
        let mut tally = Tally::default();
        for one in in_parallel(cores, &commands, |command| Tally::of(&mut command.lock())) {
            tally += one?;
        }
        Ok(tally)
    }

    fn read(command: &mut Command) -> std::io::Result<Tally> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut tally = Tally::default();
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 {
                let text = String::from_utf8_lossy(&line);
                print!("{text}");
                tally.count(text.trim_end());
                line.clear();
            }
        }
        tally.failed_runs = u64::from(!child.wait()?.success());
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_harness_are_counted() {
        let mut tally = Tally::default();
        for line in [
            "running 2 tests",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.16s",
            "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 60.99s",
        ] {
            tally.count(line);
        }
        assert_eq!(tally, Tally { passed: 16, failed: 1, failed_runs: 0 });
    }

    #[test]
    fn commands_that_run_at_once_are_all_counted() {
        let command = |script: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", script]);
            sh
        };
        let passed = || command("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'");
        let tally = Tally::of_all(vec![passed(), command("exit 1"), passed(), passed()]);
        assert_eq!(tally, Ok(Tally { passed: 6, failed: 0, failed_runs: 1 }));
        assert!(Tally::of_all(vec![passed(), Command::new("/nothing/there")]).is_err());
    }

    #[test]
    fn a_command_that_fails_is_a_failed_run() {
        let ran = |script: &str| Tally::of(Command::new("sh").args(["-c", script])).unwrap();
        let passed = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        assert_eq!(ran(passed), Tally { passed: 1, failed: 0, failed_runs: 0 });
        assert_eq!(ran(&format!("{passed}; exit 1")), Tally { passed: 1, failed: 0, failed_runs: 1 });
    }
}
