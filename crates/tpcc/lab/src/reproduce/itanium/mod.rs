#![doc = include_str!("README.md")]

mod ablation;
mod coherence;
mod cycles;

use super::{Experiment, Paper};

/// The paper on Itanium 2, and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "itanium",
    title: "Saylor and Khessib, Large Scale Itanium 2 Processor OLTP Workload Characterization and Optimization, DaMoN 2006",
    experiments: &[
        Experiment {
            id: "itanium-system",
            title: "what the system spends: processor time, I/O (Table 1)",
            minutes: (0.4, 0.2),
            run: ablation::system,
        },
        Experiment {
            id: "itanium-cycles",
            title: "where the time of a transaction goes, modelled from counts and probes (Figure 1, Tables 2, 3 and 4)",
            minutes: (7.0, 4.5),
            run: cycles::cycles,
        },
        Experiment {
            id: "itanium-coherence",
            title: "lines that go from core to core, modelled on up to 64 cores (Figure 2, Table 7)",
            minutes: (8.0, 3.0),
            run: coherence::coherence,
        },
        Experiment {
            id: "itanium-switches",
            title: "large pages, superlatches and partitioning, one off at a time (Tables 4, 6, 7 and 8)",
            minutes: (8.5, 3.0),
            run: ablation::switches,
        },
        Experiment {
            id: "itanium-feedback",
            title: "the build with profile feedback, if cargo xtask pgo has made it (Table 5)",
            minutes: (3.0, 1.2),
            run: ablation::feedback,
        },
    ],
};
