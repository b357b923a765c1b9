//! Generation of the inputs of the five transactions (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1).

use std::num::NonZeroU8;

use arrayvec::ArrayVec;

use super::Random;
use super::deck::Kind;
use super::name::last_name;
use super::nurand::Constants;
use crate::workload::schema::Scale;
use crate::workload::schema::keys::{CustomerKey, HistoryKey, Name};
use crate::workload::schema::rows::Timestamp;

/// Maximum number of lines of an order.
pub const MAX_LINES: usize = 15;

/// One line of an order, as entered at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInput {
    /// OL_I_ID. An item that is not in ITEM causes the rollback of the order.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supply_w: u32,
    /// OL_QUANTITY.
    pub quantity: u8,
}

/// Input of New-Order.
#[derive(Clone, Debug, PartialEq)]
pub struct NewOrderInput {
    /// Customer of the order. The order has the same warehouse and district.
    pub customer: CustomerKey,
    /// O_ENTRY_D.
    pub now: Timestamp,
    /// Lines of the order.
    pub lines: ArrayVec<LineInput, MAX_LINES>,
    /// True if the generator has set the last item to an unused item number. For counters only: transactions must not read
    /// this field.
    pub rolls_back: bool,
}

/// An order of any number of lines, as entered at the terminal.
#[derive(Clone, Copy, Debug)]
pub struct OrderInput<'a> {
    /// Customer of the order, as in [`NewOrderInput::customer`].
    pub customer: CustomerKey,
    /// O_ENTRY_D.
    pub now: Timestamp,
    /// Lines of the order.
    pub lines: &'a [LineInput],
}

impl NewOrderInput {
    /// Returns the order in the form that transactions use.
    #[inline]
    pub fn order(&self) -> OrderInput<'_> {
        OrderInput { customer: self.customer, now: self.now, lines: &self.lines }
    }
}

/// Input of New-Order with 50 to 150 lines (the TLS paper's NEW ORDER 150).
#[derive(Clone, Debug, PartialEq)]
pub struct LongOrderInput {
    customer: CustomerKey,
    now: Timestamp,
    lines: Vec<LineInput>,
}

impl LongOrderInput {
    /// Returns the order in the form that transactions use.
    pub fn order(&self) -> OrderInput<'_> {
        OrderInput { customer: self.customer, now: self.now, lines: &self.lines }
    }
}

/// Identification of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerSelector {
    /// Selection by customer number.
    Id(CustomerKey),
    /// Selection by last name: warehouse, district, name.
    Name(u32, u8, Name),
}

/// Input of Payment.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentInput {
    /// Warehouse where the payment is taken.
    pub w: u32,
    /// District where the payment is taken.
    pub d: u8,
    /// Customer of the payment. 15% of the customers belong to another warehouse.
    pub customer: CustomerSelector,
    /// Amount in cents.
    pub amount: i64,
    /// H_DATE.
    pub now: Timestamp,
    /// Key of the HISTORY row. It is a part of the input, so that a retried transaction uses the same key.
    pub history: HistoryKey,
}

impl PaymentInput {
    /// Returns true if the customer belongs to another warehouse.
    pub fn is_remote(&self) -> bool {
        match self.customer {
            CustomerSelector::Id(key) => key.w != self.w,
            CustomerSelector::Name(w, ..) => w != self.w,
        }
    }
}

/// Input of Order-Status.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderStatusInput {
    /// Customer whose last order is queried.
    pub customer: CustomerSelector,
}

/// Input of Delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryInput {
    /// Number of the warehouse.
    pub w: u32,
    /// Number of districts of the warehouse.
    pub districts: u8,
    /// O_CARRIER_ID.
    pub carrier: NonZeroU8,
    /// OL_DELIVERY_D.
    pub now: Timestamp,
}

/// Input of Stock-Level.
#[derive(Clone, Debug, PartialEq)]
pub struct StockLevelInput {
    /// Warehouse of the terminal.
    pub w: u32,
    /// District of the terminal.
    pub d: u8,
    /// Stock below this threshold is low.
    pub threshold: i16,
}

