//! Profiles for profile-guided optimisation. An instrumented `tpcc` that runs transactions writes them. A profile is valid
//! only for the sources, compiler and settings of the instrumented program.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::directories::BuildDirectories;
use super::files::create_directory;
use super::tools::{Compiler, output};
use super::variant::{BuildOutput, Engine, Variant};
use super::{BuildError, print_progress, root, target};

/// Seed of the training databases and runs.
const SEED: &str = "60317";
/// Number of warehouses of the training database, unless a run specifies it. No measurement uses this number.
const WAREHOUSES: &str = "3";
/// Default training runs: one with transactions alone on their threads, one with teams of fibers. They run a fixed number of
/// transactions instead of a fixed time. The profile is then independent of other load on the machine, and transactions
/// outweigh the loading of the database.
pub(super) const TRAINING: [&str; 2] = [
    "--workers 1 --mix standard --transactions 400000 --durability async",
    "--workers 1 --mix standard --transactions 200000 --durability async --scheduler steps",
];

/// Merged profile of all training runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MergedProfile {
    /// Hash of the sources, compiler, training runs and settings for which the profile is valid.
    pub(super) key: String,
    /// Commit of the sources.
    pub(super) commit: String,
    /// Settings of cargo's profile `release` and features of the instrumented build, other than the defaults.
    pub(super) settings: String,
    /// Command lines of the training runs.
    pub(super) training: Vec<String>,
    /// Number of functions in the profile.
    pub(super) functions: u64,
    /// Number of functions in the profile that were executed.
    pub(super) functions_run: u64,
    /// Path of the profile file.
    pub(super) path: PathBuf,
}

impl MergedProfile {
    /// Returns the profile of these sources for a build like `base`. Makes the profile if it does not exist. Mangled names
    /// of functions depend on the settings of cargo's profile `release`, on features, and on crates being shared objects,
    /// but not on flags. Names of functions that are private to a codegen unit also depend on the number of units.
    pub(super) fn of(
        base: &Variant,
        compiler: &Compiler,
        training: &[String],
        directories: &BuildDirectories,
    ) -> Result<MergedProfile, BuildError> {
        let settings = base.settings();
        let key = key(compiler, training, &settings)?;
        let directory = target("pgo");
        let known = directory.join(format!("profile-{key}.json"));
        if let Some(profile) = read(&known).filter(|profile| profile.path.is_file()) {
            print_progress("the profile of these sources is there already");
            return Ok(profile);
        }
        let profdata = compiler.profdata()?;
        let raw = directory.join(format!("raw-{key}"));
        // Removes the files of an interrupted training. There may be none, so an error is ignored.
        let _ = fs::remove_dir_all(&raw);
        create_directory(&raw)?;
        let instrumented = Variant {
            name: format!("instrumented-{key}"),
            built_with: "instrumented for profile feedback".into(),
            flags: Vec::new(),
            workspace_flags: vec![format!("-Cprofile-generate={}", raw.display())],
            // The counters are in the crates before the program is optimised as a whole, so a low optimisation level saves
            // time in this step.
            program_flags: vec!["-Copt-level=1".into()],
            engine: Engine::InProgram,
            ..base.clone()
        };
        let program = instrumented.build(compiler, directories)?.program;
        train(&program, &directory.join(format!("train-{key}")), training)?;
        let path = directory.join(format!("profile-{key}.profdata"));
        let merged = Command::new(&profdata).args(["merge", "-o"]).arg(&path).arg(&raw).output();
        let merged = merged.map_err(|e| BuildError::new(format!("{}: {e}", profdata.display())))?;
        if !merged.status.success() {
            let said = String::from_utf8_lossy(&merged.stderr).into_owned();
            return Err(BuildError::new(format!("{} merge: {}", profdata.display(), said.trim())));
        }
        let shown = output(Command::new(&profdata).args(["show", "--all-functions", "--counts"]).arg(&path))
            .unwrap_or_default();
        let (functions, functions_run) = functions(&shown);
        if functions_run == 0 {
            return Err(BuildError::new(format!("{}: no function ran in training", path.display())));
        }
        let profile = MergedProfile {
            key,
            commit: commit(),
            settings,
            training: training.to_vec(),
            functions,
            functions_run,
            path,
        };
        write(&known, &profile)?;
        let _ = (fs::remove_dir_all(&raw), fs::remove_file(&program));
        Ok(profile)
    }

    /// Reads a profile file that the user has named. The file must come from these sources and this compiler, for a build
    /// like `base`.
    pub(super) fn named(path: &Path, base: &Variant, compiler: &Compiler) -> Result<MergedProfile, BuildError> {
        let described = path.with_extension("json");
        let Some(profile) = read(&described) else {
            return Err(BuildError::new(format!("{}: not a description of a profile", described.display()))
                .help("name a profile that 'cargo xtask pgo' has made, or leave --profile out to make one"));
        };
        if profile.settings != base.settings() {
            return Err(BuildError::new(format!(
                "{}: made for another build, with the settings '{}'",
                path.display(),
                profile.settings
            ))
            .help("leave --profile out to make one for this build"));
        }
        let here = key(compiler, &profile.training, &profile.settings)?;
        if profile.key != here {
            return Err(BuildError::new(format!(
                "{}: made from commit {}, other sources or another compiler than these",
                path.display(),
                profile.commit
            ))
            .help("leave --profile out to make one of these sources"));
        }
        Ok(MergedProfile { path: path.to_owned(), ..profile })
    }

