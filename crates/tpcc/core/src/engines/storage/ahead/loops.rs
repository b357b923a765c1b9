//! Loops of the workload's transactions that can run ahead of their transaction (TLS paper, section 3). The remaining
//! statements of a transaction run in order.

use smallvec::SmallVec;
use speculate::{Dependence, LoopTrace, Options, Speculator, Stats};

use super::rows::{RowKey, RowStore};
use crate::engines::storage::in_order::TransactionLoop;
use crate::engines::storage::store::{Store, StoreError, StoreTransaction, ended_early};
use crate::workload::generate::input::{
    DeliveryInput, Input, OrderInput, OrderStatusInput, PaymentInput, StockLevelInput,
};
use crate::workload::schema::TableId;
use crate::workload::schema::keys::{ItemKey, StockKey};
use crate::workload::schema::parts::ItemDetails;
use crate::workload::schema::tables::Stock;
use crate::workload::txn::long_order::{self, LongOrderOutput};
use crate::workload::txn::payment::Halves;
use crate::workload::txn::{Failure, Scratch, Verdict, customer, delivery, order_status, payment, stock_level};

/// Executor that runs the loops of transactions ahead of the transactions.
pub struct Loops<'s> {
    rows: RowStore<'s>,
    speculator: Speculator<RowStore<'s>>,
    order: LongOrderOutput,
}

/// Inline capacity of the list of keys that an epoch announces.
const KEYS: usize = 32;

type LoopResult = Result<Verdict, Failure<StoreError>>;

