//! Work that blocks: threads beside the workers, so that no worker waits in the kernel.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use sched_steps::fiber;

/// A call to be made by a helper.
type Call = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Where the worker of this thread sends calls.
    static HELPERS: RefCell<Option<Sender<Call>>> = const { RefCell::new(None) };
}

/// The calls of this thread's fibers go there, until the value is dropped.
pub(super) struct Connected(());

impl Connected {
    pub(super) fn to(helpers: &Sender<Call>) -> Connected {
        HELPERS.with(|mine| *mine.borrow_mut() = Some(helpers.clone()));
        Connected(())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        HELPERS.with(|mine| *mine.borrow_mut() = None);
    }
}

/// Helpers that nothing has been sent to yet.
pub(super) fn channel() -> (Sender<Call>, Receiver<Call>) {
    crossbeam_channel::unbounded()
}

/// A helper: makes calls until all senders are gone.
pub(super) fn help(calls: &Receiver<Call>) {
    for call in calls {
        call();
    }
}

/// Runs `call`, which may block its thread (a file, a socket, a lock of the standard library), on a helper thread. The fiber
/// waits, its worker goes on with others. Outside of a runtime it is simply called.
///
/// A fiber that is cancelled meanwhile unwinds; the call is made to its end, and what it returns is dropped.
///
/// # Panics
/// With what `call` panics with.
pub fn blocking<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    let helpers = HELPERS.with(|mine| mine.borrow().clone());
    let (Some(helpers), Some(waker)) = (helpers, fiber::waker()) else { return call() };
    let answer = Arc::new(Mutex::new(None));
    let there = Arc::clone(&answer);
    let made: Call = Box::new(move || {
        *there.lock() = Some(catch_unwind(AssertUnwindSafe(call)));
        waker.wake();
    });
    // The helpers live for as long as a worker does.
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
