//! Commands that check concurrency and memory with tools made for it: loom, shuttle, Miri, the sanitizers.
//!
//! Each builds `storage` in its own way (shuttle, Miri and the sanitizers `speculate`, too; Miri and AddressSanitizer
//! `sched-steps`; Miri `itas`), into a target directory of its own below `target/`.

mod tally;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::{Args, ValueEnum};

use self::tally::Tally;
use crate::record::{RecordFlag, RunRecord};

/// The only target that the sanitizers are built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Optimised, with debug assertions, built in parallel.
const PROFILE: [&str; 2] = ["--profile", "torture"];

/// Tests of `storage` with several threads. Timing tests are left out: their figures mean nothing under a sanitizer.
const CONCURRENT: [&str; 5] = ["threads", "stress", "exclusive_is_exclusive", "lock::tests::deadlocks", "log::tests"];

/// What Miri runs: page, codec, and the units with unsafe code whose tests are short enough for it.
const FOR_MIRI: [&str; 8] =
    ["page::", "table::codec", "latch::", "log::record", "log::ring", "base::", "lock::tests", "buffer::arena"];

/// Tests that Miri cannot run, or not within minutes.
const NOT_FOR_MIRI: [&str; 3] = ["timing", "lock::tests::fibers", "lock::tests::stress"];

/// Tests of `itas` that take Miri longer than minutes, and one whose panics leak their payloads on purpose.
const NOT_FOR_MIRI_OF_ITAS: [&str; 3] = ["simulate", "without_end", "a_helper_outlives"];

/// The flags of `cargo xtask loom`.
#[derive(Debug, Args)]
pub struct Loom {
    /// Only tests with this in their name.
    #[arg(default_value = "loom_")]
    filter: String,
    #[command(flatten)]
    record: RecordFlag,
}

/// The flags of `cargo xtask shuttle`.
#[derive(Debug, Args)]
pub struct Shuttle {
    /// Only tests with this in their name.
    #[arg(default_value = "shuttle_")]
    filter: String,
    /// Schedules of each test.
    #[arg(long, default_value_t = 1000)]
    iterations: u32,
    /// The seed of the choice of schedules; by default a new one each time, and printed by a failure.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    record: RecordFlag,
}

/// The flags of `cargo xtask miri`.
#[derive(Debug, Args)]
pub struct Miri {
    /// Only tests with this in their name, instead of the usual choice.
    filter: Option<String>,
    #[command(flatten)]
    record: RecordFlag,
}