impl<'s> Loops<'s> {
    /// Creates the executor and starts its threads.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub fn new(store: &'s Store, options: Options) -> Result<Loops<'s>, StoreError> {
        let speculator = Speculator::new(options).map_err(|error| StoreError::Speculation(error.to_string()))?;
        Ok(Loops { rows: RowStore::new(store), speculator, order: LongOrderOutput::default() })
    }

    /// Runs a transaction of the workload except for its final commit or rollback. Its loop runs ahead, in epochs of `grain`
    /// iterations. `which` selects the loop of a Delivery, the only transaction with two loops.
    pub fn run(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        which: TransactionLoop,
        input: &Input,
        grain: usize,
        scratch: &mut Scratch,
    ) -> LoopResult {
        match input {
            Input::NewOrder(input) => self.run_order(tx, input.order(), grain),
            Input::Payment(input) => self.run_payment(tx, input, grain, scratch),
            Input::OrderStatus(input) => self.run_order_status(tx, input, grain, scratch),
            Input::Delivery(input) if which == TransactionLoop::DeliveredLines => {
                self.run_delivered_lines(tx, input, grain, scratch)
            }
            Input::Delivery(input) => self.run_districts(tx, input, grain, scratch),
            Input::StockLevel(input) => self.run_stock_level(tx, input, grain, scratch),
        }
    }

    /// Runs a New-Order of any length. Its lines run ahead.
    pub fn run_order(&mut self, tx: &mut StoreTransaction<'s>, order: OrderInput<'_>, grain: usize) -> LoopResult {
        self.set_grain(grain)?;
        let out = &mut self.order;
        let o = long_order::begin(tx, order, out)?;
        tx.run_ahead(
            &mut self.speculator,
            &self.rows,
            0..order.lines.len(),
            &[TableId::Item],
            |epoch, &line| {
                if line.is_multiple_of(grain) {
                    let lines = order.lines[line..].iter().take(grain);
                    let keys = lines.flat_map(|line| {
                        [
                            RowKey::of_part::<ItemDetails>(&ItemKey { i: line.item }),
                            RowKey::of::<Stock>(&StockKey { w: line.supply_w, i: line.item }),
                        ]
                    });
                    epoch.announce_rows(&keys.collect::<SmallVec<[RowKey; KEYS]>>());
                }
                long_order::run_line(epoch, order, o, line)
            },
            |line| long_order::add_line_output(out, line),
        )?;
        Ok(long_order::finish(out))
    }

    /// Runs a Payment. Its first half (warehouse and district) runs in parallel with its second half (customer). The HISTORY
    /// row combines the values that both halves have read.
    fn run_payment(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        input: &PaymentInput,
        grain: usize,
        scratch: &mut Scratch,
    ) -> LoopResult {
        self.set_grain(grain)?;
        let key = customer::find(tx, input.customer, scratch)?;
        let mut halves = Halves::default();
        tx.run_ahead(
            &mut self.speculator,
            &self.rows,
            [false, true],
            &[],
            |epoch, &is_payer| payment::update_half(epoch, input, key, is_payer),
            |half| halves.add(half),
        )?;
        halves.finish(tx, input, scratch).unwrap_or_else(|| Err(ended_early()))
    }

    /// Runs an Order-Status. The lines of the order run ahead.
    fn run_order_status(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        input: &OrderStatusInput,
        grain: usize,
        scratch: &mut Scratch,
    ) -> LoopResult {
        self.set_grain(grain)?;
        let (order, lines) = order_status::newest_order(tx, input, scratch)?;
        let shown = &mut scratch.out.order_status.lines;
        tx.run_ahead(
            &mut self.speculator,
            &self.rows,
            1..=lines,
            &[],
            |epoch, &number| order_status::read_line(epoch, order, number),
            // The number of lines is limited to the number that a terminal shows, as in a scan.
            |line| {
                let _ = shown.try_push(line);
            },
        )?;
        std::hint::black_box(&*shown);
        Ok(Verdict::Commit)
    }

    /// Runs a Delivery. The districts run ahead.
    fn run_districts(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        input: &DeliveryInput,
        grain: usize,
        scratch: &mut Scratch,
    ) -> LoopResult {
        self.set_grain(grain)?;
        let delivered = &mut scratch.out.delivery.delivered;
        delivered.clear();
        tx.run_ahead(
            &mut self.speculator,
            &self.rows,
            1..=input.districts,
            &[],
            |epoch, &d| delivery::deliver_district(epoch, input, d),
            |order| delivered.push(order),
        )?;
        std::hint::black_box(&*delivered);
        Ok(Verdict::Commit)
    }

    /// Runs a Delivery. The lines of each order run ahead.
    fn run_delivered_lines(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        input: &DeliveryInput,
        grain: usize,
        scratch: &mut Scratch,
    ) -> LoopResult {
        self.set_grain(grain)?;
        let (speculator, rows) = (&mut self.speculator, &self.rows);
        delivery::deliver_by_lines(tx, input, scratch, |tx, order, lines| {
            let mut sum = 0;
            tx.run_ahead(
                speculator,
                rows,
                1..=lines,
                &[],
                |epoch, &number| delivery::date_line(epoch, input, order, number),
                |amount| sum += amount,
            )?;
            Ok(sum)
        })
    }

    /// Runs a Stock-Level. The recent orders run ahead. An epoch reads the lines of its orders as one range.
    fn run_stock_level(
        &mut self,
        tx: &mut StoreTransaction<'s>,
        input: &StockLevelInput,
        grain: usize,
        scratch: &mut Scratch,
    ) -> LoopResult {
        self.set_grain(1)?;
        let next = stock_level::next_order(tx, input)?;
        let first = next.saturating_sub(stock_level::ORDERS);
        let mut low = Vec::new();
        tx.run_ahead(
            &mut self.speculator,
            &self.rows,
            (first..next).step_by(grain),
            &[TableId::Stock],
            |epoch, &from| stock_level::low_items_of_epoch(epoch, input, from, grain, next),
            |some| low.extend(some),
        )?;
        stock_level::set_output_of_epochs(input, low, scratch);
        Ok(Verdict::Commit)
    }

    /// Runs a loop of `epochs` iterations that do nothing.
    pub fn run_empty(&mut self, tx: &mut StoreTransaction<'s>, epochs: usize) -> Result<(), Failure<StoreError>> {
        self.set_grain(1)?;
        tx.run_ahead(&mut self.speculator, &self.rows, 0..epochs, &[], |_, _| Ok(()), drop)
    }

    /// Returns the counters of the loops since the last call.
    pub fn take_stats(&mut self) -> Stats {
        self.speculator.take_stats()
    }

    /// Returns the dependences that have rewound epochs, most expensive first.
    pub fn profile(&mut self) -> Vec<Dependence> {
        self.speculator.profile()
    }

    /// Returns the traces of the loops since the last call.
    pub fn take_traces(&mut self) -> Vec<LoopTrace> {
        self.speculator.take_traces()
    }

    fn set_grain(&mut self, grain: usize) -> Result<(), StoreError> {
        self.speculator.set_grain(grain).map_err(|error| StoreError::Speculation(error.to_string()))
    }
}
