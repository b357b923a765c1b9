//! The workload: tables, values, transactions and consistency conditions, and the traits that an engine implements.
//! Independent of any engine.

pub mod abort;
pub mod check;
pub mod counters;
pub mod database;
pub mod engine;
pub mod error;
pub mod generate;
pub mod interrupt;
pub mod load;
pub mod loaded;
pub mod ops;
pub mod reading;
pub mod schema;
pub mod settings;
pub mod streams;
pub mod threads;
pub mod time;
pub mod txn;
pub mod waits;
pub mod words;
