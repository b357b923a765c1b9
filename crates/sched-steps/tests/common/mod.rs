//! Helpers shared by the tests of this folder.

use sched_steps::{Builder, Executor};

/// Builds an executor for a test.
#[allow(unsafe_code)]
pub(crate) fn build(builder: Builder) -> Executor {
    // SAFETY: the tests have no stack-scoped thread-local open where a fiber is suspended. (Tests that do, to demonstrate
    // the effect, build their own executors.)
    let built = unsafe { builder.build() };
    built.unwrap_or_else(|e| panic!("{e}"))
}
