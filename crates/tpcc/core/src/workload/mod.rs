//! The workload: its tables, values, transactions and consistency conditions, and what it needs of an engine. It names no
//! engine.

pub(crate) mod abort;
pub(crate) mod check;
pub(crate) mod counters;
pub(crate) mod database;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod generate;
pub(crate) mod interrupt;
pub(crate) mod load;
pub(crate) mod loaded;
pub(crate) mod ops;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod streams;
pub(crate) mod threads;
pub(crate) mod time;
pub(crate) mod txn;
pub(crate) mod words;
