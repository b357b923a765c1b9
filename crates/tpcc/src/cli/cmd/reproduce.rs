//! `tpcc reproduce`: rerun an experiment of a paper.

use super::Ended;
use crate::cli::flags::ReproduceFlags;
use crate::lab::reproduce;
use crate::report::json::{JsonOut, conclude, print};
use crate::workload::error::Error;

/// Carries the command out.
pub(crate) fn run(flags: ReproduceFlags) -> Result<Ended, Error> {
    if flags.list {
        print(&reproduce::list());
        return Ok(Ended::Well);
    }
    let Some(id) = flags.id else {
        let ids: Vec<_> = reproduce::ids().collect();
        return Err(Error::usage("reproduce: which experiment?")
            .help(format!("one of {}; 'tpcc reproduce --list' says what each shows", ids.join(", "))));
    };
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let report = reproduce::run(&id, flags.quick, flags.data.as_deref())?;
    conclude(json, &report, reproduce::text(&report), false)?;
    Ok(Ended::Well)
}
