//! Figure 2 and the lower half of Table 7: lines that are transferred between cores, on 2 to 64 modelled cores (see
//! [`coherence`](crate::coherence)). Also compares the model with this machine's two cores.

use std::time::Duration;

use serde_json::json;
use storage::LatchKind;

use super::ablation;
use crate::coherence::cores::{Assignment, ReplayResult, replay};
use crate::coherence::probe::{one_page_read_ns, own_page_read_ns};
use crate::coherence::recording::{Recording, RecordingPlan};
use crate::coherence::transfers::CoreModel;
use crate::reproduce::Results;
use crate::reproduce::child;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED};
use crate::reproduce::report::{Series, Spread};
use crate::reproduce::transfer::{DISTURBED, TRIES, Transfer, median};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;

/// Kinds of latches: name on the command line, and value of the engine.
const KINDS: [(&str, LatchKind); 3] =
    [("plain", LatchKind::Plain), ("super", LatchKind::Super), ("optimistic", LatchKind::Optimistic)];
/// Numbers of modelled cores, number of cores of a node, and factor by which a line from another node takes longer.
const CORES: [usize; 6] = [2, 4, 8, 16, 32, 64];
const NODE_CORES: usize = 8;
const FAR_FACTOR: f64 = 4.0;
/// Number of processors of the paper's machine.
const PAPER_CORES: usize = 32;
/// Number of warehouses, and number of terminals of each warehouse.
const WAREHOUSES: u32 = 8;
const TERMINALS: u32 = 10;
/// Points of figure 2: numbers of cache lines, counted from the most contended one.
const TOP: [usize; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const WHY: &str = "modelled: real runs of one worker, traced, and replayed on cores that keep to MESI; a node has 8 cores and a \
                   line from another node takes 4 times as long (assumed), one from the same node what the probe says; the \
                   paper samples the latencies of 32 processors, all L3 misses included, of a latch that keeps a list of its \
                   owners";

/// Measures the costs of lines, records transactions, and replays them on modelled cores.
pub(super) fn coherence(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    findings.config.insert("coherence".into(), json!(WHY));
    let transfer = match probe(lab, findings) {
        Ok(transfer) => transfer,
        Err(why) => {
            missing(findings, why);
            missing_reads(findings, why);
            return Ok(());
        }
    };
    latch_reads(lab, findings, transfer)?;
    let data = lab.database(WAREHOUSES)?;
    let mut recordings = Vec::new();
    for (latches, _) in KINDS {
        lab.say(&format!("tracing transactions under {latches} latches"));
        let wanted = RecordingPlan {
            latches,
            warehouses: WAREHOUSES,
            terminals: TERMINALS,
            // 512 reads make a latch hot, and a transaction reads a root some ten times.
            warm_up: 640,
            // Coprime to the numbers of warehouses and of terminals, so that the recorded transactions come from all
            // warehouses.
            each: 9,
            // There are eight homes. Each has at least as many transactions as cores of the largest machine share the home.
            transactions: if lab.quick { 64 } else { 160 },
            seed: SEED,
        };
        match Recording::of_transactions(lab.program(), &data, wanted) {
            Ok(recording) => recordings.push((latches, recording)),
            Err(_) if interrupt::requested() => return Err(child::interrupted()),
            Err(error) => {
                // If nothing can be traced, the report gives the reason.
                let why = format!("not on this machine: {error}");
                missing(findings, &why);
                return Ok(());
            }
        }
    }
    lab.say("replaying them on up to 64 cores");
    let instruction_ns = instruction_ns(lab, &recordings)?;
    findings.config.insert("coherence_instruction_ns".into(), json!(instruction_ns));
    let machine = |cores| machine_of(transfer, cores, instruction_ns);
    let mut outcomes = Vec::new();
    for (latches, recording) in &recordings {
        for assignment in [Assignment::ByHome, Assignment::Spread] {
            let on = |cores| replay(recording, machine(cores), assignment);
            let on: Option<Vec<ReplayResult>> = CORES.into_iter().map(on).collect();
            let on = on.ok_or_else(|| Error::failed("a recording has no transaction of some warehouse"))?;
            outcomes.push((*latches, assignment, on));
        }
    }
    let kinds: Vec<String> =
        recordings.first().map_or_else(Vec::new, |(_, r)| r.kinds.iter().map(|kind| kind.name.clone()).collect());
    by_cores(findings, &outcomes);
    by_line(findings, &kinds, &outcomes);
    fig2(findings, &outcomes);
    table7(findings, &outcomes);
    lab.store_result(ablation::TRANSFER_RATIO.into(), transfers(&outcomes));
    Ok(())
}

fn missing(findings: &mut Results, why: &str) {
    for spec in [claims::TOP_TEN_LINES, claims::PLAIN_TRANSFERS, claims::PLAIN_INVALIDATIONS] {
        findings.add_claim(spec.missing(why));
    }
    fig2(findings, &[]);
    table7(findings, &[]);
}

/// Adds the claims on reads of one page without values.
fn missing_reads(findings: &mut Results, why: &str) {
    for spec in [claims::SUPER_READS_2, claims::SUPER_UNCONTENDED, claims::COHERENCE_ERROR_P2] {
        findings.add_claim(spec.missing(why));
    }
}

/// Returns the model of a machine with these costs.
fn machine_of(transfer: Transfer, cores: usize, instruction_ns: f64) -> CoreModel {
    let Transfer { near_ns, upgrade_ns, hold_ns } = transfer;
    CoreModel {
        cores,
        node: NODE_CORES,
        instruction_ns,
        near_ns,
        upgrade_ns,
        cold_ns: near_ns,
        hold_ns,
        far: FAR_FACTOR,
    }
}

/// Measures the costs of lines between cores. Returns the reason if they cannot be measured.
fn probe(lab: &mut Lab, findings: &mut Results) -> Result<Transfer, &'static str> {
    lab.say("probing what a line from another core takes");
    let measured = Transfer::measure();
    findings.config.insert("transfer_probe".into(), json!(measured.as_ref().map(|(_, values)| values)));
    measured.map(|(transfer, _)| transfer).ok_or(DISTURBED)
}

