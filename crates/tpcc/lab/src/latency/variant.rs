//! A variant: one way to run transactions, on its own database.

use std::time::Instant;

use speculate::LoopTrace;

use super::{LatencyMix, LatencyPlan};
use tpcc_core::engines::storage::in_order::{self, EpochLength, LoopSelector, TransactionLoop};
use tpcc_core::engines::storage::store::{Store, StoreError, StoreTransaction};
use tpcc_core::workload::engine::OpenTransaction;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::generate::input::{Input, InputSpace, LongOrderInput};
use tpcc_core::workload::schema::keys::HistoryKey;
use tpcc_core::workload::schema::rows::Timestamp;
use tpcc_core::workload::settings::{Speculate, StoreConfig};
use tpcc_core::workload::txn::long_order::{self, LongOrderOutput};
use tpcc_core::workload::txn::{self, Failure, Scratch, StepOrder, Verdict};

/// Way to run a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Way {
    /// One core, without announcing groups of rows
    Sequential,
    /// One core, with announcing groups of rows
    SequentialPrefetch,
    /// The loop in epochs, on one core
    TlsSeq,
    /// The loop in epochs, on several cores
    Speculative,
}

impl Way {
    /// The ways, in the order of the report.
    pub(super) const ALL: [Way; 4] = [Way::Sequential, Way::SequentialPrefetch, Way::TlsSeq, Way::Speculative];

    /// Returns the settings of the database of this way.
    pub(super) fn store_config(self, config: &StoreConfig, plan: &LatencyPlan) -> StoreConfig {
        let mut config = StoreConfig { prefetch: self != Way::Sequential, loop_threads: 1, ..config.clone() };
        match self {
            Way::Sequential | Way::SequentialPrefetch => {}
            Way::TlsSeq => config.loops.epochs_on_one_thread = true,
            Way::Speculative => {
                config.loop_threads = plan.epoch_workers;
                config.loops.epochs_on_one_thread = true;
                (config.loops.inject, config.loops.seed) = (plan.inject, plan.seed);
            }
        }
        config
    }
}

/// Input of a transaction.
pub(super) enum TrialInput {
    /// Input of a transaction of the workload.
    Standard(Input),
    /// Input of a long order.
    LongOrder(LongOrderInput),
}

impl TrialInput {
    /// Draws the input of transaction number `n` for warehouse `w`.
    pub(super) fn draw(mix: LatencyMix, world: &InputSpace, random: &mut Random, w: u32, n: u64) -> TrialInput {
        let d = random.in_range(1, world.scale.districts.into()) as u8;
        let now = Timestamp::at(n);
        let mut standard = |kind| {
            let history = HistoryKey { run: 0, terminal: 0, sequence: n };
            TrialInput::Standard(world.input(random, kind, (w, d), now, history))
        };
        match mix {
            LatencyMix::NewOrder => standard(Kind::NewOrder),
            LatencyMix::Delivery | LatencyMix::DeliveryOuter => standard(Kind::Delivery),
            LatencyMix::StockLevel => standard(Kind::StockLevel),
            LatencyMix::Payment => standard(Kind::Payment),
            LatencyMix::OrderStatus => standard(Kind::OrderStatus),
            LatencyMix::NewOrder150 => TrialInput::LongOrder(world.long_order(random, w, now)),
        }
    }

    /// Returns the number of iterations of the transaction's loop.
    pub(super) fn items(&self) -> u64 {
        match self {
            TrialInput::Standard(input) => input.items(),
            TrialInput::LongOrder(input) => input.order().lines.len() as u64,
        }
    }
}

/// One way to run transactions, with its database and buffers.
pub(super) struct Variant<'s> {
    store: &'s Store,
    /// The loop in epochs, unless the transaction runs on one core without them.
    epochs: Option<LoopInEpochs>,
    out: LongOrderOutput,
    scratch: Scratch,
}

/// Execution of a transaction's loop in epochs.
struct LoopInEpochs {
    of: TransactionLoop,
    selector: LoopSelector,
}

