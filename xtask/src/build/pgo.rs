//! `cargo xtask pgo`: builds `tpcc` with a profile of its own transactions, and measures the effect of the profile.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use serde::Serialize;
use tpcc_lab::reproduce::builds::{Build, BuildFigures, Comparison, compare};

use super::directories::BuildDirectories;
use super::files::{copy, create_directory, remove_directory};
use super::profile::{MergedProfile, ProfileFit, TRAINING};
use super::tools::Compiler;
use super::variant::{Variant, cargo};
use super::{BuildError, print_progress, root, target};

/// Flags of `cargo xtask pgo`.
#[derive(Debug, Args)]
pub(crate) struct PgoFlags {
    /// A training run, as flags of `tpcc run`; can be repeated
    /// [default: 400,000 transactions alone on one thread, then 200,000 in teams, on 3 warehouses]; `--warehouses` in it
    /// sets the number of warehouses to load
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    train: Vec<String>,
    /// A profile that this command has made from the same sources
    #[arg(long, value_name = "FILE", conflicts_with = "train")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    pub(super) measuring: Measuring,
}

/// Flags for the measurements of a build.
#[derive(Debug, Args)]
pub(crate) struct Measuring {
    /// Rounds of the timing, each of which runs every build once; 0 disables the timing
    #[arg(long, default_value_t = 7, value_name = "N")]
    rounds: usize,
    /// Writes the results to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Measuring {
    /// Returns the number of rounds of the timing.
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }
}

/// Contents of the `--json` file.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    /// Path of the program.
    pub(super) binary: &'a Path,
    /// Version that the program reports.
    pub(super) version: String,
    /// Profile with which the program was built.
    pub(super) profile: Option<&'a MergedProfile>,
    /// Number of functions of the build that differ from the instrumented ones. It is 0 for `cargo xtask pgo`, and small for
    /// `cargo xtask bolt`.
    pub(super) mismatches: Option<usize>,
    /// Number of functions of the build that are missing in the profile.
    pub(super) functions_without_profile: Option<usize>,
    /// Cachegrind's counts per transaction; null if valgrind is missing.
    pub(super) counted: Option<TransactionCounts>,
    /// Timing of the build, interleaved with the plain release; null with `--rounds 0`.
    pub(super) timed: Option<Throughput>,
}

/// Event counts per transaction of the standard mix at 1 warehouse.
#[derive(Debug, Serialize)]
pub(super) struct TransactionCounts {
    instructions: f64,
    instructions_plain: f64,
    instructions_ratio: f64,
    i1: f64,
    i1_plain: f64,
    i1_ratio: f64,
    mispredictions: f64,
    mispredictions_plain: f64,
    mispredictions_ratio: f64,
}

/// Throughput at 1 warehouse with 1 worker.
#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    rounds: usize,
    per_second: f64,
    ratio: f64,
    ratio_low: f64,
    ratio_high: f64,
}

/// Runs the command.
pub(crate) fn run(flags: &PgoFlags) -> ExitCode {
    match build(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn build(flags: &PgoFlags) -> Result<(), BuildError> {
    let compiler = Compiler::here()?;
    create_directory(&target("pgo"))?;
    let directories = BuildDirectories::of(&target("pgo"));
    let profile = match &flags.profile {
        Some(path) => MergedProfile::named(path, &Variant::default(), &compiler)?,
        None => MergedProfile::of(&Variant::default(), &compiler, &training(&flags.train), &directories)?,
    };
    let plain = build_plain()?;
    let built = with_feedback(&profile).build(&compiler, &directories)?;
    let ProfileFit { mismatches, unknown } = profile.check_fit(&built)?;
    if mismatches > 0 {
        // This build uses the flags of the instrumented build, so every function must match the profile.
        return Err(BuildError::new(format!(
            "the profile is not of these sources: it does not fit {mismatches} functions"
        ))
        .help("do not change the sources while this command runs; run it again"));
    }
    let binary = target("pgo").join("tpcc");
    copy(&built.program, &binary)?;
    check_program(&binary)?;
    let measured = measure(&flags.measuring, &plain, "profile feedback", &binary)?;
    let report = Report {
        binary: &binary,
        version: version(&binary),
        profile: Some(&profile),
        mismatches: Some(mismatches),
        functions_without_profile: Some(unknown),
        counted: transaction_counts(&measured),
        timed: throughput(&measured, flags.measuring.rounds),
    };
    let known = 100.0 * profile.functions_run as f64 / profile.functions.max(1) as f64;
    print_progress(&format!(
        "profile   {} functions, {known:.0}% of them ran; made from {}; {mismatches} do not fit, {unknown} are new",
        profile.functions, profile.commit
    ));
    write_report(&flags.measuring, &report)
}

/// Returns the requested training runs; if there are none, the default ones.
pub(super) fn training(asked: &[String]) -> Vec<String> {
    if asked.is_empty() { TRAINING.map(str::to_owned).to_vec() } else { asked.to_vec() }
}

/// Returns the settings of a build that uses a profile.
pub(super) fn with_feedback(profile: &MergedProfile) -> Variant {
    Variant {
        name: "feedback".into(),
        built_with: "profile feedback".into(),
        flags: profile.flags(),
        ..Variant::default()
    }
}

/// Builds the plain release with `cargo build --release`, and returns the path of a copy of the program.
pub(super) fn build_plain() -> Result<PathBuf, BuildError> {
    print_progress("building the plain release");
    let status = cargo()
        .current_dir(root())
        .args(["build", "--release", "--quiet", "--locked", "--package", "tpcc", "--target-dir"])
        .arg(root().join("target"))
        .status()
        .map_err(|e| BuildError::new(format!("cargo: cannot be run: {e}")))?;
    if !status.success() {
        return Err(BuildError::new("the plain release build failed"));
    }
    let program = target("pgo").join("tpcc-plain");
    create_directory(&target("pgo"))?;
    copy(&target("release").join("tpcc"), &program)?;
    Ok(program)
}

/// Runs transactions on threads and in teams of fibers, because a faulty build may break the context switch. Then checks
/// that the database is consistent.
pub(super) fn check_program(program: &Path) -> Result<(), BuildError> {
    let data = target("pgo").join("job");
    for scheduler in ["threads", "steps"] {
        let _ = std::fs::remove_dir_all(&data);
        print_progress(&format!("checking that {} does its job, scheduler {scheduler}", program.display()));
        let ended = Command::new(program)
            .args(["run", "--duration", "2", "--warmup", "0", "--scheduler", scheduler, "--data"])
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| BuildError::new(format!("{}: {e}", program.display())))?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            return Err(BuildError::new(format!("{}: {}", program.display(), said.trim()))
                .help("this build is not sound: use the plain release, and report it"));
        }
    }
    let _ = std::fs::remove_dir_all(&data);
    Ok(())
}

