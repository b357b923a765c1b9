//! The loops of the workload's transactions (TLS paper, section 3).

use crate::workload::generate::input::{Input, MAX_LINES};

/// A loop of a transaction whose iterations can run at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionLoop {
    /// The lines of a New-Order.
    OrderLines,
    /// The lines of a New-Order with 50 to 150 lines.
    LongOrderLines,
    /// The districts of a Delivery.
    Districts,
    /// The lines of each order that a Delivery delivers.
    DeliveredLines,
    /// The recent orders that a Stock-Level reads.
    RecentOrders,
    /// The two halves of a Payment: warehouse and district, and customer.
    Accounts,
    /// The lines of the order that an Order-Status shows.
    StatusLines,
}

impl TransactionLoop {
    /// Returns the loop with the greatest benefit in the transaction of `input`.
    pub fn best_of(input: &Input) -> TransactionLoop {
        match input {
            Input::NewOrder(_) => TransactionLoop::OrderLines,
            Input::Payment(_) => TransactionLoop::Accounts,
            Input::OrderStatus(_) => TransactionLoop::StatusLines,
            Input::Delivery(_) => TransactionLoop::Districts,
            Input::StockLevel(_) => TransactionLoop::RecentOrders,
        }
    }

    /// Returns the numbers of iterations per epoch to try, starting with the default, which makes two epochs of most loops.
    pub fn grains(self) -> &'static [usize] {
        match self {
            TransactionLoop::OrderLines => &[8, 4],
            TransactionLoop::LongOrderLines => &[75, MAX_LINES],
            TransactionLoop::Districts => &[5, 2],
            TransactionLoop::DeliveredLines | TransactionLoop::StatusLines => &[5],
            TransactionLoop::RecentOrders => &[10, 5],
            TransactionLoop::Accounts => &[1],
        }
    }
}
