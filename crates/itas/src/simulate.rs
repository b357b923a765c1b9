//! Simulation of scheduling policies on machines with other cores or caches than the current machine.
//!
//! Real [schedulers](crate::Scheduler) run in [virtual time](crate::virtual_time) over a model of a memory hierarchy.
//! Each core has a private cache (L2) with LRU eviction. All cores share a last-level cache (L3), which holds the lines
//! evicted from the private caches (exclusive) and evicts random lines. Random eviction models real last-level caches:
//! of a set larger than the cache they keep a part, regardless of the order of the reads. Behind the L3 is memory.
//! Operations read random lines of their group's working set. The cost of a read depends on the location of its line,
//! and on the presence of the address translation in the core's TLB.
//!
//! The simulation samples one page in [`SAMPLED`], with all of its lines. The sizes of the caches are divided by
//! [`SAMPLED`], and every sampled read represents [`SAMPLED`] reads. (This preserves the hit ratio if lines are read at
//! random.) Writes, prefetchers, and the caches above the L2 are not modelled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::auto::Mode;
use crate::group::{Aggregation, GroupError, GroupId, Groups};
use crate::publish::Board;
use crate::scheduler::{CoreSettings, Scheduler};
use crate::virtual_time::{After, Model, Run, VirtualCores};

/// Number of pages per sampled page.
pub const SAMPLED: usize = 16;

/// Parameters of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caches {
    /// Bytes of each core's private cache.
    pub private_bytes: usize,
    /// Bytes of the shared cache, or of the share of it that is available.
    pub shared_bytes: usize,
    /// Bytes of a cache line.
    pub line: usize,
    /// Cost of a read from the private cache, in nanoseconds.
    pub private_ns: f64,
    /// Cost of a read from the shared cache, in nanoseconds.
    pub shared_ns: f64,
    /// Cost of a read of a line that only the private cache of another core holds, in nanoseconds.
    pub remote_ns: f64,
    /// Cost of a read from memory, in nanoseconds.
    pub memory_ns: f64,
    /// Bytes of a page, the unit of address translation.
    pub page_bytes: usize,
    /// Number of TLB entries of each core.
    pub translations: usize,
    /// Additional cost of a read that misses the TLB, in nanoseconds.
    pub walk_ns: f64,
}

/// Distribution of the lines that operations read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Every line of the working set is equally likely.
    #[default]
    Uniform,
    /// Normal distribution around the middle of the working set, with a standard deviation of a tenth of the set.
    Gaussian,
}

/// Workload of the simulation: groups of fibers that read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of groups.
    pub groups: usize,
    /// Number of fibers per group.
    pub siblings: usize,
    /// Bytes of a group's working set.
    pub set_bytes: usize,
    /// Number of random reads per operation, each after the previous one has ended.
    pub reads: usize,
    /// Time of an operation without its reads, in nanoseconds.
    pub work_ns: f64,
    /// Distribution of the lines read.
    pub access: Access,
}

/// Scheduling parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Policy and placement.
    pub mode: Mode,
    /// Number of cores.
    pub cores: usize,
    /// Length of a slice.
    pub slice: Duration,
    /// Aggregation parameters of all groups.
    pub aggregation: Aggregation,
}

/// Results of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// Operations per second, over all cores.
    pub operations_per_s: f64,
    /// Number of reads per operation that missed the private cache.
    pub private_misses: f64,
    /// Number of reads per operation that were served by memory.
    pub shared_misses: f64,
    /// Largest ratio of a fiber's wait to the bound on waiting.
    pub wait_to_bound: f64,
}

