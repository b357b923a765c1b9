//! Claims: their names, on which later tools rely, and the statements and values of the papers. The verdict on a claim
//! follows from [`super::verdict`]. `docs/reproduction` lists the figures, tables and sentences of five papers with their
//! claims, or with the reason of their absence.

use super::report::{Claim, Spread};
use super::verdict::Condition::{self, AsLittleAs, AtMost, Bound, KeepsUp, LessThan, MoreThan};
use super::verdict::{ClaimTerms, Judgement};

/// Specification of a claim, without a measured value.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimSpec {
    pub name: &'static str,
    pub unit: &'static str,
    pub paper: Option<f64>,
    /// Condition on the value.
    condition: Condition,
    /// Figure, table or section of the paper; `None` for a claim of this project.
    pub place: Option<&'static str>,
    /// The claim as a sentence.
    pub says: Option<&'static str>,
}

const fn spec(name: &'static str, unit: &'static str, paper: Option<f64>, condition: Condition) -> ClaimSpec {
    ClaimSpec { name, unit, paper, place: None, says: None, condition }
}

/// Creates a claim that a cost is as small as in the paper.
const fn small_cost(name: &'static str, unit: &'static str, paper: f64) -> ClaimSpec {
    spec(name, unit, Some(paper), AsLittleAs(paper))
}

const fn vs_best(name: &'static str, bar: f64) -> ClaimSpec {
    spec(name, "times", None, AtMost(bar))
}

/// Cost of a hop between members of a team.
pub(super) const HOP_NS: ClaimSpec = spec("hop_ns", "ns", None, AtMost(4.5))
    .of_project("a hop between members of a team costs less than a function call that misses a cache");
/// Cost of a switch of corosensei, relative to a hop.
pub(super) const HOP_VS_COROSENSEI: ClaimSpec = spec("hop_vs_corosensei", "times", None, MoreThan(1.0))
    .of_project("a hop is cheaper than a switch of the library corosensei");
/// Cost of tokio's `yield_now`, relative to a hop.
pub(super) const HOP_VS_TOKIO: ClaimSpec = spec("hop_vs_tokio_yield", "times", None, MoreThan(1.0))
    .of_project("a hop is cheaper than a yield of the library tokio");
/// Size of the machine code of a switch.
pub(super) const SWITCH_CODE: ClaimSpec = small_cost("switch_code_bytes", "bytes", 76.0)
    .of_paper("Section 3.1.1", "the code of a switch has 76 bytes, so that it stays in the cache");
/// Share of the instruction misses of index fetches that ten threads together save, in a cache of at most half of the code.
/// The Pentium III of the paper has a cache of a third of the code.
pub(super) const FETCH_I1: ClaimSpec = spec("index_fetch_i1_reduction", "share", Some(0.66), MoreThan(0.0))
    .of_paper("Figure 8", "ten threads that fetch together save 66% of the instruction misses on the Pentium III");
/// Number of additional instruction misses of each further thread. The paper's 33 misses belong to an operation with another
/// amount of code: see [`FETCH_PER_THREAD`].
pub(super) const FETCH_EXTRA: ClaimSpec = spec("index_fetch_extra_misses", "misses", None, AtMost(10.0))
    .of_project("each further thread adds few instruction misses");
/// Instruction misses that each further thread adds, relative to a thread that does not switch, after other code.
pub(super) const FETCH_PER_THREAD: ClaimSpec = small_cost("steps_fetch_misses_per_thread", "share", 0.033)
    .of_paper("Abstract, Figure 5", "each further thread adds 3.3% of the instruction misses that it has alone");
/// Additional instructions of index fetches with ten threads, as a share.
pub(super) const FIG8_INSTRUCTIONS: ClaimSpec = small_cost("steps_fig8_instructions", "share", 0.017)
    .of_paper("Figure 8", "ten threads that fetch together execute 1.7% more instructions");
/// Additional branches of index fetches with ten threads, as a share.
pub(super) const FIG8_BRANCHES: ClaimSpec = small_cost("steps_fig8_branches", "share", 0.013)
    .of_paper("Figure 8", "ten threads that fetch together execute 1.3% more branches");
/// Share of the mispredicted branches of index fetches that ten threads together save.
pub(super) const FIG8_MISPREDICTIONS: ClaimSpec = spec("steps_fig8_mispredictions", "share", Some(0.64), MoreThan(0.0))
    .of_paper("Figure 8", "ten threads that fetch together save 64% of the mispredicted branches");