/// Runs the benchmark `latch/read`. Its times are measured, and modelled from a trace of one thread.
fn latch_reads(lab: &mut Lab, findings: &mut Results, transfer: Transfer) -> Result<(), Error> {
    let time = Duration::from_millis(if lab.quick { 20 } else { 100 });
    lab.say("reading one page under each kind of latch");
    // Each round measures all kinds of latches, so that disturbances of the machine affect all of them.
    let mut ns = [(); 3].map(|()| [(); 3].map(|()| Vec::new()));
    for _ in 0..TRIES {
        let round = KINDS.map(|(_, kind)| {
            [one_page_read_ns(kind, 1, time), own_page_read_ns(kind, 2, time), one_page_read_ns(kind, 2, time)]
        });
        if round.iter().flatten().any(Option::is_none) {
            continue;
        }
        for (all, round) in ns.iter_mut().zip(round) {
            all.iter_mut().zip(round).for_each(|(all, ns)| all.extend(ns));
        }
    }
    let rounds = ns[0][0].len();
    if rounds == 0 {
        missing_reads(findings, DISTURBED);
        return Ok(());
    }
    let ratio = |a: &[f64], b: &[f64]| Spread::of(a.iter().zip(b).map(|(a, b)| a / b));
    let [plain, of_super, _] = &ns;
    findings.add_claim(claims::SUPER_READS_2.measured(
        ratio(&plain[2], &of_super[2]),
        format!(
            "reads of one page by two threads, each on a core of its own, in {rounds} rounds of {TRIES}: in the others another \
             program ran on one of the cores"
        ),
    ));
    findings
        .add_claim(claims::SUPER_UNCONTENDED.measured(ratio(&of_super[0], &plain[0]), "one thread, a promoted latch"));
    let mut errors: Vec<(f64, String)> = Vec::new();
    for ((latches, _), ns) in KINDS.into_iter().zip(&ns) {
        let recording = match Recording::of_page_reads(lab.program(), latches) {
            Ok(recording) => recording,
            Err(_) if interrupt::requested() => return Err(child::interrupted()),
            Err(error) => {
                findings.add_claim(claims::COHERENCE_ERROR_P2.missing(format!("not on this machine: {error}")));
                return Ok(());
            }
        };
        let label = "ns from one read of a thread to its next";
        let mut measured = Series::new(format!("itanium-coherence reads, {latches}, measured"), "threads", label);
        measured.push(1_u32, Spread::of(ns[0].iter().copied()));
        measured.push(2_u32, Spread::of(ns[2].iter().copied()));
        findings.series.push(measured);
        // The time of an instruction includes all costs that two threads cause each other, except transfers of lines.
        let Some((own, real)) = median(ns[1].iter().copied()).zip(median(ns[2].iter().copied())) else { continue };
        let instruction_ns = own / recording.instructions();
        let mut modelled = Series::new(format!("itanium-coherence reads, {latches}, modelled"), "threads", label);
        for cores in [2, 4, 8, 16, 32, 64] {
            let machine = machine_of(transfer, cores, instruction_ns);
            let Some(outcome) = replay(&recording, machine, Assignment::ByHome) else { continue };
            let read_ns = cores as f64 * 1e9 / outcome.per_second;
            modelled.push_exact(cores as f64, Some(read_ns));
            if cores == 2 {
                errors.push((
                    (read_ns / real - 1.0).abs(),
                    format!("{latches} {read_ns:.1} ns modelled, {real:.1} measured"),
                ));
            }
        }
        findings.series.push(modelled);
    }
    let each: Vec<&str> = errors.iter().map(|(_, of)| of.as_str()).collect();
    let worst = errors.iter().map(|(error, _)| *error).fold(0.0, f64::max);
    let note = format!(
        "two threads on one page: {}; a transfer takes {:.1} ns by the probe, a line that was read {:.1} to become the core's \
         own, and a core keeps one that has come for {:.1}; an instruction takes what two threads on \
         pages of their own need, so only plain latches tell something of transfers",
        each.join(", "),
        transfer.near_ns,
        transfer.upgrade_ns,
        transfer.hold_ns
    );
    findings.add_claim(claims::COHERENCE_ERROR_P2.exact(worst, note));
    Ok(())
}

