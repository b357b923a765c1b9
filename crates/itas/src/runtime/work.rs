//! Work that a runtime runs.

/// Result of an operation: another operation follows, or the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another operation follows.
    More,
    /// The work is done.
    Done,
}

/// Work that consists of operations: a terminal's transactions, a client's requests. During an operation it stays on its
/// core, on the stack of a fiber. Between two operations it may be moved to another core.
pub trait Work: Send {
    /// Runs the next operation.
    fn run(&mut self) -> Progress;
}

impl<F: FnMut() -> Progress + Send> Work for F {
    fn run(&mut self) -> Progress {
        self()
    }
}

/// Work that consists of one operation.
pub(super) struct SingleOperation<F>(pub(super) Option<F>);

impl<F: FnOnce() + Send> Work for SingleOperation<F> {
    fn run(&mut self) -> Progress {
        if let Some(run) = self.0.take() {
            run();
        }
        Progress::Done
    }
}
