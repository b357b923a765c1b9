//! Why a speculator cannot be built, or a loop has ended early.

use std::{fmt, io};

use crate::forward::Site;

/// Most workers of a speculator.
pub const MOST_WORKERS: usize = 256;

/// Options that no speculator can be built with.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Not one thread may work.
    #[error("0 workers: a loop needs at least one")]
    NoWorkers,
    /// More threads than a speculator serves.
    #[error("{0} workers: at most {max} are served", max = MOST_WORKERS)]
    TooManyWorkers(usize),
    /// An epoch without an iteration.
    #[error("0 iterations in an epoch: an epoch has at least one")]
    NoGrain,
    /// A sub-epoch without an operation, or an epoch without a sub-epoch.
    #[error("{number} sub-epochs of {operations} operations: both are at least one")]
    NoSubEpoch {
        /// Sub-epochs of an epoch.
        number: usize,
        /// Operations of a sub-epoch.
        operations: usize,
    },
    /// A share of reads to violate that is no share.
    #[error("a probability of violations of {0}: it lies between 0 and 1")]
    NoProbability(f64),
    /// A site to wait at that is no place in a source.
    #[error(
        "reads wait at {0:?}, which is no place in a source: write it as a profile prints it, file:line or file:line:column"
    )]
    NoSite(&'static str),
}

/// Why a speculator cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The options make no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The system starts no further thread.
    #[error("a worker's thread cannot be started: {0}; ask for fewer workers, or raise the limit of threads")]
    Thread(#[source] io::Error),
}

/// Why a loop has ended early. All iterations before the one that failed are written, and those after it are not.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoopError<B, S> {
    /// The body of an iteration, or the closure that is called in order after it, has failed. What the iteration wrote
    /// before is written.
    Body(B),
    /// The store has failed in the in-order part.
    Store(S),
    /// The body did something else when it was run again with the same answers.
    NotDeterministic {
        /// The number of the operation in its epoch.
        operation: usize,
        /// Where the operation was, at first.
        site: Site,
    },
    /// A body has begun another loop. On a fiber that is not noticed.
    Nested,
    /// The process was forked from the one that built the speculator, whose threads are not in it.
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
