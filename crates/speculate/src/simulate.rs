//! Simulation of a traced loop on a machine with any number of processors, by the scheduling rules of this crate.
//!
//! The measurements in the paper are of simulated processors. Here a trace of a real run
//! ([`Options::trace`](crate::Options::trace), [`InPlaceThreads::trace`](crate::InPlaceThreads::trace)) supplies the operations
//! of each epoch and their durations. The simulation computes the start times of epochs, the violations, and the waits for
//! the token. The model omits two effects of more processors: they share the memory's bandwidth, and rows move between their
//! caches more often. The caller supplies the latencies of passing the token, and of handing out an epoch, between
//! processors.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use crate::trace::{EpochTrace, LoopTrace, OpKind, TracedOp};

/// Parameters of the simulated machine, and of the speculation on it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Number of processors.
    pub cpus: usize,
    /// Latency of passing the token to another processor, in nanoseconds.
    pub hop_ns: u64,
    /// Latency from the start of the loop until another processor has its first epoch, in nanoseconds.
    pub fork_ns: u64,
    /// Number of sub-epochs per epoch, and number of operations of each sub-epoch except the last: see
    /// [`Options::sub_epochs`](crate::Options::sub_epochs).
    pub sub_epochs: (usize, usize),
    /// True if epochs read the uncommitted writes of earlier epochs.
    pub forwarding: bool,
    /// Shared state of the engine that epochs access in addition to the rows.
    pub shared: SharedState,
}

/// Dependences between epochs in an engine that was not changed for speculation (paper, sections 4 and 5.5). Each dependence
/// is a variable that operations read and then write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedState {
    /// Operations take locks at once: operations on keys of one group share the head of a lock queue (section 4.1).
    pub eager_locks: bool,
    /// Writes are logged at once, at the single tail of the log (section 4.2).
    pub log_at_once: bool,
    /// Each operation increments a shared counter.
    pub statistics: bool,
    /// Operations on keys of one group store the last accessed page in a shared variable (section 4.3).
    pub last_page: bool,
}

/// Result of simulating a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulated {
    /// Total duration of the loop, in nanoseconds.
    pub total_ns: u64,
    /// Nanoseconds of bodies and commits that were not discarded. This and the following times are sums over all processors.
    pub busy_ns: u64,
    /// Nanoseconds of work that was discarded after violations.
    pub failed_ns: u64,
    /// Nanoseconds that completed bodies waited for the token.
    pub token_ns: u64,
    /// Nanoseconds in which processors had no epoch.
    pub idle_ns: u64,
    /// Number of rewinds of epochs.
    pub violations: u64,
}

impl std::ops::AddAssign for Simulated {
    fn add_assign(&mut self, other: Simulated) {
        let Simulated { total_ns, busy_ns, failed_ns, token_ns, idle_ns, violations } = other;
        self.total_ns += total_ns;
        self.busy_ns += busy_ns;
        self.failed_ns += failed_ns;
        self.token_ns += token_ns;
        self.idle_ns += idle_ns;
        self.violations += violations;
    }
}

/// Simulates a traced loop on a machine.
#[must_use]
pub fn simulate(trace: &LoopTrace, machine: &Machine) -> Simulated {
    let cpus = machine.cpus.max(1);
    // Times at which the processors are free to take their next epoch.
    let fork = |cpu| trace.setup_ns + if cpu == 0 { 0 } else { machine.fork_ns };
    let mut free: Vec<u64> = (0..cpus).map(fork).collect();
    let mut writes = Writes::default();
    let mut sum = Simulated { busy_ns: trace.setup_ns, ..Simulated::default() };
    // Time at which the previous epoch passed the token on, and the processor that ran this epoch.
    let (mut passed_at, mut passed_by) = (trace.setup_ns, 0);
    for epoch in &trace.epochs {
        let cpu = (0..cpus).min_by_key(|&cpu| (free[cpu], cpu)).unwrap_or_default();
        let hop = if cpu == passed_by { 0 } else { machine.hop_ns };
        let steps = Steps::of(epoch, machine.shared);
        let begun = free[cpu];
        let run = EpochRun { epoch, steps: &steps, machine, begun, homefree: passed_at + hop };
        let ended = run.speculate(&mut writes);
        let committed = ended.homefree + epoch.in_order_ns;
        writes.commit(epoch.number, committed);
        sum.busy_ns += epoch.body_ns + epoch.in_order_ns;
        sum.failed_ns += ended.failed_ns;
        sum.token_ns += committed - begun - epoch.body_ns - epoch.in_order_ns - ended.failed_ns;
        sum.violations += ended.violations;
        (passed_at, passed_by, free[cpu]) = (committed, cpu, committed);
    }
    // The processor that began the loop continues after it has received the token.
    sum.total_ns = passed_at + if passed_by == 0 { 0 } else { machine.hop_ns };
    sum.idle_ns = (cpus as u64 * sum.total_ns).saturating_sub(sum.busy_ns + sum.failed_ns + sum.token_ns);
    sum
}

