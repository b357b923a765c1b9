//! Figures 7 and 10: the OLTP program of SysBench, and loop programs that run beside it, from runs of `tpcc tenants`.

use serde_json::Value;

use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED, arguments};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Numbers of rows of a database, around the sizes of caches: 128 KiB to 16 MiB. (The paper's 20,000 lines are 3.8 MB.)
const ROWS: [u32; 6] = [1_024, 4_096, 8_192, 16_384, 32_768, 131_072];
const ROWS_QUICK: [u32; 3] = [1_024, 8_192, 32_768];
/// Distributions of row accesses.
const ACCESS: [&str; 2] = ["uniform", "gaussian"];
const TENANTS: u32 = 4;
const LOOPS: u32 = 2;
const SLICE_US: u32 = 500;
const POLICIES: [&str; 4] = ["tas", "packed", "itas", "auto"];
const SIZE: &str = "MiB of a tenant's rows";

/// Returns the result of a run of all policies, for a distribution and a number of rows. The result is stored for later
/// calls.
fn run(lab: &mut Lab, access: &str, rows: u32) -> Result<Value, Error> {
    let key = format!("tenants {access} {rows}");
    if let Some(known) = lab.stored_result(&key) {
        return Ok(known);
    }
    let seconds = if lab.quick { 4 } else { 8 };
    lab.say(&format!("{TENANTS} tenants of {rows} rows, {access}, {LOOPS} loops, {seconds} s of each policy"));
    let how = format!(
        "tenants --mix sysbench-oltp --tenants {TENANTS} --terminals-per-tenant 8 --background {LOOPS} --rows {rows} --access \
         {access} --slice-us {SLICE_US} --duration {seconds} --seed {SEED} --policy fair,tas,packed,itas,auto"
    );
    let run = lab.tpcc(&arguments(&how))?;
    lab.store_result(key, run.clone());
    Ok(run)
}

/// Returns the results of all runs, each with its distribution and number of rows.
pub(super) fn runs(lab: &mut Lab) -> Result<Vec<(&'static str, u32, Value)>, Error> {
    let sizes: &[u32] = if lab.quick { &ROWS_QUICK } else { &ROWS };
    let mut runs = Vec::new();
    for access in ACCESS {
        for &rows in sizes {
            runs.push((access, rows, run(lab, access, rows)?));
        }
    }
    Ok(runs)
}

/// Returns the throughput of a policy relative to fair, with its interval.
pub(super) fn ratio(run: &Value, policy: &str) -> Option<Spread> {
    let of = |end: &str| run[end][policy].as_f64();
    Some(Spread { mid: of("ratio")?, low: of("ratio_low")?, high: of("ratio_high")? })
}

/// Returns the size of `rows` rows in MiB.
pub(super) fn mib(rows: u32) -> f64 {
    f64::from(rows) * 128.0 / f64::from(1 << 20)
}

/// Measures Figure 7: time of a transaction under each policy, by size of a tenant's rows.
pub(super) fn fig7(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let runs = runs(lab)?;
    for access in ACCESS {
        for policy in POLICIES {
            let mut series =
                Series::new(format!("itas-fig7 {access}, {policy}"), SIZE, "time of a transaction, fair = 1");
            for (_, rows, run) in runs.iter().filter(|(of, ..)| *of == access) {
                let time = ratio(run, policy).map(|Spread { mid, low, high }| Spread {
                    mid: 1.0 / mid,
                    low: 1.0 / high,
                    high: 1.0 / low,
                });
                series.push(mib(*rows), time);
            }
            findings.series.push(series);
        }
    }
    let ratios = |access: &str| {
        let of_access = runs.iter().filter(|(of, ..)| *of == access);
        of_access.filter_map(|(.., run)| ratio(run, "itas")).collect::<Vec<_>>()
    };
    for (spec, access) in [(claims::FIG7_UNIFORM, "uniform"), (claims::FIG7_GAUSSIAN, "gaussian")] {
        let ratios = ratios(access);
        let note = format!(
            "{} sizes of {TENANTS} databases; the ends count the sizes by the ends of their intervals",
            ratios.len()
        );
        findings.add_claim(spec.measured(share_above_one(&ratios), note));
    }
    claim_waits_of_runs(&runs.into_iter().map(|(.., run)| run).collect::<Vec<_>>(), findings);
    Ok(())
}

/// Returns the share of the ratios that are above 1: by their middle values, and by both ends of their intervals.
fn share_above_one(ratios: &[Spread]) -> Option<Spread> {
    let share =
        |of: fn(&Spread) -> f64| ratios.iter().filter(|ratio| of(ratio) > 1.0).count() as f64 / ratios.len() as f64;
    (!ratios.is_empty()).then(|| Spread { mid: share(|r| r.mid), low: share(|r| r.low), high: share(|r| r.high) })
}

/// Measures Figure 10: throughput of loop programs under each policy, by size of a tenant's rows.
pub(super) fn fig10(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let runs = runs(lab)?;
    let loops = |run: &Value, policy: &str| run["policies"][policy]["background_per_s"].as_f64();
    let against_fair = |run: &Value, policy: &str| Some(loops(run, policy)? / loops(run, "fair")?);
    for access in ACCESS {
        for policy in POLICIES {
            let name = format!("itas-fig10 {access}, {policy}");
            let mut series = Series::new(name, SIZE, "iterations of loop programs, fair = 1");
            for (_, rows, run) in runs.iter().filter(|(of, ..)| *of == access) {
                series.push(mib(*rows), against_fair(run, policy).map(Spread::exact));
            }
            findings.series.push(series);
        }
    }
    let of = |policy: &str| {
        let mut all: Vec<f64> = runs.iter().filter_map(|(.., run)| against_fair(run, policy)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let worst = ["tas", "itas", "auto"].into_iter().filter_map(of).reduce(f64::min);
    let note = "the least of tas, itas and auto; medians over sizes and ways of choosing rows";
    findings.add_claim(match worst {
        Some(worst) => claims::BACKGROUND.exact(worst, note),
        None => claims::BACKGROUND.missing("no run with loops"),
    });
    claim_waits_of_runs(&runs.into_iter().map(|(.., run)| run).collect::<Vec<_>>(), findings);
    Ok(())
}

/// Adds the claim on the longest wait, from the results of `tpcc tenants`.
pub(super) fn claim_waits_of_runs(runs: &[Value], findings: &mut Results) {
    let of_run = |run: &Value| {
        let policies = run["policies"].as_object()?;
        policies.values().filter_map(|figures| figures["wait_to_bound"].as_f64()).reduce(f64::max)
    };
    claim_waits(runs.iter().filter_map(of_run), findings);
}

/// Adds the claim on the longest wait, from ratios of waits to their bounds.
pub(super) fn claim_waits(parts: impl Iterator<Item = f64>, findings: &mut Results) {
    let longest = parts.reduce(f64::max);
    let known =
        findings.claims.iter().find(|claim| claim.name == claims::LONGEST_WAIT.name).and_then(|claim| claim.value);
    if let Some(longest) = longest.into_iter().chain(known).reduce(f64::max) {
        findings.claims.retain(|claim| claim.name != claims::LONGEST_WAIT.name);
        findings.add_claim(claims::LONGEST_WAIT.exact(longest, "over all policies, cores and rounds of what was run"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_by_their_middle_values_and_by_their_intervals() {
        let ratios = [(0.8, 0.9, 0.95), (0.9, 1.1, 1.2), (1.1, 1.2, 1.3), (0.9, 0.95, 1.1)]
            .map(|(low, mid, high)| Spread { mid, low, high });
        assert_eq!(share_above_one(&ratios), Some(Spread { mid: 0.5, low: 0.25, high: 0.75 }));
        assert_eq!(share_above_one(&[]), None);
    }
}
