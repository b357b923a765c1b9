//! `cargo xtask fuzz`: fuzzing of all code that parses external bytes.
//!
//! libFuzzer generates inputs, guided by code coverage, from a corpus of real inputs: pages and log records of a prepared
//! database, command lines, programs of operations. libFuzzer requires instrumented code. This command therefore builds
//! itself again (`guided.rs`) with AddressSanitizer and the nightly compiler, and runs the instrumented program. The
//! ordinary program repeats an input that failed with `--input`.

#[cfg(feature = "guided")]
pub mod guided;
mod operations;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::checkers;
use crate::record::{RecordFlag, RunRecord};
use crate::sim::scheduler::Scheduler;
use crate::torture::damage::forge;
use crate::torture::damage::subject::{Shutdown, Subject};

/// Directory for corpora, inputs that failed, and libFuzzer's output.
const OUTPUT_DIR: &str = "target/fuzz";

/// Maximum length of an input, in bytes: the size of a page.
const MAX_INPUT_BYTES: &str = "16384";

/// Maximum duration of one input, in seconds.
const TIMEOUT_SECONDS: &str = "10";

/// Maximum memory use of one input, in MiB.
const MEMORY_LIMIT_MIB: &str = "2048";

/// Maximum number of lines of libFuzzer's output to print for a failure.
const LINES_SHOWN: usize = 30;

/// Fuzzing target: code under test, with its initial inputs.
struct Target {
    name: &'static str,
    /// Runs one input. Panics if the code under test violates a property.
    run: fn(&[u8]),
    /// Returns the initial inputs.
    corpus: fn(&Subject) -> Vec<Vec<u8>>,
}

const TARGETS: &[Target] = &[
    Target { name: "page", run: storage::fuzzing::page, corpus: pages },
    Target { name: "log", run: storage::fuzzing::log_record, corpus: records },
    Target { name: "key", run: storage::fuzzing::key_codec, corpus: keys },
    Target { name: "command-line", run: command_line, corpus: command_lines },
    Target { name: "operations", run: operations::run, corpus: operations::corpus },
];

/// Flags of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub struct FuzzFlags {
    /// Target to fuzz; all targets by default.
    #[arg(value_parser = PossibleValuesParser::new(TARGETS.iter().map(|t| t.name)))]
    target: Option<String>,
    /// Duration for each target, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seed: u32,
    /// Runs only the input in this file.
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
    #[command(flatten)]
    record: RecordFlag,
}

