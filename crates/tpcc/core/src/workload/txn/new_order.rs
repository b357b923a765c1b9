//! New-Order (2.4.2).
//!
//! With [`StepOrder::HotLast`], the district's next order number, on which all orders of a district contend, is taken after
//! customer, items and stock. An order with an unused item number does all its work before it is rolled back: item numbers
//! are not checked beforehand, and a missing item does not stop the processing of the other lines.

use std::hint::black_box;

use arrayvec::ArrayVec;
use zerocopy::little_endian::{I64, U32};

use super::{Failure, Overflow, Scratch, StepOrder, TxnResult, Verdict};
use crate::workload::generate::input::{LineInput, MAX_LINES, NewOrderInput, OrderInput};
use crate::workload::generate::string::is_original;
use crate::workload::ops::Ops;
use crate::workload::schema::keys::{
    CustomerKey, DistrictKey, ItemKey, NewOrderKey, OrderKey, OrderLineKey, StockKey, WarehouseKey,
};
use crate::workload::schema::parts::{CustomerTerms, DistrictTax, ItemDetails, WarehouseTax};
use crate::workload::schema::rows::{OrderCold, OrderHot, OrderLineCold, OrderLineHot, StockHot, Timestamp};
use crate::workload::schema::tables::{Customer, District, NewOrder, Order, OrderLine, Stock, Warehouse};
use crate::workload::schema::text::Text;
use crate::workload::schema::{Row, RowOf};

/// Output fields of New-Order.
#[derive(Clone, Debug, PartialEq)]
pub struct NewOrderOutput {
    /// W_ID, D_ID, C_ID.
    pub customer: CustomerKey,
    /// C_LAST.
    pub last: Text<16>,
    /// C_CREDIT.
    pub credit: [u8; 2],
    /// C_DISCOUNT, 1/10000.
    pub discount: i32,
    /// O_ID.
    pub o_id: u32,
    /// O_ENTRY_D.
    pub entry_d: Timestamp,
    /// W_TAX, 1/10000.
    pub w_tax: i32,
    /// D_TAX, 1/10000.
    pub d_tax: i32,
    /// Total amount of the order, in cents.
    pub total: i64,
    /// Lines of the order. The number of lines is O_OL_CNT. The terminal does not show the lines if `invalid`.
    pub lines: ArrayVec<LineOutput, MAX_LINES>,
    /// True if the terminal shows the message "Item number is not valid".
    pub invalid: bool,
}

/// Output fields of one line of the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineOutput {
    /// OL_SUPPLY_W_ID.
    pub supply_w: u32,
    /// OL_I_ID.
    pub item: u32,
    /// I_NAME.
    pub name: Text<24>,
    /// OL_QUANTITY.
    pub quantity: u8,
    /// S_QUANTITY after the order.
    pub stock: i16,
    /// Brand: `B` if both I_DATA and S_DATA contain ORIGINAL, otherwise `G`.
    pub brand: u8,
    /// I_PRICE, cents.
    pub price: i64,
    /// OL_AMOUNT, cents.
    pub amount: i64,
}

impl Default for NewOrderOutput {
    fn default() -> Self {
        NewOrderOutput {
            customer: CustomerKey { w: 0, d: 0, c: 0 },
            last: Text::EMPTY,
            credit: [0; 2],
            discount: 0,
            o_id: 0,
            entry_d: Timestamp::NULL,
            w_tax: 0,
            d_tax: 0,
            total: 0,
            lines: ArrayVec::new(),
            invalid: false,
        }
    }
}

impl NewOrderOutput {
    /// Sets the output fields that are known from the input.
    pub fn start(&mut self, order: OrderInput<'_>) {
        self.invalid = false;
        self.customer = order.customer;
        self.entry_d = order.now;
    }
}

