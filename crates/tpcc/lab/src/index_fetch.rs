//! Index fetches by a team (STEPS, 3.2): fibers that read rows by key from one table of 100,000 rows of 25 integers.
//!
//! All fibers begin each fetch together: a fiber that has finished its fetch hops to the next fiber until all have finished.
//! Without context-switch points they therefore run one fetch after the other; with points they execute each fetch in step.
//! All data is in memory.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use sched_steps::team::Operations;
use sched_steps::{Executor, fiber};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use storage::disk::MemDisk;
use storage::{Background, Database, Durability, Hook, OpenTable, Options, Raw, Table, TxnError};

use crate::filler;
use tpcc_core::driver::runner::steps::policy::hook_for;
use tpcc_core::engines::storage::fiber_hook::FiberPolicy;
use tpcc_core::engines::storage::fibers;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::SwitchPoints;
use tpcc_core::workload::settings::TeamUnit;

/// Number of rows of the table, and size of a row in bytes, as in the paper.
const ROWS: u64 = 100_000;
const ROW: usize = 25 * size_of::<u32>();
const TABLE: Table<(), ()> = Table::new("fetched");
/// Number of fetches per transaction.
const PER_TRANSACTION: u64 = 100;
/// Stack size of a fiber, in bytes.
const STACK_BYTES: usize = 64 << 10;
/// Number of transaction slots in addition to one slot per fiber.
const SPARE_TRANSACTIONS: usize = 8;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct IndexFetchPlan {
    /// Number of fibers that fetch; the paper calls them threads.
    pub threads: usize,
    /// Number of fetches per fiber.
    pub fetches: u64,
    /// Context-switch points inside a fetch.
    pub points: SwitchPoints,
    /// If true, other code fills the instruction cache before each round. The first fiber of the round runs that code. If
    /// fibers do not switch inside a fetch, the code runs before each fetch.
    pub cold: bool,
}

/// Output of `tpcc index-fetch --json`: parameters and result of a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc index-fetch --json"))]
pub struct IndexFetchReport {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Number of fibers that fetch; the paper calls them threads.
    pub threads: usize,
    /// Number of fetches of all fibers.
    pub fetches: u64,
    /// Context-switch points: built-in, all, none or a file.
    pub ctx_points: String,
    /// True if other code ran before each round.
    pub cold: bool,
    /// Total number of 64-byte lines that the other code executed.
    pub other_lines: u64,
    /// Mean time of a fetch, nanoseconds.
    pub ns_per_fetch: f64,
}

/// Runs the fetches of `plan` on a new database in memory.
pub fn run(plan: &IndexFetchPlan) -> Result<IndexFetchReport, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("index fetches: {e}"));
    let mut options = Options::new()
        .buffer_pool(64 << 20)
        .durability(Durability::Async)
        .background(Background::Inline)
        .transactions(plan.threads + SPARE_TRANSACTIONS);
    let hook = hook_for(TeamUnit::Operation, &plan.points)?;
    let hook = (plan.threads > 1).then_some(hook);
    if let Some(hook) = &hook {
        options = options.hook(Arc::clone(hook) as Arc<dyn Hook>);
    }
    let db = options.open_on(Arc::new(MemDisk::new())).map_err(|e| failed(&e))?;
    let rows = load(&db).map_err(|e| failed(&e))?;
    let mut operations = Operations::new();
    if let Some(hook) = &hook {
        hook.policy().set_indexes(&db.indexes()).map_err(|e| failed(&e))?;
        operations = hook.policy().operations().unwrap_or_default();
    }
    let builder = Executor::builder().operations(operations).fibers(plan.threads).team_size(plan.threads);
    let mut executor = fibers::executor(builder.stack_bytes(STACK_BYTES)).map_err(|e| failed(&e))?;
    let progress = FetchProgress {
        uninterrupted: !hook.is_some_and(|hook| hook.policy().stops_outside_of_groups()),
        ..FetchProgress::default()
    };
    let start = Instant::now();
    let ends = executor
        .scope(|team| {
            let fibers: Vec<_> = (0..plan.threads)
                .map(|number| {
                    let (db, rows, progress) = (&db, &rows, &progress);
                    team.spawn(move || run_fiber(db, rows, number, plan, progress))
                })
                .collect();
            fibers.into_iter().map(|fiber| fiber.join()).collect::<Vec<_>>()
        })
        .map_err(|e| failed(&e))?;
    let ns = start.elapsed().as_nanos() as f64;
    let mut other_lines = 0;
    for end in ends {
        other_lines += end.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    }
    db.close().map_err(|e| failed(&e))?;
    let fetches = plan.fetches * plan.threads as u64;
    Ok(IndexFetchReport {
        schema: schema_of("index-fetch"),
        threads: plan.threads,
        fetches,
        ctx_points: plan.points.name(),
        cold: plan.cold,
        other_lines,
        ns_per_fetch: ns / fetches as f64,
    })
}

