//! Delivery (2.7.4), as one transaction over all districts.
//!
//! With [`StepOrder::HotLast`], the order of steps is by table instead of by district: first all rows of NEW-ORDER are
//! removed, then all orders are updated, then all order lines, then all customers. The rows of the next table are announced
//! as a group before they are needed.

use std::hint::black_box;
use std::ops::RangeInclusive;

use arrayvec::ArrayVec;

use super::{Failure, Overflow, Scratch, StepOrder, TxnResult, Verdict};
use crate::workload::generate::input::DeliveryInput;
use crate::workload::ops::Ops;
use crate::workload::schema::keys::{CustomerKey, NewOrderKey, OrderKey, OrderLineKey};
use crate::workload::schema::parts::CustomerHotOnly;
use crate::workload::schema::tables::{Customer, NewOrder, Order, OrderLine};

/// Maximum number of districts of a warehouse.
const MAX_DISTRICTS: usize = 10;

/// Output of a Delivery, for a line of the result file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryOutput {
    /// Delivered orders.
    pub delivered: Delivered,
}

impl DeliveryOutput {
    /// Returns the number of districts without an undelivered order.
    pub fn skipped(&self) -> usize {
        self.delivered.iter().filter(|o| o.is_none()).count()
    }
}

/// Runs a Delivery except for its final commit or rollback.
pub(super) fn run<O: Ops>(ops: &mut O, steps: StepOrder, input: &DeliveryInput, scratch: &mut Scratch) -> TxnResult<O> {
    let out = &mut scratch.out.delivery;
    out.delivered.clear();
    match steps {
        StepOrder::HotLast => deliver_districts(ops, input, 1..=input.districts, &mut out.delivered)?,
        StepOrder::Spec => {
            for d in 1..=input.districts {
                let order = deliver_district(ops, input, d)?;
                out.delivered.push(order);
            }
        }
    }
    black_box(&*out);
    Ok(Verdict::Commit)
}

/// Delivered order of each district; `None` for a district that was skipped.
pub type Delivered = ArrayVec<Option<u32>, MAX_DISTRICTS>;

/// Delivers the oldest undelivered order of each of these districts, table by table. Adds the orders to `delivered`.
pub fn deliver_districts<O: Ops>(
    ops: &mut O,
    input: &DeliveryInput,
    districts: RangeInclusive<u8>,
    delivered: &mut Delivered,
) -> Result<(), Failure<O::Error>> {
    let mut orders: ArrayVec<OrderKey, MAX_DISTRICTS> = ArrayVec::new();
    for d in districts {
        let order = take_new_order(ops, input.w, d)?;
        delivered.push(order.map(|key| key.o));
        orders.extend(order);
    }
    ops.prefetch::<Order>(&orders);
    let lines: ArrayVec<OrderLineKey, MAX_DISTRICTS> =
        orders.iter().map(|key| OrderLineKey { w: key.w, d: key.d, o: key.o, number: 1 }).collect();
    ops.prefetch::<OrderLine>(&lines);
    let mut customers: ArrayVec<CustomerKey, MAX_DISTRICTS> = ArrayVec::new();
    for order in &orders {
        customers.push(set_carrier(ops, input, *order)?);
    }
    ops.prefetch_part::<CustomerHotOnly>(&customers);
    let mut sums = [0; MAX_DISTRICTS];
    for (order, sum) in orders.iter().zip(&mut sums) {
        *sum = date_lines(ops, input, *order)?;
    }
    for (customer, sum) in customers.iter().zip(sums) {
        credit_customer(ops, *customer, sum)?;
    }
    Ok(())
}

/// Delivers the oldest undelivered order of a district. Returns the number of the order; `None` if there is no undelivered
/// order.
pub fn deliver_district<O: Ops>(ops: &mut O, input: &DeliveryInput, d: u8) -> Result<Option<u32>, Failure<O::Error>> {
    let Some(order) = take_new_order(ops, input.w, d)? else { return Ok(None) };
    let customer = set_carrier(ops, input, order)?;
    let sum = date_lines(ops, input, order)?;
    credit_customer(ops, customer, sum)?;
    Ok(Some(order.o))
}