/// Runs a New-Order except for its final commit or rollback.
pub(super) fn run<O: Ops>(ops: &mut O, steps: StepOrder, input: &NewOrderInput, scratch: &mut Scratch) -> TxnResult<O> {
    let (rows, out) = (&mut scratch.lines, &mut scratch.out.new_order);
    let order = input.order();
    rows.clear();
    out.lines.clear();
    out.start(order);
    match steps {
        StepOrder::HotLast => {
            // The customer's row is prefetched together with the items.
            prefetch(ops, order);
            let found = items(ops, order.lines, &mut out.lines)?;
            customer(ops, order, out)?;
            out.invalid = found[..order.lines.len()].contains(&false);
            let by_stock = by_stock(order.lines);
            let by_stock: ArrayVec<usize, MAX_LINES> = by_stock.filter(|&i| found[i]).collect();
            let dist_info = stocks(ops, order, &by_stock, &mut out.lines)?;
            district(ops, order, out)?;
            insert_order(ops, order, out.o_id)?;
            for (i, line) in out.lines.iter().enumerate().filter(|&(i, _)| found[i]) {
                rows.push(order_line(order, out.o_id, i, line, dist_info[i]));
            }
            ops.insert_run::<OrderLine>(rows)?;
            warehouse(ops, order, out)?;
        }
        StepOrder::Spec => {
            warehouse(ops, order, out)?;
            district(ops, order, out)?;
            customer(ops, order, out)?;
            insert_order(ops, order, out.o_id)?;
            for i in 0..order.lines.len() {
                let Some(output) = line(ops, order, out.o_id, i)? else {
                    out.invalid = true;
                    break;
                };
                out.lines.push(output);
            }
        }
    }
    out.total = total(out, &out.lines);
    black_box(&*out);
    Ok(if out.invalid { Verdict::Rollback } else { Verdict::Commit })
}

/// Announces the rows that an order accesses, except the rows of its lines. The customer's row is prefetched together with
/// the rows of the next statement on several rows.
pub(super) fn prefetch<O: Ops>(ops: &mut O, order: OrderInput<'_>) {
    let CustomerKey { w, d, .. } = order.customer;
    // The prefetch ignores the last column of the key, so any order number is suitable.
    ops.prefetch_insert::<NewOrder>(&NewOrderKey { w, d, o: 0 });
    ops.prefetch_insert::<Order>(&OrderKey { w, d, o: 0 });
    ops.prefetch_insert::<OrderLine>(&OrderLineKey { w, d, o: 0, number: 0 });
    ops.prefetch_along::<CustomerTerms>(&order.customer);
}

/// Returns the line positions sorted by stock row. A transaction on one thread locks the
/// stock rows of a group in this order, which avoids deadlocks.
pub(super) fn by_stock(lines: &[LineInput]) -> impl Iterator<Item = usize> + use<> {
    let packed = lines.iter().enumerate().map(|(i, line)| stock_order::<LINE_BITS>(line, i));
    let mut order: ArrayVec<u64, MAX_LINES> = packed.collect();
    order.sort_unstable();
    order.into_iter().map(|packed| packed as usize % (1 << LINE_BITS))
}

/// Returns the sort key of a line by its stock row: warehouse, item and position, of which the position takes `BITS` bits. Lines
/// with equal stock rows keep their order. The key is packed into one machine word, which is compared without a branch.
#[inline(always)]
pub(super) fn stock_order<const BITS: u32>(line: &LineInput, position: usize) -> u64 {
    debug_assert!(line.item >> (32 - BITS) == 0 && position >> BITS == 0);
    u64::from(line.supply_w) << 32 | u64::from(line.item) << BITS | position as u64
}

/// Number of bits of a line's position in the sort key.
const LINE_BITS: u32 = 4;
const _: () = assert!(MAX_LINES <= 1 << LINE_BITS);

pub(super) fn warehouse<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut NewOrderOutput,
) -> Result<(), Failure<O::Error>> {
    let key = WarehouseKey { w: order.customer.w };
    out.w_tax = ops
        .read_part::<WarehouseTax, _>(&key, |part| part.tax.get())?
        .ok_or_else(|| Failure::missing::<Warehouse>(&key))?;
    Ok(())
}

pub(super) fn district<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut NewOrderOutput,
) -> Result<(), Failure<O::Error>> {
    let key = DistrictKey { w: order.customer.w, d: order.customer.d };
    let taken = ops.update_part::<DistrictTax, _>(&key, |hot, cold| {
        let o_id = hot.next_o_id.get();
        hot.next_o_id = U32::new(o_id.checked_add(1).ok_or(Overflow("D_NEXT_O_ID"))?);
        Ok((o_id, cold.tax.get()))
    })?;
    (out.o_id, out.d_tax) =
        taken.ok_or_else(|| Failure::missing::<District>(&key))?.map_err(|o: Overflow| o.of::<District, _>())?;
    Ok(())
}

pub(super) fn customer<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut NewOrderOutput,
) -> Result<(), Failure<O::Error>> {
    let key = order.customer;
    ops.read_part::<CustomerTerms, _>(&key, |terms| {
        out.discount = terms.discount.get();
        out.last = terms.last;
        out.credit = terms.credit;
    })?
    .ok_or_else(|| Failure::missing::<Customer>(&key))
}

