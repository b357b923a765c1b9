//! Text output of `run` and `check`.

use std::fmt::Write;

use super::{NOTICE, model, pacing};
use crate::workload::check::Audit;
use crate::workload::check::rule::{CONDITIONS, Invariant};
use crate::workload::counters::Counters;
use crate::workload::generate::deck::Kind;
use crate::workload::interrupt;
use crate::workload::words::{counted, grouped};

/// Formats the summary of a run, from its `--json` object.
pub fn run(run: &model::Run, checked: Option<&Audit>) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_run(&mut text, run, checked);
    text
}

/// Formats a note on warehouses without a terminal, if there are any. Terminals are assigned to the warehouses round-robin.
fn unserved(terminals: u32, warehouses: u32) -> String {
    if terminals >= warehouses {
        return String::new();
    }
    format!(" ({terminals} of {warehouses} warehouses have one)")
}

fn write_run(to: &mut String, run: &model::Run, checked: Option<&Audit>) -> std::fmt::Result {
    let config = &run.config;
    writeln!(to, "{NOTICE}")?;
    let seed = config.seed.unwrap_or_default();
    let (warehouses, terminals) = (config.warehouses.unwrap_or_default(), config.terminals.unwrap_or_default());
    writeln!(to, "{:<72}seed {seed}", format!("build     {}", run.provenance.line()))?;
    writeln!(
        to,
        "load      {}, {}, {}{}, mix {}, {}",
        counted(u64::from(warehouses), "warehouse"),
        counted(config.workers.unwrap_or_default() as u64, "worker"),
        counted(u64::from(terminals), "terminal"),
        unserved(terminals, warehouses),
        config.mix.as_deref().unwrap_or("-"),
        if run.pacing.is_some() { "paced (5.2.5)" } else { "no think time" },
    )?;
    match &config.server {
        Some(server) => remote(to, config, server)?,
        None => engine(to, config)?,
    }
    writeln!(to, "machine   {}", run.machine.line())?;
    let warmup = config.warmup_s.unwrap_or_default();
    let ended = match run.interrupted {
        model::Interrupted::ByUser(false) => String::new(),
        model::Interrupted::ByUser(true) => format!(", ended by {}", interrupt::name()),
        model::Interrupted::Failed(_) => ", ended by an error".to_owned(),
    };
    writeln!(to, "time      warm-up {warmup} s (not counted), measured {:.1} s{ended}", run.measured_s)?;
    writeln!(to)?;

    writeln!(to, "throughput {} /s{}", whole(run.throughput_per_s), samples(&run.series))?;
    writeln!(to, "new orders {} /min (rolled-back ones count)", whole(run.new_orders_per_min))?;
    writeln!(to)?;
    transactions(to, run)?;
    writeln!(to)?;
    if let Some(paced) = &run.pacing {
        pacing::text(to, paced)?;
    }

    aborts(to, run)?;
    if let Some(steps) = &run.steps {
        teams(to, steps)?;
    }
    if let Some(siblings) = &run.siblings {
        writeln!(
            to,
            "siblings  {} switches within a warehouse, {} between; longest wait {:.0} us, of {:.0} at most",
            grouped(siblings.switches_within),
            grouped(siblings.switches_between),
            siblings.max_wait_us,
            siblings.wait_bound_us,
        )?;
    }
    if let Some(speculation) = &run.speculation {
        let shown: Vec<_> = speculation.shown().collect();
        writeln!(to, "loops     {}", shown.join(", "))?;
    }
    if let Some(log) = &run.log {
        let rate = log.counters.bytes as f64 / 1e6 / run.measured_s.max(f64::MIN_POSITIVE);
        write!(to, "log       {} MB/s, {} bytes a transaction", whole(Some(rate)), whole(log.bytes_per_transaction))?;
        log.counters.shown().try_for_each(|counter| write!(to, ", {counter}"))?;
        if let Some(direct) = log.direct {
            write!(to, ", {}", if direct { "past the system's cache" } else { "through the system's cache" })?;
        }
        writeln!(to)?;
    }
    if let Some(latches) = &run.latches {
        let shown: Vec<_> = latches.shown().collect();
        writeln!(to, "latches   {}", shown.join(", "))?;
    }
    if let Some(leaf) = run.leaf.as_ref().filter(|leaf| leaf.counters.contended > 0) {
        let shown: Vec<_> = leaf.counters.shown().collect();
        writeln!(to, "leaves    {}", shown.join(", "))?;
    }
    let waits: Vec<_> = run.waits.iter().flat_map(|waits| waits.shown()).collect();
    if !waits.is_empty() {
        writeln!(to, "waits     {}", waits.join(", "))?;
    }
    let memory = run.peak_rss_bytes.map_or("not available".to_owned(), |b| format!("{} MiB", grouped(b >> 20)));
    match &run.pool {
        Some(pool) => {
            let hits = pool.hit_rate.map_or("-".to_owned(), |rate| format!("{:.3}%", 100.0 * rate));
            write!(to, "pool      hits {hits}")?;
            pool.counters.shown().try_for_each(|counter| write!(to, ", {counter}"))?;
            writeln!(to, "; peak memory {memory}")?;
        }
        None => writeln!(to, "memory    peak {memory}")?,
    }
    if let Some(events) = &run.events {
        counted_events(to, events)?;
    }
    if let Some(large) = &run.large_pages {
        large_pages(to, large)?;
    }
    generator(to, run)?;
    match checked {
        Some(checked) => writeln!(to, "check     {}", check_line(checked))?,
        None if run.interrupted != model::Interrupted::ByUser(false) => {
            writeln!(to, "check     not done (interrupted)")?;
        }
        None => writeln!(to, "check     off")?,
    }
    Ok(())
}

