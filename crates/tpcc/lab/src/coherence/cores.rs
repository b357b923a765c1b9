//! Replay of a recording on modelled cores. Each core has its own clock and waits for cache lines that other cores hold.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::recording::{LineAccess, Recording};
use super::transfers::{CachedLine, CoreModel, KindFigures, LineRequest, LineTransfers};

/// Assignment of transactions to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Assignment {
    /// A core runs the transactions of one home: its core number modulo the number of homes.
    ByHome,
    /// Every core runs all transactions.
    Spread,
}

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayResult {
    /// Transactions per second of all cores together.
    pub per_second: f64,
    /// Counts and wait times per transaction, for each kind of line in the order of [`Recording::kinds`].
    pub kinds: Vec<KindFigures>,
    /// Wait time of all cores for each line, in nanoseconds per transaction and in descending order, with the kind of the
    /// line.
    pub lines: Vec<(f64, u8)>,
}

impl ReplayResult {
    /// Returns the sum over all kinds of lines.
    pub(crate) fn all(&self) -> KindFigures {
        let mut all = KindFigures::default();
        self.kinds.iter().for_each(|kind| all.add(kind));
        all
    }
}

struct ReplayCore {
    /// Indices of the recorded transactions, which the core runs repeatedly.
    transactions: Vec<usize>,
    /// Number of the current transaction, counted from the start of the run, and index of the current access in that
    /// transaction.
    transaction: usize,
    access: usize,
    /// Start time and duration of the measured pass, in picoseconds.
    began_ps: u64,
    took_ps: Option<u64>,
}

impl ReplayCore {
    fn pass(&self) -> usize {
        self.transaction / self.transactions.len()
    }

    /// Returns true during the second pass over the transactions, which is measured.
    fn is_measured(&self) -> bool {
        self.pass() == 1
    }
}

struct Replay<'a> {
    recording: &'a Recording,
    transfers: LineTransfers<1>,
}

/// Replays a recording. Each core makes one pass over its transactions to warm up its cache, and a second pass that is
/// measured. Returns `None` if there is nothing to replay.
///
/// # Panics
/// If the machine has no cores, or more than 64.
pub(crate) fn replay(recording: &Recording, machine: CoreModel, assignment: Assignment) -> Option<ReplayResult> {
    let homes = recording.transactions.iter().map(|transaction| transaction.home as usize + 1).max()?;
    let mut cores = Vec::new();
    for core in 0..machine.cores {
        let is_ours = |home: usize| assignment == Assignment::Spread || home == core % homes;
        let mut transactions: Vec<usize> =
            (0..recording.transactions.len()).filter(|n| is_ours(recording.transactions[*n].home as usize)).collect();
        // Cores that run the same transactions begin at different transactions.
        let (number, sharing) = match assignment {
            Assignment::Spread => (core, machine.cores),
            Assignment::ByHome => (core / homes, machine.cores.div_ceil(homes)),
        };
        let first = number * transactions.len() / sharing;
        if transactions.is_empty() {
            return None;
        }
        transactions.rotate_left(first);
        cores.push(ReplayCore { transactions, transaction: 0, access: 0, began_ps: 0, took_ps: None });
    }
    let mut replay = Replay { recording, transfers: LineTransfers::new(machine, recording.kinds.len()) };
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = (0..machine.cores).map(|core| Reverse((0, core))).collect();
    let mut under_way = machine.cores;
    while under_way > 0 {
        let Reverse((now, number)) = next.pop()?;
        let core = &mut cores[number];
        let was_under_way = core.took_ps.is_none();
        let then = replay.step(number, core, now);
        under_way -= usize::from(was_under_way && core.took_ps.is_some());
        next.push(Reverse((then, number)));
    }
    let transactions: f64 = cores.iter().map(|core| core.transactions.len() as f64).sum();
    let rate = |core: &ReplayCore| core.transactions.len() as f64 * 1e12 / core.took_ps.unwrap_or(1).max(1) as f64;
    let waited = |line: &CachedLine<1>| (line.waited_ps as f64 / 1e3 / transactions, line.kind as u8);
    let mut lines: Vec<(f64, u8)> = replay.transfers.lines.values().filter(|l| l.waited_ps > 0).map(waited).collect();
    lines.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    Some(ReplayResult {
        per_second: cores.iter().map(rate).sum(),
        kinds: replay.transfers.kinds.iter().map(|kind| kind.over(transactions)).collect(),
        lines,
    })
}