/// Inserts the rows of NEW-ORDER and ORDER.
pub(super) fn insert_order<O: Ops>(ops: &mut O, order: OrderInput<'_>, o: u32) -> Result<(), Failure<O::Error>> {
    let CustomerKey { w, d, c } = order.customer;
    ops.insert::<NewOrder>(&NewOrderKey { w, d, o }, &Row { hot: (), cold: () })?;
    let cold = OrderCold {
        c_id: U32::new(c),
        entry_d: order.now,
        ol_cnt: order.lines.len() as u8,
        all_local: u8::from(order.lines.iter().all(|line| line.supply_w == w)),
    };
    ops.insert::<Order>(&OrderKey { w, d, o }, &Row { hot: OrderHot { carrier_id: None }, cold })?;
    Ok(())
}

/// Runs all steps of line number `i` of order `o`. Returns `None` if the item does not exist.
fn line<O: Ops>(ops: &mut O, order: OrderInput<'_>, o: u32, i: usize) -> Result<Option<LineOutput>, Failure<O::Error>> {
    let (mut output, is_there) = item(ops, &order.lines[i])?;
    if !is_there {
        return Ok(None);
    }
    let dist_info = stock(ops, order.customer, &mut output)?;
    let (key, row) = order_line(order, o, i, &output, dist_info);
    ops.insert::<OrderLine>(&key, &row)?;
    Ok(Some(output))
}

/// Reads I_PRICE, I_NAME and I_DATA. Returns false if the item does not exist. The brand in the output is provisional: it
/// depends on I_DATA, but not yet on S_DATA.
fn item<O: Ops>(ops: &mut O, line: &LineInput) -> Result<(LineOutput, bool), Failure<O::Error>> {
    let mut output = LineOutput::of(line);
    let found = ops.read_part::<ItemDetails, _>(&ItemKey { i: line.item }, |item| output.show(item))?;
    Ok((output, found.is_some()))
}

/// Does the work of [`item`] for all lines. Returns true for each line whose item exists.
pub(super) fn items<O: Ops>(
    ops: &mut O,
    lines: &[LineInput],
    out: &mut ArrayVec<LineOutput, MAX_LINES>,
) -> Result<[bool; MAX_LINES], Failure<O::Error>> {
    out.extend(lines.iter().map(LineOutput::of));
    let keys: ArrayVec<ItemKey, MAX_LINES> = lines.iter().map(|line| ItemKey { i: line.item }).collect();
    let mut found = [false; MAX_LINES];
    ops.read_parts::<ItemDetails>(&keys, |i, item| {
        found[i] = true;
        out[i].show(item);
    })?;
    Ok(found)
}

impl LineOutput {
    /// Creates the output of a line from its input.
    pub(super) fn of(line: &LineInput) -> LineOutput {
        LineOutput {
            supply_w: line.supply_w,
            item: line.item,
            name: Text::EMPTY,
            quantity: line.quantity,
            stock: 0,
            brand: b'G',
            price: 0,
            amount: 0,
        }
    }

    /// Sets the output fields that depend on the item. The brand is provisional: it depends on I_DATA, but not yet on
    /// S_DATA.
    fn show(&mut self, item: &ItemDetails) {
        self.name = item.name;
        self.price = item.price.get();
        self.brand = if is_original(&item.data) { b'B' } else { b'G' };
        self.amount = self.price * i64::from(self.quantity);
    }
}

/// Subtracts the line's quantity from the stock. Returns S_DIST_xx of the order's district.
fn stock<O: Ops>(ops: &mut O, customer: CustomerKey, line: &mut LineOutput) -> Result<[u8; 24], Failure<O::Error>> {
    let key = StockKey { w: line.supply_w, i: line.item };
    let is_remote = line.supply_w != customer.w;
    let quantity = line.quantity;
    let taken = ops.update::<Stock, _>(&key, |hot, cold| {
        take(hot, quantity, is_remote)?;
        Ok((hot.quantity.get(), is_original(&cold.data), cold.dist[usize::from(customer.d - 1)]))
    })?;
    let (left, original, dist_info) =
        taken.ok_or_else(|| Failure::missing::<Stock>(&key))?.map_err(|o: Overflow| o.of::<Stock, _>())?;
    line.stock = left;
    if !original {
        line.brand = b'G';
    }
    Ok(dist_info)
}