fn remote(to: &mut String, config: &model::Config, server: &str) -> std::fmt::Result {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let durability = match config.durability.as_deref() {
        Some("async") => "async (a crash may lose the last commits), ".to_owned(),
        Some(durability) => format!("{durability}, "),
        None => String::new(),
    };
    writeln!(
        to,
        "engine    {}, {server}, {}",
        or_dash(&config.server_version),
        counted(config.connections.unwrap_or_default() as u64, "connection"),
    )?;
    writeln!(
        to,
        "          dialect {}, {durability}{}, order {}, admission {}",
        or_dash(&config.sql_dialect),
        or_dash(&config.isolation),
        or_dash(&config.order),
        or_dash(&config.admission),
    )
}

fn engine(to: &mut String, config: &model::Config) -> std::fmt::Result {
    let Some(durability) = config.durability.as_deref() else {
        writeln!(to, "engine    FLOOR: ordered maps of the standard library, one thread, no locks, no log, no pages,")?;
        return writeln!(to, "          no isolation, nothing durable: a yardstick, not a database");
    };
    let note = if durability == "async" { " (a crash may lose the last commits)" } else { "" };
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let switch = |on: Option<bool>| if on == Some(true) { "on" } else { "off" };
    writeln!(
        to,
        "engine    {durability}{note}, {}, latches {}, prefetch {}, order {}",
        or_dash(&config.isolation),
        or_dash(&config.latches),
        switch(config.prefetch),
        or_dash(&config.order),
    )?;
    let delay = match config.read_delay_us {
        Some(delay @ 1..) => format!(", reads DELAYED by {delay} us"),
        _ => String::new(),
    };
    let partition = config.partition.as_ref().map_or(String::new(), |what| format!(", partition {what}"));
    let pin = if config.pin == Some(true) { ", workers pinned" } else { "" };
    let checksums = if config.page_checksums == Some(false) { ", page checksums OFF" } else { "" };
    writeln!(
        to,
        "          scheduler {}, admission {}{partition}{pin}, pool {} MiB, background {}{checksums}{delay}",
        or_dash(&config.scheduler),
        or_dash(&config.admission),
        count(config.buffer_pool_mib),
        or_dash(&config.background),
    )
}

