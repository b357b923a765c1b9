//! Operations on a context that is not running, common to all architectures with a native switch.
#![allow(unsafe_code)]

use super::SuspendedState;
#[cfg(target_arch = "aarch64")]
use super::aarch64::{HOP_RESUME_GAP, enter, resume};
#[cfg(all(target_arch = "x86_64", not(feature = "save-callee")))]
use super::x86_64::HOP_RESUME_GAP;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{enter, resume};
#[cfg(all(target_arch = "x86_64", feature = "save-callee"))]
use super::x86_64_saving::HOP_RESUME_GAP;
use crate::context::node::Node;

/// Initialises `node` so that its context begins at `fiber_main(node)` on the stack below `top`.
///
/// # Safety
/// `top` is the end of a writable stack that no context uses, and a multiple of 16.
pub(crate) unsafe fn prepare(node: &Node, top: usize) {
    debug_assert_eq!(top % 16, 0);
    node.sp.set(top);
    node.rip.set(enter as *const () as usize);
    node.frame.set(0);
    node.base.set(std::ptr::from_ref(node) as usize);
}

/// Returns the kind of switch that suspended `node`, or that the node is fresh.
pub(crate) fn suspended_state(node: &Node) -> SuspendedState {
    match node.rip.get() {
        at if at == enter as *const () as usize => SuspendedState::Fresh,
        at if at == resume as *const () as usize => SuspendedState::Switched,
        _ => SuspendedState::Hopped,
    }
}

/// Makes a node, which a hop suspended, unwind its stack when it next runs.
///
/// # Safety
/// `suspended_state(node)` is `Hopped`, and this function has not been called on it since that hop.
pub(crate) unsafe fn make_unwind(node: &Node) {
    node.rip.set(node.rip.get() - HOP_RESUME_GAP);
}

/// Declares that the next switch from `node` is its last. With native switches no action is necessary.
pub(crate) fn mark_last_switch(_node: &Node) {}

/// Frees the resources of a node other than its stack. With native switches there are no such resources.
pub(crate) fn dispose(_node: &Node) {}

/// True: fibers run on the stacks of the slab.
pub(crate) const OWN_STACKS: bool = true;
