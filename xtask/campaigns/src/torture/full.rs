//! Cases of a full disk. Several transactions write until none of them gets more space. A refused transaction may undo or
//! keep its changes. Commits and rollbacks need only space that is reserved for them. The database survives a crash while
//! the disk is full, because a restart needs no additional space. When the disk has space again, transactions succeed again,
//! and the tables have the rows of the committed transactions, before and after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use storage::disk::{Crash, SimDisk};
use storage::{Background, Database, StorageError, Table, Transaction, TxnError};

use crate::sim::panics::catch_panic;
use crate::sim::rng::Rng;
use crate::sim::sizes;

const ROWS: Table<u64, Vec<u8>> = Table::new("full");
/// Number of concurrent transactions. Their rows are disjoint, so no transaction waits for another.
const SESSIONS: u64 = 4;
const ROWS_EACH: u64 = 6;
const LONGEST: u64 = 1500;
/// Number of refused statements after which all transactions end.
const REFUSED: u64 = 12;
/// Maximum number of statements. Every disk is full earlier.
const STATEMENTS: u64 = 3000;

type Rows = BTreeMap<u64, Vec<u8>>;

/// Open transaction, and the rows that its commit would add or change.
struct PendingTransaction<'a> {
    tx: Transaction<'a>,
    rows: Rows,
}

/// Runs one case of a full disk.
///
/// # Errors
/// Returns a description of the failure.
pub(super) fn run_seed(seed: u64) -> Result<(), String> {
    catch_panic(|| fill_disk(seed))?.unwrap_or_else(|| Err("stopped".into()))
}

fn fill_disk(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new(rng.next());
    let checkpoint_every = rng.pick(&[96 << 10, 1 << 30]);
    let db = open(&disk, checkpoint_every, seed)?;
    let mut committed = Rows::new();
    db.transact(|tx| {
        (0..SESSIONS * ROWS_EACH).try_for_each(|key| {
            let row = row(&mut rng);
            tx.put(&ROWS, &key, &row)?;
            committed.insert(key, row);
            Ok(())
        })
    })
    .map_err(|e: TxnError| format!("loading: {e}"))?;
    disk.set_capacity(disk.used() + rng.pick(&[0, 64 << 10, 200 << 10]));
    write_until_refused(&db, &mut committed, &mut rng)?;
    check_rows(&db, &committed).map_err(|e| format!("when all had ended: {e}"))?;

    // The process is killed, or power is lost, while the disk is still full.
    for how in [Crash::All, Crash::Random(rng.next())] {
        let full =
            open(&disk.crash(how), checkpoint_every, seed).map_err(|e| format!("still full, {how:?} survives: {e}"))?;
        check_rows(&full, &committed).map_err(|e| format!("still full, {how:?} survives: {e}"))?;
        full.close().map_err(|e| format!("still full, closing: {e}"))?;
    }

    disk.set_capacity(u64::MAX);
    for key in 0..SESSIONS * ROWS_EACH {
        let row = row(&mut rng);
        db.transact(|tx| tx.put(&ROWS, &key, &row)).map_err(|e: TxnError| format!("with space again: {e}"))?;
        committed.insert(key, row);
        // The virtual clock does not advance, so the service may leave a part of the log unwritten.
        step(&db)?;
    }
    for how in [Crash::All, Crash::Nothing, Crash::Random(rng.next())] {
        let db = open(&disk.crash(how), checkpoint_every, seed)?;
        check_rows(&db, &committed).map_err(|e| format!("reopened, {how:?} survives: {e}"))?;
    }
    db.close().map_err(|e| format!("closing: {e}"))
}

/// Makes random statements in all transactions until enough were refused. Then ends all transactions, most of them by
/// rollback.
fn write_until_refused(db: &Database, committed: &mut Rows, rng: &mut Rng) -> Result<(), String> {
    let mut open: Vec<Option<PendingTransaction<'_>>> = (0..SESSIONS).map(|_| None).collect();
    let (mut refused, mut statements) = (0, 0);
    while refused < REFUSED && statements < STATEMENTS {
        statements += 1;
        let session = rng.below(SESSIONS);
        let place = &mut open[session as usize];
        let mut pending = match place.take() {
            Some(pending) => pending,
            None => PendingTransaction { tx: db.begin().map_err(|e| format!("begin: {e}"))?, rows: Rows::new() },
        };
        let (key, row) = (session * ROWS_EACH + rng.below(ROWS_EACH), row(rng));
        match pending.tx.put(&ROWS, &key, &row) {
            Ok(()) => {
                pending.rows.insert(key, row);
            }
            Err(TxnError::Storage(StorageError::NoSpace { .. })) => refused += 1,
            Err(error) => return Err(format!("statement {statements}: {error}")),
        }
        match rng.below(24) {
            0 => end_transaction(pending, true, committed)?,
            1 => end_transaction(pending, false, committed)?,
            _ => *place = Some(pending),
        }
        if rng.once_in(8) {
            step(db)?;
        }
    }
    for pending in open.into_iter().flatten() {
        end_transaction(pending, rng.once_in(4), committed)?;
    }
    Ok(())
}

/// Commits or rolls back a transaction. Neither may fail for lack of space.
fn end_transaction(pending: PendingTransaction<'_>, commit: bool, committed: &mut Rows) -> Result<(), String> {
    if !commit {
        return pending.tx.rollback().map(drop).map_err(|e| format!("a rollback on a full disk: {e}"));
    }
    pending.tx.commit().map_err(|e| format!("a commit on a full disk: {e}"))?;
    committed.extend(pending.rows);
    Ok(())
}

/// Runs a step of the background services. A full disk may delay their work, but they must not fail.
fn step(db: &Database) -> Result<(), String> {
    match db.step() {
        Ok(()) | Err(StorageError::NoSpace { .. }) => Ok(()),
        Err(error) => Err(format!("a service: {error}")),
    }
}

fn open(disk: &SimDisk, checkpoint_every: u64, seed: u64) -> Result<Database, String> {
    let options = sizes::options(&mut Rng::new(seed))
        .checkpoint_every(checkpoint_every)
        .transactions(8)
        .clock(Arc::new(AtomicU64::new(1)))
        .database_id(1)
        .background(Background::Inline);
    let db = options.open_on(Arc::new(disk.clone())).map_err(|e| format!("open: {e}"))?;
    db.table(&ROWS).map_err(|e| format!("open: {e}"))?;
    Ok(db)
}

fn check_rows(db: &Database, rows: &Rows) -> Result<(), String> {
    let found: Result<Rows, TxnError> = db.begin().and_then(|tx| tx.range(&ROWS, ..)?.collect());
    let found = found.map_err(|e| e.to_string())?;
    let differ = |key: &&u64| found.get(key) != rows.get(key);
    match rows.keys().chain(found.keys()).find(differ) {
        None => Ok(()),
        Some(key) => Err(format!("row {key} is {:?}, not {:?}", found.get(key), rows.get(key))),
    }
}

fn row(rng: &mut Rng) -> Vec<u8> {
    let byte = rng.next() as u8;
    vec![byte; 1 + rng.below(LONGEST) as usize]
}
