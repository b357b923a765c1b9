//! S. Harizopoulos and A. Ailamaki, "STEPS Towards Cache-Resident Transaction Processing", VLDB 2004.
//!
//! The paper compares Shore with and without switches on processors with 16 and 64 KiB of instruction cache. Here the same
//! binary, with the same fibers, runs with points and without. Cachegrind counts the events of the caches; times are from
//! interleaved runs without Cachegrind. Beyond the paper: prefetch-and-switch on data misses (`steps-prefetch`).

mod fetch;
mod lookup;
mod operations;
mod prefetch;
mod switch;
mod tpcc;

use super::{Experiment, Paper};

/// The STEPS paper, and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "steps",
    title: "Harizopoulos and Ailamaki, STEPS Towards Cache-Resident Transaction Processing, VLDB 2004",
    experiments: &[
        Experiment {
            id: "steps-fig2",
            title: "instruction misses of index fetches by number of threads",
            minutes: (1.5, 1.2),
            run: fetch::fig2,
        },
        Experiment {
            id: "steps-fig5",
            title: "the same from a cold and from a warm cache",
            minutes: (1.5, 0.7),
            run: fetch::fig5,
        },
        Experiment {
            id: "steps-fig8",
            title: "index fetches of ten threads, relative to no switching",
            minutes: (0.1, 0.1),
            run: fetch::fig8,
        },
        Experiment {
            id: "steps-fig9",
            title: "index fetches by size and associativity of the cache",
            minutes: (3.0, 1.0),
            run: fetch::fig9,
        },
        Experiment {
            id: "steps-table2",
            title: "code that executions of an operation have in common",
            minutes: (0.5, 0.3),
            run: operations::table2,
        },
        Experiment {
            id: "steps-fig10",
            title: "Payment alone, relative to no switching",
            minutes: (8.0, 2.3),
            run: tpcc::fig10,
        },
        Experiment {
            id: "steps-table4",
            title: "team sizes by operation in Payment",
            minutes: (1.0, 0.3),
            run: tpcc::table4,
        },
        Experiment {
            id: "steps-fig11",
            title: "the mix without Delivery, relative to no switching",
            minutes: (6.0, 2.3),
            run: tpcc::fig11,
        },
        Experiment {
            id: "steps-prefetch",
            title: "throughput by warehouses: threads, group prefetch, points",
            minutes: (15.0, 2.8),
            run: prefetch::sweep,
        },
        Experiment {
            id: "steps-lookup",
            title: "lookups in a large table, announced in groups",
            minutes: (0.8, 0.5),
            run: lookup::lookup,
        },
        Experiment {
            id: "steps-switch",
            title: "cost of a switch, beside corosensei and tokio",
            minutes: (0.7, 0.3),
            run: switch::switch,
        },
    ],
};
