//! The same program built in several ways, held against each other: counted under Cachegrind, and timed in turn.
//!
//! What builds them is `cargo xtask pgo`, `bolt` and `ablate-build`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cachegrind::{self, Behind, Counts};
use super::lab::{Count, Lab, SEED, arguments};
use super::report::Spread;
use crate::footprint::geometry::Geometry;
use crate::interval::Ratio;
pub use tpcc_core::report::machine::available_memory_bytes;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::read_file;

/// Most bytes of a list of builds.
const MOST_LIST: u64 = 1 << 20;

/// A `tpcc` and how it was built.
#[derive(Clone, Debug)]
pub struct Build {
    /// Its name, once in a comparison.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Flags of `tpcc run` that this build is measured with, beyond those of the plan; none of them has a space in it.
    pub flags: String,
}

/// The builds that `cargo xtask ablate-build` has made, as it lists them in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Matrix {
    /// What they were made from: sources, compiler, training.
    pub key: String,
    /// The commit that was last found to have these sources.
    #[serde(default)]
    pub commit: String,
    /// The builds.
    pub builds: Vec<Listed>,
}

/// A build of the list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Flags of `tpcc run` that belong to it.
    pub flags: String,
    /// What the program says of itself.
    pub version: String,
    /// How it was built: settings, features, flags.
    #[serde(default)]
    pub how: String,
}

/// Name of the file with the list, beside the builds.
pub const LIST: &str = "builds.json";
/// The build with everything on.
pub const ALL: &str = "all";
/// Everything on but the layout of code.
pub const FEEDBACK: &str = "no grouping";
/// The same, with its blocks laid out anew; only where the tool for it is installed.
pub const LAID_OUT: &str = "blocks laid out anew";
/// Crates built in parts, without link-time optimisation.
pub const APART: &str = "no inlining across crates";
/// Every switch of a build off, and the engine in a shared object whose functions can be preempted.
pub const SHARED: &str = "engine in a shared object";
/// The same, with each call from the program to the engine through the procedure linkage table.
pub const SHARED_LAZY: &str = "engine in a shared object, lazy binding";
/// Everything on, its transactions in teams: what rows of the scheduler are held against.
pub const ALL_STEPS: &str = "all, in teams";
/// The plain release.
pub const PLAIN: &str = "plain release";
/// The build with everything off but profile feedback.
pub const ONLY_FEEDBACK: &str = "only feedback";
/// The build with everything off.
pub const NOTHING: &str = "nothing";
/// The same, with atomics ordered as they are proven: what users would have who turn every switch off.
pub const SWITCHED_OFF: &str = "nothing, orderings as proven";

impl Matrix {
    /// Reads a list.
    ///
    /// # Errors
    /// Of the file; a file that is no list, or has more than 1 MiB, is `InvalidData`.
    pub fn read(list: &Path) -> std::io::Result<Matrix> {
        Ok(serde_json::from_slice(&read_file(list, MOST_LIST, "a list of builds of 'cargo xtask ablate-build'")?)?)
    }

    /// Writes it.
    ///
    /// # Errors
    /// Of the file.
    pub fn write(&self, list: &Path) -> std::io::Result<()> {
        std::fs::write(list, serde_json::to_string_pretty(self)? + "\n")
    }

    /// The program of a build of this name that is there.
    pub fn program(&self, name: &str) -> Option<&Path> {
        let listed = self.builds.iter().find(|build| build.name == name)?;
        Some(listed.program.as_path()).filter(|program| program.is_file())
    }

    /// The program of a build that was built in this way and is there.
    pub fn program_of(&self, how: &str) -> Option<&Path> {
        self.builds.iter().filter(|build| build.how == how).map(|build| build.program.as_path()).find(|p| p.is_file())
    }

    /// Adds a build, in place of one of its name.
    pub fn add(&mut self, build: Listed) {
        match self.builds.iter_mut().find(|known| known.name == build.name) {
            Some(known) => *known = build,
            None => self.builds.push(build),
        }
    }
}

