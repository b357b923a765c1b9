//! `calls`: changes one call of the C library in the life of a database on real files. Over all cases, every call is once
//! interrupted, once short, and once fails with each of its usual errors.
//!
//! Each life runs in a process of its own. The engine must hide an interrupted or short call from its caller. After a failed
//! call, the operation may be refused, but must succeed when it is retried. In all cases, the process must end in time and
//! without a panic. All acknowledged changes must be in the database when it is opened afterwards, and in the copy.

mod interposed;
mod life;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use storage::{Database, TxnError};

use self::interposed::{CallFate, CallPlan, Function};
use self::life::{LifeEvent, LifeTask, MARK, ROWS, TASK};
use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};

pub use self::life::child;

/// Maximum duration of a life.
const LONGEST: Duration = Duration::from_secs(60);
/// Interval between two checks for the end of a life.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    let calls = match Life::of(plan.seed, None).and_then(|life| life.judge(None).map(|()| life.calls)) {
        Ok(calls) => calls,
        Err(what) => return Report::of_failure(format!("seed {}, nothing fails: {what}", plan.seed)),
    };
    let cases = seeds::select_cases("calls", plan, all_plans(&calls));
    let name = |(number, _): &(u64, CallPlan)| format!("--seed {} --case {number}", plan.seed);
    seeds::run_cases(&cases, progress, name, |(number, case)| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        if let Err(what) = run_case(plan.seed, *case) {
            let again = format!("cargo xtask torture calls --seed {} --case {number}", plan.seed);
            seed_result.failures.push(format!("{}: {what}\n  again: {again}", describe(case)));
        }
        seed_result
    })
}

/// Returns a plan for every possible change of every call.
fn all_plans(calls: &[u64]) -> impl Iterator<Item = CallPlan> {
    let of = |(function, calls): (Function, u64)| {
        let fates = function.fates().iter();
        fates.flat_map(move |&fate| (0..calls).map(move |number| CallPlan { function, number, fate }))
    };
    Function::ALL.into_iter().zip(calls.to_vec()).flat_map(of)
}

fn describe(case: &CallPlan) -> String {
    let fate = match case.fate {
        CallFate::Interrupted => "is interrupted".to_owned(),
        CallFate::Short => "is short".to_owned(),
        CallFate::Fails(error) => format!("fails ({})", std::io::Error::from_raw_os_error(error)),
    };
    format!("call {} of {} {fate}", case.number, case.function.name())
}

/// Runs a life in which one call is changed, and checks it. The order and number of calls depend on the threads. If the
/// planned call does not occur, another life runs in which an earlier call is changed.
fn run_case(seed: u64, mut case: CallPlan) -> Result<(), String> {
    loop {
        seeds::report_progress();
        let life = Life::of(seed, Some(case))?;
        life.judge(Some(case))?;
        if life.has_occurred || case.number == 0 {
            return Ok(());
        }
        case.number /= 2;
    }
}

/// Returns true if the engine must hide the change of this call from its caller.
fn is_hidden(case: &CallPlan) -> bool {
    match (case.function, case.fate) {
        (_, CallFate::Interrupted | CallFate::Short) => true,
        (Function::ReadResidentAt, CallFate::Fails(error)) => error != libc::EIO,
        (Function::Allocate, CallFate::Fails(libc::EOPNOTSUPP))
        | (Function::RenameNew, CallFate::Fails(libc::EINVAL)) => true,
        _ => false,
    }
}

/// Temporary directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lockstep-calls-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Files that cannot be removed remain in the system's directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Results of a life that has ended.
struct Life {
    scratch: Scratch,
    events: Vec<LifeEvent>,
    /// Number of calls of each function.
    calls: Vec<u64>,
    /// True if the planned call has occurred.
    has_occurred: bool,
}

impl Life {
    /// Runs a life in a process of its own, and returns its results.
    fn of(seed: u64, call: Option<CallPlan>) -> Result<Life, String> {
        let scratch = Scratch::new()?;
        let task = LifeTask { directory: scratch.0.clone(), seed, call };
        let text = run_process(&task)?;
        let lines = text.lines().filter_map(|line| line.strip_prefix(MARK));
        let events: Vec<LifeEvent> =
            lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let calls = events.iter().find_map(|event| match event {
            LifeEvent::Calls(calls, has_occurred) => Some((calls.clone(), *has_occurred)),
            _ => None,
        });
        let (calls, has_occurred) = calls.ok_or("the process ended before its work did")?;
        Ok(Life { scratch, events, calls, has_occurred })
    }

