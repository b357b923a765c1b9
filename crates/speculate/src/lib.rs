//! Thread-level speculation in software: the iterations of a loop run on several threads, and the result is as if they
//! had run one after the other.
//!
//! The TLS paper (Colohan, Ailamaki, Steffan, Mowry: Incrementally Parallelizing Database Transactions with Thread-Level
//! Speculation, TOCS 2008) lets a programmer divide a transaction into *epochs* without knowing all dependences between
//! them: the hardware detects that an epoch has read a value too early, and runs the epoch again. This crate does the same
//! in software. It tracks reads and writes of rows instead of loads and stores, and uses ordinary threads. The trait
//! [`Store`] is its only interface to the data. A database can implement it, and so can any map whose values have stamps.
//!
//! ```
//! use std::{collections::HashMap, convert::Infallible, sync::RwLock};
//! use speculate::{Options, Seen, Speculator, Store, Written};
//!
//! /// Values with stamps, under one lock. No other writers.
//! struct Map(RwLock<HashMap<u64, (u64, u64)>>);
//!
//! impl Store for Map {
//!     type Key = u64;
//!     type Value = u64;
//!     type Stamp = u64;
//!     type Local = ();
//!     type Order = ();
//!     type Error = Infallible;
//!
//!     fn peek(&self, _: &mut (), key: &u64) -> Result<(Option<u64>, u64), Infallible> {
//!         let map = self.0.read().unwrap();
//!         Ok(map.get(key).map_or((None, 0), |(value, stamp)| (Some(*value), *stamp)))
//!     }
//!     fn confirm(&self, _: &mut (), seen: Seen<'_, Map>) -> Result<bool, Infallible> {
//!         Ok(self.peek(&mut (), seen.key)?.1 == *seen.stamp)
//!     }
//!     fn read(&self, _: &mut (), key: &u64) -> Result<Option<u64>, Infallible> {
//!         Ok(self.peek(&mut (), key)?.0)
//!     }
//!     fn write(&self, _: &mut (), write: &Written<'_, Map>) -> Result<(), Infallible> {
//!         let mut map = self.0.write().unwrap();
//!         let (old, stamp) = map.entry(*write.key).or_default();
//!         (*old, *stamp) = (*write.value.expect("this program deletes nothing"), *stamp + 1);
//!         Ok(())
//!     }
//! }
//!
//! let map = Map(RwLock::default());
//! let mut speculator = Speculator::new(Options::new().workers(2))?;
//! let mut lines = Vec::new();
//! speculator.run(
//!     &map,
//!     &mut (),
//!     0..100,
//!     // Runs on any thread, perhaps more than once.
//!     |epoch, line| {
//!         let sold = epoch.get(&(line % 7))?.unwrap_or(0) + 1;
//!         epoch.put(line % 7, sold);
//!         Ok::<_, Infallible>((*line, sold))
//!     },
//!     // Runs in order, once for each line.
//!     |_, line| {
//!         lines.push(line);
//!         Ok(())
//!     },
//! )?;
//! assert_eq!(lines[98..], [(98, 15), (99, 15)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The regions of an iteration
//! | region of the paper | here |
//! | --- | --- |
//! | pre-fork | the iterator of [`Speculator::run`]: in order, some epochs ahead |
//! | speculative | its body: on any thread, reads and writes through an [`Epoch`] |
//! | post-homefree | its last closure: in order, holding the token |
//! | post-commit | [`Epoch::after_commit`]: concurrently with later epochs |
//! | escaped | [`Epoch::escape`]: at once, with an undo |
//!
//! The crate's README describes the protocol, and the conditions under which speculation pays.
//!
//! A store that can undo needs no buffers for the reads and writes of an epoch: see [`InPlaceStore`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod commit;
mod epoch;
mod error;
mod fork;
mod forward;
mod governor;
mod in_place;
mod last_op;
mod log;
mod mailbox;
mod mutant;
mod nesting;
mod pool;
mod prefetch;
mod quiet;
mod range;
mod scan;
mod shared;
pub mod simulate;
mod sites;
mod speculator;
mod stats;
mod store;
mod sync;
mod times;
mod trace;
mod worker;

/// Loops with a deliberate defect, to be detected by campaigns.
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants {
    pub use crate::mutant::{Mutant, VARIABLE, chosen};
}

pub use epoch::Epoch;
pub use error::{BuildError, LoopError, MOST_WORKERS, OptionsError};
pub use governor::{Governor, Turn};
pub use in_place::{DEPTH, InPlaceError, InPlaceStats, InPlaceStore, InPlaceThreads};
pub use range::Change;
pub use sites::Waiting;
pub use speculator::{Committer, Forwarding, Options, Speculator, StayAwake};
pub use stats::{Dependence, Stats, Writer};
pub use store::{KeyAndValue, KeyRange, RangeRow, RangeStore, Seen, SeenRange, Store, Written};
pub use trace::{EpochTrace, LoopTrace, OpKind, TracedOp};
