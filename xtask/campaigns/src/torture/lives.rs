//! Scripted workload for reused page numbers. In each life, tables are loaded in bulk (completely, partially, or until the
//! crash), emptied and dropped; their indexes are created and dropped; and the database is copied and preloaded. Between
//! these operations, transactions commit synchronously or asynchronously. Each life may end at any call of the disk. The
//! following restart may be interrupted as well, more than once. The next life continues with the page numbers of the
//! previous one.
//!
//! After every restart, the rows must have a permitted state, and the structure check must have no findings. Each copy must
//! have the transactions that were committed when the copy was made.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use storage::disk::{Crash, SimDisk};
use storage::{
    Background, BulkLoad, CopyError, Database, Extremes, OpenTable, Options, Part, Rule, SecondaryIndex, Table,
    Transaction, TxnError,
};

use super::seeds::SeedResult;
use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;
use crate::sim::scheduler::Scheduler;
use crate::sim::sizes;

/// Declarations of the tables without indexes. Those with indexes follow.
const PLAIN: [Table<u64, Vec<u8>>; 3] = [Table::new("first"), Table::new("second"), Table::new("third")];
const INDEXED: [Table<u64, Vec<u8>>; 3] = [
    Table::new("first").with_index::<ByStamp>(),
    Table::new("second").with_index::<ByStamp>(),
    Table::new("third").with_index::<ByStamp>(),
];

/// Index by the first bytes of a row.
struct ByStamp;

