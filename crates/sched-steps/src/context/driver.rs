//! What drives contexts, as far as they know it.

use super::node::Node;

/// The executor that drives a thread.
pub(crate) trait Driver {
    /// Runs the task of a fresh fiber, on its own stack. Does not return before that is over.
    fn run(&self, node: &Node);

    /// Wakes fiber `index` of executor number `executor` without touching shared memory; false if that is another one.
    fn wake(&self, executor: u32, index: u32) -> bool;

    /// The running fiber is about to unwind because it was cancelled.
    fn begin_unwinding(&self);

    /// A hop by way of the general switch, for builds in which it cannot be inlined.
    #[cfg(any(
        feature = "asan",
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))
    ))]
    fn pass(&self);
}