/// Additional misses of the first-level data cache of index fetches with ten threads, as a share.
pub(super) const FIG8_L1D: ClaimSpec = small_cost("steps_fig8_l1d_misses", "share", 1.09)
    .of_paper("Figure 8", "ten threads that fetch together have 109% more data misses on the Pentium III");
/// Speed of index fetches with ten threads, relative to the same threads without switches.
pub(super) const FIG8_SPEED: ClaimSpec = spec("steps_fig8_speed", "times", Some(1.24), MoreThan(1.0))
    .of_paper("Figure 8", "ten threads that fetch together are 24% faster on the Pentium III");
/// Share of Payment's instruction misses that context-switch points save.
pub(super) const PAYMENT_I1: ClaimSpec = spec("payment_i1_reduction", "share", Some(0.60), MoreThan(0.0))
    .of_paper("Figure 10", "Payment has 60% fewer instruction misses");
/// Share of the mix's instruction misses that context-switch points save.
pub(super) const MIX_I1: ClaimSpec = spec("mix_i1_reduction", "share", Some(0.56), MoreThan(0.0))
    .of_paper("Figure 11", "the mix without Delivery has 56% fewer instruction misses");
/// Share of Payment's mispredicted branches that context-switch points save.
pub(super) const PAYMENT_MISPREDICTS: ClaimSpec =
    spec("payment_mispredict_reduction", "share", Some(0.41), MoreThan(0.0))
        .of_paper("Figure 10", "Payment has 41% fewer mispredicted branches");
/// Additional instructions of Payment with context-switch points, as a share. The paper's number is that of index fetches:
/// [`FIG8_INSTRUCTIONS`].
pub(super) const INSTRUCTIONS: ClaimSpec = spec("instructions_added", "share", None, AtMost(0.03))
    .of_project("context-switch points add few instructions to Payment");
/// Throughput of STEPS relative to threads without group prefetch, with 20 warehouses.
pub(super) const VS_THREADS_20: ClaimSpec = spec("steps_vs_threads_20wh", "times", None, MoreThan(1.0))
    .of_project("at 20 warehouses teams are faster than threads that announce nothing");
/// Throughput of STEPS relative to threads with group prefetch, with 20 warehouses.
pub(super) const VS_PREFETCH_20: ClaimSpec = spec("steps_vs_prefetch_20wh", "times", None, MoreThan(1.0))
    .of_project("at 20 warehouses teams are faster than threads that announce groups of rows");
/// Throughput of STEPS relative to threads with group prefetch, with 1 warehouse.
pub(super) const VS_THREADS_1: ClaimSpec = spec("steps_vs_threads_1wh", "times", None, KeepsUp(1.0))
    .of_project("at 1 warehouse teams are no slower than threads");
/// Throughput of STEPS with 20 warehouses, relative to 1 warehouse.
pub(super) const TWENTY_VS_ONE: ClaimSpec = spec("steps_20wh_vs_1wh", "times", None, KeepsUp(0.85))
    .of_project("with teams 20 warehouses are almost as fast as 1, whose data fits the caches better");
/// Speed of lookups in groups, relative to single lookups.
pub(super) const LOOKUP: ClaimSpec = spec("lookup_group_speedup", "times", None, MoreThan(1.0))
    .of_project("lookups that are announced in groups are faster than lookups one by one");
/// Share of throughput that teams of one lose.
pub(super) const TEAM_OF_ONE: ClaimSpec =
    spec("team_size_1_cost", "share", None, AtMost(0.03)).of_project("a team of one costs no more than threads");
/// Throughput of Payment with context-switch points, relative to Payment without them.
pub(super) const PAYMENT_TIME: ClaimSpec =
    spec("payment_speedup_time", "times", Some(1.16), MoreThan(1.0)).of_paper("Figure 10", "Payment is 16% faster");
/// Throughput of the mix with context-switch points, relative to the mix without them.
pub(super) const MIX_TIME: ClaimSpec = spec("mix_speedup_time", "times", None, MoreThan(1.0))
    .of_paper("Figure 11", "the mix without Delivery is faster; the figure gives no number in the text");
/// Throughput of two workers, relative to one worker.
pub(super) const TWO_WORKERS: ClaimSpec = spec("steps_two_workers_vs_one", "times", None, MoreThan(1.0))
    .of_project("two workers with teams do more than one");

