//! The loops of the workload's transactions (TLS paper, section 3).

use crate::workload::generate::input::Input;

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

    /// Returns the lengths of epochs to try on this number of threads, starting with the default: an epoch for each thread, or two.
    /// Two balance the work of the threads better, and pay in long loops.
    pub fn lengths(self, threads: usize) -> [EpochLength; 2] {
        let lengths = [EpochLength::Epochs(threads), EpochLength::Epochs(2 * threads)];
        match self {
            TransactionLoop::LongOrderLines => [lengths[1], lengths[0]],
            _ => lengths,
        }
    }

    /// Returns the least number of iterations of an epoch: shorter ones cost more than they gain.
    fn least(self) -> usize {
        match self {
            TransactionLoop::OrderLines => 4,
            TransactionLoop::LongOrderLines => 8,
            TransactionLoop::Districts => 2,
            TransactionLoop::DeliveredLines | TransactionLoop::StatusLines => 5,
            TransactionLoop::RecentOrders => 3,
            TransactionLoop::Accounts => 1,
        }
    }
}

/// Length of the epochs of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EpochLength {
    /// This number of iterations.
    Iterations(usize),
    /// The iterations are divided evenly into at most this number of epochs. Loops with few iterations have fewer epochs.
    Epochs(usize),
}

impl EpochLength {
    /// Returns the number of iterations of an epoch in a loop of `iterations`.
    pub(super) fn of(self, which: TransactionLoop, iterations: usize) -> usize {
        match self {
            EpochLength::Iterations(number) => number.max(1),
            EpochLength::Epochs(number) => iterations.div_ceil(number.max(1)).max(which.least()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_even_and_not_too_short() {
        let of = |which, epochs, iterations| EpochLength::Epochs(epochs).of(which, iterations);
        assert_eq!(of(TransactionLoop::LongOrderLines, 2, 101), 51);
        assert_eq!(of(TransactionLoop::Districts, 4, 10), 3);
        assert_eq!(of(TransactionLoop::OrderLines, 16, 10), 4);
        assert_eq!(of(TransactionLoop::OrderLines, 0, 0), 4);
        assert_eq!(EpochLength::Iterations(7).of(TransactionLoop::OrderLines, 100), 7);
        assert_eq!(EpochLength::Iterations(0).of(TransactionLoop::OrderLines, 100), 1);
    }
}
