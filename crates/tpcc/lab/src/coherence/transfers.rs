//! Transfers of cache lines between modelled cores with private caches.

use std::collections::HashMap;

use super::mesi::{AccessSource, CoreSet, Holders};
use crate::footprint::operand::AccessKind;

/// Binary logarithm of the line size in bytes.
const LINE_SHIFT: u32 = 6;

/// Model of a machine. Times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CoreModel {
    /// Number of cores.
    pub cores: usize,
    /// Number of cores of a node. Transfers between cores of a node take `near_ns`.
    pub node: usize,
    /// Mean time of an instruction, including all stalls except stalls for lines of other cores.
    pub instruction_ns: f64,
    /// Time of a transfer of a line from a core of the same node.
    pub near_ns: f64,
    /// Time of an upgrade of a shared copy to exclusive, which invalidates the copies of other cores of the same node.
    pub upgrade_ns: f64,
    /// Time of a line that no core holds.
    pub cold_ns: f64,
    /// Minimum time for which a core keeps a line that has arrived while the request of another core is pending.
    pub hold_ns: f64,
    /// Factor by which a transfer or an upgrade between nodes takes longer than one within a node.
    pub far: f64,
}

/// Counts and wait time of the accesses to lines of one kind, per transaction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct KindFigures {
    pub accesses: f64,
    /// Number of transfers from cores of the same node (`near`) and of other nodes (`far`), including upgrades of shared
    /// copies to exclusive.
    pub near: f64,
    pub far: f64,
    /// Number of transfers and upgrades that invalidated the copies of other cores.
    pub invalidations: f64,
    /// Number of accesses to lines that no core held.
    pub cold: f64,
    /// Time that cores waited for lines, in nanoseconds.
    pub wait_ns: f64,
}

impl KindFigures {
    /// Returns the number of transfers and upgrades within nodes and between nodes.
    pub(crate) fn transfers(&self) -> f64 {
        self.near + self.far
    }

    pub(super) fn add(&mut self, other: &KindFigures) {
        self.accesses += other.accesses;
        self.near += other.near;
        self.far += other.far;
        self.invalidations += other.invalidations;
        self.cold += other.cold;
        self.wait_ns += other.wait_ns;
    }

    pub(crate) fn over(&self, transactions: f64) -> KindFigures {
        let KindFigures { accesses, near, far, invalidations, cold, wait_ns } = *self;
        let [accesses, near, far, invalidations, cold, wait_ns] =
            [accesses, near, far, invalidations, cold, wait_ns].map(|figure| figure / transactions);
        KindFigures { accesses, near, far, invalidations, cold, wait_ns }
    }
}

#[derive(Default)]
pub(super) struct CachedLine<const WORDS: usize> {
    holders: Holders<WORDS>,
    /// Holders before the last transfer. They keep the line until the transfer request arrives at `lost_ps`, in picoseconds.
    previous: Holders<WORDS>,
    lost_ps: u64,
    /// Time at which the line arrives at its last destination, in picoseconds.
    arrival_ps: u64,
    /// True if a prefetch has requested the line for its last destination.
    is_announced: bool,
    /// Total time that cores waited for the line during the measured pass, in picoseconds.
    pub(super) waited_ps: u64,
    pub(super) kind: u16,
}

/// An access of a core to a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineRequest {
    pub core: usize,
    pub address: u64,
    /// Index of the kind of line.
    pub kind: u16,
    pub operation: AccessKind,
    /// True if the access counts.
    pub measured: bool,
}

/// All lines, and the caches of at most `64 * WORDS` cores.
pub(crate) struct LineTransfers<const WORDS: usize> {
    pub(super) machine: CoreModel,
    pub(super) lines: HashMap<u64, CachedLine<WORDS>, BuildLineHasher>,
    /// Cores of the same node, for each core.
    neighbours: Vec<CoreSet<WORDS>>,
    /// Sums by kind of line.
    pub(crate) kinds: Vec<KindFigures>,
}

