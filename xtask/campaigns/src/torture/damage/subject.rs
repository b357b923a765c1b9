//! Databases to damage. Each is small, but has every feature of a database: a tree of two levels with many small rows, a
//! tree of three levels with long keys, secondary indexes of both kinds, rows of all lengths, ghost records, free pages, and
//! a log with recycled segments. The database was closed cleanly, or the process was killed, with many changes to redo and
//! some to undo.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::{Background, Database, Options, SecondaryIndex, Table, Transaction, TxnError};

use super::disk::{CowDisk, Image};
use crate::sim::rng::Rng;
use crate::sim::scheduler::Scheduler;

/// Table with many short rows.
pub(crate) const NUMBERS: Table<u64, u64> = Table::new("numbers");
/// Table with rows of any length. It has a unique index by stamp and a non-unique index by mark.
pub(crate) const ROWS: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByMark>().with_index::<ByStamp>();
/// Table with long keys. A page holds few rows, so the tree is deep.
pub(crate) const LONG: Table<Vec<u8>, Vec<u8>> = Table::new("long");

/// Index by mark, the first byte of a row. Rows that begin with 0 are not indexed.
#[derive(Debug)]
pub(crate) struct ByMark;
impl SecondaryIndex for ByMark {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = u8;
    const NAME: &'static str = "by_mark";
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<u8> {
        row.first().copied().filter(|mark| *mark != 0)
    }
}

/// Index by stamp, the eight bytes after the mark of a row.
#[derive(Debug)]
pub(crate) struct ByStamp;
impl SecondaryIndex for ByStamp {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = u64;
    const NAME: &'static str = "by_stamp";
    const UNIQUE: bool = true;
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<u64> {
        Some(u64::from_be_bytes(*row.get(1..)?.first_chunk()?))
    }
}

/// Rows that the database must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) numbers: BTreeMap<u64, u64>,
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) long: BTreeMap<Vec<u8>, Vec<u8>>,
    stamp: u64,
}

/// Change of one row.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Number(u64, Option<u64>),
    Row(Vec<u8>, Option<Vec<u8>>),
    Long(Vec<u8>, Option<Vec<u8>>),
}

impl Change {
    /// Applies the change to the database, in a transaction.
    pub(crate) fn apply(&self, tx: &mut Transaction<'_>) -> Result<(), TxnError> {
        match self {
            Change::Number(key, Some(row)) => tx.put(&NUMBERS, key, row),
            Change::Number(key, None) => tx.delete(&NUMBERS, key).map(drop),
            Change::Row(key, Some(row)) => tx.put(&ROWS, key, row),
            Change::Row(key, None) => tx.delete(&ROWS, key).map(drop),
            Change::Long(key, Some(row)) => tx.put(&LONG, key, row),
            Change::Long(key, None) => tx.delete(&LONG, key).map(drop),
        }
    }
}

fn set<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: &Option<V>) {
    match value {
        Some(value) => drop(map.insert(key.clone(), value.clone())),
        None => drop(map.remove(key)),
    }
}

impl Model {
    /// Applies the change to the model.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Number(key, row) => set(&mut self.numbers, key, row),
            Change::Row(key, row) => set(&mut self.rows, key, row),
            Change::Long(key, row) => set(&mut self.long, key, row),
        }
    }

    /// Returns a random change that is possible in the current state of the model.
    pub(crate) fn draw(&mut self, rng: &mut Rng) -> Change {
        let gone = rng.once_in(5);
        match rng.below(3) {
            0 => {
                let key = match self.numbers.keys().nth(rng.index(self.numbers.len().max(1))) {
                    Some(key) if rng.once_in(2) => *key,
                    _ => rng.below(5000),
                };
                Change::Number(key, (!gone).then(|| rng.next()))
            }
            1 => {
                let key = match self.rows.keys().nth(rng.index(self.rows.len().max(1))) {
                    Some(key) if rng.once_in(2) => key.clone(),
                    _ => {
                        let n = rng.index(20);
                        rng.bytes(n)
                    }
                };
                Change::Row(key, (!gone).then(|| self.row(rng)))
            }
            _ => {
                let key = match self.long.keys().nth(rng.index(self.long.len().max(1))) {
                    Some(key) if rng.once_in(2) => key.clone(),
                    _ => long_key(rng),
                };
                let n = if rng.once_in(12) { rng.index(14_000) } else { 100 + rng.index(700) };
                Change::Long(key, (!gone).then(|| rng.bytes(n)))
            }
        }
    }

    fn row(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.stamp += 1;
        let most = if rng.once_in(30) { rng.pick(&[3900, 10_000]) } else { 200 };
        let n = rng.index(most);
        let mut row = vec![rng.below(6) as u8];
        row.extend_from_slice(&self.stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        row.extend(rng.bytes(n));
        row
    }
}

