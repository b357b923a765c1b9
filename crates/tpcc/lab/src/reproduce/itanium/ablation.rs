//! Tables 1 and 4 to 8: one optimisation off at a time, by interleaved runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;

use super::cycles::TLB_MISS_RATIO;
use crate::footprint::geometry::Geometry;
use crate::reproduce::Results;
use crate::reproduce::builds::{Build, BuildFigures, Comparison, PerTransaction, Timing, compare_in};
use crate::reproduce::cachegrind::DataCaches;
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::{CountSpec, Lab, SEED, Timings, arguments};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::report::model::Provenance;
use tpcc_core::workload::error::Error;

/// Number of warehouses, and number of workers, of timed runs.
const WAREHOUSES: u32 = 8;
const WORKERS: u32 = 2;
/// Name of the row with everything on; then the rows of Table 4 with their flags, except the row of the build. The last row
/// is not in the paper.
const ALL: &str = "ALL";
const ROWS: [(&str, &str); 6] = [
    (ALL, "--latches super --large-pages try --partition both"),
    ("-LP", "--latches super --large-pages off --partition both"),
    ("-SL", "--latches plain --large-pages try --partition both"),
    ("-CS", "--latches super --large-pages try --partition server"),
    ("-SS", "--latches super --large-pages try --partition client"),
    ("optimistic", "--latches optimistic --large-pages try --partition both"),
];
/// Numbers of transactions of the short and of the long counted run.
const LENGTHS: (u64, u64) = (2_000, 6_000);
/// Path of the binary of `cargo xtask pgo`, in a clone of the sources.
const FEEDBACK_PATH: &str = "target/pgo/tpcc";
/// Name under which [`coherence`](super::coherence) stores the ratio of transfers without client partitioning to transfers
/// with client partitioning.
pub(super) const TRANSFER_RATIO: &str = "itanium transfers spread by home";
const WHY: &str = "two workers on two cores that share a last cache, against 32 on 8 memory nodes: what travels, travels a short \
                   way, so latches and partitioning save less; the database lies in memory, and the log is written without \
                   waiting; the paper's kernel takes a quarter of the time, ours next to nothing. Rows without a value are not \
                   on this machine: memory nodes and remote memory, counters of the processor, the register stack (alloc)";

/// Measures the throughputs for the rows of Tables 6 to 8 and for the totals of Table 4, once for all of these tables.
fn timings(lab: &mut Lab) -> Result<Timings, Error> {
    let seconds = if lab.quick { 2 } else { 5 };
    let mut runs = Vec::new();
    for (row, flags) in ROWS {
        let how = format!("--workers {WORKERS} --warmup 1 --duration {seconds} --pin {flags}");
        runs.push((row, lab.run_args(WAREHOUSES, WAREHOUSES, &how)?));
    }
    lab.interleave(if lab.quick { 5 } else { 11 }, &runs)
}

/// Measures Table 1: processor time and I/Os of a run with everything on.
pub(super) fn system(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    const METRICS: [(&str, f64); 6] = [
        ("user processor time, %", 74.8),
        ("system processor time, %", 23.4),
        ("idle time, %", 1.8),
        ("I/Os a second", 123_200.0),
        ("write I/Os a transaction", 9.7),
        ("read I/Os a transaction", 14.9),
    ];
    let mut paper = Series::new("itanium-system table1 paper", "metric", "as the metric says");
    METRICS.iter().for_each(|(metric, value)| paper.push_exact(*metric, Some(*value)));
    let seconds = if lab.quick { 5 } else { 15 };
    let how = format!("--workers {WORKERS} --warmup 0 --duration {seconds} --pin {}", ROWS[0].1);
    let args = lab.run_args(WAREHOUSES, WAREHOUSES, &how)?;
    lab.say("running everything on, for the system's own metrics");
    let (before, begun) = (processor_time(), Instant::now());
    let run = lab.tpcc(&args)?;
    let (after, elapsed) = (processor_time(), begun.elapsed().as_secs_f64());
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let [user, kernel] = [0, 1].map(|n| 100.0 * (after[n] - before[n]) / (elapsed * cores));
    let number = |path: &[&str]| path.iter().try_fold(&run, |at, key| at.get(key)).and_then(|found| found.as_f64());
    let reads = number(&["pool", "reads"]);
    let writes = number(&["pool", "page_writes"]).zip(number(&["log", "flushes"])).map(|(pages, log)| pages + log);
    let (committed, measured) = (number(&["committed"]), number(&["measured_s"]));
    let each = |ios: Option<f64>| ios.zip(committed).map(|(ios, transactions)| ios / transactions);
    let a_second = reads.zip(writes).zip(measured).map(|((reads, writes), s)| (reads + writes) / s);
    let ours = [Some(user), Some(kernel), Some((100.0 - user - kernel).max(0.0)), a_second, each(writes), each(reads)];
    let mut series = Series::new("itanium-system table1 here", "metric", "as the metric says");
    METRICS.iter().zip(ours).for_each(|((metric, _), value)| series.push_exact(*metric, value));
    findings.series.extend([paper, series]);
    findings.config.insert(
        "table1".into(),
        json!("here a run's whole time counts, opening and reading the database included; pages are in memory, so reads are \
               rare, and writes are those of the cleaner and of the log, in larger pieces than a transaction's"),
    );
    Ok(())
}