/// Does the work of [`stock`] for the lines at the positions `by_stock`, in the order of these positions.
pub(super) fn stocks<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    by_stock: &[usize],
    lines: &mut [LineOutput],
) -> Result<[[u8; 24]; MAX_LINES], Failure<O::Error>> {
    let keys: ArrayVec<StockKey, MAX_LINES> =
        by_stock.iter().map(|&i| StockKey { w: lines[i].supply_w, i: lines[i].item }).collect();
    let mut dist_info = [[0; 24]; MAX_LINES];
    let mut seen = [false; MAX_LINES];
    let mut overflow = None;
    ops.update_many::<Stock>(&keys, |at, hot, cold| {
        let (i, line) = (by_stock[at], &mut lines[by_stock[at]]);
        seen[at] = true;
        match take(hot, line.quantity, line.supply_w != order.customer.w) {
            Ok(()) => {}
            Err(o) => overflow = Some(o),
        }
        line.stock = hot.quantity.get();
        if !is_original(&cold.data) {
            line.brand = b'G';
        }
        dist_info[i] = cold.dist[usize::from(order.customer.d - 1)];
    })?;
    match (overflow, seen.iter().zip(&keys).find(|(seen, _)| !**seen)) {
        (Some(overflow), _) => Err(overflow.of::<Stock, _>()),
        (None, Some((_, key))) => Err(Failure::missing::<Stock>(key)),
        (None, None) => Ok(dist_info),
    }
}

fn take(hot: &mut StockHot, quantity: u8, is_remote: bool) -> Result<(), Overflow> {
    let wanted = i16::from(quantity);
    let there = hot.quantity.get();
    let left = if there >= wanted + 10 { there - wanted } else { there - wanted + 91 };
    hot.quantity.set(left);
    hot.ytd.set(hot.ytd.get().checked_add(u64::from(quantity)).ok_or(Overflow("S_YTD"))?);
    hot.order_cnt.set(hot.order_cnt.get().checked_add(1).ok_or(Overflow("S_ORDER_CNT"))?);
    if is_remote {
        hot.remote_cnt.set(hot.remote_cnt.get().checked_add(1).ok_or(Overflow("S_REMOTE_CNT"))?);
    }
    Ok(())
}

pub(super) fn order_line(
    order: OrderInput<'_>,
    o: u32,
    i: usize,
    line: &LineOutput,
    dist_info: [u8; 24],
) -> (OrderLineKey, RowOf<OrderLine>) {
    let CustomerKey { w, d, .. } = order.customer;
    let cold = OrderLineCold {
        i_id: U32::new(line.item),
        supply_w_id: U32::new(line.supply_w),
        quantity: line.quantity,
        amount: I64::new(line.amount),
        dist_info,
    };
    (OrderLineKey { w, d, o, number: i as u8 + 1 }, Row { hot: OrderLineHot { delivery_d: Timestamp::NULL }, cold })
}

/// Returns the total amount, sum(OL_AMOUNT) * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), rounded to the cent.
pub fn total(out: &NewOrderOutput, lines: &[LineOutput]) -> i64 {
    let sum: i64 = lines.iter().map(|line| line.amount).sum();
    let scaled = sum * i64::from(10_000 - out.discount) * i64::from(10_000 + out.w_tax + out.d_tax);
    (scaled + 50_000_000) / 100_000_000
}

#[cfg(test)]
mod tests {
    use zerocopy::little_endian::{I16, U64};

    use super::*;

    #[test]
    fn totals_are_exact_cents() {
        let mut out = NewOrderOutput { discount: 5_000, w_tax: 1_000, d_tax: 1_000, ..NewOrderOutput::default() };
        let line = LineOutput {
            supply_w: 1,
            item: 1,
            name: Text::EMPTY,
            quantity: 1,
            stock: 1,
            brand: b'G',
            price: 10_000,
            amount: 10_000,
        };
        out.lines.push(line);
        assert_eq!(total(&out, &out.lines), 6_000);
        out.lines.push(LineOutput { amount: 1, ..line });
        // 100.01 * 0.5 * 1.2 = 60.006
        assert_eq!(total(&out, &out.lines), 6_001);
    }

    #[test]
    fn stock_stays_between_10_and_100() {
        for there in 10..=100 {
            for quantity in 1..=10 {
                let mut hot =
                    StockHot { quantity: I16::new(there), ytd: U64::ZERO, order_cnt: U32::ZERO, remote_cnt: U32::ZERO };
                take(&mut hot, quantity, quantity == 3).map_err(|o| o.0).unwrap();
                assert!((10..=100).contains(&hot.quantity.get()), "{there} - {quantity}: {}", hot.quantity);
                assert_eq!(hot.ytd.get(), u64::from(quantity));
                assert_eq!((hot.order_cnt.get(), hot.remote_cnt.get()), (1, u32::from(quantity == 3)));
            }
        }
        let mut full =
            StockHot { quantity: I16::new(50), ytd: U64::ZERO, order_cnt: U32::new(u32::MAX), remote_cnt: U32::ZERO };
        assert!(take(&mut full, 1, false).is_err());
    }
}
