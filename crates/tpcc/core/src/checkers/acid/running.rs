//! A transaction under control of a test: it runs whole TPC-C transaction profiles and single reads, until the test commits
//! it or rolls it back.

use std::num::NonZeroU8;
use std::ops::ControlFlow;

use super::observed_ops::ObservedOps;
use super::text;
use crate::engines::storage::store::StoreTransaction;
use crate::workload::engine::OpenTransaction;
use crate::workload::generate::input::{
    CustomerSelector, DeliveryInput, Input, LineInput, NewOrderInput, OrderStatusInput, PaymentInput,
};
use crate::workload::ops::{Ops, Read};
use crate::workload::schema::Scale;
use crate::workload::schema::keys::{
    CustomerKey, DistrictKey, HistoryKey, ItemKey, NewOrderKey, OrderKey, OrderLineKey, WarehouseKey,
};
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::tables::{Customer, District, History, Item, NewOrder, Order, OrderLine, Warehouse};
use crate::workload::txn::{self, Scratch, StepOrder, Verdict};

/// Date that all transactions of the tests store.
const NOW: u64 = 99;
/// Terminal number in the HISTORY keys of the tests' payments. No other terminal has this number.
const TERMINAL: u32 = u32::MAX;

/// A transaction in progress. Rolled back on drop.
pub struct Running<'s> {
    tx: StoreTransaction<'s>,
    steps: StepOrder,
    scale: Scale,
    scratch: Box<Scratch>,
    payments: u64,
}

impl std::fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// Output fields of Order-Status that the tests compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// O_ID.
    pub o: u32,
    /// O_CARRIER_ID.
    pub carrier: Option<u8>,
    /// C_BALANCE, cents.
    pub balance: i64,
    /// OL_I_ID, OL_QUANTITY and OL_AMOUNT of the order's lines.
    pub lines: Vec<(u32, u8, i64)>,
}

/// Values of the rows that a payment changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// W_YTD, cents.
    pub w_ytd: i64,
    /// D_YTD, cents.
    pub d_ytd: i64,
    /// C_BALANCE, cents.
    pub balance: i64,
    /// C_YTD_PAYMENT, cents.
    pub ytd_payment: i64,
    /// C_PAYMENT_CNT.
    pub payments: u32,
    /// Number of rows in HISTORY.
    pub history: u64,
}

type Answer<T> = Result<T, String>;

impl<'s> Running<'s> {
    pub(super) fn new(tx: StoreTransaction<'s>, steps: StepOrder, scale: Scale) -> Running<'s> {
        Running { tx, steps, scale, scratch: Box::default(), payments: 0 }
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// Error message of the engine. The same holds for all methods below.
    pub fn commit(self) -> Answer<()> {
        self.tx.commit().map(drop).map_err(text)
    }

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn rollback(self) -> Answer<()> {
        self.tx.rollback().map(drop).map_err(text)
    }

    fn run(&mut self, input: &Input, after: &mut dyn FnMut(&'static str, bool)) -> Answer<Verdict> {
        let mut observed = ObservedOps { ops: &mut self.tx, after };
        txn::run(&mut observed, self.steps, input, &mut self.scratch).map_err(text)
    }

    /// Runs all operations of a New-Order that orders one piece of each item of `items`. If an item does not exist, the
    /// New-Order ends with a rollback. `after` is called after each operation. Returns O_ID and, for each line, OL_I_ID and
    /// I_PRICE.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn new_order(
        &mut self,
        (w, d, c): (u32, u8, u32),
        items: &[u32],
        after: &mut dyn FnMut(&'static str, bool),
    ) -> Answer<(u32, Vec<(u32, i64)>)> {
        let lines = items.iter().map(|&item| LineInput { item, supply_w: w, quantity: 1 }).collect();
        let rolls_back = items.iter().any(|&item| item > self.scale.items);
        let customer = CustomerKey { w, d, c };
        let input = Input::NewOrder(NewOrderInput { customer, now: Timestamp::at(NOW), lines, rolls_back });
        let verdict = self.run(&input, after)?;
        if (verdict == Verdict::Rollback) != rolls_back {
            return Err(format!("{verdict:?} of an order of {items:?}"));
        }
        let out = &self.scratch.out.new_order;
        Ok((out.o_id, out.lines.iter().map(|line| (line.item, line.price)).collect()))
    }

    /// Returns an item number that is not in ITEM.
    pub fn unused_item(&self) -> u32 {
        self.scale.items + 1
    }

    /// Runs a Payment of `amount` cents, with the customer selected by number.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn payment(&mut self, (w, d, c): (u32, u8, u32), amount: i64) -> Answer<()> {
        self.payments += 1;
        let history = HistoryKey { run: NOW as u32, terminal: TERMINAL, sequence: self.payments };
        let customer = CustomerSelector::Id(CustomerKey { w, d, c });
        let input = Input::Payment(PaymentInput { w, d, customer, amount, now: Timestamp::at(NOW), history });
        self.run(&input, &mut |_, _| {}).map(drop)
    }

    /// Runs an Order-Status, with the customer selected by number.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn order_status(
        &mut self,
        (w, d, c): (u32, u8, u32),
        after: &mut dyn FnMut(&'static str, bool),
    ) -> Answer<Status> {
        let input = Input::OrderStatus(OrderStatusInput { customer: CustomerSelector::Id(CustomerKey { w, d, c }) });
        let _ = self.run(&input, after)?;
        let out = &self.scratch.out.order_status;
        Ok(Status {
            o: out.o_id,
            carrier: out.carrier.map(NonZeroU8::get),
            balance: out.balance,
            lines: out.lines.iter().map(|line| (line.item, line.quantity, line.amount)).collect(),
        })
    }

    /// Runs a Delivery. Returns the delivered order of each district.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn delivery(&mut self, w: u32, after: &mut dyn FnMut(&'static str, bool)) -> Answer<Vec<Option<u32>>> {
        let carrier = NonZeroU8::MIN;
        let input =
            Input::Delivery(DeliveryInput { w, districts: self.scale.districts, carrier, now: Timestamp::at(NOW) });
        let _ = self.run(&input, after)?;
        Ok(self.scratch.out.delivery.delivered.to_vec())
    }

    /// Runs only the first step of a Delivery: removes the oldest undelivered order of a district from NEW-ORDER.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn take_new_order(&mut self, w: u32, d: u8) -> Answer<Option<u32>> {
        let (from, to) = NewOrderKey::range(w, d);
        Ok(self.tx.remove_first::<NewOrder>(&from, &to).map_err(text)?.map(|key| key.o))
    }

