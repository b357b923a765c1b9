//! What a line from another core costs on this machine.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::time::{ClockId, clock_gettime};
use storage::LatchKind;
use storage::measure::MeasuredPage;

use crate::driver::hardware::cores;

/// Steps between two looks at whether time is up.
const BETWEEN_LOOKS: u64 = 64;

/// A thread whose core was given to another program for more than this share of the time says nothing about lines.
const MOST_AWAY: f64 = 0.05;

/// Nanoseconds from one atomic change of a word by a thread to its next one, while `threads` threads on cores of their own do
/// nothing but change it. With two, each waits for the line to come back: it is away for one transfer there and back, in each
/// of which the other's request has half of the way behind it, so this is what a transfer takes. None as for
/// [`one_page_read_ns`].
pub(crate) fn change_ns(threads: u32, time: Duration) -> Option<f64> {
    let word = CachePadded::new(AtomicU64::new(0));
    step_ns(threads, time, |_| {
        black_box(word.fetch_add(1, Ordering::SeqCst));
    })
}

/// As [`change_ns`], if each thread reads the word before it changes it, as one does that takes a latch. How much longer this
/// takes is what it costs to own a line that was read first: a request more, or nothing where the processor asks for it as
/// its own when a change follows closely.
pub(crate) fn read_and_change_ns(threads: u32, time: Duration) -> Option<f64> {
    let word = CachePadded::new(AtomicU64::new(0));
    step_ns(threads, time, |_| {
        if word.load(Ordering::Relaxed) != u64::MAX {
            black_box(word.fetch_add(1, Ordering::SeqCst));
        }
    })
}

/// Nanoseconds of a read under a kind of latch by each of so many threads, each of which has a page of its own. None as for
/// [`one_page_read_ns`].
pub(crate) fn own_page_read_ns(kind: LatchKind, threads: u32, time: Duration) -> Option<f64> {
    let pages: Vec<MeasuredPage> = (0..threads).map(|_| MeasuredPage::new(kind)).collect();
    step_ns(threads, time, |thread| {
        black_box(pages[thread].read());
    })
}

/// Nanoseconds of a read by each of so many threads that all read one page, each on a core of its own. None if there are fewer
/// cores, or if another program ran on one of them.
pub(crate) fn one_page_read_ns(kind: LatchKind, threads: u32, time: Duration) -> Option<f64> {
    let page = Box::new(MeasuredPage::new(kind));
    step_ns(threads, time, |_| {
        black_box(page.read());
    })
}

/// Nanoseconds of a step of each thread, when all of them take steps for `time`.
fn step_ns(threads: u32, time: Duration, step: impl Fn(usize) + Sync) -> Option<f64> {
    let cores = cores::allowed();
    let (begin, is_over) = (Barrier::new(threads as usize), AtomicBool::new(false));
    let steps = |thread: usize| {
        let is_pinned = cores.get(thread).is_some_and(|&core| cores::pin_to(core).is_ok());
        begin.wait();
        let (start, used, mut steps) = (Instant::now(), processor_time(), 0_u64);
        let elapsed = loop {
            (0..BETWEEN_LOOKS).for_each(|_| step(thread));
            steps += BETWEEN_LOOKS;
            let elapsed = start.elapsed();
            // The threads end together: none is alone at the end.
            if is_over.load(Ordering::Relaxed) || elapsed >= time {
                is_over.store(true, Ordering::Relaxed);
                break elapsed;
            }
        };
        let was_there = (processor_time() - used).as_secs_f64() >= (1.0 - MOST_AWAY) * elapsed.as_secs_f64();
        (is_pinned && was_there).then(|| elapsed.as_secs_f64() * 1e9 / steps as f64)
    };
    let steps = &steps;
    let each: Vec<Option<f64>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads as usize).map(|thread| scope.spawn(move || steps(thread))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let all: f64 = each.into_iter().sum::<Option<f64>>()?;
    Some(all / f64::from(threads))
}

/// Of this thread.
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
                change_ns(threads, time),
                read_and_change_ns(threads, time),
                own_page_read_ns(LatchKind::Super, threads, time),
                one_page_read_ns(LatchKind::Plain, threads, time),
            ];
            // Where other programs run, nothing is found.
            assert!(found.into_iter().flatten().all(|ns| ns > 0.1), "{found:?}");
        }
    }

    #[test]
    fn more_threads_than_cores_find_nothing() {
        let threads = cores::allowed().len() as u32 + 1;
        assert_eq!(change_ns(threads, Duration::from_millis(1)), None);
    }
}
