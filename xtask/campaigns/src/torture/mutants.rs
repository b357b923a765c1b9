//! `mutants`: tests the other campaigns. A mutant is the engine, the protocol of speculative loops, or the scheduler of
//! sibling groups, with one protection removed. Some campaign must detect each mutant within its per-commit budget;
//! otherwise the campaigns prove nothing about this protection.
//!
//! Only builds with the feature `mutants` contain the switches for mutants. The command therefore builds itself again with
//! this feature, and the new program runs the campaigns as child processes, with one mutant in each. The same campaigns
//! first run without a mutant, with the same seed. A campaign that fails without a mutant is not used.
//!
//! A mutant is killed only by a finding, which is a failure that the campaign has judged and reports with its seed. If a
//! process panics in the campaign's own code, hangs, takes too long or dies otherwise, the campaign has no finding, and the
//! next campaign runs.
//!
//! `storage`'s `base/mutant.rs` and `speculate`'s `mutant.rs` describe the steps to add a mutant; `campaigns_for` in this
//! module lists the campaigns for each mutant.

use std::process::ExitCode;

use super::TortureFlags;

#[cfg(feature = "mutants")]
pub(super) use runner::run;

/// True if this build contains the switches for mutants.
pub(super) const IS_MUTANTS_BUILD: bool = cfg!(feature = "mutants");

/// Fails, because this build contains no switches for mutants.
#[cfg(not(feature = "mutants"))]
pub(super) fn run(plan: &super::CampaignPlan, _: &super::report::Progress) -> super::report::Report {
    super::report::Report::of_failure(format!("this build has no mutants (asked for: {:?})", plan.mutant))
}

