//! Checks one district: first its orders in chunks, each merged with the order lines and the rows of NEW-ORDER, then its
//! customers and the two secondary indexes.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::ControlFlow;

use super::history::Payments;
use super::rule::{Invariant, Violations};
use super::{DistrictRow, Totals};
use crate::workload::generate::hash64;
use crate::workload::loaded::Loaded;
use crate::workload::ops::{Direction, Read};
use crate::workload::schema::TableId;
use crate::workload::schema::keys::{
    CustomerKey, CustomerNameKey, Name, NewOrderKey, OrderCustomerKey, OrderKey, OrderLineKey,
};
use crate::workload::schema::tables::{Customer, CustomerByName, NewOrder, Order, OrderByCustomer, OrderLine};

/// Maximum number of orders of a chunk, which are in memory at a time.
#[cfg(not(test))]
const CHUNK: usize = 16 * 1024;
/// Maximum number of orders of a chunk. Small, so that tests cover the boundaries of chunks.
#[cfg(test)]
const CHUNK: usize = 7;

/// An order of the chunk, with totals over its lines.
struct OrderTotals {
    o: u32,
    c: u32,
    count: u8,
    has_carrier: bool,
    is_new: bool,
    lines: u32,
    undated: u32,
    delivered: i64,
}

/// Totals over a customer's orders.
#[derive(Clone, Copy, Default)]
struct CustomerTotals {
    /// Sum of the amounts of order lines with a delivery date, in cents.
    delivered: i64,
    /// Number of orders delivered since the load.
    deliveries: u32,
}

/// Digest of a set of index entries: number of entries and sum of their hashes. Independent of the order of the entries.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct EntrySet {
    entries: u64,
    sum: u64,
}

impl EntrySet {
    fn add_name(&mut self, last: &Name, first: &Name, c: u32) {
        self.add(BuildHasherDefault::<DefaultHasher>::default().hash_one((last, first, c)));
    }

    fn add_order(&mut self, c: u32, o: u32) {
        self.add(hash64(u64::from(c) << 32 | u64::from(o)));
    }

    fn add(&mut self, hash: u64) {
        self.entries += 1;
        self.sum = self.sum.wrapping_add(hash);
    }
}

/// Search for orders by ascending numbers. Each search continues at the position of the previous search.
struct OrderCursor<'o> {
    orders: &'o mut [OrderTotals],
    next: usize,
}

impl OrderCursor<'_> {
    fn find(&mut self, o: u32) -> Option<&mut OrderTotals> {
        while self.orders.get(self.next).is_some_and(|order| order.o < o) {
            self.next += 1;
        }
        self.orders.get_mut(self.next).filter(|order| order.o == o)
    }
}

/// Totals over a district's orders.
struct Sums {
    orders: u64,
    largest: Option<u32>,
    with_carrier: u64,
    counts: u64,
    lines: u64,
    new_orders: u64,
    smallest_new: Option<u32>,
    largest_new: Option<u32>,
    index: EntrySet,
    customers: Vec<CustomerTotals>,
}

struct District<'a> {
    loaded: &'a Loaded,
    w: u32,
    row: DistrictRow,
    findings: &'a mut Violations,
    totals: &'a mut Totals,
    sums: Sums,
}

/// Checks one district.
pub(super) fn check<R: Read>(
    reader: &mut R,
    loaded: &Loaded,
    payments: &Payments,
    w: u32,
    row: DistrictRow,
    findings: &mut Violations,
    totals: &mut Totals,
) -> Result<(), R::Error> {
    let sums = Sums {
        orders: 0,
        largest: None,
        with_carrier: 0,
        counts: 0,
        lines: 0,
        new_orders: 0,
        smallest_new: None,
        largest_new: None,
        index: EntrySet::default(),
        customers: vec![CustomerTotals::default(); loaded.scale.customers as usize],
    };
    let mut district = District { loaded, w, row, findings, totals, sums };
    let mut from = Some(0);
    while let Some(first) = from {
        from = district.check_chunk(reader, first)?;
    }
    district.check_totals(payments.taken(w, row.d));
    district.check_customers(reader, payments)?;
    district.check_order_index(reader)
}

