//! The modelled breakdown: counts of a simulated processor times the costs that probes have measured on the real one.
//!
//! The paper's processor stops at an instruction that stalls, so that its counters give the reason of each lost cycle
//! (section 5.1.1). An out-of-order processor continues, and a machine without counters gives no reasons. Each part is
//! therefore a sum of events times the cost of an event beside other work, as [`overlap`](super::overlap) measures it:
//!
//! | part | definition |
//! | --- | --- |
//! | FE | lines of code that miss the first level, times the cost of a line in straight-line code; those that also miss the second wait for the full difference of the latencies |
//! | GR | data reads that miss the first level, times the exposed part of the latencies of the next levels, beside other work; writes wait in the store buffer |
//! | TLB | pages that are not in the first translation buffer, times the exposed part of the cost of the second or of a walk |
//! | OTH | mispredicted branches: no other work hides them |
//! | NOT | instructions at the issue width of the core |
//!
//! Not modelled: hardware prefetchers, prefetches by the program, reads whose address depends on a read that misses,
//! dependences between instructions, and translations for stores and for instruction fetches.

use super::events::Events;
use super::overlap::ExposedCosts;
use super::probe::Probe;
use crate::reproduce::report::Spread;

/// Names of the rows of Table 3.
pub(crate) const SOURCES: [&str; 4] = ["L1 hit latency", "L2 hit latency", "L3 hit latency", "L3 miss latency"];

/// Nanoseconds of a transaction in each of the paper's categories.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Breakdown {
    pub fe: f64,
    pub gr: f64,
    pub tlb: f64,
    pub oth: f64,
    pub not: f64,
}

impl Breakdown {
    /// Returns the parts with their names, in the order of Table 2.
    pub(crate) fn parts(&self) -> [(&'static str, f64); 5] {
        [("FE", self.fe), ("GR", self.gr), ("TLB", self.tlb), ("OTH", self.oth), ("NOT", self.not)]
    }

    /// Returns the sum of all parts, in nanoseconds.
    pub(crate) fn sum(&self) -> f64 {
        self.parts().iter().map(|(_, ns)| ns).sum()
    }

    /// Returns the relative error of the sum against the measured time.
    pub(crate) fn error(&self, measured_ns: f64) -> f64 {
        (self.sum() - measured_ns).abs() / measured_ns
    }
}

/// Measured costs of events.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Model {
    /// Latencies of caches, translation buffers and branches.
    pub probe: Probe,
    /// Costs beside other work, at the event density of the modelled code.
    pub exposed: ExposedCosts,
}

impl Model {
    /// Returns the median of several measurements, for each cost separately. Without measurements, all costs are 0.
    pub(crate) fn median(of: &[Model]) -> Model {
        let middle = |cost: &dyn Fn(&Model) -> f64| Spread::of(of.iter().map(cost)).map_or(0.0, |spread| spread.mid);
        Model {
            probe: Probe {
                cycle: middle(&|m| m.probe.cycle),
                l1: middle(&|m| m.probe.l1),
                l2: middle(&|m| m.probe.l2),
                l3: middle(&|m| m.probe.l3),
                memory: middle(&|m| m.probe.memory),
                branch: middle(&|m| m.probe.branch),
                second_tlb: middle(&|m| m.probe.second_tlb),
                walk: middle(&|m| m.probe.walk),
            },
            exposed: ExposedCosts {
                instruction: middle(&|m| m.exposed.instruction),
                fetch: middle(&|m| m.exposed.fetch),
                reads: std::array::from_fn(|level| middle(&|m| m.exposed.reads[level])),
                pages: std::array::from_fn(|level| middle(&|m| m.exposed.pages[level])),
            },
        }
    }

    /// Computes the breakdown of the time of these events.
    pub(crate) fn breakdown(&self, events: &Events) -> Breakdown {
        let Probe { l2, l3, branch, .. } = self.probe;
        let ExposedCosts { instruction, fetch, reads: [second, third, memory], pages: [second_tlb, walk] } =
            self.exposed;
        let level = |misses: f64, further: f64| (misses - further).max(0.0);
        let ([i1, i2], [d1, d2, d3]) = (events.fetches, events.misses);
        let [first, both] = events.pages;
        Breakdown {
            fe: i1 * fetch + i2 * (l3 - l2).max(0.0),
            gr: level(d1, d2) * second + level(d2, d3) * third + d3 * memory,
            tlb: level(first, both) * second_tlb + both * walk,
            oth: events.mispredicts * branch,
            not: events.instructions * instruction,
        }
    }

    /// Computes Table 3: the share of each source of data in the time of all reads, without overlap.
    pub(crate) fn sources(&self, events: &Events) -> [(&'static str, f64); 4] {
        let Probe { l1, l2, l3, memory, .. } = self.probe;
        let [d1, d2, d3] = events.misses;
        let ns = [(events.reads - d1) * l1, (d1 - d2) * l2, (d2 - d3) * l3, d3 * memory].map(|ns| ns.max(0.0));
        let all: f64 = ns.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        std::array::from_fn(|i| (SOURCES[i], ns[i] / all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Probe =
        Probe { cycle: 0.3, l1: 1.0, l2: 4.0, l3: 11.0, memory: 101.0, branch: 5.0, second_tlb: 2.0, walk: 20.0 };
    const EXPOSED: ExposedCosts =
        ExposedCosts { instruction: 0.1, fetch: 2.0, reads: [0.5, 2.0, 60.0], pages: [1.0, 12.0] };
    const EVENTS: Events = Events {
        instructions: 1_000.0,
        reads: 300.0,
        fetches: [10.0, 1.0],
        misses: [20.0, 8.0, 2.0],
        pages: [6.0, 1.0],
        mispredicts: 3.0,
    };

    #[test]
    fn events_are_paid_for_once() {
        let breakdown = Model { probe: PROBE, exposed: EXPOSED }.breakdown(&EVENTS);
        let want = Breakdown {
            fe: 10.0 * 2.0 + 7.0,
            gr: 12.0 * 0.5 + 6.0 * 2.0 + 2.0 * 60.0,
            tlb: 5.0 + 12.0,
            oth: 15.0,
            not: 100.0,
        };
        assert_eq!(breakdown, want);
        assert_eq!(breakdown.sum(), want.fe + want.gr + want.tlb + want.oth + want.not);
        assert!((breakdown.error(2.0 * breakdown.sum()) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_middle_is_taken_cost_by_cost() {
        let slow = Model {
            probe: Probe { branch: 9.0, ..PROBE },
            exposed: ExposedCosts { reads: [0.1, 7.0, 60.0], ..EXPOSED },
        };
        let slower = Model { probe: Probe { branch: 11.0, l1: 0.5, ..PROBE }, exposed: EXPOSED };
        let middle = Model::median(&[slower, Model { probe: PROBE, exposed: EXPOSED }, slow]);
        assert_eq!(middle, Model { probe: Probe { branch: 9.0, ..PROBE }, exposed: EXPOSED });
    }

    #[test]
    fn sources_are_shares() {
        let shares = Model { probe: PROBE, exposed: EXPOSED }.sources(&EVENTS);
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((shares[3].1 - 202.0 / (280.0 + 48.0 + 66.0 + 202.0)).abs() < 1e-12);
    }
}
