//! Storage: an embedded, durable engine with many concurrent writers.
mod base;
mod btree;
mod buffer;
mod db;
mod io;
mod latch;
mod lock;
mod log;
mod page;
mod recovery;
mod table;
mod txn;