/// Time of the in-order part of an epoch for each item of a long New-Order.
pub(super) const IN_ORDER: ClaimSpec = spec("in_order_us_per_item", "us", None, AtMost(0.25))
    .of_project("the part of an epoch that must run in order is short");
/// Work repeated after a violation late in an epoch with sub-epochs, relative to a restart of the epoch.
pub(super) const REDONE: ClaimSpec = spec("redone_subepochs_vs_restart", "times", None, AtMost(0.5))
    .of_paper("Section 2.5", "with sub-epochs a late violation rewinds little work");
/// Relative error of the simulated time on one processor.
pub(super) const ERROR_P1: ClaimSpec =
    spec("simulator_error_p1", "share", None, AtMost(0.10)).of_project("the simulator is right about one processor");
/// Relative error of the simulated time on two processors.
pub(super) const ERROR_P2: ClaimSpec =
    spec("simulator_error_p2", "share", None, AtMost(0.10)).of_project("the simulator is right about two processors");
/// Least and greatest share of the time that speculation on four processors saves, over the variants of the three
/// transactions for which the paper gives this range, simulated.
pub(super) const FIG19_LEAST: ClaimSpec = spec("speculate_fig19_least_reduction", "share", Some(0.46), MoreThan(0.0))
    .of_paper(
        "Section 5.3, Figure 19",
        "on four processors the transactions that gain take 46 to 66% less time: the least",
    );
pub(super) const FIG19_GREATEST: ClaimSpec =
    spec("speculate_fig19_greatest_reduction", "share", Some(0.66), MoreThan(0.0)).of_paper(
        "Section 5.3, Figure 19",
        "on four processors the transactions that gain take 46 to 66% less time: the most",
    );
/// Greatest additional time of speculative code on one processor, as a share, over all transactions.
pub(super) const FIG19_TLS_SEQ: ClaimSpec = small_cost("speculate_fig19_tls_seq_overhead", "share", 0.11)
    .of_paper("Section 5.3, Figure 19", "speculative code on one processor takes at most 11% longer");
/// Measured time on two processors and simulated time on four, relative to the sequential time: New-Order, the long
/// New-Order, Delivery by districts, Stock-Level. All times are of code that announces groups of rows. Of single bars, the
/// text of the paper gives only the last value on four processors.
pub(super) const ON_PROCESSORS: [(ClaimSpec, ClaimSpec); 4] = [
    (
        spec("p2_new_order", "times", None, LessThan(1.0))
            .of_paper("Figure 20", "New-Order takes less time on two processors"),
        spec("p4_new_order", "times", None, LessThan(1.0))
            .of_paper("Figure 19", "New-Order takes less time on four processors"),
    ),
    (
        spec("p2_new_order_150", "times", None, LessThan(1.0))
            .of_paper("Figure 20", "a New-Order of 50 to 150 items takes less time on two processors"),
        spec("p4_new_order_150", "times", None, LessThan(1.0))
            .of_paper("Figure 19", "a New-Order of 50 to 150 items takes less time on four processors"),
    ),
    (
        spec("p2_delivery_outer", "times", None, LessThan(1.0))
            .of_paper("Figure 20", "Delivery, a district an epoch, takes less time on two processors"),
        spec("p4_delivery_outer", "times", None, LessThan(1.0))
            .of_paper("Figure 19", "Delivery, a district an epoch, takes less time on four processors"),
    ),
    (
        spec("p2_stock_level", "times", None, LessThan(1.0))
            .of_paper("Figure 20", "Stock-Level takes less time on two processors"),
        spec("p4_stock_level", "times", Some(0.47), LessThan(1.0)).of_paper(
            "Section 5.5",
            "with all changes to the engine Stock-Level takes 0.47 of its time on four processors",
        ),
    ),
];

/// Claims on a loop in epochs, all relative to one core that announces groups of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct VsBest {
    /// Instructions of the transaction with its epochs, on one thread.
    pub instructions: ClaimSpec,
    /// Instructions of the part of the transaction that the order of the epochs makes sequential.
    pub in_order: ClaimSpec,
    /// Simulated time on four processors.
    pub four_processors: ClaimSpec,
}

