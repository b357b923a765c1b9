//! Recording of the accesses of a traced run to shared cache lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::footprint::access::{AccessTracer, TracedAccess};
use crate::footprint::lines::Lines;
use crate::footprint::operand::AccessKind;
use tpcc_core::workload::error::Error;

/// Kind of shared cache line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LineKind {
    /// Name of the kind, as in `storage::measure::SharedLines`.
    pub name: String,
    /// Distance in bytes between the lines of consecutive workers; 0 if all workers use the same lines.
    pub per_worker: u64,
}

/// An access to a shared cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineAccess {
    /// Address that the recorded worker accessed.
    pub address: u64,
    /// Index of the line's kind in [`Recording::kinds`].
    pub kind: u8,
    pub operation: AccessKind,
    /// Number of instructions since the previous access.
    pub instructions_before: u32,
}

/// A recorded transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordedTransaction {
    /// Home warehouse of the terminal, counted from 0.
    pub home: u32,
    /// Accesses to shared lines, in order.
    pub accesses: Vec<LineAccess>,
    /// Number of instructions after the last access.
    pub instructions_after: u32,
}

impl RecordedTransaction {
    /// Returns the time of the instructions before the first access. `work` converts a number of instructions to a time.
    pub(super) fn first_work(&self, work: impl Fn(u32) -> u64) -> u64 {
        self.accesses.first().map_or(0, |access| work(access.instructions_before))
    }

    /// Returns the number of instructions of the transaction.
    pub(crate) fn instructions(&self) -> u64 {
        u64::from(self.instructions_after)
            + self.accesses.iter().map(|access| u64::from(access.instructions_before)).sum::<u64>()
    }
}

/// Transactions recorded on one worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recording {
    pub kinds: Vec<LineKind>,
    pub transactions: Vec<RecordedTransaction>,
}

/// Parameters of a recording of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordingPlan<'a> {
    /// Page latch kind, as an argument of `--latches`.
    pub latches: &'a str,
    /// Number of warehouses, and number of terminals of each warehouse.
    pub warehouses: u32,
    pub terminals: u32,
    /// Number of transactions that run before the recording, so that hot latches are promoted.
    pub warm_up: u64,
    /// Interval of the recorded transactions: every `each`-th transaction is recorded, until there are `transactions` of
    /// them.
    pub each: u64,
    pub transactions: usize,
    pub seed: u64,
}

impl Recording {
    /// Records transactions of the standard mix on the database in `data`.
    pub(crate) fn of_transactions(program: &Path, data: &Path, wanted: RecordingPlan<'_>) -> Result<Recording, Error> {
        let RecordingPlan { latches, warehouses, terminals, warm_up, each, transactions, seed } = wanted;
        let mut command = Command::new(program);
        command.args(["footprint", "--traced", "--mix", "standard", "--latches", latches]);
        command.args(["--of-warehouses", &warehouses.to_string(), "--of-terminals", &terminals.to_string()]);
        command.args(["--seed", &seed.to_string(), "--data"]).arg(data);
        let mut tracer = start(command)?;
        let mut seen: Vec<(u32, Vec<TracedAccess>)> = Vec::new();
        let mut next = tracer.run_to_transaction()?;
        while let Some(number) = next {
            if seen.len() == transactions {
                break;
            }
            if number < warm_up || !number.is_multiple_of(each) {
                next = tracer.run_to_transaction()?;
                continue;
            }
            let mut accesses = Vec::new();
            next = tracer.trace_transaction(&mut |access| accesses.push(access))?;
            // Terminals run in rotation and are assigned to warehouses in rotation.
            seen.push(((number % u64::from(warehouses * terminals)) as u32 % warehouses, accesses));
        }
        Recording::from_accesses(seen, &tracer.finish()?)
    }

    /// Records reads of one page under a kind of latch, as in the benchmark `latch/read`.
    pub(crate) fn of_page_reads(program: &Path, latches: &str) -> Result<Recording, Error> {
        const READS: usize = 8;
        let mut command = Command::new(program);
        command.args(["footprint", "--traced", "--page-reads", "--latches", latches, "--seed", "1"]);
        let mut tracer = start(command)?;
        let mut seen = Vec::new();
        let mut next = tracer.run_to_transaction()?;
        while next.is_some() && seen.len() < READS {
            let mut accesses = Vec::new();
            next = tracer.trace_transaction(&mut |access| accesses.push(access))?;
            seen.push((0, accesses));
        }
        Recording::from_accesses(seen, &tracer.finish()?)
    }

