//! A line for each long run, in a table of its campaign: what `crates/storage/campaigns` holds.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::report::Report;
use super::{CampaignPlan, loops_flag};
use crate::build::output;

/// The columns of a table.
const COLUMNS: &str = "date,state,flags,seed,tried,failures,seconds,remark";

/// The line of a run: the date of today, the commit of the sources, flags beside the budget, and what came of it.
pub(super) fn of(plan: &CampaignPlan, report: &Report, elapsed: Duration) -> String {
    let flags = format!("{}{}", plan.scheduler.flag(), loops_flag(plan.speculate));
    let undecided = match (report.undecided, report.broken.len()) {
        (0, 0) => String::new(),
        (undecided, broken) => format!("{undecided} undecided {broken} not judged"),
    };
    format!(
        "{},{},{},{},{},{},{:.0},{undecided}",
        printed("date", &["-u", "+%F"]),
        printed("git", &["describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]),
        flags.trim(),
        plan.seed,
        report.tried,
        report.failures.len(),
        elapsed.as_secs_f64(),
    )
}

/// What a program prints in one line; nothing if it cannot be run.
fn printed(program: &str, args: &[&str]) -> String {
    output(Command::new(program).args(args)).unwrap_or_default().trim().to_owned()
}

/// Appends a line to the table of a campaign, which is made if it is not there.
pub(super) fn append(directory: &Path, campaign: &str, line: &str) -> Result<(), String> {
    let path = directory.join(format!("{campaign}.csv"));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
    let head = if file.metadata().map_err(failed)?.len() == 0 { format!("{COLUMNS}\n") } else { String::new() };
    file.write_all(format!("{head}{line}\n").as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn a_line_has_a_cell_for_each_column() {
        let directory = std::env::temp_dir().join(format!("lockstep-record-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let report = Report { tried: 3, ..Report::default() };
        let line = of(&CampaignPlan::small(1, Scheduler::Steps), &report, Duration::from_secs(2));
        append(&directory, "crash", &line).unwrap();
        append(&directory, "crash", &line).unwrap();
        let text = std::fs::read_to_string(directory.join("crash.csv")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let cells = |line: &str| line.split(',').count();
        assert_eq!(text.lines().map(cells).collect::<Vec<_>>(), [cells(COLUMNS); 3], "{text}");
        assert!(text.ends_with(",--scheduler steps,1,3,0,2,\n"), "{text}");
    }
}
