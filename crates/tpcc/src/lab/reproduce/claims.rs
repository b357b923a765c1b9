//! The claims: names that later tools rely on, what the paper found, and the bar that each is held against.

use super::report::{Bar, Claim, Spread};

/// A claim before it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) paper: Option<f64>,
    pub(crate) bar: Bar,
}

const fn promise(name: &'static str, unit: &'static str, paper: Option<f64>, bar: Bar) -> Promise {
    Promise { name, unit, paper, bar }
}

use Bar::{AtLeast, AtMost};

/// Cost of a hop between team mates.
pub(crate) const HOP_NS: Promise = promise("hop_ns", "ns", None, AtMost(4.5));
/// How many times cheaper than corosensei's.
pub(crate) const HOP_VS_COROSENSEI: Promise = promise("hop_vs_corosensei", "times", None, AtLeast(1.3));
/// How many times cheaper than tokio's `yield_now`.
pub(crate) const HOP_VS_TOKIO: Promise = promise("hop_vs_tokio_yield", "times", None, AtLeast(8.0));
/// Machine code of a switch.
pub(crate) const SWITCH_CODE: Promise = promise("switch_code_bytes", "bytes", Some(76.0), AtMost(64.0));
/// Share of the instruction misses of index fetches that ten threads save.
pub(crate) const FETCH_I1: Promise = promise("index_fetch_i1_reduction", "share", Some(0.89), AtLeast(0.85));
/// Instruction misses that each further thread adds.
pub(crate) const FETCH_EXTRA: Promise = promise("index_fetch_extra_misses", "misses", Some(33.0), AtMost(10.0));
/// Share of Payment's instruction misses saved.
pub(crate) const PAYMENT_I1: Promise = promise("payment_i1_reduction", "share", Some(0.60), AtLeast(0.60));
/// Share of the mix's instruction misses saved.
pub(crate) const MIX_I1: Promise = promise("mix_i1_reduction", "share", Some(0.56), AtLeast(0.56));
/// Share of Payment's mispredicted branches saved.
pub(crate) const PAYMENT_MISPREDICTS: Promise =
    promise("payment_mispredict_reduction", "share", Some(0.41), AtLeast(0.30));
/// Share of instructions that the points add.
pub(crate) const INSTRUCTIONS: Promise = promise("instructions_added", "share", Some(0.017), AtMost(0.03));
/// Throughput against threads without group prefetch, 20 warehouses.
pub(crate) const VS_THREADS_20: Promise = promise("steps_vs_threads_20wh", "times", None, AtLeast(1.5));
/// Throughput against threads with group prefetch, 20 warehouses.
pub(crate) const VS_PREFETCH_20: Promise = promise("steps_vs_prefetch_20wh", "times", None, AtLeast(1.15));
/// Throughput against threads with group prefetch, 1 warehouse.
pub(crate) const VS_THREADS_1: Promise = promise("steps_vs_threads_1wh", "times", None, AtLeast(1.0));
/// Throughput at 20 warehouses against that at 1.
pub(crate) const TWENTY_VS_ONE: Promise = promise("steps_20wh_vs_1wh", "times", None, AtLeast(0.85));
/// Lookups in groups against lookups one by one.
pub(crate) const LOOKUP: Promise = promise("lookup_group_speedup", "times", None, AtLeast(2.5));
/// Throughput lost by teams of one.
pub(crate) const TEAM_OF_ONE: Promise = promise("team_size_1_cost", "share", None, AtMost(0.03));
/// Payment's throughput, points on against off.
pub(crate) const PAYMENT_TIME: Promise = promise("payment_speedup_time", "times", Some(1.16), AtLeast(1.1));
/// The mix's throughput, points on against off.
pub(crate) const MIX_TIME: Promise = promise("mix_speedup_time", "times", None, AtLeast(1.1));
/// Throughput of two workers against one.
pub(crate) const TWO_WORKERS: Promise = promise("steps_two_workers_vs_one", "times", None, AtLeast(1.7));

