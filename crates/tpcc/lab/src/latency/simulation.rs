//! Simulated times of a transaction on other numbers of processors. The traced loops of the transaction are simulated; the
//! rest of the transaction takes its measured time.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use speculate::simulate::{Machine, SharedState, Simulated, simulate};
use speculate::{EpochTrace, LoopTrace};

use super::TRACED;

/// Trace of a transaction: its loops, and the time outside of loops.
pub(super) struct TracedTransaction {
    /// Time outside of loops, in nanoseconds.
    outside_ns: u64,
    loops: Vec<LoopTrace>,
}

impl TracedTransaction {
    /// Creates a traced transaction that took `ns`, including the time of tracing.
    pub(super) fn new(ns: u64, loops: Vec<LoopTrace>) -> TracedTransaction {
        let inside: u64 = loops.iter().map(|trace| trace.elapsed_ns + trace.tracing_ns).sum();
        TracedTransaction { outside_ns: ns.saturating_sub(inside), loops }
    }
}

/// Traced transactions of a mix, with the other inputs of the simulation.
pub(super) struct SimulationInput {
    /// Traced transactions of each of [`TRACED`]. On two threads, rows come from the cache of another processor.
    pub(super) traces: [Vec<TracedTransaction>; TRACED.len()],
    /// Time of an empty loop of two epochs on one and on two threads, in microseconds.
    pub(super) empty_loop_us: (f64, f64),
}

/// Mean transaction on a simulated machine. Times are in microseconds; all except the mean are sums over all processors.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SimulatedMachine {
    /// Name: the number of processors, or the change of the engine.
    pub name: String,
    /// Number of processors.
    pub cpus: usize,
    /// Mean time of a transaction.
    pub mean_us: f64,
    /// Ratio of the mean time to the measured sequential time.
    pub ratio: f64,
    /// Time of committed work.
    pub busy_us: f64,
    /// Time of rewound work.
    pub failed_us: f64,
    /// Time that finished epochs waited for the token.
    pub token_us: f64,
    /// Time that processors had no epoch.
    pub idle_us: f64,
    /// Number of times that an epoch was rewound.
    pub violations: f64,
}

/// Results of the simulation from traces of the transactions.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Simulation {
    /// Number of traced transactions.
    pub transactions: usize,
    /// Time to pass the token, or an epoch, to another processor, in microseconds, measured by empty loops.
    pub hop_us: f64,
    /// Share of a transaction's time on one processor that its loop takes.
    pub coverage: f64,
    /// Mean number of operations of an epoch.
    pub operations_per_epoch: f64,
    /// Mean time of an epoch on one processor, in microseconds, including its in-order part.
    pub epoch_us: f64,
    /// Mean number of epochs of a transaction.
    pub epochs: f64,
    /// Mean time of a transaction's epochs that runs in their order, on two threads, in microseconds: settling, and the last
    /// closure of the loop.
    pub in_order_us: f64,
    /// Relative error of the simulation of one processor, against speculation measured on one core.
    pub error_p1: f64,
    /// Relative error of the simulation of two processors; null unless speculation was measured with two workers.
    pub error_p2: Option<f64>,
    /// Results for 1, 2, 4 and 8 processors.
    pub machines: Vec<SimulatedMachine>,
    /// Results for four processors and an engine without its changes for speculation; each entry adds one change.
    pub changes: Vec<SimulatedMachine>,
}

/// Measured means of a transaction, in microseconds.
pub(super) struct MeasuredMeans {
    pub(super) sequential_us: f64,
    pub(super) tls_seq_us: f64,
    /// Number of workers, and mean with this number of workers.
    pub(super) speculative: Option<(usize, f64)>,
}

/// Shared state of the current engine, in which epochs share nothing besides rows.
const CURRENT_ENGINE: SharedState =
    SharedState { eager_locks: false, log_at_once: false, statistics: false, last_page: false };

/// Sub-epochs of the paper's design: number of sub-epochs, and number of operations of each sub-epoch.
const SUB_EPOCHS: (usize, usize) = (8, 8);

/// Maximum number of transactions in the simulations of figure 21, for transactions of up to [`FIGURE_21_OPERATIONS`]. The time
/// of a simulation with many dependences grows with the square of the operations at least.
const FIGURE_21_TRANSACTIONS: usize = 100;
/// See [`FIGURE_21_TRANSACTIONS`].
const FIGURE_21_OPERATIONS: usize = 50;

