//! Map of regimes: gain or loss of each policy, by size of a tenant's rows and length of a slice.

use serde_json::Value;

use super::oltp::{claim_waits_of_runs, mib, ratio};
use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED, arguments};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Numbers of rows of a tenant, which take 256 KiB to 8 MiB.
const ROWS: [u32; 5] = [2_048, 8_192, 16_384, 32_768, 65_536];
const ROWS_QUICK: [u32; 3] = [2_048, 8_192, 32_768];
/// Lengths of a time slice, in microseconds.
const SLICES_US: [u32; 3] = [50, 200, 1_000];
const SLICES_US_QUICK: [u32; 2] = [50, 500];
const TENANTS: u32 = 8;
const POLICIES: [&str; 4] = ["tas", "packed", "itas", "auto"];

/// Measures the map: throughput of each policy at each size of rows and length of a slice.
pub(super) fn regime(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (sizes, slices): (&[u32], &[u32]) =
        if lab.quick { (&ROWS_QUICK, &SLICES_US_QUICK) } else { (&ROWS, &SLICES_US) };
    let mut cells: Vec<(u32, u32, Value)> = Vec::new();
    for &slice in slices {
        for &rows in sizes {
            let seconds = if lab.quick { 2 } else { 6 };
            lab.say(&format!("{TENANTS} tenants of {rows} rows, slices of {slice} us, {seconds} s of each policy"));
            let how = format!(
                "tenants --mix point --tenants {TENANTS} --terminals-per-tenant 4 --rows {rows} --slice-us {slice} --duration \
                 {seconds} --seed {SEED} --policy fair,tas,packed,itas,auto"
            );
            cells.push((slice, rows, lab.tpcc(&arguments(&how))?));
        }
    }
    for &slice in slices {
        for policy in POLICIES {
            let name = format!("itas-regime {policy}, slices of {slice} us");
            let mut series = Series::new(name, "MiB of a tenant's rows", "throughput, fair = 1");
            for (_, rows, run) in cells.iter().filter(|(of, ..)| *of == slice) {
                series.push(mib(*rows), ratio(run, policy));
            }
            findings.series.push(series);
        }
    }
    let against_best = |(slice, rows, run): &(u32, u32, Value)| {
        let best = ["tas", "packed", "itas"].into_iter().filter_map(|policy| ratio(run, policy));
        let best = best.map(|ratio| ratio.mid).fold(1.0, f64::max);
        let auto = ratio(run, "auto")?;
        let chosen = run["policies"]["auto"]["chosen"].as_str().unwrap_or("none yet").to_owned();
        let of_best = Spread { mid: auto.mid / best, low: auto.low / best, high: auto.high / best };
        Some((of_best, format!("slices of {slice} us, {} MiB, where it chose {chosen}", mib(*rows))))
    };
    let worst = cells.iter().filter_map(against_best).min_by(|(a, _), (b, _)| a.mid.total_cmp(&b.mid));
    findings.add_claim(match worst {
        Some((worst, at)) => claims::AUTO.measured(Some(worst), format!("the worst of {} cells: {at}", cells.len())),
        None => claims::AUTO.missing("no cell was measured"),
    });
    claim_waits_of_runs(&cells.into_iter().map(|(.., run)| run).collect::<Vec<_>>(), findings);
    Ok(())
}
