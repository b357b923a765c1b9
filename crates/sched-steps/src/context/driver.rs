//! Interface by which contexts call the executor that drives them.

use super::node::Node;

/// Executor that drives a thread.
pub(crate) trait Driver {
    /// Runs the task of a fresh fiber on the fiber's own stack. Does not return before the task has ended.
    fn run(&self, node: &Node);

    /// Wakes fiber `index` of executor number `executor` without accessing shared memory. Returns false, without a
    /// wake, if this driver is another executor.
    fn wake(&self, executor: u32, index: u32) -> bool;

    /// Prepares the unwinding of the running fiber. It is called before the fiber unwinds because it was cancelled.
    fn begin_unwinding(&self);

    /// Performs a hop through the general switch, for builds in which a hop cannot be inlined.
    #[cfg(any(
        feature = "asan",
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))
    ))]
    fn hop(&self);
}
