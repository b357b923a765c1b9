//! `tpcc latency`: measures the time of one transaction, on one core and with its loop in epochs on several.

use std::fmt::Write;

use super::Outcome;
use crate::cli::flags::lab::LatencyFlags;
use crate::cli::memory;
use crate::cli::resolve::lab;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::{Error, command};
use tpcc_lab::latency::simulation::{SimulatedMachine, Simulation};
use tpcc_lab::latency::{self, LatencyReport, RatioRange, TrialTimes};

pub(crate) fn run(flags: &LatencyFlags) -> Result<Outcome, Error> {
    let (config, plan) = lab::latency(flags)?;
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let shown = config.shown();
    let Some((database, loaded)) = Store::open(&config, None)? else {
        return Err(Error::failed(format!("{shown}: no database there"))
            .help(format!("{} makes one; or name another directory with --data", command("load", &shown, ""))));
    };
    memory::lab::of_latency(&plan, &database, &config)?;
    if let Some(way) = plan.only {
        let alone = latency::run_alone(way, &plan, &config, &database, &loaded)?;
        Database::close(database)?;
        conclude(json, &alone, format!("{}\n{}", report::NOTICE, line(&alone.only, alone.times, None)), false)?;
        return Ok(Outcome::Success);
    }
    let measured = latency::run(&plan, &config, &database, &loaded)?;
    Database::close(database)?;
    conclude(json, &measured, text(&measured), false)?;
    Ok(if measured.equal { Outcome::Success } else { Outcome::CheckFailed })
}

/// Returns the line of a way.
fn line(name: &str, times: TrialTimes, ratio: Option<(f64, f64, f64)>) -> String {
    let ratio = ratio.map_or(String::new(), |(low, value, high)| format!("  {value:.3} [{low:.3} {high:.3}]"));
    let TrialTimes { mean_us, p50_us, p99_us } = times;
    format!("{name:<20} mean {mean_us:8.2} us  p50 {p50_us:8.2}  p99 {p99_us:8.2}{ratio}\n")
}

fn text(measured: &LatencyReport) -> String {
    let mut text = format!("{}\n", report::NOTICE);
    let LatencyReport { ratio, ratio_low: low, ratio_high: high, .. } = measured;
    text += &line("sequential", measured.sequential, None);
    let prefetch = (low.sequential_prefetch, ratio.sequential_prefetch, high.sequential_prefetch);
    text += &line("sequential, prefetch", measured.sequential_prefetch, Some(prefetch));
    text += &line("epochs, 1 core", measured.tls_seq, Some((low.tls_seq, ratio.tls_seq, high.tls_seq)));
    text += &line("epochs", measured.speculative, Some((low.speculative, ratio.speculative, high.speculative)));
    let best = &measured.ratio_to_announced.speculative;
    let range = |of: &RatioRange| format!("{:.3} [{:.3} {:.3}]", of.value, of.low, of.high);
    let ideal = measured.ideal.as_ref().map_or_else(|| "-".to_owned(), range);
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "relative to prefetch epochs {}, independent transactions on as many cores {ideal}",
        range(best)
    );
    let _ = writeln!(
        text,
        "epochs    {:.1} a transaction, {}, on {} threads; {} violations ({} injected); an empty loop takes {:.2} us",
        measured.epochs as f64 / measured.transactions as f64,
        match (measured.grain, measured.epochs_each) {
            (Some(grain), _) => format!("of {grain} iterations"),
            (None, Some(number)) => format!("at most {number} in a loop"),
            (None, None) => "none (the governor's choice)".to_owned(),
        },
        measured.epoch_workers,
        measured.violations,
        measured.injected,
        measured.fork_join_us,
    );
    if measured.epoch_workers > measured.cores {
        let _ = writeln!(text, "warning   {} threads on {} cores", measured.epoch_workers, measured.cores);
    }
    if let Some(simulation) = &measured.simulation {
        text += &simulated(simulation);
    }
    let _ = writeln!(
        text,
        "rows      {}",
        if measured.equal { "equal after all four ways" } else { "NOT EQUAL: a fault of the program" }
    );
    text
}

fn simulated(simulation: &Simulation) -> String {
    let mut text = String::new();
    let percent = |error: f64| format!("{:.1}%", 100.0 * error);
    let _ = writeln!(
        text,
        "simulated from {} traces, {:.2} us to another processor; differs from what was measured by {} on one, {} on two",
        simulation.transactions,
        simulation.hop_us,
        percent(simulation.error_p1),
        simulation.error_p2.map_or("-".to_owned(), percent),
    );
    for SimulatedMachine { name, cpus, mean_us, ratio, busy_us, failed_us, token_us, idle_us, violations } in
        simulation.machines.iter().chain(&simulation.changes)
    {
        let _ = writeln!(
            text,
            "  {name:<18} on {cpus}  mean {mean_us:8.2} us  {ratio:.3}   busy {busy_us:.1}, failed {failed_us:.1}, token \
             {token_us:.1}, idle {idle_us:.1} us; {violations:.2} violations"
        );
    }
    text
}
