//! Shared state of a program's fibers, and the model's record of each fiber.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::fiber::Waker;

/// Maximum number of steps of a program.
const STEPS: u64 = 120;
/// Maximum number of fibers of a program.
pub(super) const FIBERS: usize = 40;

/// Payload of intended panics.
#[derive(Debug)]
pub(super) struct Mark {
    /// True if the destructor of this payload panics with another payload.
    then: bool,
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.then && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Mark { then: false }));
        }
    }
}

/// Panics intentionally, without calling the panic hook.
pub(super) fn blow(draws: &Draws) -> ! {
    std::panic::resume_unwind(Box::new(Mark { then: draws.once_in(8) }))
}

/// Message of a panic; empty for an intended panic.
pub(super) fn words(payload: &(dyn Any + Send)) -> String {
    if payload.is::<Mark>() { String::new() } else { crate::context::panic::message(payload).to_owned() }
}

/// Returns true if programs provoke this panic.
pub(super) fn is_provoked(payload: &(dyn Any + Send)) -> bool {
    let words = words(payload);
    words.is_empty() || words.contains("is driven from inside of one of its own fibers or conditions")
}

/// Random number generator (SplitMix64).
#[derive(Debug)]
pub(super) struct Draws(Cell<u64>);

impl Draws {
    pub(super) fn new(seed: u64) -> Draws {
        Draws(Cell::new(seed))
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let z = self.0.get();
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(super) fn once_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn split(&self) -> Draws {
        Draws::new(self.next())
    }
}

/// The model's record of a fiber.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) begun: Cell<bool>,
    pub(super) ended: Cell<bool>,
    /// True if the fiber was cancelled before it had ended.
    pub(super) cancelled: Cell<bool>,
    /// True if the fiber was unwound by a cancellation.
    pub(super) unwound: Cell<bool>,
}

/// State that the fibers of a program share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) draws: Draws,
    steps: Cell<u64>,
    /// Number of steps of all fibers, used to check that no other fiber ran.
    pub(super) clock: Cell<u64>,
    /// Number of the fiber whose own code runs.
    pub(super) current: Cell<Option<usize>>,
    pub(super) known: RefCell<Vec<Rc<Known>>>,
    /// Reference count: one more reference per value that fibers were given.
    pub(super) given: Rc<()>,
    pub(super) wakers: RefCell<Vec<Waker>>,
    /// Nesting depth of running executors.
    pub(super) depth: Cell<usize>,
    found: RefCell<Vec<String>>,
}

thread_local! {
    /// Wakers of earlier programs.
    static OLD: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        World {
            draws: Draws::new(seed),
            steps: Cell::new(0),
            clock: Cell::new(0),
            current: Cell::new(None),
            known: RefCell::default(),
            given: Rc::new(()),
            wakers: RefCell::new(OLD.with(|old| old.borrow().clone())),
            depth: Cell::new(0),
            found: RefCell::default(),
        }
    }

    /// Counts a step; returns false once the program has reached its limit.
    pub(super) fn step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.clock.set(self.clock.get() + 1);
        self.steps.get() < STEPS
    }

    /// Records a violated invariant.
    pub(super) fn find(&self, what: String) {
        self.found.borrow_mut().push(what);
    }

    /// Records a violated invariant unless `holds` is true.
    pub(super) fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.find(what());
        }
    }

    /// Registers a fiber that is about to be spawned; `None` once the limit is reached.
    pub(super) fn born(&self) -> Option<usize> {
        let mut known = self.known.borrow_mut();
        (known.len() < FIBERS).then(|| {
            known.push(Rc::default());
            known.len() - 1
        })
    }

    pub(super) fn of(&self, fiber: usize) -> Rc<Known> {
        Rc::clone(&self.known.borrow()[fiber])
    }

    /// Checks the final state of the program; returns the number of steps, or the first violated invariant.
    pub(super) fn conclude(&self) -> Result<u64, String> {
        for (fiber, known) in self.known.borrow().iter().enumerate() {
            self.must(known.begun.get() == known.ended.get(), || {
                format!("fiber {fiber} has begun ({}) and ended ({})", known.begun.get(), known.ended.get())
            });
        }
        let given = Rc::strong_count(&self.given) - 1;
        self.must(given == 0, || format!("{given} of what fibers were given was not dropped"));
        OLD.with(|old| {
            let wakers = self.wakers.borrow();
            *old.borrow_mut() = wakers[wakers.len().saturating_sub(4)..].to_vec();
        });
        match &self.found.borrow()[..] {
            [] => Ok(self.steps.get()),
            [first, ..] => Err(first.clone()),
        }
    }
}
