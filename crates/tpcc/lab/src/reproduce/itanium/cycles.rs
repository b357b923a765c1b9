//! Tables 2, 3 and 4: modelled breakdown of the time of a transaction (see [`breakdown`](crate::reproduce::breakdown)),
//! beside the paper's measurements.

use serde_json::{Map, Value, json};

use crate::footprint::geometry::Geometry;
use crate::reproduce::Results;
use crate::reproduce::breakdown::{
    Breakdown, Events, ExposedCosts, LARGE_PAGES, Model, Probe, SECOND_LEVEL, SMALL_PAGES, SOURCES, THIRD_LEVEL,
};
use crate::reproduce::cachegrind::DataCaches;
use crate::reproduce::claims;
use crate::reproduce::lab::{CountSpec, Lab, SEED, arguments};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Numbers of transactions of the short and of the long counted run.
const LENGTHS: (u64, u64) = (2_000, 6_000);
/// Number of warehouses. The data of a single warehouse fits the caches best.
const WAREHOUSES: u32 = 1;
/// Minimum number of misses per transaction in a ratio. Fewer misses count as this number.
const FEWEST_PAGES: f64 = 0.1;
/// Table 2 of the paper: share of each category of cycles, in per cent of the kernel, of the user and of the total.
const TABLE_2: [(&str, [f64; 3]); 5] = [
    ("FE", [5.0, 9.0, 8.0]),
    ("GR", [69.0, 57.0, 61.0]),
    ("TLB", [12.0, 8.0, 9.0]),
    ("OTH", [5.0, 6.0, 5.0]),
    ("NOT", [9.0, 20.0, 17.0]),
];
/// Table 3 of the paper: share of each source of data, in per cent.
const TABLE_3: [f64; 4] = [20.0, 21.0, 7.0, 52.0];
/// Table 4 of the paper, in per cent of all cycles with everything on. Columns: OTH, FE, TLB, NOT, GR, all.
const TABLE_4: [(&str, [f64; 6]); 6] = [
    ("ALL", [5.0, 8.0, 9.0, 17.0, 61.0, 100.0]),
    ("-LP", [6.0, 9.0, 14.0, 17.0, 63.0, 109.0]),
    ("-SL", [5.0, 8.0, 9.0, 16.0, 71.0, 110.0]),
    ("-PGO", [9.0, 19.0, 12.0, 19.0, 64.0, 123.0]),
    ("-CS", [6.0, 9.0, 10.0, 17.0, 77.0, 118.0]),
    ("-SS", [5.0, 8.0, 10.0, 18.0, 65.0, 106.0]),
];
/// Reasons for differences from the tables of the paper.
const WHY: &str = "modelled: counts of simulated caches times what an event costs beside other work, by probes; user code \
                   alone (the paper's processor counts, kernel included); one out-of-order core here, which goes on while it \
                   waits, against 32 in-order ones on 8 memory nodes there; no line travels between nodes, no register stack is \
                   spilled, and the database lies in memory";

/// Name under which a ratio is stored for other experiments: misses of the first translation buffer with small pages,
/// divided by its misses with large pages.
pub(super) const TLB_MISS_RATIO: &str = "itanium small by large pages";

/// Modelled workloads: name of the mix on the command line, and name in a report.
const WORKLOADS: [(&str, &str); 3] = [("new-order", "New-Order"), ("payment", "Payment"), ("standard", "the mix")];