/// Builds this command with the switches for mutants, and runs the campaign in the new program.
pub(super) fn run_in_mutants_build(flags: &TortureFlags) -> ExitCode {
    match build_and_run(flags) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("mutants: {what}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_run(flags: &TortureFlags) -> Result<bool, String> {
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
    // The program gets a name of its own, because the next build without the feature replaces the original.
    std::fs::copy(&here, &own).map_err(|e| format!("{}: {e}", own.display()))?;
    let mut command = Command::new(&own);
    command.args(["torture", "mutants"]).args(flags.scheduler.flag().split_whitespace());
    if let Some(seed) = flags.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(mutant) = &flags.mutant {
        command.args(["--mutant", mutant]);
    }
    if let Some(json) = &flags.json {
        command.arg("--json").arg(json);
    }
    if let Some(record) = &flags.record.record {
        command.arg("--record").arg(record);
    }
    let status = command.status().map_err(|e| format!("{}: {e}", own.display()))?;
    Ok(status.success())
}

#[cfg(feature = "mutants")]
mod runner {
    use std::process::{Command, ExitStatus, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use serde::Deserialize;
    use storage::mutants::Mutant;

    use crate::parallel::in_parallel;
    use crate::torture::CampaignPlan;
    use crate::torture::report::{MutantResult, Progress, Report};

    /// Maximum processor time of a campaign without a mutant.
    const LIMIT: Duration = Duration::from_secs(400);
    /// Lower bound of the processor time after which a campaign with a mutant is stopped without a finding. The limit is the
    /// larger of this time and `TIME_FACTOR` times the processor time of the same campaign without a mutant.
    const MIN_TIME: Duration = Duration::from_secs(20);
    const TIME_FACTOR: u32 = 4;
    /// Number of campaigns that run at once. Campaigns have single-threaded phases, so two of them use the machine better.
    const AT_ONCE: usize = 2;
    /// Maximum time without progress: a campaign is stopped if none of its threads has run or been runnable for this time.
    const MAX_IDLE: Duration = Duration::from_secs(8);
    /// Interval between two checks. Time is counted in checks, so that it does not advance while this process is stopped.
    const POLL_INTERVAL: Duration = Duration::from_millis(20);

    /// Campaign that detects mutants, with its budget per commit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum DetectingCampaign {
        Crash,
        Recovery,
        IoErrors,
        Bitflips,
        Malformed,
        Oracle,
        Isolation,
        Speculate,
        Starvation,
        Latches,
        Loops,
        Sustained,
    }
    use DetectingCampaign::{
        Bitflips, Crash, IoErrors, Isolation, Latches, Loops, Malformed, Oracle, Recovery, Speculate, Starvation,
        Sustained,
    };

    impl DetectingCampaign {
        const ALL: [DetectingCampaign; 12] = [
            Crash, Recovery, IoErrors, Bitflips, Malformed, Oracle, Isolation, Speculate, Starvation, Latches, Loops,
            Sustained,
        ];

        fn name_and_budget(self) -> (&'static str, u64) {
            match self {
                Crash => ("crash", 6000),
                Recovery => ("recovery", 8000),
                IoErrors => ("io-errors", 500),
                Bitflips => ("bitflips", 1000),
                Malformed => ("malformed", 10_000),
                Oracle => ("oracle", 150),
                Isolation => ("isolation", 50),
                Speculate => ("speculate", 4000),
                Starvation => ("starvation", 8000),
                Latches => ("latches", 200),
                Loops => ("loops", 6000),
                Sustained => ("sustained", 6),
            }
        }
    }

    /// Mutant, by component.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum MutantKind {
        /// Mutant of the engine.
        Engine(Mutant),
        /// Mutant of the protocol of speculative loops.
        Loops(speculate::mutants::Mutant),
        /// Mutant of the scheduler of sibling groups.
        Siblings(itas::mutants::Mutant),
    }

    impl MutantKind {
        fn all() -> impl Iterator<Item = MutantKind> {
            let loops = speculate::mutants::Mutant::ALL.iter().copied().map(MutantKind::Loops);
            let siblings = itas::mutants::Mutant::ALL.iter().copied().map(MutantKind::Siblings);
            Mutant::ALL.iter().copied().map(MutantKind::Engine).chain(loops).chain(siblings)
        }

        fn name(self) -> &'static str {
            match self {
                MutantKind::Engine(mutant) => mutant.name(),
                MutantKind::Loops(mutant) => mutant.name(),
                MutantKind::Siblings(mutant) => mutant.name(),
            }
        }

        /// Returns the name of the environment variable that selects the mutant.
        fn variable(self) -> &'static str {
            match self {
                MutantKind::Engine(_) => storage::mutants::VARIABLE,
                MutantKind::Loops(_) => speculate::mutants::VARIABLE,
                MutantKind::Siblings(_) => itas::mutants::VARIABLE,
            }
        }

        /// Returns the campaigns that should detect the mutant, the most likely first.
        fn campaigns_for(self) -> &'static [DetectingCampaign] {
            match self {
                MutantKind::Engine(mutant) => campaigns_for(mutant),
                MutantKind::Loops(_) => &[Speculate],
                MutantKind::Siblings(_) => &[Starvation],
            }
        }
    }

    /// Returns the campaigns that should detect a mutant of the engine, the most likely first. Hangs are detected by
    /// campaigns in simulated time.
    fn campaigns_for(mutant: Mutant) -> &'static [DetectingCampaign] {
        match mutant {
            Mutant::SkipNextKeyLock
            | Mutant::SkipAbsentKeyLock
            | Mutant::SkipGapAbove
            | Mutant::SkipGapCheck
            | Mutant::ReleaseReadLocksEarly
            | Mutant::SkipWriteLock
            | Mutant::ReleaseBeforeUndo => &[Isolation, Oracle, Crash],
            Mutant::ShareBulkTable => &[Crash, Oracle],
            Mutant::ForgetMember | Mutant::UndoChainByChain | Mutant::PassEarlierEpochs | Mutant::SkipEpochUndo => {
                &[Loops]
            }
            Mutant::SkipCodecCheck => &[Oracle, Recovery],
            Mutant::SkipDeadlockSearch | Mutant::SkipWake | Mutant::WaitWithMutex => &[Oracle, Crash],
            Mutant::SkipRevalidation | Mutant::TrustLockNames => &[Oracle, Isolation, Crash],
            Mutant::SkipReaderWord | Mutant::SkipSecondLook | Mutant::LookForWriterAlone => &[Latches],
            Mutant::ShiftColumns | Mutant::StraddleIndex => &[Oracle, Crash],
            Mutant::SkipUndo
            | Mutant::SkipSavepointUndo
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
            | Mutant::ReuseSlotsEarly
            | Mutant::SkipDirtyMark
            | Mutant::SkipDataSync
            | Mutant::ForgetDirtyPages
            | Mutant::NameBeforeFlush
            | Mutant::OneControlCopy
            | Mutant::SkipRedoTest
            | Mutant::RedoNeighboursOnly
            | Mutant::SkipRedo
            | Mutant::SkipRestartUndo => &[Crash, Recovery],
            Mutant::StampLoadAtTail | Mutant::SkipLoadMark | Mutant::ReadOwnedPages => &[Recovery, Crash],
            Mutant::LsnOutOfCrc | Mutant::KeepStaleTail => &[Crash, Malformed, Recovery],
            Mutant::SkipRecordCrc | Mutant::SkipPageChecksum => &[Bitflips, Malformed, Crash],
            Mutant::SkipCheckpoints | Mutant::SkipLogLimit => &[Sustained],
            Mutant::MakeSegmentLatched => &[Crash, Recovery, IoErrors],
            Mutant::ForgiveFailedSync | Mutant::SkipUndoSpace => &[IoErrors, Crash],
        }
    }

    pub(in crate::torture) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
        let mutants: Vec<MutantKind> =
            MutantKind::all().filter(|m| plan.mutant.as_ref().is_none_or(|name| name == m.name())).collect();
        if mutants.is_empty() {
            let names: Vec<&str> = MutantKind::all().map(MutantKind::name).collect();
            return Report::of_failure(format!("--mutant: there are {}", names.join(", ")));
        }
        let needed: Vec<DetectingCampaign> = DetectingCampaign::ALL
            .into_iter()
            .filter(|campaign| mutants.iter().any(|m| m.campaigns_for().contains(campaign)))
            .collect();
        let baseline = in_parallel(AT_ONCE, &needed, |&campaign| {
            let mut used = Duration::ZERO;
            let outcome = run_campaign(campaign, None, plan, LIMIT, &mut used);
            (campaign, outcome, MIN_TIME.max(used * TIME_FACTOR))
        });
        let mut report = Report::default();
        let mut usable = Vec::new();
        for (campaign, outcome, limit) in baseline {
            let name = campaign.name_and_budget().0;
            match outcome {
                Ok(Outcome::Passed) => usable.push((campaign, limit)),
                Ok(Outcome::Finding(what)) => report.fail(format!("{name} fails without a mutant: {what}")),
                Ok(Outcome::NoResult(what)) => report.broken.push(format!("{name}, without a mutant: {what}")),
                Err(what) => report.broken.push(what),
            }
        }
        let mut results = in_parallel(AT_ONCE, &mutants, |&mutant| {
            let result = test_mutant(mutant, &usable, plan);
            progress.add(1);
            match result.by {
                Some(by) => {
                    println!("{:24} killed by {by:9} in {:4.1} s: {}", result.name, result.seconds, result.found)
                }
                None => println!("{:24} SURVIVED {}", result.name, result.found),
            }
            result
        });
        results.sort_by_key(|result| mutants.iter().position(|mutant| mutant.name() == result.name));
        for result in results.iter().filter(|result| !result.killed) {
            report.fail(format!("{} survived {}", result.name, result.found));
        }
        report.tried = results.len() as u64;
        report.mutants = Some(results);
        report
    }

    /// Runs campaigns one after the other, until one of them detects the mutant.
    fn test_mutant(mutant: MutantKind, usable: &[(DetectingCampaign, Duration)], plan: &CampaignPlan) -> MutantResult {
        let begin = Instant::now();
        let (mut by, mut found) = (None, String::new());
        for &campaign in mutant.campaigns_for() {
            let Some((_, limit)) = usable.iter().find(|(one, _)| *one == campaign) else { continue };
            let name = campaign.name_and_budget().0;
            let mut used = Duration::ZERO;
            match run_campaign(campaign, Some(mutant), plan, *limit, &mut used) {
                Ok(Outcome::Finding(what)) => {
                    (by, found) = (Some(name), what);
                    break;
                }
                Ok(Outcome::Passed) => {}
                Ok(Outcome::NoResult(what)) | Err(what) => found += &format!("({name}: {what}) "),
            }
        }
        MutantResult { name: mutant.name(), killed: by.is_some(), by, found, seconds: begin.elapsed().as_secs_f64() }
    }

    enum Outcome {
        Passed,
        /// The campaign has a finding, which is described.
        Finding(String),
        /// The campaign has no result, for this reason.
        NoResult(String),
    }

    /// Fields of a campaign's JSON report that are used here.
    #[derive(Deserialize)]
    struct CampaignResult {
        failures: u64,
        findings: Vec<String>,
        broken: u64,
    }

    /// Runs one campaign in a process of its own. `used` is set to its processor time, which is independent of other load on
    /// the machine. If the system does not report processor times, `used` is the elapsed time.
    fn run_campaign(
        campaign: DetectingCampaign,
        mutant: Option<MutantKind>,
        plan: &CampaignPlan,
        limit: Duration,
        used: &mut Duration,
    ) -> Result<Outcome, String> {
        let (name, budget) = campaign.name_and_budget();
        let exe = std::env::current_exe().map_err(|e| e.to_string())?;
        let of = mutant.map_or("none", MutantKind::name);
        let json = exe.with_file_name(format!("mutants-{}-{of}-{campaign:?}.json", std::process::id()));
        let mut command = Command::new(exe);
        command
            .env(storage::mutants::VARIABLE, "")
            .env(speculate::mutants::VARIABLE, "")
            .env(itas::mutants::VARIABLE, "");
        if let Some(mutant) = mutant {
            command.env(mutant.variable(), mutant.name());
        }
        let mut child = command
            .args(["torture", name, "--fail-fast"])
            .args(["--budget", &budget.to_string(), "--seed", &plan.seed.to_string()])
            .args(plan.scheduler.flag().split_whitespace())
            .arg("--json")
            .arg(&json)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{name}: {e}"))?;
        let mut idle = IdleTimer::default();
        let status = loop {
            match child.try_wait().map_err(|e| format!("{name}: {e}"))? {
                Some(status) => break Some(status),
                None if *used >= limit || idle.update(child.id()) >= MAX_IDLE => {
                    child.kill().and_then(|()| child.wait()).map_err(|e| format!("{name}: {e}"))?;
                    break None;
                }
                None => thread::sleep(POLL_INTERVAL),
            }
            *used = ticks_of(child.id())
                .map_or(*used + POLL_INTERVAL, |ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX));
        };
        let result = std::fs::read(&json).ok().and_then(|text| serde_json::from_slice::<CampaignResult>(&text).ok());
        // A campaign without a report has left no file to remove, so an error is ignored.
        let _ = std::fs::remove_file(&json);
        let Some(status) = status else {
            return Ok(Outcome::NoResult(format!("was stopped after {} s of processor time", used.as_secs())));
        };
        Ok(judge(status, result))
    }

    /// Derives the outcome of a campaign from its report. A process without a report has died.
    fn judge(status: ExitStatus, result: Option<CampaignResult>) -> Outcome {
        let Some(result) = result else { return Outcome::NoResult(status.to_string()) };
        let first = result.findings.first().map_or("", String::as_str);
        match (result.failures, result.broken, status.success()) {
            (0, 0, true) => Outcome::Passed,
            (1.., _, _) => {
                Outcome::Finding(first.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(140).collect())
            }
            _ => Outcome::NoResult(format!("{} not judged, {status}", result.broken)),
        }
    }

    /// Unit of the processor times in `/proc`.
    const TICK: Duration = Duration::from_millis(10);

    /// Timer of the period in which a process has used less than a hundredth of a core although none of its threads was
    /// runnable.
    #[derive(Default)]
    struct IdleTimer {
        ticks: u64,
        since: Duration,
    }

    impl IdleTimer {
        fn update(&mut self, process: u32) -> Duration {
            let Some(ticks) = ticks_of(process) else {
                self.since = Duration::ZERO;
                return self.since;
            };
            let used = TICK * u32::try_from(ticks.saturating_sub(self.ticks)).unwrap_or(u32::MAX);
            if used * 100 > self.since || self.since >= MAX_IDLE / 2 && could_run(process) {
                *self = IdleTimer { ticks, since: Duration::ZERO };
            }
            self.since += POLL_INTERVAL;
            self.since
        }
    }

    /// Returns the processor time of a process, in hundredths of a second; `None` if the process is stopped, or if the
    /// system does not report its processor time.
    fn ticks_of(process: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The second field is the name in parentheses, which may contain any character.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let stopped = words.next()? == "T";
        let user: u64 = words.nth(10)?.parse().ok()?;
        let system: u64 = words.next()?.parse().ok()?;
        (!stopped).then_some(user + system)
    }

    /// Returns true if a thread of the process is runnable or waits for a device.
    fn could_run(process: u32) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
        threads.flatten().any(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['R', 'D']))
        })
    }
}
