//! Campaigns: each tries very many cases from one seed, and says how many failed.

mod bitflips;
mod crash;
pub(crate) mod damage;
mod full;
mod io_errors;
mod isolation;
mod laps;
mod malformed;
mod mutants;
mod narrow;
mod oracle;
mod recovery;
mod report;
mod seeds;
mod speculate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use report::{Progress, Report};

use crate::sim::scheduler::Scheduler;

/// A campaign: its name, what it tries in one line, and how.
struct Campaign {
    name: &'static str,
    /// Its cases have numbers, which `--case` names.
    is_numbered: bool,
    run: fn(&Plan, &Progress) -> Report,
}

/// All campaigns.
const CAMPAIGNS: &[Campaign] = &[
    Campaign { name: "crash", is_numbered: false, run: crash::run },
    Campaign { name: "recovery", is_numbered: false, run: recovery::run },
    Campaign { name: "io-errors", is_numbered: true, run: io_errors::run },
    Campaign { name: "oracle", is_numbered: false, run: oracle::run },
    Campaign { name: "isolation", is_numbered: false, run: isolation::run },
    Campaign { name: "bitflips", is_numbered: true, run: bitflips::run },
    Campaign { name: "malformed", is_numbered: true, run: malformed::run },
    Campaign { name: "speculate", is_numbered: false, run: speculate::run },
    Campaign { name: "mutants", is_numbered: false, run: mutants::run },
];

/// The flags of `cargo xtask torture`.
#[derive(Debug, Args)]
pub(crate) struct TortureFlags {
    /// What to try.
    #[arg(value_parser = PossibleValuesParser::new(CAMPAIGNS.iter().map(|c| c.name)))]
    campaign: String,
    /// Cases to try, at least. io-errors has as many as the seed determines, from some thousand to above 20,000; it
    /// prints how many, and a larger budget tries them all.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,
    /// The seed of the random choices; by default from the clock, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Tries only this case of the seed, in io-errors, bitflips and malformed: failures name it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    case: Option<u64>,
    /// Tries only this mutant, in mutants.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// How transactions run.
    #[arg(long, value_enum, default_value_t, value_name = "threads|steps")]
    scheduler: Scheduler,
    /// Whether transactions run some of their statements in loops ahead of themselves, in oracle and crash.
    #[arg(long, value_enum, default_value_t, value_name = "on|off")]
    speculate: Speculate,
    /// Ends at the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Writes the result there as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Whether transactions run ahead of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Speculate {
    On,
    #[default]
    Off,
}

/// The campaigns whose transactions can run ahead of themselves.
const AHEAD: [&str; 2] = ["oracle", "crash"];

/// The parameters of a campaign.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Cases to try, at least.
    pub(crate) budget: u64,
    /// The seed of the random choices.
    pub(crate) seed: u64,
    /// The only case to try.
    pub(crate) case: Option<u64>,
    /// The only mutant to try, by its name.
    pub(crate) mutant: Option<String>,
    /// How transactions run.
    pub(crate) scheduler: Scheduler,
}

#[cfg(test)]
impl Plan {
    /// A few cases of seed 1.
    fn small(budget: u64, scheduler: Scheduler) -> Plan {
        Plan { budget, seed: 1, case: None, mutant: None, scheduler }
    }
}

/// Runs a campaign; fails if any case failed.
pub(crate) fn run(flags: &TortureFlags) -> ExitCode {
    if flags.case.is_some() && !CAMPAIGNS.iter().any(|c| c.name == flags.campaign && c.is_numbered) {
        eprintln!("--case: the cases of {} have no numbers; --seed repeats a failure of it", flags.campaign);
        return ExitCode::from(2);
    }
    if flags.mutant.is_some() && flags.campaign != "mutants" {
        eprintln!("--mutant: only the campaign mutants breeds any");
        return ExitCode::from(2);
    }
    let ahead = flags.speculate == Speculate::On;
    if ahead && !AHEAD.contains(&flags.campaign.as_str()) {
        eprintln!("--speculate on: {} knows no loops; one of {}", flags.campaign, AHEAD.join(", "));
        return ExitCode::from(2);
    }
    if ahead && flags.scheduler == Scheduler::Steps {
        eprintln!("--speculate on: means nothing with --scheduler steps; leave one of the two out");
        return ExitCode::from(2);
    }
    if flags.campaign == "mutants" && !mutants::HERE {
        return mutants::in_a_build_of_their_own(flags);
    }
    let Some(campaign) = CAMPAIGNS.iter().find(|c| c.name == flags.campaign) else {
        return ExitCode::from(2);
    };
    let plan = Plan {
        budget: flags.budget,
        seed: flags.seed.unwrap_or_else(report::seed_of_the_clock),
        case: flags.case,
        mutant: flags.mutant.clone(),
        scheduler: if ahead { Scheduler::Ahead } else { flags.scheduler },
    };
    let progress = Progress::start(campaign.name, &plan, flags.fail_fast);
    let mut report = (campaign.run)(&plan, &progress);
    progress.finish();
    if ahead {
        println!("{}: {} loops ran ahead of their transactions", campaign.name, crate::sim::ahead::loops());
        if crate::sim::ahead::loops() == 0 {
            report.fail("no loop has run".to_owned());
        }
    }
    report.conclude(campaign.name, &plan, progress.elapsed(), flags.json.as_deref())
}
