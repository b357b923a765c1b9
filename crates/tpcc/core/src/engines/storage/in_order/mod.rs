//! Loops of transactions on several threads, with the results of loops on one: see [`storage::Transaction::in_order`].

mod engine;
mod run;
mod selector;
mod session_governor;
mod transaction_loop;

pub use engine::{LoopSession, LoopStore};
pub use run::{run, run_order};
pub use selector::LoopSelector;
pub use transaction_loop::{EpochLength, TransactionLoop};