/// The claims of New-Order with 50 to 150 items, Delivery by districts, and Stock-Level.
pub(super) const VS_BEST: [VsBest; 3] = [
    VsBest {
        instructions: vs_best("instructions_vs_best_new_order_150", 1.20).of_project(
            "epochs of a New-Order of 50 to 150 items execute few instructions more than one core at its best",
        ),
        in_order: vs_best("in_order_vs_best_new_order_150", 0.30)
            .of_project("besides inserting its rows, little of a New-Order of 50 to 150 items has to run in order"),
        four_processors: vs_best("p4_vs_best_new_order_150", 0.50)
            .of_project("a New-Order of 50 to 150 items takes half its best time on four processors"),
    },
    VsBest {
        instructions: vs_best("instructions_vs_best_delivery_outer", 1.20)
            .of_project("epochs of a Delivery execute few instructions more than one core at its best"),
        in_order: vs_best("in_order_vs_best_delivery_outer", 0.10)
            .of_project("little of a Delivery has to run in order"),
        four_processors: vs_best("p4_vs_best_delivery_outer", 0.50)
            .of_project("a Delivery takes half its best time on four processors"),
    },
    VsBest {
        instructions: vs_best("instructions_vs_best_stock_level", 1.20)
            .of_project("epochs of a Stock-Level execute few instructions more than one core at its best"),
        in_order: vs_best("in_order_vs_best_stock_level", 0.10)
            .of_project("little of a Stock-Level has to run in order"),
        four_processors: vs_best("p4_vs_best_stock_level", 0.50)
            .of_project("a Stock-Level takes half its best time on four processors"),
    },
];

/// Relative error of the modelled time of a transaction: the largest error of New-Order, Payment and the mix.
pub(super) const MODELLED: ClaimSpec = spec("modelled_breakdown_error", "share", None, AtMost(0.25))
    .of_project("the modelled parts add up to the measured time");

/// Relative error of the coherence model for reads of one page by two threads: the largest error of the three kinds of
/// latches.
pub(super) const COHERENCE_ERROR_P2: ClaimSpec = spec("coherence_model_error_p2", "share", None, AtMost(0.20))
    .of_project("the coherence model is right about two cores");
/// Reads of one page by two threads: speed under superlatches, relative to plain latches.
pub(super) const SUPER_READS_2: ClaimSpec = spec("super_vs_plain_reads_2_threads", "times", None, MoreThan(1.0))
    .of_project("two threads read one page faster under a superlatch than under a plain latch");
/// Cost of an uncontended read under a promoted latch, relative to a plain latch.
pub(super) const SUPER_UNCONTENDED: ClaimSpec = spec("super_uncontended_read_cost", "times", None, AtMost(1.3))
    .of_project("one thread reads a page under a promoted latch for little more than under a plain one");
/// Share of the ten worst lines in the modelled waits for lines of other cores under plain latches, 32 cores. The paper's 17%
/// (section 6.3.1) are of all stall cycles.
pub(super) const TOP_TEN_LINES: ClaimSpec = spec("top_ten_lines_share_p32", "share", None, MoreThan(0.17))
    .of_project("ten lines cause more than 17% of the waits for lines of other cores under plain latches");
/// Ratio of plain latches to superlatches on 32 modelled cores: number of transfers and upgrades of lines, and number of
/// writes that invalidate copies. The paper's 1.10 and 1.52 count other events of the bus.
pub(super) const PLAIN_TRANSFERS: ClaimSpec = spec("plain_vs_super_transfers_p32", "times", None, MoreThan(1.0))
    .of_paper("Table 7", "under plain latches more lines come from other caches");
pub(super) const PLAIN_INVALIDATIONS: ClaimSpec =
    spec("plain_vs_super_invalidations_p32", "times", None, MoreThan(1.0))
        .of_paper("Table 7", "under plain latches more lines are taken away");
/// Instructions of a transaction under plain latches, relative to superlatches, on one worker. The paper's 0.95 belongs to 32
/// processors that contend.
pub(super) const PLAIN_INSTRUCTIONS: ClaimSpec = spec("plain_vs_super_instructions", "times", None, LessThan(1.0))
    .of_paper("Table 7", "a transaction under plain latches has fewer instructions");
/// Throughput with everything on, relative to everything except one feature: the inverse of the paper's value.
pub(super) const LARGE_PAGES_VS_SMALL: ClaimSpec =
    spec("large_vs_small_pages", "times", Some(1.0 / 0.91), MoreThan(1.0))
        .of_paper("Table 8", "large pages are worth 10%: without them 0.91 of the throughput is left");
pub(super) const SUPER_VS_PLAIN: ClaimSpec = spec("super_vs_plain_mix", "times", Some(1.0 / 0.91), MoreThan(1.0))
    .of_paper("Table 7", "superlatches are worth 10%: without them 0.91 of the throughput is left");
