//! The experiment: probes, recordings, timed runs, replays, and claims.

use serde_json::json;

use super::figures::{self, Curve, TransferCurve};
use super::measured::{self, CLAIMED};
use crate::coherence::probe::wake_ns;
use crate::coherence::transfers::CoreModel;
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::{Lab, SEED, Timings};
use crate::reproduce::transfer::{DISTURBED, Transfer};
use crate::reproduce::{Results, child};
use crate::scale::placement::Usage;
use crate::scale::recording::{ScaleRecording, ScaleRecordingPlan};
use crate::scale::replay::{ReplayPlan, ScaleModel, TerminalAssignment, replay};
use crate::scale::result::ScaleResult;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;

/// Numbers of modelled cores.
const CORES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Recorded mixes: name on the command line, and number of transactions in full and with `--quick`.
const MIXES: [(&str, usize, usize); 3] = [("standard", 320, 96), ("payment", 240, 48), ("new-order", 160, 32)];
/// Numbers of recorded warehouses, and of terminals of each warehouse.
const WAREHOUSES: u32 = 16;
const TERMINALS: u32 = 10;
/// Number of warehouses of the database of the timed runs, of which each worker has one.
const TIMED: u32 = 2;
/// Number of transactions before a recording: leaves to which terminals append become leaves of their own.
const WARM_UP: u64 = 50_000;
/// Number of measurements of a wake-up, and of wake-ups in each.
const WAKE_TRIES: usize = 20;
const WAKE_ROUNDS: u32 = 200;
/// Time slice of itas, in nanoseconds (the default of `tpcc run`).
const SLICE_NS: f64 = 50_000.0;
/// Transfer times with which the mix is also replayed, in nanoseconds.
const TRANSFERS: [f64; 5] = [25.0, 51.0, 75.0, 100.0, 150.0];

/// All claims of the experiment.
const CLAIMS: [ClaimSpec; 8] = [
    claims::SCALE_ERROR_MIX,
    claims::SCALE_ERROR_PAYMENT,
    claims::SCALE_ERROR_NEW_ORDER,
    claims::SCALE_ERROR_ITAS,
    claims::SCALE_ERROR_P2,
    claims::SCALE_PAYMENT,
    claims::SCALE_ITAS,
    claims::SCALE_MIX,
];

/// Recordings of the three mixes.
struct Recordings([ScaleRecording; 3]);

impl Recordings {
    fn of(&self, mix: &str) -> &ScaleRecording {
        &self.0[MIXES.iter().position(|(name, ..)| *name == mix).unwrap_or(0)]
    }
}

/// Measures, records and replays.
pub(super) fn cores(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    findings.config.insert("scale_measured_elsewhere".into(), json!(measured::SOURCE));
    lab.say("probing what a wake-up and a line from another core take");
    // Other programs only lengthen a wake-up: the shortest mean counts.
    let wake = (0..WAKE_TRIES).filter_map(|_| wake_ns(WAKE_ROUNDS)).reduce(f64::min);
    let Some(wake) = wake else { return missing(findings, "there is one core") };
    let transfer = Transfer::measure();
    let values = transfer.as_ref().map(|(_, values)| values);
    findings.config.insert("scale_probe".into(), json!({ "transfer": values, "wake_ns": wake }));
    let recordings = match record(lab) {
        Ok(recordings) => recordings,
        Err(_) if interrupt::requested() => return Err(child::interrupted()),
        Err(error) => return missing(findings, &format!("not on this machine: {error}")),
    };
    let timings = time(lab)?;
    match transfer {
        Some((transfer, _)) => here(lab, findings, &recordings, &timings, transfer, wake),
        None => findings.add_claim(claims::SCALE_ERROR_P2.missing(DISTURBED)),
    }
    there(lab, findings, &recordings, &timings, wake)
}

/// Adds all claims without values.
fn missing(findings: &mut Results, why: &str) -> Result<(), Error> {
    CLAIMS.iter().for_each(|spec| findings.add_claim(spec.missing(why)));
    Ok(())
}

