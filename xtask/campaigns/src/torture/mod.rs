//! Campaigns: each tries a large number of cases from one seed and reports the number of failures.

mod bitflips;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod calls;
mod crash;
pub(crate) mod damage;
mod fibers;
mod full;
mod io_errors;
mod isolation;
mod laps;
mod latches;
mod lives;
mod loops;
mod malformed;
mod mutants;
mod narrow;
mod oracle;
mod recovery;
mod report;
mod seeds;
mod space;
mod speculate;
mod starvation;
mod sustained;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use report::{Progress, Report};
use storage::LatchKind;

use crate::record::RecordFlag;
use crate::sim::scheduler::Scheduler;

/// Description of a campaign.
struct Campaign {
    name: &'static str,
    /// True if cases have numbers, so that `--case` is supported.
    is_numbered: bool,
    /// True if the campaign supports `--speculate`.
    speculates: bool,
    /// True if the campaign supports `--latches`.
    latches: bool,
    run: fn(&CampaignPlan, &Progress) -> Report,
}

/// All campaigns.
const CAMPAIGNS: &[Campaign] = &[
    Campaign { name: "crash", is_numbered: false, speculates: true, latches: true, run: crash::run },
    Campaign { name: "recovery", is_numbered: false, speculates: false, latches: false, run: recovery::run },
    Campaign { name: "io-errors", is_numbered: true, speculates: true, latches: false, run: io_errors::run },
    Campaign { name: "oracle", is_numbered: false, speculates: true, latches: true, run: oracle::run },
    Campaign { name: "isolation", is_numbered: false, speculates: false, latches: true, run: isolation::run },
    Campaign { name: "bitflips", is_numbered: true, speculates: false, latches: false, run: bitflips::run },
    Campaign { name: "malformed", is_numbered: true, speculates: false, latches: false, run: malformed::run },
    Campaign { name: "speculate", is_numbered: false, speculates: false, latches: false, run: speculate::run },
    Campaign { name: "loops", is_numbered: false, speculates: false, latches: false, run: loops::run },
    Campaign { name: "starvation", is_numbered: false, speculates: false, latches: false, run: starvation::run },
    Campaign { name: "fibers", is_numbered: false, speculates: false, latches: false, run: fibers::run },
    Campaign { name: "sustained", is_numbered: false, speculates: false, latches: false, run: sustained::run },
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Campaign { name: "calls", is_numbered: true, speculates: false, latches: false, run: calls::run },
    Campaign { name: "latches", is_numbered: false, speculates: false, latches: false, run: latches::run },
    Campaign { name: "space", is_numbered: false, speculates: false, latches: false, run: space::run },
    Campaign { name: "mutants", is_numbered: false, speculates: false, latches: false, run: mutants::run },
];

/// Flags of `cargo xtask torture`.
#[derive(Debug, Args)]
pub struct TortureFlags {
    /// Campaign to run.
    #[arg(value_parser = PossibleValuesParser::new(CAMPAIGNS.iter().map(|c| c.name)))]
    campaign: String,
    /// Minimum number of cases. In io-errors, the seed determines the number of all cases, from several thousand to above
    /// 20,000. The number is printed; a larger budget tries all of them.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,
    /// Seed of the random choices. The default is derived from the clock. The seed is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Tries only this case of the seed, in io-errors, bitflips, malformed and calls. Reports of failures contain the number
    /// of the case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    case: Option<u64>,
    /// Tries only this mutant, in the campaign mutants.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Scheduler of the transactions.
    #[arg(long, value_enum, default_value_t, value_name = "threads|steps|itas")]
    scheduler: Scheduler,
    /// Runs some statements of transactions as iterations of loops, in crash, io-errors and oracle.
    #[arg(long, value_enum, default_value_t, value_name = "on|off")]
    speculate: Speculate,
    /// Page latch kind, in crash, oracle and isolation; by default each seed selects a kind.
    #[arg(long, value_enum, value_name = "optimistic|plain|super")]
    latches: Option<Latches>,
    /// Ends at the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Writes the result to this file as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    record: RecordFlag,
}

/// Setting of loops in the transactions of a simulated workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Speculate {
    On,
    #[default]
    Off,
}

/// Page latch kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Latches {
    Optimistic,
    Plain,
    Super,
}

impl Latches {
    /// Returns the corresponding kind of the engine.
    pub(crate) fn kind(self) -> LatchKind {
        match self {
            Latches::Optimistic => LatchKind::Optimistic,
            Latches::Plain => LatchKind::Plain,
            Latches::Super => LatchKind::Super,
        }
    }
}

/// Parameters of a campaign.
#[derive(Clone, Debug)]
pub(crate) struct CampaignPlan {
    /// Minimum number of cases.
    pub(crate) budget: u64,
    /// Seed of the random choices.
    pub(crate) seed: u64,
    /// Number of the only case to run, if set.
    pub(crate) case: Option<u64>,
    /// Name of the only mutant to test, if set.
    pub(crate) mutant: Option<String>,
    /// Scheduler of the transactions.
    pub(crate) scheduler: Scheduler,
    /// True if transactions have loops.
    pub(crate) speculate: bool,
    /// Page latch kind; `None` if each seed selects a kind.
    pub(crate) latches: Option<Latches>,
}

