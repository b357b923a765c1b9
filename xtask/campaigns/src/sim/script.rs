//! The description of a run.

use storage::LatchKind;

use super::rng::Rng;
use super::scheduler::Scheduler;
use super::workload::Profile;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The database is closed.
    Close,
    /// The process is killed.
    Kill,
}

/// The description of a run.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// How its workers run.
    pub(crate) scheduler: Scheduler,
    /// What the workers do.
    pub(crate) profile: Profile,
    /// How it ends.
    pub(crate) ending: Ending,
    /// So many of the moments at which power may be lost are kept, at most.
    pub(crate) cuts: usize,
    /// Whether to make the disk sound when the workers have ended, and to run one more transaction.
    pub(crate) probe: bool,
    /// Whether some statements of a transaction run as iterations of speculative loops.
    pub(crate) speculate: bool,
    /// The kind of page latches; none if the seed draws it.
    pub(crate) latches: Option<LatchKind>,
}

impl Script {
    /// A random run without speculative loops, of which no moment is kept.
    pub(crate) fn draw(rng: &mut Rng, scheduler: Scheduler) -> Script {
        let seed = rng.next();
        let ending = if rng.once_in(3) { Ending::Close } else { Ending::Kill };
        Script {
            seed,
            scheduler,
            profile: Profile::draw(rng),
            ending,
            cuts: 0,
            probe: false,
            speculate: false,
            latches: None,
        }
    }
}