    /// Checks the events of the life, and the database that it left.
    fn judge(&self, case: Option<CallPlan>) -> Result<(), String> {
        for event in &self.events {
            match event {
                LifeEvent::Stuck(what) => return Err(what.clone()),
                LifeEvent::Refused(what) if case.is_none_or(|case| is_hidden(&case)) => {
                    return Err(format!("seen: {what}"));
                }
                _ => {}
            }
        }
        let before = self.events.iter().find_map(|event| match event {
            LifeEvent::Copied(before) => Some(*before),
            _ => None,
        });
        self.check_rows(&self.scratch.0.join("database"), u64::MAX)?;
        match before {
            Some(before) => {
                self.check_rows(&self.scratch.0.join("copy"), before).map_err(|what| format!("the copy: {what}"))
            }
            None if case.is_none() => Err("no copy was made".to_owned()),
            None => Ok(()),
        }
    }

    /// Checks that the database in a directory has all acknowledged transactions with numbers below `end`.
    fn check_rows(&self, directory: &Path, end: u64) -> Result<(), String> {
        let db = life::reopen(directory).map_err(|error| format!("opening afterwards: {error}"))?;
        let rows = rows(&db).map_err(|error| format!("reading afterwards: {error}"))?;
        let structure = db.check_structure(|_, _| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
        if let Some(finding) = structure.findings.first() {
            return Err(format!("structure: {finding:?}"));
        }
        // For each key: the newest acknowledged transaction that wrote it, and later transactions with an unknown outcome.
        let (mut must, mut may) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, Vec<u64>>::new());
        let acknowledged = |number: u64| {
            self.events.iter().any(|event| matches!(event, LifeEvent::Acknowledged(one) if *one == number))
        };
        for event in &self.events {
            let LifeEvent::Tries(number, keys) = event else { continue };
            for key in keys {
                if *number < end && acknowledged(*number) {
                    must.insert(*key, *number);
                    may.remove(key);
                } else {
                    may.entry(*key).or_default().push(*number);
                }
            }
        }
        for (key, row) in &rows {
            let number = life::written_by(row).ok_or_else(|| format!("row {key} is of no transaction"))?;
            let is_allowed = must.get(key) == Some(&number) || may.get(key).is_some_and(|may| may.contains(&number));
            if !is_allowed {
                return Err(format!("row {key} is of transaction {number}, and must be of {:?}", must.get(key)));
            }
        }
        match must.keys().find(|key| !rows.contains_key(key)) {
            Some(key) => Err(format!("row {key}, which was acknowledged, is not there")),
            None => Ok(()),
        }
    }
}

fn rows(db: &Database) -> Result<BTreeMap<u64, Vec<u8>>, TxnError> {
    db.transact(|tx| tx.range(&ROWS, ..)?.collect())
}

/// Runs a life and returns its stdout. Returns an error if the process failed or took too long.
fn run_process(task: &LifeTask) -> Result<String, String> {
    let own = |error: std::io::Error| format!("the process of a life: {error}");
    let text = serde_json::to_string(task).map_err(|error| error.to_string())?;
    let mut process = Command::new(std::env::current_exe().map_err(own)?)
        .args(ARGUMENTS)
        .env(TASK, text)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(own)?;
    // The report fits into the buffer of the pipe, so the process never waits for a reader.
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().map_err(own)? {
            break Some(status);
        }
        if begun.elapsed() > LONGEST {
            process.kill().map_err(own)?;
            break None;
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let output = process.wait_with_output().map_err(own)?;
    let (output_text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match status {
        Some(status) if status.success() && !errors.contains("panicked") => Ok(output_text.into_owned()),
        Some(status) => Err(format!("{status}: {errors}")),
        None => Err(format!("has not ended within {LONGEST:?}; its last word: {:?}", output_text.lines().last())),
    }
}

/// Command line arguments with which this program runs a life.
#[cfg(not(test))]
const ARGUMENTS: [&str; 1] = ["calls-life"];
#[cfg(test)]
const ARGUMENTS: [&str; 3] = ["--exact", "torture::calls::tests::life_of_a_process", "--nocapture"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    /// Runs a life in the child processes of the test below.
    #[test]
    fn life_of_a_process() {
        if std::env::var_os(TASK).is_some() {
            child();
        }
    }

    #[test]
    fn every_function_is_called_and_some_fates_lose_nothing() {
        let life = Life::of(1, None).unwrap();
        // Resident pages are read only once the threads that read pages have started, and they start on demand. So this
        // function may have no calls.
        let sure = Function::ALL.into_iter().zip(&life.calls).filter(|(of, _)| *of != Function::ReadResidentAt);
        let without: Vec<_> = sure.filter(|(_, calls)| **calls == 0).map(|(of, _)| of.name()).collect();
        assert_eq!(without, [""; 0], "not one call comes by here");
        let report = run(&CampaignPlan::small(40, Scheduler::Threads), &Progress::hidden());
        assert_eq!(report.wrong().collect::<Vec<_>>(), [""; 0]);
        assert_eq!(report.tried, 40);
    }
}
