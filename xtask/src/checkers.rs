//! Commands that check concurrency and memory with tools made for it: loom, shuttle, Miri, the sanitizers.
//!
//! Each builds `storage` in its own way (shuttle, Miri and the sanitizers `speculate`, too; Miri `sched-steps`), into a target
//! directory of its own below `target/`.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};

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

/// The flags of `cargo xtask loom`.
#[derive(Debug, Args)]
pub(crate) struct Loom {
    /// Only tests with this in their name.
    #[arg(default_value = "loom_")]
    filter: String,
}

/// The flags of `cargo xtask shuttle`.
#[derive(Debug, Args)]
pub(crate) struct Shuttle {
    /// Only tests with this in their name.
    #[arg(default_value = "shuttle_")]
    filter: String,
    /// Schedules of each test.
    #[arg(long, default_value_t = 1000)]
    iterations: u32,
    /// The seed of the choice of schedules; by default a new one each time, and printed by a failure.
    #[arg(long)]
    seed: Option<u64>,
}

/// The flags of `cargo xtask miri`.
#[derive(Debug, Args)]
pub(crate) struct Miri {
    /// Only tests with this in their name, instead of the usual choice.
    filter: Option<String>,
}

/// The flags of `cargo xtask sanitize`.
#[derive(Debug, Args)]
pub(crate) struct Sanitize {
    /// Which sanitizer.
    #[arg(value_enum, default_value = "thread")]
    sanitizer: Sanitizer,
    /// Seconds of mixed load after the tests.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sanitizer {
    /// Data races.
    Thread,
    /// Accesses to memory that is not allocated.
    Address,
}

pub(crate) fn loom(flags: &Loom) -> ExitCode {
    let mut cargo = cargo(None, "loom", "--cfg loom");
    cargo.args(["test", "--package", "storage", "--lib"]).args(PROFILE).arg(&flags.filter);
    done(cargo.status().map(|s| s.success()))
}

pub(crate) fn shuttle(flags: &Shuttle) -> ExitCode {
    let models = |of: &[&str]| {
        let mut cargo = cargo(None, "shuttle", "--cfg shuttle");
        cargo.arg("test").args(of).args(PROFILE).arg(&flags.filter);
        cargo.env("LOCKSTEP_SHUTTLE_ITERATIONS", flags.iterations.to_string());
        if let Some(seed) = flags.seed {
            cargo.env("SHUTTLE_RANDOM_SEED", seed.to_string());
        }
        cargo.status().map(|s| s.success())
    };
    let storage = models(&["--package", "storage", "--lib"]);
    done(storage.and_then(|clean| {
        // With the mutants that its models have to find.
        Ok(models(&["--package", "speculate", "--test", "models", "--features", "speculate/mutants"])? && clean)
    }))
}

pub(crate) fn miri(flags: &Miri) -> ExitCode {
    if !succeeds(cargo(Some("nightly"), "miri", "").args(["miri", "--version"])) {
        eprintln!("Miri is missing: rustup toolchain install nightly --component miri,rust-src");
        return ExitCode::FAILURE;
    }
    let mut storage = under_miri("storage");
    match &flags.filter {
        Some(filter) => storage.arg(filter),
        None => storage.args(FOR_MIRI),
    };
    for name in NOT_FOR_MIRI {
        storage.args(["--skip", name]);
    }
    let mut clean = storage.status().map(|s| s.success());
    if flags.filter.is_none() {
        clean = clean.and_then(|clean| Ok(under_miri("speculate").status()?.success() && clean));
        clean = clean.and_then(|clean| Ok(fibers_under_miri().status()?.success() && clean));
    }
    done(clean)
}

/// Fibers are threads there that hand each other a baton: which one is preempted between handing it over and going on is drawn.
fn fibers_under_miri() -> Command {
    let mut fibers = cargo(Some("nightly"), "miri", "");
    fibers.args(["miri", "test", "--package", "sched-steps", "--lib", "--tests"]);
    fibers.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-preemption-rate=0.2 -Zmiri-many-seeds=0..4");
    fibers
}

/// The unit tests of a package under Miri.
fn under_miri(package: &str) -> Command {
    let mut cargo = cargo(Some("nightly"), "miri", "");
    cargo.args(["miri", "test", "--package", package, "--lib", "--"]);
    // Tests of the lock table, and threads that wait for work, use the clock.
    cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    cargo
}

pub(crate) fn sanitize(flags: &Sanitize) -> ExitCode {
    match sanitized(flags) {
        Ok(clean) => done(Ok(clean)),
        Err(what) => {
            eprintln!("sanitize: {what}");
            ExitCode::FAILURE
        }
    }
}

/// The tests with several threads, then TPC-C's mix on a pool that is too small for its data.
fn sanitized(flags: &Sanitize) -> Result<bool, String> {
    // Optimistic reads of pages race by design: see the head of storage's `page::access`. ThreadSanitizer would report
    // each, so its readers share latches; AddressSanitizer runs the readers that users have. ThreadSanitizer does not
    // support fences; loom checks the code that relies on them (the latch's, the log's).
    let (name, options, readers) = match flags.sanitizer {
        Sanitizer::Thread => {
            ("thread", ("TSAN_OPTIONS", "halt_on_error=1 second_deadlock_stack=1"), " --cfg race_free")
        }
        // Crash tests leak databases, as a crash would.
        Sanitizer::Address => ("address", ("ASAN_OPTIONS", "detect_leaks=0"), ""),
    };
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
    let lib = succeeds(
        build("test").args(["--package", "storage", "--lib", "--"]).args(CONCURRENT).args(["--skip", "timing"]),
    );
    let tests = succeeds(build("test").args(["--package", "storage", "--test", "isolation", "--test", "eviction"]));
    let speculate = succeeds(build("test").args(["--package", "speculate", "--lib", "--tests"]));
    // ThreadSanitizer is not told of switches between fibers.
    let fibers = flags.sanitizer == Sanitizer::Thread
        || succeeds(build("test").args(["--package", "sched-steps", "--features", "asan,testing", "--lib", "--tests"]));
    let tests = lib && tests && speculate && fibers;
    if flags.seconds == 0 || !tests {
        return Ok(tests);
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
    Ok(load.success())
}

/// Flags for code that counts its edges and comparisons, for libFuzzer.
const COUNTING: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing";

/// Builds this command with libFuzzer in it; returns its path.
pub(crate) fn build_guided() -> Result<PathBuf, String> {
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
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).with_file_name("target").join(directory)
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

fn done(ran: std::io::Result<bool>) -> ExitCode {
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cargo: {e}");
            ExitCode::FAILURE
        }
    }
}