pub(super) const CLIENT_VS_NONE: ClaimSpec =
    spec("client_partitioned_vs_not", "times", Some(1.0 / 0.84), MoreThan(1.0))
        .of_paper("Table 6", "clients kept apart are worth 19%: else 0.84 of the throughput is left");
/// The paper's 6% (Table 6) belong to internal data structures, not to frames of pages.
pub(super) const SERVER_VS_NONE: ClaimSpec = spec("server_partitioned_vs_not", "times", None, MoreThan(1.0))
    .of_project("frames of their own for the pages of each worker are worth their effort");
pub(super) const FEEDBACK_VS_NONE: ClaimSpec =
    spec("profile_feedback_vs_none", "times", Some(1.0 / 0.80), MoreThan(1.0))
        .of_paper("Table 5", "profile feedback is worth 25%: without it 0.80 of the throughput is left");
/// Instructions of a transaction without profile feedback, relative to a transaction with profile feedback.
pub(super) const FEEDBACK_INSTRUCTIONS: ClaimSpec =
    spec("no_feedback_vs_feedback_instructions", "times", Some(1.21), MoreThan(1.0))
        .of_paper("Table 5", "without profile feedback a transaction has 1.21 times the instructions");
/// Instructions between two mispredicted branches without profile feedback, relative to with profile feedback.
pub(super) const FEEDBACK_BRANCHES: ClaimSpec =
    spec("no_feedback_vs_feedback_mispredict_distance", "times", Some(0.69), LessThan(1.0))
        .of_paper("Table 5", "without profile feedback a branch is mispredicted after 0.69 times as many instructions");
/// Counted misses of a first-level translation buffer of 64 entries with small pages, relative to large pages. The paper's
/// 2.25 belongs to a last-level buffer of 128 entries.
pub(super) const SMALL_PAGES_TLB: ClaimSpec = spec("small_vs_large_pages_dtlb", "times", None, MoreThan(1.0))
    .of_paper("Table 8", "small pages miss the translation buffer more often");

/// Least time of writes to common blocks of 512 KiB to 4 MiB under itas, relative to fair. The text of the paper gives no
/// number.
pub(super) const FIG4_GLOBAL: ClaimSpec = spec("itas_fig4_global_vs_fair_time", "times", None, LessThan(1.0))
    .of_paper("Figure 4", "threads that write a common block of 512 KiB to 4 MiB are faster under ITAS than under CFS");
/// Greatest time of writes to common blocks under itas, relative to fair.
pub(super) const FIG4_WORST: ClaimSpec = spec("itas_global_vs_fair_worst_time", "times", None, AtMost(1.05))
    .of_paper("Introduction", "the gain exceeds the cost of coherence between cores");
/// Least number of misses of a private cache for common blocks of 512 KiB to 4 MiB under itas, relative to fair.
pub(super) const FIG5_GLOBAL: ClaimSpec = spec("itas_fig5_global_private_misses", "times", None, LessThan(1.0))
    .of_paper(
        "Figure 5",
        "threads with a common block of 512 KiB to 4 MiB have fewer misses under ITAS than under CFS",
    );
/// Share of the database sizes at which transactions with gaussian access are faster under itas than under fair.
pub(super) const FIG7_GAUSSIAN: ClaimSpec = spec("itas_fig7_gaussian_sizes_faster", "share", Some(1.0), MoreThan(0.5))
    .of_paper("Figure 7", "with gaussian access transactions are faster under ITAS at every size");
/// Share of the database sizes at which transactions with uniform access are faster under itas than under fair.
pub(super) const FIG7_UNIFORM: ClaimSpec = spec("itas_fig7_uniform_sizes_faster", "share", None, MoreThan(0.5))
    .of_paper("Figure 7", "with uniform access transactions are faster under ITAS at most sizes");
/// Share of the database sizes at which itas has fewer misses of a private cache than fair, with gaussian access.
pub(super) const FIG9_SIZES: ClaimSpec = spec("itas_fig9_sizes_with_fewer_misses", "share", Some(1.0), MoreThan(0.5))
    .of_paper("Figure 9", "with gaussian access ITAS has fewer misses at every size");
/// Greatest number of misses of a private cache under itas, relative to fair, of databases that fit this cache, with uniform
/// access.
pub(super) const FIG8_SMALL: ClaimSpec = spec("itas_fig8_small_private_misses", "times", None, LessThan(1.0))
    .of_paper("Figure 8", "with uniform access ITAS has fewer misses where the database fits the cache");
