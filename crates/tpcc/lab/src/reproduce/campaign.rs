//! Experiments whose results are kept: each in its own directory, with one page for all.
//!
//! `DIR/ID/` has `result.json`, a CSV file for each series, one for the claims, and an SVG file for each figure.
//! `DIR/index.html` is the page. The page is rewritten after each experiment, so that it exists even if the command fails.

use std::fs;
use std::path::{Path, PathBuf};

use super::figures::{figures, file_name, series_csv};
use super::lab::Lab;
use super::needs;
use super::page::{ExperimentInfo, ExperimentOutcome, claims, reproduce_page, verdict_counts};
use super::report::{ClaimVerdict, Report};
use super::{EXECUTABLE_KEY, Experiment, PAPERS, Paper, Results, compiler, executable, find, ids};
use crate::page::figure::quoted;
use crate::page::ink::Canvas;
use crate::page::plot::svg;
use tpcc_core::report::json::text_of;
use tpcc_core::report::machine::{CpuTime, Machine};
use tpcc_core::report::model::{Provenance, schema_of};
use tpcc_core::report::out::replace;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::reading::{MAX_RESULT_BYTES, read_file};
use tpcc_core::workload::streams::say;

/// Name of the result file in the directory of an experiment.
const RESULT: &str = "result.json";

/// Parameters of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign<'a> {
    /// Id of an experiment, id of a paper, or `all`.
    pub id: &'a str,
    /// Ids of experiments or papers to which the campaign is restricted; empty for no restriction.
    pub only: &'a [String],
    /// If true, experiments have fewer points and shorter runs.
    pub quick: bool,
    /// If true, experiments are skipped that have a result of this program and these settings.
    pub resume: bool,
    /// Directory of the databases, if the user names one.
    pub data: Option<&'a Path>,
    /// Output directory for results.
    pub out: &'a Path,
}

/// Outcome of a campaign.
#[derive(Debug)]
pub struct CampaignOutcome {
    /// All experiments of the page.
    pub outcomes: Vec<ExperimentOutcome>,
    /// Number of selected experiments.
    pub chosen: usize,
    /// Number of experiments that were run now.
    pub ran: usize,
    /// Number of selected experiments that had a result already.
    pub known: usize,
    /// True if the user interrupted the campaign.
    pub interrupted: bool,
    /// Path of the page.
    pub index: PathBuf,
}

type PaperExperiment = (&'static Paper, &'static Experiment);