impl Listed {
    /// The build, to be compared.
    pub fn build(&self) -> Build {
        Build { name: self.name.clone(), program: self.program.clone(), flags: self.flags.clone() }
    }
}

/// How builds are compared.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Warehouses, all in memory.
    pub warehouses: u32,
    /// Threads.
    pub workers: u32,
    /// Flags of `tpcc run` for all builds.
    pub flags: &'static str,
    /// Rounds in which each build is timed once; none is timed where this is 0.
    pub rounds: usize,
    /// Seconds of a timing, after one of warm-up.
    pub seconds: u32,
    /// Whether transactions are counted under Cachegrind, which takes some seconds a build; on one worker, whatever
    /// `workers` says.
    pub counted: bool,
}

/// Counts of one transaction of the standard mix.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerTransaction {
    /// Instructions.
    pub instructions: f64,
    /// Misses of an instruction cache of 32 KiB in 8 ways.
    pub i1_misses: f64,
    /// Misses of a data cache of 32 KiB in 8 ways.
    pub d1_misses: f64,
    /// Branches that Cachegrind's predictor gets wrong.
    pub mispredictions: f64,
}

/// Throughput of a build.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Transactions a second: the mean over all rounds.
    pub per_second: f64,
    /// Throughput by that of the first build, over pairs of one round: of the sums, and the 95% interval of it.
    pub ratio: f64,
    /// Lower end of the interval.
    pub ratio_low: f64,
    /// Upper end of the interval.
    pub ratio_high: f64,
}

impl Timing {
    /// The ratio and its interval.
    pub fn spread(self) -> Spread {
        Spread { mid: self.ratio, low: self.ratio_low, high: self.ratio_high }
    }
}

/// What was found of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildFigures {
    /// Its name.
    pub name: String,
    /// Counts; none where nothing is counted.
    pub counted: Option<PerTransaction>,
    /// Throughput; none where nothing is timed.
    pub timed: Option<Timing>,
    /// Transactions a second, round by round.
    pub rates: Vec<f64>,
}

impl BuildFigures {
    /// Throughput by that of another build of the same comparison.
    pub fn against(&self, base: &BuildFigures) -> Option<Timing> {
        (!self.rates.is_empty() && self.rates.len() == base.rates.len()).then(|| {
            let Ratio { value, low, high } = Ratio::of(&self.rates, &base.rates);
            let per_second = self.rates.iter().sum::<f64>() / self.rates.len() as f64;
            Timing { per_second, ratio: value, ratio_low: low, ratio_high: high }
        })
    }
}

/// Transactions of the short and of the long counted run.
const LENGTHS: (u64, u64) = (2_000, 6_000);

/// Compares builds, the first of which is the base of all ratios. Databases lie in `data` and stay there; without it they
/// are temporary.
///
/// # Errors
/// What a program said that failed, or that the user has interrupted.
pub fn compare(builds: &[Build], how: Comparison, data: Option<&Path>) -> Result<Vec<BuildFigures>, String> {
    // The first build loads the databases of all.
    let program = builds.first().map(|build| build.program.clone()).ok_or("no build to compare")?;
    let mut lab = Lab::of(program, data, false).map_err(|e| e.to_string())?;
    compare_in(&mut lab, builds, how).map_err(|e| e.to_string())
}

/// As [`compare`], in a laboratory that is open.
pub fn compare_in(lab: &mut Lab, builds: &[Build], how: Comparison) -> Result<Vec<BuildFigures>, Error> {
    let counted = if how.counted { count(lab, builds, how)? } else { vec![None; builds.len()] };
    let rates = if how.rounds > 0 { time(lab, builds, how)? } else { vec![Vec::new(); builds.len()] };
    let mut measured: Vec<BuildFigures> = builds
        .iter()
        .zip(rates)
        .zip(counted)
        .map(|((build, rates), counted)| BuildFigures {
            name: build.name.clone(),
            counted: counted.as_ref().map(PerTransaction::of),
            timed: None,
            rates,
        })
        .collect();
    let base = measured.first().cloned();
    for build in &mut measured {
        build.timed = base.as_ref().and_then(|base| build.against(base));
    }
    Ok(measured)
}

