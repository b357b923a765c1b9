//! Comparison of builds of the same program: counts under Cachegrind, and alternating timings.
//!
//! The builds are made by `cargo xtask pgo`, `bolt` and `ablate-build`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cachegrind::{self, Counts, DataCaches};
use super::lab::{CountSpec, Lab, SEED, arguments};
use super::report::Spread;
use crate::footprint::geometry::Geometry;
use crate::interval::Ratio;
pub use tpcc_core::report::machine::available_memory_bytes;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::read_file;

/// Maximum size of a file with a list of builds, in bytes.
const MOST_LIST: u64 = 1 << 20;

/// A build of `tpcc` that is compared with other builds.
#[derive(Clone, Debug)]
pub struct Build {
    /// Name, unique in a comparison.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Flags of `tpcc run` for this build, in addition to the flags of the comparison. No flag contains a space.
    pub flags: String,
}

/// List of the builds that `cargo xtask ablate-build` has made, as stored in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Matrix {
    /// Key of the inputs of the builds: sources, compiler, training.
    pub key: String,
    /// Last commit that was found to have the sources of the builds.
    #[serde(default)]
    pub commit: String,
    /// Builds of the list.
    pub builds: Vec<BuildEntry>,
}

/// A build in a stored list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildEntry {
    /// Name of the build.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Flags of `tpcc run` for this build.
    pub flags: String,
    /// Version, as reported by the program.
    pub version: String,
    /// Settings, features and flags of the build.
    #[serde(default)]
    pub how: String,
}

/// Name of the file with the list, in the directory of the builds.
pub const LIST: &str = "builds.json";
/// Name of the build with everything on.
pub const ALL: &str = "all";
/// Name of the build with everything on except the code layout.
pub const FEEDBACK: &str = "no grouping";
/// Name of the build [`FEEDBACK`] with its basic blocks laid out again. The build exists only if the layout tool is
/// installed.
pub const BOLT: &str = "blocks laid out anew";
/// Name of the build with crates in parts, without link-time optimisation.
pub const NO_LTO: &str = "no inlining across crates";
/// Name of the build with every switch off, and with the engine in a shared object whose functions can be preempted.
pub const SHARED: &str = "engine in a shared object";
/// Name of the build [`SHARED`] with each call from the program to the engine through the procedure linkage table.
pub const SHARED_LAZY: &str = "engine in a shared object, lazy binding";
/// Name of the build [`ALL`] with its transactions in teams: base of the rows of the scheduler.
pub const ALL_STEPS: &str = "all, in teams";
/// Name of the build with everything on and every atomic access sequentially consistent.
pub const SEQUENTIALLY_CONSISTENT: &str = "sequentially consistent";
/// Name of the plain release build.
pub const PLAIN: &str = "plain release";
/// Name of the build with everything off except profile feedback.
pub const ONLY_FEEDBACK: &str = "only feedback";
/// Name of the build with everything off.
pub const NOTHING: &str = "nothing";
/// Name of the build [`NOTHING`] with atomics ordered as proven: the build of a user who turns every switch off.
pub const SWITCHED_OFF: &str = "nothing, orderings as proven";

impl Matrix {
    /// Reads a list of builds from a file.
    ///
    /// # Errors
    /// Errors of the file. A file that is not a list, or has more than 1 MiB, is `InvalidData`.
    pub fn read(list: &Path) -> std::io::Result<Matrix> {
        Ok(serde_json::from_slice(&read_file(list, MOST_LIST, "a list of builds of 'cargo xtask ablate-build'")?)?)
    }

    /// Writes the list of builds to a file.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn write(&self, list: &Path) -> std::io::Result<()> {
        std::fs::write(list, serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns the program of the build with this name, if the file exists.
    pub fn program(&self, name: &str) -> Option<&Path> {
        let listed = self.builds.iter().find(|build| build.name == name)?;
        Some(listed.program.as_path()).filter(|program| program.is_file())
    }

    /// Returns the program of a build with these settings, if the file exists.
    pub fn program_of(&self, how: &str) -> Option<&Path> {
        self.builds.iter().filter(|build| build.how == how).map(|build| build.program.as_path()).find(|p| p.is_file())
    }

    /// Adds a build. Replaces a build of the same name.
    pub fn add(&mut self, build: BuildEntry) {
        match self.builds.iter_mut().find(|known| known.name == build.name) {
            Some(known) => *known = build,
            None => self.builds.push(build),
        }
    }
}

impl BuildEntry {
    /// Converts the entry to a build for a comparison.
    pub fn build(&self) -> Build {
        Build { name: self.name.clone(), program: self.program.clone(), flags: self.flags.clone() }
    }
}

/// Parameters of a comparison of builds.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Number of warehouses, all in memory.
    pub warehouses: u32,
    /// Number of worker threads.
    pub workers: u32,
    /// Flags of `tpcc run` for all builds.
    pub flags: &'static str,
    /// Number of rounds, in each of which every build is timed once; 0 for no timing.
    pub rounds: usize,
    /// Duration of a timing in seconds, after one second of warm-up.
    pub seconds: u32,
    /// If true, counts transactions under Cachegrind, which takes some seconds for each build. Counts always use one worker.
    pub counted: bool,
}