/// Runs the selected experiments and keeps their results. A failed experiment is part of the outcome. Returns an error if
/// the selection is wrong, if the needs of the experiments cannot be met, or if files cannot be written.
pub fn run(campaign: &Campaign<'_>) -> Result<CampaignOutcome, Error> {
    let chosen = select(campaign)?;
    // Computes the digest of the program's file now, because the program may be rebuilt while experiments run.
    let _ = executable::digest();
    let out = campaign.out;
    let cannot = |e: std::io::Error| {
        Error::failed(format!("{}: cannot be written: {e}", out.display())).help("pass another directory with --out")
    };
    fs::create_dir_all(out).map_err(cannot)?;
    let index = out.join("index.html");
    // Checks that files can be written before experiments run for hours.
    fs::OpenOptions::new().append(true).create(true).open(&index).map_err(cannot)?;
    let mut outcomes: Vec<ExperimentOutcome> = Vec::new();
    let mut to_run: Vec<PaperExperiment> = Vec::new();
    for (paper, experiment) in PAPERS.iter().flat_map(|paper| paper.experiments.iter().map(move |e| (paper, e))) {
        let is_chosen = chosen.iter().any(|(_, of)| of.id == experiment.id);
        let saved = read_result(&out.join(experiment.id));
        match saved {
            Some(report) if !is_chosen || campaign.resume && is_current(&report, campaign.quick) => {
                outcomes.push(ExperimentOutcome::Done(Box::new(report)));
            }
            _ if is_chosen => {
                outcomes.push(ExperimentOutcome::NotRun(info(experiment)));
                to_run.push((paper, experiment));
            }
            _ => {}
        }
    }
    let mut result = CampaignOutcome {
        chosen: chosen.len(),
        known: chosen.len() - to_run.len(),
        outcomes,
        ran: 0,
        interrupted: false,
        index,
    };
    if let Err(error) = announce_needs(campaign, &to_run, result.known) {
        if fs::metadata(&result.index).is_ok_and(|file| file.len() == 0) {
            let _ = fs::remove_file(&result.index);
        }
        return Err(error);
    }
    // Old results are removed first, so that no directory ever has both old and new files.
    to_run.iter().try_for_each(|(_, experiment)| remove_old_files(&out.join(experiment.id))).map_err(cannot)?;
    write_page(&result)?;
    let mut lab: Option<(&str, Lab)> = None;
    for (paper, experiment) in to_run {
        if interrupt::requested() {
            break;
        }
        // Removes the databases of the previous paper first.
        if lab.as_ref().is_none_or(|(of, _)| *of != paper.id) {
            drop(lab.take());
            let mut next = Lab::open(campaign.data, campaign.quick)?;
            next.builds = false;
            lab = Some((paper.id, next));
        }
        let Some((_, lab)) = &mut lab else { continue };
        let outcome = match run_experiment(lab, paper, experiment) {
            Ok(report) => {
                write_files(&out.join(experiment.id), &report).map_err(cannot)?;
                ExperimentOutcome::Done(Box::new(report))
            }
            Err(_) if interrupt::requested() => break,
            Err(error) => {
                lab.say(&format!("{} failed: {}", experiment.id, error.message()));
                ExperimentOutcome::Failed(info(experiment), error.message().to_owned())
            }
        };
        result.ran += 1;
        if let Some(place) = result.outcomes.iter_mut().find(|known| known.id() == experiment.id) {
            *place = outcome;
        }
        write_page(&result)?;
    }
    result.interrupted = interrupt::requested();
    Ok(result)
}

/// Returns the experiments that the campaign selects.
fn select(campaign: &Campaign<'_>) -> Result<Vec<PaperExperiment>, Error> {
    let all = find(campaign.id)?;
    for id in campaign.only {
        if !ids().any(|known| known == id) {
            return Err(Error::usage(format!("--only {id}: no such experiment"))
                .help("'tpcc reproduce --list' says what there is"));
        }
    }
    let wanted =
        |(paper, experiment): &PaperExperiment| campaign.only.iter().any(|id| *id == experiment.id || *id == paper.id);
    let some: Vec<PaperExperiment> = all.into_iter().filter(|of| campaign.only.is_empty() || wanted(of)).collect();
    if some.is_empty() {
        return Err(Error::usage(format!("--only {}: none of {}", campaign.only.join(","), campaign.id))
            .help("name experiments of it, or leave --only out"));
    }
    Ok(some)
}

/// Reports the needs of the experiments. Returns an error if the needs cannot be met.
fn announce_needs(campaign: &Campaign<'_>, to_run: &[PaperExperiment], known: usize) -> Result<(), Error> {
    let experiments: Vec<&Experiment> = to_run.iter().map(|(_, experiment)| *experiment).collect();
    if known > 0 {
        say(format_args!("{known} with a result of this build and these settings: not run again"));
    }
    if experiments.is_empty() {
        return Ok(());
    }
    let data = campaign.data.map_or_else(std::env::temp_dir, Path::to_owned);
    // Experiments that compare builds take no time if there are no builds.
    let compares_builds = |(paper, _): &&PaperExperiment| paper.id == compiler::PAPER.id;
    let absent = to_run.iter().find(compares_builds).and_then(|_| compiler::why_absent());
    let timed =
        to_run.iter().filter(|of| absent.is_none() || !compares_builds(of)).map(|(_, e)| *e).collect::<Vec<_>>();
    say(needs::summary(&experiments, &timed, campaign.quick, &data));
    if let Some(why) = absent {
        say(format_args!("those of {} will find nothing: {why}", compiler::PAPER.id));
    }
    if let Some(warning) = needs::check(&experiments, campaign.quick, &data)? {
        say(warning);
    }
    Ok(())
}

fn info(experiment: &Experiment) -> ExperimentInfo {
    ExperimentInfo { id: experiment.id.to_owned(), title: experiment.title.to_owned() }
}

