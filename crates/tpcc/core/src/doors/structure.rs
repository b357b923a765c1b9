//! The structure check of an open database: run with its progress shown, and told in words.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::report::model;
use crate::report::progress::{self, Progress};
use crate::workload::database::{Database, PageFinding, StructureFound};
use crate::workload::error::Error;
use crate::workload::interrupt;
use crate::workload::words::grouped;

/// Findings that are printed; all that were kept go to `--json`.
const SHOWN: usize = 20;

/// What was found.
#[derive(Clone, Debug)]
pub struct StructureProof {
    /// As `--json` has it.
    pub told: model::Structure,
    /// Each finding in a line: file, page, rule.
    pub lines: Vec<String>,
}

/// Checks the structure of an open database that no transaction changes meanwhile, and shows how far it is.
///
/// # Errors
/// A file that cannot be read; Ctrl-C. Damage is a finding, no error.
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
    /// What a proof saw that took so many seconds.
    fn of(found: &StructureFound, seconds: f64) -> StructureProof {
        let told = |finding: &PageFinding| model::Finding {
            rule: finding.rule.clone(),
            file: finding.file.clone(),
            page: finding.page,
            what: finding.what.clone(),
        };
        StructureProof {
            lines: found.findings.iter().map(|finding| finding.line.clone()).collect(),
            told: model::Structure {
                passed: found.passed,
                pages: found.pages,
                free_pages: found.free_pages,
                rows: found.rows,
                entries: found.entries,
                seconds,
                findings: found.findings.iter().map(told).collect(),
                more: found.more,
            },
        }
    }

    /// Whether nothing was found.
    pub fn passed(&self) -> bool {
        self.told.passed
    }

    /// The result in a line, for the results on stdout.
    pub fn line(&self) -> String {
        let found = self.told.findings.len() as u64 + self.told.more;
        let word = if self.passed() { "sound".to_owned() } else { format!("{} findings", grouped(found)) };
        format!(
            "structure {word}: {} pages ({} free), {} rows, {} index entries, {:.1} s",
            grouped(self.told.pages),
            grouped(self.told.free_pages),
            grouped(self.told.rows),
            grouped(self.told.entries),
            self.told.seconds
        )
    }

    /// The first findings, a line each, for stderr.
    pub fn findings(&self) -> String {
        let mut text: String = self.lines.iter().take(SHOWN).map(|line| format!("{line}\n")).collect();
        let left = (self.lines.len().saturating_sub(SHOWN)) as u64 + self.told.more;
        if left > 0 {
            text += &format!("... and {} more\n", grouped(left));
        }
        text
    }
}
