//! A variant: one way to run transactions, on its own database.

use std::time::Instant;

use speculate::{Dependence, LoopTrace, Options, Stats};

use super::{LatencyMix, LatencyPlan};
use tpcc_core::engines::storage::ahead::loops::Loops;
use tpcc_core::engines::storage::in_order::{self, LoopSelector, TransactionLoop};
use tpcc_core::engines::storage::store::{Store, StoreError, StoreTransaction};
use tpcc_core::workload::engine::OpenTransaction;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::generate::input::{Input, InputSpace, LongOrderInput};
use tpcc_core::workload::schema::keys::HistoryKey;
use tpcc_core::workload::schema::rows::Timestamp;
use tpcc_core::workload::settings::Speculate;
use tpcc_core::workload::txn::long_order::{self, LongOrderOutput};
use tpcc_core::workload::txn::{self, Failure, Scratch, StepOrder, Verdict};

/// Execution mode of a transaction.
pub(super) enum ExecutionMode {
    /// The steps of the transaction run one after the other.
    InOrder,
    /// The loop of the transaction runs ahead by speculation, always or if the governor decides so.
    Speculative(Options, Speculate),
    /// The loop of the transaction runs on several threads, in place.
    InPlace,
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
    way: Way<'s>,
    out: LongOrderOutput,
    scratch: Scratch,
}

/// Execution of a variant's transactions.
enum Way<'s> {
    OneCore,
    InBuffers(Box<LoopSpeculation<'s>>),
    /// The loop runs in place, in epochs of `grain` iterations.
    InPlace {
        of: TransactionLoop,
        grain: usize,
    },
}

/// Speculation of a variant.
struct LoopSpeculation<'s> {
    loops: Loops<'s>,
    of: TransactionLoop,
    selector: LoopSelector,
    /// Number of iterations of an epoch, if set by the user.
    grain: Option<usize>,
}

impl<'s> Variant<'s> {
    pub(super) fn new(store: &'s Store, mode: ExecutionMode, plan: &LatencyPlan) -> Result<Variant<'s>, Error> {
        let of = plan.mix.of_loop();
        let way = match mode {
            ExecutionMode::InOrder => Way::OneCore,
            ExecutionMode::InPlace => {
                Way::InPlace { of, grain: plan.grain.or(of.grains().first().copied()).unwrap_or(1) }
            }
            ExecutionMode::Speculative(options, how) => {
                let loops = Loops::new(store, options).map_err(failed)?;
                let selector = LoopSelector::new(of.grains_in_buffers(), how);
                Way::InBuffers(Box::new(LoopSpeculation { loops, of, selector, grain: plan.grain }))
            }
        };
        Ok(Variant { store, way, out: LongOrderOutput::default(), scratch: Scratch::default() })
    }

    /// Runs the background services of the engine, which have no threads of their own.
    pub(super) fn run_services(&self) -> Result<(), Error> {
        self.store.database().step().map_err(|error| Error::failed(error.to_string()))
    }

    /// Resets the statistics of speculation.
    pub(super) fn reset_statistics(&mut self) {
        if let Way::InBuffers(speculation) = &mut self.way {
            speculation.loops.take_stats();
        }
    }

    /// Returns the number of transactions until the governor has decided; 0 without speculation.
    pub(super) fn warm_up(&self) -> u64 {
        if let Way::InBuffers(speculation) = &self.way { speculation.selector.warm_up() } else { 0 }
    }

    /// Returns the number of iterations of an epoch, as set by the user or chosen by the governor; `None` if loops run in
    /// order.
    pub(super) fn grain(&self) -> Option<usize> {
        let Way::InBuffers(speculation) = &self.way else { return None };
        speculation.grain.or(speculation.selector.chosen())
    }

    /// Runs a transaction to its commit or rollback.
    pub(super) fn transact(&mut self, job: &TrialInput) -> Result<(), Error> {
        let Variant { store, way, out, scratch } = self;
        let mut tx = store.begin().map_err(failed)?;
        let ran = match way {
            Way::OneCore => on_one_core(&mut tx, job, out, scratch),
            Way::InPlace { of, grain } => match job {
                TrialInput::LongOrder(input) => in_order::run_order(&mut tx, input.order(), *grain, out),
                TrialInput::Standard(input) => in_order::run(&mut tx, *of, input, *grain, scratch, out),
            },
            Way::InBuffers(speculation) => {
                let decision = speculation.selector.decide();
                let ran = match decision.grain.map(|usual| speculation.grain.unwrap_or(usual)) {
                    None => on_one_core(&mut tx, job, out, scratch),
                    Some(grain) => match job {
                        TrialInput::LongOrder(input) => speculation.loops.run_order(&mut tx, input.order(), grain),
                        TrialInput::Standard(input) => {
                            speculation.loops.run(&mut tx, speculation.of, input, grain, scratch)
                        }
                    },
                };
                speculation.selector.record(&decision, job.items());
                ran
            }
        };
        let ended = match ran.map_err(|failure| Error::failed(failure.to_string()))? {
            Verdict::Commit => tx.commit(),
            Verdict::Rollback => tx.rollback(),
        };
        ended.map(drop).map_err(failed)
    }

    /// Takes the statistics of speculation, and the dependences that caused violations.
    pub(super) fn speculation(&mut self) -> (Stats, Vec<Dependence>) {
        let Way::InBuffers(speculation) = &mut self.way else { return Default::default() };
        (speculation.loops.take_stats(), speculation.loops.profile())
    }

    /// Takes the traces of the loops of the last transaction, if loops are traced.
    pub(super) fn take_traces(&mut self) -> Vec<LoopTrace> {
        if let Way::InBuffers(speculation) = &mut self.way { speculation.loops.take_traces() } else { Vec::new() }
    }

    /// Measures the time of a loop of two epochs whose bodies do nothing, in microseconds.
    pub(super) fn fork_join_us(&mut self) -> Result<f64, Error> {
        const LOOPS: u32 = 1_000;
        let Way::InBuffers(speculation) = &mut self.way else { return Ok(0.0) };
        let mut tx = self.store.begin().map_err(failed)?;
        let begun = Instant::now();
        for _ in 0..LOOPS {
            speculation.loops.run_empty(&mut tx, 2).map_err(|failure| Error::failed(failure.to_string()))?;
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
