//! `mutants`: the engine with one protection left out, each in turn. Some campaign must notice within its per-commit
//! budget, else the campaigns prove nothing about that protection.
//!
//! The switches are in builds with the feature `mutants` only. So the command builds itself once more with it, and that
//! build runs the campaigns as child processes, one mutant in each. What the same campaigns say about the engine
//! without a mutant, from the same seed, is asked first: one that fails then kills nobody.

use std::process::ExitCode;

use super::Flags;

#[cfg(feature = "mutants")]
pub(super) use breeding::run;

/// Whether this build has the switches.
pub(super) const HERE: bool = cfg!(feature = "mutants");

/// Without the switches nothing can be said.
#[cfg(not(feature = "mutants"))]
pub(super) fn run(_: &super::Plan, _: &super::report::Progress) -> super::report::Report {
    super::report::Report { tried: 1, failures: vec!["this build has no mutants".into()], ..Default::default() }
}

/// Builds this command with the switches, and lets it do the work.
pub(super) fn in_a_build_of_their_own(flags: &Flags) -> ExitCode {
    match build_and_run(flags) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("mutants: {what}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_run(flags: &Flags) -> Result<bool, String> {
    use std::process::Command;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    let own = here.with_file_name("xtask-mutants");
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--profile", "torture", "--package", "xtask", "--features", "mutants"])
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !built.success() {
        return Err("the build with mutants failed".into());
    }
    // Under a name of its own, because the next build without the feature takes the place of this one.
    std::fs::copy(&here, &own).map_err(|e| format!("{}: {e}", own.display()))?;
    let mut command = Command::new(&own);
    command.args(["torture", "mutants"]).args(flags.scheduler.flag().split_whitespace());
    if let Some(seed) = flags.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(json) = &flags.json {
        command.arg("--json").arg(json);
    }
    let status = command.status().map_err(|e| format!("{}: {e}", own.display()))?;
    Ok(status.success())
}

#[cfg(feature = "mutants")]
mod breeding {
    use std::io::Read;
    use std::process::{Command, ExitStatus, Stdio};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::thread;
    use std::time::{Duration, Instant};

    use storage::mutants::{Mutant, VARIABLE};

    use crate::torture::Plan;
    use crate::torture::report::{Progress, Report};

    /// What a campaign may take without a mutant.
    const LIMIT: Duration = Duration::from_secs(100);
    /// With one it hangs if it takes this long and so many times longer than without.
    const HANGS: Duration = Duration::from_secs(20);
    const LONGER: u32 = 4;
    /// Or if for so long everybody in it waits.
    const STILL: Duration = Duration::from_secs(8);
    /// It is looked at so often. Time is counted in looks, so that none passes while all of this is stopped.
    const LOOK: Duration = Duration::from_millis(20);

    /// The campaigns that look for mutants, with what each tries per commit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Hunter {
        Crash,
        Recovery,
        IoErrors,
        Bitflips,
        Malformed,
        Oracle,
        Isolation,
    }
    use Hunter::{Bitflips, Crash, IoErrors, Isolation, Malformed, Oracle, Recovery};

    impl Hunter {
        const ALL: [Hunter; 7] = [Crash, Recovery, IoErrors, Bitflips, Malformed, Oracle, Isolation];

        fn campaign(self) -> (&'static str, u64) {
            match self {
                Crash => ("crash", 2000),
                Recovery => ("recovery", 200),
                IoErrors => ("io-errors", 500),
                Bitflips => ("bitflips", 1000),
                Malformed => ("malformed", 10_000),
                Oracle => ("oracle", 300),
                Isolation => ("isolation", 50),
            }
        }
    }

    /// Who should find the mutant, likeliest first.
    fn hunters(mutant: Mutant) -> &'static [Hunter] {
        match mutant {
            Mutant::SkipNextKeyLock
            | Mutant::SkipGapCheck
            | Mutant::ReleaseReadLocksEarly
            | Mutant::SkipWriteLock
            | Mutant::ReleaseBeforeUndo
            | Mutant::SkipDeadlockSearch
            | Mutant::SkipWake => &[Isolation, Oracle, Crash],
            Mutant::SkipRevalidation | Mutant::TrustOldParents => &[Oracle, Isolation, Crash],
            Mutant::SkipUndo
            | Mutant::SkipStatementUndo
            | Mutant::SkipIndexUndo
            | Mutant::KeepOldIndexEntries
            | Mutant::SkipCompensation
            | Mutant::AckReadsAtOnce
            | Mutant::ForgetActive => &[Crash, Oracle, Recovery],
            Mutant::SkipLogSync
            | Mutant::AckBeforeFlush
            | Mutant::SkipDirectorySync
            | Mutant::TruncateTooEarly
            | Mutant::SkipWriteAhead
            | Mutant::SkipPageImage
            | Mutant::SkipDirtyMark
            | Mutant::SkipDataSync
            | Mutant::ForgetDirtyPages
            | Mutant::NameBeforeFlush
            | Mutant::OneControlCopy
            | Mutant::SkipRedoTest
            | Mutant::SkipRedo
            | Mutant::SkipRestartUndo => &[Crash, Recovery],
            Mutant::LsnOutOfCrc | Mutant::KeepStaleTail => &[Crash, Malformed, Recovery],
            Mutant::SkipRecordCrc | Mutant::SkipPageChecksum => &[Bitflips, Malformed, Crash],
            Mutant::ForgiveFailedSync | Mutant::SkipUndoSpace => &[IoErrors, Crash],
        }
    }

    pub(in crate::torture) fn run(plan: &Plan, progress: &Progress) -> Report {
        let healthy = in_parallel(&Hunter::ALL, |&hunter| {
            let begin = Instant::now();
            let outcome = hunt(hunter, None, plan, LIMIT);
            (hunter, outcome, HANGS.max(begin.elapsed() * LONGER))
        });
        let mut report = Report::default();
        let mut sane = Vec::new();
        for (hunter, outcome, limit) in healthy {
            match outcome {
                Ok(Outcome::Passed) => sane.push((hunter, limit)),
                Ok(Outcome::Failed(what)) => {
                    report.failures.push(format!("{} fails without a mutant: {what}", hunter.campaign().0));
                }
                Err(what) => report.failures.push(what),
            }
        }
        let fates = in_parallel(Mutant::ALL, |&mutant| {
            let begin = Instant::now();
            let fate = fate(mutant, &sane, plan);
            progress.add(1);
            match &fate {
                Ok(Some((hunter, how))) => {
                    let seconds = begin.elapsed().as_secs_f64();
                    println!("{:24} killed by {:9} in {seconds:4.1} s: {how}", mutant.name(), hunter.campaign().0);
                }
                Ok(None) => println!("{:24} SURVIVED", mutant.name()),
                Err(_) => {}
            }
            (mutant, fate)
        });
        let mut killed = 0;
        for (mutant, fate) in fates {
            match fate {
                Ok(Some(_)) => killed += 1,
                Ok(None) => report.failures.push(format!("{} survived", mutant.name())),
                Err(what) => report.failures.push(format!("{}: {what}", mutant.name())),
            }
        }
        report.tried = Mutant::ALL.len() as u64;
        report.mutants = Some((killed, Mutant::ALL.len() as u64));
        report
    }

    /// Who killed it, and how.
    fn fate(mutant: Mutant, sane: &[(Hunter, Duration)], plan: &Plan) -> Result<Option<(Hunter, String)>, String> {
        for &hunter in hunters(mutant) {
            let Some((_, limit)) = sane.iter().find(|(sane, _)| *sane == hunter) else { continue };
            if let Outcome::Failed(how) = hunt(hunter, Some(mutant), plan, *limit)? {
                return Ok(Some((hunter, how)));
            }
        }
        Ok(None)
    }

    enum Outcome {
        Passed,
        Failed(String),
    }

    /// One campaign in a process of its own.
    fn hunt(hunter: Hunter, mutant: Option<Mutant>, plan: &Plan, limit: Duration) -> Result<Outcome, String> {
        let (campaign, budget) = hunter.campaign();
        let exe = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut child = Command::new(exe)
            .args(["torture", campaign, "--fail-fast"])
            .args(["--budget", &budget.to_string(), "--seed", &plan.seed.to_string()])
            .args(plan.scheduler.flag().split_whitespace())
            .env(VARIABLE, mutant.map_or("", Mutant::name))
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{campaign}: {e}"))?;
        let stdout = child.stdout.take();
        let reader = thread::spawn(move || {
            let mut said = String::new();
            // What cannot be read is not shown; the exit status decides.
            let _ = stdout.map(|mut out| out.read_to_string(&mut said));
            said
        });
        let (mut elapsed, mut still) = (Duration::ZERO, Still::default());
        let status = loop {
            match child.try_wait().map_err(|e| format!("{campaign}: {e}"))? {
                Some(status) => break Some(status),
                None if elapsed >= limit || still.look(child.id()) >= STILL => {
                    child.kill().and_then(|()| child.wait()).map_err(|e| format!("{campaign}: {e}"))?;
                    break None;
                }
                None => thread::sleep(LOOK),
            }
            elapsed += LOOK;
        };
        let said = reader.join().unwrap_or_default();
        let Some(status) = status else {
            return Ok(Outcome::Failed(format!("hangs, {} s", elapsed.as_secs())));
        };
        judge(campaign, status, &said)
    }

    /// For how long a process has used less than a hundredth of the processor's time.
    #[derive(Default)]
    struct Still {
        ticks: u64,
        since: Duration,
    }

    impl Still {
        /// Hundredths of a second.
        const TICK: Duration = Duration::from_millis(10);

        fn look(&mut self, process: u32) -> Duration {
            let Some(ticks) = ticks_of(process) else {
                self.since = Duration::ZERO;
                return self.since;
            };
            let used = Self::TICK * u32::try_from(ticks.saturating_sub(self.ticks)).unwrap_or(u32::MAX);
            if used * 100 > self.since {
                *self = Still { ticks, since: Duration::ZERO };
            }
            self.since += LOOK;
            self.since
        }
    }

    /// Processor time of a process, in hundredths of a second; `None` if it is stopped, or where nobody tells.
    fn ticks_of(process: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let stopped = words.next()? == "T";
        let user: u64 = words.nth(10)?.parse().ok()?;
        let system: u64 = words.next()?.parse().ok()?;
        (!stopped).then_some(user + system)
    }

    fn judge(campaign: &str, status: ExitStatus, said: &str) -> Result<Outcome, String> {
        let mut lines = said.lines().skip_while(|line| !line.starts_with("FAILED "));
        let first = lines.next().map(|line| line.trim_start_matches("FAILED ").to_owned());
        // What follows a seed alone says what.
        let first =
            first.map(|line| if line.ends_with(':') { line + " " + lines.next().unwrap_or("").trim() } else { line });
        match status.code() {
            Some(0) => Ok(Outcome::Passed),
            // Not a finding: the command line was refused.
            Some(2) => Err(format!("{campaign} could not be run")),
            _ => {
                let what = first.unwrap_or_else(|| status.to_string());
                Ok(Outcome::Failed(what.chars().take(140).collect()))
            }
        }
    }

    /// `f` of each, two at a time: campaigns have stretches on one core.
    fn in_parallel<T: Sync, R: Send>(all: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(item) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = f(item);
                        done.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                    }
                });
            }
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
