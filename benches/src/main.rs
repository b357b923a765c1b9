//! Compares `storage` with other embedded engines in interleaved runs. `cargo xtask peers` builds and runs this program. The
//! rules are in `benches/PEERS.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use benches::peers::report::{EngineReport, Report, Spread, Times, ratios, spreads, text, version};
use benches::peers::{ENGINES, Operation, Subject, open};
use clap::Parser;
use tpcc_core::peers::replace_file;

/// Name of the engine with which the others are compared.
const BASE: &str = "storage";

#[derive(Debug, Parser)]
#[command(name = "peers", about = "storage beside other embedded engines, under the same work")]
struct Flags {
    /// Three short rounds
    #[arg(long)]
    quick: bool,
    /// Number of rounds; in each, every engine does every operation once [default: 9, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Engines to compare with storage
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    engines: Option<Vec<String>>,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Directory for the databases, which are removed at the end
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    data: PathBuf,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, why)) => {
            eprintln!("error: {why}");
            ExitCode::from(status)
        }
    }
}

fn run(flags: &Flags) -> Result<(), (u8, String)> {
    let names = select_engines(flags.engines.as_deref()).map_err(|why| (2, why))?;
    if let Some(file) = &flags.json {
        // The check does not truncate the file: its old contents stay until the new contents are complete.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|e| (2, format!("--json {}: {e}", file.display())))?;
    }
    let directory = flags.data.join(std::process::id().to_string());
    let measured = measure(flags, &names, &directory);
    // Files that cannot be removed stay below the directory given by `--data`, so an error is ignored.
    let _ = std::fs::remove_dir_all(&directory);
    let report = measured.map_err(|why| (1, why))?;
    print!("{}", text(&report));
    if let Some(file) = &flags.json {
        let failed = |why: String| (1, format!("{}: {why}", file.display()));
        let text = serde_json::to_vec_pretty(&report).map_err(|e| failed(e.to_string()))?;
        replace_file(file, &text).map_err(|e| failed(e.to_string()))?;
    }
    Ok(())
}

/// Returns the names of the engines to run, `storage` first.
fn select_engines(wanted: Option<&[String]>) -> Result<Vec<&'static str>, String> {
    let Some(wanted) = wanted else { return Ok(ENGINES.to_vec()) };
    let mut names = vec![BASE];
    for name in wanted {
        match ENGINES.iter().find(|known| *known == name) {
            Some(known) if names.contains(known) => {}
            Some(known) => names.push(known),
            None => return Err(format!("--engines {name}: not in this build; one of {}", ENGINES.join(", "))),
        }
    }
    Ok(names)
}

fn measure(flags: &Flags, names: &[&'static str], directory: &std::path::Path) -> Result<Report, String> {
    let (rounds, limit, rows) = match flags.quick {
        true => (3, Duration::from_millis(100), 20_000),
        false => (9, Duration::from_millis(400), 200_000),
    };
    let rounds = flags.rounds.map_or(rounds, |rounds| rounds as usize);
    let mut subjects: Vec<Box<dyn Subject>> =
        names.iter().map(|name| open(name, directory, rows)).collect::<Result<_, _>>()?;
    let mut times = Times::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for operation in Operation::ALL {
            // The first engine changes from round to round, so that each engine is first equally often.
            let count = subjects.len();
            for turn in 0..count {
                let subject = &mut subjects[(round + turn) % count];
                let ns = subject.measure(operation, round as u64, limit)?;
                times.entry((subject.name(), operation.id())).or_default().push(ns);
            }
        }
    }
    let mut engines = BTreeMap::new();
    for subject in &subjects {
        let name = subject.name();
        let package = match name {
            "lmdb" => "heed",
            "sqlite" => "rusqlite",
            _ => name,
        };
        let report = EngineReport {
            version: version(package),
            settings: subject.settings(),
            conditions: subject.check()?,
            conflicts: subject.conflicts(),
            operations: spreads(&times, name),
        };
        engines.insert(name, report);
    }
    let others = names.iter().filter(|name| **name != BASE);
    Ok(Report {
        schema: "lockstep/peers/1",
        machine: machine(),
        rounds,
        seconds: limit.as_secs_f64(),
        rows,
        interval: Spread::interval(rounds),
        engines,
        ratios: others.map(|name| (*name, ratios(&times, name, BASE))).collect(),
    })
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{cores} x {}", model.map_or("unknown processor", |(_, model)| model))
}
