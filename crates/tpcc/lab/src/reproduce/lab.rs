//! Tools of experiments: databases of given sizes, runs of this program, event counts and interleaved timings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::cachegrind::{self, Counts, DataCaches, Totals};
use super::child;
use super::directory::{self, Directory};
use super::report::Spread;
use super::{Experiment, in_minutes};
use crate::footprint::geometry::Geometry;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::reading::{MAX_RESULT_BYTES, read_file};
use tpcc_core::workload::streams::say;
use tpcc_core::workload::threads;

/// Seed of databases and of counted runs, so that counts are reproducible.
pub const SEED: u64 = 2004;

/// Growth of a database, in MiB, for which a timed run needs room in the buffer pool: two workers write this much in about
/// ten seconds.
const GROWTH_MIB: u64 = 640;

/// Returns the MiB of buffer pool for a number of warehouses. The whole database fits, even after runs: before a run, a
/// database is smaller than the pool by at least [`GROWTH_MIB`].
fn pool_mib(warehouses: u32) -> u64 {
    256 + GROWTH_MIB + 200 * u64::from(warehouses)
}

/// Laboratory: databases, counts and results that experiments share.
#[derive(Debug)]
pub struct Lab {
    directory: Directory,
    program: PathBuf,
    /// True for short experiments.
    pub quick: bool,
    /// True if missing builds may be made, which takes some minutes each.
    pub builds: bool,
    /// Reason why nothing can be counted; `None` if counts are possible.
    pub uncountable: Option<String>,
    /// Directories of loaded databases, keyed by number of warehouses and by a flag. A flag of `true` means that nothing
    /// runs on the database: counted runs begin with a copy of it.
    databases: HashMap<(u32, bool), PathBuf>,
    /// Results of counted runs, which experiments share.
    counted: HashMap<String, Counts>,
    /// Results of runs that several experiments use.
    runs: HashMap<String, Value>,
    started: std::time::Instant,
}

/// A program to count: its arguments without the number of units of work, and two numbers of units.
#[derive(Clone, Debug)]
pub struct CountSpec {
    /// Arguments before the flag that takes the number.
    pub args: Vec<String>,
    /// Flag that takes the number.
    pub length_flag: &'static str,
    /// Numbers of units of the short and of the long run.
    pub lengths: (u64, u64),
    /// Number of units of work for each unit of the flag's number.
    pub work_per_unit: f64,
    /// Geometry of the instruction cache.
    pub i1: Geometry,
    /// Geometry of the data cache, and of the cache behind both first-level caches.
    pub data_caches: DataCaches,
    /// Number of warehouses of the program's database; `None` if the program has its own data.
    pub warehouses: Option<u32>,
}

impl Lab {
    /// Opens a laboratory. `data` is the directory that the user names, if any.
    pub fn open(data: Option<&Path>, quick: bool) -> Result<Lab, Error> {
        let program = std::env::current_exe()
            .map_err(|e| Error::failed(format!("this program's own file cannot be found: {e}")))?;
        Lab::of(program, data, quick)
    }

    /// Like [`Lab::open`], with `program` as the `tpcc` for all runs that do not name another build.
    pub fn of(program: PathBuf, data: Option<&Path>, quick: bool) -> Result<Lab, Error> {
        Ok(Lab {
            directory: Directory::open(data)?,
            program,
            quick,
            builds: true,
            uncountable: cachegrind::unavailable(),
            databases: HashMap::new(),
            counted: HashMap::new(),
            runs: HashMap::new(),
            started: std::time::Instant::now(),
        })
    }

    /// Returns the directory for temporary files.
    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the `tpcc` for runs that do not name another build.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Reports the current activity, with the time since the start.
    pub fn say(&self, what: &str) {
        say(format_args!("{:5.0} s  {what}", self.started.elapsed().as_secs_f64()));
    }

    /// Reports the start of an experiment.
    pub fn announce(&self, experiment: &Experiment) {
        let minutes = if self.quick { experiment.minutes.1 } else { experiment.minutes.0 };
        self.say(&format!("{}: {}, about {}", experiment.id, experiment.title, in_minutes(minutes)));
    }

    /// Runs `tpcc ARGS --json FILE` and reads the file.
    pub fn tpcc(&mut self, args: &[String]) -> Result<Value, Error> {
        self.run(&self.program.clone(), args)
    }