impl SecondaryIndex for ByStamp {
    type Key = u64;
    type Row = Vec<u8>;
    type By = u32;
    const NAME: &'static str = "by_stamp";
    fn by(_: &u64, row: &Vec<u8>) -> Option<u32> {
        row.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Description of a row: its stamp, which is unique for each write, and its length in bytes.
type RowSpec = (u32, usize);

fn row((stamp, bytes): RowSpec) -> Vec<u8> {
    let mut row = stamp.to_le_bytes().repeat(bytes / 4 + 1);
    row.truncate(bytes.max(4));
    row
}

/// Descriptions of the rows of all tables, by key.
type Rows = [BTreeMap<u64, RowSpec>; 3];

/// Reason for the early end of a life.
enum LifeEnd {
    PowerLoss,
    Failure(String),
}

impl From<String> for LifeEnd {
    fn from(what: String) -> LifeEnd {
        LifeEnd::Failure(what)
    }
}

/// Runs all lives of a seed. Each life is a case. A restart is interrupted at most `restarts` times.
pub(super) fn run_seed(campaign: &str, seed: u64, restarts: u64, seed_result: &mut SeedResult) {
    let mut rng = Rng::new(seed ^ 0x11fe);
    let (mut disk, mut possible) = (SimDisk::new(seed), vec![Rows::default()]);
    let mut history = History::default();
    for life in 0..3 + rng.below(4) {
        seed_result.cases += 1;
        let lived = catch_panic(|| run_life(&disk, seed, restarts, &mut possible, &mut history, &mut rng));
        match lived.and_then(|lived| lived.unwrap_or_else(|| Err("stopped".into()))) {
            Ok(left) => disk = left,
            Err(what) => return seed_result.fail(campaign, Scheduler::Threads, seed, format!("life {life}: {what}")),
        }
    }
}

/// State that is passed from one life to the next, in addition to the rows.
#[derive(Default)]
struct History {
    /// Stamp of the last written row.
    stamp: u32,
    /// Number of pages that may be orphaned, because a power loss may have interrupted the creation of a table or index.
    orphans: usize,
}

/// Runs one life, from a restart to a crash. Returns the disk after the crash. `possible` is the list of states that
/// recovery may find; it is updated.
fn run_life(
    disk: &SimDisk,
    seed: u64,
    restarts: u64,
    possible: &mut Vec<Rows>,
    history: &mut History,
    rng: &mut Rng,
) -> Result<SimDisk, String> {
    let mut disk = disk.clone();
    for _ in 0..rng.below(restarts + 1) {
        disk.power_off_after(rng.below(250));
        let interrupted = open(&disk, seed, rng);
        if let (Err(error), false) = (&interrupted, disk.is_off()) {
            return Err(format!("restart: {error}"));
        }
        disk = lose_power(&disk, rng, || drop(interrupted));
    }
    let db = open(&disk, seed, rng).map_err(|error| format!("restart: {error}"))?;
    let mut life = Life { db: &db, disk: &disk, tables: Vec::new(), possible: possible.clone(), history, rng };
    let lived = life.run();
    *possible = std::mem::take(&mut life.possible);
    let left = lose_power(&disk, rng, || ());
    drop(db);
    match lived {
        Ok(()) | Err(LifeEnd::PowerLoss) => Ok(left),
        Err(LifeEnd::Failure(what)) => Err(what),
    }
}

/// Returns the disk after a power loss. Then calls `end`, whose writes do not reach the disk.
fn lose_power(disk: &SimDisk, rng: &mut Rng, end: impl FnOnce()) -> SimDisk {
    let how = match rng.below(3) {
        0 => Crash::Nothing,
        1 => Crash::All,
        _ => Crash::Random(rng.next()),
    };
    let left = disk.crash(how);
    disk.power_off_after(0);
    end();
    left
}

fn open(disk: &SimDisk, seed: u64, rng: &mut Rng) -> Result<Database, String> {
    let sizes = Extremes { segment_bytes: rng.pick(&[32 << 10, 64 << 10, 1 << 20]), ..sizes::draw(rng) };
    let options = Options::new()
        .buffer_pool(rng.pick(&[storage::MIN_POOL_BYTES, 1 << 20, 16 << 20]))
        .sizes(sizes)
        .checkpoint_every(rng.pick(&[128 << 10, 1 << 20, 64 << 20]))
        .transactions(6)
        .clock(Arc::new(AtomicU64::new(1)))
        .database_id(seed | 1)
        .background(Background::Inline);
    options.open_on(Arc::new(disk.clone())).map_err(|error| error.to_string())
}

/// Opens the tables of a database with their current indexes.
fn tables(db: &Database) -> Result<Vec<OpenTable<u64, Vec<u8>>>, TxnError> {
    let table = |i: usize| match db.table(&PLAIN[i]) {
        Err(TxnError::Schema { .. }) => db.table(&INDEXED[i]),
        other => other,
    };
    (0..PLAIN.len()).map(table).collect()
}

/// Reads the rows of all tables, and checks the structure. At most `lost` pages may be orphaned.
fn read(db: &Database, lost: usize) -> Result<Rows, String> {
    let tables = tables(db).map_err(|error| format!("tables: {error}"))?;
    let mut found = Rows::default();
    let tx = db.begin().map_err(|error| error.to_string())?;
    for (table, rows) in tables.iter().zip(&mut found) {
        for read in tx.range(table, ..).map_err(|error| error.to_string())? {
            let (key, bytes) = read.map_err(|error| format!("reading: {error}"))?;
            let stamp = bytes.first_chunk().map_or(0, |stamp| u32::from_le_bytes(*stamp));
            if bytes != row((stamp, bytes.len())) {
                return Err(format!("row {key} is made of two"));
            }
            rows.insert(key, (stamp, bytes.len()));
        }
    }
    drop(tx);
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
    let orphans = structure.findings.iter().filter(|finding| finding.rule == Rule::Orphan).count();
    let wrong = structure.findings.iter().find(|finding| finding.rule != Rule::Orphan || orphans > lost);
    match wrong {
        Some(finding) => Err(format!("structure: {finding} (pages that belong to nothing: {orphans}, of {lost})")),
        None => db.verify_pages().map(|_| found).map_err(|error| format!("verify: {error}")),
    }
}

struct Life<'l> {
    db: &'l Database,
    disk: &'l SimDisk,
    tables: Vec<OpenTable<u64, Vec<u8>>>,
    /// States that recovery may find after a crash at this point, oldest first.
    possible: Vec<Rows>,
    history: &'l mut History,
    rng: &'l mut Rng,
}

impl<'l> Life<'l> {
    fn run(&mut self) -> Result<(), LifeEnd> {
        let found = read(self.db, self.history.orphans).map_err(|what| format!("after the restart: {what}"))?;
        if !self.possible.contains(&found) {
            return Err(LifeEnd::Failure(self.describe_difference(&found)));
        }
        // This transaction makes the recovered state durable.
        self.possible = vec![found];
        if self.rng.once_in(4) {
            self.disk.power_off_after(self.rng.below(3));
        }
        self.tables = self.unless_power_lost(tables(self.db))?;
        self.write(true)?;
        if self.rng.once_in(2) {
            self.disk.power_off_after(1 + self.rng.below(600));
        }
        for _ in 0..4 + self.rng.below(12) {
            self.step()?;
        }
        Ok(())
    }

