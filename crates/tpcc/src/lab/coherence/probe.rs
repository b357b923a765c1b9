//! What a line from another core costs on this machine.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use storage::LatchKind;
use storage::measure::page_reads_per_second;

/// Changes between two looks at whether time is up.
const BETWEEN_LOOKS: u64 = 64;

/// Nanoseconds from one atomic change of a word by a thread to its next one, while `threads` threads do nothing but change
/// it. With two, each waits for the line to come back: it is away for one transfer there and back, in each of which the
/// other's request has half of the way behind it, so this is what a transfer takes.
pub(crate) fn change_ns(threads: u32, time: Duration) -> f64 {
    let (word, is_over, begin) =
        (CachePadded::new(AtomicU64::new(0)), AtomicBool::new(false), Barrier::new(threads as usize));
    let (word, is_over, begin) = (&word, &is_over, &begin);
    let change = move || {
        begin.wait();
        let (start, mut changes) = (Instant::now(), 0_u64);
        loop {
            for _ in 0..BETWEEN_LOOKS {
                black_box(word.fetch_add(1, Ordering::SeqCst));
            }
            changes += BETWEEN_LOOKS;
            let elapsed = start.elapsed();
            if is_over.load(Ordering::Relaxed) || elapsed >= time {
                is_over.store(true, Ordering::Relaxed);
                return elapsed.as_secs_f64() * 1e9 / changes as f64;
            }
        }
    };
    together(threads, change).into_iter().sum::<f64>() / f64::from(threads)
}

/// Nanoseconds of a read under a kind of latch by each of so many threads, each of which has a page of its own.
pub(crate) fn own_page_read_ns(kind: LatchKind, threads: u32, time: Duration) -> f64 {
    let rates = together(threads, || page_reads_per_second(kind, 1, time));
    1e9 * f64::from(threads) / rates.into_iter().sum::<f64>()
}

/// Nanoseconds of a read by each of so many threads that all read one page.
pub(crate) fn one_page_read_ns(kind: LatchKind, threads: u32, time: Duration) -> f64 {
    1e9 * f64::from(threads) / page_reads_per_second(kind, threads as usize, time)
}

fn together(threads: u32, work: impl Fn() -> f64 + Sync) -> Vec<f64> {
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_take_some_time() {
        let time = Duration::from_millis(2);
        for threads in [1, 2] {
            assert!(change_ns(threads, time) > 0.1);
            assert!(own_page_read_ns(LatchKind::Super, threads, time) > 0.1);
            assert!(one_page_read_ns(LatchKind::Plain, threads, time) > 0.1);
        }
    }
}
