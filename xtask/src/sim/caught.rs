//! Panics as values: a panic of the engine is a finding, told with the seed that led to it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// `Some` while a panic of this thread would be caught: its message goes here and not to the terminal.
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What a worker throws that was told to stop: no finding of its own.
#[derive(Debug)]
struct Stopped;

/// Ends the calling worker, whatever it is in the middle of.
pub(crate) fn stop() -> ! {
    resume_unwind(Box::new(Stopped))
}

/// Runs `f`; a panic becomes its message and place. [`stop`] becomes `Ok(None)`.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<Option<T>, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            let quiet = MESSAGE.with_borrow_mut(|message| {
                message.as_mut().map(|message| *message = info.to_string().replace('\n', " ")).is_some()
            });
            if !quiet {
                others(info);
            }
        }));
    });
    let outer = MESSAGE.replace(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(f));
    let message = MESSAGE.replace(outer).unwrap_or_default();
    match result {
        Ok(value) => Ok(Some(value)),
        Err(payload) if payload.is::<Stopped>() => Ok(None),
        Err(_) => Err(message),
    }
}