    /// Returns the compiler flags of a build that uses the profile and reports mismatches.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![format!("-Cprofile-use={}", self.path.display()), "-Cllvm-args=-pgo-warn-missing-function".into()]
    }
}

/// Numbers of mismatches between a profile and a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProfileFit {
    /// Number of functions of the build that differ from the instrumented functions of the same name.
    pub(super) mismatches: usize,
    /// Number of functions of the build that are missing in the profile, because they were not instrumented.
    pub(super) unknown: usize,
}

impl ProfileFit {
    /// Counts the mismatches that the compiler reports as warnings.
    fn of(warnings: &str) -> ProfileFit {
        let lines = |what: &str| warnings.lines().filter(|line| line.to_ascii_lowercase().contains(what)).count();
        ProfileFit {
            mismatches: lines("hash mismatch") + lines("counter mismatch"),
            unknown: lines("no profile data available for function"),
        }
    }
}

impl MergedProfile {
    /// Counts the mismatches of a build with this profile. The compiler ignores the profile of a function that does not
    /// match. Flags of a build may change a few functions, so an error is returned only if their number exceeds 5% of the
    /// functions in the profile.
    pub(super) fn check_fit(&self, built: &BuildOutput) -> Result<ProfileFit, BuildError> {
        let fit = ProfileFit::of(&built.warnings);
        if (fit.mismatches + fit.unknown) as u64 * 20 <= self.functions {
            return Ok(fit);
        }
        Err(BuildError::new(format!(
            "{}: the profile knows {} functions; it does not fit {} of the build, and does not know {}",
            built.program.display(),
            self.functions,
            fit.mismatches,
            fit.unknown
        ))
        .help("remove target/pgo and target/ablate, and run this command again"))
    }
}

/// Runs the training runs in an instrumented program. Their databases are created at `data` and removed afterwards.
pub(super) fn train(program: &Path, data: &Path, training: &[String]) -> Result<(), BuildError> {
    let _ = fs::remove_dir_all(data);
    let tpcc = |words: &[&str]| {
        print_progress(&format!("training: tpcc {}", words.join(" ")));
        let mut command = Command::new(program);
        command.args(words).arg("--data").arg(data).stdin(Stdio::null());
        let ended = command.output().map_err(|e| BuildError::new(format!("{}: {e}", program.display())))?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            return Err(BuildError::new(format!("tpcc {}: {}", words.join(" "), said.trim())));
        }
        Ok(())
    };
    let asked: Vec<Vec<&str>> = training.iter().map(|run| words(run)).collect();
    let numbers = asked.iter().filter_map(|words| value(words, "--warehouses")?.parse::<u32>().ok());
    let warehouses = numbers.max().map_or(WAREHOUSES.to_owned(), |most| most.to_string());
    tpcc(&["load", "--warehouses", &warehouses, "--seed", SEED])?;
    for words in &asked {
        tpcc(&run_words(words))?;
    }
    let _ = fs::remove_dir_all(data);
    Ok(())
}

/// Splits a command line into words; `--flag=value` yields two words.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace()
        .flat_map(|word| match word.split_once('=').filter(|_| word.starts_with("--")) {
            Some((flag, value)) => [Some(flag), Some(value)],
            None => [Some(word), None],
        })
        .flatten()
        .collect()
}

/// Returns the value of a flag on a command line.
fn value<'a>(words: &[&'a str], flag: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied()
}

/// Returns the command line of a training run: the requested flags, and default values of the other flags. Omits
/// `--warehouses`, because it applies to the load of the database.
fn run_words<'a>(asked: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["run"];
    for (flag, usual) in [("--seed", SEED), ("--warmup", "0"), ("--check", "off")] {
        if value(asked, flag).is_none() {
            words.extend([flag, usual]);
        }
    }
    let loaded = asked.iter().position(|word| *word == "--warehouses");
    words.extend(
        asked
            .iter()
            .enumerate()
            .filter(|(at, _)| loaded.is_none_or(|flag| *at != flag && *at != flag + 1))
            .map(|(_, word)| word),
    );
    words
}

