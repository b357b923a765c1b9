//! The five transactions (clause 2), written once for all engines, against the trait [`Ops`].
//!
//! Each transaction reads every column that its profile lists, and produces every output field, even if the driver does not
//! use it. The specification does not prescribe the order of the steps in a profile beyond their data dependences;
//! [`StepOrder`] selects an order.

pub mod customer;
pub mod delivery;
pub mod long_order;
pub mod new_order;
pub mod order_status;
pub mod payment;
pub mod stock_level;

use std::fmt;

use arrayvec::ArrayVec;

use crate::workload::abort::{Abort, EngineError};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::{Input, MAX_LINES};
use crate::workload::ops::{Ops, Read};
use crate::workload::schema::keys::{CustomerKey, OrderLineKey};
use crate::workload::schema::tables::OrderLine;
use crate::workload::schema::{RowOf, TableDef, TableId};

/// Order of the steps of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StepOrder {
    /// contended rows as late as data flow allows, stock rows sorted
    HotLast,
    /// as the specification lists them
    Spec,
}

impl StepOrder {
    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            StepOrder::HotLast => "hot-last",
            StepOrder::Spec => "spec",
        }
    }
}

/// Requested end of a transaction. Both a commit and a rollback count as completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Commit the transaction.
    Commit,
    /// Roll the transaction back, because the order contains an unused item number.
    Rollback,
}

/// Error of a transaction.
#[derive(Debug)]
pub enum Failure<E> {
    /// Error of the engine.
    Engine(E),
    /// A row that the workload requires does not exist.
    Missing {
        /// Table of the row.
        table: TableId,
        /// Key of the row.
        key: String,
    },
    /// A counter has reached its maximum.
    Full {
        /// Table of the counter.
        table: TableId,
        /// Column of the counter.
        column: &'static str,
    },
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Failure::Engine(error)
    }
}

impl<E> Failure<E> {
    /// Creates the error for a required row that does not exist.
    #[cold]
    fn missing<T: TableDef>(key: &T::Key) -> Self {
        Failure::Missing { table: T::TABLE, key: format!("{key:?}") }
    }
}

impl<E: EngineError> Failure<E> {
    /// Returns the abort if the transaction should be retried.
    pub fn abort(&self) -> Option<Abort> {
        match self {
            Failure::Engine(error) => error.abort(),
            Failure::Missing { .. } | Failure::Full { .. } => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(error) => error.fmt(f),
            Failure::Missing { table, key } => {
                write!(f, "{}: no row {key}, which every whole database has; check it, and load another", table.name())
            }
            Failure::Full { table, column } => {
                write!(f, "{}: {column} can count no further; load another database", table.name())
            }
        }
    }
}

/// Column of a counter that would overflow. The closure of an update returns this error, which is converted to a
/// [`Failure::Full`].
struct Overflow(&'static str);

impl Overflow {
    fn of<T: TableDef, E>(self) -> Failure<E> {
        Failure::Full { table: T::TABLE, column: self.0 }
    }
}

/// Memory that a worker reuses for every transaction, so that transactions do not allocate.
#[derive(Default)]
pub struct Scratch {
    customers: Vec<CustomerKey>,
    items: Vec<u32>,
    lines: ArrayVec<(OrderLineKey, RowOf<OrderLine>), MAX_LINES>,
    /// Outputs of the last transaction of each kind.
    pub out: Outputs,
}

/// Output fields of the five transactions.
#[derive(Default)]
pub struct Outputs {
    /// Output of New-Order.
    pub new_order: new_order::NewOrderOutput,
    /// Output of Payment.
    pub payment: payment::PaymentOutput,
    /// Output of Order-Status.
    pub order_status: order_status::OrderStatusOutput,
    /// Output of Delivery.
    pub delivery: delivery::DeliveryOutput,
    /// Output of Stock-Level.
    pub stock_level: stock_level::StockLevelOutput,
}

/// Result of running a transaction up to its commit or rollback.
pub type TxnResult<O> = Result<Verdict, Failure<<O as Read>::Error>>;

/// Runs the transaction of `input` except for its final commit or rollback. The caller commits or rolls back according to
/// the verdict, and rolls back after a failure.
#[inline]
pub fn run<O: Ops>(ops: &mut O, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<O> {
    match input {
        Input::NewOrder(input) => new_order::run(ops, steps, input, scratch),
        Input::Payment(input) => payment::run(ops, steps, input, scratch),
        Input::OrderStatus(input) => order_status::run(ops, input, scratch),
        Input::Delivery(input) => delivery::run(ops, steps, input, scratch),
        Input::StockLevel(input) => stock_level::run(ops, input, scratch),
    }
}

impl Input {
    /// Returns the number of iterations of the transaction's loop.
    pub fn items(&self) -> u64 {
        match self {
            Input::NewOrder(input) => input.order().lines.len() as u64,
            Input::Delivery(input) => u64::from(input.districts),
            Input::StockLevel(_) => u64::from(stock_level::ORDERS),
            Input::Payment(_) | Input::OrderStatus(_) => 1,
        }
    }

    /// Returns the kind of the transaction.
    pub fn kind(&self) -> Kind {
        match self {
            Input::NewOrder(_) => Kind::NewOrder,
            Input::Payment(_) => Kind::Payment,
            Input::OrderStatus(_) => Kind::OrderStatus,
            Input::Delivery(_) => Kind::Delivery,
            Input::StockLevel(_) => Kind::StockLevel,
        }
    }
}
