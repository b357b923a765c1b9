//! `cargo xtask bolt`: builds the program with profile feedback and lays out its basic blocks with LLVM's BOLT.
//!
//! BOLT can use hardware counters of taken branches, but not every machine has them. The program itself is therefore
//! instrumented after linking.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;

use super::directories::BuildDirectories;
use super::files::{copy, create_directory};
use super::pgo::{
    Measuring, Report, build_plain, check_program, measure, throughput, training, transaction_counts, version,
    with_feedback, write_report,
};
use super::profile::{MergedProfile, train};
use super::tools::{Compiler, run_command};
use super::variant::Variant;
use super::{BuildError, print_progress, target};

/// BOLT options of the block layout. They keep the length of each instruction, because a context switch between fibers
/// depends on the length of the jump that follows it.
const LAYOUT: [&str; 8] = [
    "-reorder-blocks=ext-tsp",
    "-reorder-functions=cdsort",
    "-split-functions",
    "-split-all-cold",
    "-split-eh",
    "-icf",
    "-shorten-instructions=0",
    "-update-debug-sections",
];

/// Flags of `cargo xtask bolt`.
#[derive(Debug, Args)]
pub(crate) struct BoltFlags {
    /// Lays out the plain release instead of the build with profile feedback
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    measuring: Measuring,
}

/// Runs the command.
pub(crate) fn run(flags: &BoltFlags) -> ExitCode {
    match build(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn build(flags: &BoltFlags) -> Result<(), BuildError> {
    let compiler = Compiler::here()?;
    let layout = Layout::tools(&compiler)?;
    let directory = target("bolt");
    create_directory(&directory)?;
    let reference = build_plain()?;
    let trained =
        || MergedProfile::of(&Variant::default(), &compiler, &training(&[]), &BuildDirectories::of(&target("pgo")));
    let profile = (!flags.plain).then(trained).transpose()?;
    let mut variant = profile.as_ref().map(with_feedback).unwrap_or_default();
    variant.name = if flags.plain { "plain-to-lay-out" } else { "feedback-to-lay-out" }.into();
    variant.built_with += if flags.plain { "block layout" } else { ", block layout" };
    variant.program_flags.push(KEEP_RELOCATIONS.into());
    let built = variant.build(&compiler, &BuildDirectories::of(&directory))?;
    let fit = profile.as_ref().map(|profile| profile.check_fit(&built)).transpose()?;
    let binary = directory.join("tpcc");
    lay_out(&layout, &built.program, &binary, &directory)?;
    check_program(&binary)?;
    let measured = measure(&flags.measuring, &reference, "block layout", &binary)?;
    let report = Report {
        binary: &binary,
        version: version(&binary),
        profile: profile.as_ref(),
        mismatches: fit.map(|fit| fit.mismatches),
        functions_without_profile: fit.map(|fit| fit.unknown),
        counted: transaction_counts(&measured),
        timed: throughput(&measured, flags.measuring.rounds()),
    };
    write_report(&flags.measuring, &report)
}

/// Linker flag to keep relocations: BOLT moves functions only if it knows every relocation.
pub(super) const KEEP_RELOCATIONS: &str = "-Clink-arg=-Wl,-q";

/// Paths of the BOLT tools.
pub(super) struct Layout {
    bolt: PathBuf,
    merge: PathBuf,
}

impl Layout {
    /// Finds the tools of the compiler's LLVM version.
    pub(super) fn tools(compiler: &Compiler) -> Result<Layout, BuildError> {
        let tools = compiler.tool("llvm-bolt").zip(compiler.tool("merge-fdata"));
        tools.map(|(bolt, merge)| Layout { bolt, merge }).ok_or_else(|| {
            let llvm = compiler.llvm;
            BuildError::new(format!("llvm-bolt or merge-fdata of LLVM {llvm} is missing"))
                .help(format!("apt-get install bolt-{llvm}"))
        })
    }
}

/// Instruments `program` and runs transactions in it. Then writes `binary`, in which the blocks are ordered by their
/// execution counts.
pub(super) fn lay_out(layout: &Layout, program: &Path, binary: &Path, directory: &Path) -> Result<(), BuildError> {
    let Layout { bolt, merge } = layout;
    let instrumented = directory.join("tpcc-instrumented");
    let counts = directory.join("counts.fdata");
    // Files of execution counts from an interrupted run belong to another program.
    for old in parts(directory)? {
        std::fs::remove_file(&old).map_err(|e| BuildError::new(format!("{}: {e}", old.display())))?;
    }
    print_progress("laying out: instrumenting");
    run_command(
        Command::new(bolt)
            .arg(program)
            .arg("-instrument")
            .arg("-shorten-instructions=0")
            .arg("-o")
            .arg(&instrumented)
            .arg(format!("--instrumentation-file={}", counts.display()))
            .arg("--instrumentation-file-append-pid"),
    )?;
    train(&instrumented, &directory.join("train"), &training(&[]))?;
    let parts = parts(directory)?;
    if parts.is_empty() {
        return Err(BuildError::new(format!("{}: the instrumented program wrote no counts", counts.display())));
    }
    let merged = directory.join("merged.fdata");
    let output = Command::new(merge).args(&parts).stdin(Stdio::null()).output();
    let output = output.map_err(|e| BuildError::new(format!("{}: {e}", merge.display())))?;
    if !output.status.success() || output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BuildError::new(format!("{}: {}", merge.display(), said.trim())));
    }
    std::fs::write(&merged, output.stdout).map_err(|e| BuildError::new(format!("{}: {e}", merged.display())))?;
    print_progress("laying out: writing");
    let laid_out = directory.join("tpcc-laid-out");
    run_command(
        Command::new(bolt)
            .arg(program)
            .arg("-o")
            .arg(&laid_out)
            .arg(format!("-data={}", merged.display()))
            .args(LAYOUT),
    )?;
    copy(&laid_out, binary)?;
    for part in parts.iter().chain([&laid_out, &instrumented]) {
        let _ = std::fs::remove_file(part);
    }
    Ok(())
}

/// Returns the files of execution counts that instrumented programs have written.
fn parts(directory: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |e: std::io::Error| BuildError::new(format!("{}: {e}", directory.display()));
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("counts.") && name.ends_with(".fdata") {
            parts.push(entry.path());
        }
    }
    Ok(parts)
}
