//! `space`: bounds the size of the data file relative to the live data. Long-lived workloads of several shapes run in
//! simulated time, and the process is killed from time to time.
//!
//! Each case has one workload shape. Rows are inserted and deleted until the inserted bytes are a multiple of the live
//! bytes. The background services take a step after each transaction. The data file must stay below twice the maximum of
//! live bytes plus a constant. After a kill, every acknowledged row must exist.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::disk::{Crash, SimDisk};
use storage::{Background, Database, Options, SecondaryIndex, Table, TxnError};

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;

/// Table with an index on a column that some shapes update.
const ROWS: Table<u64, Vec<u8>> = Table::new("rows").with_index::<ByColumn>();
/// Constant part of the permitted size of the data file, in bytes. The file grows in steps of 2 MiB and may be two steps
/// ahead. Roots, marks and pages that are not yet in the free list take far less.
const CONSTANT: u64 = 5 << 20;
/// Number of bytes of a leaf entry in addition to its key and its row.
const OVERHEAD: u64 = 16;

/// Index by the first eight bytes of a row.
struct ByColumn;
impl SecondaryIndex for ByColumn {
    type Key = u64;
    type Row = Vec<u8>;
    type By = u64;
    const NAME: &'static str = "by_column";
    fn by(_: &u64, row: &Vec<u8>) -> Option<u64> {
        row.first_chunk().map(|column| u64::from_be_bytes(*column))
    }
}

/// Workload shape: a function from the live rows to the changes of the next transaction.
type Shape = fn(&Rows, &mut Rng, u64) -> Change;

/// All workload shapes by name.
const SHAPES: &[(&str, Shape)] = &[
    ("queue", queue),
    ("sessions", sessions),
    ("growing index", growing_index),
    ("random order", random_order),
    ("truncate", truncate),
    ("large rows", large_rows),
    ("large values", large_values),
    ("batches", batches),
];

type Rows = BTreeMap<u64, Vec<u8>>;

/// Changes of a transaction.
#[derive(Clone, Debug, Default)]
struct Change {
    puts: Vec<(u64, Vec<u8>)>,
    deletes: Vec<u64>,
    /// True if all rows are removed first.
    truncates: bool,
}

impl Change {
    fn apply(&self, rows: &mut Rows) {
        if self.truncates {
            rows.clear();
        }
        for (key, row) in &self.puts {
            rows.insert(*key, row.clone());
        }
        for key in &self.deletes {
            rows.remove(key);
        }
    }

    fn bytes(&self) -> u64 {
        self.puts.iter().map(|(_, row)| size_of_row(row)).sum()
    }
}

/// Returns the number of bytes of a row and its index entry.
fn size_of_row(row: &[u8]) -> u64 {
    8 + row.len() as u64 + OVERHEAD + (16 + 8 + OVERHEAD)
}

/// Number of live rows, in most shapes.
const LIVE: usize = 8000;
/// Number of rows that a transaction inserts.
const PART: u64 = 100;

/// Returns a row that begins with an increasing column value, so that index entries are appended at the end of the index.
fn row(column: u64, bytes: usize) -> Vec<u8> {
    let mut row = column.to_be_bytes().to_vec();
    row.resize(bytes.max(8), column as u8);
    row
}

fn above(rows: &Rows, clock: u64) -> u64 {
    rows.last_key_value().map_or(0, |(key, _)| key + 1).max(clock)
}

/// Inserts rows at the end of the table, and deletes the oldest rows.
fn queue(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    let end = above(rows, clock);
    let puts = (0..PART).map(|i| (end + i, row(end + i, 60 + rng.index(200)))).collect();
    let over = (rows.len() + PART as usize).saturating_sub(LIVE);
    Change { puts, deletes: rows.keys().take(over).copied().collect(), truncates: false }
}

/// Inserts rows at the end of the table, and deletes random rows by key.
fn sessions(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    let Change { puts, .. } = queue(rows, rng, clock);
    let over = (rows.len() + puts.len()).saturating_sub(LIVE);
    Change { puts, deletes: some(rows, rng, over), truncates: false }
}

/// Returns distinct keys of random rows.
fn some(rows: &Rows, rng: &mut Rng, n: usize) -> Vec<u64> {
    let (Some((first, _)), Some((last, _))) = (rows.first_key_value(), rows.last_key_value()) else {
        return Vec::new();
    };
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..n {
        let from = first + rng.below(last - first + 1);
        if let Some((key, _)) = rows.range(from..).find(|(key, _)| !keys.contains(*key)) {
            keys.insert(*key);
        }
    }
    keys.into_iter().collect()
}

/// Updates the column of rows that are never deleted to increasing values.
fn growing_index(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    if rows.len() < LIVE {
        let from = rows.len() as u64;
        return Change { puts: (0..PART).map(|i| (from + i, row(i, 100))).collect(), ..Change::default() };
    }
    let puts = (0..PART).map(|i| (rng.below(LIVE as u64), row(clock * PART + i, 100)));
    Change { puts: puts.collect::<Rows>().into_iter().collect(), ..Change::default() }
}

