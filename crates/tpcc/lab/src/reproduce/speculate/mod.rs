//! C. B. Colohan, A. Ailamaki, J. G. Steffan and T. C. Mowry, "Incrementally Parallelizing Database Transactions with
//! Thread-Level Speculation", TOCS 2008.
//!
//! The paper simulates processors with hardware for speculation. Here the engine's locks keep the epochs in order.
//! One and two processors are measured; four and eight are simulated from traces, by a simulator that is first compared with
//! the measurements on one and two.

mod counts;
mod figures;
mod sub_epochs;

use super::{Experiment, Paper};

/// The paper on thread-level speculation (TLS), and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "speculate",
    title: "Colohan, Ailamaki, Steffan and Mowry, Incrementally Parallelizing Database Transactions with Thread-Level \
            Speculation, TOCS 2008",
    experiments: &[
        Experiment {
            id: "speculate-table2",
            title: "seven transactions: coverage, size and number of epochs",
            minutes: (5.0, 1.0),
            run: figures::table2,
        },
        Experiment {
            id: "speculate-fig19",
            title: "each transaction in order, in epochs on one and on two, and simulated on four processors",
            minutes: (0.1, 0.1),
            run: figures::fig19,
        },
        Experiment {
            id: "speculate-fig20",
            title: "each transaction by number of processors",
            minutes: (0.1, 0.1),
            run: figures::fig20,
        },
        Experiment {
            id: "speculate-fig21",
            title: "what each change of the engine is worth on four processors",
            minutes: (0.1, 0.1),
            run: figures::fig21,
        },
        Experiment {
            id: "speculate-counts",
            title: "instructions of each loop in epochs, and of its sequential part",
            minutes: (6.0, 5.0),
            run: counts::counts,
        },
        Experiment {
            id: "speculate-subepochs",
            title: "a dependence that moves through an epoch, by number of sub-epochs",
            minutes: (0.6, 0.2),
            run: sub_epochs::sub_epochs,
        },
    ],
};