    /// Runs `PROGRAM ARGS --json FILE`, with a `tpcc` as the program, and reads the file. A database of the laboratory is
    /// renewed first if it has no room for the data that the run adds.
    pub fn run(&mut self, program: &Path, args: &[String]) -> Result<Value, Error> {
        self.renew_if_full(args)?;
        let file = self.scratch().join("run.json");
        let mut command = Command::new(program);
        let ended = child::run(command.args(args).arg("--json").arg(&file), self.scratch())?;
        let said = |why: &str| Error::failed(format!("tpcc {}: {why}", args.join(" ")));
        if !ended.status.success() {
            return Err(said(&ended.last_lines()));
        }
        let text = read_file(&file, MAX_RESULT_BYTES, "what 'tpcc --json' wrote");
        let _ = std::fs::remove_file(&file);
        let text = text.map_err(|e| said(&format!("wrote no JSON: {e}")))?;
        serde_json::from_slice(&text).map_err(|e| said(&format!("wrote no JSON: {e}")))
    }

    /// Returns the result that another experiment has stored under this name.
    pub fn stored_result(&self, name: &str) -> Option<Value> {
        self.runs.get(name).cloned()
    }

    /// Stores the result of a run for the experiments that follow.
    pub fn store_result(&mut self, name: String, run: Value) {
        self.runs.insert(name, run);
    }

    /// Returns the directory of a database with `warehouses` warehouses. Loads the database at the first call.
    pub fn database(&mut self, warehouses: u32) -> Result<PathBuf, Error> {
        self.find_or_load_database(warehouses, false)
    }

    /// Returns the directory of a database with `warehouses` warehouses on which nothing runs. Counted runs begin with a
    /// copy of this database.
    pub fn untouched(&mut self, warehouses: u32) -> Result<PathBuf, Error> {
        self.find_or_load_database(warehouses, true)
    }

    fn find_or_load_database(&mut self, warehouses: u32, is_untouched: bool) -> Result<PathBuf, Error> {
        if let Some(path) = self.databases.get(&(warehouses, is_untouched)) {
            return Ok(path.clone());
        }
        let untouched = if is_untouched { "-untouched" } else { "" };
        let path = self.directory.path().join(format!("warehouses-{warehouses}{untouched}"));
        if !path.join("control").exists() {
            self.say(&format!("loading {warehouses} warehouses"));
            // An interrupted load leaves files that look like a database: only a complete one gets the final name.
            let part = path.with_extension("part");
            directory::remove(&part)?;
            self.tpcc(&arguments_with_path(&format!("load --warehouses {warehouses} --seed {SEED} --data"), &part))?;
            std::fs::rename(&part, &path).map_err(|e| {
                Error::failed(format!("{}: cannot be renamed to {}: {e}", part.display(), path.display()))
                    .help("name another directory with --data")
            })?;
        }
        self.databases.insert((warehouses, is_untouched), path.clone());
        Ok(path)
    }

    /// Replaces a database by a copy of the loaded one if earlier runs have filled it so far that it may outgrow its pool.
    /// Otherwise later runs would read and evict pages.
    fn renew_if_full(&mut self, args: &[String]) -> Result<(), Error> {
        let used = self.databases.iter().find(|((_, is_untouched), path)| {
            !is_untouched && args.iter().any(|word| Path::new(word) == path.as_path())
        });
        let Some((&(warehouses, _), path)) = used else { return Ok(()) };
        let path = path.clone();
        if directory::pages_mib(&path)? + GROWTH_MIB <= pool_mib(warehouses) {
            return Ok(());
        }
        self.say(&format!("copying {warehouses} warehouses anew: runs have filled the database"));
        let untouched = self.untouched(warehouses)?;
        directory::copy(&untouched, &path)?;
        directory::sync(&path)
    }

    /// Returns the arguments of a run on `of` warehouses of a database with `loaded` warehouses. All data fits in memory.
    pub fn run_args(&mut self, loaded: u32, of: u32, how: &str) -> Result<Vec<String>, Error> {
        let data = self.database(loaded)?;
        let pool = pool_mib(loaded);
        let begin = format!(
            "run --warehouses {of} --durability async --buffer-pool {pool} --check off --seed {SEED} {how} --data"
        );
        Ok(arguments_with_path(&begin, &data))
    }

    /// Counts each program of `what`, two at the same time if there are two cores. Returns `None` if nothing can be counted.
    pub fn count(&mut self, what: &[CountSpec]) -> Result<Option<Vec<Counts>>, Error> {
        let program = self.program.clone();
        let what: Vec<(&Path, CountSpec)> = what.iter().map(|count| (program.as_path(), count.clone())).collect();
        self.count_programs(&what)
    }

