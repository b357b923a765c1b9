//! The modelled breakdown: counts of a simulated processor times the costs that a probe has measured on the real one.
//!
//! The paper's processor stops where an instruction stalls, so its counters tell the reason of each lost cycle (section
//! 5.1.1). An out-of-order processor goes on, and a machine without counters tells nothing. So each part is a sum of events
//! times what an event costs when nothing hides it:
//!
//! | part | is |
//! | --- | --- |
//! | FE | instruction fetches that miss the first level, times what the next ones cost more |
//! | GR | reads of data that miss the first level, times what the next ones cost more; writes wait in the store buffer |
//! | TLB | pages that the first translation buffer has not, times the second one's cost or a walk |
//! | OTH | branches that are predicted wrong |
//! | NOT | instructions, times what one takes where everything is in the first level |
//!
//! What one instruction takes is not measured on the workload itself: it is what is left of an index fetch, whose counts and
//! time are known too (see [`Model::calibrated`]).

use super::probe::Probe;

/// Events of a transaction, counted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Events {
    pub(super) instructions: f64,
    /// Reads of data.
    pub(super) reads: f64,
    /// Fetches of instructions that miss the first level, and the second.
    pub(super) fetches: [f64; 2],
    /// Reads of data that miss the first level, the second, the third.
    pub(super) misses: [f64; 3],
    /// Pages that the first translation buffer has not, and neither.
    pub(super) pages: [f64; 2],
    pub(super) mispredicts: f64,
}

/// Nanoseconds of a transaction by the paper's categories.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Breakdown {
    pub(super) fe: f64,
    pub(super) gr: f64,
    pub(super) tlb: f64,
    pub(super) oth: f64,
    pub(super) not: f64,
}

impl Breakdown {
    /// By name, in the order of Table 2.
    pub(super) fn parts(&self) -> [(&'static str, f64); 5] {
        [("FE", self.fe), ("GR", self.gr), ("TLB", self.tlb), ("OTH", self.oth), ("NOT", self.not)]
    }

    /// All of it.
    pub(super) fn sum(&self) -> f64 {
        self.parts().iter().map(|(_, ns)| ns).sum()
    }

    /// By how much of the measured time the sum is wrong.
    pub(super) fn error(&self, measured_ns: f64) -> f64 {
        (self.sum() - measured_ns).abs() / measured_ns
    }
}

/// Costs of events.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Model {
    pub(super) probe: Probe,
    /// What an instruction takes where everything is in the first level, in nanoseconds.
    pub(super) instruction: f64,
}

impl Model {
    /// The model whose instructions cost what is left of the time of some code when its events are paid for.
    pub(super) fn calibrated(probe: Probe, events: &Events, measured_ns: f64) -> Option<Model> {
        let stalls = Model { probe, instruction: 0.0 }.breakdown(events).sum();
        let instruction = (measured_ns - stalls) / events.instructions;
        (instruction > 0.0 && instruction.is_finite()).then_some(Model { probe, instruction })
    }

    /// Where the time of these events goes.
    pub(super) fn breakdown(&self, events: &Events) -> Breakdown {
        let Probe { l1, l2, l3, memory, branch, second_tlb, walk, .. } = self.probe;
        let level = |misses: f64, further: f64| (misses - further).max(0.0);
        let ([i1, i2], [d1, d2, d3]) = (events.fetches, events.misses);
        let [first, both] = events.pages;
        Breakdown {
            fe: level(i1, i2) * (l2 - l1) + i2 * (l3 - l1),
            gr: level(d1, d2) * (l2 - l1) + level(d2, d3) * (l3 - l1) + d3 * (memory - l1),
            tlb: level(first, both) * second_tlb + both * walk,
            oth: events.mispredicts * branch,
            not: events.instructions * self.instruction,
        }
    }

    /// Table 3: where data comes from, as shares of the time of all reads if none hid another.
    pub(super) fn sources(&self, events: &Events) -> [(&'static str, f64); 4] {
        let Probe { l1, l2, l3, memory, .. } = self.probe;
        let [d1, d2, d3] = events.misses;
        let ns = [(events.reads - d1) * l1, (d1 - d2) * l2, (d2 - d3) * l3, d3 * memory].map(|ns| ns.max(0.0));
        let all: f64 = ns.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let names = ["L1 hit latency", "L2 hit latency", "L3 hit latency", "L3 miss latency"];
        std::array::from_fn(|i| (names[i], ns[i] / all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Probe =
        Probe { cycle: 0.3, l1: 1.0, l2: 4.0, l3: 11.0, memory: 101.0, branch: 5.0, second_tlb: 2.0, walk: 20.0 };
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
        let model = Model { probe: PROBE, instruction: 0.1 };
        let breakdown = model.breakdown(&EVENTS);
        let want = Breakdown {
            fe: 9.0 * 3.0 + 10.0,
            gr: 12.0 * 3.0 + 6.0 * 10.0 + 2.0 * 100.0,
            tlb: 5.0 * 2.0 + 20.0,
            oth: 15.0,
            not: 100.0,
        };
        assert_eq!(breakdown, want);
        assert_eq!(breakdown.sum(), want.fe + want.gr + want.tlb + want.oth + want.not);
        assert!((breakdown.error(2.0 * breakdown.sum()) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn an_instruction_costs_what_is_left() {
        let model = Model::calibrated(PROBE, &EVENTS, 678.0).unwrap();
        assert!((model.breakdown(&EVENTS).sum() - 678.0).abs() < 1e-9);
        assert_eq!(Model::calibrated(PROBE, &EVENTS, 300.0), None, "less than its misses take");
    }

    #[test]
    fn sources_are_shares() {
        let shares = Model { probe: PROBE, instruction: 0.1 }.sources(&EVENTS);
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((shares[3].1 - 202.0 / (280.0 + 48.0 + 66.0 + 202.0)).abs() < 1e-12);
    }
}
