//! `bitflips`: flips one bit anywhere in any file of a database. The engine must return an error that names the file, or its
//! answers must be correct.

use std::sync::Arc;

use super::CampaignPlan;
use super::damage::disk::CowDisk;
use super::damage::judge::{Guarantee, check_undamaged, judge};
use super::damage::subject::{Shutdown, Subject};
use super::damage::watchdog::{self, CaseResult, Cases};
use super::report::{Progress, Report};
use crate::sim::rng::Rng;

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    match Subject::all(plan.seed, plan.scheduler) {
        Ok(subjects) if !check_undamaged(&subjects).is_empty() => {
            Report { failures: check_undamaged(&subjects), ..Report::default() }
        }
        Ok(subjects) => watchdog::run(BitflipCases { seed: plan.seed, subjects: subjects.into() }, plan, progress),
        Err(error) => Report::of_failure(format!("preparing the database: {error}")),
    }
}

struct BitflipCases {
    seed: u64,
    subjects: Arc<[Subject]>,
}

/// Position of a bit to flip.
#[derive(Debug)]
struct BitFlip<'a> {
    subject: &'a Subject,
    file: &'a str,
    at: u64,
    bit: u8,
}

impl BitflipCases {
    fn draw(&self, rng: &mut Rng) -> BitFlip<'_> {
        let subject = &self.subjects[rng.index(self.subjects.len())];
        let names: Vec<&String> = subject.image.0.keys().collect();
        let logs: Vec<&String> = names.iter().copied().filter(|name| name.starts_with("log.")).collect();
        let (file, at) = match rng.below(10) {
            // Most of the page file is unused space, so the choice is limited to its used part.
            0..5 => ("pages.0", rng.below(used(subject.image.file("pages.0")))),
            5..8 => {
                let name = logs[rng.index(logs.len())];
                (name.as_str(), rng.below(used(subject.image.file(name))))
            }
            // The bytes that a restart reads first: the whole control file and the start of the other files.
            8 => {
                let name = names[rng.index(names.len())];
                let within = if rng.once_in(2) { 64 } else { 4200 };
                (name.as_str(), rng.below(within))
            }
            _ => {
                let name = names[rng.index(names.len())];
                (name.as_str(), rng.below(subject.image.file(name).len().max(1) as u64))
            }
        };
        BitFlip { subject, file, at, bit: rng.below(8) as u8 }
    }
}

/// Returns the number of bytes up to the last non-zero byte, at least 1.
fn used(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last as u64 + 1)
}

impl Cases for BitflipCases {
    const CAMPAIGN: &'static str = "bitflips";

    fn memory_limit(&self) -> u64 {
        super::damage::judge::memory_limit(&self.subjects)
    }

    fn run(&self, case: u64) -> CaseResult {
        let mut rng = Rng::of_case(self.seed, case);
        let flip = self.draw(&mut rng);
        let disk = CowDisk::over(&flip.subject.image, 4 * flip.subject.image.bytes());
        if !disk.flip(flip.file, flip.at, flip.bit) {
            return CaseResult { class: "beyond the file's end: harmless".into(), failure: None };
        }
        let mut verdict = judge(flip.subject, &disk, Guarantee::Correct, &mut rng);
        if verdict.earlier && !flip.is_in_last_flush() {
            verdict.failure = Some("commits were lost".into());
        }
        let failure = verdict.failure.as_ref().map(|what| {
            format!("{}: {what}; told: {:?}", self.describe(case), verdict.errors.iter().take(3).collect::<Vec<_>>())
        });
        CaseResult { class: format!("{}: {}", kind(flip.file), verdict.class()), failure }
    }

    fn describe(&self, case: u64) -> String {
        let flip = self.draw(&mut Rng::of_case(self.seed, case));
        format!("{:?} database, {} byte {} bit {}", flip.subject.shutdown, flip.file, flip.at, flip.bit)
    }
}

/// Returns the name of a file without its number.
fn kind(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

impl BitFlip<'_> {
    /// Returns true if the bit is in the last part of the log, whose durability no later record proves.
    fn is_in_last_flush(&self) -> bool {
        self.subject.shutdown == Shutdown::Killed
            && super::damage::subject::log_position(self.file, self.at)
                .is_some_and(|position| position >= self.subject.provable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn one_flipped_bit_is_told_or_harmless() {
        let plan = CampaignPlan {
            budget: 1_000,
            seed: 20_260_501,
            case: None,
            mutant: None,
            scheduler: Scheduler::Threads,
            speculate: false,
            latches: None,
        };
        let report = run(&plan, &Progress::start("bitflips", &plan, false));
        assert_eq!(report.wrong().take(5).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(report.tried, plan.budget);
    }
}
