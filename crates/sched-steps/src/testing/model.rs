//! State that the fibers of a test program share, and the model's record of each fiber.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fastrand::Rng;

use crate::fiber::Waker;

/// Maximum number of steps of a test program.
const STEPS: u64 = 120;
/// Maximum number of fibers of a test program.
pub(super) const FIBERS: usize = 40;

/// Payload of intended panics.
#[derive(Debug)]
pub(super) struct IntendedPanic {
    /// True if the destructor of this payload panics with another payload.
    then: bool,
}

impl Drop for IntendedPanic {
    fn drop(&mut self) {
        if self.then && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(IntendedPanic { then: false }));
        }
    }
}

/// Panics intentionally, without a call of the panic hook.
pub(super) fn panic_on_purpose(random: &Random) -> ! {
    std::panic::resume_unwind(Box::new(IntendedPanic { then: random.once_in(8) }))
}

/// Returns the message of a panic; empty for an intended panic.
pub(super) fn panic_message(payload: &(dyn Any + Send)) -> String {
    if payload.is::<IntendedPanic>() { String::new() } else { crate::context::panic::message(payload).to_owned() }
}

/// Returns true if test programs provoke this panic.
pub(super) fn is_expected_panic(payload: &(dyn Any + Send)) -> bool {
    let message = panic_message(payload);
    message.is_empty() || message.contains("is driven from inside of one of its own fibers or conditions")
}

/// Random number generator that fibers share.
#[derive(Debug)]
pub(super) struct Random(RefCell<Rng>);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(RefCell::new(Rng::with_seed(seed)))
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub(super) fn below(&self, limit: usize) -> usize {
        self.0.borrow_mut().usize(..limit.max(1))
    }

    pub(super) fn once_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn split(&self) -> Random {
        Random(RefCell::new(self.0.borrow_mut().fork()))
    }
}

/// Record of a fiber in the model.
#[derive(Debug, Default)]
pub(super) struct FiberModel {
    pub(super) begun: Cell<bool>,
    pub(super) ended: Cell<bool>,
    /// True if the fiber was cancelled before it had ended.
    pub(super) cancelled: Cell<bool>,
    /// True if the fiber was unwound by a cancellation.
    pub(super) unwound: Cell<bool>,
}

/// State that the fibers of a test program share.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) random: Random,
    steps: Cell<u64>,
    /// Number of steps of all fibers. It is compared before and after a call, to check that no other fiber ran.
    pub(super) clock: Cell<u64>,
    /// Number of the fiber whose own code runs.
    pub(super) current: Cell<Option<usize>>,
    pub(super) fibers: RefCell<Vec<Rc<FiberModel>>>,
    /// Reference counter: its number of references is 1 plus the number of existing values that were given to fibers.
    pub(super) given_values: Rc<()>,
    pub(super) wakers: RefCell<Vec<Waker>>,
    /// Number of running executors that are nested in each other.
    pub(super) depth: Cell<usize>,
    violations: RefCell<Vec<String>>,
}

thread_local! {
    /// Wakers that were given out in earlier programs of this thread.
    static EARLIER_WAKERS: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

impl Model {
    pub(super) fn new(seed: u64) -> Model {
        Model {
            random: Random::new(seed),
            steps: Cell::new(0),
            clock: Cell::new(0),
            current: Cell::new(None),
            fibers: RefCell::default(),
            given_values: Rc::new(()),
            wakers: RefCell::new(EARLIER_WAKERS.with(|wakers| wakers.borrow().clone())),
            depth: Cell::new(0),
            violations: RefCell::default(),
        }
    }

    /// Counts a step of the program. Returns false if the program has reached its maximum number of steps.
    pub(super) fn step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.clock.set(self.clock.get() + 1);
        self.steps.get() < STEPS
    }

    /// Records a violated invariant.
    pub(super) fn record_violation(&self, what: String) {
        self.violations.borrow_mut().push(what);
    }

    /// Records a violated invariant unless `holds` is true.
    pub(super) fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.record_violation(what());
        }
    }

    /// Registers a fiber that is about to be spawned; `None` if the program has reached its maximum number of fibers.
    pub(super) fn register_fiber(&self) -> Option<usize> {
        let mut fibers = self.fibers.borrow_mut();
        (fibers.len() < FIBERS).then(|| {
            fibers.push(Rc::default());
            fibers.len() - 1
        })
    }

    pub(super) fn of(&self, fiber: usize) -> Rc<FiberModel> {
        Rc::clone(&self.fibers.borrow()[fiber])
    }

    /// Checks the final state of the program; returns the number of steps, or the first violated invariant.
    pub(super) fn check_final_state(&self) -> Result<u64, String> {
        for (fiber, record) in self.fibers.borrow().iter().enumerate() {
            self.check(record.begun.get() == record.ended.get(), || {
                format!("fiber {fiber} has begun ({}) and ended ({})", record.begun.get(), record.ended.get())
            });
        }
        let given = Rc::strong_count(&self.given_values) - 1;
        self.check(given == 0, || format!("{given} of what fibers were given was not dropped"));
        EARLIER_WAKERS.with(|earlier| {
            let wakers = self.wakers.borrow();
            *earlier.borrow_mut() = wakers[wakers.len().saturating_sub(4)..].to_vec();
        });
        match &self.violations.borrow()[..] {
            [] => Ok(self.steps.get()),
            [first, ..] => Err(first.clone()),
        }
    }
}
