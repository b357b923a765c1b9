//! `cargo xtask fuzz`: inputs that nobody would think of, for everything that takes bytes from outside.
//!
//! The driver runs in this process, on the stable compiler, from a seed: it takes an input out of a corpus that begins
//! with real ones (pages and log records of a prepared database, command lines), changes it, and tries it. It does not
//! see which code an input reaches. What it lacks in guidance it makes up by starting from inputs that are nearly right
//! and by speed.

mod mutate;
mod operations;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::sim::rng::Rng;
use crate::sim::scheduler::Scheduler;
use crate::torture::damage::forge;
use crate::torture::damage::subject::{Left, Subject};

/// Where inputs that were found are kept.
const KEPT: &str = "target/fuzz";
/// An input that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(10);

/// Characters of a finding that are shown: an assertion may show everything there is.
const MOST_SAID: usize = 600;

/// What is fuzzed.
struct Target {
    name: &'static str,
    /// Tries one input; panics when something does not hold.
    run: fn(&[u8]),
    /// Inputs to begin with.
    corpus: fn(&Subject) -> Vec<Vec<u8>>,
}

const TARGETS: &[Target] = &[
    Target { name: "page", run: storage::fuzzing::page, corpus: pages },
    Target { name: "log", run: storage::fuzzing::log_record, corpus: records },
    Target { name: "key", run: storage::fuzzing::key_codec, corpus: keys },
    Target { name: "command-line", run: command_line, corpus: command_lines },
    Target { name: "operations", run: operations::run, corpus: operations::corpus },
];

/// The flags of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// What to fuzz; all targets by default.
    #[arg(value_parser = PossibleValuesParser::new(TARGETS.iter().map(|t| t.name)))]
    target: Option<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Where the random choices begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tries this input only.
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

thread_local! {
    /// What the last panic said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Carries the command out; fails if an input did.
pub(crate) fn run(flags: &Flags) -> ExitCode {
    let wanted = TARGETS.iter().filter(|t| flags.target.as_deref().is_none_or(|name| name == t.name));
    if let Some(path) = &flags.input {
        return wanted.map(|target| repeat(target, path)).next_back().unwrap_or(ExitCode::from(2));
    }
    let subject = match Subject::make(flags.seed, Left::Killed, Scheduler::Threads) {
        Ok(subject) => subject,
        Err(error) => {
            eprintln!("preparing inputs: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("fuzz: seeded mutations of real inputs, not guided by coverage; seed {}", flags.seed);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| SAID.with(|said| *said.borrow_mut() = info.to_string())));
    let found: Vec<String> = wanted.filter_map(|target| fuzz(target, &subject, flags)).collect();
    std::panic::set_hook(usual);
    for finding in &found {
        println!("FAILED {finding}");
    }
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tries one kept input again, with the panic shown as ever.
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

/// Fuzzes a target for a while; the first input that fails, told.
fn fuzz(target: &Target, subject: &Subject, flags: &Flags) -> Option<String> {
    let corpus = (target.corpus)(subject);
    let mut rng = Rng::of_case(flags.seed, target.name.len() as u64);
    let start = Instant::now();
    let tries = Arc::new(AtomicU64::new(0));
    let mut hang = HangGuard::start(target.name, Arc::clone(&tries));
    let mut failed = None;
    while start.elapsed() < Duration::from_secs(flags.seconds) {
        let input = mutate::input(&corpus, &mut rng);
        hang.about_to_try(&input);
        tries.fetch_add(1, Ordering::Relaxed);
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            let said: String = SAID.with(|said| said.borrow().replace('\n', " ").chars().take(MOST_SAID).collect());
            failed = Some(format!("{}: {said}\n       {}", target.name, kept(target.name, &input)));
            break;
        }
    }
    hang.stop();
    let (tried, seconds) = (tries.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
    println!(
        "fuzz {}: {tried} inputs in {seconds:.0} s ({:.0}/s), {}",
        target.name,
        tried as f64 / seconds.max(1e-3),
        if failed.is_some() { "FAILED" } else { "nothing found" }
    );
    failed
}

/// Keeps an input; says how to try it again.
fn kept(target: &str, input: &[u8]) -> String {
    let path = Path::new(KEPT).join(format!("{target}-{:08x}.bin", forge::crc32c(input)));
    let written = std::fs::create_dir_all(KEPT).and_then(|()| std::fs::write(&path, input));
    match written {
        Ok(()) => format!("cargo xtask fuzz {target} --input {}", path.display()),
        Err(error) => format!("the input could not be kept: {error}; it is {input:02x?}"),
    }
}

/// Ends the process when one input takes too long: nothing else can end it.
struct HangGuard {
    current: Arc<std::sync::Mutex<Option<Vec<u8>>>>,
}

impl HangGuard {
    fn start(target: &'static str, tries: Arc<AtomicU64>) -> HangGuard {
        let current = Arc::new(std::sync::Mutex::new(Some(Vec::new())));
        let guard = HangGuard { current: Arc::clone(&current) };
        std::thread::spawn(move || {
            let mut seen = (0, 0u32);
            loop {
                std::thread::sleep(LONGEST / 20);
                let now = tries.load(Ordering::Relaxed);
                let Ok(input) = current.lock() else { return };
                let Some(input) = &*input else { return };
                seen = if seen.0 == now { (now, seen.1 + 1) } else { (now, 0) };
                if now > 0 && seen.1 >= 20 {
                    println!("FAILED {target}: has not ended after {LONGEST:?}\n       {}", kept(target, input));
                    std::process::exit(1);
                }
            }
        });
        guard
    }

    fn about_to_try(&mut self, input: &[u8]) {
        if let Ok(mut current) = self.current.lock()
            && let Some(current) = &mut *current
        {
            current.clear();
            current.extend_from_slice(input);
        }
    }

    fn stop(&mut self) {
        if let Ok(mut current) = self.current.lock() {
            *current = None;
        }
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
        // Once as a record, once as its body: the checksum of a changed record would keep out nearly all.
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

/// Words of a command line, a zero byte between them.
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
