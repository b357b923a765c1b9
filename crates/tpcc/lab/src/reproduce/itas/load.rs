//! Loads that only access a working set: the memory program of SysBench, as changed by the paper, and random reads.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use itas::auto::{Mode, TunerSettings};
use itas::{Aggregation, GroupId, Progress, Runtime};

use tpcc_core::engines::storage::fibers;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::threads::{self, SpawnError};

/// Size of a cache line, in bytes.
pub(super) const LINE: usize = 64;
/// Number of reads of an operation that reads at random.
pub(super) const READS: usize = 256;

/// Access pattern of an operation on its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessPattern {
    /// One pass over the block that reads and writes a word of each line; the pattern of the paper.
    Writes,
    /// [`READS`] reads of a cyclic walk that visits every line. Each read gives the address of the next read.
    Reads,
    /// [`READS`] reads at random places, each of which depends on the value of the previous read.
    RandomReads,
}

/// Parameters of a load: groups of siblings, and their blocks of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryLoad {
    pub(super) groups: usize,
    pub(super) siblings: usize,
    pub(super) block_bytes: usize,
    /// True if siblings share their block (global mode); otherwise each has its own (local mode).
    pub(super) shared: bool,
    pub(super) pattern: AccessPattern,
}

/// Memory of a fiber or of siblings. A word in each line gives the next line of a random cycle through all lines.
struct Block {
    lines: Box<[Line]>,
}

#[repr(align(64))]
struct Line {
    next: AtomicU32,
    word: AtomicU64,
}

impl Block {
    /// Creates a block of `bytes` bytes. One random cycle leads through all its lines (Sattolo's shuffle).
    fn new(bytes: usize, random: &mut Random) -> Block {
        let n = (bytes / LINE).max(1);
        let mut next: Vec<u32> = (0..n as u32).collect();
        for last in (1..n).rev() {
            next.swap(last, random.in_range(0, last as u32 - 1) as usize);
        }
        let line = |next| Line { next: AtomicU32::new(next), word: AtomicU64::new(0) };
        Block { lines: next.into_iter().map(line).collect() }
    }

    /// Executes one operation, starting at place `at`. `share` is the share of the lines that reads use.
    fn run_operation(&self, pattern: AccessPattern, at: &mut u64, share: f64) {
        match pattern {
            AccessPattern::Writes => {
                let mut sum = 0;
                for line in &self.lines {
                    sum += line.word.load(Ordering::Relaxed);
                    line.word.store(sum, Ordering::Relaxed);
                }
                black_box(sum);
            }
            AccessPattern::Reads => {
                let last = ((self.lines.len() as f64 * share) as u32).max(1);
                for _ in 0..READS {
                    let next = self.lines[*at as usize].next.load(Ordering::Relaxed);
                    // If reads use only a part of the lines, the walk is folded into this part. The remainder depends on the
                    // value that was read.
                    *at = u64::from(if share < 1.0 { next % last } else { next });
                }
            }
            AccessPattern::RandomReads => {
                let last = (self.lines.len() as f64 * share).max(1.0) as u64;
                for _ in 0..READS {
                    let place = (u128::from(*at) * u128::from(last)) >> 64;
                    let read = self.lines[place as usize].next.load(Ordering::Relaxed);
                    *at = next_random(*at, read);
                }
            }
        }
    }
}

/// Scheduling mode of a load.
#[derive(Clone, Copy, Debug)]
pub(super) enum SchedulingMode {
    /// A fixed mode, with the same parameters for all groups.
    Fixed(Mode, Aggregation),
    /// TAS with parameters that are tuned while the load runs.
    Tuned(TunerSettings),
}

/// A load with its memory, which is run under several scheduling modes in turn.
pub(super) struct Memory {
    load: MemoryLoad,
    blocks: Vec<Block>,
    runs: u64,
    /// Share of each block that reads use, in thousandths.
    pub(super) share: Arc<AtomicUsize>,
}

/// Result of a run.
pub(super) struct MemoryRun {
    pub(super) operations_per_s: f64,
    /// Largest ratio of a fiber's wait to its proved bound.
    pub(super) wait_to_bound: f64,
}

/// Runtime and groups of a load under one scheduling mode, kept between runs.
pub(super) struct ScheduledLoad {
    runtime: Runtime,
    groups: Vec<GroupId>,
}

