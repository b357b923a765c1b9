//! One way of running a transaction, on a database of its own.

use std::time::Instant;

use smallvec::SmallVec;
use speculate::{Dependence, Options, Speculator, Stats};

use super::{Latencies, LatencyMix};
use crate::engines::storage::speculative::{RowKey, RowStore};
use crate::engines::storage::store::{Store, StoreError, StoreTransaction};
use crate::workload::engine::OpenTransaction;
use crate::workload::error::Error;
use crate::workload::generate::Random;
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::{DeliveryInput, Input, InputSpace, LongOrderInput, OrderInput, StockLevelInput};
use crate::workload::schema::keys::{HistoryKey, ItemKey, StockKey};
use crate::workload::schema::rows::When;
use crate::workload::schema::tables::{Item, Stock};
use crate::workload::txn::long_order::{self, LongOrderOutput};
use crate::workload::txn::{self, Failure, Scratch, StepOrder, Verdict, delivery, stock_level};

/// How a lane runs a transaction.
pub(super) enum Work {
    /// One step after the other.
    InOrder,
    /// Its loop runs ahead of it.
    Ahead(Options),
}

/// The input of a transaction.
pub(super) enum TrialInput {
    /// One of the workload's.
    Usual(Input),
    /// A long order.
    LongOrder(LongOrderInput),
}

impl TrialInput {
    /// Draws one for a warehouse.
    pub(super) fn draw(mix: LatencyMix, world: &InputSpace, random: &mut Random, w: u32, now: When) -> TrialInput {
        let d = random.within(1, world.scale.districts.into()) as u8;
        let mut usual = |kind| {
            // No transaction of these writes a history.
            TrialInput::Usual(world.input(random, kind, (w, d), now, HistoryKey { run: 0, terminal: 0, sequence: 0 }))
        };
        match mix {
            LatencyMix::NewOrder => usual(Kind::NewOrder),
            LatencyMix::DeliveryOuter => usual(Kind::Delivery),
            LatencyMix::StockLevel => usual(Kind::StockLevel),
            LatencyMix::NewOrder150 => TrialInput::LongOrder(world.long_order(random, w, now)),
        }
    }

    /// Iterations of its loop.
    pub(super) fn items(&self) -> u64 {
        match self {
            TrialInput::Usual(Input::NewOrder(input)) => input.order().lines.len() as u64,
            TrialInput::LongOrder(input) => input.order().lines.len() as u64,
            TrialInput::Usual(Input::Delivery(input)) => u64::from(input.districts),
            TrialInput::Usual(Input::StockLevel(_)) => u64::from(stock_level::ORDERS),
            TrialInput::Usual(Input::Payment(_) | Input::OrderStatus(_)) => 1,
        }
    }
}

/// A way, with what it needs.
pub(super) struct Lane<'s> {
    store: &'s Store,
    rows: RowStore<'s>,
    ahead: Option<Ahead<'s>>,
    out: LongOrderOutput,
    scratch: Scratch,
}

/// A speculator for a transaction's loop.
struct Ahead<'s> {
    speculator: Speculator<RowStore<'s>>,
    /// Iterations of an epoch.
    grain: usize,
}

impl<'s> Lane<'s> {
    pub(super) fn new(store: &'s Store, work: Work, plan: &Latencies) -> Result<Lane<'s>, Error> {
        let ahead = match work {
            Work::InOrder => None,
            Work::Ahead(options) => {
                // Orders of an epoch are read as one range.
                let options = if plan.mix == LatencyMix::StockLevel { options } else { options.grain(plan.grain) };
                let speculator = Speculator::new(options).map_err(|error| Error::failed(error.to_string()))?;
                Some(Ahead { speculator, grain: plan.grain })
            }
        };
        let (out, scratch) = (LongOrderOutput::default(), Scratch::default());
        Ok(Lane { store, rows: RowStore::new(store), ahead, out, scratch })
    }

    /// Does what the engine's services do, for they have no thread.
    pub(super) fn serve(&self) -> Result<(), Error> {
        self.store.database().step().map_err(|error| Error::failed(error.to_string()))
    }

    /// Forgets what was counted.
    pub(super) fn forget(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.speculator.take_stats();
        }
    }