/// Returns a random key of about 400 bytes or of many more, with a prefix that many keys share.
fn long_key(rng: &mut Rng) -> Vec<u8> {
    let mut key = vec![b'a' + rng.below(3) as u8; 200];
    let n = if rng.once_in(10) { 1500 } else { 100 + rng.index(190) };
    key.extend(rng.bytes(n).into_iter().map(|b| b | 1));
    key
}

/// State in which the database was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// The database was closed.
    Closed,
    /// The process was killed, so a restart must recover from the log.
    Killed,
}

/// Database to damage.
#[derive(Debug)]
pub(crate) struct Subject {
    /// Scheduler of the threads or fibers that read the database.
    pub(crate) scheduler: Scheduler,
    pub(crate) shutdown: Shutdown,
    pub(crate) image: Image,
    /// Earlier image of the same directory. Stale pages and files are taken from it.
    pub(crate) older: Image,
    pub(crate) model: Model,
    /// States of the model shortly before the kill, the newest last. Empty for a database that was closed.
    pub(crate) past: Vec<Model>,
    /// Log position after which damage is indistinguishable from the end of the log, because no later record proves that the
    /// bytes were durable.
    pub(crate) provable: u64,
}

/// Returns options with small sizes and without background threads.
pub(crate) fn options() -> Options {
    Options::new()
        .buffer_pool(1 << 20)
        .log_segment(64 << 10)
        .log_buffer(512 << 10)
        .checkpoint_every(1 << 20)
        .transactions(8)
        .background(Background::Inline)
}

/// Maximum size of a subject's directory, in bytes.
const CAPACITY: u64 = 64 << 20;

fn commit(db: &Database, model: &mut Model, changes: &[Change]) -> Result<(), TxnError> {
    db.transact(|tx| changes.iter().try_for_each(|change| change.apply(tx)))?;
    changes.iter().for_each(|change| model.apply(change));
    Ok(())
}

