//! `tpcc footprint`: measures the instruction cache footprint of operations and proposes switch points.

use super::Outcome;
use crate::cli::flags::lab::FootprintFlags;
use crate::cli::resolve::lab;
use tpcc_core::report;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::streams::print;
use tpcc_lab::footprint::{self, FootprintSpec, child, place};
use tpcc_lab::reproduce::lab::Lab;

pub(crate) fn run(flags: FootprintFlags) -> Result<Outcome, Error> {
    if flags.traced.page_reads {
        child::read_page(flags.traced.latches)?;
        return Ok(Outcome::Success);
    }
    if flags.traced.traced {
        let (store, plan) = lab::traced(&flags);
        let traced = child::TracedRun { warm_up: flags.traced.after, holds: flags.traced.holds };
        child::run(&store, &plan, traced)?;
        return Ok(Outcome::Success);
    }
    let wanted = FootprintSpec { mix: flags.mix, geometry: flags.geometry, operation: flags.operation.clone() };
    let mut lab = Lab::open(None, true)?;
    let data = match &flags.data {
        Some(data) => data.clone(),
        None => lab.database(1)?,
    };
    let seed = flags.random.seed;
    let mut command = footprint::command(lab.program(), &data, flags.mix);
    command.args(["--seed", &seed.to_string(), "--prefetch", if flags.prefetch.is_on() { "on" } else { "off" }]);
    let traces = footprint::trace(command, flags.mix)?;
    let found = footprint::report(&traces, &wanted)?;
    let mut text = format!("{}\n{}seed      {seed}\n", report::NOTICE, found.text);
    if let Some(path) = &flags.place {
        place::write(path, &found.placement)?;
        text += &format!("written   {}; 'tpcc run --scheduler steps --ctx-points {0}' uses it\n", path.display());
    }
    print(&text);
    Ok(Outcome::Success)
}