impl<'s> Variant<'s> {
    /// Creates a variant that runs transactions on one core, without epochs.
    pub(super) fn on_one_core(store: &'s Store) -> Variant<'s> {
        Variant { store, epochs: None, out: LongOrderOutput::default(), scratch: Scratch::default() }
    }

    /// Creates a variant whose loop runs in epochs, which are divided for this number of threads unless the user sets their
    /// length.
    pub(super) fn in_epochs(store: &'s Store, how: Speculate, threads: usize, plan: &LatencyPlan) -> Variant<'s> {
        let of = plan.mix.of_loop();
        let lengths = plan.grain.map(|grain| vec![EpochLength::Iterations(grain)]);
        let selector = LoopSelector::new(lengths.unwrap_or_else(|| of.lengths(threads).to_vec()), how);
        Variant { epochs: Some(LoopInEpochs { of, selector }), ..Variant::on_one_core(store) }
    }

    /// Creates the variant of a way, on a database with the settings of that way. Loops on one core have the epochs of loops on
    /// several.
    pub(super) fn of_way(way: Way, store: &'s Store, plan: &LatencyPlan) -> Variant<'s> {
        match way {
            Way::Sequential | Way::SequentialPrefetch => Variant::on_one_core(store),
            Way::TlsSeq => Variant::in_epochs(store, Speculate::On, plan.epoch_workers, plan),
            Way::Speculative => Variant::in_epochs(store, plan.speculate, plan.epoch_workers, plan),
        }
    }

    /// Runs the background services of the engine, which have no threads of their own.
    pub(super) fn run_services(&self) -> Result<(), Error> {
        self.store.database().step().map_err(|error| Error::failed(error.to_string()))
    }

    /// Returns the number of transactions before the governor makes its first choice.
    pub(super) fn warm_up(&self) -> u64 {
        self.epochs.as_ref().map_or(0, |epochs| epochs.selector.warm_up())
    }

    /// Returns the length of the epochs; with a governor, its last choice.
    pub(super) fn length(&self) -> Option<EpochLength> {
        self.epochs.as_ref().and_then(|epochs| epochs.selector.chosen())
    }

    /// Runs a transaction and commits it, or rolls it back if it is an order with an unknown item.
    pub(super) fn transact(&mut self, job: &TrialInput) -> Result<(), Error> {
        let mut tx = self.store.begin().map_err(failed)?;
        let (out, scratch) = (&mut self.out, &mut self.scratch);
        let decision = self.epochs.as_mut().map(|epochs| epochs.selector.decide());
        let length = decision.as_ref().and_then(|decision| decision.length);
        let ran = match (&self.epochs, length) {
            (Some(LoopInEpochs { of, .. }), Some(length)) => match job {
                TrialInput::LongOrder(input) => in_order::run_order(&mut tx, *of, input.order(), length, out),
                TrialInput::Standard(input) => in_order::run(&mut tx, *of, input, length, scratch, out),
            },
            _ => on_one_core(&mut tx, job, out, scratch),
        };
        if let (Some(epochs), Some(decision)) = (&mut self.epochs, &decision) {
            epochs.selector.record(decision, job.items());
        }
        let ended = match ran.map_err(|failure| Error::failed(failure.to_string()))? {
            Verdict::Commit => tx.commit(),
            Verdict::Rollback => tx.rollback(),
        };
        ended.map(drop).map_err(failed)
    }

    /// Takes the traces of the loops of the last transaction, if loops are traced.
    pub(super) fn take_traces(&self) -> Vec<LoopTrace> {
        self.store.database().take_loop_traces()
    }

    /// Measures the time of a loop of two epochs whose bodies do nothing, in microseconds.
    pub(super) fn fork_join_us(&self) -> Result<f64, Error> {
        const LOOPS: u32 = 1_000;
        let mut tx = self.store.begin().map_err(failed)?;
        let begun = Instant::now();
        for _ in 0..LOOPS {
            tx.in_order([(); 2], |_, ()| Ok(()), drop).map_err(|failure| Error::failed(failure.to_string()))?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(LOOPS))
    }
}

/// Runs the steps of a transaction one after the other.
fn on_one_core(
    tx: &mut StoreTransaction<'_>,
    job: &TrialInput,
    out: &mut LongOrderOutput,
    scratch: &mut Scratch,
) -> Result<Verdict, Failure<StoreError>> {
    match job {
        TrialInput::Standard(Input::NewOrder(input)) => long_order::run(tx, input.order(), out),
        TrialInput::LongOrder(input) => long_order::run(tx, input.order(), out),
        TrialInput::Standard(input) => txn::run(tx, StepOrder::HotLast, input, scratch),
    }
}

fn failed(error: StoreError) -> Error {
    Error::failed(error.to_string())
}