#[cfg(test)]
impl CampaignPlan {
    /// Returns a plan with a small budget and seed 1.
    fn small(budget: u64, scheduler: Scheduler) -> CampaignPlan {
        CampaignPlan { budget, seed: 1, case: None, mutant: None, scheduler, speculate: false, latches: None }
    }
}

/// Runs a campaign. Returns failure if any case failed.
pub fn run(flags: &TortureFlags) -> ExitCode {
    if flags.case.is_some() && !CAMPAIGNS.iter().any(|c| c.name == flags.campaign && c.is_numbered) {
        eprintln!("--case: the cases of {} have no numbers; --seed repeats a failure of it", flags.campaign);
        return ExitCode::from(2);
    }
    if flags.mutant.is_some() && flags.campaign != "mutants" {
        eprintln!("--mutant: only the campaign mutants breeds any");
        return ExitCode::from(2);
    }
    if let Some(why) = refuses_to_speculate(flags) {
        eprintln!("--speculate on: {why}");
        return ExitCode::from(2);
    }
    if let Some(why) = refuses_latches(flags) {
        eprintln!("--latches: {why}");
        return ExitCode::from(2);
    }
    if flags.campaign == "mutants" && !mutants::IS_MUTANTS_BUILD {
        return mutants::run_in_mutants_build(flags);
    }
    let Some(campaign) = CAMPAIGNS.iter().find(|c| c.name == flags.campaign) else {
        return ExitCode::from(2);
    };
    let plan = CampaignPlan {
        budget: flags.budget,
        seed: flags.seed.unwrap_or_else(report::seed_of_the_clock),
        case: flags.case,
        mutant: flags.mutant.clone(),
        scheduler: flags.scheduler,
        speculate: flags.speculate == Speculate::On,
        latches: flags.latches,
    };
    let progress = Progress::start(campaign.name, &plan, flags.fail_fast);
    let report = (campaign.run)(&plan, &progress);
    progress.finish();
    let elapsed = progress.elapsed();
    let status = report.conclude(campaign.name, &plan, elapsed, flags.json.as_deref());
    if flags.record.append(campaign.name, &report.run_record(&plan, elapsed)) { status } else { ExitCode::FAILURE }
}

/// Returns the command line flag that enables loops.
fn loops_flag(speculate: bool) -> &'static str {
    if speculate { " --speculate on" } else { "" }
}

/// Returns the command line flag that selects a page latch kind.
fn latches_flag(latches: Option<Latches>) -> &'static str {
    match latches {
        None => "",
        Some(Latches::Optimistic) => " --latches optimistic",
        Some(Latches::Plain) => " --latches plain",
        Some(Latches::Super) => " --latches super",
    }
}

/// Returns an error message if the campaign does not support the requested latches.
fn refuses_latches(flags: &TortureFlags) -> Option<String> {
    let able: Vec<&str> = CAMPAIGNS.iter().filter(|c| c.latches).map(|c| c.name).collect();
    let refused = flags.latches.is_some() && !able.contains(&flags.campaign.as_str());
    refused.then(|| format!("{} chooses its own; these can be told: {}", flags.campaign, able.join(", ")))
}

/// Returns an error message if the flags do not permit the requested loops.
fn refuses_to_speculate(flags: &TortureFlags) -> Option<String> {
    if flags.speculate == Speculate::Off {
        return None;
    }
    let able: Vec<&str> = CAMPAIGNS.iter().filter(|c| c.speculates).map(|c| c.name).collect();
    let refused = !able.contains(&flags.campaign.as_str());
    refused.then(|| format!("{} has no such loops; these have: {}", flags.campaign, able.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: TortureFlags,
    }

    #[test]
    fn loops_are_refused_where_there_are_none() {
        let refused = |line: &str| {
            let line = Line::try_parse_from(["torture"].into_iter().chain(line.split(' ')));
            refuses_to_speculate(&line.unwrap_or_else(|e| panic!("{e}")).flags).is_some()
        };
        assert!(!refused("crash --speculate on") && !refused("oracle --speculate on"));
        assert!(!refused("bitflips --speculate off") && !refused("oracle --scheduler steps"));
        assert!(refused("recovery --speculate on") && refused("mutants --speculate on"));
        assert!(!refused("oracle --speculate on --scheduler steps") && !refused("io-errors --speculate on"));
    }

    #[test]
    fn latches_are_chosen_where_they_matter() {
        let refused = |line: &str| {
            let line = Line::try_parse_from(["torture"].into_iter().chain(line.split(' ')));
            refuses_latches(&line.unwrap_or_else(|e| panic!("{e}")).flags)
        };
        for campaign in ["crash", "oracle", "isolation"] {
            assert_eq!(refused(&format!("{campaign} --latches super")), None);
        }
        assert_eq!(refused("bitflips"), None);
        assert!(refused("bitflips --latches super").is_some_and(|why| why.contains("crash, oracle, isolation")));
    }
}
