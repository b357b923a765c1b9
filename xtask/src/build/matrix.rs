//! `cargo xtask ablate-build`: builds `tpcc` with each option of the compiler paper on and off, and measures the effect of
//! each option.
//!
//! The builds are kept in `target/ablate` together with a list of them, which `tpcc reproduce compiler` reads. A build is
//! repeated only if the sources or the compiler have changed. The programs contain only the commands that run transactions,
//! because this halves the build time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde::Serialize;
use tpcc_lab::reproduce::builds::{self, Build, BuildEntry, BuildFigures, Comparison, Matrix, Timing};

use super::directories::{BuildDirectories, wrapper};
use super::files::{copy, create_directory, remove_directory};
use super::lanes::{Task, lock, run_all};
use super::layout::{self, Layout, lay_out};
use super::pgo::{build_plain, training, version};
use super::profile::{MergedProfile, commit, key};
use super::tools::Compiler;
use super::variant::{BuildOutput, Commands, Engine, Variant};
use super::{BuildError, print_progress, target};

/// Flags of `cargo xtask ablate-build`.
#[derive(Debug, Args)]
pub(crate) struct AblateFlags {
    /// Makes the builds without measurements, which are left to `tpcc reproduce compiler`
    #[arg(long)]
    build_only: bool,
    /// Only builds whose name contains this, and the baseline
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Rounds of each timing, each of which runs every build once; 0 disables the timing
    #[arg(long, default_value_t = 7, value_name = "N")]
    rounds: usize,
    /// Writes the table to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Profile-guided optimisation setting of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    On,
    Off,
}

/// Settings of one build, and of its runs.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    feedback: Feedback,
    /// True if the linker groups functions by their execution frequency in the profile.
    grouping: bool,
    flags: &'static [&'static str],
    program_flags: &'static [&'static str],
    profile: &'static [(&'static str, &'static str)],
    features: &'static [&'static str],
    engine: Engine,
    /// True if BOLT, if it is installed, lays out the blocks of the linked program.
    laid_out: bool,
    /// Flags of the run of `tpcc`.
    run: &'static str,
}

/// Baseline row: all features enabled. Each other row changes some settings of this row.
const ALL: Row = Row {
    name: builds::ALL,
    feedback: Feedback::On,
    grouping: true,
    flags: &[],
    program_flags: &["-Crelocation-model=static"],
    profile: &[],
    features: &[],
    engine: Engine::InProgram,
    laid_out: false,
    run: "",
};

/// Release profile without link-time optimisation and with several codegen units per crate. Calls between crates are then
/// not inlined.
const SEPARATE_CRATES: &[(&str, &str)] = &[("LTO", "off"), ("CODEGEN_UNITS", "16")];

/// Compiler flag for lazy binding. Calls to functions of other shared objects then go through the procedure linkage table,
/// and each function is bound at its first call. Without the flag, all functions are bound at the start, and the compiler
/// calls through the global offset table.
const LAZY_BINDING: &str = "-Crelro-level=partial";

/// Release profile with several codegen units per crate, and inlining across crates. A profile of crates with one unit does
/// not match, because each unit that calls an inlined function has its own copy of the function.
const PARTS: &[(&str, &str)] = &[("CODEGEN_UNITS", "16")];

/// Compiler flag for thin link-time optimisation, which inlines across crates by summaries of functions.
const THIN: &str = "-Clto=thin";

/// Compiler flag that moves rarely executed blocks of a function to another section. The flag must apply to the link-time
/// optimisation of the whole program.
const SPLIT: &str = "-Cllvm-args=-enable-split-machine-functions";

/// Linker flag that groups text sections by the prefixes of their names.
const KEEP_SECTIONS: &str = "-Clink-arg=-Wl,-z,keep-text-section-prefix";

/// Row with the engine in a shared object. It has no profile, because functions of a shared object have other names than
/// those in the profile.
const SHARED: Row = Row { name: builds::SHARED, engine: Engine::Shared, ..BUILD_OPTIONS_OFF };

/// Row with all build options off.
const BUILD_OPTIONS_OFF: Row = Row {
    name: builds::SWITCHED_OFF,
    feedback: Feedback::Off,
    grouping: false,
    program_flags: &[],
    profile: SEPARATE_CRATES,
    ..ALL
};

/// Row with everything off that another row of the table changes.
const ALL_OFF: Row = Row { name: builds::NOTHING, features: &["seqcst"], run: "--prefetch off", ..BUILD_OPTIONS_OFF };

