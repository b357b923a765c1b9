//! The description of a run.

use storage::LatchKind;

use super::rng::Rng;
use super::scheduler::Scheduler;
use super::workload::Profile;

/// End of a run.
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
    /// The scheduler of its workers.
    pub(crate) scheduler: Scheduler,
    /// The workload of its workers.
    pub(crate) profile: Profile,
    /// The end of the run.
    pub(crate) ending: Ending,
    /// Maximum number of sampled points of possible power loss.
    pub(crate) max_power_losses: usize,
    /// True to repair the disk after the workers have ended, and to run one more transaction.
    pub(crate) probe: bool,
    /// True to run some statements of a transaction as iterations of speculative loops.
    pub(crate) speculate: bool,
    /// The kind of page latches; none for a random one.
    pub(crate) latches: Option<LatchKind>,
}

impl Script {
    /// A random run without speculative loops and without points of power loss.
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
