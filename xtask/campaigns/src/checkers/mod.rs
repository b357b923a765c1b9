//! Commands that check concurrency and memory safety with special tools: loom, shuttle, Miri, and the sanitizers.
//!
//! Each tool builds `storage` with flags of its own, in a directory of its own below `target/`. Shuttle, Miri and the
//! sanitizers also build `speculate`. Miri and AddressSanitizer also build `sched-steps`. Miri also builds `itas`.

mod tally;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::{Args, ValueEnum};

use self::tally::Tally;
use crate::record::{RecordFlag, RunRecord};

/// Target of sanitizer builds. No other target is supported.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Cargo arguments of the build profile: optimised, with debug assertions, compiled in parallel.
const PROFILE: [&str; 2] = ["--profile", "torture"];

/// Name filters of the multithreaded tests of `storage`. Timing tests are excluded, because their results are meaningless
/// under a sanitizer.
const CONCURRENT: [&str; 5] = ["threads", "stress", "exclusive_is_exclusive", "lock::tests::deadlocks", "log::tests"];

/// Name filters of the tests for Miri: page, codec, and the modules with unsafe code and sufficiently short tests. Each list is
/// one run, of about equal duration.
const FOR_MIRI: [&[&str]; 2] =
    [&["page::", "table::codec", "log::record", "log::ring", "base::", "buffer::arena"], &["latch::", "lock::tests"]];

/// Name filters of the tests that Miri cannot run, or that take several minutes or more under Miri.
const NOT_FOR_MIRI: [&str; 7] = [
    "timing",
    "base::lane",
    "lock::tests::fibers",
    "lock::tests::stress",
    "::every_",
    "many_writes_become_one_table_lock",
    "reads_under_ix_escalate",
];

/// Name filters of the tests of `itas` that take several minutes or more under Miri, and of one test whose panics leak their
/// payloads on purpose.
const NOT_FOR_MIRI_OF_ITAS: [&str; 3] = ["simulate", "without_end", "a_helper_outlives"];

/// Name filters of the tests of `speculate` that leak on purpose (payloads that panic, names of places), and of one that takes
/// several minutes under Miri.
const NOT_FOR_MIRI_OF_SPECULATE: [&str; 3] =
    ["however_many_payloads_panic", "a_place_is_read_as_a_profile_prints_it", "no_loop_is_quicker"];

/// Flags of `cargo xtask loom`.
#[derive(Debug, Args)]
pub struct Loom {
    /// Runs only tests with this text in their names.
    #[arg(default_value = "loom_")]
    filter: String,
    #[command(flatten)]
    record: RecordFlag,
}

/// Flags of `cargo xtask shuttle`.
#[derive(Debug, Args)]
pub struct Shuttle {
    /// Runs only tests with this text in their names.
    #[arg(default_value = "shuttle_")]
    filter: String,
    /// Number of schedules of each test.
    #[arg(long, default_value_t = 1000)]
    iterations: u32,
    /// Seed of the schedules. The default is a random seed, which is printed on failure.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    record: RecordFlag,
}

/// Flags of `cargo xtask miri`.
#[derive(Debug, Args)]
pub struct Miri {
    /// Runs only tests with this text in their names, instead of the default selection.
    filter: Option<String>,
    #[command(flatten)]
    record: RecordFlag,
}

/// Flags of `cargo xtask sanitize`.
#[derive(Debug, Args)]
pub struct Sanitize {
    /// Sanitizer to use.
    #[arg(value_enum, default_value = "thread")]
    sanitizer: Sanitizer,
    /// Duration of the TPC-C mix after the tests, in seconds.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    #[command(flatten)]
    record: RecordFlag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sanitizer {
    /// Detects data races.
    Thread,
    /// Detects accesses to memory that is not allocated.
    Address,
}

impl fmt::Display for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sanitizer::Thread => "thread",
            Sanitizer::Address => "address",
        })
    }
}

