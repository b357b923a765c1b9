//! `tpcc reproduce`: experiments of the papers, repeated on this engine.
//!
//! The id of an experiment begins with the name of its paper; the name alone selects all experiments of the paper. An
//! experiment adds series and claims to the results, from which the report is made. It runs this program as a user would.

mod breakdown;
pub mod builds;
pub mod cachegrind;
pub mod campaign;
pub mod child;
mod claims;
mod compiler;
pub mod directory;
mod executable;
mod figures;
mod itanium;
mod itas;
pub mod lab;
mod looking_glass;
mod needs;
pub mod page;
mod report;
mod scale;
mod speculate;
mod steps;
mod table;
mod transfer;
mod verdict;

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use lab::Lab;
pub use report::Report;
use report::{Claim, Series};
use tpcc_core::report::machine::{CpuTime, Machine};
use tpcc_core::report::model::{Provenance, schema_of};
use tpcc_core::workload::error::Error;

/// Description of an experiment of a paper.
pub struct Experiment {
    /// Id of the experiment, which begins with the id of its paper.
    pub id: &'static str,
    /// Title of the experiment.
    pub title: &'static str,
    /// Duration in minutes, in full and with `--quick`, on two cores. Assumes that the previous experiments of the same
    /// paper have run, whose measurements are reused.
    pub minutes: (f64, f64),
    /// Function that runs the experiment.
    run: fn(&mut Lab, &mut Results) -> Result<(), Error>,
}

/// Description of a paper and its experiments, in the order of the paper.
pub struct Paper {
    /// Id of the paper: start of the ids of its experiments, and the id that selects all of them.
    pub id: &'static str,
    /// Authors, title and venue of the paper.
    pub title: &'static str,
    /// Experiments of the paper.
    pub experiments: &'static [Experiment],
}

/// All papers with experiments.
pub const PAPERS: &[Paper] =
    &[steps::PAPER, speculate::PAPER, itas::PAPER, itanium::PAPER, compiler::PAPER, looking_glass::PAPER, scale::PAPER];

/// Results of the experiments that have run.
#[derive(Debug, Default)]
pub struct Results {
    /// Series of measured values.
    pub series: Vec<Series>,
    /// Claims, each name once.
    pub claims: Vec<Claim>,
    /// Settings that the report shows.
    pub config: Map<String, Value>,
}

impl Results {
    /// Adds a claim. An earlier claim of the same name is kept if the earlier claim has a value.
    fn add_claim(&mut self, claim: Claim) {
        match self.claims.iter_mut().find(|known| known.name == claim.name) {
            Some(known) if known.value.is_none() => *known = claim,
            Some(_) => {}
            None => self.claims.push(claim),
        }
    }
}

/// Key of the setting that has the digest of the program's file.
const EXECUTABLE_KEY: &str = "executable_sha256";

/// Id that selects all experiments of all papers.
pub const ALL: &str = "all";

/// Returns all ids: of experiments, of papers, and [`ALL`].
pub fn ids() -> impl Iterator<Item = &'static str> {
    PAPERS.iter().flat_map(|paper| paper.experiments.iter().map(|e| e.id).chain([paper.id])).chain([ALL])
}

/// Runs the experiments of one paper that `id` selects.
pub fn run(id: &str, quick: bool, data: Option<&Path>) -> Result<Report, Error> {
    let chosen = find(id)?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    let mut findings = Results::default();
    let mut lab = Lab::open(data, quick)?;
    for (_, experiment) in &chosen {
        lab.announce(experiment);
        (experiment.run)(&mut lab, &mut findings)?;
    }
    let (title, paper) = match chosen.first() {
        Some((paper, only)) if chosen.len() == 1 => (only.title, paper.title),
        Some((paper, _)) => (paper.title, paper.title),
        None => ("", ""),
    };
    Ok(findings.report(&lab, id, title, paper, cpu, start))
}

impl Results {
    /// Makes the report: the results, and the program, settings and machine of the measurements.
    fn report(self, lab: &Lab, id: &str, title: &str, paper: &str, cpu: Option<CpuTime>, start: Instant) -> Report {
        let provenance = Provenance::here();
        let mut config = self.config;
        if let Some(why) = &lab.uncountable {
            lab.say(&format!("nothing was counted: {why}"));
            config.insert("not_counted".into(), json!(why));
        }
        config.insert("quick".into(), json!(lab.quick));
        config.insert("seed".into(), json!(lab::SEED));
        config.insert("build".into(), json!(provenance.line()));
        config.insert("command".into(), json!(provenance.command));
        config.insert(EXECUTABLE_KEY.into(), json!(executable::digest()));
        Report {
            schema: schema_of("reproduce"),
            id: id.to_owned(),
            title: title.to_owned(),
            paper: paper.to_owned(),
            elapsed_s: start.elapsed().as_secs_f64(),
            provenance,
            machine: Machine::describe(cpu),
            config,
            series: self.series,
            claims: self.claims,
        }
    }
}

/// Formats a report as tables for a terminal.
pub fn text(report: &Report) -> String {
    table::text(report)
}

