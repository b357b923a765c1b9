//! Recording of transactions on one worker: accesses to shared lines, and what the transactions hold.
//!
//! | hold | begins | ends |
//! | --- | --- | --- |
//! | page latch, exclusive | with an atomic change of the latch word | with the next write of the word |
//! | record lock | with the first access to the word of its bucket | with the last atomic change of this word, in the commit |
//! | place in the log | with the atomic change of the tail | the next record begins where this one ends |

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::footprint::access::{AccessTracer, TracedAccess};
use crate::footprint::holds::{RecordLock, parse_layout, parse_locks, parse_table};
use crate::footprint::lines::Lines;
use crate::footprint::operand::AccessKind;
use crate::footprint::parse_index;
use tpcc_core::workload::error::Error;

/// Maximum number of instructions between a read of a latch word and a later read or acquisition that validates what was read in
/// between.
const SECTION: u32 = 500;
/// Maximum length of a log record.
const LONGEST_RECORD: u64 = 64 << 10;

/// Class of shared lines: a kind of line and, for pages, the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LineClass {
    /// Name of the kind, as in `storage::measure::SharedLines`.
    pub kind: String,
    /// Name of the table of a page.
    pub table: Option<String>,
    /// True if each worker has lines of its own.
    pub is_private: bool,
}

impl LineClass {
    /// Returns the name for reports.
    pub(crate) fn name(&self) -> String {
        match &self.table {
            Some(table) => format!("{} of {table}", self.kind),
            None => self.kind.clone(),
        }
    }
}

/// Effect of an access on what the transaction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    None,
    /// Optimistic read of a latch word. `begin`: the read before it, if this one validates what was read in between;
    /// otherwise the step itself.
    ReadLatch {
        begin: u32,
    },
    /// Exclusive acquisition of a latch, at the version that was read at step `begin` if there is one.
    TakeLatch {
        begin: Option<u32>,
    },
    ReleaseLatch,
    /// Acquisition of the locks of this group.
    Lock {
        group: u32,
    },
    /// Release of the locks of this group.
    Unlock {
        group: u32,
    },
    /// Reservation of this number of bytes of the log.
    Reserve {
        bytes: u32,
    },
    /// Write into the last reserved record. The address of the step is the offset in the record.
    WriteRecord,
}

/// An access to a shared line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub address: u64,
    /// Index in [`ScaleRecording::classes`].
    pub class: u16,
    pub operation: AccessKind,
    /// Number of instructions since the previous step.
    pub instructions_before: u32,
    pub effect: Effect,
}

/// A recorded transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScaleTransaction {
    /// Home warehouse of the terminal, counted from 0.
    pub home: usize,
    pub steps: Vec<Step>,
    /// Number of instructions after the last step.
    pub instructions_after: u32,
    /// Record locks, in groups of one bucket.
    pub locks: Vec<Vec<RecordLock>>,
}

impl ScaleTransaction {
    /// Returns the number of instructions.
    pub(crate) fn instructions(&self) -> u64 {
        let before: u64 = self.steps.iter().map(|step| u64::from(step.instructions_before)).sum();
        before + u64::from(self.instructions_after)
    }

    /// Returns the number of bytes of the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        let bytes = |step: &Step| if let Effect::Reserve { bytes } = step.effect { u64::from(bytes) } else { 0 };
        self.steps.iter().map(bytes).sum()
    }
}

/// Transactions recorded on one worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScaleRecording {
    pub classes: Vec<LineClass>,
    pub transactions: Vec<ScaleTransaction>,
    /// Names of tables, keyed by their number for locks.
    pub tables: BTreeMap<u32, String>,
    /// Address of the first frame, size of a frame, and number of frames.
    pub frames: (u64, u64, u64),
}

/// Parameters of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScaleRecordingPlan<'a> {
    pub mix: &'a str,
    /// Number of warehouses, and number of terminals of each warehouse.
    pub warehouses: u32,
    pub terminals: u32,
    /// Number of transactions before the recording.
    pub warm_up: u64,
    /// Interval of the recorded transactions.
    pub each: u64,
    pub transactions: usize,
    pub seed: u64,
}

