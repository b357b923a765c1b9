//! The initial population (clause 4.3.3.1).
//!
//! Every (table, warehouse) has a random stream of its own, so that the data depends on the seed alone and not on how the
//! work was divided. Tables are streamed in key order through all warehouses: a *part* is a set of tables that one thread
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
use crate::workload::schema::rows::When;
use crate::workload::schema::{Scale, TableId};
use crate::workload::threads::{self, SharedWorkError};
use sink::BulkSink;

/// What is to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// Warehouses 1..=this.
    pub warehouses: u32,
    /// Sizes.
    pub scale: Scale,
    /// Everything random follows from it.
    pub seed: u64,
    /// All dates.
    pub now: When,
    /// C of the last names.
    pub c_load: u32,
}

impl Population {
    /// A plan whose constants follow from the seed.
    pub fn new(warehouses: u32, scale: Scale, seed: u64, now: When) -> Population {
        let c_load = Constants::for_load(&mut Random::stream(seed, u64::MAX)).last;
        Population { warehouses, scale, seed, now, c_load }
    }

    /// What the finished load says about itself.
    pub fn loaded(&self) -> Loaded {
        Loaded { warehouses: self.warehouses, c_load: self.c_load, seed: self.seed, scale: self.scale }
    }

    /// Rows that the load makes, about: lines are random.
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

/// Rows of a table that the load makes for each warehouse, about: lines are random. Items, which all warehouses share, are none.
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

/// How far a load is; read by the thread that shows it.
#[derive(Default)]
pub struct RowsDone {
    rows: AtomicU64,
    cancelled: std::sync::atomic::AtomicBool,
}

impl RowsDone {
    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Makes the load stop soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Counts rows; true when the load should stop. Called once for hundreds of rows.
    fn add(&self, rows: u64) -> bool {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Whether a load came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum LoadEnd {
    /// Everything was pushed.
    Done,
    /// [`RowsDone::cancel`] was called.
    Cancelled,
}

/// One thread's work.
type Part<S> = fn(&Population, &S, &RowsDone) -> Result<LoadEnd, <S as BulkSink>::Error>;

/// Fills `sink` with up to `threads` threads; the first error ends all of them.
///
/// # Errors
/// Those of the sink, or too few threads.
pub fn populate<S: BulkSink>(
    plan: &Population,
    sink: &S,
    threads: usize,
    progress: &RowsDone,
) -> Result<LoadEnd, SharedWorkError<S::Error>> {
    // The heaviest first, so that two threads end at about the same time: stock and items are half of all bytes.
    let parts: [Part<S>; 5] = [stock::stock, customers::customers, orders::orders, stock::items, places::places];
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
    threads::together(threads.clamp(1, parts.len()) - 1, "loader", work).map_err(SharedWorkError::Threads)?;
    result.into_inner().unwrap_or_else(PoisonError::into_inner).map_err(SharedWorkError::Work)
}
