//! Errors of building a speculator and of running a loop.

use std::{fmt, io};

use crate::forward::Site;

/// Maximum number of workers of a speculator.
pub const MOST_WORKERS: usize = 256;

/// Error in the options of a speculator.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The number of workers is 0.
    #[error("0 workers: a loop needs at least one")]
    NoWorkers,
    /// The number of workers exceeds [`MOST_WORKERS`].
    #[error("{0} workers: at most {max} are served", max = MOST_WORKERS)]
    TooManyWorkers(usize),
    /// The number of iterations per epoch is 0.
    #[error("0 iterations in an epoch: an epoch has at least one")]
    NoGrain,
    /// The number of sub-epochs, or of operations per sub-epoch, is 0.
    #[error("{number} sub-epochs of {operations} operations: both are at least one")]
    NoSubEpoch {
        /// Number of sub-epochs per epoch.
        number: usize,
        /// Number of operations per sub-epoch.
        operations: usize,
    },
    /// The probability of injected violations is not between 0 and 1.
    #[error("a probability of violations of {0}: it lies between 0 and 1")]
    NoProbability(f64),
    /// A site at which reads should wait is not a source location.
    #[error(
        "reads wait at {0:?}, which is no place in a source: write it as a profile prints it, file:line or file:line:column"
    )]
    NoSite(&'static str),
}

/// Error of building a speculator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The program is built with `panic = "abort"`.
    #[error("speculation unwinds bodies whose answers were wrong: build with panic = \"unwind\"")]
    PanicAbort,
    /// The system cannot start another thread.
    #[error("a worker's thread cannot be started: {0}; ask for fewer workers, or raise the limit of threads")]
    Thread(#[source] io::Error),
}

/// Error that ended a loop early. All iterations before the failed iteration are written, and the iterations after it are
/// not.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoopError<B, S> {
    /// The body of an iteration, or the closure that is called in order after the body, has failed. The writes that the
    /// iteration made before the failure are in the store.
    Body(B),
    /// The store has failed during a commit.
    Store(S),
    /// The body performed a different operation when it was run again with the same answers.
    NotDeterministic {
        /// Index of the operation in its epoch.
        operation: usize,
        /// Site of the operation in the first run.
        site: Site,
    },
    /// A body has started another loop. This error is not detected on a fiber.
    Nested,
    /// The current process was forked from the process that built the speculator, and does not have the threads of the
    /// speculator.
    Forked,
}

impl<B: fmt::Display, S: fmt::Display> fmt::Display for LoopError<B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopError::Body(error) => write!(f, "an iteration failed: {error}"),
            LoopError::Store(error) => write!(f, "the store failed: {error}"),
            LoopError::NotDeterministic { operation, site } => write!(
                f,
                "the body is not deterministic: run again with the same answers, its operation {operation} differed from \
                 the one at {site}; let it depend on nothing but its item and its reads"
            ),
            LoopError::Nested => f.write_str("a speculative loop inside the body of another one; run it in place"),
            LoopError::Forked => f.write_str(
                "the speculator was built before this process was forked, and its threads are not here; build another one",
            ),
        }
    }
}

impl<B: std::error::Error + 'static, S: std::error::Error + 'static> std::error::Error for LoopError<B, S> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoopError::Body(error) => Some(error),
            LoopError::Store(error) => Some(error),
            _ => None,
        }
    }
}