    /// Like [`Lab::count`], with a separate `tpcc` for each count.
    pub fn count_programs(&mut self, what: &[(&Path, CountSpec)]) -> Result<Option<Vec<Counts>>, Error> {
        if self.uncountable.is_some() {
            return Ok(None);
        }
        let mut runs = Vec::new();
        for (number, (program, count)) in what.iter().enumerate() {
            if !self.counted.contains_key(&key(program, count)) {
                runs.push((number, count.lengths.0));
                runs.push((number, count.lengths.1));
            }
        }
        let lanes = std::thread::available_parallelism().map_or(1, usize::from).min(2);
        let mut arguments = Vec::new();
        for (place, (number, length)) in runs.iter().enumerate() {
            let (program, count) = &what[*number];
            let mut args = count.args.clone();
            args.extend([count.length_flag.to_owned(), length.to_string()]);
            let mut data = None;
            if let Some(warehouses) = count.warehouses {
                let own = self.directory.path().join(format!("counted-{}", place % lanes));
                args.extend(["--data".to_owned(), own.display().to_string()]);
                data = Some((self.find_or_load_database(warehouses, true)?, own));
            }
            arguments.push((*program, args, (count.i1, count.data_caches), data));
        }
        let scratch = self.directory.path();
        let lane = |lane: usize| {
            let mine = arguments.iter().enumerate().skip(lane).step_by(lanes);
            mine.map(|(place, (program, args, (i1, data_caches), data))| {
                // The cost of opening a database depends on its history: each run begins with the same copy.
                if let Some((untouched, own)) = data {
                    directory::copy(untouched, own)?;
                }
                let totals = cachegrind::totals(program, args, *i1, *data_caches, scratch)?;
                Ok((place, totals))
            })
            .collect::<Result<Vec<(usize, Totals)>, Error>>()
        };
        let found: Result<Vec<_>, Error> = std::thread::scope(|scope| {
            let others = threads::spawn_all(scope, "lane", (1..lanes).map(|number| move || lane(number)))?;
            let mut all = lane(0)?;
            for other in others {
                all.extend(
                    other.join().map_err(|_| Error::failed("a thread panicked; this is a fault of the program"))??,
                );
            }
            Ok(all)
        });
        let mut found = found?;
        for (_, own) in arguments.iter().filter_map(|(_, _, _, data)| data.as_ref()) {
            let _ = std::fs::remove_dir_all(own);
        }
        found.sort_by_key(|(place, _)| *place);
        for (pair, totals) in runs.chunks(2).zip(found.chunks(2)) {
            let ([(number, short), (_, long)], [(_, before), (_, after)]) = (pair, totals) else { continue };
            let (program, count) = &what[*number];
            self.counted
                .insert(key(program, count), before.per_unit(after, (long - short) as f64 * count.work_per_unit));
        }
        let counted = |(program, count): &(&Path, CountSpec)| self.counted.get(&key(program, count)).copied();
        Ok(Some(what.iter().filter_map(counted).collect()))
    }

    /// Runs each of `runs` in turn, `rounds` times, and measures its transactions per second.
    pub fn interleave(&mut self, rounds: usize, runs: &[(&str, Vec<String>)]) -> Result<Timings, Error> {
        let program = self.program.clone();
        let runs: Vec<_> = runs.iter().map(|(label, args)| (*label, program.as_path(), args.clone())).collect();
        self.interleave_programs(rounds, &runs)
    }

    /// Like [`Lab::interleave`], with a separate `tpcc` for each run.
    pub fn interleave_programs(
        &mut self,
        rounds: usize,
        runs: &[(&str, &Path, Vec<String>)],
    ) -> Result<Timings, Error> {
        let mut found = Timings::default();
        for round in 1..=rounds {
            for (label, program, args) in runs {
                self.say(&format!("timing {label}, round {round} of {rounds}"));
                let json = self.run(program, args)?;
                if interrupt::requested() {
                    return Err(child::interrupted());
                }
                let rate = json["throughput_per_s"].as_f64().unwrap_or(f64::NAN);
                found.rates.entry((*label).to_owned()).or_default().push(rate);
                if let Some(evicted) = json["pool"]["evictions"].as_u64().filter(|n| *n > 0) {
                    self.say(&format!("{label} evicted {evicted} pages: the database did not lie in memory whole"));
                }
                if let Some(us) = json["transactions"]["new-order"]["response_p99_us"].as_f64() {
                    found.responses.entry((*label).to_owned()).or_default().push(us);
                }
            }
        }
        Ok(found)
    }
}