/// Runs the loom models in every interleaving. Fails unless at least one test ran and all tests passed.
pub fn loom(flags: &Loom) -> ExitCode {
    let mut loom = cargo(None, "loom", "--cfg loom");
    loom.args(["test", "--package", "lockstep-storage", "--lib"]).args(PROFILE).arg(&flags.filter);
    run_tests("loom", &flags.record, RunRecord::default(), |tests| {
        *tests += Tally::of(&mut loom)?;
        Ok(())
    })
}

/// Runs the shuttle models with random schedules. Fails unless at least one test ran and all tests passed.
pub fn shuttle(flags: &Shuttle) -> ExitCode {
    let models = |of: &[&str]| {
        let mut cargo = cargo(None, "shuttle", "--cfg shuttle");
        cargo.arg("test").args(of).args(PROFILE).arg(&flags.filter);
        cargo.env("LOCKSTEP_SHUTTLE_ITERATIONS", flags.iterations.to_string());
        if let Some(seed) = flags.seed {
            cargo.env("SHUTTLE_RANDOM_SEED", seed.to_string());
        }
        Tally::of(&mut cargo)
    };
    let run = RunRecord {
        flags: format!("--iterations {}", flags.iterations),
        seed: flags.seed,
        remark: "with the mutants of speculate that its models have to find".into(),
        ..RunRecord::default()
    };
    run_tests("shuttle", &flags.record, run, |tests| {
        *tests += models(&["--package", "lockstep-storage", "--lib"])?;
        *tests += models(&[
            "--package",
            "lockstep-speculate",
            "--test",
            "models",
            "--features",
            "lockstep-speculate/mutants",
        ])?;
        Ok(())
    })
}

/// Runs the selected tests under Miri. Fails unless at least one test ran and all tests passed.
pub fn miri(flags: &Miri) -> ExitCode {
    if !succeeds(cargo(Some("nightly"), "miri", "").args(["miri", "--version"])) {
        eprintln!("Miri is missing: rustup toolchain install nightly --component miri,rust-src");
        return ExitCode::FAILURE;
    }
    let storage = |filters: &[&str]| {
        let mut storage = under_miri("lockstep-storage", &["--lib"]);
        skip(storage.args(filters), &NOT_FOR_MIRI);
        storage
    };
    let commands = match &flags.filter {
        Some(filter) => vec![storage(&[filter])],
        None => {
            let mut all: Vec<Command> = FOR_MIRI.iter().map(|filters| storage(filters)).collect();
            all.extend([fibers_under_miri(), scheduler_under_miri(), speculation_under_miri()]);
            all
        }
    };
    let run = RunRecord { flags: flags.filter.clone().unwrap_or_default(), ..RunRecord::default() };
    run_tests("miri", &flags.record, run, |tests| {
        *tests += Tally::of_all(commands)?;
        Ok(())
    })
}

/// Returns the Miri command for the tests of fibers. Under Miri, fibers are threads that pass a baton. Miri randomly
/// preempts a thread between the release of the baton and the wait for it.
fn fibers_under_miri() -> Command {
    let mut fibers = cargo(Some("nightly"), "miri", "");
    fibers.args(["miri", "test", "--package", "sched-steps", "--lib", "--tests"]);
    with_miri_flags(&mut fibers, "-Zmiri-disable-isolation -Zmiri-preemption-rate=0.2 -Zmiri-many-seeds=0..4");
    fibers
}

/// Returns the Miri command for the scheduler `itas`: its unit tests, and its simulations in virtual time.
fn scheduler_under_miri() -> Command {
    let mut itas = under_miri("itas", &["--lib", "--test", "rules"]);
    skip(&mut itas, &NOT_FOR_MIRI_OF_ITAS);
    itas
}

/// Returns the Miri command for the unit tests of `speculate`.
fn speculation_under_miri() -> Command {
    let mut speculate = under_miri("lockstep-speculate", &["--lib"]);
    skip(&mut speculate, &NOT_FOR_MIRI_OF_SPECULATE);
    speculate
}