/// Simulates `load` for the duration `time` on each core, after a warm-up of the same duration.
///
/// # Errors
/// There are more groups than a table can hold.
///
/// # Panics
/// If the number of cores, groups or siblings is 0, or if a working set is smaller than a cache line.
pub fn simulate(caches: &Caches, load: &Load, setting: &Setting, time: Duration) -> Result<Simulated, GroupError> {
    assert!(setting.cores > 0 && load.groups > 0 && load.siblings > 0, "nothing to simulate");
    assert!(load.set_bytes >= caches.line, "a set smaller than a line");
    let (groups, board) = (Groups::new(), Arc::new(Board::new(setting.cores)));
    let ids = (0..load.groups)
        .map(|n| groups.add(&n.to_string(), crate::DEFAULT_WEIGHT, setting.aggregation))
        .collect::<Result<Vec<GroupId>, _>>()?;
    let groups = Arc::new(groups);
    let settings = CoreSettings { slice: setting.slice, ..CoreSettings::default() };
    let scheduler =
        |core| Scheduler::new(core, Arc::clone(&groups), Arc::clone(&board), setting.mode.policy(), settings);
    let mut cores = VirtualCores::new((0..setting.cores).map(scheduler).collect());
    let mut random = Rng::with_seed(1);
    let mut fibers = vec![0; setting.cores];
    let mut order: Vec<usize> = (0..load.groups * load.siblings).collect();
    random.shuffle(&mut order);
    for number in order {
        let (group, seat) = (ids[number % load.groups], number / load.groups);
        let core = setting.mode.placement().core(group, seat, setting.cores);
        cores.arrive(core, fibers[core], group, 0);
        fibers[core] += 1;
    }
    let mut memory = Memory::new(caches, load, setting.cores, random);
    let run_until = |cores: &mut VirtualCores, until: Duration, memory: &mut Memory| {
        while u128::from(cores.now_ns()) < until.as_nanos() {
            cores.run(64, memory)?;
        }
        Ok::<_, GroupError>(())
    };
    run_until(&mut cores, time, &mut memory)?;
    memory.counts = Counts::default();
    let begun = cores.now_ns();
    run_until(&mut cores, 2 * time, &mut memory)?;
    let elapsed = (cores.now_ns() - begun) as f64 / 1e9;
    let Counts { operations, private_misses, shared_misses } = memory.counts;
    let each = |misses: f64| misses / operations.max(1.0);
    let waits = (0..setting.cores).map(|core| cores.scheduler(core).longest_wait_to_bound());
    Ok(Simulated {
        operations_per_s: operations / elapsed,
        private_misses: each(private_misses),
        shared_misses: each(shared_misses),
        wait_to_bound: waits.fold(0.0, f64::max),
    })
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    operations: f64,
    private_misses: f64,
    shared_misses: f64,
}

/// Memory hierarchy. It is also the model that determines the fibers' runs.
struct Memory {
    caches: Caches,
    load: Load,
    private: Vec<LruCache>,
    shared: RandomEvictionCache,
    /// Pages in the TLB of each core, indexed by core.
    translated: Vec<LruCache>,
    /// Number of sampled lines in a working set.
    lines: u64,
    lines_of_page: u64,
    random: Rng,
    counts: Counts,
    /// Number of reads not yet represented by a sampled read, indexed by core.
    pending_reads: Vec<f64>,
}

impl Memory {
    fn new(caches: &Caches, load: &Load, cores: usize, random: Rng) -> Memory {
        let sampled_lines = |bytes: usize| (bytes / caches.line / SAMPLED).max(1);
        Memory {
            caches: *caches,
            load: *load,
            private: (0..cores).map(|_| LruCache::new(sampled_lines(caches.private_bytes))).collect(),
            shared: RandomEvictionCache::new(sampled_lines(caches.shared_bytes)),
            translated: (0..cores).map(|_| LruCache::new((caches.translations / SAMPLED).max(1))).collect(),
            lines_of_page: (caches.page_bytes / caches.line).max(1) as u64,
            lines: sampled_lines(load.set_bytes) as u64,
            random,
            counts: Counts::default(),
            pending_reads: vec![0.0; cores],
        }
    }

    /// Draws a random line of a working set.
    fn line(&mut self) -> u64 {
        match self.load.access {
            Access::Uniform => self.random.u64(..self.lines),
            Access::Gaussian => {
                // The mean of four uniform random numbers has a standard deviation of 0.144 of their range.
                const STRETCH: f64 = 0.1 / 0.144_337;
                let sum: u64 = (0..4).map(|_| self.random.u64(..self.lines)).sum();
                let middle = self.lines as f64 / 2.0;
                let line = middle + STRETCH * (sum as f64 / 4.0 - middle);
                (line.max(0.0) as u64).min(self.lines - 1)
            }
        }
    }

    /// Reads one sampled line of `group`'s working set; returns the time of the read in nanoseconds.
    fn read(&mut self, core: usize, group: GroupId) -> f64 {
        let (set, line) = ((group.index() as u64) << 32, self.line());
        let page = set | (line / self.lines_of_page);
        let mut walk_ns = 0.0;
        if !self.translated[core].touch(page) {
            self.translated[core].insert(page);
            walk_ns = self.caches.walk_ns;
        }
        walk_ns + self.fetch(core, set | line)
    }

