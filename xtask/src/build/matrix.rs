//! `cargo xtask ablate-build`: `tpcc` built in every way that the compiler paper turns on and off, and what each is worth.
//!
//! The builds are kept in `target/ablate` with a list of them, which `tpcc reproduce compiler` reads. A build is made again
//! only when the sources or the compiler are others than those that it was made from.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tpcc::builds::{self, Build, BuildFigures, Comparison, Listed, Matrix};

use super::pgo::{plain, training, version};
use super::profile::{MergedProfile, key, make};
use super::tools::Compiler;
use super::variant::{Engine, Variant};
use super::{BuildError, say, target};

/// The flags of `cargo xtask ablate-build`.
#[derive(Debug, Args)]
pub(crate) struct AblateFlags {
    /// Builds only: `tpcc reproduce compiler` measures
    #[arg(long)]
    build_only: bool,
    /// Only builds with this in their name, and the one that they are held against
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Rounds of each timing, each of which runs every build once; none is timed with 0
    #[arg(long, default_value_t = 7, value_name = "N")]
    rounds: usize,
    /// Writes the table to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Whether a build uses a profile of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    On,
    Off,
}

/// A build of the matrix.
struct Row {
    name: &'static str,
    feedback: Feedback,
    /// Code of functions that run is put together; they are told apart by the profile.
    grouping: bool,
    flags: &'static [&'static str],
    program_flags: &'static [&'static str],
    profile: &'static [(&'static str, &'static str)],
    features: &'static [&'static str],
    engine: Engine,
    /// Flags of the run.
    run: &'static str,
}

/// Everything on: what the other rows take from.
const ALL: Row = Row {
    name: builds::ALL,
    feedback: Feedback::On,
    grouping: true,
    flags: &[],
    program_flags: &["-Crelocation-model=static"],
    profile: &[],
    features: &[],
    engine: Engine::InProgram,
    run: "",
};

/// No link-time optimisation, and crates built in parts: calls between crates stay calls.
const APART: &[(&str, &str)] = &[("LTO", "off"), ("CODEGEN_UNITS", "16")];

/// The linker puts sections together by their prefixes.
const KEEP_SECTIONS: &str = "-Clink-arg=-Wl,-z,keep-text-section-prefix";

/// The builds, in the order of the table.
const ROWS: &[Row] = &[
    ALL,
    Row { name: "no feedback", feedback: Feedback::Off, grouping: false, ..ALL },
    Row { name: builds::FEEDBACK, grouping: false, ..ALL },
    Row { name: "splitting", flags: &["-Cllvm-args=-enable-split-machine-functions"], ..ALL },
    Row { name: builds::APART, profile: APART, ..ALL },
    Row { name: builds::SHARED, profile: APART, program_flags: &[], engine: Engine::Shared, ..ALL },
    Row { name: "thin inlining across crates", profile: &[("LTO", "thin"), ("CODEGEN_UNITS", "16")], ..ALL },
    Row { name: "position independent", program_flags: &[], ..ALL },
    Row { name: "callee's registers saved", features: &["save-callee"], run: "--scheduler steps", ..ALL },
    Row { name: "floating-point state saved", features: &["save-float"], run: "--scheduler steps", ..ALL },
    Row { name: builds::ALL_STEPS, run: "--scheduler steps", ..ALL },
    Row { name: "sequentially consistent", features: &["seqcst"], ..ALL },
    Row { name: "no prefetch", run: "--prefetch off", ..ALL },
    Row { name: "panic aborts", profile: &[("PANIC", "abort")], ..ALL },
    Row { name: "this processor", flags: &["-Ctarget-cpu=native"], ..ALL },
    Row {
        name: builds::ONLY_FEEDBACK,
        grouping: false,
        program_flags: &[],
        profile: APART,
        features: &["seqcst"],
        run: "--prefetch off",
        ..ALL
    },
    Row {
        name: builds::NOTHING,
        feedback: Feedback::Off,
        grouping: false,
        program_flags: &[],
        profile: APART,
        features: &["seqcst"],
        run: "--prefetch off",
        ..ALL
    },
];