/// Returns the time of an instruction: the time of a transaction on one worker, divided by its number of instructions.
fn instruction_ns(lab: &mut Lab, recordings: &[(&str, Recording)]) -> Result<f64, Error> {
    let seconds = if lab.quick { 2 } else { 5 };
    let how = format!("--workers 1 --warmup 1 --duration {seconds}");
    let run = lab.run_args(WAREHOUSES, WAREHOUSES, &how)?;
    let timings = lab.interleave(3, &[("one worker, 8 warehouses", run)])?;
    let rate = timings.rate("one worker, 8 warehouses").map_or(f64::NAN, |rate| rate.mid);
    let optimistic = recordings.iter().find(|(latches, _)| *latches == "optimistic");
    let instructions = optimistic.map_or(f64::NAN, |(_, recording)| recording.instructions());
    let ns = 1e9 / rate / instructions;
    if ns.is_finite() { Ok(ns) } else { Err(Error::failed("a run on one worker completed nothing")) }
}

type Outcomes<'a> = [(&'a str, Assignment, Vec<ReplayResult>)];

fn assignment_name(assignment: Assignment) -> &'static str {
    match assignment {
        Assignment::ByHome => "client partitioning",
        Assignment::Spread => "no partitioning",
    }
}

/// Adds throughput, transfers, invalidations and waits by number of cores.
fn by_cores(findings: &mut Results, outcomes: &Outcomes<'_>) {
    type Figure = fn(&ReplayResult) -> f64;
    let figures: [(&str, &str, Figure); 4] = [
        ("throughput", "transactions a second", |of| of.per_second),
        ("transfers", "lines from other cores, a transaction", |of| of.all().transfers()),
        ("invalidations", "lines taken from other cores, a transaction", |of| of.all().invalidations),
        ("waits", "ns that a transaction waits for lines", |of| of.all().wait_ns),
    ];
    for (what, label, figure) in figures {
        for (latches, by, on) in outcomes {
            let name = format!("itanium-coherence {what}, {latches}, {}, modelled", assignment_name(*by));
            let mut series = Series::new(name, "cores", label);
            CORES.iter().zip(on).for_each(|(cores, on)| series.push_exact(*cores as f64, Some(figure(on))));
            findings.series.push(series);
        }
    }
}

/// Adds accesses, transfers and waits by kind of line, on the paper's number of cores.
fn by_line(findings: &mut Results, kinds: &[String], outcomes: &Outcomes<'_>) {
    for (latches, by, on) in outcomes {
        let Some(on) = at_paper_cores(on) else { continue };
        let of = |what: &str| {
            format!(
                "itanium-coherence lines, {latches}, {}, {PAPER_CORES} cores, modelled: {what}",
                assignment_name(*by)
            )
        };
        let mut accesses = Series::new(of("accesses"), "line", "a transaction");
        let mut transfers = Series::new(of("transfers"), "line", "a transaction");
        let mut waits = Series::new(of("waits"), "line", "ns of a transaction");
        for (name, figures) in kinds.iter().zip(&on.kinds) {
            accesses.push_exact(name.as_str(), Some(figures.accesses));
            transfers.push_exact(name.as_str(), Some(figures.transfers()));
            waits.push_exact(name.as_str(), Some(figures.wait_ns));
        }
        findings.series.extend([accesses, transfers, waits]);
    }
}