/// A variable that operations of several epochs read or write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Variable {
    Key(u64),
    LockQueue(u64),
    LogTail,
    Statistics,
    LastPage(u64),
}

/// Operation of a body: its start time in the body, and the variables that it reads and writes.
struct Step {
    at: u64,
    reads: Vec<Variable>,
    writes: Vec<Variable>,
}

/// Operations of a body, in order.
struct Steps(Vec<Step>);

impl Steps {
    fn of(epoch: &EpochTrace, shared: SharedState) -> Steps {
        // An epoch has its own copy of each variable that it has accessed before, so only the first access can be violated.
        let mut touched = HashSet::new();
        let step = |op: &TracedOp| {
            let keys = || op.keys.iter().map(|&key| Variable::Key(key));
            let is_write = op.kind == OpKind::Write;
            let both = [
                (shared.eager_locks, Variable::LockQueue(op.group)),
                (shared.log_at_once && is_write, Variable::LogTail),
                (shared.statistics, Variable::Statistics),
                (shared.last_page, Variable::LastPage(op.group)),
            ];
            let both = || both.iter().filter(|(there, _)| *there).map(|&(_, variable)| variable);
            let (mut reads, mut writes): (Vec<_>, Vec<_>) = (both().collect(), both().collect());
            match op.kind {
                OpKind::Read => reads.extend(keys()),
                OpKind::Write => writes.extend(keys()),
                OpKind::Escape => {}
            }
            reads.retain(|variable| touched.insert(*variable));
            touched.extend(&writes);
            Step { at: op.at_ns, reads, writes }
        };
        Steps(epoch.operations.iter().map(step).collect())
    }
}

/// Write of an epoch, with the time interval in which other epochs can see the write.
#[derive(Clone, Copy, Debug)]
struct WriteInterval {
    epoch: u64,
    step: usize,
    from: u64,
    /// Time at which the write was withdrawn; `u64::MAX` if it was not.
    to: u64,
}

/// All simulated writes so far. The writes of each variable are in the order of epochs.
#[derive(Default)]
struct Writes {
    by_variable: HashMap<Variable, Vec<WriteInterval>>,
    /// Numbers and commit times of the committed epochs, in the order of epochs.
    committed: Vec<(u64, u64)>,
}

impl Writes {
    /// Returns the writes of a variable that are relevant for an epoch at time `at`: the writes of earlier epochs, back to
    /// the newest write of an epoch that had committed by then.
    fn relevant_writes(&self, variable: Variable, epoch: u64, at: u64) -> SmallVec<[WriteInterval; 16]> {
        let mut found = SmallVec::new();
        for write in self.by_variable.get(&variable).into_iter().flatten().rev() {
            if write.epoch >= epoch {
                continue;
            }
            found.push(*write);
            if write.to == u64::MAX && self.committed_at(write.epoch) <= at {
                break;
            }
        }
        found
    }

    /// Returns the commit time of an epoch; `u64::MAX` if the epoch has not committed.
    fn committed_at(&self, epoch: u64) -> u64 {
        self.committed.binary_search_by_key(&epoch, |&(epoch, _)| epoch).map_or(u64::MAX, |at| self.committed[at].1)
    }

    /// Returns the first time after `at` from which a read of a variable by this epoch would get another value than at `at`.
    fn changes_after(&self, variable: Variable, epoch: u64, at: u64) -> Option<u64> {
        let writes = self.relevant_writes(variable, epoch, at);
        let newest =
            |time: u64| writes.iter().filter(|w| w.from <= time && time < w.to).map(|w| (w.epoch, w.step)).max();
        let mut later: SmallVec<[u64; 32]> =
            writes.iter().flat_map(|w| [w.from, w.to]).filter(|&time| time > at && time < u64::MAX).collect();
        later.sort_unstable();
        let got = newest(at);
        later.into_iter().find(|&time| newest(time) != got)
    }

    fn publish(&mut self, variable: Variable, write: WriteInterval) {
        self.by_variable.entry(variable).or_default().push(write);
    }

