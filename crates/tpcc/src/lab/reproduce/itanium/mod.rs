//! G. Saylor and B. Khessib, "Large Scale Itanium 2 Processor OLTP Workload Characterization and Optimization", DaMoN 2006.
//!
//! The paper turns off one optimisation of SQL Server at a time, on 32 processors, and says by counters of the processor where
//! the cycles go.

mod cycles;
mod model;
mod probe;

use super::{Experiment, Paper};

/// The paper and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "itanium",
    title: "Saylor and Khessib, Large Scale Itanium 2 Processor OLTP Workload Characterization and Optimization, DaMoN 2006",
    experiments: &[Experiment {
        id: "itanium-cycles",
        title: "where the time of a transaction goes, modelled from counts and a probe (Tables 2, 3 and 4)",
        minutes: (6.0, 4.0),
        run: cycles::cycles,
    }],
};