fn at_paper_cores(on: &[ReplayResult]) -> Option<&ReplayResult> {
    on.get(CORES.iter().position(|cores| *cores == PAPER_CORES)?)
}

fn find<'a>(outcomes: &'a Outcomes<'_>, latches: &str, by: Assignment) -> Option<&'a ReplayResult> {
    at_paper_cores(&outcomes.iter().find(|(name, of, _)| *name == latches && *of == by)?.2)
}

/// Returns the share of all waits that the `lines` worst lines cause.
fn share(outcome: &ReplayResult, lines: usize) -> Option<f64> {
    let all: f64 = outcome.lines.iter().map(|(ns, _)| ns).sum();
    (all > 0.0).then(|| outcome.lines.iter().take(lines).map(|(ns, _)| ns).sum::<f64>() / all)
}

fn fig2(findings: &mut Results, outcomes: &Outcomes<'_>) {
    let label = "per cent of the time that is waited for lines";
    let mut paper = Series::new("itanium-coherence fig2 paper, plain", "lines", "per cent of stall cycles");
    paper.push_exact(10_u32, Some(17.0));
    findings.series.push(paper);
    for (latches, by, on) in outcomes {
        let Some(on) = at_paper_cores(on) else { continue };
        let name = format!("itanium-coherence fig2 {latches}, {}, {PAPER_CORES} cores, modelled", assignment_name(*by));
        let mut series = Series::new(name, "lines", label);
        for lines in TOP {
            series.push_exact(lines as f64, share(on, lines).map(|share| 100.0 * share));
        }
        findings.series.push(series);
    }
    if let Some(plain) = find(outcomes, "plain", Assignment::ByHome) {
        let note = format!(
            "{} of {} ns that a transaction waits for lines of others; the paper's 0.17 is of all stall cycles",
            plain.lines.iter().take(10).map(|(ns, _)| ns).sum::<f64>().round(),
            plain.all().wait_ns.round()
        );
        findings.add_claim(claims::TOP_TEN_LINES.exact(share(plain, 10).unwrap_or(f64::NAN), note));
    }
}

/// Adds the rows of Table 7 that are modelled: transfers, and invalidated lines.
fn table7(findings: &mut Results, outcomes: &Outcomes<'_>) {
    const ROWS: [&str; 3] = ["C2C transfers", "read and invalidate line", "memory latency"];
    let label = "without superlatches, by with them";
    let mut paper = Series::new("itanium-coherence table7 paper", "metric", label);
    ROWS.iter().zip([1.10, 1.52, 0.88]).for_each(|(row, value)| paper.push_exact(*row, Some(value)));
    findings.series.push(paper);
    // The paper has no optimistic latches, whose readers write nothing.
    let columns = [
        ("super", Assignment::ByHome),
        ("super", Assignment::Spread),
        ("optimistic", Assignment::ByHome),
        ("optimistic", Assignment::Spread),
    ];
    for (latches, by) in columns {
        let (label, what) = match latches {
            "super" => (label, String::new()),
            other => ("plain latches, by these", format!("{other} latches, ")),
        };
        let name = format!("itanium-coherence table7 {what}{PAPER_CORES} cores, {}, modelled", assignment_name(by));
        let mut series = Series::new(name, "metric", label);
        let pair = find(outcomes, "plain", by).zip(find(outcomes, latches, by));
        let ratio = |of: fn(&ReplayResult) -> f64| pair.map(|(plain, other)| of(plain) / of(other));
        let (transfers, taken) = (ratio(|of| of.all().transfers()), ratio(|of| of.all().invalidations));
        series.push_exact(ROWS[0], transfers);
        series.push_exact(ROWS[1], taken);
        // Not on this machine: there is one memory node.
        series.push_exact(ROWS[2], None);
        findings.series.push(series);
        if (latches, by) == ("super", Assignment::ByHome) && !outcomes.is_empty() {
            let note = "modelled, client partitioning, as the paper's";
            findings.add_claim(claims::PLAIN_TRANSFERS.exact(transfers.unwrap_or(f64::NAN), note));
            findings.add_claim(claims::PLAIN_INVALIDATIONS.exact(taken.unwrap_or(f64::NAN), note));
        }
    }
}

/// Returns the ratio of transfers without client partitioning to transfers with it, for Table 6.
fn transfers(outcomes: &Outcomes<'_>) -> serde_json::Value {
    let of = |by| find(outcomes, "super", by).map(|of| of.all().transfers());
    json!(of(Assignment::Spread).zip(of(Assignment::ByHome)).map(|(spread, home)| spread / home))
}