/// In-order part of an epoch, for each item of a long New-Order.
pub(crate) const IN_ORDER: Promise = promise("in_order_us_per_item", "us", None, AtMost(0.25));
/// Work done again after a violation late in an epoch, against a restart.
pub(crate) const REDONE: Promise = promise("redone_subepochs_vs_restart", "share", None, AtMost(0.60));
/// Simulated against measured time on one processor.
pub(crate) const ERROR_P1: Promise = promise("simulator_error_p1", "share", None, AtMost(0.10));
/// Simulated against measured time on two.
pub(crate) const ERROR_P2: Promise = promise("simulator_error_p2", "share", None, AtMost(0.10));
/// Time on two processors, measured, and on four, simulated, against the sequential time: New-Order, the long one, Delivery by
/// districts, Stock-Level. Of the paper only the last one's value on four is told in its text.
pub(crate) const ON_PROCESSORS: [(Promise, Promise); 4] = [
    (promise("p2_new_order", "times", None, AtMost(0.55)), promise("p4_new_order", "times", None, AtMost(0.54))),
    (
        promise("p2_new_order_150", "times", None, AtMost(0.42)),
        promise("p4_new_order_150", "times", None, AtMost(0.35)),
    ),
    (
        promise("p2_delivery_outer", "times", None, AtMost(0.66)),
        promise("p4_delivery_outer", "times", None, AtMost(0.45)),
    ),
    (
        promise("p2_stock_level", "times", None, AtMost(0.55)),
        promise("p4_stock_level", "times", Some(0.40), AtMost(0.40)),
    ),
];

/// Modelled against measured time of a transaction: the largest error of New-Order, Payment and the mix.
pub(crate) const MODELLED: Promise = promise("modelled_breakdown_error", "share", None, AtMost(0.25));

/// Coherence model against reads of one page by two threads: the largest error of the three kinds of latch.
pub(crate) const COHERENCE_ERROR_P2: Promise = promise("coherence_model_error_p2", "share", None, AtMost(0.20));
/// Reads of one page by two threads: superlatches against plain ones.
pub(crate) const SUPER_READS_2: Promise = promise("super_vs_plain_reads_2_threads", "times", None, AtLeast(1.5));
/// An uncontended read under a promoted latch, by that under a plain one.
pub(crate) const SUPER_UNCONTENDED: Promise = promise("super_uncontended_read_cost", "times", None, AtMost(1.3));
/// Share of the modelled waits for lines that the ten worst lines cause under plain latches, 32 cores.
pub(crate) const TOP_TEN_LINES: Promise = promise("top_ten_lines_share_p32", "share", None, AtLeast(0.17));
/// Plain latches against superlatches on 32 modelled cores: lines from other caches, and those that are taken away.
pub(crate) const PLAIN_TRANSFERS: Promise = promise("plain_vs_super_transfers_p32", "times", Some(1.10), AtLeast(1.10));
pub(crate) const PLAIN_INVALIDATIONS: Promise =
    promise("plain_vs_super_invalidations_p32", "times", Some(1.52), AtLeast(1.52));
/// Instructions of a transaction under plain latches, by those under superlatches.
pub(crate) const PLAIN_INSTRUCTIONS: Promise = promise("plain_vs_super_instructions", "times", Some(0.95), AtMost(1.0));
/// Throughput with everything on against that without one thing: the inverse of the paper's.
pub(crate) const LARGE_PAGES_VS_SMALL: Promise =
    promise("large_vs_small_pages", "times", Some(1.0 / 0.91), AtLeast(1.02));
pub(crate) const SUPER_VS_PLAIN: Promise = promise("super_vs_plain_mix", "times", Some(1.0 / 0.91), AtLeast(0.97));
pub(crate) const CLIENT_VS_NONE: Promise =
    promise("client_partitioned_vs_not", "times", Some(1.0 / 0.84), AtLeast(1.05));
pub(crate) const SERVER_VS_NONE: Promise =
    promise("server_partitioned_vs_not", "times", Some(1.0 / 0.94), AtLeast(0.98));
pub(crate) const FEEDBACK_VS_NONE: Promise =
    promise("profile_feedback_vs_none", "times", Some(1.0 / 0.80), AtLeast(1.06));
/// Instructions of a transaction without profile feedback, by those with it.
pub(crate) const FEEDBACK_INSTRUCTIONS: Promise =
    promise("no_feedback_vs_feedback_instructions", "times", Some(1.21), AtLeast(1.0 / 0.94));
/// Pages that the first translation buffer has not, in small pages by in large ones, counted.
pub(crate) const SMALL_PAGES_TLB: Promise = promise("small_vs_large_pages_dtlb", "times", Some(2.25), AtLeast(1.0));

/// Throughput of itas against tas, reads, each group's set as large as the share of the L3 cache that is to be had.
pub(crate) const ITAS_VS_TAS: Promise = promise("itas_vs_tas_at_l3_share", "times", None, AtLeast(1.15));
/// Throughput of the automatic choice against the best fixed policy, in the worst cell of the map.
pub(crate) const AUTO: Promise = promise("auto_vs_best_worst_cell", "times", None, AtLeast(0.97));
/// Throughput of a tuned runtime against the best fixed agg_bonus.
pub(crate) const TUNER: Promise = promise("tuner_vs_best_fixed_bonus", "times", None, AtLeast(0.95));
/// Time until a tuned runtime has found its parameters again after the working sets have changed.
pub(crate) const RECONVERGES: Promise = promise("tuner_reconverges_ms", "ms", None, AtMost(200.0));
/// A scheduling decision, 64 groups of 8 fibers.
pub(crate) const PICK_NEXT: Promise = promise("pick_next_ns", "ns", None, AtMost(60.0));
/// Simulated against measured throughput on two cores.
pub(crate) const ITAS_ERROR_P2: Promise = promise("simulator_error_p2", "share", None, AtMost(0.15));
/// Throughput of loop programs beside databases, against fair.
pub(crate) const BACKGROUND: Promise = promise("background_vs_fair", "times", None, AtLeast(0.98));
/// The largest part of its bound that a wait reached.
pub(crate) const LONGEST_WAIT: Promise = promise("longest_wait_vs_bound", "share", None, AtMost(1.0));