    /// Reads a line whose address translation is in the TLB; returns the time of the read in nanoseconds.
    fn fetch(&mut self, core: usize, line: u64) -> f64 {
        if self.private[core].touch(line) {
            return self.caches.private_ns;
        }
        self.counts.private_misses += SAMPLED as f64;
        let was_shared = self.shared.remove(line);
        let elsewhere = !was_shared && self.private.iter().any(|other| other.holds(line));
        if let Some(evicted) = self.private[core].insert(line) {
            // A line that is still in another core's private cache is not moved to the shared cache.
            if !self.private.iter().any(|other| other.holds(evicted)) {
                self.shared.insert(evicted, &mut self.random);
            }
        }
        if was_shared {
            return self.caches.shared_ns;
        }
        if elsewhere {
            return self.caches.remote_ns;
        }
        self.counts.shared_misses += SAMPLED as f64;
        self.caches.memory_ns
    }
}

impl Model for Memory {
    fn run(&mut self, core: usize, _fiber: u32, group: GroupId, slice_ns: u64, _now_ns: u64) -> Run {
        // Runs operations until the slice is over; a sampled read represents `SAMPLED` reads.
        let reads_each = self.load.reads as f64;
        let mut ns = 0.0;
        while ns < slice_ns as f64 {
            ns += self.load.work_ns;
            self.counts.operations += 1.0;
            self.pending_reads[core] += reads_each;
            while self.pending_reads[core] >= SAMPLED as f64 {
                self.pending_reads[core] -= SAMPLED as f64;
                ns += SAMPLED as f64 * self.read(core, group);
            }
        }
        Run { ns: ns as u64, after: After::GoesOn }
    }
}

/// Cache with random eviction.
struct RandomEvictionCache {
    capacity: usize,
    at: HashMap<u64, usize>,
    lines: Vec<u64>,
}

impl RandomEvictionCache {
    fn new(capacity: usize) -> RandomEvictionCache {
        RandomEvictionCache { capacity, at: HashMap::with_capacity(capacity), lines: Vec::with_capacity(capacity) }
    }

    /// Adds a line that is not in the cache, and evicts another if the cache is full.
    fn insert(&mut self, line: u64, random: &mut Rng) {
        if self.lines.len() == self.capacity {
            let out = self.lines[random.usize(..self.capacity)];
            self.remove(out);
        }
        self.at.insert(line, self.lines.len());
        self.lines.push(line);
    }

    /// Removes a line; returns false if it is not in the cache.
    fn remove(&mut self, line: u64) -> bool {
        let Some(at) = self.at.remove(&line) else { return false };
        self.lines.swap_remove(at);
        if let Some(moved) = self.lines.get(at) {
            self.at.insert(*moved, at);
        }
        true
    }
}

/// Cache with LRU eviction.
struct LruCache {
    capacity: usize,
    at: HashMap<u64, usize>,
    /// Cached lines in a ring that is ordered by use; entry 0 is the anchor.
    ring: Vec<LruEntry>,
    free: Vec<usize>,
}

#[derive(Clone, Copy, Default)]
struct LruEntry {
    line: u64,
    before: usize,
    after: usize,
}

impl LruCache {
    fn new(capacity: usize) -> LruCache {
        LruCache { capacity, at: HashMap::with_capacity(capacity), ring: vec![LruEntry::default()], free: Vec::new() }
    }

    fn holds(&self, line: u64) -> bool {
        self.at.contains_key(&line)
    }

    /// Marks a line as used; returns false if it is not in the cache.
    fn touch(&mut self, line: u64) -> bool {
        let Some(&at) = self.at.get(&line) else { return false };
        self.unlink(at);
        self.link(at);
        true
    }

    /// Adds a line that is not in the cache; returns the evicted line, if any.
    fn insert(&mut self, line: u64) -> Option<u64> {
        let evicted = (self.at.len() == self.capacity).then(|| {
            let oldest = self.ring[0].before;
            let evicted = self.ring[oldest].line;
            self.remove(evicted);
            evicted
        });
        let at = self.free.pop().unwrap_or_else(|| {
            self.ring.push(LruEntry::default());
            self.ring.len() - 1
        });
        self.ring[at].line = line;
        self.at.insert(line, at);
        self.link(at);
        evicted
    }

