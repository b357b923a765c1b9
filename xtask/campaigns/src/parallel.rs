//! Work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Calls `f` for all items on `threads` threads. Returns the results in the order in which the calls ended.
pub(crate) fn in_parallel<T: Sync, R: Send>(threads: usize, all: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = f(item);
                    done.lock().push(result);
                }
            });
        }
    });
    done.into_inner()
}