fn record(lab: &mut Lab) -> Result<Recordings, Error> {
    let data = lab.database(WAREHOUSES)?;
    let mut all = Vec::new();
    for (mix, full, quick) in MIXES {
        lab.say(&format!("tracing transactions of the mix {mix}"));
        let plan = ScaleRecordingPlan {
            mix,
            warehouses: WAREHOUSES,
            terminals: TERMINALS,
            warm_up: WARM_UP,
            // Coprime to the number of terminals, so that the recorded transactions come from all terminals.
            each: 9,
            transactions: if lab.quick { quick } else { full },
            seed: SEED,
        };
        all.push(ScaleRecording::of_transactions(lab.program(), &data, plan)?);
    }
    let all: [ScaleRecording; 3] = all.try_into().map_err(|_| Error::failed("a mix was not recorded"))?;
    Ok(Recordings(all))
}

/// Runs each mix on one and on two workers of this machine, and the mix on one worker under itas.
fn time(lab: &mut Lab) -> Result<Timings, Error> {
    let (seconds, rounds) = if lab.quick { (2, 2) } else { (5, 5) };
    let mut runs = Vec::new();
    for (mix, ..) in MIXES {
        for workers in [1, 2] {
            let how = format!("--workers {workers} --mix {mix} --warmup 1 --duration {seconds}");
            runs.push((format!("{mix} {workers}"), lab.run_args(TIMED, workers, &how)?));
        }
    }
    let how = format!("--workers 1 --scheduler itas --warmup 1 --duration {seconds}");
    runs.push(("itas".to_owned(), lab.run_args(TIMED, 1, &how)?));
    let runs: Vec<(&str, Vec<String>)> = runs.iter().map(|(label, args)| (label.as_str(), args.clone())).collect();
    lab.interleave(rounds, &runs)
}

/// Replays a recording, with as many passes as the number of cores allows in a short time.
fn model(
    recording: &ScaleRecording,
    usage: &Usage<'_>,
    model: ScaleModel,
    assignment: TerminalAssignment,
    after: bool,
) -> Option<ScaleResult> {
    let passes = if model.machine.cores <= 32 { 3 } else { 1 };
    replay(recording, usage, model, ReplayPlan { assignment, after_splits: after, passes })
}

/// Returns the greatest number of cores of a curve. Contention that grows with the number of cores takes long to replay: the
/// engine before splits ends at 64. Transactions of several homes on each core need all lines.
fn most_cores(assignment: TerminalAssignment, after: bool, quick: bool) -> usize {
    match (assignment == TerminalAssignment::ByHome, quick) {
        (true, _) if after => 256,
        (false, true) => CLAIMED,
        _ => 64,
    }
}

/// Compares the model with one and two cores of this machine.
fn here(
    lab: &mut Lab,
    findings: &mut Results,
    recordings: &Recordings,
    timings: &Timings,
    transfer: Transfer,
    wake_ns: f64,
) {
    lab.say("replaying on two cores of this machine");
    let (mut notes, mut worst, mut all) = (Vec::new(), 0.0_f64, serde_json::Map::new());
    for (mix, ..) in MIXES {
        let recording = recordings.of(mix);
        let (Some(one), Some(two)) = (timings.rate(&format!("{mix} 1")), timings.rate(&format!("{mix} 2"))) else {
            continue;
        };
        let instruction_ns = 1e9 / one.mid / recording.instructions();
        let machine = CoreModel {
            cores: 2,
            node: 2,
            instruction_ns,
            near_ns: transfer.near_ns,
            upgrade_ns: transfer.upgrade_ns,
            cold_ns: 0.0,
            hold_ns: transfer.hold_ns,
            far: 1.0,
        };
        let usage = Usage::of(recording);
        let of_two = model(recording, &usage, ScaleModel { machine, wake_ns }, TerminalAssignment::ByHome, true);
        let modelled = of_two.map_or(f64::NAN, |result| result.per_second);
        let error = modelled / two.mid - 1.0;
        worst = worst.max(error.abs());
        notes.push(format!("{mix}: {modelled:.0} modelled, {:.0} measured ({:+.0}%)", two.mid, 100.0 * error));
        all.insert(mix.to_owned(), json!({
            "instruction_ns": instruction_ns, "instructions": recording.instructions(),
            "log_bytes": recording.log_bytes(), "one_per_s": one.mid, "two_per_s": two.mid, "modelled_two_per_s": modelled,
        }));
    }
    let note = format!("two workers against one, {}", notes.join("; "));
    findings.add_claim(claims::SCALE_ERROR_P2.exact(worst, note));
    findings.config.insert("scale_here".into(), all.into());
}