/// All rows, in the order of the table.
const ROWS: &[Row] = &[
    ALL,
    Row { name: "no feedback", feedback: Feedback::Off, grouping: false, ..ALL },
    Row { name: builds::FEEDBACK, grouping: false, ..ALL },
    Row { name: builds::BOLT, grouping: false, laid_out: true, ..ALL },
    Row { name: "splitting", program_flags: &[ALL.program_flags[0], SPLIT], ..ALL },
    Row { name: builds::NO_LTO, profile: SEPARATE_CRATES, ..ALL },
    SHARED,
    Row { name: builds::SHARED_LAZY, flags: &[LAZY_BINDING], ..SHARED },
    Row { name: "crates in parts, linked whole", profile: PARTS, ..ALL },
    Row { name: "thin inlining across crates", profile: PARTS, program_flags: &[ALL.program_flags[0], THIN], ..ALL },
    Row { name: "position independent", program_flags: &[], ..ALL },
    Row { name: "position independent, lazy binding", program_flags: &[], flags: &[LAZY_BINDING], ..ALL },
    Row { name: "callee's registers saved", features: &["save-callee"], run: "--scheduler steps", ..ALL },
    Row { name: "floating-point state saved", features: &["save-float"], run: "--scheduler steps", ..ALL },
    Row { name: builds::ALL_STEPS, run: "--scheduler steps", ..ALL },
    Row { name: builds::SEQUENTIALLY_CONSISTENT, features: &["seqcst"], ..ALL },
    Row { name: "no prefetch", run: "--prefetch off", ..ALL },
    Row { name: "this processor", flags: &["-Ctarget-cpu=native"], ..ALL },
    Row { name: builds::ONLY_FEEDBACK, feedback: Feedback::On, ..ALL_OFF },
    BUILD_OPTIONS_OFF,
    ALL_OFF,
];

/// Runs the command.
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
    let only = flags.only.as_deref();
    let matrix = build(only)?;
    if flags.build_only {
        return Ok(());
    }
    let compared = |build: &&BuildEntry| build.name == builds::PLAIN || is_wanted(&build.name, only);
    let builds: Vec<Build> = matrix.builds.iter().filter(compared).map(BuildEntry::build).collect();
    let measured = measure(&builds, flags.rounds)?;
    print_progress(&table(&measured));
    let Some(json) = &flags.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&measured).map_err(|e| BuildError::new(e.to_string()))?;
    std::fs::write(json, text + "\n").map_err(|e| BuildError::new(format!("{}: {e}", json.display())))
}

/// Counted and timed results of a build at 1 warehouse, and its throughput at 20 warehouses.
#[derive(Debug, Serialize)]
struct BuildResults {
    #[serde(flatten)]
    one_warehouse: BuildFigures,
    timed_20_warehouses: Option<Timing>,
}

/// Counts the instructions of builds at 1 warehouse, and times the builds at 1 and at 20 warehouses.
fn measure(builds: &[Build], rounds: usize) -> Result<Vec<BuildResults>, BuildError> {
    let data = directory().join("data");
    // Databases from earlier runs would change the results.
    remove_directory(&data)?;
    let how = Comparison { warehouses: 1, workers: 1, flags: "", rounds, seconds: 3, counted: true };
    let one = builds::compare(builds, how, Some(&data)).map_err(BuildError::new)?;
    let how = Comparison { warehouses: 20, counted: false, ..how };
    let twenty = builds::compare(builds, how, Some(&data)).map_err(BuildError::new)?;
    remove_directory(&data)?;
    let timings = twenty.into_iter().map(|build| build.timed);
    Ok(one
        .into_iter()
        .zip(timings)
        .map(|(one, timed)| BuildResults { one_warehouse: one, timed_20_warehouses: timed })
        .collect())
}

/// Returns true if a row is requested: the baseline always, others if their names contain `only` or `only` is `None`.
fn is_wanted(name: &str, only: Option<&str>) -> bool {
    only.is_none_or(|only| name == builds::ALL || name.contains(only))
}

fn directory() -> PathBuf {
    target("ablate")
}

/// Memory of one build, in bytes. The longest step of a build, single-threaded link-time optimisation, takes 2 GiB.
const MEMORY_OF_A_LANE: u64 = 4 << 30;

/// Returns the number of concurrent builds.
fn lanes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = builds::available_memory_bytes().map_or(1, |bytes| bytes / MEMORY_OF_A_LANE);
    (memory as usize).clamp(1, cores.min(4))
}

