//! Lines and locks that modelled cores have in common, and the steps of transactions that matter for them.
//!
//! A page that transactions of all recorded homes use (a root, an inner page, the leaf of all warehouses) is one page for all
//! homes of the model. Each other page belongs to the recorded homes, and a further copy of these homes has its own. The same
//! holds for each other line and for each lock.
//!
//! The engine splits leaves that writers of different rows contend for. A recording of one worker shows the engine before
//! such splits. For the engine after them, each home gets its own copy of a page that transactions of several homes latch
//! exclusively to write different words.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::recording::{Effect, ScaleRecording, ScaleTransaction, Step};
use crate::footprint::operand::AccessKind;

/// Cores that use the same line or lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// All cores.
    Common,
    /// Transactions of one copy of the recorded homes.
    Copy,
    /// Transactions of one home.
    Home,
    /// One core.
    Core,
}

/// Transactions that may run on a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mixing {
    /// Those of one home.
    OneHome,
    /// Those of several homes.
    ManyHomes,
}

/// A step of a transaction that may concern another core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlacedStep {
    pub step: Step,
    pub sharing: Sharing,
}

/// A record lock that another transaction may request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlacedLock {
    pub name: u64,
    pub table: u32,
    pub is_exclusive: bool,
    pub sharing: Sharing,
}

/// A transaction without the steps that concern no other core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PlacedTransaction {
    pub home: usize,
    pub steps: Vec<PlacedStep>,
    pub instructions_after: u32,
    pub instructions: u64,
    /// Locks by group, without those that no other transaction may wait for.
    pub locks: Vec<Vec<PlacedLock>>,
}

/// Part of a page that is not a row: the frame's data, and the header of the page, with the latch's line before it.
const HEADER_BYTES: u64 = 160;

/// Set of recorded homes: a bit for each.
type Homes = u64;

/// Use of lines and locks by the recorded homes.
#[derive(Debug)]
pub(crate) struct Usage<'a> {
    recording: &'a ScaleRecording,
    all: Homes,
    /// Homes that touch each unit: a page, or another line.
    units: HashMap<u64, Homes>,
    /// Homes that request each lock.
    locks: HashMap<u64, Homes>,
    /// Frames of pages that contention splits.
    split: HashSet<u64>,
}

