//! `tpcc index-fetch`: the microbenchmark of the STEPS paper. Fibers of one thread read rows by key in a loop.

use super::Outcome;
use crate::cli::flags::lab::IndexFetchFlags;
use tpcc_core::report;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::workload::error::Error;
use tpcc_lab::index_fetch::{self, IndexFetchPlan};

pub(crate) fn run(flags: IndexFetchFlags) -> Result<Outcome, Error> {
    let plan = IndexFetchPlan {
        threads: flags.threads as usize,
        fetches: flags.fetches,
        points: flags.ctx_points,
        cold: flags.cold,
    };
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let done = index_fetch::run(&plan)?;
    let text = format!(
        "{}\nfetches   {} by {} threads, {:.1} ns each; points {}{}\n",
        report::NOTICE,
        done.fetches,
        done.threads,
        done.ns_per_fetch,
        done.ctx_points,
        if done.cold { "; other code before each round" } else { "" },
    );
    conclude(json, &done, text, false)?;
    Ok(Outcome::Success)
}