/// Returns the Miri command for the selected tests of a package.
fn under_miri(package: &str, of: &[&str]) -> Command {
    let mut cargo = cargo(Some("nightly"), "miri", "");
    cargo.args(["miri", "test", "--package", package]).args(of).arg("--");
    // Miri's isolation is off, because tests of the lock table and idle threads read the clock.
    with_miri_flags(&mut cargo, "-Zmiri-disable-isolation");
    cargo
}

/// Number of cases of a property test under Miri, for properties that set no number themselves. The default, 256, takes Miri
/// more than half an hour.
const CASES_UNDER_MIRI: &str = "4";

/// Sets Miri's flags. Panics print no backtrace, which would take Miri minutes in tests that panic.
fn with_miri_flags(cargo: &mut Command, flags: &str) {
    cargo.env("MIRIFLAGS", flags).env("RUST_BACKTRACE", "0").env("PROPTEST_CASES", CASES_UNDER_MIRI);
}

fn skip(tests: &mut Command, names: &[&str]) {
    for name in names {
        tests.args(["--skip", name]);
    }
}

/// Runs tests and the TPC-C mix under a sanitizer. Fails unless at least one test ran and all tests passed.
pub fn sanitize(flags: &Sanitize) -> ExitCode {
    let mut run =
        RunRecord { flags: format!("{} --seconds {}", flags.sanitizer, flags.seconds), ..RunRecord::default() };
    if flags.seconds > 0 {
        run.remark = "tests and, if they pass, the mix on 4 workers as one more".into();
    }
    run_tests("sanitize", &flags.record, run, |tests| run_sanitized(flags, tests))
}

/// Runs the multithreaded tests, then the TPC-C mix with a buffer pool that is smaller than the data.
fn run_sanitized(flags: &Sanitize, tests: &mut Tally) -> Result<(), String> {
    // Optimistic reads of pages race by design: see the module documentation of storage's `page::access`. ThreadSanitizer
    // would report each of these reads, so its readers use shared latches. AddressSanitizer runs the optimistic readers.
    // ThreadSanitizer does not support fences; loom checks the code that depends on them (latch, log). Without
    // `die_after_fork` it ends the child of a fork, in a test of forks, when the child begins a thread.
    let (options, readers) = match flags.sanitizer {
        Sanitizer::Thread => {
            (("TSAN_OPTIONS", "halt_on_error=1 second_deadlock_stack=1 die_after_fork=0"), " --cfg race_free")
        }
        // Crash tests leak databases on purpose, as a crash does, so leak detection is off.
        Sanitizer::Address => (("ASAN_OPTIONS", "detect_leaks=0"), ""),
    };
    let name = flags.sanitizer;
    let sysroot = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output().map_err(|e| e.to_string())?;
    let library = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim()).join("lib/rustlib/src/rust/library");
    if !sysroot.status.success() || !library.is_dir() {
        // Without an instrumented standard library, ThreadSanitizer misses half of all synchronisation operations.
        return Err(
            "the nightly toolchain or its sources are missing: rustup toolchain install nightly --component rust-src"
                .into(),
        );
    }
    let rustflags = format!("-Zsanitizer={name}{readers}");
    let build = |verb: &str| {
        let mut cargo = cargo(Some("nightly"), &format!("sanitize/{name}"), &rustflags);
        cargo.args([verb, "-Zbuild-std", "--target", TARGET]).args(PROFILE);
        cargo.env(options.0, options.1);
        cargo
    };
    let mut test = |command: &mut Command| {
        *tests += Tally::of(command)?;
        Ok::<(), String>(())
    };
    test(
        build("test")
            .args(["--package", "lockstep-storage", "--lib", "--"])
            .args(CONCURRENT)
            .args(["--skip", "timing"]),
    )?;
    test(build("test").args([
        "--package",
        "lockstep-storage",
        "--test",
        "concurrency",
        "--",
        "isolation::",
        "eviction::",
    ]))?;
    test(build("test").args(["--package", "lockstep-speculate", "--lib", "--tests"]))?;
    // ThreadSanitizer has no information about switches between fibers.
    if flags.sanitizer == Sanitizer::Address {
        test(build("test").args(["--package", "sched-steps", "--features", "asan,testing", "--lib", "--tests"]))?;
    }
    if flags.seconds == 0 || tests.failed_runs > 0 {
        return Ok(());
    }
    if !succeeds(build("build").args(["--package", "tpcc"])) {
        return Err("the build of tpcc failed".into());
    }
    let directory = target(&format!("sanitize/{name}"));
    let data = directory.join("load");
    // Removes the files of an earlier run. There may be none, so an error is ignored.
    let _ = std::fs::remove_dir_all(&data);
    let load = Command::new(directory.join(TARGET).join("torture/tpcc"))
        .args(["run", "--warmup", "0", "--buffer-pool", "48", "--checkpoint-mib", "64", "--workers", "4"])
        .args(["--duration", &flags.seconds.to_string(), "--data"])
        .arg(&data)
        .env(options.0, options.1)
        .status()
        .map_err(|e| format!("tpcc: {e}"))?;
    let _ = std::fs::remove_dir_all(&data);
    let failed = u64::from(!load.success());
    *tests += Tally { passed: 1 - failed, failed, failed_runs: failed };
    Ok(())
}