/// Inserts and deletes rows at random keys.
fn random_order(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    let puts: Rows = (0..PART).map(|i| (rng.next() >> 20, row(clock * PART + i, 60 + rng.index(200)))).collect();
    let over = (rows.len() + puts.len()).saturating_sub(LIVE);
    Change { deletes: some(rows, rng, over), puts: puts.into_iter().collect(), truncates: false }
}

/// Fills a table and truncates it.
fn truncate(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    if rows.len() >= LIVE {
        return Change { truncates: true, ..Change::default() };
    }
    Change { deletes: Vec::new(), ..queue(rows, rng, clock) }
}

/// Keeps a few rows of up to half a page each. Replaces them by longer and shorter rows, and deletes them by key.
fn large_rows(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    let end = above(rows, clock);
    let mut puts: Rows = (0..10).map(|i| (end + i, row(end + i, 100 + rng.index(3800)))).collect();
    for key in some(rows, rng, 10) {
        puts.insert(key, row(clock, 100 + rng.index(3800)));
    }
    let over = (rows.len() + 10).saturating_sub(LIVE / 8);
    let deletes = some(rows, rng, over).into_iter().filter(|key| !puts.contains_key(key)).collect();
    Change { puts: puts.into_iter().collect(), deletes, truncates: false }
}

/// Keeps a few values of many pages each. Replaces them by longer and shorter values, and deletes them by key.
fn large_values(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    const KEPT: usize = 60;
    let end = above(rows, clock);
    let mut puts: Rows = (0..3).map(|i| (end + i, row(end + i, 3000 + rng.index(60_000)))).collect();
    for key in some(rows, rng, 2) {
        puts.insert(key, row(clock, 3000 + rng.index(60_000)));
    }
    let over = (rows.len() + 3).saturating_sub(KEPT);
    let deletes = some(rows, rng, over).into_iter().filter(|key| !puts.contains_key(key)).collect();
    Change { puts: puts.into_iter().collect(), deletes, truncates: false }
}

/// Inserts rows in a batch, and deletes all of them by key before the next batch.
fn batches(rows: &Rows, rng: &mut Rng, clock: u64) -> Change {
    // In each 200 transactions, 80 insert rows; the others delete rows until none are left.
    if clock % 200 < 80 {
        return Change { deletes: Vec::new(), ..queue(rows, rng, 1_000_000 * clock) };
    }
    Change { deletes: rows.keys().take(2 * PART as usize).copied().collect(), ..Change::default() }
}

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        let (name, shape) = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let ended =
            catch_panic(|| run_seed(seed, shape)).and_then(|ended| ended.unwrap_or_else(|| Err("stopped".into())));
        if let Err(what) = ended {
            seed_result.fail("space", plan.scheduler, seed, format!("seed {seed} ({name}): {what}"));
        }
        seed_result
    })
}

/// Open database, between two kills.
struct RunningDatabase {
    db: Database,
    disk: SimDisk,
    now_ns: Arc<AtomicU64>,
}

impl RunningDatabase {
    fn open(disk: SimDisk, seed: u64, now_ns: &Arc<AtomicU64>) -> Result<RunningDatabase, String> {
        let mut rng = Rng::new(seed ^ 0x5bace);
        let options = Options::new()
            .buffer_pool(rng.pick(&[2 << 20, 4 << 20, 32 << 20]))
            .log_segment(rng.pick(&[256 << 10, 1 << 20]))
            .log_buffer(512 << 10)
            .checkpoint_every(rng.pick(&[2 << 20, 8 << 20]))
            .escalate_at(rng.pick(&[50, 5000]))
            .transactions(4)
            .clock(Arc::clone(now_ns))
            .database_id(seed | 1)
            .background(Background::Inline);
        let db = options.open_on(Arc::new(disk.clone())).map_err(|e| format!("opening: {e}"))?;
        db.table(&ROWS).map_err(|e| format!("the table: {e}"))?;
        Ok(RunningDatabase { db, disk, now_ns: Arc::clone(now_ns) })
    }

    fn change(&self, change: &Change) -> Result<(), TxnError> {
        if change.truncates {
            return self.db.truncate("rows").map(drop);
        }
        self.db.transact(|tx| {
            change.puts.iter().try_for_each(|(key, row)| tx.put(&ROWS, key, row))?;
            change.deletes.iter().try_for_each(|key| tx.delete(&ROWS, key).map(drop))
        })
    }

    fn compact(&self) -> Result<(), String> {
        self.db.compact().map(drop).map_err(|e| format!("compacting: {e}"))
    }

    /// Takes a step of the background services, and advances the clock.
    fn step(&self, rng: &mut Rng) -> Result<(), String> {
        self.now_ns.fetch_add(200_000 + rng.below(4_000_000), Ordering::Relaxed);
        self.db.step().map_err(|e| format!("a service: {e}"))
    }