/// Writes the counters over all transactions, and the reasons why other counters are missing.
fn counted_events(to: &mut String, events: &model::EventCounters) -> std::fmt::Result {
    let software = &events.software;
    writeln!(
        to,
        "counters  {} ms on processors, {}, {} context switches, {} ({})",
        whole(Some(software.task_clock_ms)),
        counted(software.page_faults, "page fault"),
        grouped(software.context_switches),
        software.migrations.map_or("moves not known".to_owned(), |n| counted(n, "move")),
        software.source,
    )?;
    let all = events.transactions.get("all").into_iter().flatten();
    let shown: Vec<String> = all
        .filter_map(|(name, mean)| {
            let mean = mean.as_ref()?;
            Some(format!("{name} {} + {}", whole(mean.user), whole(mean.kernel)))
        })
        .collect();
    if !shown.is_empty() {
        writeln!(to, "          a transaction, user + kernel: {}", shown.join(", "))?;
    }
    let turns = events.ran.values().copied().fold(1.0, f64::min);
    if turns < 1.0 {
        writeln!(to, "          estimates: counters took turns, and ran {:.0}% of the time or more", 100.0 * turns)?;
    }
    // Groups the missing counters by reason, because most counters are missing for the same reason.
    let mut reasons: Vec<&String> = events.reasons.values().collect();
    reasons.sort();
    reasons.dedup();
    for reason in reasons {
        let of: Vec<&str> = events.reasons.iter().filter(|(_, why)| *why == reason).map(|(name, _)| &**name).collect();
        writeln!(to, "          no {}: {reason}", of.join(", "))?;
    }
    Ok(())
}

/// Writes a line such as "large     pages try: 2,410 MiB given (frames 2,400, log_ring 8)".
fn large_pages(to: &mut String, large: &model::LargePagesReport) -> std::fmt::Result {
    let mib = |bytes: u64| grouped(bytes >> 20);
    write!(to, "large     pages {}: {} MiB given", large.asked, large.given_bytes.map_or("?".to_owned(), mib))?;
    let given: Vec<String> = large
        .regions
        .iter()
        .filter(|(_, region)| region.given_bytes > 0)
        .map(|(name, region)| format!("{name} {}", mib(region.given_bytes)))
        .collect();
    if !given.is_empty() {
        write!(to, " ({})", given.join(", "))?;
    }
    if let Some(reason) = &large.reason {
        write!(to, ": {reason}")?;
    }
    writeln!(to)
}

/// Writes the team sizes per operation, as in Table 4 of the paper.
fn teams(to: &mut String, steps: &model::Steps) -> std::fmt::Result {
    let one = |mean: Option<f64>| mean.map_or("-".to_owned(), |mean| format!("{mean:.1}"));
    writeln!(
        to,
        "teams     of {} at most; {} run, mean size {}, of {} ready; {}",
        steps.team_size,
        grouped(steps.counters.launches),
        one(steps.mean_team),
        one(steps.mean_ready),
        counted(steps.counters.waits, "wait"),
    )?;
    if !steps.operations.is_empty() {
        writeln!(to, "          {:<28}{:>12}{:>8}{:>8}{:>10}", "operation", "teams", "in", "out", "strays")?;
    }
    for operation in &steps.operations {
        writeln!(
            to,
            "          {:<28}{:>12}{:>8}{:>8}{:>10}",
            operation.name,
            grouped(operation.counters.teams),
            one(operation.mean_in),
            one(operation.mean_out),
            grouped(operation.counters.strays),
        )?;
    }
    Ok(())
}

fn samples(series: &model::ThroughputSeries) -> String {
    let mut sorted = series.throughput_per_s.clone();
    sorted.sort_by(f64::total_cmp);
    match (sorted.first(), sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(&min), Some(&median), Some(&max)) => format!(
            "   1-s samples: min {}  median {}  max {}",
            whole(Some(min)),
            whole(Some(median)),
            whole(Some(max))
        ),
        _ => String::new(),
    }
}

