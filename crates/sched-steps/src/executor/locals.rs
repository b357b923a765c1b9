//! Storage of the fiber-local values of one fiber. [`FiberLocal`](super::fiber_local::FiberLocal) creates and looks up
//! the values.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

/// State of one fiber-local value.
#[derive(Clone)]
pub(super) enum LocalState {
    Initialising,
    Present(Rc<dyn Any>),
    /// The value was dropped because the fiber is ending.
    Dropped,
}

/// Values of one fiber, keyed by the addresses of their statics.
#[derive(Default)]
pub(crate) struct Locals {
    values: RefCell<Vec<(usize, LocalState)>>,
}

impl Locals {
    pub(super) fn state(&self, key: usize) -> Option<LocalState> {
        self.values.borrow().iter().find(|(of, _)| *of == key).map(|(_, state)| state.clone())
    }

    pub(super) fn set(&self, key: usize, state: LocalState) {
        let mut values = self.values.borrow_mut();
        match values.iter_mut().find(|(of, _)| *of == key) {
            Some(value) => value.1 = state,
            None => values.push((key, state)),
        }
    }

    pub(super) fn forget(&self, key: usize) {
        self.values.borrow_mut().retain(|(of, _)| *of != key);
    }

    /// Drops all values, the newest first. The destructors may use and create other values, but cannot use a dropped
    /// value.
    pub(crate) fn drop_values(&self) {
        loop {
            let newest = {
                let mut values = self.values.borrow_mut();
                let mut living = values.iter_mut().rev().filter(|(_, state)| matches!(state, LocalState::Present(_)));
                living.next().map(|(_, state)| std::mem::replace(state, LocalState::Dropped))
            };
            match newest {
                Some(value) => drop(value),
                None => return,
            }
        }
    }

    /// Clears all states for the slot's next fiber. All values have been dropped before.
    pub(super) fn clear(&self) {
        self.values.borrow_mut().clear();
    }
}

#[cfg(test)]
impl Locals {
    /// Returns a store that holds only the state left over from a dropped value.
    pub(super) fn of_one(key: usize) -> Locals {
        let locals = Locals::default();
        locals.set(key, LocalState::Dropped);
        locals
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.borrow().is_empty()
    }
}