    /// Reads I_PRICE, in cents.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn price(&mut self, i: u32) -> Answer<i64> {
        let price = self.tx.read::<Item, _>(&ItemKey { i }, |row| row.cold.price.get()).map_err(text)?;
        price.ok_or_else(|| format!("no item {i}"))
    }

    /// Increases I_PRICE by a tenth.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn raise_price(&mut self, i: u32) -> Answer<()> {
        let raised =
            self.tx.rewrite::<Item, _>(&ItemKey { i }, |row| row.cold.price.set(row.cold.price.get() * 11 / 10));
        raised.map_err(text)?.ok_or_else(|| format!("no item {i}"))
    }

    /// Reads D_NEXT_O_ID.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn next_order(&mut self, w: u32, d: u8) -> Answer<u32> {
        let next = self.tx.read::<District, _>(&DistrictKey { w, d }, |row| row.hot.next_o_id.get()).map_err(text)?;
        next.ok_or_else(|| format!("no district {w}, {d}"))
    }

    /// Returns the sum of D_NEXT_O_ID over all districts.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn orders_taken(&mut self, warehouses: u32) -> Answer<u64> {
        let districts = self.scale.districts;
        let all = (1..=warehouses).flat_map(|w| (1..=districts).map(move |d| (w, d)));
        all.map(|(w, d)| self.next_order(w, d).map(u64::from)).sum()
    }

    /// Reads an order: its customer, the sum of its lines in cents, its number of lines, and true if it is in NEW-ORDER.
    /// `None` if there is no such order.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn order(&mut self, w: u32, d: u8, o: u32) -> Answer<Option<(u32, i64, usize, bool)>> {
        let customer = self.tx.read::<Order, _>(&OrderKey { w, d, o }, |row| row.cold.c_id.get()).map_err(text)?;
        let new = self.tx.read::<NewOrder, _>(&NewOrderKey { w, d, o }, |_| ()).map_err(text)?.is_some();
        let (from, to) = OrderLineKey::range(w, d, o, o);
        let (mut sum, mut lines) = (0, 0);
        let each = |_: &OrderLineKey, row: &crate::workload::schema::RowOf<OrderLine>| {
            sum += row.cold.amount.get();
            lines += 1;
            ControlFlow::Continue(())
        };
        self.tx.scan::<OrderLine>(&from, &to, each).map_err(text)?;
        match customer {
            None if new || lines > 0 => Err(format!("order {w}, {d}, {o} is there in parts")),
            customer => Ok(customer.map(|c| (c, sum, lines, new))),
        }
    }

    /// Reads the values that a payment changes.
    ///
    /// # Errors
    /// See [`Running::commit`].
    pub fn figures(&mut self, (w, d, c): (u32, u8, u32)) -> Answer<Figures> {
        let w_ytd = self.tx.read::<Warehouse, _>(&WarehouseKey { w }, |row| row.hot.ytd.get()).map_err(text)?;
        let d_ytd = self.tx.read::<District, _>(&DistrictKey { w, d }, |row| row.hot.ytd.get()).map_err(text)?;
        let customer = self.tx.read::<Customer, _>(&CustomerKey { w, d, c }, |row| row.hot).map_err(text)?;
        let mut history = 0;
        let first = HistoryKey { run: 0, terminal: 0, sequence: 0 };
        let last = HistoryKey { run: u32::MAX, terminal: u32::MAX, sequence: u64::MAX };
        let count = |_: &HistoryKey, _: &crate::workload::schema::RowOf<History>| {
            history += 1;
            ControlFlow::Continue(())
        };
        self.tx.scan::<History>(&first, &last, count).map_err(text)?;
        let (Some(w_ytd), Some(d_ytd), Some(customer)) = (w_ytd, d_ytd, customer) else {
            return Err(format!("no customer {w}, {d}, {c}"));
        };
        Ok(Figures {
            w_ytd,
            d_ytd,
            balance: customer.balance.get(),
            ytd_payment: customer.ytd_payment.get(),
            payments: customer.payment_cnt.get(),
            history,
        })
    }
}