    /// Checks all rows through the buffer pool, and the pages in the file.
    fn check_rows(&self) -> Result<(), LifeEnd> {
        match read(self.db, self.history.orphans) {
            Ok(found) if found == *self.newest() => Ok(()),
            Ok(found) => Err(LifeEnd::Failure(self.describe_difference(&found))),
            Err(_) if self.disk.is_off() => Err(LifeEnd::PowerLoss),
            Err(what) => Err(LifeEnd::Failure(what)),
        }
    }

    fn describe_difference(&self, found: &Rows) -> String {
        let newest = &self.possible[self.possible.len() - 1];
        let differs = |table: &usize| found[*table] != newest[*table];
        let Some(table) = (0..PLAIN.len()).find(differs) else { return "another state".into() };
        let (found, wanted) = (&found[table], &newest[table]);
        let lost = wanted.iter().find(|(key, _)| !found.contains_key(key));
        let other = found.iter().find(|(key, spec)| wanted.get(key) != Some(spec));
        format!(
            "no permitted state ({} are): table {table} has {} rows, the newest {}; lost {lost:?}, other {other:?}",
            self.possible.len(),
            found.len(),
            wanted.len()
        )
    }

    fn newest(&self) -> &Rows {
        &self.possible[self.possible.len() - 1]
    }

    /// Converts an error. A power loss ends the life; any other error is a failure.
    fn unless_power_lost<T>(&self, result: Result<T, impl std::fmt::Display>) -> Result<T, LifeEnd> {
        result.map_err(|error| match self.disk.is_off() {
            true => LifeEnd::PowerLoss,
            false => LifeEnd::Failure(format!("an error without a cause: {error}")),
        })
    }

    /// Records a change whose call returns after the change is durable. If the call failed, the change may or may not be
    /// durable.
    fn change(&mut self, next: Rows, result: Result<(), TxnError>) -> Result<(), LifeEnd> {
        self.possible.push(next);
        self.unless_power_lost(result)?;
        self.possible.drain(..self.possible.len() - 1);
        Ok(())
    }

    fn step(&mut self) -> Result<(), LifeEnd> {
        let table = self.rng.index(PLAIN.len());
        match self.rng.below(16) {
            0..4 => self.load(table),
            4..7 => self.write(false),
            7 => self.delete_all(table),
            8 => {
                let mut next = self.newest().clone();
                next[table].clear();
                let done = self.db.truncate(PLAIN[table].name()).map(drop);
                self.change(next, done)
            }
            9 => self.drop_table(table),
            10 => self.alter(table),
            11 => self.roll_back(table),
            12 => self.copy(|_| Ok(())),
            13 => self.unless_power_lost(self.db.checkpoint()),
            14 => self.unless_power_lost(self.db.preload()).map(drop),
            _ => self.unless_power_lost(self.db.step()),
        }
    }

    fn spec(&mut self) -> RowSpec {
        self.history.stamp += 1;
        (self.history.stamp, self.rng.pick(&[4, 40, 300, 300, 1500]))
    }