impl ScaleRecording {
    /// Records transactions on the database in `data`.
    pub(crate) fn of_transactions(
        program: &Path,
        data: &Path,
        plan: ScaleRecordingPlan<'_>,
    ) -> Result<ScaleRecording, Error> {
        let ScaleRecordingPlan { mix, warehouses, terminals, warm_up, each, transactions, seed } = plan;
        let mut command = Command::new(program);
        command.args(["footprint", "--traced", "--holds", "--mix", mix, "--after", &warm_up.to_string()]);
        command.args(["--of-warehouses", &warehouses.to_string(), "--of-terminals", &terminals.to_string()]);
        command.args(["--seed", &seed.to_string(), "--data"]).arg(data);
        let mut tracer = AccessTracer::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        let mut builder = RecordingBuilder::new(&tracer.run_to_text()?)?;
        let mut next = tracer.run_to_transaction()?;
        while let Some(number) = next {
            if builder.transactions.len() == transactions {
                break;
            }
            if !number.is_multiple_of(each) {
                next = tracer.run_to_transaction()?;
                continue;
            }
            let (mut accesses, mut texts) = (Vec::new(), String::new());
            next = tracer.trace_with_texts(&mut |access| accesses.push(access), &mut texts)?;
            // Terminals run in rotation and are assigned to warehouses in rotation.
            let home = (number % u64::from(warehouses * terminals)) as usize % warehouses as usize;
            builder.add(home, &accesses, parse_locks(&texts), |address| tracer.read_u32(address));
        }
        tracer.finish()?;
        builder.finish()
    }

    /// Returns the mean number of instructions of a transaction.
    pub(crate) fn instructions(&self) -> f64 {
        let all: u64 = self.transactions.iter().map(ScaleTransaction::instructions).sum();
        all as f64 / self.transactions.len().max(1) as f64
    }

    /// Returns the mean number of bytes of the log of a transaction.
    pub(crate) fn log_bytes(&self) -> f64 {
        let all: u64 = self.transactions.iter().map(ScaleTransaction::log_bytes).sum();
        all as f64 / self.transactions.len().max(1) as f64
    }

    /// Returns the number of homes.
    pub(crate) fn homes(&self) -> usize {
        self.transactions.iter().map(|transaction| transaction.home + 1).max().unwrap_or(0)
    }

    /// Returns the number of the frame in which an address lies.
    pub(crate) fn frame_of(&self, address: u64) -> Option<u64> {
        let (begin, size, count) = self.frames;
        let frame = address.checked_sub(begin)?.checked_div(size)?;
        (frame < count).then_some(frame)
    }
}

/// A recording in progress.
struct RecordingBuilder {
    lines: Vec<Lines>,
    /// Table of each index.
    indexes: BTreeMap<u32, String>,
    /// Offsets of the latch word and of the index number in a frame.
    latch: u64,
    index: u64,
    /// Position in `lines` of an address, keyed by its eighth.
    kind_of: HashMap<u64, Option<usize>>,
    /// Class of each pair of kind and table.
    class_of: HashMap<(usize, Option<String>), u16>,
    /// Table of each frame.
    table_of: HashMap<u64, Option<String>>,
    recording: ScaleRecording,
    transactions: Vec<ScaleTransaction>,
}

impl RecordingBuilder {
    /// Creates a recording of a program that has told these places.
    fn new(places: &str) -> Result<RecordingBuilder, Error> {
        let lines: Vec<Lines> = places.lines().filter_map(Lines::parse).collect();
        let layout = places.lines().find_map(parse_layout);
        let frames = lines.iter().find(|lines| lines.every() > 0);
        let (Some((latch, index)), Some(frames)) = (layout, frames) else {
            return Err(Error::failed("the traced program has not told where its pages lie"));
        };
        let frames = (frames.begin(), frames.every(), frames.len() / frames.every());
        Ok(RecordingBuilder {
            indexes: places.lines().filter_map(parse_index).map(|(number, (table, _))| (number, table)).collect(),
            recording: ScaleRecording {
                tables: places.lines().filter_map(parse_table).collect(),
                frames,
                ..ScaleRecording::default()
            },
            lines,
            latch,
            index,
            kind_of: HashMap::new(),
            class_of: HashMap::new(),
            table_of: HashMap::new(),
            transactions: Vec::new(),
        })
    }

