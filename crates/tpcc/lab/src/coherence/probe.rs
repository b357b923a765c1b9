//! Measures the cost of a cache line from another core on this machine.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::time::{ClockId, clock_gettime};
use storage::LatchKind;
use storage::measure::MeasuredPage;

use tpcc_core::driver::hardware::cores;
use tpcc_core::workload::threads;

/// Number of steps between two checks of the clock.
const STEPS_PER_CHECK: u64 = 64;

/// Maximum share of the time that a thread may be off its core. A measurement with a larger share is discarded.
const MAX_OFF_CORE_SHARE: f64 = 0.05;

/// Rate of changes of one shared word by threads. Each thread runs on its own core, without other work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes {
    /// Mean nanoseconds between two changes by the same thread.
    pub ns: f64,
    /// Mean number of consecutive changes by a thread before another thread changes the word.
    pub in_a_row: f64,
}

/// Measures atomic changes of one word by `threads` threads for `time`. Returns `None` in the same cases as
/// [`one_page_read_ns`].
pub(crate) fn changes(threads: u32, time: Duration) -> Option<Changes> {
    changes_of(threads, time, |word| word.fetch_add(1, Ordering::SeqCst))
}

/// Like [`changes`], but each thread reads the word before it changes it, as an acquisition of a latch does.
pub(crate) fn changes_after_reads(threads: u32, time: Duration) -> Option<Changes> {
    changes_of(threads, time, |word| match word.load(Ordering::Relaxed) {
        u64::MAX => u64::MAX,
        _ => word.fetch_add(1, Ordering::SeqCst),
    })
}

fn changes_of(threads: u32, time: Duration, change: impl Fn(&AtomicU64) -> u64 + Sync) -> Option<Changes> {
    #[derive(Clone, Copy, Default)]
    struct ChangeCounter {
        last: u64,
        steps: u64,
        /// Number of runs of consecutive changes.
        runs: u64,
    }
    let word = CachePadded::new(AtomicU64::new(0));
    let of_thread = |_| ChangeCounter { last: u64::MAX, ..ChangeCounter::default() };
    let (ns, counters) = steps_ns(threads, time, of_thread, |counter: &mut ChangeCounter| {
        let before = black_box(change(&word));
        counter.runs += u64::from(before != counter.last.wrapping_add(1));
        counter.steps += 1;
        counter.last = before;
    })?;
    let steps: u64 = counters.iter().map(|counter| counter.steps).sum();
    let runs: u64 = counters.iter().map(|counter| counter.runs).sum();
    Some(Changes { ns, in_a_row: steps as f64 / runs.max(1) as f64 })
}

/// Returns the nanoseconds from the moment at which a thread wakes a sleeping thread on another core until that thread runs.
/// Returns `None` if there is one core.
pub(crate) fn wake_ns(rounds: u32) -> Option<f64> {
    let cores = cores::allowed();
    let (turn, begin) = (AtomicU32::new(0), Barrier::new(2));
    let peers: [OnceLock<Thread>; 2] = Default::default();
    let play = |own: u32| {
        let is_pinned = cores.get(own as usize).is_some_and(|&core| cores::pin_to(core).is_ok());
        let _ = peers[own as usize].set(std::thread::current());
        begin.wait();
        let start = Instant::now();
        for round in 0..rounds {
            while turn.load(Ordering::Acquire) != 2 * round + own {
                std::thread::park();
            }
            turn.store(2 * round + own + 1, Ordering::Release);
            if let Some(peer) = peers[1 - own as usize].get() {
                peer.unpark();
            }
        }
        is_pinned.then(|| start.elapsed().as_secs_f64() * 1e9 / f64::from(2 * rounds))
    };
    let play = &play;
    let each = threads::run_each("probe", (0..2).map(|own| move || play(own))).ok()?;
    let ns: Vec<f64> = each.into_iter().collect::<Option<_>>()?;
    ns.into_iter().reduce(f64::max)
}