/// Input of a transaction of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Input of a New-Order.
    NewOrder(NewOrderInput),
    /// Input of a Payment.
    Payment(PaymentInput),
    /// Input of an Order-Status.
    OrderStatus(OrderStatusInput),
    /// Input of a Delivery.
    Delivery(DeliveryInput),
    /// Input of a Stock-Level.
    StockLevel(StockLevelInput),
}

/// Parameters of the input generation, shared by all terminals of a run.
#[derive(Clone, Copy, Debug)]
pub struct InputSpace {
    /// Sizes of the tables.
    pub scale: Scale,
    /// Number of warehouses in use, numbered from 1.
    pub warehouses: u32,
    /// Constants C of the run for the function NURand.
    pub constants: Constants,
}

impl InputSpace {
    /// Generates the input of one transaction for a terminal of the warehouse `w` and district `d`. `history` must not have
    /// been used before.
    #[inline]
    pub fn input(
        &self,
        random: &mut Random,
        kind: Kind,
        (w, d): (u32, u8),
        now: Timestamp,
        history: HistoryKey,
    ) -> Input {
        match kind {
            Kind::NewOrder => Input::NewOrder(self.new_order(random, w, now)),
            Kind::Payment => Input::Payment(self.payment(random, w, now, history)),
            Kind::OrderStatus => {
                let d = self.district(random);
                Input::OrderStatus(OrderStatusInput { customer: self.selector(random, w, d) })
            }
            Kind::Delivery => {
                let carrier = NonZeroU8::MIN.saturating_add(random.in_range(0, 9) as u8);
                Input::Delivery(DeliveryInput { w, districts: self.scale.districts, carrier, now })
            }
            Kind::StockLevel => Input::StockLevel(StockLevelInput { w, d, threshold: random.in_range(10, 20) as i16 }),
        }
    }

    /// Generates the input of a New-Order of warehouse `w`, with 5 to 15 lines. One order in a hundred ends with an unused
    /// item.
    pub fn new_order(&self, random: &mut Random, w: u32, now: Timestamp) -> NewOrderInput {
        let d = self.district(random);
        let c = self.constants.customer(random, self.scale.customers);
        let count = random.in_range(5, MAX_LINES as u32);
        let rolls_back = random.percent(1);
        let mut lines: ArrayVec<LineInput, MAX_LINES> = (0..count).map(|_| self.line(random, w)).collect();
        if rolls_back && let Some(last) = lines.last_mut() {
            last.item = self.scale.items + 1;
        }
        NewOrderInput { customer: CustomerKey { w, d, c }, now, lines, rolls_back }
    }

    /// Generates the input of a New-Order with ten times as many lines, 50 to 150.
    pub fn long_order(&self, random: &mut Random, w: u32, now: Timestamp) -> LongOrderInput {
        let d = self.district(random);
        let c = self.constants.customer(random, self.scale.customers);
        let count = random.in_range(50, 150);
        let rolls_back = random.percent(1);
        let mut lines: Vec<LineInput> = (0..count).map(|_| self.line(random, w)).collect();
        if rolls_back && let Some(last) = lines.last_mut() {
            last.item = self.scale.items + 1;
        }
        LongOrderInput { customer: CustomerKey { w, d, c }, now, lines }
    }

    #[inline(always)]
    fn line(&self, random: &mut Random, w: u32) -> LineInput {
        let item = self.constants.item(random, self.scale.items);
        let supply_w = if random.percent(1) { self.other_warehouse(random, w) } else { w };
        LineInput { item, supply_w, quantity: random.in_range(1, 10) as u8 }
    }

    fn payment(&self, random: &mut Random, w: u32, now: Timestamp, history: HistoryKey) -> PaymentInput {
        let d = self.district(random);
        let (c_w, c_d) =
            if random.percent(85) { (w, d) } else { (self.other_warehouse(random, w), self.district(random)) };
        let customer = self.selector(random, c_w, c_d);
        PaymentInput { w, d, customer, amount: i64::from(random.in_range(100, 500_000)), now, history }
    }

    /// Selects a customer, 60% by last name and 40% by number.
    fn selector(&self, random: &mut Random, w: u32, d: u8) -> CustomerSelector {
        if random.percent(60) {
            let number = self.constants.last_name(random, self.scale.names);
            CustomerSelector::Name(w, d, last_name(number).padded())
        } else {
            CustomerSelector::Id(CustomerKey { w, d, c: self.constants.customer(random, self.scale.customers) })
        }
    }

