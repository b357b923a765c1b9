//! Telling AddressSanitizer of every switch (feature `asan`).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::core::Core;
use crate::context::tools::asan;
use crate::context::{NO_INDEX, Node};

impl Core {
    fn save_of(&self, node: *const Node) -> &Cell<*mut c_void> {
        // SAFETY: a node of this executor.
        match unsafe { (*node).index.get() } {
            NO_INDEX => &self.shadow.save,
            index => &self.cold(index).shadow,
        }
    }

    /// Before a switch. `last`: `from` will not run again.
    ///
    /// # Safety
    /// Both are nodes of this executor, and the switch follows at once.
    pub(super) unsafe fn announce(&self, from: *const Node, to: *const Node, last: bool) {
        // SAFETY: a node of this executor.
        let (bottom, size) = match unsafe { (*to).index.get() } {
            NO_INDEX => self.shadow.stack.get(),
            index => {
                let stack = self.slab.get(index as usize);
                (stack.low, stack.top - stack.low)
            }
        };
        self.shadow.left.set(from);
        let save = if last { ptr::null_mut() } else { self.save_of(from).as_ptr() };
        // SAFETY: the caller's promise.
        unsafe { asan::start(save, bottom, size) }
    }

    /// After a switch to `node`.
    ///
    /// # Safety
    /// The switch was announced.
    pub(super) unsafe fn arrived(&self, node: *const Node) {
        // SAFETY: the caller's promise; a fresh fiber has saved nothing.
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
