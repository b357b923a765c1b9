//! G. Hoflehner, K. Kirkegaard, R. Skinner, D. Lavery, Y.-F. Lee and W. Li, "Compiler Optimizations for Transaction
//! Processing Workloads on Itanium Linux Systems", MICRO 2004.
//!
//! The paper turns off one optimisation of the compiler at a time, and so do the builds of `cargo xtask ablate-build`. This
//! experiment compares the builds by counts and by interleaved timings. Within a clone of the sources, missing builds are
//! made first.

mod builds;
mod figures;
mod rows;

pub(super) use builds::why_absent;

use super::{Experiment, Paper};

/// The paper on compiler optimisations, and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "compiler",
    title: "Hoflehner et al., Compiler Optimizations for Transaction Processing Workloads on Itanium Linux Systems, \
            MICRO 2004",
    experiments: &[
        Experiment {
            id: "compiler-table1",
            title: "what five optimisations change: throughput, misses of data",
            minutes: (20.0, 7.0),
            run: figures::table1,
        },
        Experiment {
            id: "compiler-fig7",
            title: "speed-up by class of optimisation, and with profile feedback",
            minutes: (0.1, 0.1),
            run: figures::fig7,
        },
        Experiment {
            id: "compiler-fig8",
            title: "speed-up of optimisations of data access",
            minutes: (0.1, 0.1),
            run: figures::fig8,
        },
        Experiment {
            id: "compiler-fig9",
            title: "speed-up of optimisations of code",
            minutes: (0.1, 0.1),
            run: figures::fig9,
        },
        Experiment {
            id: "compiler-interaction",
            title: "everything on against everything off, and against the product of the parts",
            minutes: (4.0, 2.0),
            run: figures::interaction,
        },
    ],
};