/// Builds the missing programs of the requested rows. Writes and returns the list of all builds.
fn build(only: Option<&str>) -> Result<Matrix, BuildError> {
    let compiler = Compiler::here()?;
    let directory = directory();
    create_directory(&directory)?;
    let list = directory.join(builds::LIST);
    let key = key(&compiler, &training(&[]), "")?;
    let mut matrix = Matrix::read(&list).ok().filter(|matrix| matrix.key == key).unwrap_or_default();
    (matrix.key, matrix.commit) = (key, commit());
    // The list includes the plain release, because users build that one.
    if matrix.program(builds::PLAIN).is_none() {
        let program = build_plain()?;
        // Other commands rebuild the plain release and overwrite it, so this is a copy.
        let kept = directory.join("tpcc-plain-release");
        copy(&program, &kept)?;
        matrix.add(listed(builds::PLAIN, &kept, "", "plain"));
    }
    write(&matrix, &list)?;
    let wanted: Vec<&Row> = ROWS.iter().filter(|row| is_wanted(row.name, only)).collect();
    let mut missing: Vec<&Row> = Vec::new();
    for &row in &wanted {
        // Rows that differ only in the flags of their runs share a program.
        if matrix.program_of(&row.how()).is_none() && missing.iter().all(|other| other.how() != row.how()) {
            missing.push(row);
        }
    }
    let matrix = Mutex::new(matrix);
    // Write the wrapper before the lanes start, because all of them call it.
    wrapper()?;
    let directories = |lane| BuildDirectories::numbered(&directory, lane);
    let prepare = |row: &&Row, lane| row.prepare(&compiler, &directories(lane));
    run_all(&missing, lanes(), prepare, |row, inputs, lane| {
        let Some(inputs) = inputs else { return Ok(()) };
        let program = row.build(&compiler, inputs, &directories(lane))?;
        let mut matrix = lock(&matrix);
        matrix.add(listed(row.name, &program, row.run, &row.how()));
        write(&matrix, &list)
    })?;
    let mut matrix = matrix.into_inner().unwrap_or_else(PoisonError::into_inner);
    for row in wanted {
        let how = row.how();
        let program = matrix.program_of(&how).map(Path::to_owned);
        if let Some(program) = program {
            matrix.add(listed(row.name, &program, row.run, &how));
        }
    }
    // Sorted in the order of the table, which is independent of the order of the builds.
    let place = |name: &str| ROWS.iter().position(|row| row.name == name).map_or(0, |row| row + 1);
    matrix.builds.sort_by_key(|build| place(&build.name));
    write(&matrix, &list)?;
    Ok(matrix)
}

fn listed(name: &str, program: &Path, flags: &str, how: &str) -> BuildEntry {
    BuildEntry {
        name: name.into(),
        program: program.into(),
        flags: flags.into(),
        version: version(program),
        how: how.into(),
    }
}

fn write(matrix: &Matrix, list: &Path) -> Result<(), BuildError> {
    matrix.write(list).map_err(|e| BuildError::new(format!("{}: {e}", list.display())))
}

impl Row {
    /// Returns the build settings beyond sources, compiler and training as text. Rows with equal texts share a program.
    fn how(&self) -> String {
        format!("{:?}", Row { name: "", run: "", ..*self })
    }

    /// Returns the name of the row for use in a file name, without commas: the file name is a part of a linker argument, and
    /// a comma ends the argument.
    fn file_name(&self) -> String {
        self.name.replace(',', "").replace([' ', '\''], "-")
    }

    fn variant(&self) -> Variant {
        let mut workspace_flags = Vec::new();
        let flags: Vec<String> = self.flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut program_flags: Vec<String> = self.program_flags.iter().map(|flag| (*flag).to_owned()).collect();
        if self.feedback == Feedback::On {
            match self.grouping {
                // The compiler adds the execution frequency of a function as a prefix to its section name. The linker then
                // groups sections with the same prefix.
                true => program_flags.push(KEEP_SECTIONS.into()),
                false => workspace_flags.push("-Cllvm-args=-profile-guided-section-prefix=false".into()),
            }
        }
        Variant {
            name: self.file_name(),
            built_with: format!("{} of the ablation of builds", self.name),
            flags,
            program_flags,
            profile: self.profile.to_vec(),
            features: self.features.to_vec(),
            commands: Commands::Runs,
            engine: self.engine,
            workspace_flags,
        }
    }