/// Replays on the machine of the measured runs, and on more cores.
fn there(
    lab: &mut Lab,
    findings: &mut Results,
    recordings: &Recordings,
    timings: &Timings,
    wake_ns: f64,
) -> Result<(), Error> {
    let mix = recordings.of("standard");
    // One worker of the mix was measured there. The other mixes have their ratio to it from this machine.
    let instruction_ns = |mix: &str| {
        let ratio = timings.ratio(&format!("{mix} 1"), "standard 1").map_or(f64::NAN, |ratio| ratio.mid);
        1e9 / (measured::MIX[0].1 * ratio) / recordings.of(mix).instructions()
    };
    let told: serde_json::Map<_, _> =
        MIXES.iter().map(|(mix, ..)| ((*mix).into(), json!(instruction_ns(mix)))).collect();
    findings.config.insert("scale_instruction_ns".into(), told.into());
    let machine = |cores, near_ns, instruction_ns: f64| ScaleModel {
        machine: CoreModel {
            cores,
            node: measured::NODE_CORES,
            instruction_ns: instruction_ns * measured::cache_factor(cores),
            near_ns,
            // An upgrade is a request to the other cores and its answer, as a transfer.
            upgrade_ns: near_ns,
            cold_ns: 0.0,
            hold_ns: 0.0,
            far: measured::FAR_FACTOR,
        },
        wake_ns,
    };
    let terminals = TERMINALS as usize;
    let (home, spread) = (TerminalAssignment::ByHome, TerminalAssignment::Spread { terminals });
    let groups = TerminalAssignment::Itas { terminals, slice_ns: SLICE_NS };
    // Under itas one worker is slower by this factor, which is measured here.
    let itas = timings.ratio("itas", "standard 1");
    let slower = itas.map_or(f64::NAN, |ratio| 1.0 / ratio.mid);
    let wanted = [
        ("mix", "standard", home, 1.0),
        ("payment", "payment", home, 1.0),
        ("new-order", "new-order", home, 1.0),
        ("partition none", "standard", spread, 1.0),
        ("itas, groups on all cores", "standard", groups, slower),
        ("itas, home workers", "standard", home, slower),
    ];
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for (name, mix, assignment, slower) in wanted {
        let recording = recordings.of(mix);
        let instruction_ns = instruction_ns(mix) * slower;
        let usage = Usage::of(recording);
        if name == mix || name == "mix" {
            findings.config.insert(format!("scale_splits_{mix}"), json!(usage.splits()));
        }
        for after in [false, true] {
            lab.say(&format!("replaying {name} on up to 256 cores, {}", figures::when(after)));
            let mut results = Vec::new();
            for cores in CORES {
                if cores > most_cores(assignment, after, lab.quick) {
                    continue;
                }
                if interrupt::requested() {
                    return Err(child::interrupted());
                }
                let machine = machine(cores, measured::TRANSFER_NS, instruction_ns);
                let result = model(recording, &usage, machine, assignment, after);
                let mut result =
                    result.ok_or_else(|| Error::failed("a recording has no transaction of some warehouse"))?;
                result.caches_ns = (measured::cache_factor(cores) - 1.0) * instruction_ns * recording.instructions();
                results.push((cores, result));
            }
            curves.push(Curve { name, recording, after, results });
        }
    }
    let usage = Usage::of(mix);
    let by_transfer = |after| {
        let machine = |ns| machine(CLAIMED, ns, instruction_ns("standard"));
        let of = |ns| model(mix, &usage, machine(ns), home, after).map(|result| result.per_second);
        TransferCurve { after, points: TRANSFERS.into_iter().map(|ns| (ns, of(ns))).collect() }
    };
    figures::add(findings, &curves, &[by_transfer(false), by_transfer(true)]);
    claim(findings, &curves, itas.map(|ratio| ratio.mid));
    Ok(())
}

