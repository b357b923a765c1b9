//! `tpcc reproduce`: reruns an experiment of a paper, or all experiments.

use std::path::Path;

use super::Outcome;
use crate::cli::flags::lab::ReproduceFlags;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::streams::{print, say};
use tpcc_lab::reproduce::{self, ALL};

/// Default directory of the results of all experiments.
const OUT: &str = "tpcc-reproduce";

pub(crate) fn run(flags: ReproduceFlags) -> Result<Outcome, Error> {
    if flags.list {
        print(&reproduce::list());
        return Ok(Outcome::Success);
    }
    let Some(id) = &flags.id else {
        let ids: Vec<_> = reproduce::ids().collect();
        return Err(Error::usage("reproduce: which experiment?")
            .help(format!("one of {}; 'tpcc reproduce --list' says what each shows", ids.join(", "))));
    };
    if let Some(out) = flags.keep.out.as_deref().or((id == ALL).then_some(Path::new(OUT))) {
        return keep(&flags, id, out);
    }
    let kept_only = [("--resume", flags.keep.resume), ("--only", !flags.keep.only.is_empty())];
    if let Some((flag, _)) = kept_only.iter().find(|(_, given)| *given) {
        return Err(Error::usage(format!("{flag}: means nothing where results are not kept"))
            .help("add --out DIR, or reproduce all"));
    }
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let report = reproduce::run(id, flags.quick, flags.data.as_deref())?;
    conclude(json, &report, reproduce::text(&report), false)?;
    Ok(Outcome::Success)
}

fn keep(flags: &ReproduceFlags, id: &str, out: &Path) -> Result<Outcome, Error> {
    let order = reproduce::campaign::Campaign {
        id,
        only: &flags.keep.only,
        quick: flags.quick,
        resume: flags.keep.resume,
        data: flags.data.as_deref(),
        out,
    };
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let kept = reproduce::campaign::run(&order)?;
    let text = format!("{}written   {}\n", kept.text(), kept.index.display());
    conclude(json, &kept.combined_report(id), text, false)?;
    if kept.interrupted {
        say(format_args!("interrupted after {} of {}; --resume goes on", kept.ran + kept.known, kept.chosen));
        return Ok(Outcome::Success);
    }
    let failed = kept.failed();
    match failed.first() {
        None => Ok(Outcome::Success),
        Some((first, why)) => {
            let more = if failed.len() > 1 { format!(" (and {} more)", failed.len() - 1) } else { String::new() };
            Err(Error::failed(format!("{first}{more} failed: {why}"))
                .help(format!("the others are in {}; --resume tries again", kept.index.display())))
        }
    }
}