/// Throughput of itas relative to tas, for reads, with the working set of each group as large as the available share of the
/// L3 cache.
pub(super) const ITAS_VS_TAS: ClaimSpec = spec("itas_vs_tas_at_l3_share", "times", None, MoreThan(1.0)).of_project(
    "siblings on several cores at the same time are faster than siblings one after the other where they share a set",
);
/// Throughput of the automatic choice relative to the best fixed policy, in the worst cell of the map.
pub(super) const AUTO: ClaimSpec = spec("auto_vs_best_worst_cell", "times", None, KeepsUp(0.97))
    .of_project("the policy that is chosen while running keeps up with the best fixed one everywhere");
/// Throughput of a tuned runtime relative to the best fixed agg_bonus.
pub(super) const TUNER: ClaimSpec = spec("tuner_vs_best_fixed_bonus", "times", None, KeepsUp(0.95))
    .of_project("agg_bonus can be found while running; the paper leaves this to further work");
/// Time that a tuned runtime needs to find its parameters again after a change of the working sets.
pub(super) const RECONVERGES: ClaimSpec = spec("tuner_reconverges_ms", "ms", None, AtMost(200.0))
    .of_project("the tuner finds its parameters again soon after the sets have changed");
/// Time of a scheduling decision among 64 groups of 8 fibers.
pub(super) const PICK_NEXT: ClaimSpec =
    spec("pick_next_ns", "ns", None, AtMost(60.0)).of_project("a decision of the scheduler is short");
/// Relative error of the simulated throughput on two cores.
pub(super) const ITAS_ERROR_P2: ClaimSpec =
    spec("simulator_error_p2", "share", None, AtMost(0.15)).of_project("the simulator is right about two cores");
/// Throughput of loop programs beside databases, relative to the policy fair.
pub(super) const BACKGROUND: ClaimSpec = spec("background_vs_fair", "times", None, KeepsUp(0.98))
    .of_paper("Abstract", "the scheduler does not disturb the throughput of programs beside the database");
/// Largest ratio of a wait to its bound.
pub(super) const LONGEST_WAIT: ClaimSpec = spec("longest_wait_vs_bound", "share", None, Bound(1.0))
    .of_project("no fiber waits longer than the bound that is proved");

/// Relative error of the model of cores on 16 cores, against the measured run: standard mix, Payment alone, New-Order alone,
/// and itas with each group on all workers.
pub(super) const SCALE_ERROR_MIX: ClaimSpec = spec("model_error_mix_p16", "share", None, AtMost(0.15))
    .of_project("the model of cores is right about the mix on 16 cores");
pub(super) const SCALE_ERROR_PAYMENT: ClaimSpec = spec("model_error_payment_p16", "share", None, AtMost(0.15))
    .of_project("the model of cores is right about Payment alone on 16 cores");
pub(super) const SCALE_ERROR_NEW_ORDER: ClaimSpec = spec("model_error_new_order_p16", "share", None, AtMost(0.15))
    .of_project("the model of cores is right about New-Order alone on 16 cores");
pub(super) const SCALE_ERROR_ITAS: ClaimSpec = spec("model_error_itas_p16", "share", None, AtMost(0.15))
    .of_project("the model of cores is right about groups on all of 16 cores");
/// The same on two cores of this machine: the largest error of the three mixes.
pub(super) const SCALE_ERROR_P2: ClaimSpec =
    spec("model_error_p2", "share", None, AtMost(0.15)).of_project("the model of cores is right about two cores");
/// Modelled throughput of Payment alone on 16 cores after splits for contention, relative to the mix.
pub(super) const SCALE_PAYMENT: ClaimSpec = spec("payment_to_mix_p16", "times", None, KeepsUp(2.5))
    .of_project("on 16 cores Payment alone is as much faster than the mix as its work is shorter");
/// Modelled throughput on 16 cores under itas with a home worker for each group, relative to threads.
pub(super) const SCALE_ITAS: ClaimSpec = spec("itas_to_threads_p16", "times", None, KeepsUp(0.9))
    .of_project("on 16 cores itas with home workers keeps up with threads");
/// Modelled throughput of the mix on 16 cores after splits for contention.
pub(super) const SCALE_MIX: ClaimSpec = spec("mix_per_s_p16", "transactions/s", None, KeepsUp(1.1e6))
    .of_project("the mix reaches 1.1 million transactions a second on 16 cores");