impl ScheduledLoad {
    pub(super) fn new(
        load: &MemoryLoad,
        scheduling: SchedulingMode,
        slice: Duration,
        workers: usize,
    ) -> Result<ScheduledLoad, Error> {
        let builder = Runtime::builder().workers(workers).fibers(load.groups * load.siblings).slice(slice).pin(true);
        let (builder, aggregation) = match scheduling {
            SchedulingMode::Fixed(mode, aggregation) => {
                (builder.policies(move |_| mode.policy()).placement(mode.placement()), aggregation)
            }
            SchedulingMode::Tuned(settings) => {
                (builder.policy(itas::policy::Tas).tuned(settings), Aggregation::default())
            }
        };
        let runtime = fibers::runtime(builder).map_err(|error| Error::failed(error.to_string()))?;
        let groups = (0..load.groups)
            .map(|n| runtime.groups().add(&format!("group {n}"), itas::DEFAULT_WEIGHT, aggregation))
            .collect::<Result<_, _>>()
            .map_err(|error| Error::failed(error.to_string()))?;
        Ok(ScheduledLoad { runtime, groups })
    }

    /// Returns a function that reads the parameters of the first group. Another thread can call it while the load runs.
    pub(super) fn parameters(&self) -> impl Fn() -> Option<Aggregation> + Send + use<> {
        let (groups, first) = (self.runtime.groups().clone(), self.groups[0]);
        move || groups.aggregation(first).ok()
    }
}

impl Memory {
    pub(super) fn new(load: MemoryLoad, seed: u64) -> Memory {
        let n = if load.shared { load.groups } else { load.groups * load.siblings };
        let mut random = Random::stream(seed, load.block_bytes as u64);
        let blocks = (0..n).map(|_| Block::new(load.block_bytes, &mut random)).collect();
        Memory { load, blocks, runs: 0, share: Arc::new(AtomicUsize::new(1000)) }
    }

    /// Runs all fibers for `length`, after a warm-up of a fifth of `length`. After the warm-up, this thread calls
    /// `meanwhile` with `length`; the call must return when that time is over.
    pub(super) fn run(
        &mut self,
        scheduled: &mut ScheduledLoad,
        length: Duration,
        meanwhile: impl FnOnce(Duration),
    ) -> Result<MemoryRun, Error> {
        if interrupt::requested() {
            return Err(Error::failed("reproduce: interrupted"));
        }
        self.runs += 1;
        let Memory { load, blocks, runs, share } = &*self;
        let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        let fibers = load.groups * load.siblings;
        let counts: Vec<AtomicU64> = (0..fibers * LINE / 8).map(|_| AtomicU64::new(0)).collect();
        let total = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        let mut order: Vec<usize> = (0..fibers).collect();
        Random::stream(*runs, 7).shuffle(&mut order);
        let groups = &scheduled.groups;
        let ran = scheduled.runtime.run(|spawner| {
            for &fiber in &order {
                let group = fiber % load.groups;
                let block = &blocks[if load.shared { group } else { fiber }];
                // Each count is on its own cache line.
                let (count, stop) = (&counts[fiber * LINE / 8], &stop);
                let mut at = match load.pattern {
                    AccessPattern::RandomReads => (fiber as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d),
                    AccessPattern::Reads | AccessPattern::Writes => (fiber * 7919 % block.lines.len()) as u64,
                };
                let work = move || {
                    block.run_operation(load.pattern, &mut at, share.load(Ordering::Relaxed) as f64 / 1000.0);
                    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) { Progress::Done } else { Progress::More }
                };
                if spawner.spawn_work(groups[group], work).is_err() {
                    break;
                }
            }
            std::thread::sleep(length / 5);
            let (before, begun) = (total(), Instant::now());
            meanwhile(length);
            let (after, elapsed) = (total(), begun.elapsed());
            stop.store(true, Ordering::Relaxed);
            operations.store(after - before, Ordering::Relaxed);
            elapsed
        });
        let (elapsed, report) = ran.map_err(|error| Error::failed(error.to_string()))?;
        Ok(MemoryRun {
            operations_per_s: operations.into_inner() as f64 / elapsed.as_secs_f64(),
            wait_to_bound: report.longest_wait_to_bound(),
        })
    }
}

/// Measures a read that depends on the previous read, in a block of `bytes` bytes, in nanoseconds.
pub(super) fn read_ns(bytes: usize) -> f64 {
    let block = Block::new(bytes, &mut Random::stream(3, bytes as u64));
    reads_ns(&block, AccessPattern::Reads, 2 * bytes / LINE)
}

/// Like [`read_ns`], for reads at random places.
pub(super) fn random_read_ns(bytes: usize) -> f64 {
    let block = Block::new(bytes, &mut Random::stream(3, bytes as u64));
    reads_ns(&block, AccessPattern::RandomReads, 2 * bytes / LINE)
}

/// Number of address translations that a core holds, and cost of other translations.
pub(super) struct Translations {
    /// Number of pages whose translations a core holds.
    pub(super) pages: usize,
    /// Additional nanoseconds of a read of a page whose translation the core does not hold.
    pub(super) walk_ns: f64,
}

/// Size of a page of the smallest kind, in bytes.
pub(super) const PAGE: usize = 4096;

