//! Runs this program under Callgrind and splits what it counted among components.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use addr2line::Loader;

use super::attribution::{Places, Split, split};
use super::component::{COMPONENTS, Component};
use crate::lab::reproduce::child;
use crate::workload::error::Error;

/// Where the instructions of a program were written.
pub(super) struct LineTables {
    loader: Loader,
    object: String,
    known: HashMap<u64, Option<Component>>,
}

impl LineTables {
    /// Reads the program's line tables.
    pub(super) fn open(program: &Path) -> Result<LineTables, Error> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Error::failed(format!("{}: its line tables cannot be read: {why}", program.display()))
        };
        let loader = Loader::new(program).map_err(|error| unreadable(&error))?;
        let whole = program.canonicalize().map_err(|error| unreadable(&error))?;
        Ok(LineTables { loader, object: whole.display().to_string(), known: HashMap::new() })
    }
}

impl Places for LineTables {
    fn component(&mut self, object: &str, address: u64) -> Option<Component> {
        if object != self.object {
            return None;
        }
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let mut found = None;
        if let Ok(mut frames) = self.loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                found = frame.location.and_then(|location| Component::of(location.file?));
                if found.is_some() {
                    break;
                }
            }
        }
        self.known.insert(address, found);
        found
    }
}

/// Instructions by component, and all.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitCount {
    pub(super) split: Split,
    pub(super) total: f64,
}

impl SplitCount {
    /// Of one of `units` by which `longer` did more.
    pub(super) fn to(&self, longer: &SplitCount, units: f64) -> SplitCount {
        let mut split = [0.0; COMPONENTS];
        for (each, (short, long)) in split.iter_mut().zip(self.split.iter().zip(longer.split)) {
            *each = (long - short) / units;
        }
        SplitCount { split, total: (longer.total - self.total) / units }
    }
}

/// Counts one run.
pub(super) fn count(
    program: &Path,
    args: &[String],
    places: &mut LineTables,
    scratch: &Path,
) -> Result<SplitCount, Error> {
    let file = scratch.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-instr=yes", "--dump-line=no", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(args);
    let ended = child::run(&mut command, scratch)?;
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    match split(&text, places) {
        Some((split, total)) if ended.status.success() => Ok(SplitCount { split, total }),
        _ => Err(Error::failed(format!("callgrind: tpcc {}: {}", args.join(" "), ended.last_words()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::reproduce::cachegrind;

    /// The program that is counted is this one, running a test that uses no engine.
    #[test]
    fn instructions_of_a_real_binary_find_their_component() {
        if let Some(why) = cachegrind::unavailable() {
            eprintln!("not run: {why}");
            return;
        }
        let program = std::env::current_exe().unwrap();
        let test = "lab::reproduce::looking_glass::component::tests::files_belong_to_components";
        let scratch = std::env::temp_dir().join(format!("tpcc-callgrind-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        let mut tables = LineTables::open(&program).unwrap();
        let counted = count(&program, &["--exact".to_owned(), test.to_owned()], &mut tables, &scratch).unwrap();
        std::fs::remove_dir_all(&scratch).unwrap();
        let of = |component: Component| counted.split[component as usize];
        assert!(of(Component::Workload) > 1_000.0 && of(Component::Workload) < counted.total, "{counted:?}");
        assert_eq!((of(Component::Locks), of(Component::Pool)), (0.0, 0.0), "no engine ran");
    }

    #[test]
    fn what_both_runs_did_cancels() {
        let counted = |each: f64, total: f64| SplitCount { split: [each; COMPONENTS], total };
        let one = counted(100.0, 1_000.0).to(&counted(300.0, 4_000.0), 10.0);
        assert_eq!((one.split, one.total), ([20.0; COMPONENTS], 300.0));
    }
}