    /// Runs a transaction to its end.
    pub(super) fn transact(&mut self, job: &TrialInput) -> Result<(), Error> {
        let failed = |error: StoreError| Error::failed(error.to_string());
        let Lane { store, rows, ahead, out, scratch } = self;
        let mut tx = store.begin().map_err(failed)?;
        let ran = match (job, ahead) {
            (TrialInput::Usual(Input::NewOrder(input)), None) => long_order::run(&mut tx, input.order(), out),
            (TrialInput::Usual(Input::NewOrder(input)), Some(ahead)) => ahead.order(&mut tx, rows, input.order(), out),
            (TrialInput::LongOrder(input), None) => long_order::run(&mut tx, input.order(), out),
            (TrialInput::LongOrder(input), Some(ahead)) => ahead.order(&mut tx, rows, input.order(), out),
            (TrialInput::Usual(Input::Delivery(input)), Some(ahead)) => ahead.delivery(&mut tx, rows, input),
            (TrialInput::Usual(Input::StockLevel(input)), Some(ahead)) => ahead.stock_level(&mut tx, rows, input),
            (TrialInput::Usual(input), _) => txn::run(&mut tx, StepOrder::HotLast, input, scratch),
        };
        let ended = match ran.map_err(|failure| Error::failed(failure.to_string()))? {
            Verdict::Commit => tx.commit(),
            Verdict::Rollback => tx.rollback(),
        };
        ended.map(drop).map_err(failed)
    }

    /// What speculation has done, and what stood in its way.
    pub(super) fn speculation(&mut self) -> (Stats, Vec<Dependence>) {
        self.ahead.as_mut().map(|ahead| (ahead.speculator.take_stats(), ahead.speculator.profile())).unwrap_or_default()
    }

    /// Time of a loop of two epochs whose bodies do nothing, in microseconds.
    pub(super) fn fork_join_us(&mut self) -> Result<f64, Error> {
        const LOOPS: u32 = 1_000;
        let failed = |error: StoreError| Error::failed(error.to_string());
        let Some(ahead) = &mut self.ahead else { return Ok(0.0) };
        let mut tx = self.store.begin().map_err(failed)?;
        let begun = Instant::now();
        for _ in 0..LOOPS {
            tx.run_ahead(&mut ahead.speculator, &self.rows, 0..2 * ahead.grain, |_, _| Ok(()), drop)
                .map_err(|failure| Error::failed(failure.to_string()))?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(LOOPS))
    }
}

/// Keys of an epoch for which no memory is taken.
const KEYS: usize = 32;

impl<'s> Ahead<'s> {
    /// New-Order: its lines run ahead.
    fn order(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        rows: &RowStore<'s>,
        order: OrderInput<'_>,
        out: &mut LongOrderOutput,
    ) -> Result<Verdict, Failure<StoreError>> {
        let o = long_order::begin(tx, order, out)?;
        let grain = self.grain;
        tx.run_ahead(
            &mut self.speculator,
            rows,
            0..order.lines.len(),
            |epoch, &line| {
                if line.is_multiple_of(grain) {
                    let lines = order.lines[line..].iter().take(grain);
                    let keys = lines.flat_map(|line| {
                        [
                            RowKey::of::<Item>(&ItemKey { i: line.item }),
                            RowKey::of::<Stock>(&StockKey { w: line.supply_w, i: line.item }),
                        ]
                    });
                    epoch.announce_rows(&keys.collect::<SmallVec<[RowKey; KEYS]>>());
                }
                long_order::line(epoch, order, o, line)
            },
            |line| long_order::shown(out, line),
        )?;
        Ok(long_order::finish(out))
    }

    /// Delivery: its districts run ahead.
    fn delivery(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        rows: &RowStore<'s>,
        input: &DeliveryInput,
    ) -> Result<Verdict, Failure<StoreError>> {
        let mut delivered = SmallVec::<[Option<u32>; 16]>::new();
        tx.run_ahead(
            &mut self.speculator,
            rows,
            1..=input.districts,
            |epoch, &d| delivery::district(epoch, input, d),
            |order| delivered.push(order),
        )?;
        std::hint::black_box(delivered);
        Ok(Verdict::Commit)
    }

    /// Stock-Level: the orders that it looks at run ahead, some at a time.
    fn stock_level(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        rows: &RowStore<'s>,
        input: &StockLevelInput,
    ) -> Result<Verdict, Failure<StoreError>> {
        let next = stock_level::next_order(tx, input)?;
        let (first, grain) = (next.saturating_sub(stock_level::ORDERS), self.grain as u32);
        let mut low = Vec::new();
        tx.run_ahead(
            &mut self.speculator,
            rows,
            (first..next).step_by(self.grain),
            |epoch, &from| {
                let (mut items, mut low) = (Vec::new(), SmallVec::<[u32; 64]>::new());
                stock_level::ordered_items(epoch, input, from, (from + grain).min(next) - 1, &mut items)?;
                stock_level::low_items(epoch, input, &items, |item| low.push(item))?;
                Ok(low)
            },
            |some| low.extend(some),
        )?;
        low.sort_unstable();
        low.dedup();
        std::hint::black_box(low.len());
        Ok(Verdict::Commit)
    }
}