/// Simulates the machines of the paper's figures 20 and 21.
pub(super) fn run(traced: &SimulationInput, measured: &MeasuredMeans) -> Simulation {
    let hop_ns = ((traced.empty_loop_us.1 - traced.empty_loop_us.0).max(0.0) * 1e3 / 2.0) as u64;
    let machine =
        |cpus| Machine { cpus, hop_ns, fork_ns: hop_ns, sub_epochs: (1, 1), forwarding: true, shared: CURRENT_ENGINE };
    let on_some = |name: &str, machine: &Machine, every| {
        let traces = TRACED.iter().zip(&traced.traces).find(|(of, _)| of.processors == machine.cpus);
        let transactions = traces.map(|(_, traces)| traces).into_iter().flatten();
        mean(name, transactions.step_by(every), machine, measured.sequential_us)
    };
    let on = |name: &str, machine: &Machine| on_some(name, machine, 1);
    let machines: Vec<_> =
        TRACED.iter().map(|of| on(&format!("{} processors", of.processors), &machine(of.processors))).collect();
    let no_sub_epochs = machine(4);
    let none = SharedState { eager_locks: true, log_at_once: true, statistics: true, last_page: true };
    let lazy_locks = SharedState { eager_locks: false, ..none };
    let own_statistics = SharedState { statistics: false, ..lazy_locks };
    let no_last_page = SharedState { last_page: false, ..own_statistics };
    let steps = [
        ("no optimizations", Machine { shared: none, ..no_sub_epochs }),
        ("lazy locks", Machine { shared: lazy_locks, ..no_sub_epochs }),
        ("statistics apart", Machine { shared: own_statistics, ..no_sub_epochs }),
        ("no last page", Machine { shared: no_last_page, ..no_sub_epochs }),
        ("log at commit", no_sub_epochs),
        ("sub-epochs", Machine { sub_epochs: SUB_EPOCHS, ..no_sub_epochs }),
    ];
    // Simulations with many dependences are slow: they use few transactions.
    let [one_thread, two_threads, ..] = &traced.traces;
    let operations: usize = epochs_of(two_threads).map(|epoch| epoch.operations.len()).sum();
    let each = operations.div_ceil(two_threads.len().max(1)).max(FIGURE_21_OPERATIONS);
    let number = (FIGURE_21_TRANSACTIONS * FIGURE_21_OPERATIONS.pow(2) / each.pow(2)).max(3);
    let few = two_threads.len().div_ceil(number).max(1);
    let error = |simulated: f64, measured: f64| (simulated - measured).abs() / measured;
    let epochs = || epochs_of(one_thread);
    let number = epochs().count().max(1) as f64;
    let epoch_ns: u64 = epochs().map(|epoch| epoch.body_ns + epoch.in_order_ns).sum();
    let in_order_ns: u64 = epochs_of(two_threads).map(|epoch| epoch.in_order_ns).sum();
    let outside_ns: u64 = one_thread.iter().map(|tx| tx.outside_ns).sum();
    Simulation {
        transactions: one_thread.len(),
        hop_us: hop_ns as f64 / 1e3,
        coverage: epoch_ns as f64 / (epoch_ns + outside_ns).max(1) as f64,
        operations_per_epoch: epochs().map(|epoch| epoch.operations.len()).sum::<usize>() as f64 / number,
        epoch_us: epoch_ns as f64 / 1e3 / number,
        epochs: number / one_thread.len().max(1) as f64,
        in_order_us: in_order_ns as f64 / 1e3 / two_threads.len().max(1) as f64,
        error_p1: error(machines[0].mean_us, measured.tls_seq_us),
        error_p2: measured
            .speculative
            .filter(|(workers, _)| *workers == 2)
            .map(|(_, us)| error(machines[1].mean_us, us)),
        machines,
        changes: steps.iter().map(|(name, machine)| on_some(name, machine, few)).collect(),
    }
}

fn epochs_of(transactions: &[TracedTransaction]) -> impl Iterator<Item = &EpochTrace> {
    transactions.iter().flat_map(|tx| &tx.loops).flat_map(|trace| &trace.epochs)
}

/// Simulates transactions on a machine and returns their means.
fn mean<'t>(
    name: &str,
    transactions: impl Iterator<Item = &'t TracedTransaction>,
    machine: &Machine,
    sequential_us: f64,
) -> SimulatedMachine {
    let (mut sum, mut number) = (Simulated::default(), 0_u32);
    for tx in transactions {
        number += 1;
        // Outside of loops one processor is busy, and the others are idle.
        let (ns, idle) = (tx.outside_ns, tx.outside_ns * (machine.cpus as u64 - 1));
        sum += Simulated { total_ns: ns, busy_ns: ns, idle_ns: idle, ..Simulated::default() };
        tx.loops.iter().for_each(|trace| sum += simulate(trace, machine));
    }
    let each = |total: u64| total as f64 / f64::from(number.max(1));
    let us = |ns: u64| each(ns) / 1e3;
    SimulatedMachine {
        name: name.to_owned(),
        cpus: machine.cpus,
        mean_us: us(sum.total_ns),
        ratio: us(sum.total_ns) / sequential_us,
        busy_us: us(sum.busy_ns),
        failed_us: us(sum.failed_ns),
        token_us: us(sum.token_ns),
        idle_us: us(sum.idle_ns),
        violations: each(sum.violations),
    }
}
