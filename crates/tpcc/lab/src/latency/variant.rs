//! One way to run a transaction, on its own database.

use std::time::Instant;

use speculate::{Dependence, LoopTrace, Options, Stats};

use super::{Latencies, LatencyMix};
use tpcc_core::engines::storage::ahead::LoopSelector;
use tpcc_core::engines::storage::ahead::loops::{Loops, TransactionLoop};
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
pub(super) enum Work {
    /// The steps run one after the other.
    InOrder,
    /// The loop runs ahead by speculation, always or if the governor decides so.
    Ahead(Options, Speculate),
}

/// Input of a transaction.
pub(super) enum TrialInput {
    /// Input of a transaction of the workload.
    Usual(Input),
    /// Input of a long order.
    LongOrder(LongOrderInput),
}

impl TrialInput {
    /// Draws the input of transaction number `n` for warehouse `w`.
    pub(super) fn draw(mix: LatencyMix, world: &InputSpace, random: &mut Random, w: u32, n: u64) -> TrialInput {
        let d = random.in_range(1, world.scale.districts.into()) as u8;
        let now = Timestamp::at(n);
        let mut usual = |kind| {
            let history = HistoryKey { run: 0, terminal: 0, sequence: n };
            TrialInput::Usual(world.input(random, kind, (w, d), now, history))
        };
        match mix {
            LatencyMix::NewOrder => usual(Kind::NewOrder),
            LatencyMix::Delivery | LatencyMix::DeliveryOuter => usual(Kind::Delivery),
            LatencyMix::StockLevel => usual(Kind::StockLevel),
            LatencyMix::Payment => usual(Kind::Payment),
            LatencyMix::OrderStatus => usual(Kind::OrderStatus),
            LatencyMix::NewOrder150 => TrialInput::LongOrder(world.long_order(random, w, now)),
        }
    }

    /// Number of iterations of the transaction's loop.
    pub(super) fn items(&self) -> u64 {
        match self {
            TrialInput::Usual(input) => input.items(),
            TrialInput::LongOrder(input) => input.order().lines.len() as u64,
        }
    }
}

/// One way to run transactions, with its database and buffers.
pub(super) struct Lane<'s> {
    store: &'s Store,
    ahead: Option<Ahead<'s>>,
    out: LongOrderOutput,
    scratch: Scratch,
}

/// Speculation of a lane.
struct Ahead<'s> {
    loops: Loops<'s>,
    of: TransactionLoop,
    selector: LoopSelector,
    /// Iterations of an epoch, if set by the user.
    grain: Option<usize>,
}

impl<'s> Lane<'s> {
    pub(super) fn new(store: &'s Store, work: Work, plan: &Latencies) -> Result<Lane<'s>, Error> {
        let ahead = match work {
            Work::InOrder => None,
            Work::Ahead(options, how) => {
                let loops = Loops::new(store, options).map_err(failed)?;
                let of = plan.mix.of_loop();
                Some(Ahead { loops, of, selector: LoopSelector::new(of, how), grain: plan.grain })
            }
        };
        Ok(Lane { store, ahead, out: LongOrderOutput::default(), scratch: Scratch::default() })
    }

    /// Runs the background services of the engine, which have no threads of their own.
    pub(super) fn serve(&self) -> Result<(), Error> {
        self.store.database().step().map_err(|error| Error::failed(error.to_string()))
    }

    /// Resets the statistics.
    pub(super) fn forget(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.loops.take_stats();
        }
    }

    /// Number of transactions until the governor has decided.
    pub(super) fn warm_up(&self) -> u64 {
        self.ahead.as_ref().map_or(0, |ahead| ahead.selector.warm_up())
    }

    /// Iterations of an epoch, as set by the user or chosen by the governor; none if loops run in order.
    pub(super) fn grain(&self) -> Option<usize> {
        self.ahead.as_ref().and_then(|ahead| ahead.grain.or(ahead.selector.chosen()))
    }

    /// Runs a transaction to its commit or rollback.
    pub(super) fn transact(&mut self, job: &TrialInput) -> Result<(), Error> {
        let Lane { store, ahead, out, scratch } = self;
        let mut tx = store.begin().map_err(failed)?;
        let ran = match ahead {
            None => in_order(&mut tx, job, out, scratch),
            Some(ahead) => {
                let decision = ahead.selector.decide();
                let ran = match decision.grain.map(|usual| ahead.grain.unwrap_or(usual)) {
                    None => in_order(&mut tx, job, out, scratch),
                    Some(grain) => match job {
                        TrialInput::LongOrder(input) => ahead.loops.run_order(&mut tx, input.order(), grain),
                        TrialInput::Usual(input) => ahead.loops.run(&mut tx, ahead.of, input, grain, scratch),
                    },
                };
                ahead.selector.record(&decision, job.items());
                ran
            }
        };
        let ended = match ran.map_err(|failure| Error::failed(failure.to_string()))? {
            Verdict::Commit => tx.commit(),
            Verdict::Rollback => tx.rollback(),
        };
        ended.map(drop).map_err(failed)
    }

    /// Statistics of speculation, and the dependences that caused violations.
    pub(super) fn speculation(&mut self) -> (Stats, Vec<Dependence>) {
        self.ahead.as_mut().map(|ahead| (ahead.loops.take_stats(), ahead.loops.profile())).unwrap_or_default()
    }

    /// Traces of the loops of the last transaction, if loops are traced.
    pub(super) fn take_traces(&mut self) -> Vec<LoopTrace> {
        self.ahead.as_mut().map(|ahead| ahead.loops.take_traces()).unwrap_or_default()
    }

    /// Time of a loop of two epochs whose bodies do nothing, in microseconds.
    pub(super) fn fork_join_us(&mut self) -> Result<f64, Error> {
        const LOOPS: u32 = 1_000;
        let Some(ahead) = &mut self.ahead else { return Ok(0.0) };
        let mut tx = self.store.begin().map_err(failed)?;
        let begun = Instant::now();
        for _ in 0..LOOPS {
            ahead.loops.run_empty(&mut tx, 2).map_err(|failure| Error::failed(failure.to_string()))?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(LOOPS))
    }
}

/// Runs the steps one after the other.
fn in_order(
    tx: &mut StoreTransaction<'_>,
    job: &TrialInput,
    out: &mut LongOrderOutput,
    scratch: &mut Scratch,
) -> Result<Verdict, Failure<StoreError>> {
    match job {
        TrialInput::Usual(Input::NewOrder(input)) => long_order::run(tx, input.order(), out),
        TrialInput::LongOrder(input) => long_order::run(tx, input.order(), out),
        TrialInput::Usual(input) => txn::run(tx, StepOrder::HotLast, input, scratch),
    }
}

fn failed(error: StoreError) -> Error {
    Error::failed(error.to_string())
}
