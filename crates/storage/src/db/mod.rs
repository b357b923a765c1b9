//! The public interface: databases, tables, transactions.

mod aside;
#[cfg(all(test, not(shuttle)))]
mod atomic_tests;
pub(crate) mod background;
mod bounds;
pub(crate) mod bulk;
mod columns;
pub(crate) mod compact;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod database;
mod entry;
pub(crate) mod files;
#[cfg(feature = "measure")]
pub(crate) mod holds;
mod in_order;
#[cfg(feature = "measure")]
pub(crate) mod lines;
#[cfg(feature = "measure")]
mod loop_figures;
pub(crate) mod loop_measurement;
mod loop_threads;
mod many;
pub(crate) mod memory;
pub(crate) mod optimistic;
pub(crate) mod options;
pub(crate) mod owned;
mod prefix;
pub(crate) mod purger;
mod ranges;
pub(crate) mod raw;
pub(crate) mod remove;
pub(crate) mod savepoint;
pub(crate) mod services;
#[cfg(all(test, shuttle))]
pub(crate) mod shuttle_tests;
pub(crate) mod sizes;
pub(crate) mod structure;
pub(crate) mod table;
pub(crate) mod tables;
mod transact;
pub(crate) mod transaction;
pub(crate) mod values;
pub(crate) mod verify;