/// Adds the claims on 16 cores.
fn claim(findings: &mut Results, curves: &[Curve<'_>], itas: Option<f64>) {
    let rate = |name: &str, after: bool, cores: usize| {
        let curve = curves.iter().find(|curve| curve.name == name && curve.after == after)?;
        curve.results.iter().find(|(n, _)| *n == cores).map(|(_, result)| result.per_second)
    };
    let error = |name: &str, cores: usize, measured: f64| Some(rate(name, false, cores)? / measured - 1.0);
    let told = |name: &str, cores: usize, measured: f64| match rate(name, false, cores) {
        Some(modelled) => format!(
            "{cores}: {:.0}k modelled, {:.0}k measured ({:+.0}%)",
            modelled / 1e3,
            measured / 1e3,
            100.0 * (modelled / measured - 1.0)
        ),
        None => format!("{cores}: not modelled"),
    };
    let mix: Vec<String> = measured::MIX.iter().map(|(cores, rate)| told("mix", *cores, *rate)).collect();
    let mix_note = format!(
        "{}; the measured run on 16 is pinned, without pinning {:.0}k; {}",
        mix.join("; "),
        measured::MIX_UNPINNED_16 / 1e3,
        measured::SOURCE
    );
    let (_, pinned) = measured::MIX[measured::MIX.len() - 1];
    let spread_note = format!("partition none: {}", told("partition none", CLAIMED, measured::SPREAD_16));
    let groups = "itas, groups on all cores";
    for (spec, name, measured, note) in [
        (claims::SCALE_ERROR_MIX, "mix", pinned, mix_note),
        (claims::SCALE_ERROR_PAYMENT, "payment", measured::PAYMENT_16, "the measured run is not pinned".to_owned()),
        (
            claims::SCALE_ERROR_NEW_ORDER,
            "new-order",
            measured::NEW_ORDER_16,
            "the measured run is not pinned".to_owned(),
        ),
        (claims::SCALE_ERROR_ITAS, groups, measured::ITAS_16, spread_note),
    ] {
        let value = error(name, CLAIMED, measured).map(f64::abs);
        findings.add_claim(spec.exact_or(value, format!("{}; {note}", told(name, CLAIMED, measured)), "not modelled"));
    }
    let after = |name: &str| rate(name, true, CLAIMED);
    let payment = after("payment").zip(after("mix")).map(|(payment, mix)| payment / mix);
    let before = rate("payment", false, CLAIMED).zip(rate("mix", false, CLAIMED)).map(|(payment, mix)| payment / mix);
    let note = format!("modelled, after splits for contention; before: {:.2}", before.unwrap_or(f64::NAN));
    findings.add_claim(claims::SCALE_PAYMENT.exact_or(payment, note, "not modelled"));
    let ratio = after("itas, home workers").zip(after("mix")).map(|(itas, threads)| itas / threads);
    let note = format!("modelled; on one worker of this machine itas has {:.3} of threads", itas.unwrap_or(f64::NAN));
    findings.add_claim(claims::SCALE_ITAS.exact_or(ratio, note, "not modelled"));
    let note = format!(
        "modelled, after splits for contention; before: {:.0}k",
        rate("mix", false, CLAIMED).unwrap_or(f64::NAN) / 1e3
    );
    findings.add_claim(claims::SCALE_MIX.exact_or(after("mix"), note, "not modelled"));
}
