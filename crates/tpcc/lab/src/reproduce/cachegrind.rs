//! Counts events with Cachegrind. The real binary runs at two lengths. The difference of the counts, divided by the
//! difference of the lengths, is the count of one transaction, because start-up cancels.
//!
//! Counts do not depend on the load of the machine, so that two programs may run at the same time.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::child;
use crate::footprint::geometry::Geometry;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::read_output;

/// Geometry of the simulated data cache, and of the cache behind both first-level caches: bytes, ways, bytes of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataCaches {
    /// Geometry of the first-level data cache.
    pub d1: &'static str,
    /// Geometry of the cache behind both first-level caches.
    pub ll: &'static str,
}

impl DataCaches {
    /// Default geometry for counts that concern the first level.
    pub const DEFAULT: DataCaches = DataCaches { d1: "32768,8,64", ll: "33554432,16,64" };
}

/// Counts of one unit of work, a transaction or an operation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Number of executed instructions.
    pub instructions: f64,
    /// Number of misses of the first-level instruction cache.
    pub i1: f64,
    /// Number of misses of the first-level data cache.
    pub d1: f64,
    /// Number of data reads.
    pub reads: f64,
    /// Number of data reads that miss the first level.
    pub d1_reads: f64,
    /// Number of data reads that also miss the cache behind the first level.
    pub ll_reads: f64,
    /// Number of instruction fetches that also miss the cache behind the first level.
    pub ll_fetches: f64,
    /// Number of branches, conditional and indirect.
    pub branches: f64,
    /// Number of branches that Cachegrind's predictor mispredicts.
    pub mispredicts: f64,
}

/// Totals of one run, keyed by Cachegrind's event names.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Totals(HashMap<String, f64>);

impl Totals {
    /// Creates the totals of named events. Events without a value did not occur.
    pub fn new(names: &[String], values: &[f64]) -> Totals {
        Totals(names.iter().cloned().zip(values.iter().copied()).collect())
    }

    /// Parses a file that Cachegrind wrote.
    fn of(text: &str) -> Option<Totals> {
        let words = |begin: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(begin))?;
            Some(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let (names, values) = (words("events:")?, words("summary:")?);
        let values: Vec<f64> = values.iter().map(|value| value.parse().ok()).collect::<Option<_>>()?;
        Some(Totals::new(&names, &values))
    }

    /// Computes the counts of one unit of work. `other` is a run with `units` more units than this run.
    pub fn per_unit(&self, other: &Totals, units: f64) -> Counts {
        let of = |names: &[&str]| {
            let sum =
                |totals: &Totals| names.iter().map(|name| totals.0.get(*name).copied().unwrap_or(0.0)).sum::<f64>();
            (sum(other) - sum(self)) / units
        };
        Counts {
            instructions: of(&["Ir"]),
            i1: of(&["I1mr"]),
            d1: of(&["D1mr", "D1mw"]),
            reads: of(&["Dr"]),
            d1_reads: of(&["D1mr"]),
            ll_reads: of(&["DLmr"]),
            ll_fetches: of(&["ILmr"]),
            branches: of(&["Bc", "Bi"]),
            mispredicts: of(&["Bcm", "Bim"]),
        }
    }
}

/// Returns the reason why nothing can be counted on this machine; `None` if counts are possible.
pub fn unavailable() -> Option<String> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("valgrind does not work: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(_) => Some("valgrind is not installed, and only it can count misses here".to_owned()),
    }
}

/// Returns true if Valgrind knows the instructions of a program. A program built for this processor may use newer
/// instructions, which Valgrind lacks.
pub fn knows_instructions_of(program: &Path) -> bool {
    let mut valgrind = Command::new("valgrind");
    let told = valgrind.args(["--quiet", "--tool=none"]).arg(program).arg("--version").output();
    told.is_ok_and(|told| told.status.success())
}

/// Runs a program under Cachegrind and reads the totals. Temporary files are in `scratch`.
pub fn totals(
    program: &Path,
    args: &[String],
    i1: Geometry,
    data_caches: DataCaches,
    scratch: &Path,
) -> Result<Totals, Error> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = scratch.join(format!("cachegrind-{number}.out"));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes"])
        .arg(format!("--I1={i1}"))
        .args([format!("--D1={}", data_caches.d1), format!("--LL={}", data_caches.ll)])
        .arg(format!("--cachegrind-out-file={}", file.display()))
        .arg(program)
        .args(args);
    let ended = child::run(&mut command, scratch)?;
    let text = read_output(&file);
    let _ = std::fs::remove_file(&file);
    match Totals::of(&text) {
        Some(totals) if ended.status.success() => Ok(totals),
        _ => Err(Error::failed(format!("cachegrind: tpcc {}: {}", args.join(" "), ended.last_lines()))),
    }
}

/// Returns the share of `before` that is saved: 0.9 if `after` is a tenth of `before`. `None` if `before` is not positive.
pub fn saved_share(before: f64, after: f64) -> Option<f64> {
    (before > 0.0).then(|| 1.0 - after / before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_valgrind_cannot_run_is_told_apart() {
        if unavailable().is_some() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("tpcc-cachegrind-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (sound, unknown) = (directory.join("sound"), directory.join("unknown"));
        // A process that executes an unknown instruction ends with SIGILL.
        for (program, does) in [(&sound, "exit 0"), (&unknown, "kill -ILL $$")] {
            std::fs::write(program, format!("#!/bin/sh\n{does}\n")).unwrap();
            std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        assert!(knows_instructions_of(&sound));
        assert!(!knows_instructions_of(&unknown));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn totals_are_read_and_subtracted() {
        let short = "desc: I1 cache: 32768 B\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim\nfn=f\n1 2 3\n\
                     summary: 1000 10 1 300 20 2 200 5 1 100 8 10 2\n";
        let long = short.replace("1000 10", "5000 90").replace("300 20", "300 60").replace("100 8", "180 12");
        let (short, long) = (Totals::of(short).unwrap(), Totals::of(&long).unwrap());
        let counts = short.per_unit(&long, 40.0);
        let expected = Counts {
            instructions: 100.0,
            i1: 2.0,
            d1: 1.0,
            d1_reads: 1.0,
            branches: 2.0,
            mispredicts: 0.1,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
        assert_eq!(Totals::of("events: Ir\n"), None, "a run that was killed has no summary");
    }

    #[test]
    fn what_is_saved_of_nothing_is_nothing() {
        assert_eq!((saved_share(100.0, 10.0), saved_share(0.0, 0.0)), (Some(0.9), None));
    }
}