/// The build with profile feedback against the plain release.
pub(crate) const PGO_VS_PLAIN: Promise = promise("pgo_vs_plain_1wh", "times", Some(1.2), AtLeast(1.06));
/// The build with profile feedback and a layout by it against the plain release.
pub(crate) const PGO_LAYOUT_VS_PLAIN: Promise = promise("pgo_and_layout_vs_plain_1wh", "times", None, AtLeast(1.07));
/// Every switch on against every switch off.
pub(crate) const ALL_ON_VS_OFF: Promise = promise("all_on_vs_all_off", "times", Some(1.4), AtLeast(1.35));

/// Shares of a New-Order's instructions that are for locks, latches, the log and the buffer pool: at most the paper's.
pub(crate) const GLASS_NEW_ORDER: [Promise; 4] = [
    promise("new_order_locks", "share", Some(0.163), AtMost(0.163)),
    promise("new_order_latches", "share", Some(0.142), AtMost(0.142)),
    promise("new_order_log", "share", Some(0.119), AtMost(0.119)),
    promise("new_order_pool", "share", Some(0.346), AtMost(0.346)),
];
/// What is left of a New-Order's instructions when everything is taken away: at least the paper's.
pub(crate) const GLASS_LEFT_NEW_ORDER: Promise = promise("new_order_left", "share", Some(0.068), AtLeast(0.068));
/// The same of Payment, whose figures the paper shows without numbers that can be cited: New-Order's bars.
pub(crate) const GLASS_PAYMENT: [Promise; 4] = [
    promise("payment_locks", "share", None, AtMost(0.163)),
    promise("payment_latches", "share", None, AtMost(0.142)),
    promise("payment_log", "share", None, AtMost(0.119)),
    promise("payment_pool", "share", None, AtMost(0.346)),
];
pub(crate) const GLASS_LEFT_PAYMENT: Promise = promise("payment_left", "share", None, AtLeast(0.068));

impl Promise {
    /// The claim with an exact value.
    pub(crate) fn found(self, value: f64, note: impl Into<String>) -> Claim {
        self.claim(Some(value), note.into())
    }

    /// The claim with a median; the spread goes into the note.
    pub(crate) fn measured(self, value: Option<Spread>, note: impl Into<String>) -> Claim {
        let mut note = note.into();
        match value {
            Some(spread) => {
                note = format!("{:.3} to {:.3}; {note}", spread.low, spread.high);
                self.claim(Some(spread.mid), note)
            }
            None => self.missing(note),
        }
    }

    /// The claim that could not be measured, and why.
    pub(crate) fn missing(self, why: impl Into<String>) -> Claim {
        self.claim(None, why.into())
    }

    fn claim(self, value: Option<f64>, note: String) -> Claim {
        let bar = self.bar.in_words();
        let value = value.filter(|value| value.is_finite());
        Claim {
            name: self.name.to_owned(),
            paper_value: self.paper,
            value,
            unit: self.unit.to_owned(),
            holds: value.map(|value| self.bar.holds(value)),
            note: if note.is_empty() { format!("bar {bar}") } else { format!("bar {bar}; {note}") },
            bar: self.bar,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_hold_at_their_bar() {
        assert_eq!(HOP_NS.found(4.5, "").holds, Some(true));
        assert_eq!(HOP_NS.found(4.6, "").holds, Some(false));
        assert_eq!(LOOKUP.found(2.5, "").holds, Some(true));
        let missing = LOOKUP.missing("no memory");
        assert_eq!((missing.holds, missing.value), (None, None));
        assert_eq!(missing.note, "bar >= 2.5; no memory");
        assert_eq!(LOOKUP.found(f64::NAN, "").holds, None, "a ratio of nothing is nothing");
        let spread = Spread { mid: 2.6, low: 2.4, high: 2.7 };
        assert_eq!(LOOKUP.measured(Some(spread), "groups of 16").note, "bar >= 2.5; 2.400 to 2.700; groups of 16");
    }
}
