//! Runs programs for an experiment, to their end or to Ctrl-C.

use std::fs::File;
use std::io::Seek;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::reading::{MAX_OUTPUT_BYTES, read_within};
use tpcc_core::workload::words::in_mib;

/// Interval at which a running program is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time from the termination signal until the program is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a program that has ended.
#[derive(Debug)]
pub struct ChildOutput {
    /// Exit status of the program.
    pub status: ExitStatus,
    /// Output of the program on stdout.
    pub stdout: String,
    /// Output of the program on stderr.
    pub stderr: String,
}

impl ChildOutput {
    /// Returns the last lines of the output, for an error message.
    pub fn last_lines(&self) -> String {
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }
}

/// Runs a program to its end. On Ctrl-C the program is terminated, and the error reports the interruption. The output of the
/// program is in files in `scratch` while the program runs.
pub fn run(command: &mut Command, scratch: &Path) -> Result<ChildOutput, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| Error::failed(format!("{name}: cannot be run: {e}"));
    let file = || {
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = scratch.join(format!("output-{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        // The open file stays usable without its name.
        std::fs::remove_file(&path)?;
        Ok::<File, std::io::Error>(file)
    };
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let (mut stdout, mut stderr) = (file().map_err(failed)?, file().map_err(failed)?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().map_err(failed)?)
        .stderr(stderr.try_clone().map_err(failed)?)
        // The child has its own process group, so that Ctrl-C on the terminal reaches only its parent. The child then gets
        // one signal, which no shell has set to be ignored.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut signalled = None;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if interrupt::requested() {
            let since = *signalled.get_or_insert_with(|| {
                let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
                Instant::now()
            });
            if since.elapsed() > KILL_TIMEOUT {
                let _ = child.kill();
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    if interrupt::requested() {
        return Err(interrupted());
    }
    let text = |file: &mut File| {
        file.rewind()?;
        let bytes = read_within(file, MAX_OUTPUT_BYTES)?;
        let bytes =
            bytes.ok_or_else(|| std::io::Error::other(format!("it printed more than {}", in_mib(MAX_OUTPUT_BYTES))))?;
        Ok::<String, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(ChildOutput { status, stdout: text(&mut stdout).map_err(failed)?, stderr: text(&mut stderr).map_err(failed)? })
}

/// Returns the error of an experiment that the user has interrupted.
pub fn interrupted() -> Error {
    Error::failed("interrupted; nothing was written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_kept() {
        let ended =
            run(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"]), &std::env::temp_dir()).unwrap();
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str(), ended.status.code()), ("one\n", "two\n", Some(3)));
        assert_eq!(ended.last_lines(), "two");
        let error = run(&mut Command::new("no-such-program-anywhere"), &std::env::temp_dir()).unwrap_err();
        assert!(error.to_string().contains("no-such-program-anywhere"), "{error}");
    }
}