impl Subject {
    /// Creates a subject from a seed.
    ///
    /// # Errors
    /// Returns an error only if the engine fails without any damage.
    pub(crate) fn make(
        seed: u64,
        shutdown: Shutdown,
        scheduler: Scheduler,
    ) -> Result<Subject, Box<dyn std::error::Error>> {
        let mut rng = Rng::of_case(seed, shutdown as u64);
        let disk = CowDisk::over(&Image::default(), CAPACITY);
        let db = options().open_on(Arc::new(disk.clone()))?;
        let mut model = Model::default();
        for i in 0..900u64 {
            model.apply(&Change::Number(i * 5, Some(rng.next())));
        }
        for _ in 0..150 {
            let key = long_key(&mut rng);
            let n = 100 + rng.index(700);
            let row = rng.bytes(n);
            model.apply(&Change::Long(key, Some(row)));
        }
        for _ in 0..220 {
            let n = rng.index(20);
            let key = rng.bytes(n);
            let row = model.row(&mut rng);
            model.apply(&Change::Row(key, Some(row)));
        }
        db.transact(|tx| model.numbers.iter().try_for_each(|(k, v)| tx.put(&NUMBERS, k, v)))?;
        db.transact(|tx| model.rows.iter().try_for_each(|(k, v)| tx.put(&ROWS, k, v)))?;
        db.transact(|tx| model.long.iter().try_for_each(|(k, v)| tx.put(&LONG, k, v)))?;
        // Free some pages: rows of each tree are deleted, and a scan removes the ghost records.
        let mut gone: Vec<Change> = (1000..2800).filter(|k| k % 5 == 0).map(|k| Change::Number(k, None)).collect();
        gone.extend(model.long.keys().skip(20).take(50).map(|k| Change::Long(k.clone(), None)));
        commit(&db, &mut model, &gone)?;
        for _ in 0..2 {
            db.transact(|tx| tx.range(&NUMBERS, ..)?.try_for_each(|row| row.map(drop)))?;
            db.transact(|tx| tx.range(&LONG, ..)?.try_for_each(|row| row.map(drop)))?;
        }
        // Write enough to recycle the segments of the log.
        for round in 0..6 {
            for _ in 0..10 {
                let changes: Vec<Change> = (0..8).map(|_| model.draw(&mut rng)).collect();
                commit(&db, &mut model, &changes)?;
            }
            if round % 2 == 0 {
                db.checkpoint()?;
            }
        }
        db.checkpoint()?;
        let older = disk.image();
        let mut past = Vec::new();
        let mut provable = 0;
        for round in 0..12 {
            let changes: Vec<Change> = (0..1 + rng.index(12)).map(|_| model.draw(&mut rng)).collect();
            past.push(model.clone());
            // The next records prove that the log was durable up to this position, because their transaction begins
            // afterwards.
            provable = db.durable().0;
            commit(&db, &mut model, &changes)?;
            if round % 4 == 3 {
                db.step()?;
            }
        }
        if shutdown == Shutdown::Closed {
            db.close()?;
            return Ok(Subject {
                scheduler,
                shutdown,
                image: disk.image(),
                older,
                model,
                past: Vec::new(),
                provable: u64::MAX,
            });
        }
        // Leave a transaction in progress with its changes in the log. The commit of another transaction makes the changes
        // durable.
        let mut loser = db.begin()?;
        let mut ahead = model.clone();
        for key in [1u64, 3, 777_777] {
            loser.put(&NUMBERS, &key, &rng.next())?;
        }
        let longest: Vec<Vec<u8>> = ahead.long.keys().take(8).cloned().collect();
        for key in &longest {
            loser.delete(&LONG, key)?;
        }
        loser.put(&ROWS, b"a row of nobody".as_ref(), &ahead.row(&mut rng))?;
        let middle = model.numbers.keys().nth(model.numbers.len() / 2).copied().unwrap_or_default();
        let bystander = vec![Change::Number(middle, Some(rng.next()))];
        past.push(model.clone());
        provable = provable.max(db.durable().0);
        commit(&db, &mut model, &bystander)?;
        let image = disk.image();
        drop(loser);
        drop(db);
        Ok(Subject { scheduler, shutdown, image, older, model, past, provable })
    }

    /// Returns the subjects of a campaign: two seeds of each kind of shutdown.
    ///
    /// # Errors
    /// Returns the errors of [`Subject::make`].
    pub(crate) fn all(seed: u64, scheduler: Scheduler) -> Result<Vec<Subject>, Box<dyn std::error::Error>> {
        let mut all = Vec::new();
        for variant in 0..2 {
            for shutdown in [Shutdown::Closed, Shutdown::Killed] {
                all.push(Subject::make(seed.wrapping_add(variant * 1000), shutdown, scheduler)?);
            }
        }
        Ok(all)
    }
}

/// Size of a log file, in bytes. The next constant is the size of its header.
pub(crate) const LOG_FILE: u64 = 64 << 10;
pub(crate) const LOG_HEADER: u64 = 4096;

/// Returns the log position of the byte at offset `at` of a log file; `None` for a byte outside the payload.
pub(crate) fn log_position(file: &str, at: u64) -> Option<u64> {
    let number: u64 = file.strip_prefix("log.")?.parse().ok()?;
    Some(number * (LOG_FILE - LOG_HEADER) + at.checked_sub(LOG_HEADER)?)
}