/// Counts per transaction of the standard mix.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerTransaction {
    /// Number of instructions per transaction.
    pub instructions: f64,
    /// Misses of an instruction cache of 32 KiB in 8 ways.
    pub i1_misses: f64,
    /// Misses of a data cache of 32 KiB in 8 ways.
    pub d1_misses: f64,
    /// Branches that Cachegrind's predictor mispredicts.
    pub mispredictions: f64,
}

/// Throughput of a build.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Mean transactions per second over all rounds.
    pub per_second: f64,
    /// Ratio of the throughput of this build to the throughput of the first build: ratio of the sums, with a 95% interval
    /// over pairs of one round.
    pub ratio: f64,
    /// Lower end of the 95% interval.
    pub ratio_low: f64,
    /// Upper end of the 95% interval.
    pub ratio_high: f64,
}

impl Timing {
    /// Returns the ratio of the throughputs with its interval.
    pub fn spread(self) -> Spread {
        Spread { mid: self.ratio, low: self.ratio_low, high: self.ratio_high }
    }
}

/// Results of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildFigures {
    /// Name of the build.
    pub name: String,
    /// Counts per transaction; `None` if the build was not counted.
    pub counted: Option<PerTransaction>,
    /// Throughput of the build; `None` if the build was not timed.
    pub timed: Option<Timing>,
    /// Transactions per second of each round.
    pub rates: Vec<f64>,
}

impl BuildFigures {
    /// Computes the throughput relative to another build of the same comparison.
    pub fn against(&self, base: &BuildFigures) -> Option<Timing> {
        (!self.rates.is_empty() && self.rates.len() == base.rates.len()).then(|| {
            let Ratio { value, low, high } = Ratio::of(&self.rates, &base.rates);
            let per_second = self.rates.iter().sum::<f64>() / self.rates.len() as f64;
            Timing { per_second, ratio: value, ratio_low: low, ratio_high: high }
        })
    }
}

/// Numbers of transactions of the short and of the long counted run.
const LENGTHS: (u64, u64) = (2_000, 6_000);

/// Compares builds, the first of which is the base of all ratios. Databases are kept in `data`; without it they are
/// temporary.
///
/// # Errors
/// The message of a program that failed, or that the user has interrupted the comparison.
pub fn compare(builds: &[Build], how: Comparison, data: Option<&Path>) -> Result<Vec<BuildFigures>, String> {
    // The first build loads the databases for all builds.
    let program = builds.first().map(|build| build.program.clone()).ok_or("no build to compare")?;
    let mut lab = Lab::of(program, data, false).map_err(|e| e.to_string())?;
    compare_in(&mut lab, builds, how).map_err(|e| e.to_string())
}

/// Like [`compare`], with an open laboratory.
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

/// Counts each build. An entry is `None` if nothing can be counted, or if Cachegrind cannot run the build.
fn count(lab: &mut Lab, builds: &[Build], how: Comparison) -> Result<Vec<Option<Counts>>, Error> {
    if lab.uncountable.is_some() {
        return Ok(vec![None; builds.len()]);
    }
    lab.say(&format!("counting {} builds", builds.len()));
    let known: Vec<bool> = builds.iter().map(|build| cachegrind::knows_instructions_of(&build.program)).collect();
    let what: Vec<(&Path, CountSpec)> = builds
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
            let count = CountSpec {
                args: arguments(&line),
                length_flag: "--transactions",
                lengths: LENGTHS,
                work_per_unit: 1.0,
                i1: Geometry::DEFAULT,
                data_caches: DataCaches::DEFAULT,
                warehouses: Some(how.warehouses),
            };
            (build.program.as_path(), count)
        })
        .collect();
    let mut counts = lab.count_programs(&what)?.unwrap_or_default().into_iter();
    Ok(known.into_iter().map(|known| if known { counts.next() } else { None }).collect())
}

/// Measures the transactions per second of each build in each round.
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
        let listed = |program: &Path| BuildEntry {
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
