//! Checks the structure of an open database, with a progress display and results as text.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::report::model;
use crate::report::progress::{self, Progress};
use crate::workload::database::{Database, PageFinding, StructureReport};
use crate::workload::error::Error;
use crate::workload::interrupt;
use crate::workload::words::grouped;

/// Maximum number of findings to print. The file of `--json` contains all recorded findings.
const SHOWN: usize = 20;

/// Result of the structure check, as JSON and as text.
#[derive(Clone, Debug)]
pub struct StructureProof {
    /// Result for `--json`.
    pub json: model::Structure,
    /// One line per finding: file, page, rule.
    pub lines: Vec<String>,
}

/// Checks the structure of an open database while no transaction changes it, and shows the progress.
///
/// # Errors
/// If a file cannot be read, or on Ctrl-C. Damage is a finding, not an error.
pub fn check<D: Database>(database: &D) -> Result<StructureProof, Error> {
    let (start, mut shown) = (Instant::now(), Progress::start());
    let found = database.structure(&mut |done, all| {
        let share = (done as f64 / all.max(1) as f64).min(1.0);
        shown.show(|| format!("structure  page {done}/{all} {} {:.0}%", progress::bar(share), 100.0 * share));
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    drop(shown);
    if interrupt::requested() {
        return Err(Error::failed("check: interrupted; nothing is proved").help("let it run to its end"));
    }
    Ok(StructureProof::of(&found, start.elapsed().as_secs_f64()))
}

impl StructureProof {
    /// Converts the engine's report of a check that took `seconds`.
    fn of(found: &StructureReport, seconds: f64) -> StructureProof {
        let to_json = |finding: &PageFinding| model::Finding {
            rule: finding.rule.clone(),
            file: finding.file.clone(),
            page: finding.page,
            what: finding.what.clone(),
        };
        StructureProof {
            lines: found.findings.iter().map(|finding| finding.line.clone()).collect(),
            json: model::Structure {
                passed: found.passed,
                pages: found.pages,
                free_pages: found.free_pages,
                rows: found.rows,
                entries: found.entries,
                seconds,
                findings: found.findings.iter().map(to_json).collect(),
                more: found.more,
            },
        }
    }

    /// Returns true if the check was complete and found no violation.
    pub fn passed(&self) -> bool {
        self.json.passed
    }

    /// Returns the result as one line, for stdout.
    pub fn line(&self) -> String {
        let found = self.json.findings.len() as u64 + self.json.more;
        let word = if self.passed() { "sound".to_owned() } else { format!("{} findings", grouped(found)) };
        format!(
            "structure {word}: {} pages ({} free), {} rows, {} index entries, {:.1} s",
            grouped(self.json.pages),
            grouped(self.json.free_pages),
            grouped(self.json.rows),
            grouped(self.json.entries),
            self.json.seconds
        )
    }

    /// Returns the first findings, one line each, for stderr.
    pub fn findings(&self) -> String {
        let mut text: String = self.lines.iter().take(SHOWN).map(|line| format!("{line}\n")).collect();
        let left = (self.lines.len().saturating_sub(SHOWN)) as u64 + self.json.more;
        if left > 0 {
            text += &format!("... and {} more\n", grouped(left));
        }
        text
    }
}
