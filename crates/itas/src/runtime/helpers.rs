//! Helper threads for work that blocks, so that no worker waits in the kernel.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use sched_steps::fiber;

/// Blocking call to be made by a helper.
type Call = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Channel to the helpers of this thread's worker.
    static HELPERS: RefCell<Option<Sender<Call>>> = const { RefCell::new(None) };
}

/// Guard of a connection: until it is dropped, blocking calls of this thread's fibers are sent to the helpers.
pub(super) struct HelperConnection(());

impl HelperConnection {
    pub(super) fn to(helpers: &Sender<Call>) -> HelperConnection {
        HELPERS.with(|mine| *mine.borrow_mut() = Some(helpers.clone()));
        HelperConnection(())
    }
}

impl Drop for HelperConnection {
    fn drop(&mut self) {
        HELPERS.with(|mine| *mine.borrow_mut() = None);
    }
}

/// Creates the channel by which blocking calls reach the helpers.
pub(super) fn channel() -> (Sender<Call>, Receiver<Call>) {
    crossbeam_channel::unbounded()
}

/// The helper threads of a run: one at first, and one more whenever the last idle helper receives a call, up to a maximum.
/// Therefore calls that wait for each other make progress while fewer calls than the maximum are in progress.
pub(super) struct Helpers {
    waiting: Receiver<Call>,
    max_threads: usize,
    threads: AtomicUsize,
    /// Number of helpers that are not executing a call.
    idle: AtomicUsize,
}

impl Helpers {
    pub(super) fn new(waiting: Receiver<Call>, max_threads: usize) -> Helpers {
        Helpers { waiting, max_threads, threads: AtomicUsize::new(0), idle: AtomicUsize::new(0) }
    }

    /// Starts one more helper, unless the maximum number is reached.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn grow<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> std::io::Result<()> {
        let more = |threads: usize| (threads < self.max_threads).then_some(threads + 1);
        let Ok(number) = self.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) else { return Ok(()) };
        self.idle.fetch_add(1, Ordering::AcqRel);
        let started = std::thread::Builder::new()
            .name(format!("itas-helper-{number}"))
            .spawn_scoped(scope, move || self.run_helper(scope));
        started.map(drop).inspect_err(|_| {
            self.idle.fetch_sub(1, Ordering::AcqRel);
            self.threads.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Runs a helper: it makes the received calls until all senders are dropped.
    fn run_helper<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for call in &self.waiting {
            if self.idle.fetch_sub(1, Ordering::AcqRel) == 1 {
                // If no thread can be started, further calls wait until this call ends; the next call tries again to
                // start a thread.
                let _ = self.grow(scope);
            }
            // If the waiting fiber is gone, the result is dropped here, and its destructor may panic.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
                discard(payload);
            }
            self.idle.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Drops a panic payload that is not reported. The destructor of the payload may panic in turn.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Leaks the payload of that panic, so that a chain of panicking payloads ends.
        std::mem::forget(next);
    }
}

/// Runs `call`, which may block its thread (a file, a socket, a lock of the standard library), on a helper thread. The
/// fiber waits, and its worker continues with other fibers. Outside of a runtime `call` runs on the calling thread.
///
/// Helpers are started on demand, up to [`Builder::helpers`](crate::Builder::helpers). Calls beyond this number wait
/// until a helper is free.
///
/// If the fiber is cancelled meanwhile, the fiber unwinds; the call still runs to its end, and its result is dropped.
///
/// # Panics
/// Resumes a panic of `call`.
pub fn blocking<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    let helpers = HELPERS.with(|mine| mine.borrow().clone());
    let (Some(helpers), Some(waker)) = (helpers, fiber::waker()) else { return call() };
    let answer = Arc::new(Mutex::new(None));
    let there = Arc::clone(&answer);
    let made: Call = Box::new(move || {
        *there.lock() = Some(catch_unwind(AssertUnwindSafe(call)));
        waker.wake();
    });
    // Sending fails only if all helpers have ended, but the helpers live as long as the workers.
    if let Err(unsent) = helpers.send(made) {
        (unsent.0)();
    }
    loop {
        if let Some(answer) = answer.lock().take() {
            return answer.unwrap_or_else(|payload| resume_unwind(payload));
        }
        fiber::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicOnDrop;

    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            resume_unwind(Box::new("of a destructor"));
        }
    }

    /// Panic payload that panics when it is dropped; if true, with a payload that panics in turn.
    struct NestedPanicOnDrop(bool);

    impl Drop for NestedPanicOnDrop {
        fn drop(&mut self) {
            resume_unwind(if self.0 { Box::new(NestedPanicOnDrop(false)) } else { Box::new(()) });
        }
    }

    #[test]
    fn a_helper_outlives_what_its_calls_panic_with() {
        let (calls, waiting) = channel();
        let helpers = Helpers::new(waiting, 1);
        let count = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            helpers.grow(scope).unwrap();
            for _ in 0..3 {
                let count = Arc::clone(&count);
                calls.send(Box::new(|| drop(PanicOnDrop))).unwrap();
                calls.send(Box::new(|| resume_unwind(Box::new(NestedPanicOnDrop(true))))).unwrap();
                let counts = move || {
                    count.fetch_add(1, Ordering::Relaxed);
                };
                calls.send(Box::new(counts)).unwrap();
            }
            drop(calls);
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
