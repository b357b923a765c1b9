//! Table II and figures 19 to 21 of the paper, from runs of `tpcc latency --simulate`, one for each transaction.

use serde_json::Value;

use super::counts;
use crate::reproduce::Results;
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::{Lab, SEED, arguments_with_path};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// A transaction of the paper: its name for `--mix`, its sequential time in millions of cycles, coverage, and number of
/// epochs (Table II).
struct Benchmark {
    mix: &'static str,
    mcycles: f64,
    coverage: f64,
    epochs: f64,
    /// Number of transactions to measure, in a full and in a quick experiment.
    transactions: (u64, u64),
}

const BENCHMARKS: [Benchmark; 7] = [
    Benchmark { mix: "new-order", mcycles: 62.0, coverage: 0.78, epochs: 9.7, transactions: (6_000, 1_500) },
    Benchmark { mix: "new-order-150", mcycles: 509.0, coverage: 0.94, epochs: 99.6, transactions: (1_600, 400) },
    // With those that are not measured, these Deliveries take less than the 900 new orders with which a district is loaded.
    Benchmark { mix: "delivery", mcycles: 374.0, coverage: 0.63, epochs: 10.0, transactions: (600, 400) },
    Benchmark { mix: "delivery-outer", mcycles: 374.0, coverage: 0.99, epochs: 10.0, transactions: (600, 400) },
    Benchmark { mix: "stock-level", mcycles: 253.0, coverage: 0.98, epochs: 191.7, transactions: (3_000, 800) },
    Benchmark { mix: "payment", mcycles: 26.0, coverage: 0.30, epochs: 2.0, transactions: (6_000, 1_500) },
    Benchmark { mix: "order-status", mcycles: 17.0, coverage: 0.38, epochs: 12.7, transactions: (6_000, 1_500) },
];

const MIX: &str = "transaction";
const RATIO: &str = "time, sequential = 1";

/// Returns the results of runs of all transactions. Each run is made at the first call.
fn runs(lab: &mut Lab) -> Result<Vec<(&'static Benchmark, Value)>, Error> {
    BENCHMARKS
        .iter()
        .map(|of| {
            let key = format!("latency {}", of.mix);
            if let Some(known) = lab.stored_result(&key) {
                return Ok((of, known));
            }
            let n = if lab.quick { of.transactions.1 } else { of.transactions.0 };
            lab.say(&format!("{n} transactions {} in seven ways", of.mix));
            let data = lab.database(1)?;
            let how = format!("latency --mix {} --transactions {n} --seed {SEED} --simulate --data", of.mix);
            let run = lab.tpcc(&arguments_with_path(&how, &data))?;
            if run["equal"] != true {
                return Err(Error::failed(format!("latency {}: the ways left different rows", of.mix)));
            }
            lab.store_result(key, run.clone());
            Ok((of, run))
        })
        .collect()
}

/// Returns a series with one value for each transaction.
fn over_mixes(
    name: &str,
    y_label: &str,
    runs: &[(&Benchmark, Value)],
    value: impl Fn(&Benchmark, &Value) -> Option<Spread>,
) -> Series {
    let mut series = Series::new(name, MIX, y_label);
    runs.iter().for_each(|(of, run)| series.push(of.mix, value(of, run)));
    series
}

fn at(run: &Value, pointer: &str) -> Option<f64> {
    run.pointer(pointer).and_then(Value::as_f64)
}

fn exact(run: &Value, pointer: &str) -> Option<Spread> {
    at(run, pointer).map(Spread::exact)
}

/// Returns the time of a way relative to the sequential time, with its interval.
fn ratio(run: &Value, way: &str) -> Option<Spread> {
    let of = |end: &str| at(run, &format!("/{end}/{way}"));
    Some(Spread { mid: of("ratio")?, low: of("ratio_low")?, high: of("ratio_high")? })
}

/// A column of the paper's Table II: its name, its label, and the function that returns its value.
type PaperColumn = (&'static str, &'static str, fn(&Benchmark) -> f64);