fn load(db: &Database) -> Result<OpenTable<Raw, Raw>, TxnError> {
    let rows = db.raw_table(&TABLE)?;
    let mut load = db.bulk_load(&rows)?;
    let mut row = [0; ROW];
    for key in 0..ROWS {
        row[..8].copy_from_slice(&key.to_le_bytes());
        load.push_raw(&key.to_be_bytes(), &row)?;
    }
    load.finish()?;
    // The bulk load leaves pages that have to be read from the disk. All rows are read once, so that fetches find their
    // pages in memory.
    let tx = db.begin()?;
    for key in 0..ROWS {
        tx.raw().read(&rows, &key.to_be_bytes(), |_| ())?;
    }
    tx.commit_async()?;
    Ok(rows)
}

/// Progress of all fibers.
#[derive(Default)]
struct FetchProgress {
    /// True if no point of a fetch is live: the fiber that begins a fetch finishes it without a switch.
    uninterrupted: bool,
    /// Total number of fetches that the fibers have finished.
    finished_fetches: Cell<u64>,
    /// Number of rounds for which the instruction cache was emptied.
    cold_rounds: Cell<u64>,
}

/// Releases the other fibers when a fiber ends, even after an error or a panic. No fiber then waits for a fiber that has
/// ended.
struct ReleaseOnExit<'a>(&'a FetchProgress);

impl Drop for ReleaseOnExit<'_> {
    fn drop(&mut self) {
        self.0.finished_fetches.set(u64::MAX / 2);
    }
}

/// Runs the fetches of one fiber. Returns the number of lines of other code that the fiber executed.
fn run_fiber(
    db: &Database,
    rows: &OpenTable<Raw, Raw>,
    number: usize,
    plan: &IndexFetchPlan,
    progress: &FetchProgress,
) -> Result<u64, TxnError> {
    let release = ReleaseOnExit(progress);
    let mut random = Rng::with_seed(number as u64);
    let mut other_lines = 0;
    let mut sum = 0;
    // Total number of finished fetches at which the current round ends.
    let mut round = 0;
    let mut left = plan.fetches;
    while left > 0 {
        let n = left.min(PER_TRANSACTION);
        left -= n;
        let tx = db.begin()?;
        for _ in 0..n {
            if plan.cold && (progress.uninterrupted || progress.cold_rounds.get() * plan.threads as u64 == round) {
                progress.cold_rounds.set(progress.cold_rounds.get() + u64::from(!progress.uninterrupted));
                filler::run();
                other_lines += filler::LINES;
            }
            let key = random.u64(..ROWS);
            let found = tx.raw().read(rows, &key.to_be_bytes(), |row| u64::from(row[0]))?;
            sum += found.unwrap_or(0);
            round += plan.threads as u64;
            progress.finished_fetches.set(progress.finished_fetches.get() + 1);
            while progress.finished_fetches.get() < round {
                fiber::hop();
            }
        }
        tx.commit_async()?;
    }
    std::hint::black_box(sum);
    // This fiber has finished its fetches, and the others finish theirs in the same round: nothing to release.
    std::mem::forget(release);
    Ok(other_lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_are_made_with_and_without_points() {
        for (threads, points, cold) in [
            (1, SwitchPoints::None, true),
            (3, SwitchPoints::None, false),
            (3, SwitchPoints::BuiltIn, true),
            (3, SwitchPoints::All, true),
            (10, SwitchPoints::All, false),
        ] {
            // The built-in points are not inside fetches.
            let none = points != SwitchPoints::All;
            let done = run(&IndexFetchPlan { threads, fetches: 250, points, cold }).unwrap();
            assert_eq!(done.fetches, 250 * threads as u64);
            let rounds = if !cold {
                0
            } else if none {
                250 * threads as u64
            } else {
                250
            };
            assert_eq!(done.other_lines, rounds * filler::LINES);
        }
    }
}