    /// Checks that all tools that the row requires beside the compiler are installed. Returns the tools for the block
    /// layout.
    fn tools(&self, compiler: &Compiler) -> Result<Option<Layout>, BuildError> {
        if self.feedback == Feedback::On {
            compiler.profdata()?;
        }
        self.laid_out.then(|| Layout::tools(compiler)).transpose()
    }

    /// Makes the profile of the row and returns the inputs of its build. Returns `None` if a required tool is not installed.
    fn prepare(&self, compiler: &Compiler, directories: &BuildDirectories) -> Result<Option<BuildInputs>, BuildError> {
        let layout = match self.tools(compiler) {
            Ok(layout) => layout,
            Err(missing) => {
                print_progress(&format!("{}: left out, {missing}", self.name));
                return Ok(None);
            }
        };
        let (mut variant, mut profile) = (self.variant(), None);
        if self.feedback == Feedback::On {
            let made = MergedProfile::of(&variant, compiler, &training(&[]), directories)?;
            variant.workspace_flags.extend(made.flags());
            variant.built_with += ", profile feedback";
            profile = Some(made);
        }
        Ok(Some(BuildInputs { variant, profile, layout }))
    }

    /// Builds the program of the row.
    fn build(
        &self,
        compiler: &Compiler,
        inputs: BuildInputs,
        directories: &BuildDirectories,
    ) -> Result<PathBuf, BuildError> {
        let BuildInputs { mut variant, profile, layout } = inputs;
        let Some(layout) = layout else { return fitting(profile.as_ref(), variant.build(compiler, directories)?) };
        variant.program_flags.push(layout::KEEP_RELOCATIONS.into());
        variant.built_with += ", block layout";
        let directory = &directories.programs;
        let laid_out = directory.join(format!("tpcc-{}", variant.name));
        variant.name += "-to-lay-out";
        let program = fitting(profile.as_ref(), variant.build(compiler, directories)?)?;
        lay_out(&layout, &program, &laid_out, directory)?;
        Ok(laid_out)
    }
}

impl Task for &Row {
    fn preparation(&self) -> Option<String> {
        (self.feedback == Feedback::On).then(|| self.variant().settings())
    }
}

/// Checks that the profile of a build, if any, matches it. Returns the path of the program.
fn fitting(profile: Option<&MergedProfile>, built: BuildOutput) -> Result<PathBuf, BuildError> {
    if let Some(profile) = profile {
        profile.check_fit(&built)?;
    }
    Ok(built.program)
}

/// Inputs of the build of a row.
struct BuildInputs {
    variant: Variant,
    profile: Option<MergedProfile>,
    layout: Option<Layout>,
}

/// Formats the results as a text table.
fn table(measured: &[BuildResults]) -> String {
    let mut text = format!(
        "{:<30} {:>12} {:>9} {:>9} {:>9}  {:<21}  {}\n",
        "a transaction of the mix", "instructions", "I1", "D1", "mispred.", "by the plain release", "at 20 warehouses"
    );
    for BuildResults { one_warehouse: row, timed_20_warehouses: twenty } in measured {
        let count = |of: fn(&builds::PerTransaction) -> f64| {
            row.counted.as_ref().map_or("-".to_owned(), |counted| format!("{:.0}", of(counted)))
        };
        let [one, twenty] = [row.timed, *twenty].map(|timed| {
            timed.map_or("-".to_owned(), |timed| {
                format!("{:.3} [{:.3} {:.3}]", timed.ratio, timed.ratio_low, timed.ratio_high)
            })
        });
        text += &format!(
            "{:<30} {:>12} {:>9} {:>9} {:>9}  {one:<21}  {twenty}\n",
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
        assert!(ROWS.iter().all(|row| !row.variant().name.contains([' ', '\'', '/', ','])));
    }

    #[test]
    fn rows_that_differ_in_how_they_run_share_a_program() {
        let row = |name: &str| ROWS.iter().find(|row| row.name == name).unwrap();
        assert!(row("no prefetch").how() == ALL.how() && row(builds::ALL_STEPS).how() == ALL.how());
        let different =
            [ALL.name, builds::FEEDBACK, builds::NOTHING, builds::ONLY_FEEDBACK, builds::NO_LTO, builds::SHARED];
        let ways: std::collections::HashSet<_> = different.iter().map(|name| row(name).how()).collect();
        assert_eq!(ways.len(), different.len());
    }
}