/// Returns the processor time of child processes that have ended, in seconds: user time, and kernel time.
fn processor_time() -> [f64; 2] {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return [f64::NAN; 2] };
    [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
}

/// Measures the totals of Table 4, and Tables 6, 7 and 8: effect of turning off one switch at a time.
pub(super) fn switches(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    findings.config.insert("ablations".into(), json!(WHY));
    let timings = timings(lab)?;
    let counted = count_rows(lab)?;
    totals(findings, &timings);
    // Ratio of the instructions without a switch to the instructions with everything on, on one worker; `None` if nothing
    // could be counted.
    let instructions = |row: &str| counted.iter().find(|(name, _)| *name == row).map(|(_, count)| *count);
    let without = |row: &str| instructions(row).zip(instructions(ALL)).map(|(without, all)| without / all);
    let plain_by_super = without("-SL");
    let transfers = lab.stored_result(TRANSFER_RATIO).and_then(|value| value.as_f64());
    let none = "itanium-coherence has not run";
    table(findings, "table6", "-CS", [0.98, 1.20, 0.84], &[("memory latency", 1.08)], &timings, without("-CS"));
    table(findings, "table6", "-SS", [1.03, 1.04, 0.94], &[("memory latency", 1.05)], &timings, without("-SS"));
    let mut modelled = Series::new("itanium-switches table6 -CS, 32 cores, modelled", "metric", RATIO_LABEL);
    modelled.push_exact("C2C transfers", transfers);
    findings.series.push(modelled);
    if transfers.is_none() {
        findings.config.insert("table6_transfers".into(), json!(none));
    }
    table(findings, "table7", "-SL", [0.95, 1.19, 0.91], &[], &timings, plain_by_super);
    let pages = [
        ("L2 data TLB", 2.25),
        ("L2 to L1 data TLB transfers", 1.01),
        ("L3 data read miss", 1.12),
        ("privileged level change", 1.94),
        ("kernel IPX", 1.09),
    ];
    table(findings, "table8", "-LP", [0.99, 1.08, 0.91], &pages, &timings, without("-LP"));
    let mut counted_pages = Series::new("itanium-switches table8 -LP, counted", "metric", RATIO_LABEL);
    // The paper's second-level buffer has 128 entries; the simulated buffer has 64.
    counted_pages
        .push_exact("data TLB of 64 pages", lab.stored_result(TLB_MISS_RATIO).and_then(|value| value.as_f64()));
    findings.series.push(counted_pages);
    findings.add_claim(match storage::large_pages_available() {
        Ok(()) => claims::LARGE_PAGES_VS_SMALL.measured(timings.ratio(ALL, "-LP"), "2 workers, 8 warehouses"),
        Err(why) => claims::LARGE_PAGES_VS_SMALL.missing(format!("no large pages are to be had: {why}")),
    });
    let mut claim = |spec: ClaimSpec, without: &str, note: &str| {
        findings.add_claim(spec.measured(timings.ratio(ALL, without), note));
    };
    claim(claims::SUPER_VS_PLAIN, "-SL", "2 workers, 8 warehouses; two cores contend little for a root's latch");
    claim(claims::CLIENT_VS_NONE, "-CS", "2 workers, 8 warehouses");
    claim(
        claims::SERVER_VS_NONE,
        "-SS",
        "2 workers, 8 warehouses; one memory node, so only frames of a worker's own are left",
    );
    let note = "counted, 1 warehouse, 1 worker";
    findings.add_claim(match plain_by_super {
        Some(ratio) => claims::PLAIN_INSTRUCTIONS.exact(ratio, note),
        None => claims::PLAIN_INSTRUCTIONS.missing(uncounted(lab)),
    });
    Ok(())
}