/// Runs the command. Fails if any input failed.
pub fn run(flags: &FuzzFlags) -> ExitCode {
    let wanted = TARGETS.iter().filter(|t| flags.target.as_deref().is_none_or(|name| name == t.name));
    if let Some(path) = &flags.input {
        return wanted.map(|target| repeat(target, path)).next_back().unwrap_or(ExitCode::from(2));
    }
    match fuzz_all(&wanted.collect::<Vec<_>>(), flags) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("fuzz: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Fuzzes the targets one after the other. Returns true if no input failed for any of them.
fn fuzz_all(targets: &[&Target], flags: &FuzzFlags) -> Result<bool, String> {
    let binary = checkers::build_guided()?;
    let subject = Subject::make(flags.seed.into(), Shutdown::Killed, Scheduler::Threads).map_err(|e| e.to_string())?;
    println!("fuzz: guided by coverage, with AddressSanitizer; seed {}; corpora are kept in {OUTPUT_DIR}", flags.seed);
    let mut passed = true;
    for target in targets {
        passed &= fuzz(&binary, target, &subject, flags).map_err(|e| format!("{}: {e}", target.name))?;
    }
    Ok(passed)
}

/// Runs one saved input again, and prints a panic message as usual.
fn repeat(target: &Target, path: &Path) -> ExitCode {
    match std::fs::read(path) {
        Ok(bytes) => {
            (target.run)(&bytes);
            println!("{}: {} holds", target.name, path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Fuzzes one target for its time budget and prints the result. Returns true if no input failed.
fn fuzz(binary: &Path, target: &Target, subject: &Subject, flags: &FuzzFlags) -> std::io::Result<bool> {
    let corpus = Path::new(OUTPUT_DIR).join("corpus").join(target.name);
    std::fs::create_dir_all(&corpus)?;
    for input in (target.corpus)(subject) {
        std::fs::write(corpus.join(format!("real-{:08x}", forge::crc32c(&input))), input)?;
    }
    let log = Path::new(OUTPUT_DIR).join(format!("{}.log", target.name));
    let start = Instant::now();
    let status = Command::new(binary)
        .arg("guided")
        .arg(target.name)
        .arg("--")
        .arg(&corpus)
        .args([format!("-max_total_time={}", flags.seconds), format!("-seed={}", flags.seed)])
        .args([
            format!("-max_len={MAX_INPUT_BYTES}"),
            format!("-timeout={TIMEOUT_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"),
        ])
        .args(["-print_final_stats=1".into(), format!("-artifact_prefix={OUTPUT_DIR}/{}-", target.name)])
        // Threads of a dropped database may still hold some memory at the time of the leak check.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .stderr(File::create(&log)?)
        .status()?;
    let output = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let progress = FuzzerProgress::of(&output);
    println!("fuzz {}: {progress}", target.name);
    let run = RunRecord {
        flags: target.name.into(),
        seed: Some(flags.seed.into()),
        tried: progress.tried.parse().unwrap_or(0),
        failures: u64::from(!status.success()),
        elapsed: start.elapsed(),
        remark: format!("{} edges of the code reached", progress.edges),
    };
    let recorded = flags.record.append("fuzz", &run);
    if status.success() {
        return Ok(recorded);
    }
    println!("FAILED {} ({status}); the end of {}:", target.name, log.display());
    let lines: Vec<&str> = output.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
        println!("       {line}");
    }
    if let Some((_, kept)) = output.rsplit_once("Test unit written to ") {
        let kept = kept.lines().next().unwrap_or_default();
        println!("       cargo xtask fuzz {} --input {kept}", target.name);
    }
    Ok(false)
}

/// Progress of libFuzzer, parsed from its output.
struct FuzzerProgress<'a> {
    tried: &'a str,
    rate: &'a str,
    edges: &'a str,
}

impl<'a> FuzzerProgress<'a> {
    fn of(output: &'a str) -> FuzzerProgress<'a> {
        let last = |after: &str| match output.rsplit_once(after) {
            Some((_, rest)) => rest.split_whitespace().next().unwrap_or("?"),
            None => "?",
        };
        FuzzerProgress {
            tried: last("stat::number_of_executed_units:"),
            rate: last("stat::average_exec_per_sec:"),
            edges: last(" cov: "),
        }
    }
}

impl fmt::Display for FuzzerProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} inputs, {}/s, {} edges of the code reached", self.tried, self.rate, self.edges)
    }
}

fn pages(subject: &Subject) -> Vec<Vec<u8>> {
    (1..forge::end_of_pages(&subject.image)).map(|n| forge::page(&subject.image, n)).collect()
}

fn records(subject: &Subject) -> Vec<Vec<u8>> {
    let positions = forge::records(&subject.image);
    let mut all = Vec::new();
    for pair in positions.windows(2).rev().take(400) {
        let record = forge::log_bytes(&subject.image, pair[0], (pair[1] - pair[0]) as usize);
        // Each log record is an input twice: as a whole, and as its body alone, because the checksum rejects nearly all
        // mutations of a whole record.
        all.push([&[0], record.as_slice()].concat());
        all.push([&[1], record.get(32..).unwrap_or_default()].concat());
    }
    all
}

fn keys(subject: &Subject) -> Vec<Vec<u8>> {
    use storage::Key;
    let encoded = |key: &Vec<u8>| {
        let mut out = Vec::new();
        (key.clone(), 7u16).encode(&mut out);
        out
    };
    subject.model.rows.keys().take(50).map(encoded).chain([b"name\0\0tail\0\0abc".to_vec()]).collect()
}

/// Parses a command line. In the input, zero bytes separate the words.
fn command_line(bytes: &[u8]) {
    let words: Vec<String> = bytes.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    tpcc::fuzzing::command_line(&words);
}

fn command_lines(_: &Subject) -> Vec<Vec<u8>> {
    let lines = [
        "run --data d --warehouses 2 --workers 2 --terminals 20 --duration 1.5 --warmup 0.5 --mix payment --json f",
        "run --durability async --isolation read-committed --latches plain --prefetch off --preload off --seed 7",
        "run --background inline --checkpoint-mib 64 --page-checksums off --order spec --check off --engine floor",
        "run --scheduler steps --team-size 8 --ctx-points none --transactions 100 --buffer-pool 64",
        "load --warehouses 3 --replace --seed 1",
        "check --data d --structure --json f --workers 2",
        "verify --data d --acks f",
        "shell --data d --table t",
        "history --data d --sessions 4 --transactions 10 --keys 5 --isolation serializable --seed 3 --out f",
        "--help",
        "--version",
    ];
    lines.iter().map(|line| line.replace(' ', "\0").into_bytes()).collect()
}