    /// Adds a transaction. `read_u32` reads the program's memory.
    fn add(
        &mut self,
        home: usize,
        accesses: &[TracedAccess],
        locks: Vec<RecordLock>,
        read_u32: impl Fn(u64) -> Option<u32>,
    ) {
        let mut groups: Vec<Vec<RecordLock>> = Vec::new();
        for lock in locks {
            match groups.iter_mut().find(|group| group[0].bucket == lock.bucket) {
                Some(group) => group.push(lock),
                None => groups.push(vec![lock]),
            }
        }
        let mut transaction = ScaleTransaction { home, locks: groups, ..ScaleTransaction::default() };
        let mut done = 0;
        for &TracedAccess { address, operation, instructions } in accesses {
            let Some(operation) = operation else {
                transaction.instructions_after = instructions - done;
                continue;
            };
            let lines = &self.lines;
            let kind = self.kind_of.entry(address >> 3);
            let kind = *kind.or_insert_with(|| lines.iter().position(|lines| lines.contains(address)));
            let Some(kind) = kind else { continue };
            let class = self.class(kind, address, &read_u32);
            transaction.steps.push(Step {
                address,
                class,
                operation,
                instructions_before: instructions - done,
                effect: Effect::None,
            });
            done = instructions;
        }
        self.find_latches(&mut transaction);
        self.find_locks(&mut transaction);
        self.find_records(&mut transaction);
        self.transactions.push(transaction);
    }

    /// Returns the class of an address in lines of this kind.
    fn class(&mut self, kind: usize, address: u64, read_u32: impl Fn(u64) -> Option<u32>) -> u16 {
        let (begin, size, _) = self.recording.frames;
        let table = self.recording.frame_of(address).and_then(|frame| {
            let (index, indexes) = (self.index, &self.indexes);
            let table = || read_u32(begin + frame * size + index).and_then(|number| indexes.get(&number).cloned());
            self.table_of.entry(frame).or_insert_with(table).clone()
        });
        let classes = &mut self.recording.classes;
        *self.class_of.entry((kind, table.clone())).or_insert_with(|| {
            let Lines { kind, per_worker, .. } = &self.lines[kind];
            classes.push(LineClass { kind: kind.clone(), table, is_private: *per_worker > 0 });
            (classes.len() - 1) as u16
        })
    }

    fn is_of_kind(&self, step: &Step, kind: &str) -> bool {
        self.recording.classes[usize::from(step.class)].kind == kind
    }

    /// Finds the reads, acquisitions and releases of latches.
    fn find_latches(&self, transaction: &mut ScaleTransaction) {
        let (begin, size, _) = self.recording.frames;
        /// Use of one latch so far.
        #[derive(Clone, Copy)]
        struct LatchUse {
            /// Last read, and number of instructions at this step.
            section: Option<(u32, u64)>,
            is_held: bool,
        }
        let mut latches: HashMap<u64, LatchUse> = HashMap::new();
        let mut at = 0_u64;
        for number in 0..transaction.steps.len() {
            let step = transaction.steps[number];
            at += u64::from(step.instructions_before);
            if !self.is_of_kind(&step, "page latch") || step.address.wrapping_sub(begin) % size != self.latch {
                continue;
            }
            let latch = latches.entry(step.address).or_insert(LatchUse { section: None, is_held: false });
            let open = latch.section.filter(|(_, last)| at - last <= u64::from(SECTION));
            let effect = match step.operation {
                AccessKind::Read if !latch.is_held => {
                    latch.section = Some((number as u32, at));
                    Effect::ReadLatch { begin: open.map_or(number as u32, |(begin, _)| begin) }
                }
                AccessKind::Atomic if !latch.is_held => {
                    latch.is_held = true;
                    Effect::TakeLatch { begin: open.map(|(begin, _)| begin) }
                }
                AccessKind::Write if latch.is_held => {
                    *latch = LatchUse { section: None, is_held: false };
                    Effect::ReleaseLatch
                }
                _ => Effect::None,
            };
            transaction.steps[number].effect = effect;
        }
        // A latch that is never released was shared: its release is an atomic change.
        let held: Vec<u64> = latches.iter().filter(|(_, latch)| latch.is_held).map(|(address, _)| *address).collect();
        for step in transaction.steps.iter_mut().filter(|step| held.contains(&step.address)) {
            if matches!(step.effect, Effect::TakeLatch { .. } | Effect::ReleaseLatch) {
                step.effect = Effect::None;
            }
        }
    }

