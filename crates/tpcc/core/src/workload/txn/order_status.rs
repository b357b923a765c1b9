//! Order-Status (2.6.2).

use std::hint::black_box;
use std::num::NonZeroU8;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;

use super::{Failure, Scratch, TxnResult, Verdict, customer};
use crate::workload::generate::input::{MAX_LINES, OrderStatusInput};
use crate::workload::ops::{Direction, Ops};
use crate::workload::schema::RowOf;
use crate::workload::schema::keys::{CustomerKey, OrderCustomerKey, OrderKey, OrderLineKey};
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::tables::{Customer, Order, OrderByCustomer, OrderLine};
use crate::workload::schema::text::Text;

/// Output fields of Order-Status.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderStatusOutput {
    /// C_W_ID, C_D_ID, C_ID.
    pub customer: CustomerKey,
    /// C_FIRST.
    pub first: Text<16>,
    /// C_MIDDLE.
    pub middle: [u8; 2],
    /// C_LAST.
    pub last: Text<16>,
    /// C_BALANCE, cents.
    pub balance: i64,
    /// O_ID.
    pub o_id: u32,
    /// O_ENTRY_D.
    pub entry_d: Timestamp,
    /// O_CARRIER_ID; `None` while the order is undelivered.
    pub carrier: Option<NonZeroU8>,
    /// Lines of the order.
    pub lines: ArrayVec<OrderedLine, MAX_LINES>,
}

/// Output fields of one line of the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderedLine {
    /// OL_SUPPLY_W_ID.
    pub supply_w: u32,
    /// OL_I_ID.
    pub item: u32,
    /// OL_QUANTITY.
    pub quantity: u8,
    /// OL_AMOUNT, cents.
    pub amount: i64,
    /// OL_DELIVERY_D; null while the order is undelivered.
    pub delivery_d: Timestamp,
}

impl Default for OrderStatusOutput {
    fn default() -> Self {
        OrderStatusOutput {
            customer: CustomerKey { w: 0, d: 0, c: 0 },
            first: Text::EMPTY,
            middle: [0; 2],
            last: Text::EMPTY,
            balance: 0,
            o_id: 0,
            entry_d: Timestamp::NULL,
            carrier: None,
            lines: ArrayVec::new(),
        }
    }
}

/// Runs an Order-Status except for its final commit or rollback.
pub(super) fn run<O: Ops>(ops: &mut O, input: &OrderStatusInput, scratch: &mut Scratch) -> TxnResult<O> {
    let (order, _) = newest_order(ops, input, scratch)?;
    let out = &mut scratch.out.order_status;
    let (from, to) = OrderLineKey::range(order.w, order.d, order.o, order.o);
    ops.scan::<OrderLine>(&from, &to, |_, row| match out.lines.try_push(ordered_line(row)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    })?;
    black_box(&*out);
    Ok(Verdict::Commit)
}

/// Runs all steps except the lines: finds the customer and the newest order of that customer. Returns the key of the order
/// and the number of its lines.
pub fn newest_order<O: Ops>(
    ops: &mut O,
    input: &OrderStatusInput,
    scratch: &mut Scratch,
) -> Result<(OrderKey, u8), Failure<O::Error>> {
    let key = customer::find(ops, input.customer, scratch)?;
    let out = &mut scratch.out.order_status;
    out.lines.clear();
    out.customer = key;
    ops.read::<Customer, _>(&key, |row| {
        out.first = row.cold.first;
        out.middle = row.cold.middle;
        out.last = row.cold.last;
        out.balance = row.hot.balance.get();
    })?
    .ok_or_else(|| Failure::missing::<Customer>(&key))?;

    let (from, to) = OrderCustomerKey::range(key.w, key.d, key.c);
    let mut newest = None;
    ops.scan_index::<OrderByCustomer>(&from, &to, Direction::Down, |_, order| {
        newest = Some(*order);
        ControlFlow::Break(())
    })?;
    // Each customer has at least one order, because the load creates one.
    let order = newest.ok_or_else(|| Failure::missing::<Order>(&OrderKey { w: key.w, d: key.d, o: 0 }))?;
    out.o_id = order.o;
    let lines = ops
        .read::<Order, _>(&order, |row| {
            out.entry_d = row.cold.entry_d;
            out.carrier = row.hot.carrier_id;
            row.cold.ol_cnt
        })?
        .ok_or_else(|| Failure::missing::<Order>(&order))?;
    Ok((order, lines))
}

/// Reads line `number` of an order.
pub fn read_line<O: Ops>(ops: &mut O, order: OrderKey, number: u8) -> Result<OrderedLine, Failure<O::Error>> {
    let key = OrderLineKey { w: order.w, d: order.d, o: order.o, number };
    ops.read::<OrderLine, _>(&key, ordered_line)?.ok_or_else(|| Failure::missing::<OrderLine>(&key))
}

fn ordered_line(row: &RowOf<OrderLine>) -> OrderedLine {
    OrderedLine {
        supply_w: row.cold.supply_w_id.get(),
        item: row.cold.i_id.get(),
        quantity: row.cold.quantity,
        amount: row.cold.amount.get(),
        delivery_d: row.hot.delivery_d,
    }
}
