//! Parameters of a run.

use storage::LatchKind;

use super::rng::Rng;
use super::scheduler::Scheduler;
use super::workload::Profile;

/// Operation that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The database is closed.
    Close,
    /// The process is killed.
    Kill,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// Scheduler of the workers.
    pub(crate) scheduler: Scheduler,
    /// Workload of the workers.
    pub(crate) profile: Profile,
    /// Operation that ends the run.
    pub(crate) ending: Ending,
    /// Maximum number of sampled points of possible power loss.
    pub(crate) max_power_losses: usize,
    /// True if the disk is repaired after the workers have ended, and one more transaction runs.
    pub(crate) probe: bool,
    /// True if some statements of a transaction run as iterations of loops.
    pub(crate) speculate: bool,
    /// Page latch kind; `None` for a random kind.
    pub(crate) latches: Option<LatchKind>,
}

impl Script {
    /// Returns random parameters, without loops and without points of power loss.
    pub(crate) fn draw(rng: &mut Rng, scheduler: Scheduler) -> Script {
        let seed = rng.next();
        let ending = if rng.once_in(3) { Ending::Close } else { Ending::Kill };
        Script {
            seed,
            scheduler,
            profile: Profile::draw(rng),
            ending,
            max_power_losses: 0,
            probe: false,
            speculate: false,
            latches: None,
        }
    }
}