/// Carries the command out.
pub(crate) fn run(flags: &AblateFlags) -> ExitCode {
    match ablate(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ablate(flags: &AblateFlags) -> Result<(), BuildError> {
    let matrix = build(flags.only.as_deref())?;
    if flags.build_only {
        return Ok(());
    }
    let how = Comparison { warehouses: 1, workers: 1, flags: "", rounds: flags.rounds, seconds: 3, counted: true };
    let builds: Vec<Build> = matrix.builds.iter().map(Listed::build).collect();
    let data = directory().join("data");
    let measured = builds::compare(&builds, how, Some(&data)).map_err(BuildError::new)?;
    say(&table(&measured));
    let Some(json) = &flags.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&measured).map_err(|e| BuildError::new(e.to_string()))?;
    std::fs::write(json, text + "\n").map_err(|e| BuildError::new(format!("{}: {e}", json.display())))
}

fn directory() -> PathBuf {
    target("ablate")
}

/// Builds what is not there yet of the rows wanted, and lists them.
fn build(only: Option<&str>) -> Result<Matrix, BuildError> {
    let compiler = Compiler::here()?;
    let directory = directory();
    make(&directory)?;
    let list = directory.join(builds::LIST);
    let key = key(&compiler, &training(&[]), "")?;
    let mut matrix = Matrix::read(&list).ok().filter(|matrix| matrix.key == key).unwrap_or_default();
    matrix.key = key;
    // The plain release stands beside the rows, because it is what users have.
    if matrix.program(builds::PLAIN).is_none() {
        let program = plain()?;
        matrix.add(listed(builds::PLAIN, &program, ""));
        write(&matrix, &list)?;
    }
    let wanted = |row: &&Row| only.is_none_or(|only| row.name == builds::ALL || row.name.contains(only));
    for row in ROWS.iter().filter(wanted) {
        let same = ROWS.iter().find(|other| other.builds_as(row) && matrix.program(other.name).is_some());
        let program = match same.and_then(|other| matrix.program(other.name)) {
            Some(program) => program.to_owned(),
            None => row.build(&compiler, &directory)?,
        };
        matrix.add(listed(row.name, &program, row.run));
        write(&matrix, &list)?;
    }
    Ok(matrix)
}

fn listed(name: &str, program: &Path, flags: &str) -> Listed {
    Listed { name: name.into(), program: program.into(), flags: flags.into(), version: version(program) }
}

fn write(matrix: &Matrix, list: &Path) -> Result<(), BuildError> {
    matrix.write(list).map_err(|e| BuildError::new(format!("{}: {e}", list.display())))
}

impl Row {
    /// Whether the other's program is this one's, too: they differ in how they are run.
    fn builds_as(&self, other: &Row) -> bool {
        self.feedback == other.feedback
            && self.grouping == other.grouping
            && self.flags == other.flags
            && self.program_flags == other.program_flags
            && self.profile == other.profile
            && self.features == other.features
            && self.engine == other.engine
    }

    fn variant(&self) -> Variant {
        let mut flags: Vec<String> = self.flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut program_flags: Vec<String> = self.program_flags.iter().map(|flag| (*flag).to_owned()).collect();
        if self.feedback == Feedback::On {
            match self.grouping {
                // The compiler names sections by how often functions run; the linker keeps those of a name together.
                // Flags of all crates reach the shared object, which is linked by itself.
                true => match self.engine {
                    Engine::InProgram => program_flags.push(KEEP_SECTIONS.into()),
                    Engine::Shared => flags.push(KEEP_SECTIONS.into()),
                },
                false => flags.push("-Cllvm-args=-profile-guided-section-prefix=false".into()),
            }
        }
        Variant {
            name: self.name.replace([' ', '\''], "-"),
            built_with: format!("{} of the ablation of builds", self.name),
            flags,
            program_flags,
            profile: self.profile.to_vec(),
            features: self.features.to_vec(),
            engine: self.engine,
        }
    }

    fn build(&self, compiler: &Compiler, directory: &Path) -> Result<PathBuf, BuildError> {
        let mut variant = self.variant();
        if self.feedback == Feedback::On {
            let profile = MergedProfile::of(&variant, compiler, &training(&[]))?;
            variant.flags.extend(profile.flags());
            variant.built_with += ", profile feedback";
        }
        Ok(variant.build(compiler, directory)?.program)
    }
}

/// The table for a terminal.
fn table(measured: &[BuildFigures]) -> String {
    let mut text = format!(
        "{:<30} {:>12} {:>9} {:>9} {:>9}  {}\n",
        "a transaction of the mix", "instructions", "I1", "D1", "mispred.", "throughput by the plain release's"
    );
    for row in measured {
        let count = |of: fn(&builds::PerTransaction) -> f64| {
            row.counted.as_ref().map_or("-".to_owned(), |counted| format!("{:.0}", of(counted)))
        };
        let timed = row.timed.map_or("-".to_owned(), |timed| {
            format!("{:.3} [{:.3} {:.3}]", timed.ratio, timed.ratio_low, timed.ratio_high)
        });
        text += &format!(
            "{:<30} {:>12} {:>9} {:>9} {:>9}  {timed}\n",
            row.name,
            count(|c| c.instructions),
            count(|c| c.i1_misses),
            count(|c| c.d1_misses),
            count(|c| c.mispredictions),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own_and_files_too() {
        let names: std::collections::HashSet<_> = ROWS.iter().map(|row| row.variant().name).collect();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| !row.variant().name.contains([' ', '\'', '/'])));
    }

    #[test]
    fn rows_that_differ_in_how_they_run_share_a_program() {
        let row = |name: &str| ROWS.iter().find(|row| row.name == name).unwrap();
        assert!(row("no prefetch").builds_as(&ALL) && row(builds::ALL_STEPS).builds_as(&ALL));
        assert!(!row("no grouping").builds_as(&ALL) && !row(builds::NOTHING).builds_as(row(builds::ONLY_FEEDBACK)));
    }
}