const RATIO_LABEL: &str = "without it, by everything on";

fn uncounted(lab: &Lab) -> String {
    lab.uncountable.clone().unwrap_or_else(|| "nothing was counted".to_owned())
}

/// Adds the totals of Table 4, as times of a transaction.
fn totals(findings: &mut Results, timings: &Timings) {
    let mut series = Series::new(
        "itanium-switches table4 total, measured",
        "row",
        "per cent of the time of a transaction with everything on",
    );
    for (row, _) in ROWS {
        series.push(row, timings.ratio(ALL, row).map(percent));
    }
    findings.series.push(series);
}

fn percent(of: Spread) -> Spread {
    Spread { mid: 100.0 * of.mid, low: 100.0 * of.low, high: 100.0 * of.high }
}

/// Adds a table of basic metrics (instructions, cycles per instruction, throughput), and of some metrics that are not
/// available on this machine.
fn table(
    findings: &mut Results,
    table: &str,
    row: &str,
    basic: [f64; 3],
    secondary: &[(&str, f64)],
    timings: &Timings,
    instructions: Option<f64>,
) {
    const BASIC: [&str; 3] = ["user IPX", "user CPI", "throughput"];
    let mut paper = Series::new(format!("itanium-switches {table} {row}, paper"), "metric", RATIO_LABEL);
    BASIC.iter().zip(basic).for_each(|(metric, value)| paper.push_exact(*metric, Some(value)));
    let mut here = Series::new(format!("itanium-switches {table} {row}, here"), "metric", RATIO_LABEL);
    let throughput = timings.ratio(row, ALL);
    here.push_exact(BASIC[0], instructions);
    // Both workers are always busy. Additional time of a transaction that is not due to instructions counts as cycles per
    // instruction.
    here.push_exact(BASIC[1], throughput.zip(instructions).map(|(rate, ipx)| 1.0 / (rate.mid * ipx)));
    here.push(BASIC[2], throughput);
    for (metric, value) in secondary {
        paper.push_exact(*metric, Some(*value));
        here.push_exact(*metric, None);
    }
    findings.series.extend([paper, here]);
}

/// Counts the instructions of a transaction with the flags of each row, on one worker. Returns an empty list if nothing can
/// be counted.
fn count_rows(lab: &mut Lab) -> Result<Vec<(&'static str, f64)>, Error> {
    lab.say("counting transactions of each row");
    let counts = ROWS.map(|(_, flags)| CountSpec {
        args: arguments(&format!(
            "run --warehouses 1 --workers 1 --mix standard --warmup 0 --seed {SEED} --durability async --buffer-pool 512 \
             --check off --background inline {flags}"
        )),
        length_flag: "--transactions",
        lengths: LENGTHS,
        work_per_unit: 1.0,
        i1: Geometry::DEFAULT,
        data_caches: DataCaches::DEFAULT,
        warehouses: Some(1),
    });
    let counted = lab.count(&counts)?.unwrap_or_default();
    Ok(ROWS.iter().zip(counted).map(|((row, _), counts)| (*row, counts.instructions)).collect())
}

