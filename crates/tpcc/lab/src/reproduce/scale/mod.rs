//! Model of this engine on 1 to 256 cores ([`crate::scale`]), checked against measured runs: on two cores of this machine, and
//! on the machine of [`measured`].
//!
//! The measured runs on 16 cores are of the engine before leaves were split for contention. So the check there uses the
//! recording as it is, and predictions use it after splits. This machine runs the engine as it is today, after splits.

mod cores;
mod figures;
mod measured;

use super::{Experiment, Paper};

/// The model of cores.
pub(super) const PAPER: Paper = Paper {
    id: "scale",
    title: "Cores: a model of this engine on 1 to 256 cores",
    experiments: &[Experiment {
        id: "scale-cores",
        title: "throughput, log volume and waits on 1 to 256 modelled cores",
        minutes: (22.0, 6.5),
        run: cores::cores,
    }],
};