/// Throughput of the build with profile feedback alone, relative to the build with nothing.
pub(super) const PGO_ALONE: ClaimSpec = spec("compiler_pgo_alone", "times", Some(1.2), MoreThan(1.0))
    .of_paper("Section 3.3", "profile feedback, before every other optimisation, gives about 20%");
/// Throughput of the build with every optimisation of the compiler, relative to the build with none.
pub(super) const COMPILER_ALL: ClaimSpec = spec("compiler_all_on_vs_off", "times", Some(1.4), MoreThan(1.0))
    .of_paper("Abstract, Section 3.3", "all optimisations of the compiler together give more than 40%");
/// Throughput of the build with every optimisation, relative to the build with profile feedback alone.
pub(super) const COMPILER_REST: ClaimSpec = spec("compiler_all_but_feedback", "times", Some(1.1876), MoreThan(1.0))
    .of_paper("Section 3.8", "the optimisations other than profile feedback together give 18.76%");
/// Throughput of the engine in the program, relative to the engine in a shared object whose functions can be preempted.
pub(super) const PREEMPTION: ClaimSpec = spec("compiler_preemption", "times", Some(1.0822), MoreThan(1.0))
    .of_paper("Table 1", "symbols that cannot be preempted give 8.22%");
/// Throughput with inlining across crates, relative to none.
pub(super) const INLINING: ClaimSpec =
    spec("compiler_inlining", "times", Some(1.02), MoreThan(1.0)).of_paper("Section 3.6", "inlining gives 2%");
/// Throughput with functions grouped by the profile, relative to the order of the sources.
pub(super) const GROUPING: ClaimSpec = spec("compiler_grouping", "times", Some(1.02), MoreThan(1.0))
    .of_paper("Section 3.6", "grouping of functions gives at least 2%");
/// Throughput with memory ordered as proven, relative to sequential consistency.
pub(super) const MEMORY_ORDERING: ClaimSpec = spec("compiler_memory_ordering", "times", Some(1.036), MoreThan(1.0))
    .of_paper("Section 3.6", "weaker memory ordering gives 3.6% where the database is in memory");
/// Throughput of the build with profile feedback, relative to the plain release.
pub(super) const PGO_VS_PLAIN: ClaimSpec = spec("pgo_vs_plain_1wh", "times", None, MoreThan(1.0))
    .of_project("profile feedback is faster than the plain release that a user has");
/// Throughput of the build with profile feedback and with a new layout of its blocks, relative to the plain release.
pub(super) const PGO_LAYOUT_VS_PLAIN: ClaimSpec = spec("pgo_and_layout_vs_plain_1wh", "times", None, MoreThan(1.0))
    .of_project("profile feedback and blocks laid out anew by it are faster than the plain build");
/// Throughput with every switch on, relative to every switch off.
pub(super) const ALL_ON_VS_OFF: ClaimSpec = spec("all_on_vs_all_off", "times", None, MoreThan(1.0)).of_project(
    "all switches of both Itanium papers together, prefetch, latches, pages and partitions among them, are worth their effort",
);

/// Creates a claim on a component's share of a transaction's instructions.
const fn component_share(name: &'static str, paper: f64) -> ClaimSpec {
    spec(name, "share", Some(paper), MoreThan(0.0))
}

/// Shares of locks, latches, the log and the buffer pool in the instructions of a New-Order.
pub(super) const GLASS_NEW_ORDER: [ClaimSpec; 4] = [
    component_share("new_order_locks", 0.163).of_paper("Figure 6", "locks take 16% of a New-Order's instructions"),
    component_share("new_order_latches", 0.142).of_paper("Figure 6", "latches take 14% of a New-Order's instructions"),
    component_share("new_order_log", 0.119).of_paper("Figure 6", "the log takes 12% of a New-Order's instructions"),
    component_share("new_order_pool", 0.346)
        .of_paper("Figure 6", "the buffer pool takes 35% of a New-Order's instructions"),
];
/// Share of a New-Order's instructions that remains after the removal of all components.
pub(super) const GLASS_LEFT_NEW_ORDER: ClaimSpec = small_cost("new_order_left", "share", 0.068)
    .of_paper("Figure 6", "7% of a New-Order's instructions are left when everything is taken away");
/// Share of a Payment's instructions that remains after the removal of all components. The limit is the paper's number for
/// New-Order. The paper shows the components of a Payment without numbers that can be cited, so that they are not claims.
pub(super) const GLASS_LEFT_PAYMENT: ClaimSpec = spec("payment_left", "share", None, AtMost(0.068))
    .of_paper("Figure 5", "little of a Payment's instructions is left when everything is taken away");