/// Delivers the oldest undelivered order of each district. `date_lines` writes OL_DELIVERY_D of the lines of an order, of which
/// it gets the number, and returns the sum of OL_AMOUNT.
pub fn deliver_by_lines<O: Ops>(
    ops: &mut O,
    input: &DeliveryInput,
    scratch: &mut Scratch,
    mut date_lines: impl FnMut(&mut O, OrderKey, u8) -> Result<i64, Failure<O::Error>>,
) -> TxnResult<O> {
    let delivered = &mut scratch.out.delivery.delivered;
    delivered.clear();
    for d in 1..=input.districts {
        let Some(order) = take_new_order(ops, input.w, d)? else {
            delivered.push(None);
            continue;
        };
        let (customer, lines) = set_carrier_and_count_lines(ops, input, order)?;
        let sum = date_lines(ops, order, lines)?;
        credit_customer(ops, customer, sum)?;
        delivered.push(Some(order.o));
    }
    black_box(&*delivered);
    Ok(Verdict::Commit)
}

/// Removes the oldest NEW-ORDER row of a district. Returns the key of the order; `None` if there is no row.
fn take_new_order<O: Ops>(ops: &mut O, w: u32, d: u8) -> Result<Option<OrderKey>, Failure<O::Error>> {
    let (from, to) = NewOrderKey::range(w, d);
    Ok(ops.remove_first::<NewOrder>(&from, &to)?.map(|NewOrderKey { w, d, o }| OrderKey { w, d, o }))
}

/// Writes O_CARRIER_ID. Returns the customer of the order.
fn set_carrier<O: Ops>(ops: &mut O, input: &DeliveryInput, order: OrderKey) -> Result<CustomerKey, Failure<O::Error>> {
    Ok(set_carrier_and_count_lines(ops, input, order)?.0)
}

/// Writes O_CARRIER_ID. Returns the customer of the order, and the number of lines of the order.
fn set_carrier_and_count_lines<O: Ops>(
    ops: &mut O,
    input: &DeliveryInput,
    order: OrderKey,
) -> Result<(CustomerKey, u8), Failure<O::Error>> {
    let (c, lines) = ops
        .update::<Order, _>(&order, |hot, cold| {
            hot.carrier_id = Some(input.carrier);
            (cold.c_id.get(), cold.ol_cnt)
        })?
        .ok_or_else(|| Failure::missing::<Order>(&order))?;
    Ok((CustomerKey { w: order.w, d: order.d, c }, lines))
}

/// Writes OL_DELIVERY_D of all lines of an order. Returns the sum of OL_AMOUNT.
fn date_lines<O: Ops>(ops: &mut O, input: &DeliveryInput, order: OrderKey) -> Result<i64, Failure<O::Error>> {
    let (from, to) = OrderLineKey::range(order.w, order.d, order.o, order.o);
    let mut sum = 0;
    let lines = ops.update_run::<OrderLine>(&from, &to, |_, hot, cold| {
        hot.delivery_d = input.now;
        sum += cold.amount.get();
    })?;
    if lines == 0 { Err(Failure::missing::<OrderLine>(&from)) } else { Ok(sum) }
}

/// Writes OL_DELIVERY_D of a line. Returns OL_AMOUNT of the line.
pub fn date_line<O: Ops>(
    ops: &mut O,
    input: &DeliveryInput,
    order: OrderKey,
    number: u8,
) -> Result<i64, Failure<O::Error>> {
    let key = OrderLineKey { w: order.w, d: order.d, o: order.o, number };
    ops.update::<OrderLine, _>(&key, |hot, cold| {
        hot.delivery_d = input.now;
        cold.amount.get()
    })?
    .ok_or_else(|| Failure::missing::<OrderLine>(&key))
}

/// Adds `sum`, in cents, to C_BALANCE and increments C_DELIVERY_CNT.
fn credit_customer<O: Ops>(ops: &mut O, customer: CustomerKey, sum: i64) -> Result<(), Failure<O::Error>> {
    ops.update_part::<CustomerHotOnly, _>(&customer, |hot, _| {
        hot.balance.set(hot.balance.get().checked_add(sum).ok_or(Overflow("C_BALANCE"))?);
        hot.delivery_cnt.set(hot.delivery_cnt.get().checked_add(1).ok_or(Overflow("C_DELIVERY_CNT"))?);
        Ok(())
    })?
    .ok_or_else(|| Failure::missing::<Customer>(&customer))?
    .map_err(|o: Overflow| o.of::<Customer, _>())
}