/// Computes the key of a profile: a hash of sources, lock file, compiler, training and settings.
pub(super) fn key(compiler: &Compiler, training: &[String], settings: &str) -> Result<String, BuildError> {
    let git = |args: &[&str]| {
        output(Command::new("git").args(args).current_dir(root()))
            .ok_or_else(|| BuildError::new(format!("git {} failed", args.join(" "))).help("build from a clone"))
    };
    // The code of the build commands determines the profile too, so it is part of the key.
    let sources = ["Cargo.toml", "Cargo.lock", "crates", "xtask/src/build"];
    let mut hasher = DefaultHasher::new();
    // Hash the name and committed content of each file, the changes since the commit, and new files.
    git(&[&["ls-files", "-s", "--"][..], &sources].concat())?.hash(&mut hasher);
    git(&[&["diff", "HEAD", "--"][..], &sources].concat())?.hash(&mut hasher);
    for new in git(&[&["ls-files", "--others", "--exclude-standard", "--"][..], &sources].concat())?.lines() {
        let content = fs::read(root().join(new)).map_err(|e| BuildError::new(format!("{new}: {e}")))?;
        (new, content).hash(&mut hasher);
    }
    (&compiler.described, training, settings).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// Returns the commit of the sources.
pub(super) fn commit() -> String {
    let commit = output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root()));
    commit.map_or("unknown".into(), |commit| commit.trim().to_owned())
}

/// Returns the number of functions in the output of `llvm-profdata show --all-functions --counts`, and the number of
/// functions that were executed.
fn functions(shown: &str) -> (u64, u64) {
    let (mut all, mut run) = (0, 0);
    for blocks in shown.lines().filter_map(|line| line.trim().strip_prefix("Block counts:")) {
        all += 1;
        run += u64::from(blocks.chars().any(|digit| ('1'..='9').contains(&digit)));
    }
    (all, run)
}

fn read(path: &Path) -> Option<MergedProfile> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn write(path: &Path, profile: &MergedProfile) -> Result<(), BuildError> {
    let text = serde_json::to_string_pretty(profile).map_err(|e| BuildError::new(e.to_string()))?;
    fs::write(path, text).map_err(|e| BuildError::new(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_ran_are_told_from_those_that_did_not() {
        let shown = "Counters:\n  main:\n    Hash: 0x1\n    Counters: 2\n    Block counts: [0, 7]\n  never:\n    \
                     Hash: 0x2\n    Counters: 1\n    Block counts: [0]\nTotal functions: 2\n";
        assert_eq!(functions(shown), (2, 1));
    }

    #[test]
    fn a_run_that_trains_may_say_what_is_usual_else() {
        for line in [
            "--seed 5 --mix payment --warehouses 9 --duration 3",
            "--seed=5 --mix payment  --warehouses=9 --duration 3",
        ] {
            let asked = words(line);
            assert_eq!(run_words(&asked).join(" "), "run --warmup 0 --check off --seed 5 --mix payment --duration 3");
            assert_eq!((value(&asked, "--warehouses"), value(&asked, "--workers")), (Some("9"), None));
        }
    }

    fn profile(functions: u64, path: PathBuf) -> MergedProfile {
        MergedProfile {
            key: "0".into(),
            commit: "abcdef".into(),
            settings: String::new(),
            training: vec!["--workers 1".into()],
            functions,
            functions_run: 1,
            path,
        }
    }

    #[test]
    fn a_profile_that_does_not_fit_a_build_is_told() {
        // Warnings in the wording of rustc 1.95.
        let unknown = "warning: tpcc.9a6c4b7c4a0f33e5-cgu.00: no profile data available for function f Hash = 7 up to 0 count \
                       discarded\n";
        let mismatch = "warning: tpcc.9a6c4b7c4a0f33e5-cgu.0: function control flow change detected (hash mismatch) f Hash = 1 \
                        up to 116 count discarded\n";
        let built = |warnings: String| BuildOutput { program: PathBuf::from("tpcc-a"), warnings };
        let profile = profile(40, PathBuf::from("a.profdata"));
        let few = built([unknown, mismatch].concat());
        assert_eq!(profile.check_fit(&few).unwrap(), ProfileFit { mismatches: 1, unknown: 1 });
        for many in [unknown.repeat(3), mismatch.repeat(3)] {
            let said = profile.check_fit(&built(many)).unwrap_err().to_string();
            assert!(said.contains("tpcc-a: the profile knows 40 functions"), "{said}");
        }
    }

    #[test]
    fn a_profile_of_other_sources_is_refused() {
        let directory = std::env::temp_dir().join(format!("xtask-profile-{}", std::process::id()));
        create_directory(&directory).unwrap();
        let path = directory.join("old.profdata");
        let compiler = Compiler { described: "rustc".into(), host: "here".into(), llvm: 1 };
        let named = || MergedProfile::named(&path, &Variant::default(), &compiler).unwrap_err().to_string();
        let said = named();
        assert!(said.contains("old.json") && said.contains("cargo xtask pgo"), "{said}");
        let old = profile(1, path.clone());
        write(&path.with_extension("json"), &old).unwrap();
        let said = named();
        assert!(said.contains("made from commit abcdef"), "{said}");
        write(&path.with_extension("json"), &MergedProfile { settings: "LTO=off".into(), ..old }).unwrap();
        let said = named();
        assert!(said.contains("made for another build") && said.contains("LTO=off"), "{said}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