impl Usage<'_> {
    /// Analyses a recording of at most 64 homes.
    pub(crate) fn of(recording: &ScaleRecording) -> Usage<'_> {
        let (mut units, mut locks): (HashMap<u64, Homes>, HashMap<u64, Homes>) = (HashMap::new(), HashMap::new());
        let mut latched: HashMap<u64, Homes> = HashMap::new();
        let mut written: HashMap<(u64, usize), HashSet<u64>> = HashMap::new();
        let mut all = 0;
        for transaction in &recording.transactions {
            let home = 1 << transaction.home;
            all |= home;
            for step in &transaction.steps {
                *units.entry(unit(recording, step)).or_default() |= home;
                let Some(frame) = recording.frame_of(step.address).filter(|_| step.effect != Effect::WriteRecord)
                else {
                    continue;
                };
                if matches!(step.effect, Effect::TakeLatch { .. }) {
                    *latched.entry(frame).or_default() |= home;
                }
                if step.operation.writes() && (step.address - recording.frames.0) % recording.frames.1 >= HEADER_BYTES {
                    written.entry((frame, transaction.home)).or_default().insert(step.address >> 3);
                }
            }
            for lock in transaction.locks.iter().flatten() {
                *locks.entry(lock.name).or_default() |= home;
            }
        }
        let is_split = |frame: u64, homes: Homes| {
            let of_home = (0..64).filter(|home| homes & 1 << home != 0).filter_map(|home| written.get(&(frame, home)));
            let words: Vec<&HashSet<u64>> = of_home.collect();
            words.iter().enumerate().any(|(n, one)| words[n + 1..].iter().any(|other| one.is_disjoint(other)))
        };
        let split =
            latched.iter().filter(|(frame, homes)| is_split(**frame, **homes)).map(|(frame, _)| *frame).collect();
        Usage { recording, all, units, locks, split }
    }

    /// Returns the number of pages that contention splits, by table.
    pub(crate) fn splits(&self) -> BTreeMap<String, usize> {
        let mut tables: HashMap<u64, &str> = HashMap::new();
        for step in self.recording.transactions.iter().flat_map(|transaction| &transaction.steps) {
            if let Some(frame) = self.recording.frame_of(step.address)
                && let Some(table) = &self.recording.classes[usize::from(step.class)].table
            {
                tables.insert(frame, table);
            }
        }
        let mut splits = BTreeMap::new();
        for frame in &self.split {
            *splits
                .entry(tables.get(frame).map_or_else(|| "?".to_owned(), |table| (*table).to_owned()))
                .or_default() += 1;
        }
        splits
    }

    fn sharing(&self, step: &Step, after_splits: bool) -> Sharing {
        if step.effect == Effect::WriteRecord {
            return Sharing::Common;
        }
        if self.recording.classes[usize::from(step.class)].is_private {
            return Sharing::Core;
        }
        let frame = self.recording.frame_of(step.address);
        if after_splits && frame.is_some_and(|frame| self.split.contains(&frame)) {
            return Sharing::Home;
        }
        let is_common = self.units.get(&unit(self.recording, step)) == Some(&self.all);
        if is_common { Sharing::Common } else { Sharing::Copy }
    }

    /// Returns the recorded transactions of the first `homes` homes, without the steps that concern no other core.
    pub(crate) fn place(&self, homes: usize, mixing: Mixing, after_splits: bool) -> Vec<PlacedTransaction> {
        let used: Vec<&ScaleTransaction> =
            self.recording.transactions.iter().filter(|transaction| transaction.home < homes).collect();
        // Homes that touch and that write each line, and homes that request each lock and that exclude others.
        let mut lines: HashMap<u64, (Homes, Homes)> = HashMap::new();
        let mut locks: HashMap<u64, (Homes, Homes)> = HashMap::new();
        for transaction in &used {
            let home: Homes = 1 << transaction.home;
            for step in &transaction.steps {
                let (touch, write) = lines.entry(step.address >> 6).or_default();
                *touch |= home;
                *write |= if step.operation.writes() { home } else { 0 };
            }
            for lock in transaction.locks.iter().flatten() {
                let (request, exclude) = locks.entry(lock.name).or_default();
                *request |= home;
                *exclude |= if lock.is_exclusive { home } else { 0 };
            }
        }
        let concerns_others = |(touch, write): (Homes, Homes), sharing: Sharing| match (mixing, sharing) {
            (_, Sharing::Core) => false,
            (Mixing::OneHome, Sharing::Home) => false,
            (Mixing::OneHome, _) => write != 0 && touch.count_ones() > 1,
            (Mixing::ManyHomes, _) => write != 0,
        };
        let placed = used.iter().map(|transaction| {
            let lock_groups: Vec<Vec<PlacedLock>> = transaction
                .locks
                .iter()
                .map(|group| {
                    let placed = group.iter().map(|lock| PlacedLock {
                        name: lock.name,
                        table: lock.table,
                        is_exclusive: lock.is_exclusive,
                        sharing: if self.locks.get(&lock.name) == Some(&self.all) {
                            Sharing::Common
                        } else {
                            Sharing::Copy
                        },
                    });
                    let concerns = |lock: &PlacedLock| {
                        concerns_others(locks.get(&lock.name).copied().unwrap_or_default(), lock.sharing)
                    };
                    placed.filter(concerns).collect()
                })
                .collect();
            let mut steps: Vec<PlacedStep> = Vec::new();
            // New number of each step; that of the next step for a step that is left out.
            let mut numbers: Vec<u32> = Vec::new();
            let mut left_out = 0;
            for step in &transaction.steps {
                let sharing = self.sharing(step, after_splits);
                numbers.push(steps.len() as u32);
                let by_itself = match step.effect {
                    Effect::WriteRecord | Effect::Reserve { .. } => true,
                    Effect::Lock { group } | Effect::Unlock { group } => !lock_groups[group as usize].is_empty(),
                    _ => false,
                };
                let line = lines.get(&(step.address >> 6)).copied().unwrap_or_default();
                if !by_itself && !concerns_others(line, sharing) {
                    left_out += step.instructions_before;
                    continue;
                }
                let mut step = *step;
                step.instructions_before += std::mem::take(&mut left_out);
                steps.push(PlacedStep { step, sharing });
            }
            for placed in &mut steps {
                match &mut placed.step.effect {
                    Effect::ReadLatch { begin } | Effect::TakeLatch { begin: Some(begin) } => {
                        *begin = numbers[*begin as usize];
                    }
                    _ => {}
                }
            }
            PlacedTransaction {
                home: transaction.home,
                steps,
                instructions_after: transaction.instructions_after + left_out,
                instructions: transaction.instructions(),
                locks: lock_groups,
            }
        });
        placed.collect()
    }
}

/// Returns the unit of a step: its page, or its line.
fn unit(recording: &ScaleRecording, step: &Step) -> u64 {
    // Lines of pages are far above 2^32 in memory: numbers of frames are no numbers of lines.
    recording.frame_of(step.address).unwrap_or(step.address >> 6)
}

impl Sharing {
    /// Returns a number that two users of a line share exactly if they use the same line. `home` counts all homes of the
    /// model, of which `recorded` are recorded.
    pub(crate) fn tag(self, home: usize, recorded: usize, core: usize) -> u64 {
        match self {
            Sharing::Common => 0,
            Sharing::Copy => 1 + (home / recorded) as u64,
            Sharing::Home => 0x1000 + home as u64,
            Sharing::Core => 0x2000 + core as u64,
        }
    }
}

/// Returns true if a step is an atomic change, before which the earlier writes of the core become visible.
pub(crate) fn is_fence(step: &Step) -> bool {
    step.operation == AccessKind::Atomic
}