/// Returns the mean nanoseconds per page read under a kind of latch by `threads` threads, each of which has its own page.
/// Returns `None` in the same cases as [`one_page_read_ns`].
pub(crate) fn own_page_read_ns(kind: LatchKind, threads: u32, time: Duration) -> Option<f64> {
    let pages: Vec<MeasuredPage> = (0..threads).map(|_| MeasuredPage::new(kind)).collect();
    step_ns(threads, time, |thread| {
        black_box(pages[thread].read());
    })
}

/// Returns the mean nanoseconds per page read by `threads` threads that all read one page, each on its own core. Returns
/// `None` if there are fewer cores than threads, or if another program ran on one of the cores.
pub(crate) fn one_page_read_ns(kind: LatchKind, threads: u32, time: Duration) -> Option<f64> {
    let page = Box::new(MeasuredPage::new(kind));
    step_ns(threads, time, |_| {
        black_box(page.read());
    })
}

/// Runs `step` repeatedly on all threads for `time`. Returns the mean duration of a step in nanoseconds.
fn step_ns(threads: u32, time: Duration, step: impl Fn(usize) + Sync) -> Option<f64> {
    steps_ns(threads, time, |thread| thread, |thread| step(*thread)).map(|(ns, _)| ns)
}

/// Like [`step_ns`], with a value of type `T` for each thread. Also returns these values.
fn steps_ns<T: Send>(
    threads: u32,
    time: Duration,
    of_thread: impl Fn(usize) -> T + Sync,
    step: impl Fn(&mut T) + Sync,
) -> Option<(f64, Vec<T>)> {
    let cores = cores::allowed();
    let (begin, is_over) = (Barrier::new(threads as usize), AtomicBool::new(false));
    let steps = |thread: usize| {
        let is_pinned = cores.get(thread).is_some_and(|&core| cores::pin_to(core).is_ok());
        let mut own = of_thread(thread);
        begin.wait();
        let (start, used, mut steps) = (Instant::now(), processor_time(), 0_u64);
        let elapsed = loop {
            (0..STEPS_PER_CHECK).for_each(|_| step(&mut own));
            steps += STEPS_PER_CHECK;
            let elapsed = start.elapsed();
            // The first thread past `time` stops the others, so that no thread runs alone at the end.
            if is_over.load(Ordering::Relaxed) || elapsed >= time {
                is_over.store(true, Ordering::Relaxed);
                break elapsed;
            }
        };
        let was_there = (processor_time() - used).as_secs_f64() >= (1.0 - MAX_OFF_CORE_SHARE) * elapsed.as_secs_f64();
        (is_pinned && was_there).then(|| (elapsed.as_secs_f64() * 1e9 / steps as f64, own))
    };
    let steps = &steps;
    let each = threads::run_each("probe", (0..threads as usize).map(|thread| move || steps(thread))).ok()?;
    let (ns, own): (Vec<f64>, Vec<T>) = each.into_iter().collect::<Option<Vec<_>>>()?.into_iter().unzip();
    Some((ns.iter().sum::<f64>() / f64::from(threads), own))
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_takes_some_time() {
        let time = Duration::from_millis(2);
        for threads in [1, 2] {
            let found = [
                changes(threads, time).map(|changes| changes.ns),
                changes_after_reads(threads, time).map(|changes| changes.in_a_row),
                own_page_read_ns(LatchKind::Super, threads, time),
                one_page_read_ns(LatchKind::Plain, threads, time),
            ];
            // The result is `None` if other programs use the cores.
            assert!(found.into_iter().flatten().all(|ns| ns > 0.1), "{found:?}");
        }
    }

    #[test]
    fn all_changes_of_a_thread_alone_are_in_a_row() {
        for alone in [changes(1, Duration::from_millis(2)), changes_after_reads(1, Duration::from_millis(2))] {
            assert!(alone.is_none_or(|alone| alone.in_a_row >= STEPS_PER_CHECK as f64), "{alone:?}");
        }
    }

    #[test]
    fn a_wake_up_takes_longer_than_a_transfer() {
        assert!(wake_ns(20).is_none_or(|ns| ns > 100.0));
    }

    #[test]
    fn more_threads_than_cores_find_nothing() {
        let threads = cores::allowed().len() as u32 + 1;
        assert!(changes(threads, Duration::from_millis(1)).is_none());
    }
}