    /// Withdraws, at time `at`, the writes of the newest epoch from step `from_step` on.
    fn withdraw(&mut self, steps: &Steps, epoch: u64, from_step: usize, at: u64) {
        let variables: HashSet<_> = steps.0[from_step..].iter().flat_map(|step| &step.writes).collect();
        for variable in variables {
            let own = self.by_variable.get_mut(variable).into_iter().flatten().rev().take_while(|w| w.epoch == epoch);
            for write in own.filter(|w| w.step >= from_step && w.to == u64::MAX) {
                write.to = at.max(write.from);
            }
        }
    }

    fn commit(&mut self, epoch: u64, at: u64) {
        self.committed.push((epoch, at));
    }

    /// Returns true if an epoch has committed a write of a variable after time `from` and not after time `to`.
    fn committed_between(&self, variable: Variable, from: u64, to: u64) -> bool {
        let written = self.by_variable.get(&variable).into_iter().flatten().rev().filter(|w| w.to == u64::MAX);
        written.map(|w| self.committed_at(w.epoch)).any(|at| from < at && at <= to)
    }
}

/// Execution of an epoch on its processor.
struct EpochRun<'a> {
    epoch: &'a EpochTrace,
    steps: &'a Steps,
    machine: &'a Machine,
    begun: u64,
    /// Time at which the epoch gets the token.
    homefree: u64,
}

/// Outcome of the speculative part of an epoch.
struct SpeculationOutcome {
    homefree: u64,
    failed_ns: u64,
    violations: u64,
}

impl EpochRun<'_> {
    /// Runs the body until it is correct and the token has arrived.
    fn speculate(&self, writes: &mut Writes) -> SpeculationOutcome {
        let steps = &self.steps.0;
        // Difference between the simulated time of a step and its time in the body. It grows with each run of the step.
        let mut offset = vec![self.begun; steps.len()];
        let mut end = self.begun + self.epoch.body_ns;
        let mut ended = SpeculationOutcome { homefree: end.max(self.homefree), failed_ns: 0, violations: 0 };
        let mut waited = 0;
        self.publish(writes, &offset, 0);
        while let Some((step, detected)) = self.violation(writes, &offset, end, ended.homefree) {
            let checkpoint = self.checkpoint(step);
            let resumed = steps[checkpoint].at;
            ended.violations += 1;
            waited += detected.saturating_sub(end);
            writes.withdraw(self.steps, self.epoch.number, checkpoint, detected);
            offset[checkpoint..].fill(detected - resumed.min(detected));
            end = detected + self.epoch.body_ns.saturating_sub(resumed);
            self.publish(writes, &offset, checkpoint);
            ended.homefree = end.max(self.homefree);
        }
        ended.failed_ns = (end - self.begun).saturating_sub(self.epoch.body_ns + waited);
        ended
    }

    /// Returns the step of the violation that is detected first, and the detection time. With forwarding, this is the time
    /// of the next check after the write; without, the time of the epoch's confirmation.
    fn violation(&self, writes: &Writes, offset: &[u64], end: u64, homefree: u64) -> Option<(usize, u64)> {
        let steps = &self.steps.0;
        let reads =
            steps.iter().enumerate().flat_map(|(i, step)| step.reads.iter().map(move |&variable| (i, variable)));
        if !self.machine.forwarding {
            let mut wrong = reads.filter(|&(i, of)| writes.committed_between(of, offset[i] + steps[i].at, homefree));
            return wrong.next().map(|(i, _)| (i, homefree));
        }
        let found = reads.filter_map(|(i, variable)| {
            let changed = writes.changes_after(variable, self.epoch.number, offset[i] + steps[i].at)?;
            (changed <= homefree).then(|| (self.detection_time(changed, offset, end), i))
        });
        found.min().map(|(detected, i)| (i, detected))
    }

    /// Returns the time at which an epoch detects an event: at its next check, or at once while the epoch waits for the
    /// token.
    fn detection_time(&self, at: u64, offset: &[u64], end: u64) -> u64 {
        let every = self.machine.sub_epochs.1.clamp(1, 64);
        let checks = self.steps.0.iter().enumerate().step_by(every).map(|(i, step)| offset[i] + step.at);
        checks.filter(|&check| check >= at).min().unwrap_or(end.max(at))
    }

    fn checkpoint(&self, step: usize) -> usize {
        let (number, operations) = self.machine.sub_epochs;
        (step / operations.max(1)).min(number.max(1) - 1) * operations
    }

    fn publish(&self, writes: &mut Writes, offset: &[u64], from_step: usize) {
        for (i, step) in self.steps.0.iter().enumerate().skip(from_step) {
            for &variable in &step.writes {
                let write =
                    WriteInterval { epoch: self.epoch.number, step: i, from: offset[i] + step.at, to: u64::MAX };
                writes.publish(variable, write);
            }
        }
    }
}

#[cfg(test)]
mod tests;
