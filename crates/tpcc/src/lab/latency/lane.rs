//! One way of running a transaction, on a database of its own.

use std::time::Instant;

use speculate::{Dependence, Options, Speculator, Stats};

use super::LatencyMix;
use crate::engines::storage::speculative::{RowKey, Rows};
use crate::engines::storage::store::{Store, StoreError, StoreTransaction};
use crate::workload::engine::OpenTransaction;
use crate::workload::error::Error;
use crate::workload::generate::Random;
use crate::workload::generate::input::{InputSpace, LongOrderInput, NewOrderInput, OrderInput};
use crate::workload::schema::keys::{ItemKey, StockKey};
use crate::workload::schema::rows::When;
use crate::workload::schema::tables::{Item, Stock};
use crate::workload::txn::long_order::{self, LongOrderOutput};
use crate::workload::txn::{Failure, Verdict};

/// How a lane runs a transaction.
pub(super) enum Work {
    /// One step after the other.
    InOrder,
    /// Its loop runs ahead of it.
    Ahead(Options),
}

/// The input of a transaction.
pub(super) enum Job {
    NewOrder(NewOrderInput),
    LongOrder(LongOrderInput),
}

impl Job {
    /// Draws one for a warehouse.
    pub(super) fn draw(mix: LatencyMix, world: &InputSpace, random: &mut Random, w: u32, now: When) -> Job {
        match mix {
            LatencyMix::NewOrder => Job::NewOrder(world.new_order(random, w, now)),
            LatencyMix::NewOrder150 => Job::LongOrder(world.long_order(random, w, now)),
        }
    }

    fn order(&self) -> OrderInput<'_> {
        match self {
            Job::NewOrder(input) => input.order(),
            Job::LongOrder(input) => input.order(),
        }
    }

    /// Iterations of its loop.
    pub(super) fn items(&self) -> u64 {
        self.order().lines.len() as u64
    }
}

/// A way, with what it needs.
pub(super) struct Lane<'s> {
    store: &'s Store,
    rows: Rows<'s>,
    ahead: Option<Ahead<'s>>,
    out: LongOrderOutput,
}

struct Ahead<'s> {
    speculator: Speculator<Rows<'s>>,
    grain: usize,
}

impl<'s> Lane<'s> {
    pub(super) fn new(store: &'s Store, work: Work) -> Result<Lane<'s>, Error> {
        let ahead = match work {
            Work::InOrder => None,
            Work::Ahead(options) => Some(Ahead {
                speculator: Speculator::new(options).map_err(|error| Error::failed(error.to_string()))?,
                grain: options.grain_of_epochs(),
            }),
        };
        Ok(Lane { store, rows: Rows::new(store), ahead, out: LongOrderOutput::default() })
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
    pub(super) fn transact(&mut self, job: &Job) -> Result<(), Error> {
        let failed = |error: StoreError| Error::failed(error.to_string());
        let mut tx = self.store.begin().map_err(failed)?;
        let order = job.order();
        let ran = match &mut self.ahead {
            None => long_order::run(&mut tx, order, &mut self.out),
            Some(ahead) => ahead.run(&mut tx, &self.rows, order, &mut self.out),
        };
        let verdict = ran.map_err(|failure| Error::failed(failure.to_string()))?;
        let ended = match verdict {
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

impl<'s> Ahead<'s> {
    fn run(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        rows: &Rows<'s>,
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
                    let keys: smallvec::SmallVec<[RowKey; 32]> = keys.collect();
                    epoch.announce(&keys);
                }
                long_order::line(epoch, order, o, line)
            },
            |line| long_order::shown(out, line),
        )?;
        Ok(long_order::finish(out))
    }
}
