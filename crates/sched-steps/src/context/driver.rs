//! Interface of an executor for the contexts that it drives.

use super::node::Node;

/// The executor that drives a thread.
pub(crate) trait Driver {
    /// Runs the task of a fresh fiber on the fiber's own stack. Does not return before the task has ended.
    fn run(&self, node: &Node);

    /// Wakes fiber `index` of executor number `executor` without accessing shared memory. Returns false if that is
    /// another executor.
    fn wake(&self, executor: u32, index: u32) -> bool;

    /// Called before the running fiber unwinds because it was cancelled.
    fn begin_unwinding(&self);

    /// Performs a hop through the general switch, for builds in which a hop cannot be inlined.
    #[cfg(any(
        feature = "asan",
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))
    ))]
    fn hop(&self);
}