fn transactions(to: &mut String, run: &model::Run) -> std::fmt::Result {
    writeln!(
        to,
        "{:<14}{:>10} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>12}",
        "service, us", "count", "mix", "mean", "p50", "p90", "p99", "p99.9", "max", "rolled back"
    )?;
    let all: u64 = run.transactions.values().map(|t| t.counters.count).sum();
    for kind in Kind::ALL {
        let Some(t) = run.transactions.get(kind.name()) else { continue };
        let share = 100.0 * t.counters.count as f64 / all.max(1) as f64;
        writeln!(
            to,
            "{:<14}{:>10} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>12}",
            kind.name(),
            grouped(t.counters.count),
            format!("{share:.1}%"),
            us(t.mean_us),
            us(t.p50_us),
            us(t.p90_us),
            us(t.p99_us),
            us(t.p999_us),
            us(t.max_us),
            grouped(t.counters.rolled_back),
        )?;
    }
    // Response times include the time that the terminal waited for its turn.
    writeln!(to, "{:<14}{:>10} {:>6} {:>8} {:>8} {:>8} {:>8}", "response, us", "", "", "", "p50", "p90", "p99")?;
    for kind in Kind::ALL {
        let Some(t) = run.transactions.get(kind.name()) else { continue };
        let (p50, p90, p99) = (us(t.response_p50_us), us(t.response_p90_us), us(t.response_p99_us));
        writeln!(to, "{:<14}{:>10} {:>6} {:>8} {p50:>8} {p90:>8} {p99:>8}", kind.name(), "", "", "")?;
    }
    run.counters.shown().try_for_each(|counter| writeln!(to, "{counter}"))
}

fn us(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |us| if us < 1000.0 { format!("{us:.1}") } else { whole(Some(us)) })
}

fn aborts(to: &mut String, run: &model::Run) -> std::fmt::Result {
    if run.aborts.is_empty() {
        return writeln!(to, "aborted   0");
    }
    let mut causes: Vec<&str> = run.aborts.iter().map(|a| a.cause.as_str()).collect();
    causes.dedup();
    let parts: Vec<String> = causes
        .into_iter()
        .map(|cause| {
            let of: Vec<_> = run.aborts.iter().filter(|a| a.cause == cause).collect();
            let sum: u64 = of.iter().map(|a| a.count).sum();
            let tables: Vec<String> = of
                .iter()
                .map(|a| format!("{} {}", a.table.as_deref().unwrap_or("table not known"), grouped(a.count)))
                .collect();
            format!("{cause} {} ({})", grouped(sum), tables.join(", "))
        })
        .collect();
    writeln!(to, "aborted   {}: {}; all run again with the same input", grouped(run.aborted), parts.join("; "))
}

fn generator(to: &mut String, run: &model::Run) -> std::fmt::Result {
    let generator = &run.generator;
    let percent = |share: Option<f64>, digits: usize| {
        share.map_or("-".to_owned(), |share| format!("{:.digits$}%", 100.0 * share))
    };
    let verdict = if generator.as_specified { "as specified" } else { "OUTSIDE the specified bands" };
    writeln!(
        to,
        "generator rollbacks {}, remote lines {}, remote payments {}, by name {}: {verdict}",
        percent(generator.rollback, 2),
        percent(generator.remote_lines, 2),
        percent(generator.remote_payments, 1),
        percent(generator.by_name, 1),
    )
}

/// Formats the result of a check: "12 of 12 conditions hold, 5 of 5 further rules (0.8 s)".
pub fn check_line(checked: &Audit) -> String {
    if checked.interrupted {
        return "not finished (interrupted)".to_owned();
    }
    let held = checked.checked_rules.iter().filter(|&&rule| checked.findings.of(rule).times == 0).count();
    let conditions = checked.conditions_held();
    format!(
        "{conditions} of {CONDITIONS} conditions hold, {} of {} further rules ({:.1} s)",
        held - conditions,
        checked.checked_rules.len() - CONDITIONS,
        checked.seconds
    )
}

/// Formats a line for each of the first keys of each violated rule: "check: condition 2, warehouse 3, district 7: ...".
pub fn broken_rules(checked: &Audit) -> String {
    let mut text = String::new();
    for rule in Invariant::ALL {
        let broken = checked.findings.of(rule);
        for found in &broken.first {
            let _ = writeln!(text, "check: {}, {found}", rule.name());
        }
        let more = broken.times - broken.first.len() as u64;
        if more > 0 {
            let _ = writeln!(text, "check: {}: {} more ({})", rule.name(), grouped(more), rule.text());
        }
    }
    text
}

fn whole(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| grouped(number.round().max(0.0) as u64))
}

fn count(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), grouped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warehouses_without_a_terminal_are_told() {
        assert_eq!(unserved(3, 5), " (3 of 5 warehouses have one)");
        assert_eq!((unserved(5, 5), unserved(50, 5)), (String::new(), String::new()));
    }
}