    /// Removes a line; returns false if it is not in the cache.
    fn remove(&mut self, line: u64) -> bool {
        let Some(at) = self.at.remove(&line) else { return false };
        self.unlink(at);
        self.free.push(at);
        true
    }

    fn unlink(&mut self, at: usize) {
        let LruEntry { before, after, .. } = self.ring[at];
        self.ring[before].after = after;
        self.ring[after].before = before;
    }

    /// Links an entry behind the anchor, as the most recently used one.
    fn link(&mut self, at: usize) {
        let first = self.ring[0].after;
        self.ring[at].after = first;
        self.ring[at].before = 0;
        self.ring[first].before = at;
        self.ring[0].after = at;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    const CACHES: Caches = Caches {
        private_bytes: 1 << 20,
        shared_bytes: 16 << 20,
        line: 64,
        private_ns: 5.0,
        shared_ns: 20.0,
        remote_ns: 40.0,
        memory_ns: 100.0,
        page_bytes: 4096,
        translations: 1 << 20,
        walk_ns: 25.0,
    };

    fn setting(mode: Mode, slice_us: u64, limit: u32) -> Setting {
        let aggregation = Aggregation { bonus: Duration::from_secs(1), limit };
        Setting { mode, cores: 1, slice: Duration::from_micros(slice_us), aggregation }
    }

    fn run(load: Load, setting: Setting) -> Simulated {
        simulate(&CACHES, &load, &setting, Duration::from_millis(60)).unwrap()
    }

    /// All working sets fit into the private cache: every read hits the private cache.
    #[test]
    fn what_fits_the_private_cache_costs_its_reads() {
        let load =
            Load { groups: 2, siblings: 4, set_bytes: 256 << 10, reads: 16, work_ns: 20.0, access: Access::Uniform };
        let simulated = run(load, setting(Mode::Fair, 50, 16));
        assert!((simulated.operations_per_s - 1e9 / (20.0 + 16.0 * 5.0)).abs() < 1e4, "{simulated:?}");
        assert_eq!((simulated.private_misses, simulated.shared_misses), (0.0, 0.0));
    }

    /// Each set fills the private cache: a row of slices loads its set once.
    #[test]
    fn a_row_of_siblings_loads_the_set_once() {
        let load =
            Load { groups: 4, siblings: 4, set_bytes: 1 << 20, reads: 16, work_ns: 20.0, access: Access::Uniform };
        let fair = run(load, setting(Mode::Fair, 100, 16));
        let tas = run(load, setting(Mode::Tas, 100, 40));
        // A set has 16,384 lines. The 41 slices of a row, of 100 us each, contain about 40,000 operations of 16 reads.
        assert!(tas.private_misses < 1.0, "{tas:?}");
        assert!(fair.private_misses > 6.0 && fair.shared_misses == 0.0, "{fair:?}");
        assert!(tas.operations_per_s > 1.5 * fair.operations_per_s, "{tas:?} {fair:?}");
    }

    /// With normally distributed reads, the lines in the middle of a set stay in the caches.
    #[test]
    fn what_is_read_more_often_stays() {
        let of = |access| {
            let load = Load { groups: 4, siblings: 4, set_bytes: 4 << 20, reads: 16, work_ns: 20.0, access };
            run(load, setting(Mode::Tas, 100, 40)).private_misses
        };
        assert!(of(Access::Gaussian) < 0.7 * of(Access::Uniform));
    }

    #[test]
    fn what_exceeds_the_shared_cache_comes_from_memory() {
        let load =
            Load { groups: 8, siblings: 2, set_bytes: 8 << 20, reads: 16, work_ns: 20.0, access: Access::Uniform };
        let simulated = run(load, setting(Mode::Fair, 50, 16));
        assert!(simulated.shared_misses > 8.0, "{simulated:?}");
        assert!(simulated.wait_to_bound <= 1.0);
    }

    /// Each set has as many pages as a core has TLB entries: the first reads of a row miss the TLB, and few later ones
    /// do.
    #[test]
    fn a_row_of_siblings_walks_once_for_each_page() {
        let caches = Caches { translations: 256, private_bytes: 64 << 20, ..CACHES };
        let load =
            Load { groups: 4, siblings: 4, set_bytes: 1 << 20, reads: 16, work_ns: 20.0, access: Access::Uniform };
        let run = |caches: &Caches, mode| {
            simulate(caches, &load, &setting(mode, 50, 40), Duration::from_millis(60)).unwrap().operations_per_s
        };
        // An operation takes 100 ns without TLB misses, and 500 ns if each of its reads misses.
        let (fair, tas) = (run(&caches, Mode::Fair), run(&caches, Mode::Tas));
        assert!(tas > 0.95e7 && fair < 0.92 * tas, "{tas} {fair}");
        let one_page = run(&Caches { translations: 1, ..caches }, Mode::Tas);
        assert!(one_page < 0.22e7, "{one_page}");
    }

    /// Two cores that read one set at the same time share the contents of the shared cache.
    #[test]
    fn siblings_on_two_cores_share_the_shared_cache() {
        let load =
            Load { groups: 4, siblings: 8, set_bytes: 12 << 20, reads: 16, work_ns: 20.0, access: Access::Uniform };
        let two = |mode| run(load, Setting { cores: 2, ..setting(mode, 500, 16) });
        let (tas, itas) = (two(Mode::Tas), two(Mode::Itas));
        assert!(itas.shared_misses < 0.9 * tas.shared_misses, "{itas:?} {tas:?}");
    }

    /// A cyclic read of twice as many lines as the cache holds: random eviction keeps a fifth of the lines, LRU
    /// eviction none.
    #[test]
    fn the_shared_cache_keeps_a_part_of_what_exceeds_it() {
        const CAPACITY: u64 = 1_000;
        let (mut any, mut oldest, mut random) =
            (RandomEvictionCache::new(CAPACITY as usize), LruCache::new(CAPACITY as usize), Rng::with_seed(7));
        let (mut any_hits, mut oldest_hits) = (0, 0);
        for line in (0..10).flat_map(|_| 0..2 * CAPACITY) {
            match any.at.contains_key(&line) {
                true => any_hits += 1,
                false => any.insert(line, &mut random),
            }
            match oldest.touch(line) {
                true => oldest_hits += 1,
                false => drop(oldest.insert(line)),
            }
        }
        assert!((3_000..5_000).contains(&any_hits), "{any_hits} of 20,000");
        assert_eq!(oldest_hits, 0);
    }

    proptest! {
        /// Compares the cache with a set.
        #[test]
        fn a_cache_that_gives_up_any_line_has_the_others(steps in prop::collection::vec((0u64..12, any::<bool>()), 1..200)) {
            let (mut cache, mut set) = (RandomEvictionCache::new(5), HashSet::<u64>::new());
            let mut random = Rng::with_seed(7);
            for (line, goes) in steps {
                if goes {
                    prop_assert_eq!(cache.remove(line), set.remove(&line));
                } else if set.insert(line) {
                    cache.insert(line, &mut random);
                    if set.len() > 5 {
                        let gone: Vec<u64> = set.iter().copied().filter(|line| !cache.at.contains_key(line)).collect();
                        prop_assert!(gone.len() == 1 && gone[0] != line, "{:?}", gone);
                        set.remove(&gone[0]);
                    }
                }
                let lines: HashSet<u64> = cache.lines.iter().copied().collect();
                prop_assert_eq!(&lines, &set);
                prop_assert!(cache.at.len() == lines.len() && cache.at.iter().all(|(line, at)| cache.lines[*at] == *line));
            }
        }

        /// Compares the cache with a list in the order of use.
        #[test]
        fn the_cache_gives_up_what_was_not_used_for_longest(steps in prop::collection::vec((0u64..12, 0u8..3), 1..200)) {
            let (mut cache, mut list) = (LruCache::new(5), Vec::<u64>::new());
            for (line, step) in steps {
                let at = list.iter().position(|known| *known == line);
                match step {
                    0 => {
                        prop_assert_eq!(cache.remove(line), at.is_some());
                        at.map(|at| list.remove(at));
                    }
                    _ if at.is_some() => {
                        prop_assert!(cache.touch(line));
                        at.map(|at| list.remove(at));
                        list.push(line);
                    }
                    _ => {
                        prop_assert!(!cache.touch(line));
                        let evicted = (list.len() == 5).then(|| list.remove(0));
                        prop_assert_eq!(cache.insert(line), evicted);
                        list.push(line);
                    }
                }
                prop_assert!(list.iter().all(|line| cache.holds(*line)) && cache.at.len() == list.len());
            }
        }
    }
}