/// A modelled workload.
pub(super) struct ModelledWorkload {
    pub(super) name: &'static str,
    /// Breakdown with large pages if they are available, and breakdown with small pages.
    pub(super) everything_on: Breakdown,
    pub(super) small: Breakdown,
    /// Measured nanoseconds of a transaction with everything on.
    pub(super) measured: Spread,
    /// Sources of the workload's data, as shares of time.
    sources: [(&'static str, f64); 4],
    /// Number of translations that are not in the first translation buffer: with large pages, and with small pages.
    pages: [f64; 2],
    /// Costs of events, alone and beside the work of the workload.
    costs: Model,
}

/// Counts, times and models New-Order, Payment and the mix. Returns the reason if one of these steps is impossible.
fn model_workloads(lab: &mut Lab) -> Result<Result<Vec<ModelledWorkload>, String>, Error> {
    let uncounted = |lab: &Lab| lab.uncountable.clone().unwrap_or_else(|| "nothing was counted".to_owned());
    let mut all = Vec::new();
    for (mix, name) in WORKLOADS {
        lab.say(&format!("counting {name}"));
        let args = format!(
            "run --warehouses {WAREHOUSES} --workers 1 --mix {mix} --warmup 0 --seed {SEED} --durability async \
             --buffer-pool 512 --check off --background inline"
        );
        let of_mix = |data_caches| CountSpec {
            args: arguments(&args),
            length_flag: "--transactions",
            lengths: LENGTHS,
            work_per_unit: 1.0,
            i1: Geometry::DEFAULT,
            data_caches,
            warehouses: Some(WAREHOUSES),
        };
        let (Some(small), Some(large)) = (events(lab, &of_mix, SMALL_PAGES)?, events(lab, &of_mix, LARGE_PAGES)?)
        else {
            return Ok(Err(uncounted(lab)));
        };
        let given = if storage::large_pages_available().is_ok() { &large } else { &small };
        let seconds = if lab.quick { 2 } else { 5 };
        let how = format!("--workers 1 --mix {mix} --warmup 1 --duration {seconds} --large-pages try");
        let run = lab.run_args(WAREHOUSES, WAREHOUSES, &how)?;
        let (mut with_given, mut with_small, mut times) = (Vec::new(), Vec::new(), Vec::new());
        // Probes and runs alternate, so that both see the same machine, whose speed changes within minutes.
        for round in 1..=if lab.quick { 3 } else { 7 } {
            lab.say(&format!("probing what misses cost beside other work, round {round}"));
            let probe = Probe::measure();
            let (Some(exposed), Some(exposed_small)) = (ExposedCosts::measure(given), ExposedCosts::measure(&small))
            else {
                return Ok(Err("the probes are for x86-64".to_owned()));
            };
            with_given.push(Model { probe, exposed });
            with_small.push(Model { probe, exposed: exposed_small });
            let Some(rate) = lab.interleave(1, &[(name, run.clone())])?.rate(name) else {
                return Ok(Err("no run was timed".to_owned()));
            };
            times.push(1e9 / rate.mid);
        }
        let Some(measured) = Spread::of(times) else { return Ok(Err("no run was timed".to_owned())) };
        let (costs, costs_small) = (Model::median(&with_given), Model::median(&with_small));
        all.push(ModelledWorkload {
            name,
            everything_on: costs.breakdown(given),
            small: costs_small.breakdown(&small),
            measured,
            sources: costs.sources(given),
            pages: [large.pages[0], small.pages[0]],
            costs,
        });
    }
    Ok(Ok(all))
}

/// Counts the events of some code in each of the simulated caches, and its translations in `pages`.
fn events(lab: &mut Lab, count: &dyn Fn(DataCaches) -> CountSpec, pages: DataCaches) -> Result<Option<Events>, Error> {
    let Some(counts) = lab.count(&[count(SECOND_LEVEL), count(THIRD_LEVEL), count(pages)])? else { return Ok(None) };
    let [second, third, pages] = &counts[..] else { return Ok(None) };
    Ok(Some(Events::of_counts(second, third, pages)))
}

/// Measures and models the breakdown of the time of a transaction.
pub(super) fn cycles(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    findings.config.insert("breakdown".into(), json!(WHY));
    count_by_processor(lab, findings)?;
    let all = match model_workloads(lab)? {
        Ok(all) => all,
        Err(why) => {
            tables_2_and_3(findings, &[]);
            table_4(findings, &[]);
            findings.add_claim(claims::SMALL_PAGES_TLB.missing(&why));
            findings.add_claim(claims::MODELLED.missing(why));
            return Ok(());
        }
    };
    let costs = |json: fn(&Model) -> Value| -> Map<String, Value> {
        all.iter().map(|of| (of.name.to_owned(), json(&of.costs))).collect()
    };
    findings.config.insert("probe".into(), costs(|costs| costs.probe.json()).into());
    findings.config.insert("beside_other_work".into(), costs(|costs| costs.exposed.json()).into());
    tables_2_and_3(findings, &all);
    table_4(findings, &all);
    if let Some(ModelledWorkload { pages: [large, small], name, .. }) = all.last() {
        // A count is the difference of two runs. With large pages there may be no misses: then the ratio is a lower limit.
        let (large, small) = (large.max(0.0), small.max(0.0));
        let ratio = small / large.max(FEWEST_PAGES);
        let note = format!(
            "{name}: {large:.1} and {small:.1} a transaction, of a buffer of 64 pages (fewer than {FEWEST_PAGES} count as \
             {FEWEST_PAGES})"
        );
        findings.add_claim(claims::SMALL_PAGES_TLB.exact(ratio, note));
        lab.store_result(TLB_MISS_RATIO.into(), json!(ratio));
    }
    let errors = all.iter().map(|of| (of, of.everything_on.error(of.measured.mid)));
    let Some((_, worst)) = errors.clone().max_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(()) };
    let each: Vec<String> = errors
        .map(|(of, error)| {
            let (sum, measured) = (of.everything_on.sum() / 1e3, of.measured.mid / 1e3);
            format!("{} {sum:.2} us modelled, {measured:.2} measured ({:.0}%)", of.name, 100.0 * error)
        })
        .collect();
    let costs = all
        .last()
        .map_or_else(String::new, |mix| format!("{}; {}", mix.costs.probe.in_words(), mix.costs.exposed.in_words()));
    let note = format!("{}; the mix, {costs}", each.join(", "));
    findings.add_claim(claims::MODELLED.exact(worst, note));
    Ok(())
}

/// Counts the mix by the processor itself, if it has counters. The paper's tables come from such counters. Cycles in user
/// mode and in kernel mode are the columns of Table 2.
fn count_by_processor(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let seconds = if lab.quick { 2 } else { 5 };
    let how = format!("--workers 1 --warmup 1 --duration {seconds} --large-pages try --counters on");
    let args = lab.run_args(WAREHOUSES, WAREHOUSES, &how)?;
    lab.say("asking the processor for its counts of the mix");
    let run = lab.tpcc(&args)?;
    let (series, reasons) = of_counters(&run["counters"]);
    findings.series.extend(series);
    findings.config.insert("counters_not_on_this_machine".into(), reasons);
    Ok(())
}

/// Returns the events of a transaction in user and in kernel mode, and the reasons for missing events, from the JSON of a
/// run.
fn of_counters(counters: &Value) -> (Vec<Series>, Value) {
    let columns = ["user", "kernel"].map(|column| {
        let name = format!("itanium-cycles events counted by the processor, {column}");
        let mut series = Series::new(name, "event", "events of a transaction");
        for (event, mean) in counters["all"].as_object().into_iter().flatten() {
            series.push_exact(event.replace('_', " "), mean[column].as_f64());
        }
        series
    });
    (columns.into(), counters["reasons"].clone())
}

/// Adds Tables 2 and 3, and Figure 1, which shows the total of Table 2.
fn tables_2_and_3(findings: &mut Results, all: &[ModelledWorkload]) {
    let mut paper = Series::new("itanium-cycles fig1 paper", "source", "per cent of the cycles of a transaction");
    TABLE_2.iter().for_each(|(part, [_, _, total])| paper.push_exact(*part, Some(*total)));
    findings.series.push(paper);
    for of in all {
        let name = format!("itanium-cycles fig1 {}, modelled", of.name);
        let mut series = Series::new(name, "source", "ns of a transaction");
        of.everything_on.parts().iter().for_each(|(part, ns)| series.push_exact(*part, Some(*ns)));
        series.push_exact("sum", Some(of.everything_on.sum()));
        series.push("measured", Some(of.measured));
        findings.series.push(series);
    }
    let label = "per cent of the time of a transaction";
    for (column, name) in ["kernel", "user", "total"].iter().enumerate() {
        let mut series = Series::new(format!("itanium-cycles table2 paper, {name}"), "source", label);
        TABLE_2.iter().for_each(|(part, values)| series.push_exact(*part, Some(values[column])));
        findings.series.push(series);
    }
    for of in all {
        let mut series = Series::new(format!("itanium-cycles table2 {}, modelled", of.name), "source", label);
        of.everything_on
            .parts()
            .iter()
            .for_each(|(part, ns)| series.push_exact(*part, Some(100.0 * ns / of.everything_on.sum())));
        findings.series.push(series);
    }
    let label = "per cent of the time that data takes";
    let mut paper = Series::new("itanium-cycles table3 paper", "source", label);
    SOURCES.iter().zip(TABLE_3).for_each(|(name, value)| paper.push_exact(*name, Some(value)));
    findings.series.push(paper);
    for of in all {
        let mut series = Series::new(format!("itanium-cycles table3 {}, modelled", of.name), "source", label);
        of.sources.iter().for_each(|(name, share)| series.push_exact(*name, Some(100.0 * share)));
        findings.series.push(series);
    }
}

/// Adds the rows of Table 4 that are modelled: everything on, and no large pages. The other rows need runs of other
/// experiments.
fn table_4(findings: &mut Results, all: &[ModelledWorkload]) {
    const COLUMNS: [&str; 6] = ["OTH", "FE", "TLB", "NOT", "GR", "total"];
    let label = "per cent of the time of a transaction with everything on";
    for (row, values) in TABLE_4 {
        let mut series = Series::new(format!("itanium-cycles table4 paper, {row}"), "source", label);
        COLUMNS.iter().zip(values).for_each(|(column, value)| series.push_exact(*column, Some(value)));
        findings.series.push(series);
    }
    let absent = "not told apart by source here: -SL and -PGO change instructions, whose counts stand in itanium-switches; -CS \
                  and -SS change what travels between cores, which one simulated core does not see. Their totals are measured \
                  there";
    findings.config.insert("table4_rows_without_sources".into(), json!(absent));
    let Some(mix) = all.last() else { return };
    for (row, breakdown) in [("ALL", mix.everything_on), ("-LP", mix.small)] {
        let name = format!("itanium-cycles table4 {}, modelled, {row}", mix.name);
        let mut series = Series::new(name, "source", label);
        let Breakdown { fe, gr, tlb, oth, not } = breakdown;
        for (column, ns) in COLUMNS.iter().zip([oth, fe, tlb, not, gr, breakdown.sum()]) {
            series.push_exact(*column, Some(100.0 * ns / mix.everything_on.sum()));
        }
        findings.series.push(series);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_processor_are_told_apart_and_what_is_missing_is_named() {
        let counters = json!({
            "all": {"cycles": {"user": 90_000.0, "kernel": 10_000.0}, "l1i_misses": {"user": 700.0, "kernel": null}, "itlb_misses": null},
            "reasons": {"itlb_misses": "not offered"},
        });
        let (series, reasons) = of_counters(&counters);
        assert_eq!(
            series.iter().map(|s| s.y.clone()).collect::<Vec<_>>(),
            [vec![Some(90_000.0), None, Some(700.0)], vec![Some(10_000.0), None, None],]
        );
        assert_eq!(reasons["itlb_misses"], "not offered");
    }
}