/// Compares a build with the plain release, at 1 warehouse with 1 worker.
pub(super) fn measure(
    how: &Measuring,
    plain: &Path,
    name: &str,
    program: &Path,
) -> Result<[BuildFigures; 2], BuildError> {
    let build = |name: &str, program: &Path| Build { name: name.into(), program: program.into(), flags: String::new() };
    let builds = [build("plain", plain), build(name, program)];
    let comparison = Comparison { warehouses: 1, workers: 1, flags: "", rounds: how.rounds, seconds: 4, counted: true };
    // Remove a database of an earlier command, because it would change the results.
    let data = target("pgo").join("data");
    remove_directory(&data)?;
    let measured = compare(&builds, comparison, Some(&data)).map_err(BuildError::new)?;
    remove_directory(&data)?;
    measured.try_into().map_err(|_| BuildError::new("fewer builds were measured than given"))
}

pub(super) fn transaction_counts([plain, this]: &[BuildFigures; 2]) -> Option<TransactionCounts> {
    let (plain, this) = (plain.counted?, this.counted?);
    Some(TransactionCounts {
        instructions: this.instructions,
        instructions_plain: plain.instructions,
        instructions_ratio: this.instructions / plain.instructions,
        i1: this.i1_misses,
        i1_plain: plain.i1_misses,
        i1_ratio: this.i1_misses / plain.i1_misses,
        mispredictions: this.mispredictions,
        mispredictions_plain: plain.mispredictions,
        mispredictions_ratio: this.mispredictions / plain.mispredictions,
    })
}

pub(super) fn throughput([_, this]: &[BuildFigures; 2], rounds: usize) -> Option<Throughput> {
    let timed = this.timed?;
    Some(Throughput {
        rounds,
        per_second: timed.per_second,
        ratio: timed.ratio,
        ratio_low: timed.ratio_low,
        ratio_high: timed.ratio_high,
    })
}

/// Returns the version that a program reports.
pub(super) fn version(program: &Path) -> String {
    super::tools::output(Command::new(program).arg("--version")).unwrap_or_default().trim().to_owned()
}

/// Prints the results. If requested, also writes them to the `--json` file.
pub(super) fn write_report(how: &Measuring, report: &Report<'_>) -> Result<(), BuildError> {
    if let Some(c) = &report.counted {
        let line = |of: f64, plain: f64| format!("{of:.0} of {plain:.0} ({:.3})", of / plain);
        print_progress(&format!(
            "counted   a transaction: instructions {}, instruction misses {}, mispredictions {}",
            line(c.instructions, c.instructions_plain),
            line(c.i1, c.i1_plain),
            line(c.mispredictions, c.mispredictions_plain)
        ));
    } else {
        print_progress("counted   nothing: valgrind is missing (apt-get install valgrind)");
    }
    if let Some(t) = &report.timed {
        print_progress(&format!(
            "timed     {:.0} transactions a second, {:.3} [{:.3} {:.3}] of the plain release, {} rounds",
            t.per_second, t.ratio, t.ratio_low, t.ratio_high, t.rounds
        ));
    }
    print_progress(&format!("built     {} ({})", report.binary.display(), report.version));
    let Some(json) = &how.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|e| BuildError::new(e.to_string()))?;
    std::fs::write(json, text + "\n").map_err(|e| BuildError::new(format!("{}: {e}", json.display())))
}
