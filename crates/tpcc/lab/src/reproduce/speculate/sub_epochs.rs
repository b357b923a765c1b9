//! Work that an epoch repeats after a violation, by position of the dependence and number of sub-epochs (figures 10 and 11).

use std::collections::BTreeMap;

use crate::latency::dependence::{self, DependenceCost, Numbers, READS};
use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Numbers of sub-epochs. With 1, a violation restarts the epoch.
const SUB_EPOCHS: [usize; 5] = [1, 2, 4, 8, 16];
/// Positions of the dependence: number of quarters of an epoch before it.
const QUARTERS: [usize; 4] = [0, 1, 2, 3];
/// Number of sub-epochs in the paper.
const PAPER_SUB_EPOCHS: usize = 8;

/// Label of a cost, and function that returns its value.
type CostLabel = (&'static str, fn(&DependenceCost) -> f64);

/// Measures the cost of a dependence at several positions of an epoch.
pub(super) fn sub_epochs(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (rounds, loops) = if lab.quick { (5, 150) } else { (9, 600) };
    let numbers = Numbers::default();
    let mut costs: BTreeMap<(usize, usize), Vec<DependenceCost>> = BTreeMap::new();
    for round in 1..=rounds {
        lab.say(&format!("loops with a dependence, round {round} of {rounds}"));
        for quarter in QUARTERS {
            for number in SUB_EPOCHS {
                let cost = dependence::run(&numbers, quarter * READS / 4, number, loops, SEED + round)?;
                costs.entry((number, quarter)).or_default().push(cost);
            }
        }
    }
    let spread = |number: usize, quarter: usize, of: fn(&DependenceCost) -> f64| {
        Spread::of(costs.get(&(number, quarter)).into_iter().flatten().map(of))
    };
    let labels: [CostLabel; 2] = [
        ("us done again for each violation", |cost| cost.rewound_us),
        ("us of a loop of eight epochs", |cost| cost.loop_us),
    ];
    for (label, of) in labels {
        for number in SUB_EPOCHS {
            let name = format!("speculate-subepochs {number}");
            let mut series = Series::new(name, "share of the epoch before the dependence", label);
            QUARTERS.iter().for_each(|&quarter| series.push(quarter as f64 / 4.0, spread(number, quarter, of)));
            findings.series.push(series);
        }
    }
    let rewound = |number: usize| costs.get(&(number, 3)).into_iter().flatten().map(|cost| cost.rewound_us);
    let ratio = Spread::of(rewound(PAPER_SUB_EPOCHS).zip(rewound(1)).map(|(with, without)| with / without));
    findings
        .add_claim(claims::REDONE.measured(ratio, "eight sub-epochs against one, the dependence after three quarters"));
    Ok(())
}