    /// Finds the acquisition and the release of the locks.
    fn find_locks(&self, transaction: &mut ScaleTransaction) {
        for group in 0..transaction.locks.len() {
            let bucket = transaction.locks[group][0].bucket;
            let on_bucket = |step: &&mut Step| step.address == bucket && !step.operation.is_prefetch();
            if let Some(first) = transaction.steps.iter_mut().find(on_bucket) {
                first.effect = Effect::Lock { group: group as u32 };
            }
            let last =
                transaction.steps.iter_mut().rfind(|step| on_bucket(step) && step.operation == AccessKind::Atomic);
            if let Some(last) = last.filter(|last| last.effect == Effect::None) {
                last.effect = Effect::Unlock { group: group as u32 };
            }
        }
    }

    /// Finds the records of the log, and the offsets of their writes.
    fn find_records(&self, transaction: &mut ScaleTransaction) {
        let (mut reserved, mut begins): (Vec<usize>, Vec<Option<(u64, u64)>>) = (Vec::new(), Vec::new());
        let is_write = |step: &Step| step.operation.writes() && !step.operation.is_prefetch();
        for (number, step) in transaction.steps.iter().enumerate() {
            if self.is_of_kind(step, "log tail") && step.operation == AccessKind::Atomic {
                reserved.push(number);
                begins.push(None);
            } else if self.is_of_kind(step, "log ring")
                && is_write(step)
                && let Some(record) = begins.last_mut()
            {
                let (low, high) = record.unwrap_or((step.address, step.address));
                *record = Some((low.min(step.address), high.max(step.address)));
            }
        }
        let lengths: Vec<u32> = begins
            .iter()
            .enumerate()
            .map(|(n, record)| {
                let Some((low, high)) = *record else { return 0 };
                let next = begins.get(n + 1).copied().flatten().map(|(next, _)| next);
                // The last record of the transaction ends with its last write, of eight bytes.
                let exact = next.and_then(|next| next.checked_sub(low)).filter(|bytes| *bytes <= LONGEST_RECORD);
                exact.unwrap_or_else(|| (high + 8 - low).min(LONGEST_RECORD)) as u32
            })
            .collect();
        let mut record = None;
        for number in 0..transaction.steps.len() {
            if let Ok(n) = reserved.binary_search(&number) {
                record = Some(n);
                transaction.steps[number].effect = Effect::Reserve { bytes: lengths[n] };
            }
            let step = transaction.steps[number];
            if let Some((low, _)) = record.and_then(|n| begins[n])
                && self.is_of_kind(&step, "log ring")
                && is_write(&step)
            {
                let step = &mut transaction.steps[number];
                step.address = step.address.saturating_sub(low).min(LONGEST_RECORD);
                step.effect = Effect::WriteRecord;
            }
        }
    }

    fn finish(mut self) -> Result<ScaleRecording, Error> {
        if self.transactions.iter().all(|transaction| transaction.steps.is_empty()) {
            return Err(Error::failed("the traced program was seen to touch none of the lines that it shares"));
        }
        self.recording.transactions = self.transactions;
        Ok(self.recording)
    }
}

#[cfg(test)]
mod tests {
    use AccessKind::{Atomic, PrefetchWrite, Read, Write};

    use super::*;

    const PLACES: &str = "index\t5\trows\trows\nlines 8192 32768 8256 0 page latch\nlines 8192 32768 0 0 page\n\
                          lines 640 768 0 0 lock heads\nlines 1024 1088 0 0 log tail\nlines 2048 4096 0 2048 log ring\n\
                          frame 8 44\nlock table 3 rows\n";

