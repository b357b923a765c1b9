//! What the tests of this folder share.

use sched_steps::{Builder, Executor};

/// Builds an executor for a test.
#[allow(unsafe_code)]
pub(crate) fn build(builder: Builder) -> Executor {
    // SAFETY: the tests have no stack-scoped thread-local open where a fiber gives way. (Those that do, to show what
    // comes of it, build executors of their own.)
    let built = unsafe { builder.build() };
    built.unwrap_or_else(|e| panic!("{e}"))
}