    fn rows(&self) -> Result<Rows, String> {
        let all = |tx: &mut storage::Transaction<'_>| tx.range(&ROWS, ..)?.collect::<Result<Rows, TxnError>>();
        self.db.transact(all).map_err(|e| format!("reading all: {e}"))
    }

    /// Kills the process, and returns the disk that is left.
    fn kill(self, rng: &mut Rng) -> SimDisk {
        let disk = self.disk.crash(Crash::Random(rng.next()));
        self.disk.power_off_after(0);
        drop(self.db);
        disk
    }
}

fn run_seed(seed: u64, shape: fn(&Rows, &mut Rng, u64) -> Change) -> Result<(), String> {
    /// Minimum ratio of the inserted bytes to the maximum of live bytes.
    const TURNS: u64 = 30;
    let mut rng = Rng::new(seed);
    let now_ns = Arc::new(AtomicU64::new(1));
    let mut life = RunningDatabase::open(SimDisk::new(seed), seed, &now_ns)?;
    let mut rows = Rows::new();
    let (mut live, mut max_live, mut inserted) = (0_u64, 1_u64 << 20, 0_u64);
    let mut clock = 0;
    while inserted < TURNS * max_live && clock < 20_000 {
        clock += 1;
        let change = shape(&rows, &mut rng, clock);
        inserted += change.bytes();
        if rng.once_in(60) {
            life.disk.power_off_after(rng.below(200));
        }
        match life.change(&change) {
            Ok(()) => change.apply(&mut rows),
            Err(_) if life.disk.is_off() => {
                // The transaction returned an error, but may be durable. Only a restart shows this.
                let mut after = rows.clone();
                change.apply(&mut after);
                life = RunningDatabase::open(life.kill(&mut rng), rng.next(), &now_ns)?;
                let found = life.rows()?;
                if found != rows && found != after {
                    return Err(format!("after a kill at {clock}: {} rows, of {}", found.len(), rows.len()));
                }
                rows = found;
            }
            Err(error) => return Err(format!("transaction {clock}: {error}")),
        }
        let compacts = rng.once_in(150);
        let served = if compacts { life.compact() } else { Ok(()) }.and_then(|()| life.step(&mut rng));
        if let Err(error) = served {
            if !life.disk.is_off() {
                return Err(error);
            }
            life = RunningDatabase::open(life.kill(&mut rng), rng.next(), &now_ns)?;
            if life.rows()? != rows {
                return Err(format!("after a kill between transactions, at {clock}: other rows"));
            }
        }
        live = rows.values().map(|row| size_of_row(row)).sum();
        max_live = max_live.max(live);
        if clock % 16 == 0 && !life.disk.is_off() {
            let file = match life.db.sizes() {
                Ok(sizes) => sizes.data_file,
                // `sizes` reads pages, so it may evict and write other pages.
                Err(_) if life.disk.is_off() => continue,
                Err(error) => return Err(format!("sizes: {error}")),
            };
            let bound = 2 * max_live + CONSTANT;
            if file > bound {
                let what = format!("the file has {file} bytes, {live} live, at most {max_live} did: above {bound}");
                return Err(format!("transaction {clock}: {what}"));
            }
        }
    }
    life.disk.power_off_after(u64::MAX);
    check_at_end(&life, &mut rng, live)
}

/// Checks at the end of a case that compaction removes all dead data, and that the pages are valid.
fn check_at_end(life: &RunningDatabase, rng: &mut Rng, live: u64) -> Result<(), String> {
    for _ in 0..3000 {
        life.step(rng)?;
    }
    life.compact()?;
    let sizes = life.db.sizes().map_err(|e| format!("sizes: {e}"))?;
    if sizes.data_file > sizes.free + 2 * live + (256 << 10) || sizes.free > (512 << 10) {
        return Err(format!(
            "compacted, the file has {} bytes, {} of them free; {live} live",
            sizes.data_file, sizes.free
        ));
    }
    let of_tables: u64 =
        sizes.tables.iter().map(|t| t.rows + t.large_values + t.indexes.iter().map(|i| i.1).sum::<u64>()).sum();
    let dead: u64 = sizes.tables.iter().map(|table| table.dead).sum();
    if dead > 0 || of_tables > 2 * live + (64 << 10) {
        return Err(format!("when all was quiet {of_tables} bytes of pages hold {live} live ones, {dead} dead"));
    }
    let structure = life.db.check_structure(|_, _| ControlFlow::Continue(())).map_err(|e| format!("structure: {e}"))?;
    match structure.findings.first() {
        Some(finding) => Err(format!("structure: {finding}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn the_file_stays_near_what_lives() {
        let report = run(&CampaignPlan::small(SHAPES.len() as u64, Scheduler::Threads), &Progress::hidden());
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(report.tried >= SHAPES.len() as u64);
    }
}