    fn record(accesses: &[(u64, AccessKind)], locks: Vec<RecordLock>) -> ScaleRecording {
        let mut builder = RecordingBuilder::new(PLACES).unwrap();
        let access = |(n, &(address, operation)): (usize, &(u64, AccessKind))| TracedAccess {
            address,
            operation: Some(operation),
            instructions: 10 * (n as u32 + 1),
        };
        let mut traced: Vec<TracedAccess> = accesses.iter().enumerate().map(access).collect();
        traced.push(TracedAccess { address: 0, operation: None, instructions: 10 * accesses.len() as u32 + 7 });
        builder.add(1, &traced, locks, |address| (address == 8192 + 44).then_some(5));
        builder.finish().unwrap()
    }

    fn effects(recording: &ScaleRecording) -> Vec<Effect> {
        recording.transactions[0].steps.iter().map(|step| step.effect).collect()
    }

    #[test]
    fn latches_are_taken_at_the_version_that_was_read() {
        let latch = 8192 + 8;
        let recording = record(
            &[
                (latch, Read),
                (8192 + 300, Read),
                (latch, Read),
                (latch, Atomic),
                (8192 + 300, Write),
                (latch, Read),
                (latch, Write),
                (latch, Read),
            ],
            Vec::new(),
        );
        let wanted = [
            Effect::ReadLatch { begin: 0 },
            Effect::None,
            Effect::ReadLatch { begin: 0 },
            Effect::TakeLatch { begin: Some(2) },
            Effect::None,
            Effect::None,
            Effect::ReleaseLatch,
            Effect::ReadLatch { begin: 7 },
        ];
        assert_eq!(effects(&recording), wanted);
        let names: Vec<String> = recording.classes.iter().map(LineClass::name).collect();
        assert_eq!(names, ["page latch of rows", "page of rows"]);
        assert_eq!((recording.transactions[0].instructions(), recording.homes()), (87, 2));
        assert_eq!((recording.frame_of(8192 + 8256), recording.frame_of(0)), (Some(1), None));
    }

    #[test]
    fn a_shared_latch_is_not_held_exclusively() {
        let recording = record(&[(8200, Atomic), (8200, Atomic), (8200, Read)], Vec::new());
        assert!(effects(&recording).iter().all(|effect| !matches!(effect, Effect::TakeLatch { .. })), "{recording:?}");
    }

    #[test]
    fn locks_are_held_from_the_first_access_to_the_last_change_of_their_bucket() {
        let lock = |name, bucket| RecordLock { table: 3, name, bucket, is_exclusive: true };
        let recording = record(
            &[(648, PrefetchWrite), (648, Read), (648, Atomic), (656, Atomic), (648, Atomic), (656, Atomic)],
            vec![lock(70, 648), lock(71, 656), lock(72, 648)],
        );
        let wanted = [
            Effect::None,
            Effect::Lock { group: 0 },
            Effect::None,
            Effect::Lock { group: 1 },
            Effect::Unlock { group: 0 },
            Effect::Unlock { group: 1 },
        ];
        assert_eq!(effects(&recording), wanted);
        let groups: Vec<usize> = recording.transactions[0].locks.iter().map(Vec::len).collect();
        assert_eq!((groups, recording.tables.get(&3).map(String::as_str)), (vec![2, 1], Some("rows")));
    }

    #[test]
    fn records_have_their_lengths_and_their_writes_have_offsets() {
        let recording = record(
            &[
                (1024, Atomic),
                (2056, Write),
                (2048, Write),
                (2064, Write),
                (1024, Atomic),
                (2088, Write),
                (2096, Write),
            ],
            Vec::new(),
        );
        let steps = &recording.transactions[0].steps;
        assert_eq!((steps[0].effect, steps[4].effect), (Effect::Reserve { bytes: 40 }, Effect::Reserve { bytes: 16 }));
        let offsets: Vec<u64> =
            steps.iter().filter(|step| step.effect == Effect::WriteRecord).map(|step| step.address).collect();
        assert_eq!((offsets, recording.log_bytes()), (vec![8, 0, 16, 0, 8], 56.0));
        assert!(RecordingBuilder::new("index\t5\trows\trows\n").is_err());
    }
}