    /// Writes and deletes rows in one transaction.
    fn write(&mut self, sync: bool) -> Result<(), LifeEnd> {
        let mut next = self.newest().clone();
        let db = self.db;
        let mut tx = self.unless_power_lost(db.begin())?;
        let most = if self.rng.once_in(4) { 300 } else { 12 };
        for _ in 0..1 + self.rng.below(most) {
            let (table, key) = (self.rng.index(PLAIN.len()), self.rng.below(4000));
            if self.rng.once_in(4) {
                self.unless_power_lost(tx.delete(&self.tables[table], &key))?;
                next[table].remove(&key);
            } else {
                let spec = self.spec();
                self.unless_power_lost(tx.put(&self.tables[table], &key, &row(spec)))?;
                next[table].insert(key, spec);
            }
        }
        self.commit(tx, next, sync)
    }

    /// Commits synchronously or asynchronously. A crash may lose a transaction that was committed asynchronously.
    fn commit(&mut self, tx: Transaction<'_>, next: Rows, sync: bool) -> Result<(), LifeEnd> {
        if sync || self.rng.once_in(2) {
            let done = tx.commit();
            return self.change(next, done);
        }
        self.possible.push(next);
        self.unless_power_lost(tx.commit_async()).map(drop)
    }

    fn roll_back(&mut self, table: usize) -> Result<(), LifeEnd> {
        let mut tx = self.unless_power_lost(self.db.begin())?;
        let first = self.rng.below(4000);
        for key in first..first + self.rng.below(200) {
            let spec = self.spec();
            self.unless_power_lost(tx.put(&self.tables[table], &key, &row(spec)))?;
        }
        self.unless_power_lost(tx.rollback()).map(drop)
    }

    fn delete_all(&mut self, table: usize) -> Result<(), LifeEnd> {
        let mut next = self.newest().clone();
        let keys: Vec<u64> = std::mem::take(&mut next[table]).into_keys().collect();
        let db = self.db;
        let mut tx = self.unless_power_lost(db.begin())?;
        for key in keys {
            self.unless_power_lost(tx.delete(&self.tables[table], &key))?;
        }
        let done = tx.commit();
        self.change(next, done)
    }

    fn drop_table(&mut self, table: usize) -> Result<(), LifeEnd> {
        let mut next = self.newest().clone();
        next[table].clear();
        let done = self.db.drop_table(PLAIN[table].name()).map(drop);
        self.change(next, done)?;
        self.history.orphans += 6;
        self.tables = self.unless_power_lost(tables(self.db))?;
        self.history.orphans -= 6;
        Ok(())
    }

    /// Creates or drops the index of a table.
    fn alter(&mut self, table: usize) -> Result<(), LifeEnd> {
        let with = self.rng.once_in(2);
        let declared = if with { &INDEXED[table] } else { &PLAIN[table] };
        self.history.orphans += 3;
        self.tables[table] = self.unless_power_lost(self.db.alter_indexes(declared))?;
        self.history.orphans -= 3;
        Ok(())
    }

    /// Loads a table in bulk if it is empty: with its index or only its rows, completely or partially.
    fn load(&mut self, table: usize) -> Result<(), LifeEnd> {
        if !self.newest()[table].is_empty() {
            return match self.db.bulk_load(&self.tables[table]) {
                Err(TxnError::Schema { .. }) => Ok(()),
                Ok(_) => Err(LifeEnd::Failure("a table with rows is loaded".into())),
                Err(error) => self.unless_power_lost(Err(error)),
            };
        }
        let db = self.db;
        let handle = self.tables[table];
        let rows = self.rng.pick(&[0, 3, 400, 2000, 5000]);
        let specs: Vec<RowSpec> = (0..rows).map(|_| self.spec()).collect();
        let loaded: BTreeMap<u64, RowSpec> = specs.iter().enumerate().map(|(key, spec)| (key as u64, *spec)).collect();
        // Returns the rows of all tables after the load. Computed after the load, because other tables change during it.
        let with_load = |newest: &Rows| {
            let mut next = newest.clone();
            next[table] = loaded.clone();
            next
        };
        let name = PLAIN[table].name();
        let has_index = db.indexes().iter().filter(|(_, table, _)| table == name).count() > 1;
        if !has_index && self.rng.once_in(3) {
            let mut part = self.unless_power_lost(db.bulk_load_part(&handle, Part::Rows))?;
            for (key, spec) in specs.iter().enumerate() {
                self.unless_power_lost(part.push_raw(&(key as u64).to_be_bytes(), &row(*spec)))?;
                // Sometimes another transaction begins during the load and rolls back.
                if key == 100 {
                    self.roll_back(table)?;
                }
            }
            if self.rng.once_in(4) {
                return Ok(());
            }
            let (next, done) = (with_load(self.newest()), part.finish().map(drop));
            return self.change(next, done);
        }
        let mut load = self.unless_power_lost(db.bulk_load(&handle))?;
        let mut rest = specs.iter().enumerate().map(|(key, spec)| (key as u64, *spec));
        while let Some((key, spec)) = rest.next() {
            self.unless_power_lost(load.push(&key, &row(spec)))?;
            if self.rng.once_in(700) {
                self.during_load(table, &mut load, &mut rest)?;
            }
        }
        if self.rng.once_in(4) {
            return Ok(());
        }
        let (next, done) = (with_load(self.newest()), load.finish().map(drop));
        self.change(next, done)?;
        if self.rng.once_in(2) { self.check_rows() } else { Ok(()) }
    }

