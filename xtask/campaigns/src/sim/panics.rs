//! Panics as values. A panic of the code under test is a finding, which is reported with its seed. A panic of the campaign's
//! own code is not a finding; [`is_own`] distinguishes the two.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::Once;

sched_steps::fiber_local! {
    /// Message of the last panic of this fiber or thread. `Some` while panics are caught: the hook then stores a message
    /// here instead of printing it. The previous value is restored at the end. Each fiber has its own value, because the
    /// fibers of a thread end in any order.
    static MESSAGE: RefCell<Option<String>> = RefCell::new(None);
}

/// Source paths of the code under test. A panic in other code is the campaign's own.
const TESTED_SOURCES: [&str; 3] = ["crates/storage/", "crates/sched-steps/", "crates/speculate/"];

/// Prefix of the message of a campaign's own panic.
const OWN_PANIC: &str = "the campaign itself panicked: ";

/// Panic payload of a worker that was stopped, which is not a finding.
#[derive(Debug)]
struct StopPayload;

/// Panic payload of a worker that reports a finding from code that cannot return an error.
#[derive(Debug)]
struct FindingPayload(String);

/// Unwinds the calling worker.
pub(crate) fn stop() -> ! {
    resume_unwind(Box::new(StopPayload))
}

/// Unwinds the calling worker with a finding.
pub(crate) fn raise_finding(what: String) -> ! {
    resume_unwind(Box::new(FindingPayload(what)))
}

/// Returns the message of a panic in one line. The message has a prefix if the panic is the campaign's own.
pub(crate) fn message(info: &PanicHookInfo<'_>) -> String {
    let is_tested = info.location().is_some_and(|place| TESTED_SOURCES.iter().any(|path| place.file().contains(path)));
    let own = if is_tested { "" } else { OWN_PANIC };
    format!("{own}{}", info.to_string().replace('\n', " "))
}

/// Returns true if a reported failure is a panic of the campaign's own code, and therefore not a finding.
pub(crate) fn is_own(failure: &str) -> bool {
    failure.contains(OWN_PANIC)
}

/// Runs `f`. A panic is returned as an error with its message and location. [`stop`] results in `Ok(None)`.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<Option<T>, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            let kept = MESSAGE.try_with(|kept| kept.borrow_mut().as_mut().map(|kept| *kept = message(info)).is_some());
            if kept != Some(true) {
                others(info);
            }
        }));
    });
    let outer = MESSAGE.with(|message| message.replace(Some(String::new())));
    let result = catch_unwind(AssertUnwindSafe(f));
    let message = MESSAGE.with(|message| message.replace(outer)).unwrap_or_default();
    match result {
        Ok(value) => Ok(Some(value)),
        Err(payload) if payload.is::<StopPayload>() => Ok(None),
        Err(payload) => Err(payload.downcast::<FindingPayload>().map_or(message, |found| found.0)),
    }
}

#[cfg(test)]
mod tests {
    use storage::Table;

    use super::*;

    fn failure_of(f: impl FnOnce()) -> String {
        catch_panic(f).err().unwrap_or_default()
    }

    #[test]
    fn only_the_code_under_trial_and_what_was_found_are_findings() {
        let own = failure_of(|| panic!("here"));
        assert!(is_own(&own) && own.contains("here"), "{own}");
        let found = failure_of(|| raise_finding("a lost row".into()));
        assert!(!is_own(&found) && found == "a lost row", "{found}");
        let too_many = || {
            (0..9).fold(Table::<u64, u64>::new("t"), |t, _| t.with_raw_index("i", false, 0, |_, _, _| false));
        };
        let of_storage = failure_of(too_many);
        assert!(!is_own(&of_storage) && of_storage.contains("crates/storage/"), "{of_storage}");
    }
}