/// Compiler flags that count executed edges and comparisons for libFuzzer.
const COVERAGE_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing";

/// Builds this command with libFuzzer and returns the path of the program.
pub fn build_guided() -> Result<PathBuf, String> {
    if !succeeds(cargo(Some("nightly"), "guided", "").args(["--version", "--quiet"]).stdout(Stdio::null())) {
        return Err("the nightly toolchain is missing: rustup toolchain install nightly".into());
    }
    let mut cargo = cargo(Some("nightly"), "guided", COVERAGE_FLAGS);
    cargo.args(["build", "--quiet", "--package", "xtask", "--features", "guided", "--target", TARGET]).args(PROFILE);
    if !succeeds(&mut cargo) {
        return Err("the build failed; libFuzzer is C++: apt-get install g++".into());
    }
    Ok(target("guided").join(TARGET).join("torture/xtask"))
}

/// Returns a cargo command with these compiler flags and its own target directory.
fn cargo(toolchain: Option<&str>, directory: &str, rustflags: &str) -> Command {
    let mut cargo = Command::new("cargo");
    // The build must not inherit the toolchain of this command.
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        cargo.env_remove(variable);
    }
    if let Some(toolchain) = toolchain {
        cargo.arg(format!("+{toolchain}"));
    }
    cargo.env("CARGO_TARGET_DIR", target(directory)).env("RUSTFLAGS", rustflags);
    cargo
}

fn target(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(directory)
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// Runs tests. If requested, appends a line to the result table of the checkers. Fails unless at least one test ran and all
/// tests passed.
fn run_tests(
    name: &str,
    flag: &RecordFlag,
    mut run: RunRecord,
    tests: impl FnOnce(&mut Tally) -> Result<(), String>,
) -> ExitCode {
    let started = Instant::now();
    let mut tally = Tally::default();
    if let Err(what) = tests(&mut tally) {
        eprintln!("{name}: {what}");
        return ExitCode::FAILURE;
    }
    let clean = tally.failed == 0 && tally.failed_runs == 0 && tally.passed > 0;
    run.flags = format!("{name} {}", run.flags).trim().to_owned();
    run.tried = tally.passed + tally.failed;
    // A tool that reports an error ends the process in the middle of a test, so that no test is counted as failed.
    run.failures = tally.failed.max(tally.failed_runs);
    run.elapsed = started.elapsed();
    println!("{name}: {} tests, {} failures, {:.0} s", run.tried, run.failures, run.elapsed.as_secs_f64());
    if flag.append("checkers", &run) && clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