    /// Runs a random action during the load of a table.
    fn during_load(
        &mut self,
        loaded: usize,
        load: &mut BulkLoad<'_, u64, Vec<u8>>,
        rest: &mut dyn Iterator<Item = (u64, RowSpec)>,
    ) -> Result<(), LifeEnd> {
        match self.rng.below(8) {
            0..3 => self.unless_power_lost(self.db.preload()).map(drop),
            3 => self.unless_power_lost(self.db.checkpoint()),
            // Kill the process.
            4 => {
                self.disk.power_off_after(0);
                Err(LifeEnd::PowerLoss)
            }
            5 => self.copy(|_| match rest.next() {
                Some((key, spec)) => load.push(&key, &row(spec)),
                None => Ok(()),
            }),
            _ => {
                // The transactions are asynchronous, so that the end of the log may be far beyond its durable part.
                for _ in 0..1 + self.rng.below(4) {
                    self.write_during_load((loaded + 1) % PLAIN.len())?;
                }
                Ok(())
            }
        }
    }

    /// Runs a transaction on a table other than the one that is being loaded.
    fn write_during_load(&mut self, other: usize) -> Result<(), LifeEnd> {
        let mut next = self.newest().clone();
        let db = self.db;
        let mut tx = self.unless_power_lost(db.begin())?;
        for _ in 0..self.rng.below(100) {
            let (key, spec) = (self.rng.below(4000), self.spec());
            self.unless_power_lost(tx.put(&self.tables[other], &key, &row(spec)))?;
            next[other].insert(key, spec);
        }
        self.commit(tx, next, false)
    }

    /// Copies the database. Checks that the copy has all transactions that were committed when it was made. Calls
    /// `meanwhile` during the copy.
    fn copy(&mut self, mut meanwhile: impl FnMut(&Database) -> Result<(), TxnError>) -> Result<(), LifeEnd> {
        let target = SimDisk::new(self.rng.next());
        let mut wrong = None;
        let copied = self.db.copy_on(Arc::new(target.clone()), |_| {
            for _ in 0..40 {
                if let Err(error) = meanwhile(self.db) {
                    wrong = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        self.unless_power_lost(wrong.map_or(Ok(()), Err))?;
        match copied {
            Ok(_) => {}
            Err(CopyError::Storage(error)) => return self.unless_power_lost(Err(error)),
            Err(error) => return Err(LifeEnd::Failure(format!("copy: {error}"))),
        }
        let db = open(&target, 1, self.rng).map_err(|error| format!("opening a copy: {error}"))?;
        let found = read(&db, self.history.orphans).map_err(|what| format!("a copy: {what}"))?;
        target.power_off_after(0);
        if found != *self.newest() {
            return Err(LifeEnd::Failure(format!("a copy: {}", self.describe_difference(&found))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lives_on_one_disk_lose_nothing() {
        let mut seed_result = SeedResult::default();
        (0..12).for_each(|seed| run_seed("crash", seed, 2, &mut seed_result));
        assert_eq!(seed_result.failures, [""; 0]);
        assert!(seed_result.cases > 36);
    }
}