/// Measures Table II: sequential time, coverage and epochs of each transaction.
pub(super) fn table2(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let runs = runs(lab)?;
    let columns: [(&str, &str, &str); 5] = [
        ("sequential", "us a transaction", "/sequential/mean_us"),
        ("coverage", "share of the transaction that is its loop", "/simulation/coverage"),
        ("epochs", "epochs of a transaction", "/simulation/epochs"),
        ("epoch", "us of an epoch", "/simulation/epoch_us"),
        ("operations", "operations of an epoch", "/simulation/operations_per_epoch"),
    ];
    for (name, label, pointer) in columns {
        let name = format!("speculate-table2 {name}");
        findings.series.push(over_mixes(&name, label, &runs, |_, run| exact(run, pointer)));
    }
    let paper: [PaperColumn; 3] = [
        ("sequential, paper", "millions of cycles", |of| of.mcycles),
        ("coverage, paper", "share of the transaction that is its loop", |of| of.coverage),
        ("epochs, paper", "epochs of a transaction", |of| of.epochs),
    ];
    for (name, label, value) in paper {
        let name = format!("speculate-table2 {name}");
        findings.series.push(over_mixes(&name, label, &runs, |of, _| Some(Spread::exact(value(of)))));
    }
    claims(&runs, findings);
    Ok(())
}

/// Measures Figure 19: time of each transaction relative to its sequential time, on up to four processors.
pub(super) fn fig19(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let runs = runs(lab)?;
    let mut push = |name: &str, value: &dyn Fn(&Value) -> Option<Spread>| {
        let name = format!("speculate-fig19 {name}");
        findings.series.push(over_mixes(&name, RATIO, &runs, |_, run| value(run)));
    };
    push("groups announced, 1 processor", &|run| ratio(run, "sequential_prefetch"));
    push("TLS-SEQ, 1 processor", &|run| ratio(run, "tls_seq"));
    push("epochs, 2 processors", &|run| ratio(run, "speculative"));
    push("simulated, 4 processors", &|run| exact(run, "/simulation/machines/2/ratio"));
    parts("speculate-fig19", 2, &runs, findings);
    claims(&runs, findings);
    Ok(())
}

/// Adds the share of the processors' time for each of their activities.
fn parts(id: &str, machine: usize, runs: &[(&Benchmark, Value)], findings: &mut Results) {
    for part in ["busy", "failed", "token", "idle"] {
        let name = format!("{id} {part}, {} processors", 1 << machine);
        findings.series.push(over_mixes(&name, "share of all processors' time", runs, |_, run| {
            let of = |key: &str| at(run, &format!("/simulation/machines/{machine}/{key}"));
            Some(Spread::exact(of(&format!("{part}_us"))? / (of("mean_us")? * of("cpus")?)))
        }));
    }
}

/// Measures Figure 20: time of each transaction by number of processors, measured and simulated.
pub(super) fn fig20(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let runs = runs(lab)?;
    for (of, run) in &runs {
        let mut simulated = Series::new(format!("speculate-fig20 {}", of.mix), "processors, simulated", RATIO);
        for (machine, cpus) in [1_u32, 2, 4, 8].into_iter().enumerate() {
            simulated.push(cpus, exact(run, &format!("/simulation/machines/{machine}/ratio")));
        }
        findings.series.push(simulated);
    }
    for (of, run) in &runs {
        let mut measured = Series::new(format!("speculate-fig20 {}", of.mix), "processors, measured", RATIO);
        measured.push(1_u32, ratio(run, "tls_seq"));
        measured.push(2_u32, ratio(run, "speculative"));
        findings.series.push(measured);
    }
    for machine in [1, 2, 3] {
        parts("speculate-fig20", machine, &runs, findings);
    }
    claims(&runs, findings);
    Ok(())
}

/// Simulates Figure 21: time and violations on four processors as changes of the engine are added.
pub(super) fn fig21(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let runs = runs(lab)?;
    let changes =
        |run: &Value| run.pointer("/simulation/changes").and_then(Value::as_array).cloned().unwrap_or_default();
    for (label, key) in [(RATIO, "ratio"), ("violations of a transaction", "violations")] {
        for (of, run) in &runs {
            let name = format!("speculate-fig21 {}", of.mix);
            let mut series = Series::new(name, "on four processors, each with the changes above", label);
            for change in changes(run) {
                series.push(change["name"].as_str().unwrap_or("-"), change[key].as_f64().map(Spread::exact));
            }
            findings.series.push(series);
        }
    }
    claims(&runs, findings);
    Ok(())
}