/// Runs one experiment and makes its report.
fn run_experiment(lab: &mut Lab, paper: &Paper, experiment: &Experiment) -> Result<Report, Error> {
    let mut results = Results::default();
    lab.announce(experiment);
    let (cpu, start) = (CpuTime::now(), std::time::Instant::now());
    (experiment.run)(lab, &mut results)?;
    Ok(results.report(lab, experiment.id, experiment.title, paper.title, cpu, start))
}

/// Reads a stored result; `None` if the result is missing or cannot be read.
fn read_result(directory: &Path) -> Option<Report> {
    let text = read_file(&directory.join(RESULT), MAX_RESULT_BYTES, "what 'tpcc reproduce --json' wrote").ok()?;
    let report: Report = serde_json::from_slice(&text).ok()?;
    (report.schema == schema_of("reproduce")).then_some(report)
}

/// Returns true if this program would reproduce the result: same program, settings and machine. The commit does not
/// distinguish builds of changed sources or with other features; the digest of the program's file does.
fn is_current(report: &Report, quick: bool) -> bool {
    let (then, now) = (&report.provenance, Provenance::here());
    let (machine, here) = (&report.machine, Machine::describe(None));
    then.version == now.version
        && (&then.commit, then.dirty, &then.profile, &then.built_with)
            == (&now.commit, now.dirty, &now.profile, &now.built_with)
        && executable::digest().is_some_and(|own| report.config.get(EXECUTABLE_KEY) == Some(&own.into()))
        && report.config.get("quick") == Some(&quick.into())
        && report.config.get("seed") == Some(&super::lab::SEED.into())
        && (machine.cores, &machine.cpu) == (here.cores, &here.cpu)
}

/// Removes the files that an earlier call wrote, and no others.
fn remove_old_files(directory: &Path) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let ours = path.extension().is_some_and(|ext| ext == "csv" || ext == "svg") || path.ends_with(RESULT);
        if ours {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn write_files(directory: &Path, report: &Report) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    for (number, series) in report.series.iter().enumerate() {
        let name = file_name(&format!("{:02} {}", number + 1, series.name));
        fs::write(directory.join(name + ".csv"), series_csv(series))?;
    }
    fs::write(directory.join("claims.csv"), claims_csv(report))?;
    for (number, figure) in figures(&report.id, &report.series).iter().enumerate() {
        let name = file_name(&format!("{:02} {}", number + 1, figure.title));
        fs::write(directory.join(name + ".svg"), svg(figure, Canvas::File))?;
    }
    let text = text_of(report).map_err(|e| std::io::Error::other(e.to_string()))?;
    // Written last and atomically: a directory with a result is complete.
    replace(&directory.join(RESULT), text.as_bytes())
}

fn claims_csv(report: &Report) -> String {
    let mut text = "claim,where,paper_value,value,low,high,unit,verdict,note\n".to_owned();
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for claim in &report.claims {
        let fields = [
            quoted(&claim.name),
            quoted(claim.place.as_deref().unwrap_or_default()),
            number(claim.paper_value),
            number(claim.value),
            number(claim.low),
            number(claim.high),
            claim.unit.clone(),
            claim.verdict.name().to_owned(),
            quoted(&claim.note),
        ];
        text += &(fields.join(",") + "\n");
    }
    text
}

fn write_page(result: &CampaignOutcome) -> Result<(), Error> {
    let index = &result.index;
    replace(index, reproduce_page(&result.outcomes).as_bytes())
        .map_err(|e| Error::failed(format!("{}: cannot be written: {e}", index.display())))
}

impl CampaignOutcome {
    /// Combines all results into one report, for `--json`.
    pub fn combined_report(&self, id: &str) -> Report {
        let done = || {
            self.outcomes.iter().filter_map(|outcome| match outcome {
                ExperimentOutcome::Done(report) => Some(&**report),
                _ => None,
            })
        };
        let mut papers: Vec<&str> = done().map(|report| report.paper.as_str()).collect();
        papers.dedup();
        Report {
            schema: schema_of("reproduce"),
            id: id.to_owned(),
            title: "what the papers found, and what was found here".to_owned(),
            paper: papers.join("; "),
            elapsed_s: done().map(|report| report.elapsed_s).sum(),
            provenance: Provenance::here(),
            machine: Machine::describe(None),
            config: done().next().map(|report| report.config.clone()).unwrap_or_default(),
            series: done().flat_map(|report| report.series.clone()).collect(),
            claims: claims(&self.outcomes).into_iter().flat_map(|(_, claims)| claims).cloned().collect(),
        }
    }