    /// Assigns accesses to the kinds of lines that the traced program printed. Accesses to other lines are dropped.
    fn from_accesses(seen: Vec<(u32, Vec<TracedAccess>)>, output: &str) -> Result<Recording, Error> {
        let lines: Vec<Lines> = output.lines().filter_map(Lines::parse).collect();
        if lines.is_empty() || seen.is_empty() {
            return Err(Error::failed("the traced program has not told where its lines lie, or ran no transaction"));
        }
        let kinds =
            lines.iter().map(|lines| LineKind { name: lines.kind.clone(), per_worker: lines.per_worker }).collect();
        let mut kind_of_line: BTreeMap<u64, Option<u8>> = BTreeMap::new();
        let mut transactions = Vec::new();
        for (home, accesses) in seen {
            let mut transaction = RecordedTransaction { home, accesses: Vec::new(), instructions_after: 0 };
            let mut done = 0;
            for TracedAccess { address, operation, instructions } in accesses {
                let Some(operation) = operation else {
                    transaction.instructions_after = instructions - done;
                    continue;
                };
                // The model of this recording has no prefetches.
                if operation.is_prefetch() {
                    continue;
                }
                let kind = *kind_of_line
                    .entry(address >> 3)
                    .or_insert_with(|| lines.iter().position(|lines| lines.contains(address)).map(|kind| kind as u8));
                let Some(kind) = kind else { continue };
                let instructions_before = instructions - done;
                done = instructions;
                transaction.accesses.push(LineAccess { address, kind, operation, instructions_before });
            }
            transactions.push(transaction);
        }
        if transactions.iter().all(|transaction| transaction.accesses.is_empty()) {
            return Err(Error::failed("the traced program was seen to touch none of the lines that it shares"));
        }
        Ok(Recording { kinds, transactions })
    }

    /// Returns the mean number of instructions of a transaction.
    pub(crate) fn instructions(&self) -> f64 {
        let all: u64 = self.transactions.iter().map(RecordedTransaction::instructions).sum();
        all as f64 / self.transactions.len().max(1) as f64
    }
}

fn start(mut command: Command) -> Result<AccessTracer, Error> {
    AccessTracer::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_sorted_by_what_lies_there() {
        let output =
            "index 1 x\nlines 8192 24576 8256 0 page latch\nlines 8192 24576 0 0 page\nlines 640 768 0 128 slots\n";
        let seen = |address, operation, instructions| TracedAccess { address, operation, instructions };
        let accesses = vec![
            seen(8200, Some(AccessKind::Atomic), 5),
            seen(0, Some(AccessKind::Write), 6),
            seen(8256, Some(AccessKind::Read), 9),
            seen(8192 + 8256, Some(AccessKind::Read), 10),
            seen(640, Some(AccessKind::Write), 12),
            seen(0, None, 20),
        ];
        let recording = Recording::from_accesses(vec![(3, accesses)], output).unwrap();
        let kinds: Vec<&str> = recording.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(kinds, ["page latch", "page", "slots"]);
        assert_eq!(recording.kinds[2].per_worker, 128);
        let [transaction] = &recording.transactions[..] else { panic!("{recording:?}") };
        let short: Vec<(u8, u32)> =
            transaction.accesses.iter().map(|access| (access.kind, access.instructions_before)).collect();
        assert_eq!(
            (transaction.home, short, transaction.instructions_after),
            (3, vec![(0, 5), (1, 4), (0, 1), (2, 2)], 8)
        );
        assert!((recording.instructions() - 20.0).abs() < 1e-9);
        assert!(Recording::from_accesses(Vec::new(), output).is_err());
        // A recording without accesses is an error.
        let elsewhere = vec![seen(0, Some(AccessKind::Write), 6), seen(0, None, 20)];
        assert!(Recording::from_accesses(vec![(3, elsewhere)], output).is_err());
    }
}
