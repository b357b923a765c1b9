//! Settings of a build of `tpcc`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::directories::{BuildDirectories, WRAPPED_FLAGS, wrapper};
use super::files::copy;
use super::tools::{Compiler, last_lines, run_command};
use super::{BuildError, print_progress, root, shared};

/// Kind of linkage of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Engine {
    /// The engine is linked statically into the program.
    #[default]
    InProgram,
    /// The engine is a shared object that the program loads. This excludes link-time optimisation.
    Shared,
}

/// Set of commands of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Commands {
    /// All commands.
    #[default]
    All,
    /// Commands that run transactions, without the laboratory. This halves the build time. The workspace crates are built
    /// with the wrapper, so that other builds reuse their dependencies.
    Runs,
}

/// Settings of a build of `tpcc`.
#[derive(Clone, Debug, Default)]
pub(super) struct Variant {
    /// Name of the variant and of its program.
    pub(super) name: String,
    /// Text that `tpcc --version` adds to "release"; empty for a plain build.
    pub(super) built_with: String,
    /// Compiler flags for all crates, dependencies included.
    pub(super) flags: Vec<String>,
    /// Compiler flags for the crates of this workspace, but not for their dependencies.
    pub(super) workspace_flags: Vec<String>,
    /// Compiler flags for the final program only. Dependencies cannot be built with these flags.
    pub(super) program_flags: Vec<String>,
    /// Settings of cargo's profile `release`: name and value, for example ("LTO", "thin").
    pub(super) profile: Vec<(&'static str, &'static str)>,
    /// Cargo features of `tpcc`.
    pub(super) features: Vec<&'static str>,
    /// Commands of the program.
    pub(super) commands: Commands,
    /// Kind of linkage of the engine.
    pub(super) engine: Engine,
}

/// Finished program, with the warnings of its build.
#[derive(Clone, Debug)]
pub(super) struct BuildOutput {
    /// Path of a copy of the program, which no later build replaces.
    pub(super) program: PathBuf,
    /// Warnings of the compiler and of cargo.
    pub(super) warnings: String,
}

impl Variant {
    /// Returns the settings of cargo's profile `release`, the features and the commands as one text. Mangled names of
    /// functions depend on these.
    pub(super) fn settings(&self) -> String {
        let profile = self.profile.iter().map(|(name, value)| format!("{name}={value}"));
        let features = self.features.iter().map(|&feature| feature.to_owned());
        let commands = (self.commands == Commands::Runs).then(|| "runs".to_owned());
        profile.chain(features).chain(commands).collect::<Vec<_>>().join(" ")
    }

    /// Builds the program with these settings.
    pub(super) fn build(&self, compiler: &Compiler, directories: &BuildDirectories) -> Result<BuildOutput, BuildError> {
        print_progress(&format!("building {}: a release build takes minutes", self.name));
        let name = format!("tpcc-{}", self.name);
        let (mut flags, mut program_flags) = (self.flags.clone(), self.program_flags.clone());
        let sources = match self.engine {
            Engine::InProgram => root(),
            Engine::Shared => {
                flags.extend(shared::FLAGS.iter().map(|&flag| flag.to_owned()));
                program_flags.extend(shared::program_flags(&name));
                shared::sources(&directories.sources)?
            }
        };
        if self.commands == Commands::All {
            flags.extend(self.workspace_flags.iter().cloned());
        }
        let mut cargo = cargo();
        for (setting, value) in &self.profile {
            cargo.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
        }
        // The plain release builds `tpcc` in several codegen units, which takes less time. A profile has more effect on a
        // crate that is built in one unit. Builds without a profile also use one unit, so that a comparison shows the effect
        // of the profile alone. The plain release, which is listed beside them, uses several.
        let units =
            self.profile.iter().find(|(setting, _)| *setting == "CODEGEN_UNITS").map_or("1", |(_, units)| units);
        // With `--target`, build scripts and procedural macros are compiled without these flags.
        cargo
            .current_dir(&sources)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env("TPCC_BUILT_WITH", &self.built_with)
            .args(["rustc", "--release", "--locked", "--package", "tpcc", "--bin", "tpcc"])
            .args(["--config", &format!("profile.release.package.tpcc.codegen-units={units}")])
            .args(["--target", &compiler.host, "--target-dir"])
            .arg(&directories.build);
        if self.commands == Commands::Runs {
            // Cargo does not detect that the flags in the wrapper's environment have changed since the previous build.
            clean(&sources, compiler, directories)?;
            cargo
                .arg("--no-default-features")
                .env("RUSTC_WORKSPACE_WRAPPER", wrapper()?)
                .env(WRAPPED_FLAGS, self.workspace_flags.join("\u{1f}"));
        }
        if !self.features.is_empty() {
            cargo.args(["--features", &self.features.join(",")]);
        }
        cargo.arg("--").args(&program_flags);
        let output =
            cargo.stdin(Stdio::null()).output().map_err(|e| BuildError::new(format!("cargo: cannot be run: {e}")))?;
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(BuildError::new(format!("the build of {} failed:\n{}", self.name, last_lines(&warnings, 20))));
        }
        let built = directories.build.join(&compiler.host).join("release");
        let program = directories.programs.join(&name);
        copy(&built.join("tpcc"), &program)?;
        if self.engine == Engine::Shared {
            shared::copy_libraries(&built, &directories.programs, &name, compiler)?;
        }
        Ok(BuildOutput { program, warnings })
    }
}

/// Returns a cargo command without the environment variables that cargo set for this command, and without variables that
/// would make builds differ. One of them is the caching compiler wrapper, which does not see the flags that our wrapper
/// adds.
pub(super) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    let ours = [
        "CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
    ];
    let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let inherited = inherited.filter(|name| name.starts_with("CARGO_BUILD_") || name.starts_with("CARGO_PROFILE_"));
    for variable in inherited.chain(ours.map(str::to_owned)) {
        cargo.env_remove(variable);
    }
    cargo
}

/// Workspace crates that are linked into the program.
const CRATES: [&str; 8] =
    ["lockstep-storage", "sched-steps", "lockstep-speculate", "itas", "tpcc-core", "tpcc-pg", "tpcc-lab", "tpcc"];

/// Removes the build output of the workspace crates, but keeps the output of their dependencies.
fn clean(sources: &Path, compiler: &Compiler, directories: &BuildDirectories) -> Result<(), BuildError> {
    let mut command = cargo();
    command.current_dir(sources).args(["clean", "--release", "--target", &compiler.host, "--target-dir"]);
    command.arg(&directories.build).args(CRATES.iter().flat_map(|name| ["--package", name]));
    run_command(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_crates_of_the_program_are_cleaned() {
        let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let members = workspace.lines().find(|line| line.starts_with("members")).unwrap();
        let name_in = |folder: &str| {
            let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
            name.unwrap().trim_matches('"').to_owned()
        };
        let mut names: Vec<String> =
            members.split('"').filter(|word| word.starts_with("crates/")).map(name_in).collect();
        names.sort();
        let mut cleaned = CRATES.to_vec();
        cleaned.sort_unstable();
        assert_eq!(names, cleaned);
    }
}
