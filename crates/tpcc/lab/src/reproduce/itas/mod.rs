//! S. Yamada and S. Kusakabe, "Impact of Inter-Core Time Aggregation Scheduler on a Database Server Workload", AJIT 2009.
//!
//! The paper changes the scheduler of Linux and runs MySQL on a processor whose cores share an L2 cache of 4 MiB. Here
//! fibers are scheduled, the databases are in one process, and cores have their own L2 caches and share an L3. The figures
//! of the paper are pictures whose numbers are not in its text; the report compares our values with the statements of the
//! text.

mod load;
mod memory;
mod oltp;
mod regime;
mod simulated;
mod tuner;

use super::{Experiment, Paper};

/// The paper on the Inter-Core Time Aggregation Scheduler (ITAS), and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "itas",
    title: "Yamada and Kusakabe, Impact of Inter-Core Time Aggregation Scheduler on a Database Server Workload, AJIT 2009",
    experiments: &[
        Experiment {
            id: "itas-fig4",
            title: "memory program: time against fair by size of a block, shared by siblings and not",
            minutes: (8.0, 0.4),
            run: memory::fig4,
        },
        Experiment {
            id: "itas-fig5",
            title: "memory program: misses against fair, simulated",
            minutes: (1.0, 0.3),
            run: simulated::fig5,
        },
        Experiment {
            id: "itas-fig7",
            title: "OLTP program: time against fair by size of the database",
            minutes: (6.0, 2.5),
            run: oltp::fig7,
        },
        Experiment {
            id: "itas-fig8",
            title: "OLTP program, uniform: misses against fair, simulated",
            minutes: (0.5, 0.2),
            run: simulated::fig8,
        },
        Experiment {
            id: "itas-fig9",
            title: "OLTP program, gaussian: misses against fair, simulated",
            minutes: (0.5, 0.2),
            run: simulated::fig9,
        },
        Experiment {
            id: "itas-fig10",
            title: "OLTP program: throughput of loop programs beside it",
            minutes: (6.0, 2.5),
            run: oltp::fig10,
        },
        Experiment {
            id: "itas-regime",
            title: "where aggregation gains: working set by length of a slice",
            minutes: (12.0, 3.0),
            run: regime::regime,
        },
        Experiment {
            id: "itas-l3",
            title: "reads of sets as large as the share of the L3 that is to be had",
            minutes: (1.0, 0.4),
            run: memory::l3_share,
        },
        Experiment {
            id: "itas-tuner",
            title: "agg_bonus found while running, against fixed ones, and after a change",
            minutes: (1.5, 0.5),
            run: tuner::tuner,
        },
        Experiment {
            id: "itas-simulator",
            title: "the simulator against this machine, and more cores",
            minutes: (3.0, 0.8),
            run: simulated::validation,
        },
        Experiment {
            id: "itas-decision",
            title: "what a scheduling decision costs",
            minutes: (0.1, 0.1),
            run: tuner::decision,
        },
    ],
};