    /// Formats the verdicts by paper for a terminal.
    pub fn text(&self) -> String {
        let mut text: String = ClaimVerdict::ALL.iter().map(|verdict| format!("{}  ", verdict.name())).collect();
        text += "paper\n";
        for (paper, claims) in claims(&self.outcomes) {
            for (verdict, count) in ClaimVerdict::ALL.iter().zip(verdict_counts(&claims)) {
                text += &format!("{count:>width$}  ", width = verdict.name().len());
            }
            text += &format!("{paper}\n");
        }
        text
    }

    /// Returns the ids and error messages of failed experiments.
    pub fn failed(&self) -> Vec<(&str, &str)> {
        let failed = self.outcomes.iter().filter_map(|outcome| match outcome {
            ExperimentOutcome::Failed(of, why) => Some((of.id.as_str(), why.as_str())),
            _ => None,
        });
        failed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Series;
    use super::super::tests::report;
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tpcc-all-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_result_is_kept_with_its_data_and_read_again() {
        let out = directory("files");
        let mut series = Series::new("a-1 x, y", "n", "ns");
        series.push_exact(1_u32, Some(2.0));
        let report = report("a-1", vec![series], vec![super::super::claims::LOOKUP.exact(3.0, "of, 16")]);
        write_files(&out, &report).unwrap();
        let mut names: Vec<String> =
            fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["01-a-1-ns.svg", "01-a-1-x-y.csv", "claims.csv", "result.json"]);
        let again = read_result(&out).unwrap();
        assert_eq!((again.id.as_str(), again.claims.as_slice()), ("a-1", report.claims.as_slice()));
        fs::write(out.join("notes.txt"), "the user's").unwrap();
        remove_old_files(&out).unwrap();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "only what is ours goes");
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn a_result_is_current_with_the_same_commit_settings_and_machine() {
        let current = report("a-1", vec![], vec![]);
        assert!(is_current(&current, true) && !is_current(&current, false));
        let mut other = current.clone();
        other.provenance.commit = Some("another".into());
        assert!(!is_current(&other, true));
        let mut other = current.clone();
        other.machine.cpu = Some("another".into());
        assert!(!is_current(&other, true));
        let mut other = current.clone();
        other.config.insert(EXECUTABLE_KEY.into(), "another".into());
        assert!(!is_current(&other, true), "built again from changed sources");
        other.config.remove(EXECUTABLE_KEY);
        assert!(!is_current(&other, true), "not known");
        let mut other = current;
        other.config.insert("seed".into(), 1.into());
        assert!(!is_current(&other, true));
    }

    #[test]
    fn some_can_be_chosen() {
        let campaign = |id: &'static str, only: &[&str]| {
            let only: Vec<String> = only.iter().map(|id| (*id).to_owned()).collect();
            let campaign = Campaign { id, only: &only, quick: true, resume: false, data: None, out: Path::new(".") };
            select(&campaign).map(|all| all.iter().map(|(_, e)| e.id).collect::<Vec<_>>())
        };
        assert_eq!(campaign("all", &["itas-decision", "steps-fig2"]).unwrap(), ["steps-fig2", "itas-decision"]);
        assert_eq!(campaign("steps", &["steps"]).unwrap().len(), PAPERS[0].experiments.len());
        assert_eq!(campaign("all", &["steps-fig99"]).unwrap_err().status(), 2);
        assert_eq!(campaign("itas", &["steps-fig2"]).unwrap_err().status(), 2);
        let all: usize = PAPERS.iter().map(|paper| paper.experiments.len()).sum();
        assert_eq!(campaign("all", &[]).unwrap().len(), all);
    }
}