/// Formats the list of experiments for a terminal.
pub fn list() -> String {
    let (long, quick) = PAPERS
        .iter()
        .flat_map(|paper| paper.experiments)
        .fold((0.0, 0.0), |(long, quick), e| (long + e.minutes.0, quick + e.minutes.1));
    let mut text = format!(
        "{ALL:<16} all of them, each kept in a directory of its own, and a page ({}, quick {})\n",
        in_minutes(long),
        in_minutes(quick)
    );
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

fn find(id: &str) -> Result<Vec<(&'static Paper, &'static Experiment)>, Error> {
    let all = PAPERS.iter().flat_map(|paper| paper.experiments.iter().map(move |experiment| (paper, experiment)));
    let chosen: Vec<_> = all.filter(|(paper, e)| id == ALL || e.id == id || paper.id == id).collect();
    match chosen.is_empty() {
        true => Err(Error::usage(format!("{id}: no such experiment"))
            .help(format!("one of {}", ids().collect::<Vec<_>>().join(", ")))),
        false => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages in `docs/reproduction`, with the numbers of figures and of tables of their papers.
    const PAGES: [(&str, usize, &[&str]); 6] = [
        ("steps", 11, &["1", "2", "3", "4"]),
        ("speculate", 21, &["I", "II", "III"]),
        ("itas", 10, &["1", "2"]),
        ("itanium", 2, &["1", "2", "3", "4", "5", "6", "7", "8"]),
        ("compiler", 9, &["1"]),
        // No paper: a model of this engine.
        ("scale", 0, &[]),
    ];

    fn page_of(paper: &str) -> String {
        let path = format!("{}/../../../docs/reproduction/{paper}.md", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Each numbered figure and table of a paper has a row on the page of the paper. A row without an experiment says that
    /// the figure is a drawing or is absent.
    #[test]
    fn every_figure_and_table_of_a_paper_is_listed() {
        for (paper, figures, tables) in PAGES {
            assert!(PAPERS.iter().any(|known| known.id == paper), "{paper}");
            let page = page_of(paper);
            let numbered =
                (1..=figures).map(|n| format!("Figure {n}")).chain(tables.iter().map(|n| format!("Table {n}")));
            for place in numbered {
                let begins =
                    |row: &&str| row.strip_prefix("| ").is_some_and(|row| row.starts_with(&format!("{place} ")));
                let row = page.lines().find(begins).unwrap_or_else(|| panic!("{paper}: no row for {place}"));
                let explained =
                    ["tpcc reproduce ", "drawing", "example code", "absent"].iter().any(|way| row.contains(way));
                assert!(explained, "{paper}: {row}");
            }
        }
    }

    /// Each claim on the five papers and on the model of cores is on a page, and each experiment that a page names exists.
    #[test]
    fn every_claim_is_on_a_page() {
        let pages: String = PAGES.iter().map(|(paper, ..)| page_of(paper)).collect();
        let source = include_str!("claims.rs").split("mod tests").next().unwrap();
        // Without white space, because the name may be on the line after the call.
        let source: String = source.split_whitespace().collect();
        let named = ["spec(\"", "small_cost(\""].into_iter().flat_map(|call| source.split(call).skip(1));
        let names: Vec<&str> = named.filter_map(|rest| rest.split('"').next()).collect();
        assert!(names.len() > 60, "{names:?}");
        // Claims on a paper that is not one of the five.
        let of_another_paper = ["new_order_left", "payment_left"];
        for name in names.iter().filter(|name| !of_another_paper.contains(name)) {
            assert!(pages.contains(&format!("`{name}`")), "{name} is on no page of docs/reproduction");
        }
        for rest in pages.split("tpcc reproduce ").skip(1) {
            let id: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            assert!(id.is_empty() || ids().any(|known| known == id), "tpcc reproduce {id}");
        }
    }

    /// Returns a report of this program with these results.
    pub(super) fn report(id: &str, series: Vec<Series>, claims: Vec<Claim>) -> Report {
        let config =
            [("quick", json!(true)), ("seed", json!(lab::SEED)), (EXECUTABLE_KEY, json!(executable::digest()))]
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect();
        Report {
            schema: schema_of("reproduce"),
            id: id.to_owned(),
            title: "what it shows".to_owned(),
            paper: "A. Author, A Paper".to_owned(),
            elapsed_s: 1.0,
            provenance: Provenance::here(),
            machine: Machine::describe(None),
            config,
            series,
            claims,
        }
    }

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
        assert_eq!(find("steps").unwrap().len(), steps::PAPER.experiments.len());
        assert_eq!(find("steps-fig9").unwrap().len(), 1);
        assert!(find("steps-fig99").is_err());
        assert_eq!(find(ALL).unwrap().len() + PAPERS.len() + 1, count);
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
        findings.add_claim(claims::LOOKUP.missing("not yet"));
        findings.add_claim(claims::LOOKUP.exact(3.0, ""));
        findings.add_claim(claims::LOOKUP.exact(1.0, ""));
        assert_eq!(findings.claims.len(), 1);
        assert_eq!(findings.claims[0].value, Some(3.0));
    }
}