/// Measures Table 5, the effect of profile feedback, and the row of Table 4 that is a build.
pub(super) fn feedback(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    const METRICS: [(&str, f64); 6] = [
        ("user IPX", 1.21),
        ("user CPI", 1.08),
        ("throughput", 0.80),
        ("instructions between mispredicted branches", 0.69),
        ("L3 instruction references", 2.09),
        ("alloc instruction issue", 1.61),
    ];
    let mut paper = Series::new("itanium-feedback table5 paper", "metric", "without feedback, by with it");
    METRICS.iter().for_each(|(metric, value)| paper.push_exact(*metric, Some(*value)));
    let mut here = Series::new("itanium-feedback table5 here", "metric", "without feedback, by with it");
    let mut total =
        Series::new("itanium-feedback table4 -PGO total, measured", "row", "per cent of the time with feedback");
    let program = match feedback_build() {
        Ok(program) => program,
        Err(why) => {
            METRICS.iter().for_each(|(metric, _)| here.push_exact(*metric, None));
            total.push("-PGO", None);
            findings.config.insert("feedback".into(), json!(why));
            findings.add_claim(claims::FEEDBACK_VS_NONE.missing(why.as_str()));
            findings.add_claim(claims::FEEDBACK_INSTRUCTIONS.missing(&why));
            findings.add_claim(claims::FEEDBACK_BRANCHES.missing(why));
            findings.series.extend([paper, here, total]);
            return Ok(());
        }
    };
    let build =
        |name: &str, program: &Path| Build { name: name.to_owned(), program: program.to_owned(), flags: String::new() };
    let builds = [build("this program", lab.program()), build("with feedback", &program)];
    let (rounds, seconds) = if lab.quick { (5, 2) } else { (11, 5) };
    let how = Comparison { warehouses: 1, workers: 1, flags: "", rounds, seconds, counted: true };
    let measured = compare_in(lab, &builds, how)?;
    let [plain, feedback] = &measured[..] else { return Ok(()) };
    let faster = feedback.against(plain).map(Timing::spread);
    let rate = faster.map(|of| Spread { mid: 1.0 / of.mid, low: 1.0 / of.high, high: 1.0 / of.low });
    let ratio = |of: fn(&PerTransaction) -> f64| counted_ratio(plain, feedback, of);
    let instructions = ratio(|of| of.instructions);
    here.push_exact(METRICS[0].0, instructions);
    here.push_exact(METRICS[1].0, rate.zip(instructions).map(|(rate, ipx)| 1.0 / (rate.mid * ipx)));
    here.push(METRICS[2].0, rate);
    let distance = ratio(|of| of.instructions / of.mispredictions);
    here.push_exact(METRICS[3].0, distance);
    // The level behind the first holds the code. Its references are the misses of the first-level instruction cache.
    here.push_exact(METRICS[4].0, ratio(|of| of.i1_misses));
    here.push_exact(METRICS[5].0, None);
    total.push("-PGO", faster.map(percent));
    findings.add_claim(claims::FEEDBACK_VS_NONE.measured(faster, "1 warehouse, 1 worker"));
    findings.add_claim(claims::FEEDBACK_INSTRUCTIONS.exact_or(instructions, "counted", uncounted(lab)));
    let note = "counted, with Cachegrind's predictor";
    findings.add_claim(claims::FEEDBACK_BRANCHES.exact_or(distance, note, uncounted(lab)));
    findings.series.extend([paper, here, total]);
    Ok(())
}

fn counted_ratio(without: &BuildFigures, with: &BuildFigures, of: fn(&PerTransaction) -> f64) -> Option<f64> {
    without.counted.as_ref().zip(with.counted.as_ref()).map(|(without, with)| of(without) / of(with))
}

/// Returns the binary that `cargo xtask pgo` has made of this commit in the clone around the current directory, or the
/// reason for its absence.
fn feedback_build() -> Result<PathBuf, String> {
    const HOW: &str = "'cargo xtask pgo' makes it, then run this again within the clone";
    let here = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let program = here.ancestors().map(|path| path.join(FEEDBACK_PATH)).find(|path| path.is_file());
    let program =
        program.ok_or_else(|| format!("not on this machine: no {FEEDBACK_PATH} beside the sources; {HOW}"))?;
    let told = Command::new(&program).arg("--version").output();
    let version = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned()).unwrap_or_default();
    let own = Provenance::here();
    let Some(commit) = &own.commit else {
        return Err(format!(
            "this program does not know its commit, so {FEEDBACK_PATH} may be of other sources; {HOW}"
        ));
    };
    // A version with changes has a mark after the commit.
    let changed = if own.dirty == Some(true) { ", changed" } else { "" };
    if version.contains(&format!("({commit}{changed})")) {
        Ok(program)
    } else {
        Err(format!("{FEEDBACK_PATH} is '{version}', not of commit {commit}{changed}; {HOW}"))
    }
}