/// The flags of `cargo xtask sanitize`.
#[derive(Debug, Args)]
pub struct Sanitize {
    /// Which sanitizer.
    #[arg(value_enum, default_value = "thread")]
    sanitizer: Sanitizer,
    /// Seconds of mixed load after the tests.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    #[command(flatten)]
    record: RecordFlag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sanitizer {
    /// Data races.
    Thread,
    /// Accesses to memory that is not allocated.
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

/// Runs the models under every order of steps. Fails unless tests ran and all passed.
pub fn loom(flags: &Loom) -> ExitCode {
    let mut loom = cargo(None, "loom", "--cfg loom");
    loom.args(["test", "--package", "storage", "--lib"]).args(PROFILE).arg(&flags.filter);
    concluded("loom", &flags.record, RunRecord::default(), |tests| {
        *tests += Tally::of(&mut loom)?;
        Ok(())
    })
}

/// Runs the models under random schedules. Fails unless tests ran and all passed.
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
    concluded("shuttle", &flags.record, run, |tests| {
        *tests += models(&["--package", "storage", "--lib"])?;
        *tests += models(&["--package", "speculate", "--test", "models", "--features", "speculate/mutants"])?;
        Ok(())
    })
}

/// Runs the chosen tests under Miri. Fails unless tests ran and all passed.
pub fn miri(flags: &Miri) -> ExitCode {
    if !succeeds(cargo(Some("nightly"), "miri", "").args(["miri", "--version"])) {
        eprintln!("Miri is missing: rustup toolchain install nightly --component miri,rust-src");
        return ExitCode::FAILURE;
    }
    let mut storage = under_miri("storage", &["--lib"]);
    match &flags.filter {
        Some(filter) => storage.arg(filter),
        None => storage.args(FOR_MIRI),
    };
    skip(&mut storage, &NOT_FOR_MIRI);
    let run = RunRecord { flags: flags.filter.clone().unwrap_or_default(), ..RunRecord::default() };
    concluded("miri", &flags.record, run, |tests| {
        *tests += Tally::of(&mut storage)?;
        if flags.filter.is_none() {
            *tests += Tally::of(&mut under_miri("speculate", &["--lib"]))?;
            *tests += Tally::of(&mut scheduler_under_miri())?;
            *tests += Tally::of(&mut fibers_under_miri())?;
        }
        Ok(())
    })
}

/// Fibers are threads there that hand each other a baton: which one is preempted between handing it over and going on is drawn.
fn fibers_under_miri() -> Command {
    let mut fibers = cargo(Some("nightly"), "miri", "");
    fibers.args(["miri", "test", "--package", "sched-steps", "--lib", "--tests"]);
    fibers.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-preemption-rate=0.2 -Zmiri-many-seeds=0..4");
    fibers
}

/// The scheduler of itas: its units, and its rules in virtual time.
fn scheduler_under_miri() -> Command {
    let mut itas = under_miri("itas", &["--lib", "--test", "rules"]);
    skip(&mut itas, &NOT_FOR_MIRI_OF_ITAS);
    itas
}

/// The chosen tests of a package under Miri.
fn under_miri(package: &str, of: &[&str]) -> Command {
    let mut cargo = cargo(Some("nightly"), "miri", "");
    cargo.args(["miri", "test", "--package", package]).args(of).arg("--");
    // Tests of the lock table, and threads that wait for work, use the clock.
    cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    cargo
}

fn skip(tests: &mut Command, names: &[&str]) {
    for name in names {
        tests.args(["--skip", name]);
    }
}

/// Runs tests and the mix under a sanitizer. Fails unless tests ran and all passed.
pub fn sanitize(flags: &Sanitize) -> ExitCode {
    let mut run =
        RunRecord { flags: format!("{} --seconds {}", flags.sanitizer, flags.seconds), ..RunRecord::default() };
    if flags.seconds > 0 {
        run.remark = "tests and the mix on 4 workers; the mix counts as one of them".into();
    }
    concluded("sanitize", &flags.record, run, |tests| sanitized(flags, tests))
}

/// The tests with several threads, then TPC-C's mix on a pool that is too small for its data.
fn sanitized(flags: &Sanitize, tests: &mut Tally) -> Result<(), String> {
    // Optimistic reads of pages race by design: see the head of storage's `page::access`. ThreadSanitizer would report
    // each, so its readers share latches; AddressSanitizer runs the readers that users have. ThreadSanitizer does not
    // support fences; loom checks the code that relies on them (the latch's, the log's).
    let (options, readers) = match flags.sanitizer {
        Sanitizer::Thread => (("TSAN_OPTIONS", "halt_on_error=1 second_deadlock_stack=1"), " --cfg race_free"),
        // Crash tests leak databases, as a crash would.
        Sanitizer::Address => (("ASAN_OPTIONS", "detect_leaks=0"), ""),
    };
    let name = flags.sanitizer;
    let sysroot = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output().map_err(|e| e.to_string())?;
    let library = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim()).join("lib/rustlib/src/rust/library");
    if !sysroot.status.success() || !library.is_dir() {
        // If the standard library is not instrumented, ThreadSanitizer misses half of all synchronisation.
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
    test(build("test").args(["--package", "storage", "--lib", "--"]).args(CONCURRENT).args(["--skip", "timing"]))?;
    test(build("test").args(["--package", "storage", "--test", "isolation", "--test", "eviction"]))?;
    test(build("test").args(["--package", "speculate", "--lib", "--tests"]))?;
    // ThreadSanitizer is not told of switches between fibers.
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
    // Removes the files of an earlier run; it is no failure if there are none.
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

/// Flags for code that counts its edges and comparisons, for libFuzzer.
const COUNTING: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing";

/// Builds this command with libFuzzer in it; returns its path.
pub fn build_guided() -> Result<PathBuf, String> {
    if !succeeds(cargo(Some("nightly"), "guided", "").args(["--version", "--quiet"]).stdout(Stdio::null())) {
        return Err("the nightly toolchain is missing: rustup toolchain install nightly".into());
    }
    let mut cargo = cargo(Some("nightly"), "guided", COUNTING);
    cargo.args(["build", "--quiet", "--package", "xtask", "--features", "guided", "--target", TARGET]).args(PROFILE);
    if !succeeds(&mut cargo) {
        return Err("the build failed; libFuzzer is C++: apt-get install g++".into());
    }
    Ok(target("guided").join(TARGET).join("torture/xtask"))
}

/// A cargo that builds with these flags into a directory of its own.
fn cargo(toolchain: Option<&str>, directory: &str, rustflags: &str) -> Command {
    let mut cargo = Command::new("cargo");
    // The build must not inherit the toolchain that runs this command.
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

/// Runs tests, and appends their number to the table of the checkers, if asked to. Fails unless some ran and all passed.
fn concluded(
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
    // A tool that finds something ends the process in the middle of a test.
    run.failures = tally.failed.max(tally.failed_runs);
    run.elapsed = started.elapsed();
    println!("{name}: {} tests, {} failures, {:.0} s", run.tried, run.failures, run.elapsed.as_secs_f64());
    flag.finish("checkers", &run, if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
