//! `tpcc reproduce`: the experiments of the papers, rerun on this engine.
//!
//! An experiment has an id that begins with its paper's name; the name alone stands for all of the paper's. It adds series
//! and claims to the findings, from which the report is made. It runs this very program as a user would.

pub mod builds;
pub(crate) mod cachegrind;
pub(crate) mod child;
mod claims;
mod compiler;
pub(crate) mod directory;
mod itanium;
mod itas;
pub(crate) mod lab;
mod looking_glass;
mod report;
mod speculate;
mod steps;
mod table;

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::report::machine::{CpuTime, Machine};
use crate::report::model::{Provenance, schema_of};
use crate::workload::error::Error;
use lab::Lab;
pub(crate) use report::Report;
use report::{Claim, Series};

/// An experiment.
pub(crate) struct Experiment {
    /// Its name; begins with that of its paper.
    pub(crate) id: &'static str,
    /// What it shows.
    pub(crate) title: &'static str,
    /// Minutes that it takes, long and with `--quick`, on two cores.
    pub(crate) minutes: (f64, f64),
    /// Runs it.
    run: fn(&mut Lab, &mut Results) -> Result<(), Error>,
}

/// A paper and its experiments, in its order.
pub(crate) struct Paper {
    /// Begin of the ids of its experiments, and the id of all of them.
    pub(crate) id: &'static str,
    /// Authors, title, place.
    pub(crate) title: &'static str,
    /// Its experiments.
    pub(crate) experiments: &'static [Experiment],
}

/// All papers.
pub(crate) const PAPERS: &[Paper] =
    &[steps::PAPER, speculate::PAPER, itas::PAPER, itanium::PAPER, compiler::PAPER, looking_glass::PAPER];

/// What experiments add to.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Figures.
    pub(crate) series: Vec<Series>,
    /// Claims, each name once.
    pub(crate) claims: Vec<Claim>,
    /// Settings that the report repeats.
    pub(crate) config: Map<String, Value>,
}

impl Results {
    /// Adds a claim; one of this name that was found before stays.
    fn claim(&mut self, claim: Claim) {
        match self.claims.iter_mut().find(|known| known.name == claim.name) {
            Some(known) if known.value.is_none() => *known = claim,
            Some(_) => {}
            None => self.claims.push(claim),
        }
    }
}

/// Every id, with what it stands for.
pub(crate) fn ids() -> impl Iterator<Item = &'static str> {
    PAPERS.iter().flat_map(|paper| paper.experiments.iter().map(|e| e.id).chain([paper.id]))
}

/// Runs the experiments that `id` names.
pub(crate) fn run(id: &str, quick: bool, data: Option<&Path>) -> Result<Report, Error> {
    let Some((paper, chosen)) = find(id) else {
        return Err(Error::usage(format!("{id}: no such experiment"))
            .help(format!("one of {}", ids().collect::<Vec<_>>().join(", "))));
    };
    let cpu = CpuTime::now();
    let mut findings = Results::default();
    let mut lab = Lab::open(data, quick)?;
    for experiment in &chosen {
        let minutes = if quick { experiment.minutes.1 } else { experiment.minutes.0 };
        lab.say(&format!("{}: {}, about {}", experiment.id, experiment.title, in_minutes(minutes)));
        (experiment.run)(&mut lab, &mut findings)?;
    }
    let provenance = Provenance::here();
    let mut config = findings.config;
    if let Some(why) = &lab.uncountable {
        lab.say(&format!("nothing was counted: {why}"));
        config.insert("not_counted".into(), json!(why));
    }
    config.insert("quick".into(), json!(quick));
    config.insert("seed".into(), json!(lab::SEED));
    config.insert("build".into(), json!(provenance.line()));
    config.insert("command".into(), json!(provenance.command));
    Ok(Report {
        schema: schema_of("reproduce"),
        id: id.to_owned(),
        paper: paper.title.to_owned(),
        machine: Machine::describe(cpu),
        config,
        series: findings.series,
        claims: findings.claims,
    })
}

/// The report as tables for a terminal.
pub(crate) fn text(report: &Report) -> String {
    table::text(report)
}

/// The list of experiments for a terminal.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for paper in PAPERS {
        text += &format!("{:<16} all of: {}\n", paper.id, paper.title);
        for experiment in paper.experiments {
            let (long, quick) = experiment.minutes;
            text += &format!(
                "{:<16} {} ({}, quick {})\n",
                experiment.id,
                experiment.title,
                in_minutes(long),
                in_minutes(quick)
            );
        }
    }
    text
}

fn in_minutes(minutes: f64) -> String {
    if minutes < 1.0 { format!("{:.0} s", 60.0 * minutes) } else { format!("{minutes:.0} min") }
}

fn find(id: &str) -> Option<(&'static Paper, Vec<&'static Experiment>)> {
    PAPERS.iter().find_map(|paper| {
        let chosen: Vec<_> = paper.experiments.iter().filter(|e| e.id == id || paper.id == id).collect();
        (!chosen.is_empty()).then_some((paper, chosen))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_begin_with_their_paper() {
        let mut all: Vec<_> = ids().collect();
        for paper in PAPERS {
            assert!(paper.experiments.iter().all(|e| e.id.starts_with(&format!("{}-", paper.id))));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(find("steps").is_some_and(|(paper, all)| all.len() == paper.experiments.len()));
        assert!(find("steps-fig9").is_some_and(|(_, one)| one.len() == 1));
        assert!(find("steps-fig99").is_none());
        let error = run("steps-fig99", true, None).unwrap_err();
        assert_eq!(error.status(), 2);
    }

    #[test]
    fn the_whole_of_a_paper_is_quick_enough() {
        for paper in PAPERS {
            let minutes: f64 = paper.experiments.iter().map(|e| e.minutes.1).sum();
            assert!(minutes <= 12.0, "{}: {minutes} minutes", paper.id);
        }
    }

    #[test]
    fn the_first_value_of_a_claim_stays() {
        let mut findings = Results::default();
        findings.claim(claims::LOOKUP.missing("not yet"));
        findings.claim(claims::LOOKUP.found(3.0, ""));
        findings.claim(claims::LOOKUP.found(1.0, ""));
        assert_eq!(findings.claims.len(), 1);
        assert_eq!(findings.claims[0].value, Some(3.0));
    }
}
