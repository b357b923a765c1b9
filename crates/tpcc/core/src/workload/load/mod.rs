//! Load of the initial population (clause 4.3.3.1).
//!
//! Each table of each warehouse has a random stream of its own, so that the data depends on the seed alone, not on the
//! division of the work. Each table is written in key order over all warehouses. A *part* is a set of tables that one thread
//! fills together.

mod customers;
mod orders;
mod places;
pub mod sink;
mod stock;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::workload::generate::Random;
use crate::workload::generate::nurand::Constants;
use crate::workload::loaded::Loaded;
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::{Scale, TableId};
use crate::workload::threads::{self, SharedWorkError};
use sink::BulkSink;

/// Description of an initial population.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// Number of warehouses, numbered from 1.
    pub warehouses: u32,
    /// Sizes of the tables.
    pub scale: Scale,
    /// Seed of the random streams.
    pub seed: u64,
    /// Value of all dates in the population.
    pub now: Timestamp,
    /// Constant C for last names.
    pub c_load: u32,
}

impl Population {
    /// Creates the description of a population, with the constant C derived from the seed.
    pub fn new(warehouses: u32, scale: Scale, seed: u64, now: Timestamp) -> Population {
        let c_load = Constants::for_load(&mut Random::stream(seed, u64::MAX)).last;
        Population { warehouses, scale, seed, now, c_load }
    }

    /// Returns the description that a completed load stores in the database.
    pub fn loaded(&self) -> Loaded {
        Loaded { warehouses: self.warehouses, c_load: self.c_load, seed: self.seed, scale: self.scale }
    }

    /// Returns the approximate number of rows of the load. The number of order lines is random.
    pub fn rows(&self) -> u64 {
        let Scale { items, districts, customers, .. } = self.scale;
        let district = u64::from(customers) * 14 + 1;
        let warehouse = u64::from(items) + u64::from(districts) * district + 1;
        u64::from(items) + u64::from(self.warehouses) * warehouse
    }

    fn stream(&self, table: TableId, w: u32) -> Random {
        Random::stream(self.seed, (table as u64) << 32 | u64::from(w))
    }
}

/// Returns the approximate number of rows of a table per warehouse. The number of order lines is random. 0 for ITEM, which
/// all warehouses share.
pub fn rows_of_a_warehouse(table: TableId, scale: &Scale) -> u64 {
    let Scale { items, districts, customers, new_orders, .. } = *scale;
    let in_districts = |rows: u32| u64::from(districts) * u64::from(rows);
    match table {
        TableId::Warehouse => 1,
        TableId::District => districts.into(),
        TableId::Customer | TableId::History | TableId::Order => in_districts(customers),
        TableId::OrderLine => 10 * in_districts(customers),
        TableId::NewOrder => in_districts(new_orders),
        TableId::Stock => items.into(),
        TableId::Item | TableId::Meta | TableId::Acknowledged => 0,
    }
}

/// Progress of a load, read by the thread that displays it.
#[derive(Default)]
pub struct RowsDone {
    rows: AtomicU64,
    cancelled: std::sync::atomic::AtomicBool,
}

impl RowsDone {
    /// Returns the number of rows loaded so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Requests that the load stop soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Adds `rows` to the number of loaded rows. Returns true if the load should stop. Called once for many rows.
    fn add(&self, rows: u64) -> bool {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Outcome of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum LoadEnd {
    /// All rows were written.
    Done,
    /// [`RowsDone::cancel`] was called.
    Cancelled,
}

/// Function that loads one part.
type LoadPart<S> = fn(&Population, &S, &RowsDone) -> Result<LoadEnd, <S as BulkSink>::Error>;

/// Fills `sink` with up to `threads` threads. The first error stops all of them.
///
/// # Errors
/// Errors of the sink, or an error if the system provides too few threads.
pub fn populate<S: BulkSink>(
    plan: &Population,
    sink: &S,
    threads: usize,
    progress: &RowsDone,
) -> Result<LoadEnd, SharedWorkError<S::Error>> {
    // The largest part comes first, so that two threads end at about the same time. The part of STOCK has the most bytes.
    let parts: [LoadPart<S>; 5] = [stock::stock, customers::customers, orders::orders, stock::items, places::places];
    let next = AtomicUsize::new(0);
    let result = Mutex::new(Ok(LoadEnd::Done));
    let work = || {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            match part(plan, sink, progress) {
                Ok(LoadEnd::Done) => {}
                stopped => {
                    progress.cancel();
                    let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
                    if result.is_ok() {
                        *result = stopped;
                    }
                }
            }
        }
    };
    threads::run_shared(threads.clamp(1, parts.len()) - 1, "loader", work).map_err(SharedWorkError::Threads)?;
    result.into_inner().unwrap_or_else(PoisonError::into_inner).map_err(SharedWorkError::Work)
}