impl ClaimSpec {
    /// Adds the place in the paper and the sentence of a claim.
    const fn of_paper(self, place: &'static str, says: &'static str) -> ClaimSpec {
        ClaimSpec { place: Some(place), says: Some(says), ..self }
    }

    /// Adds the sentence of a claim of this project, about which the paper says nothing.
    const fn of_project(self, says: &'static str) -> ClaimSpec {
        ClaimSpec { says: Some(says), ..self }
    }

    /// Creates the claim with an exact value.
    pub(super) fn exact(self, value: f64, note: impl AsRef<str>) -> Claim {
        self.claim(Some(Spread::exact(value)), note.as_ref())
    }

    /// Creates the claim with an exact value, or without a value, with the reason.
    pub(super) fn exact_or(self, value: Option<f64>, note: impl AsRef<str>, why: impl AsRef<str>) -> Claim {
        match value {
            Some(value) => self.exact(value, note),
            None => self.missing(why),
        }
    }

    /// Creates the claim with a median and its spread.
    pub(super) fn measured(self, value: Option<Spread>, note: impl AsRef<str>) -> Claim {
        self.claim(value, note.as_ref())
    }

    /// Creates the claim without a value, with the reason.
    pub(super) fn missing(self, why: impl AsRef<str>) -> Claim {
        self.claim(None, why.as_ref())
    }

    fn claim(self, value: Option<Spread>, how: &str) -> Claim {
        // A value that is not finite counts as not measured.
        let value = value.filter(|value| value.mid.is_finite());
        let judgement =
            Judgement::of(ClaimTerms { unit: self.unit, paper: self.paper, condition: self.condition }, value);
        Claim {
            name: self.name.to_owned(),
            place: self.place.map(str::to_owned),
            says: self.says.map(str::to_owned),
            paper_value: self.paper,
            value: value.map(|value| value.mid),
            low: value.map(|value| value.low),
            high: value.map(|value| value.high),
            unit: self.unit.to_owned(),
            verdict: judgement.verdict,
            of_paper: judgement.of_paper,
            note: if how.is_empty() { judgement.why } else { format!("{}; {how}", judgement.why) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::report::ClaimVerdict;

    /// Each number of a paper has its place in the paper, and a sentence on its meaning.
    #[test]
    fn a_number_of_a_paper_has_its_place() {
        let all = [
            &GLASS_NEW_ORDER[..],
            &[LARGE_PAGES_VS_SMALL, SUPER_VS_PLAIN, CLIENT_VS_NONE, FEEDBACK_VS_NONE, FEEDBACK_INSTRUCTIONS],
            &[FEEDBACK_BRANCHES, GLASS_LEFT_NEW_ORDER, GLASS_LEFT_PAYMENT, PGO_ALONE, COMPILER_ALL],
        ];
        for spec in all.into_iter().flatten() {
            assert!(spec.place.is_some() && spec.says.is_some(), "{}", spec.name);
        }
    }

    #[test]
    fn a_claim_tells_its_value_its_interval_and_how_it_was_found() {
        let missing = LOOKUP.missing("no memory");
        assert_eq!((missing.verdict, missing.value), (ClaimVerdict::NotMeasured, None));
        assert_eq!(missing.note, "it was not measured; no memory");
        assert_eq!(LOOKUP.exact(f64::NAN, "").value, None, "a ratio of nothing is nothing");
        let spread = Spread { mid: 2.6, low: 2.4, high: 2.7 };
        let claim = LOOKUP.measured(Some(spread), "groups of 16");
        assert_eq!((claim.low, claim.high), (Some(2.4), Some(2.7)));
        assert!(claim.note.ends_with("; groups of 16"), "{}", claim.note);
        assert_eq!(LOOKUP.exact(2.6, "").low, Some(2.6), "the interval of an exact value is the value");
    }

    #[test]
    fn a_proof_allows_no_exception_and_most_is_more_than_half() {
        assert_eq!(LONGEST_WAIT.exact(1.0, "").verdict, ClaimVerdict::Reached);
        assert_eq!(LONGEST_WAIT.exact(1.01, "").verdict, ClaimVerdict::Missed);
        assert_eq!(REDONE.exact(0.5, "").verdict, ClaimVerdict::Reached);
        assert_eq!(REDONE.exact(0.51, "").verdict, ClaimVerdict::Missed);
    }
}