/// Measures translations. Compares random reads of one line in each of a number of pages with reads of the same number of
/// adjacent lines.
///
/// Among reads of `n` pages, all need a page walk except reads of the pages that the core holds. Two numbers of pages
/// therefore give the cost of a walk and the number of pages held.
pub(super) fn translations() -> Translations {
    const FEW: usize = 256;
    const MANY: usize = 4_096;
    let at_hand_ns = pages_ns(FEW);
    let [many_ns, twice_ns] = [MANY, 2 * MANY].map(|pages| (pages_ns(pages) - at_hand_ns).max(0.0));
    let walk_ns = 2.0 * twice_ns - many_ns;
    if walk_ns < 1.0 {
        // The pages are of a larger kind, or walks cost nothing.
        return Translations { pages: 2 * MANY, walk_ns: 0.0 };
    }
    let pages = MANY as f64 * (1.0 - many_ns / walk_ns);
    Translations { pages: (pages as usize).clamp(FEW, MANY), walk_ns }
}

/// Returns the additional nanoseconds of a read of one line of each of `pages` pages, compared with a read of the same
/// number of adjacent lines.
fn pages_ns(pages: usize) -> f64 {
    const LINES_OF_PAGE: usize = PAGE / LINE;
    let block = Block::new(pages * PAGE, &mut Random::stream(11, pages as u64));
    // Each page has its line at another place, so that the lines of all pages fill a cache evenly.
    let apart = |n: usize| n * LINES_OF_PAGE + n * 7 % LINES_OF_PAGE;
    let ns = |place: &dyn Fn(usize) -> usize| {
        let places: Vec<u32> = (0..pages).map(|n| place(n) as u32).collect();
        median_ns(4 * pages, 1, |at| {
            let n = (u128::from(*at) * pages as u128) >> 64;
            let read = block.lines[places[n as usize] as usize].next.load(Ordering::Relaxed);
            *at = next_random(*at, read);
        })
    };
    ns(&apart) - ns(&|n| n)
}

/// Returns the next random number, which depends on the value that was read.
#[inline]
fn next_random(at: u64, read: u32) -> u64 {
    (at ^ u64::from(read)).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)
}

/// Measures a read of a block, after a warm-up of `warm` reads, in nanoseconds.
fn reads_ns(block: &Block, pattern: AccessPattern, warm: usize) -> f64 {
    median_ns(warm.clamp(200 * READS, 4_000 * READS), READS, |at| block.run_operation(pattern, at, 1.0))
}

/// Measures a read in nanoseconds: median of five measurements of `reads` reads each, after a warm-up of `reads` reads.
/// `operation` makes `of_operation` reads.
fn median_ns(reads: usize, of_operation: usize, mut operation: impl FnMut(&mut u64)) -> f64 {
    let (mut at, operations) = (0, (reads / of_operation).max(1));
    let mut repeat = || (0..operations).for_each(|_| operation(&mut at));
    repeat();
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let begun = Instant::now();
            repeat();
            begun.elapsed().as_secs_f64() * 1e9 / (operations * of_operation) as f64
        })
        .collect();
    black_box(at);
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Measures a read of a line that only another core's private cache holds, in nanoseconds. Another thread reads blocks from
/// memory, and this thread reads each block after it. There are so many blocks that a shared cache has lost a block when the
/// other thread reads it again.
///
/// # Errors
/// If there is no second thread.
pub(super) fn remote_read_ns() -> Result<f64, SpawnError> {
    const BLOCKS: usize = 384;
    const BYTES: usize = 256 << 10;
    const OPERATIONS: usize = BYTES / LINE / READS;
    let blocks: Vec<Block> = (0..BLOCKS).map(|n| Block::new(BYTES, &mut Random::stream(5, n as u64))).collect();
    let through = |block: &Block| {
        let mut at = 0;
        (0..OPERATIONS).for_each(|_| block.run_operation(AccessPattern::Reads, &mut at, 1.0));
        black_box(at);
    };
    // Number of blocks that the other thread has read, and number that this thread has read.
    let (theirs, ours) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wait = |count: &AtomicUsize, until: usize| {
        while count.load(Ordering::Acquire) < until {
            std::hint::spin_loop();
        }
    };
    let mut times: Vec<f64> = std::thread::scope(|scope| {
        threads::spawn(scope, "reader", || {
            for (n, block) in blocks.iter().enumerate() {
                wait(&ours, n);
                through(block);
                theirs.store(n + 1, Ordering::Release);
            }
        })?;
        let times = blocks.iter().enumerate().map(|(n, block)| {
            wait(&theirs, n + 1);
            let begun = Instant::now();
            through(block);
            let ns = begun.elapsed().as_secs_f64() * 1e9 / (OPERATIONS * READS) as f64;
            ours.store(n + 1, Ordering::Release);
            ns
        });
        Ok::<_, SpawnError>(times.collect())
    })?;
    // If a thread was preempted, the lines of the other one are gone: such rounds are left out.
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 8])
}