/// Hasher of line numbers. A multiplication distributes the numbers over the hash values.
#[derive(Clone, Copy, Default)]
pub(crate) struct LineHasher(u64);
pub(crate) type BuildLineHasher = std::hash::BuildHasherDefault<LineHasher>;

impl std::hash::Hasher for LineHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29);
    }
}

impl<const WORDS: usize> LineTransfers<WORDS> {
    /// Creates caches without lines.
    ///
    /// # Panics
    /// If the machine has no cores, or too many.
    pub(crate) fn new(machine: CoreModel, kinds: usize) -> LineTransfers<WORDS> {
        let CoreModel { cores, node, .. } = machine;
        assert!((1..=CoreSet::<WORDS>::MOST_CORES).contains(&cores) && node > 0, "{machine:?}");
        let neighbours =
            (0..cores).map(|core| CoreSet::of_range(core / node * node..(core / node + 1) * node)).collect();
        LineTransfers { machine, lines: HashMap::default(), neighbours, kinds: vec![KindFigures::default(); kinds] }
    }

    /// Performs an access that begins at `now`. Returns the time at which the core has the line.
    pub(crate) fn access(&mut self, request: LineRequest, now: u64) -> u64 {
        let LineRequest { core: number, address, kind, operation, measured } = request;
        let CoreModel { near_ns, upgrade_ns, cold_ns, hold_ns, far, .. } = self.machine;
        let line = self.lines.entry(address >> LINE_SHIFT).or_default();
        line.kind = kind;
        let writes = operation.writes();
        let figures = &mut self.kinds[usize::from(kind)];
        figures.accesses += f64::from(u8::from(measured));
        if now < line.lost_ps && line.previous.allow(number, writes) {
            return now;
        }
        let before = line.holders;
        let source = line.holders.access(number, writes);
        let (others, within_node_ns) = match source {
            // A plain write or a prefetch, which do not wait, may have requested the line: the line may still be in transit.
            // An atomic change waits for its arrival. A read finds the value of a plain write in the store buffer, but
            // waits for a line that was only prefetched.
            AccessSource::Hit if operation.waits() && (writes || line.is_announced) => {
                let ready = now.max(line.arrival_ps);
                if measured {
                    figures.wait_ns += (ready - now) as f64 / 1e3;
                    line.waited_ps += ready - now;
                }
                return ready;
            }
            AccessSource::Hit => return now,
            AccessSource::Upgrade(others) => (others, upgrade_ns),
            AccessSource::Cores(others) => (others, near_ns),
            AccessSource::Memory => (CoreSet::EMPTY, cold_ns),
        };
        let neighbours = self.neighbours[number];
        // A read takes the nearest copy; a write waits until the farthest copy is invalidated.
        let is_near = if writes { others.is_within(neighbours) } else { others.meets(neighbours) || others.is_empty() };
        let cost = (within_node_ns * if is_near { 1e3 } else { far * 1e3 }) as u64;
        let moves = writes || others.count() < 2;
        // An upgrade needs no transfer: it does not wait for the hold time of another core.
        let kept_ps = match source {
            AccessSource::Cores(_) => line.arrival_ps + (hold_ns * 1e3) as u64,
            _ => line.arrival_ps,
        };
        let mut ready = now + cost;
        if moves {
            line.previous = before;
            line.is_announced = operation.is_prefetch();
            line.lost_ps = (now + cost / 2).max(kept_ps);
            line.arrival_ps = line.lost_ps + cost / 2;
            ready = line.arrival_ps;
        }
        if measured {
            match (others.is_empty(), is_near) {
                (true, _) => figures.cold += 1.0,
                (false, true) => figures.near += 1.0,
                (false, false) => figures.far += 1.0,
            }
            figures.invalidations += f64::from(u8::from(writes && !others.is_empty()));
            if operation.waits() {
                figures.wait_ns += (ready - now) as f64 / 1e3;
                line.waited_ps += ready - now;
            }
        }
        ready
    }
}