    fn district(&self, random: &mut Random) -> u8 {
        random.in_range(1, u32::from(self.scale.districts)) as u8
    }

    /// Selects one of the other warehouses uniformly. Returns `home` if there is no other warehouse.
    fn other_warehouse(&self, random: &mut Random, home: u32) -> u32 {
        if self.warehouses == 1 {
            return home;
        }
        let other = random.in_range(1, self.warehouses - 1);
        if other >= home { other + 1 } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: HistoryKey = HistoryKey { run: 1, terminal: 0, sequence: 0 };

    fn world(warehouses: u32) -> InputSpace {
        let constants = Constants { last: 40, customer: 500, item: 4000 };
        InputSpace { scale: Scale::FULL, warehouses, constants }
    }

    fn share(part: u32, of: u32) -> f64 {
        f64::from(part) / f64::from(of)
    }

    /// Checks that the values of a million drawn inputs are within the bands of clause 5.5.1.5.
    #[test]
    fn new_orders_are_in_their_bands() {
        let (world, mut random) = (world(5), Random::stream(11, 1));
        let (orders, mut lines, mut remote, mut rolled_back, mut quantity, mut wrong) = (1_000_000, 0, 0, 0, 0u64, 0);
        for _ in 0..orders {
            let input = world.new_order(&mut random, 3, Timestamp::at(1));
            lines += input.lines.len() as u32;
            rolled_back += u32::from(input.rolls_back);
            assert!((1..=10).contains(&input.customer.d) && (1..=3000).contains(&input.customer.c));
            for line in &input.lines {
                remote += u32::from(line.supply_w != 3);
                quantity += u64::from(line.quantity);
                wrong += u32::from(line.item > 100_000);
                assert!((1..=5).contains(&line.supply_w) && (1..=10).contains(&line.quantity));
            }
            assert_eq!(input.rolls_back, input.lines.last().unwrap().item == 100_001);
        }
        assert_eq!(wrong, rolled_back);
        assert!((0.009..=0.011).contains(&share(rolled_back, orders)));
        assert!((9.5..=10.5).contains(&share(lines, orders)));
        assert!((0.0095..=0.0105).contains(&share(remote, lines)));
        assert!((5.4..=5.6).contains(&(quantity as f64 / f64::from(lines))));
    }

    #[test]
    fn payments_are_in_their_bands() {
        let (world, mut random) = (world(5), Random::stream(11, 2));
        let (payments, mut remote, mut by_name, mut both) = (1_000_000, 0, 0, 0);
        for _ in 0..payments {
            let input = world.payment(&mut random, 5, Timestamp::at(1), HISTORY);
            let name = matches!(input.customer, CustomerSelector::Name(..));
            remote += u32::from(input.is_remote());
            by_name += u32::from(name);
            both += u32::from(name && input.is_remote());
            assert!((100..=500_000).contains(&input.amount));
            if !input.is_remote() {
                let d = match input.customer {
                    CustomerSelector::Id(key) => key.d,
                    CustomerSelector::Name(_, d, _) => d,
                };
                assert_eq!(d, input.d);
            }
        }
        assert!((0.14..=0.16).contains(&share(remote, payments)));
        assert!((0.57..=0.63).contains(&share(by_name, payments)));
        // The two properties are independent: 9% of the payments have both.
        assert!((0.088..=0.092).contains(&share(both, payments)));
    }

    #[test]
    fn one_warehouse_has_no_other() {
        let (world, mut random) = (world(1), Random::stream(11, 3));
        for _ in 0..10_000 {
            assert!(!world.payment(&mut random, 1, Timestamp::at(1), HISTORY).is_remote());
            assert!(world.new_order(&mut random, 1, Timestamp::at(1)).lines.iter().all(|l| l.supply_w == 1));
        }
    }

    #[test]
    fn others_are_even() {
        let (world, mut random) = (world(4), Random::stream(11, 4));
        let mut seen = [0u32; 5];
        (0..30_000).for_each(|_| seen[world.other_warehouse(&mut random, 2) as usize] += 1);
        assert_eq!((seen[0], seen[2]), (0, 0));
        assert!([1, 3, 4].iter().all(|&w| (9_500..=10_500).contains(&seen[w])), "{seen:?}");
    }
}
