//! Table 2: operations that run the same code in all transactions, so that they can share a team, and operations that do so
//! only on the same index. The paper classifies by hand; here traces of our own operations are compared.

use std::collections::HashSet;

use crate::footprint::{self, Overlap};
use crate::reproduce::Results;
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::deck::Mix;

/// Traces the standard mix and compares executions of each operation.
pub(super) fn table2(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let data = lab.database(1)?;
    lab.say("tracing one transaction of each kind after the other");
    let traces = match footprint::trace(footprint::command(lab.program(), &data, Mix::Standard), Mix::Standard) {
        Ok(traces) => traces,
        Err(error) => {
            lab.say(&format!("steps-table2 is left out: {error}"));
            return Ok(());
        }
    };
    let label = "lines of code in common, per cent of all of two executions";
    let mut same = Series::new("steps-table2 on one index", "operation", label);
    let mut other = Series::new("steps-table2 on different indexes", "operation", label);
    let overlaps = footprint::overlaps(&traces);
    let kinds: Vec<&str> = {
        let mut seen = HashSet::new();
        overlaps.iter().map(|overlap| overlap.kind).filter(|kind| seen.insert(*kind)).collect()
    };
    for kind in kinds {
        let of = |same: bool| {
            let chosen = overlaps.iter().filter(|o: &&Overlap| o.kind == kind && o.same_index == same);
            Spread::of(chosen.map(|overlap| 100.0 * overlap.share))
        };
        same.push(kind, of(true));
        other.push(kind, of(false));
    }
    findings.series.extend([same, other]);
    Ok(())
}
