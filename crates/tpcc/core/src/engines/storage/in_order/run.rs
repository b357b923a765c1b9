//! The workload's transactions with their loops on several threads. The remaining statements of a transaction run on its own
//! thread.

use smallvec::SmallVec;

use super::{EpochLength, TransactionLoop};
use crate::engines::storage::store::{StoreError, StoreTransaction, ended_early};
use crate::workload::generate::input::{
    DeliveryInput, Input, OrderInput, OrderStatusInput, PaymentInput, StockLevelInput,
};
use crate::workload::txn::long_order::{self, LongOrderOutput};
use crate::workload::txn::payment::Halves;
use crate::workload::txn::{Failure, Scratch, Verdict, customer, delivery, order_status, payment, stock_level};

type LoopResult = Result<Verdict, Failure<StoreError>>;

/// Runs a transaction of the workload except for its final commit or rollback. `which` selects the loop of a Delivery, the only
/// transaction with two loops.
pub fn run(
    tx: &mut StoreTransaction<'_>,
    which: TransactionLoop,
    input: &Input,
    length: EpochLength,
    scratch: &mut Scratch,
    order: &mut LongOrderOutput,
) -> LoopResult {
    match input {
        Input::NewOrder(input) => run_order(tx, TransactionLoop::OrderLines, input.order(), length, order),
        Input::Payment(input) => run_payment(tx, input, scratch),
        Input::OrderStatus(input) => run_order_status(tx, input, length, scratch),
        Input::Delivery(input) if which == TransactionLoop::DeliveredLines => {
            run_delivered_lines(tx, input, length, scratch)
        }
        Input::Delivery(input) => run_districts(tx, input, length, scratch),
        Input::StockLevel(input) => run_stock_level(tx, input, length, scratch),
    }
}

/// Returns the last iteration of the epoch that begins with `first`, in a loop up to `end`.
fn last_of_epoch(first: u8, grain: usize, end: u8) -> u8 {
    let last = usize::from(first).saturating_add(grain - 1);
    u8::try_from(last).map_or(end, |last| last.min(end))
}

/// Runs a New-Order of any length. The loop is over its lines, sorted by their stock rows. `which` says if it may have many.
pub fn run_order(
    tx: &mut StoreTransaction<'_>,
    which: TransactionLoop,
    order: OrderInput<'_>,
    length: EpochLength,
    out: &mut LongOrderOutput,
) -> LoopResult {
    long_order::begin_groups(tx, order, out)?;
    let lines = out.take_lines();
    let ran = tx.in_order(
        lines.chunks(length.of(which, lines.len())),
        |tx, lines| long_order::run_group(tx, order, lines),
        |group| long_order::add_group(out, &group),
    );
    out.return_lines(lines);
    ran?;
    long_order::end_groups(tx, order, out)
}

/// Runs a Payment. The loop has two iterations: warehouse and district, and customer. The HISTORY row combines the values
/// that both have read.
fn run_payment(tx: &mut StoreTransaction<'_>, input: &PaymentInput, scratch: &mut Scratch) -> LoopResult {
    let key = customer::find(tx, input.customer, scratch)?;
    let mut halves = Halves::default();
    tx.in_order(
        [false, true],
        |tx, &is_payer| payment::update_half(tx, input, key, is_payer),
        |half| halves.add(half),
    )?;
    halves.finish(tx, input, scratch).unwrap_or_else(|| Err(ended_early()))
}

/// Runs an Order-Status. The loop is over the lines of the order.
fn run_order_status(
    tx: &mut StoreTransaction<'_>,
    input: &OrderStatusInput,
    length: EpochLength,
    scratch: &mut Scratch,
) -> LoopResult {
    let (order, lines) = order_status::newest_order(tx, input, scratch)?;
    let shown = &mut scratch.out.order_status.lines;
    let grain = length.of(TransactionLoop::StatusLines, lines.into());
    tx.in_order(
        (1..=lines).step_by(grain),
        |tx, &first| {
            let numbers = first..=last_of_epoch(first, grain, lines);
            numbers.map(|number| order_status::read_line(tx, order, number)).collect::<Result<SmallVec<[_; 8]>, _>>()
        },
        // The number of lines is limited to the number that a terminal shows, as in a scan.
        |lines| {
            for line in lines {
                let _ = shown.try_push(line);
            }
        },
    )?;
    std::hint::black_box(&*shown);
    Ok(Verdict::Commit)
}

/// Runs a Delivery. The loop is over the districts.
fn run_districts(
    tx: &mut StoreTransaction<'_>,
    input: &DeliveryInput,
    length: EpochLength,
    scratch: &mut Scratch,
) -> LoopResult {
    let delivered = &mut scratch.out.delivery.delivered;
    delivered.clear();
    let grain = length.of(TransactionLoop::Districts, input.districts.into());
    tx.in_order(
        (1..=input.districts).step_by(grain),
        |tx, &first| {
            let mut delivered = delivery::Delivered::new();
            let districts = first..=last_of_epoch(first, grain, input.districts);
            delivery::deliver_districts(tx, input, districts, &mut delivered)?;
            Ok(delivered)
        },
        |some| delivered.extend(some),
    )?;
    std::hint::black_box(&*delivered);
    Ok(Verdict::Commit)
}

/// Runs a Delivery. The loops are over the lines of each order.
fn run_delivered_lines(
    tx: &mut StoreTransaction<'_>,
    input: &DeliveryInput,
    length: EpochLength,
    scratch: &mut Scratch,
) -> LoopResult {
    delivery::deliver_by_lines(tx, input, scratch, |tx, order, lines| {
        let mut sum = 0;
        let grain = length.of(TransactionLoop::DeliveredLines, lines.into());
        tx.in_order(
            (1..=lines).step_by(grain),
            |tx, &first| {
                let mut numbers = first..=last_of_epoch(first, grain, lines);
                numbers.try_fold(0, |sum, number| Ok(sum + delivery::date_line(tx, input, order, number)?))
            },
            |amount| sum += amount,
        )?;
        Ok(sum)
    })
}

/// Runs a Stock-Level. The loop is over the recent orders. An epoch reads the lines of its orders as one range.
fn run_stock_level(
    tx: &mut StoreTransaction<'_>,
    input: &StockLevelInput,
    length: EpochLength,
    scratch: &mut Scratch,
) -> LoopResult {
    let next = stock_level::next_order(tx, input)?;
    let first = next.saturating_sub(stock_level::ORDERS);
    let mut low = Vec::new();
    let grain = length.of(TransactionLoop::RecentOrders, (next - first) as usize);
    tx.in_order(
        (first..next).step_by(grain),
        |tx, &from| stock_level::low_items_of_epoch(tx, input, from, grain, next),
        |some| low.extend(some),
    )?;
    stock_level::set_output_of_epochs(input, low, scratch);
    Ok(Verdict::Commit)
}
