//! `tpcc index-fetch`: the paper's microbenchmark. N threads, each reading a row by its key again and again.

use super::Ended;
use crate::cli::flags;
use crate::lab::index_fetch::{self, Plan};
use crate::report;
use crate::report::json::{JsonOut, conclude};
use crate::workload::error::Error;

/// Most threads, each a fiber with a transaction of its own.
const MOST_THREADS: i64 = 256;
/// Most fetches of a thread.
const MOST_FETCHES: i64 = 1_000_000_000;

/// Carries the command out.
pub(crate) fn run(flags: flags::IndexFetch) -> Result<Ended, Error> {
    let bounded = |flag: &str, given: i64, most: i64| match (1..=most).contains(&given) {
        true => Ok(given as u64),
        false => Err(Error::usage(format!("{flag} {given}: from 1 to {most}")).help("'tpcc index-fetch --help'")),
    };
    let plan = Plan {
        threads: bounded("--threads", flags.threads, MOST_THREADS)? as usize,
        fetches: bounded("--fetches", flags.fetches, MOST_FETCHES)?,
        points: crate::cli::resolve::ctx_points(Some(&flags.ctx_points))?,
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
    Ok(Ended::Well)
}