/// Splits a command line into arguments, and adds a path as the last one.
pub fn arguments_with_path(text: &str, path: &Path) -> Vec<String> {
    arguments(text).into_iter().chain([path.display().to_string()]).collect()
}

/// Splits a command line into arguments, none of which contains a space.
pub fn arguments(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn key(program: &Path, count: &CountSpec) -> String {
    let CountSpec { args, lengths, i1, data_caches, warehouses, .. } = count;
    format!("{} {} {lengths:?} {i1} {data_caches:?} {warehouses:?}", program.display(), args.join(" "))
}

/// Results of interleaved runs: for each label, a value for each round.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// Transactions per second of each round, keyed by label.
    rates: HashMap<String, Vec<f64>>,
    /// 99th percentile of New-Order response times of each round, in microseconds, keyed by label. A response time begins
    /// with the request of the terminal.
    responses: HashMap<String, Vec<f64>>,
}

impl Timings {
    /// Returns the median and the range of the transactions per second.
    pub fn rate(&self, label: &str) -> Option<Spread> {
        Spread::of(self.rates.get(label)?.iter().copied())
    }

    /// Returns the transactions per second of each round.
    pub fn rates(&self, label: &str) -> &[f64] {
        self.rates.get(label).map_or(&[], Vec::as_slice)
    }

    /// Returns the median and the range of the 99th percentile of New-Order response times, in microseconds; `None` without
    /// New-Orders.
    pub fn response_p99(&self, label: &str) -> Option<Spread> {
        Spread::of(self.responses.get(label)?.iter().copied())
    }

    /// Returns the throughput of `a` relative to `b`, paired by round.
    pub fn ratio(&self, a: &str, b: &str) -> Option<Spread> {
        Spread::of(self.rates.get(a)?.iter().zip(self.rates.get(b)?).map(|(a, b)| a / b))
    }

    /// Adds the results of another series of runs.
    pub fn extend(&mut self, other: Timings) {
        for (all, more) in [(&mut self.rates, other.rates), (&mut self.responses, other.responses)] {
            for (label, values) in more {
                all.entry(label).or_default().extend(values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_runs_have_filled_is_copied_anew() {
        let here = std::env::temp_dir().join(format!("tpcc-lab-{}", std::process::id()));
        let databases = ["warehouses-1", "warehouses-1-untouched"].map(|name| here.join(name));
        let pages = |database: &Path, mib: u64| {
            std::fs::create_dir_all(database).unwrap();
            std::fs::write(database.join("control"), "").unwrap();
            // A sparse file takes no disk space.
            std::fs::File::create(database.join("pages.0")).unwrap().set_len(mib << 20).unwrap();
        };
        pages(&databases[1], 100);
        let mut lab = Lab::open(Some(&here), true).unwrap();
        for (mib, then) in [(pool_mib(1) - GROWTH_MIB, pool_mib(1) - GROWTH_MIB), (pool_mib(1), 100)] {
            pages(&databases[0], mib);
            let args = lab.run_args(1, 1, "--workers 1").unwrap();
            // The start of a run renews the database, even if the run fails.
            let said = lab.run(Path::new("true"), &args).unwrap_err().to_string();
            assert!(said.contains("wrote no JSON"), "{said}");
            assert_eq!(directory::pages_mib(&databases[0]).unwrap(), then, "of {mib} MiB");
        }
        std::fs::remove_dir_all(&here).unwrap();
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let timings = |a: &[f64], b: &[f64]| Timings {
            rates: HashMap::from([("a".to_owned(), a.to_vec()), ("b".to_owned(), b.to_vec())]),
            responses: HashMap::from([("a".to_owned(), a.to_vec())]),
        };
        let mut all = timings(&[20.0, 30.0], &[10.0, 10.0]);
        all.extend(timings(&[10.0], &[10.0]));
        assert_eq!(all.ratio("a", "b"), Some(Spread { mid: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(all.rate("b"), Some(Spread::exact(10.0)));
        assert_eq!(all.ratio("a", "c"), None);
        assert_eq!(all.response_p99("a").map(|p99| p99.mid), Some(20.0));
        assert_eq!(all.response_p99("b"), None);
    }
}
