//! Announcements of every switch to AddressSanitizer (feature `asan`).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::core::Core;
use crate::context::tools::asan;
use crate::context::{NO_INDEX, Node};

impl Core {
    fn save_of(&self, node: *const Node) -> &Cell<*mut c_void> {
        // SAFETY: `node` is a node of this executor.
        match unsafe { (*node).index.get() } {
            NO_INDEX => &self.shadow.save,
            index => &self.record(index).shadow,
        }
    }

    /// Announces a switch from `from` to `to`. `last` is true if `from` will not run again.
    ///
    /// # Safety
    /// Both nodes belong to this executor, and the switch follows at once.
    pub(super) unsafe fn announce(&self, from: *const Node, to: *const Node, last: bool) {
        // SAFETY: `to` is a node of this executor.
        let (bottom, size) = match unsafe { (*to).index.get() } {
            NO_INDEX => self.shadow.stack.get(),
            index => {
                let stack = self.slab.get(index as usize);
                (stack.low, stack.top - stack.low)
            }
        };
        self.shadow.left.set(from);
        let save = if last { ptr::null_mut() } else { self.save_of(from).as_ptr() };
        // SAFETY: the caller guarantees that the switch follows.
        unsafe { asan::start(save, bottom, size) }
    }

    /// Completes the announcement of a switch to `node`, after the switch.
    ///
    /// # Safety
    /// The switch to `node` was announced.
    pub(super) unsafe fn complete_announcement(&self, node: *const Node) {
        // SAFETY: the caller guarantees that the switch was announced; a fresh fiber has a null save pointer.
        let left = unsafe { asan::finish(self.save_of(node).replace(ptr::null_mut())) };
        if ptr::eq(self.shadow.left.get(), &raw const self.main) {
            self.shadow.stack.set(left);
        }
    }

    /// Prepares the stack of a free slot for its next fiber.
    pub(super) fn clean(&self, index: u32) {
        let stack = self.slab.get(index as usize);
        asan::clean(stack.low, stack.top - stack.low);
    }
}