/// Adds the claims on measured and simulated times.
fn claims(runs: &[(&Benchmark, Value)], findings: &mut Results) {
    let run = |mix: &str| runs.iter().find(|(of, _)| of.mix == mix).map_or(&Value::Null, |(_, run)| run);
    let found = |spec: ClaimSpec, value: Option<f64>, note: &str| spec.exact_or(value, note, "not measured");
    let in_order = in_order_us_per_item(run("new-order-150"));
    findings.add_claim(found(claims::IN_ORDER, in_order, "an item of a New-Order with 50 to 150, on two processors"));
    // Transactions with a claim on four processors.
    let claimed = ["new-order", "new-order-150", "delivery-outer", "stock-level"];
    for (spec, key) in [(claims::ERROR_P1, "error_p1"), (claims::ERROR_P2, "error_p2")] {
        let errors = claimed.iter().filter_map(|mix| at(run(mix), &format!("/simulation/{key}")));
        findings.add_claim(found(spec, errors.max_by(f64::total_cmp), "the greatest of those four transactions"));
    }
    for ((spec_2, spec_4), mix) in claims::ON_PROCESSORS.into_iter().zip(claimed) {
        let note = format!("two processors, measured; {ANNOUNCED}");
        findings.add_claim(spec_2.measured(to_announced(run(mix), "speculative"), note));
        let note = format!("simulated from traces on two processors; {ANNOUNCED}");
        findings.add_claim(found(spec_4, on_four(run(mix)), &note));
    }
    for (spec, mix) in claims::VS_BEST.iter().zip(counts::COUNTED) {
        let note = format!("simulated from traces on two processors; {ANNOUNCED}");
        findings.add_claim(found(spec.four_processors, on_four(run(mix)), &note));
    }
    let saved: Vec<f64> = claimed.iter().filter_map(|mix| Some(1.0 - on_four(run(mix))?)).collect();
    let note = format!("over {}, simulated from traces on two processors; {ANNOUNCED}", claimed.join(", "));
    findings.add_claim(found(claims::FIG19_LEAST, saved.iter().copied().reduce(f64::min), &note));
    findings.add_claim(found(claims::FIG19_GREATEST, saved.iter().copied().reduce(f64::max), &note));
    let overheads = runs.iter().filter_map(|(of, run)| Some((of.mix, to_announced(run, "tls_seq")?)));
    let worst = overheads.max_by(|(_, a), (_, b)| a.mid.total_cmp(&b.mid));
    findings.add_claim(match worst {
        Some((mix, Spread { mid, low, high })) => claims::FIG19_TLS_SEQ
            .measured(Some(Spread { mid: mid - 1.0, low: low - 1.0, high: high - 1.0 }), format!("{mix}; {ANNOUNCED}")),
        None => claims::FIG19_TLS_SEQ.missing("not measured"),
    });
}

/// Returns the time of the epochs of a transaction that runs in their order, for each iteration of its loop.
fn in_order_us_per_item(run: &Value) -> Option<f64> {
    Some(at(run, "/simulation/in_order_us")? * at(run, "/transactions")? / at(run, "/iterations")?)
}

/// Note on the base of a ratio.
const ANNOUNCED: &str = "like with like: relative to one core that announces groups of rows, as epochs do";

/// Returns the simulated time on four processors, relative to the time on one core that announces groups of rows.
fn on_four(run: &Value) -> Option<f64> {
    Some(at(run, "/simulation/machines/2/mean_us")? / at(run, "/sequential_prefetch/mean_us")?)
}

/// Returns the time of a way, relative to the time on one core that announces groups of rows, with its interval.
fn to_announced(run: &Value, way: &str) -> Option<Spread> {
    let of = |end: &str| at(run, &format!("/ratio_to_announced/{way}/{end}"));
    Some(Spread { mid: of("value")?, low: of("low")?, high: of("high")? })
}
