//! What a runtime runs.

/// Whether work goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is another operation.
    More,
    /// That was the last one.
    Done,
}

/// Work in operations: a terminal's transactions, a client's requests. During an operation it stays on its core, on the
/// stack of a fiber; between two it may be moved to another core.
pub trait Work: Send {
    /// Runs the next operation.
    fn run(&mut self) -> Progress;
}

impl<F: FnMut() -> Progress + Send> Work for F {
    fn run(&mut self) -> Progress {
        self()
    }
}

/// Work of one operation.
pub(super) struct Once<F>(pub(super) Option<F>);

impl<F: FnOnce() + Send> Work for Once<F> {
    fn run(&mut self) -> Progress {
        if let Some(run) = self.0.take() {
            run();
        }
        Progress::Done
    }
}