impl District<'_> {
    fn at(&self) -> String {
        format!("warehouse {}, district {}", self.w, self.row.d)
    }

    /// Checks up to [`CHUNK`] orders from number `first`. Returns the first number of the next chunk; `None` after the last
    /// chunk.
    fn check_chunk<R: Read>(&mut self, reader: &mut R, first: u32) -> Result<Option<u32>, R::Error> {
        let (w, d) = (self.w, self.row.d);
        let mut orders: Vec<OrderTotals> = Vec::new();
        reader.scan::<Order>(&OrderKey { w, d, o: first }, &OrderKey { w, d, o: u32::MAX }, |key, row| {
            orders.push(OrderTotals {
                o: key.o,
                c: row.cold.c_id.get(),
                count: row.cold.ol_cnt,
                has_carrier: row.hot.carrier_id.is_some(),
                is_new: false,
                lines: 0,
                undated: 0,
                delivered: 0,
            });
            if orders.len() == CHUNK { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        // The last chunk has no upper bound, so that it includes rows that have no order.
        let last = match orders.last() {
            Some(order) if orders.len() == CHUNK => order.o,
            _ => u32::MAX,
        };
        self.merge_new_orders(reader, first, last, &mut orders)?;
        self.merge_lines(reader, first, last, &mut orders)?;
        for order in &orders {
            self.check_order(order);
        }
        Ok(last.checked_add(1))
    }

    fn merge_new_orders<R: Read>(
        &mut self,
        reader: &mut R,
        first: u32,
        last: u32,
        orders: &mut [OrderTotals],
    ) -> Result<(), R::Error> {
        let (w, d) = (self.w, self.row.d);
        let mut orders = OrderCursor { orders, next: 0 };
        reader.scan::<NewOrder>(&NewOrderKey { w, d, o: first }, &NewOrderKey { w, d, o: last }, |key, _| {
            self.sums.new_orders += 1;
            self.sums.smallest_new = self.sums.smallest_new.or(Some(key.o));
            self.sums.largest_new = Some(key.o);
            match orders.find(key.o) {
                Some(order) => order.is_new = true,
                None => self.findings.add(Invariant::C5, || {
                    format!("warehouse {w}, district {d}, order {}: in new_order, but there is no such order", key.o)
                }),
            }
            ControlFlow::Continue(())
        })
    }

    fn merge_lines<R: Read>(
        &mut self,
        reader: &mut R,
        first: u32,
        last: u32,
        orders: &mut [OrderTotals],
    ) -> Result<(), R::Error> {
        let (w, d) = (self.w, self.row.d);
        let loaded_orders = self.loaded.scale.customers;
        let (from, to) = OrderLineKey::range(w, d, first, last);
        let mut orders = OrderCursor { orders, next: 0 };
        reader.scan::<OrderLine>(&from, &to, |key, row| {
            self.sums.lines += 1;
            match orders.find(key.o) {
                Some(order) => {
                    order.lines += 1;
                    if row.hot.delivery_d.is_null() {
                        order.undated += 1;
                    } else {
                        order.delivered += row.cold.amount.get();
                    }
                }
                None => self.findings.add(Invariant::C6, || {
                    format!("warehouse {w}, district {d}, order {}: line {}, but no such order", key.o, key.number)
                }),
            }
            if key.o > loaded_orders {
                let supply_w = row.cold.supply_w_id.get();
                match self.totals.sold.get_mut((supply_w as usize).wrapping_sub(1)) {
                    Some(sold) => {
                        sold.quantity += u64::from(row.cold.quantity);
                        sold.lines += 1;
                        sold.remote += u64::from(supply_w != w);
                    }
                    None => self.findings.add(Invariant::StockSums, || {
                        format!("warehouse {w}, district {d}, order {}: supplied by warehouse {supply_w}", key.o)
                    }),
                }
            }
            ControlFlow::Continue(())
        })
    }

    fn check_order(&mut self, order: &OrderTotals) {
        let (w, d, o) = (self.w, self.row.d, order.o);
        let sums = &mut self.sums;
        let expected = sums.largest.map_or(1, |largest| largest.wrapping_add(1));
        if o != expected {
            self.findings.add(Invariant::OrdersDense, || {
                format!("warehouse {w}, district {d}, order {o}: expected order {expected} next")
            });
        }
        sums.largest = Some(o);
        sums.orders += 1;
        sums.with_carrier += u64::from(order.has_carrier);
        sums.counts += u64::from(order.count);
        sums.index.add_order(order.c, o);
        if order.has_carrier == order.is_new {
            let (carrier, new) = (yes_no(order.has_carrier), yes_no(order.is_new));
            self.findings.add(Invariant::C5, || {
                format!("warehouse {w}, district {d}, order {o}: carrier {carrier}, in new_order {new}")
            });
        }
        if u32::from(order.count) != order.lines {
            let (count, lines) = (order.count, order.lines);
            self.findings.add(Invariant::C6, || {
                format!("warehouse {w}, district {d}, order {o}: O_OL_CNT {count}, {lines} lines")
            });
        }
        let expected_undated = if order.has_carrier { 0 } else { order.lines };
        if order.undated != expected_undated {
            let (carrier, undated, lines) = (yes_no(order.has_carrier), order.undated, order.lines);
            self.findings.add(Invariant::C7, || {
                format!(
                    "warehouse {w}, district {d}, order {o}: carrier {carrier}, {undated} of {lines} lines undelivered"
                )
            });
        }
        match sums.customers.get_mut((order.c as usize).wrapping_sub(1)) {
            Some(customer) => {
                customer.delivered += order.delivered;
                customer.deliveries += u32::from(order.has_carrier && o > self.loaded.scale.delivered());
            }
            None => self.findings.add(Invariant::C10, || {
                format!("warehouse {w}, district {d}, order {o}: customer {} does not exist", order.c)
            }),
        }
    }

    /// Checks consistency conditions 2, 3, 4, 9 and 11. `taken` is the sum of the payments that the district took, in cents.
    fn check_totals(&mut self, taken: i64) {
        let at = self.at();
        let (row, sums) = (self.row, &self.sums);
        let last = row.next_o_id.saturating_sub(1);
        let largest = sums.largest.unwrap_or(0);
        if last != largest {
            self.findings.add(Invariant::C2, || format!("{at}: next order {}, largest order {largest}", row.next_o_id));
        }
        if let Some(largest_new) = sums.largest_new.filter(|&o| o != last) {
            self.findings
                .add(Invariant::C2, || format!("{at}: next order {}, largest new order {largest_new}", row.next_o_id));
        }
        if let (Some(low), Some(high)) = (sums.smallest_new, sums.largest_new)
            && u64::from(high - low) + 1 != sums.new_orders
        {
            let n = sums.new_orders;
            self.findings.add(Invariant::C3, || format!("{at}: new orders {low} to {high}, but {n} rows"));
        }
        if sums.counts != sums.lines {
            let (counts, lines) = (sums.counts, sums.lines);
            self.findings.add(Invariant::C4, || format!("{at}: orders count {counts} lines, there are {lines}"));
        }
        if row.ytd != taken {
            self.findings.add(Invariant::C9, || format!("{at}: D_YTD {}, history {taken} (cents)", row.ytd));
        }
        if sums.orders.wrapping_sub(sums.new_orders) != sums.with_carrier {
            let (orders, new, carrier) = (sums.orders, sums.new_orders, sums.with_carrier);
            self.findings.add(Invariant::C11, || {
                format!("{at}: {orders} orders, {new} of them new, but {carrier} have a carrier")
            });
        }
        let (orders, lines, new) = (sums.orders, sums.lines, sums.new_orders);
        self.totals.count(TableId::Order, orders);
        self.totals.count(TableId::OrderLine, lines);
        self.totals.count(TableId::NewOrder, new);
    }

    /// Checks the number of customers, consistency conditions 10 and 12, the payment and delivery counters, and the index
    /// by name.
    fn check_customers<R: Read>(&mut self, reader: &mut R, payments: &Payments) -> Result<(), R::Error> {
        let (w, d) = (self.w, self.row.d);
        let expected = self.loaded.scale.customers;
        let payments = payments.customers(w, d);
        let (findings, seen) = (&mut *self.findings, &self.sums.customers);
        let mut rows = 0u64;
        let mut names = EntrySet::default();
        let (from, to) = (CustomerKey { w, d, c: 0 }, CustomerKey { w, d, c: u32::MAX });
        reader.scan::<Customer>(&from, &to, |key, row| {
            rows += 1;
            names.add_name(&row.cold.last.padded(), &row.cold.first.padded(), key.c);
            let at = (key.c as usize).wrapping_sub(1);
            let (Some(&(paid, count)), Some(seen)) = (payments.get(at), seen.get(at)) else {
                findings.add(Invariant::RowCounts, || {
                    format!("warehouse {w}, district {d}: there is a customer {}", key.c)
                });
                return ControlFlow::Continue(());
            };
            let hot = &row.hot;
            let (balance, ytd, delivered) = (hot.balance.get(), hot.ytd_payment.get(), seen.delivered);
            let at = || format!("warehouse {w}, district {d}, customer {}", key.c);
            if balance != delivered - paid {
                findings.add(Invariant::C10, || {
                    format!("{}: C_BALANCE {balance}, delivered {delivered}, paid {paid} (cents)", at())
                });
            }
            if balance.wrapping_add(ytd) != delivered {
                findings.add(Invariant::C12, || {
                    format!("{}: C_BALANCE {balance}, C_YTD_PAYMENT {ytd}, delivered {delivered} (cents)", at())
                });
            }
            if hot.payment_cnt.get() != count {
                findings.add(Invariant::Payments, || {
                    format!("{}: C_PAYMENT_CNT {}, history {count}", at(), hot.payment_cnt)
                });
            }
            if hot.delivery_cnt.get() != seen.deliveries {
                findings.add(Invariant::Deliveries, || {
                    format!("{}: C_DELIVERY_CNT {}, delivered orders {}", at(), hot.delivery_cnt, seen.deliveries)
                });
            }
            ControlFlow::Continue(())
        })?;
        self.totals.count(TableId::Customer, rows);
        if rows != u64::from(expected) {
            self.findings.add(Invariant::RowCounts, || {
                format!("warehouse {w}, district {d}: {rows} customers, expected {expected}")
            });
        }
        let mut entries = EntrySet::default();
        let from = CustomerNameKey { w, d, last: [0; 16], first: [0; 16], c: 0 };
        let to = CustomerNameKey { w, d, last: [0xff; 16], first: [0xff; 16], c: u32::MAX };
        reader.scan_index::<CustomerByName>(&from, &to, Direction::Up, |key, primary| {
            // The hash uses the customer number that the entry refers to, so that an entry for a wrong row is detected.
            entries.add_name(&key.last, &key.first, primary.c);
            ControlFlow::Continue(())
        })?;
        self.compare(Invariant::NameIndex, names, entries);
        Ok(())
    }

    fn check_order_index<R: Read>(&mut self, reader: &mut R) -> Result<(), R::Error> {
        let (w, d) = (self.w, self.row.d);
        let mut entries = EntrySet::default();
        let from = OrderCustomerKey { w, d, c: 0, o: 0 };
        let to = OrderCustomerKey { w, d, c: u32::MAX, o: u32::MAX };
        reader.scan_index::<OrderByCustomer>(&from, &to, Direction::Up, |key, primary| {
            entries.add_order(key.c, primary.o);
            ControlFlow::Continue(())
        })?;
        self.compare(Invariant::OrderIndex, self.sums.index, entries);
        Ok(())
    }

    fn compare(&mut self, rule: Invariant, table: EntrySet, index: EntrySet) {
        if table != index {
            let at = self.at();
            self.findings.add(rule, || {
                if table.entries == index.entries {
                    format!("{at}: {} rows and as many entries, but not the same ones", table.entries)
                } else {
                    format!("{at}: {} rows, {} entries", table.entries, index.entries)
                }
            });
        }
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