impl PerTransaction {
    fn of(counts: &Counts) -> PerTransaction {
        PerTransaction {
            instructions: counts.instructions,
            i1_misses: counts.i1,
            d1_misses: counts.d1,
            mispredictions: counts.mispredicts,
        }
    }
}

/// Counts of each build; none where nothing can be counted, or where Cachegrind cannot run a build.
fn count(lab: &mut Lab, builds: &[Build], how: Comparison) -> Result<Vec<Option<Counts>>, Error> {
    if lab.uncountable.is_some() {
        return Ok(vec![None; builds.len()]);
    }
    lab.say(&format!("counting {} builds", builds.len()));
    let known: Vec<bool> = builds.iter().map(|build| cachegrind::knows_instructions_of(&build.program)).collect();
    let what: Vec<(&Path, Count)> = builds
        .iter()
        .zip(&known)
        .filter(|(build, known)| {
            if !**known {
                lab.say(&format!("{}: not counted, valgrind lacks an instruction of it", build.name));
            }
            **known
        })
        .map(|(build, _)| {
            let line = format!(
                "run --warehouses {} --workers 1 --warmup 0 --seed {SEED} --durability async --check off \
                 --background inline {} {}",
                how.warehouses, how.flags, build.flags
            );
            let count = Count {
                args: arguments(&line),
                length_flag: "--transactions",
                lengths: LENGTHS,
                each: 1.0,
                i1: Geometry::USUAL,
                behind: Behind::USUAL,
                warehouses: Some(how.warehouses),
            };
            (build.program.as_path(), count)
        })
        .collect();
    let mut counts = lab.count_programs(&what)?.unwrap_or_default().into_iter();
    Ok(known.into_iter().map(|known| if known { counts.next() } else { None }).collect())
}

/// Transactions a second of each build, round by round.
fn time(lab: &mut Lab, builds: &[Build], how: Comparison) -> Result<Vec<Vec<f64>>, Error> {
    let mut runs = Vec::new();
    for build in builds {
        let line =
            format!("--workers {} --warmup 1 --duration {} {} {}", how.workers, how.seconds, how.flags, build.flags);
        let args = lab.run_args(how.warehouses, how.warehouses, &line)?;
        runs.push((build.name.as_str(), build.program.as_path(), args));
    }
    let timings = lab.interleave_programs(how.rounds, &runs)?;
    Ok(builds.iter().map(|build| timings.rates(&build.name).to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_one_comparison_are_held_against_each_other_round_by_round() {
        let measured =
            |rates: &[f64]| BuildFigures { name: "any".into(), counted: None, timed: None, rates: rates.to_vec() };
        let (slow, fast) = (measured(&[10.0, 20.0, 30.0]), measured(&[11.0, 22.0, 33.0]));
        let timing = fast.against(&slow).unwrap();
        assert!((timing.ratio - 1.1).abs() < 1e-9 && (timing.ratio_low - 1.1).abs() < 1e-9, "{timing:?}");
        assert_eq!(timing.per_second, 22.0);
        assert_eq!(fast.against(&measured(&[])), None);
    }

    #[test]
    fn a_list_keeps_one_build_of_a_name_and_knows_those_that_are_gone() {
        let mut matrix = Matrix::default();
        let here = std::env::current_exe().unwrap();
        let listed = |program: &Path| Listed {
            name: ALL.into(),
            program: program.into(),
            flags: String::new(),
            version: String::new(),
            how: String::new(),
        };
        matrix.add(listed(&here));
        assert_eq!(matrix.program(ALL), Some(here.as_path()));
        matrix.add(listed(Path::new("/nowhere/tpcc")));
        assert_eq!((matrix.builds.len(), matrix.program(ALL)), (1, None));
    }
}