impl Replay<'_> {
    /// Executes the next access of a core, or the end of its transaction. Returns the time of the core's next step.
    fn step(&mut self, number: usize, core: &mut ReplayCore, now: u64) -> u64 {
        let recording = self.recording;
        let transaction = &recording.transactions[core.transactions[core.transaction % core.transactions.len()]];
        let instruction_ps = self.transfers.machine.instruction_ns * 1e3;
        let work = |instructions: u32| (f64::from(instructions) * instruction_ps) as u64;
        let Some(access) = transaction.accesses.get(core.access) else {
            // At least 1 ps, so that time advances even if all transactions are empty.
            let then = now + work(transaction.instructions_after).max(1);
            core.transaction += 1;
            core.access = 0;
            if core.transaction == core.transactions.len() {
                core.began_ps = then;
            } else if core.transaction == 2 * core.transactions.len() {
                core.took_ps = Some(then - core.began_ps);
            }
            return then
                + recording.transactions[core.transactions[core.transaction % core.transactions.len()]]
                    .first_work(work);
        };
        let ready = self.access(number, access, now, core.is_measured());
        core.access += 1;
        let then = if access.operation.waits() { ready } else { now };
        then + transaction.accesses.get(core.access).map_or(0, |next| work(next.instructions_before))
    }

    /// Performs an access that begins at `now`. Returns the time at which the core has the line.
    fn access(&mut self, number: usize, access: &LineAccess, now: u64, measured: bool) -> u64 {
        let LineAccess { address, kind, operation, .. } = *access;
        let address = address + self.recording.kinds[usize::from(kind)].per_worker * number as u64;
        self.transfers.access(LineRequest { core: number, address, kind: kind.into(), operation, measured }, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::recording::{LineKind, RecordedTransaction};
    use crate::footprint::operand::AccessKind::{self, Atomic, Read, Write};

    const MACHINE: CoreModel = CoreModel {
        cores: 2,
        node: 2,
        instruction_ns: 1.0,
        near_ns: 100.0,
        upgrade_ns: 60.0,
        cold_ns: 100.0,
        hold_ns: 0.0,
        far: 4.0,
    };

    /// Returns a recording with one transaction for each home. Each transaction has 10 instructions before each access, and
    /// 10 after the last access.
    fn recording(homes: u32, per_worker: u64, accesses: &[(u64, AccessKind)]) -> Recording {
        let access = |&(address, operation)| LineAccess { address, kind: 0, operation, instructions_before: 10 };
        let transaction = |home| RecordedTransaction {
            home,
            accesses: accesses.iter().map(access).collect(),
            instructions_after: 10,
        };
        Recording {
            kinds: vec![LineKind { name: "words".to_owned(), per_worker }],
            transactions: (0..homes).flat_map(|home| (0..20).map(move |_| home)).map(transaction).collect(),
        }
    }

    fn run(recording: &Recording, machine: CoreModel) -> ReplayResult {
        replay(recording, machine, Assignment::ByHome).unwrap()
    }

    #[test]
    fn what_no_other_core_writes_is_fetched_once() {
        for (per_worker, accesses) in [(0, &[(0, Read), (64, Read)][..]), (64, &[(0, Atomic), (8, Atomic)])] {
            let outcome = run(&recording(1, per_worker, accesses), MACHINE);
            assert_eq!((outcome.all().transfers(), outcome.all().wait_ns), (0.0, 0.0));
            assert_eq!(outcome.all().accesses, 2.0);
            // A transaction has 30 instructions of 1 ns.
            assert!((outcome.per_second / (2e9 / 30.0) - 1.0).abs() < 1e-9, "{}", outcome.per_second);
            assert_eq!(outcome.lines, []);
        }
        assert!(replay(&recording(0, 0, &[]), MACHINE, Assignment::ByHome).is_none());
    }

    #[test]
    fn a_line_that_all_change_goes_from_core_to_core() {
        let word = recording(1, 0, &[(0, Atomic)]);
        let (two, four) = (run(&word, MACHINE), run(&word, CoreModel { cores: 4, node: 4, ..MACHINE }));
        for outcome in [&two, &four] {
            let all = outcome.all();
            assert_eq!((all.far, all.cold), (0.0, 0.0));
            assert!(all.near > 0.9 && all.invalidations == all.near, "{all:?}");
            // At most one change per half transfer (50 ns).
            assert!(outcome.per_second <= 2e9 / 100.0 * 1.001, "{}", outcome.per_second);
            assert!(outcome.per_second > 0.7 * 2e9 / 100.0, "{}", outcome.per_second);
            assert_eq!(outcome.lines.len(), 1);
        }
        assert!(four.all().wait_ns > 1.5 * two.all().wait_ns);
        let far = run(&word, CoreModel { node: 1, ..MACHINE });
        assert_eq!(far.all().near, 0.0);
        assert!(far.all().wait_ns > 3.0 * two.all().wait_ns);
    }

    #[test]
    fn no_core_waits_for_a_plain_write() {
        // A core requests the line again at its first write after it lost the line. It loses the line between half a
        // transfer and a whole transfer after it received the line, and writes every 20 ns.
        let outcome = run(&recording(1, 0, &[(0, Write)]), MACHINE);
        let transfers = outcome.all().near;
        assert!((20.0 / 120.0..=20.0 / 50.0).contains(&transfers), "{transfers}");
        assert_eq!(outcome.all().wait_ns, 0.0);
        // The work between two writes is longer than a transfer. Both cores write at the same time, one of them while the
        // other's request is still in transit, so that every second write has to fetch the line.
        let mut slow = recording(1, 0, &[(0, Write)]);
        slow.transactions.iter_mut().for_each(|transaction| transaction.instructions_after = 500);
        assert_eq!(run(&slow, MACHINE).all().near, 0.5);
    }

    #[test]
    fn a_line_stays_until_a_request_has_arrived() {
        let of_one_word = recording(1, 0, &[(0, Atomic)]);
        let change = of_one_word.transactions[0].accesses[0];
        let machine = CoreModel { cores: 3, node: 3, ..MACHINE };
        let mut replay = Replay { recording: &of_one_word, transfers: LineTransfers::new(machine, 1) };
        let mut change_at = |core, now| replay.access(core, &change, now, true);
        // The first core fetches the line from memory and has it at 100 ns.
        assert_eq!(change_at(0, 0), 100_000);
        // The second core requests the line at 200 ns: the request arrives at 250 ns, the line at 300 ns.
        assert_eq!(change_at(1, 200_000), 300_000);
        // The first core keeps the line until 250 ns. Then it requests the line, which the second core holds when the
        // request arrives.
        assert_eq!(change_at(0, 249_000), 249_000);
        assert_eq!(change_at(0, 250_000), 350_000);
        // The third core's request arrives at 305 ns, before the line is back at the first core. The request is served at
        // 350 ns, when the first core has the line.
        assert_eq!(change_at(2, 255_000), 400_000);
        let KindFigures { accesses, near, invalidations, cold, wait_ns, .. } = replay.transfers.kinds[0];
        assert_eq!((accesses, cold, near, invalidations), (5.0, 1.0, 3.0, 3.0));
        assert_eq!(wait_ns, 100.0 + 100.0 + 100.0 + 145.0);
    }

    #[test]
    fn an_atomic_change_waits_for_the_line_that_a_plain_write_has_asked_for() {
        let both = recording(1, 0, &[(0, Write), (0, Atomic), (0, Read)]);
        let [write, change, read] = [0, 1, 2].map(|n| both.transactions[0].accesses[n]);
        let mut replay = Replay { recording: &both, transfers: LineTransfers::new(MACHINE, 1) };
        assert_eq!(replay.access(0, &write, 0, true), 100_000);
        // Until the line arrives, the core reads its own write from its store buffer.
        assert_eq!(replay.access(0, &read, 30_000, true), 30_000);
        assert_eq!(replay.access(0, &change, 40_000, true), 100_000);
        assert_eq!(replay.access(0, &change, 120_000, true), 120_000);
        assert_eq!(replay.transfers.kinds[0].wait_ns, 60.0);
    }

    #[test]
    fn a_line_that_was_read_becomes_a_cores_own_in_its_own_time() {
        let both = recording(1, 0, &[(0, Read), (0, Atomic)]);
        let [read, change] = [0, 1].map(|n| both.transactions[0].accesses[n]);
        for (node, times) in [(2, 1), (1, 4)] {
            let machine = CoreModel { node, ..MACHINE };
            let mut replay = Replay { recording: &both, transfers: LineTransfers::new(machine, 1) };
            assert_eq!(replay.access(0, &change, 0, true), 100_000);
            assert_eq!(replay.access(1, &read, 200_000, true), 200_000 + times * 100_000);
            assert_eq!(replay.access(1, &change, 900_000, true), 900_000 + times * 60_000);
            assert_eq!(replay.access(1, &change, 1_500_000, true), 1_500_000);
        }
    }

    #[test]
    fn a_core_keeps_a_line_that_has_come_for_a_while() {
        // The word changes every 10 ns; a core keeps the line for 60 ns, and the line is in transit for half of 100 ns.
        let mut word = recording(1, 0, &[(0, Atomic)]);
        word.transactions.iter_mut().for_each(|transaction| {
            (transaction.accesses[0].instructions_before, transaction.instructions_after) = (5, 5)
        });
        let all = run(&word, CoreModel { hold_ns: 60.0, ..MACHINE }).all();
        assert!((1.0 / 8.0..=1.0 / 5.0).contains(&all.near), "{all:?}");
        assert!(run(&word, MACHINE).all().near > 0.9);
    }

    #[test]
    fn homes_keep_lines_apart() {
        let mut apart = recording(2, 0, &[(0, Atomic)]);
        for transaction in &mut apart.transactions {
            transaction.accesses[0].address = 64 * u64::from(transaction.home);
        }
        assert_eq!(run(&apart, MACHINE).all().transfers(), 0.0);
        let spread = replay(&apart, MACHINE, Assignment::Spread).unwrap();
        assert!(spread.all().transfers() > 0.0, "{:?}", spread.all());
    }
}
