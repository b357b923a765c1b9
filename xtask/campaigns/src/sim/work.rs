//! Work of the workers and servants of a run: opening and loading the tables, the transactions of the workers, the
//! background work of the servants, reading all rows, and the end of the database by a close or a kill.

use std::sync::Mutex;

use storage::disk::{Call, SimDisk};
use storage::{Age, Database, Isolation, Lsn, OpenTable, Part, Service, Transaction, TxnError};

use super::calls::DatabaseCall;
use super::concurrent_load;
use super::loops;
use super::model::Op;
use super::notes::{LoopCounters, Notes, RunError, lock};
use super::order::{Role, Sim};
use super::panics::{catch_panic, raise_finding};
use super::rng::Rng;
use super::schema_changes;
use super::script::{Ending, Script};
use super::slots::Work;
use super::statements::StatementMaker;
use super::tables::{self, Bytes, Rows, Tables};
use super::workload;

/// Number of servants of a run. One runs the steps of the flusher, page reader and segment maker. The other runs the
/// steps of the cleaner, purger and checkpointer.
pub(super) const SERVANTS: usize = 2;

/// State shared by workers and servants.
pub(super) struct Shared<'a> {
    pub(super) db: &'a Database,
    pub(super) sim: &'a dyn Sim,
    pub(super) notes: &'a Notes,
    pub(super) script: &'a Script,
    pub(super) disk: &'a SimDisk,
    /// True if the run has no servants, and its only worker also does the background work.
    pub(super) alone: bool,
}

/// Opens the tables, runs all workers concurrently, and checks all rows.
///
/// # Errors
/// Returns a panic, a description of a state in which no worker can continue, or a disagreement between a table and its
/// indexes.
pub(super) fn run_all(shared: &Shared<'_>, rng: &mut Rng) -> Result<(), String> {
    let opened = Mutex::new(None);
    let mut of_setup = rng.split();
    let setup = || match prepare(shared, &mut of_setup) {
        Ok(tables) => *lock(&opened) = Some(tables),
        Err(error) => shared.notes.error(RunError::Txn(error)),
    };
    run_workers(shared, vec![Box::new(setup)], rng)?;
    let Some(tables) = *lock(&opened) else { return Ok(()) };
    let finding = Mutex::new(None);
    let workers = (0..shared.script.profile.workers).map(|_| -> Work<'_> {
        let rng = rng.split();
        Box::new(move || worker(shared, &tables, rng))
    });
    let mut workers: Vec<Work<'_>> = workers.collect();
    if !shared.alone && rng.once_in(3) {
        workers.extend(load_beside_reader(shared, &finding, rng));
    }
    if !shared.alone && rng.once_in(3) {
        workers.push(change_schema(shared, rng));
    }
    run_workers(shared, workers, rng)?;
    if let Some(what) = lock(&finding).take() {
        return Err(what);
    }
    let of_probe = rng.split();
    let afterwards = || {
        let mut closed = false;
        if shared.script.probe {
            shared.disk.heal();
            let result = probe(shared, &tables, of_probe);
            closed = result.is_err();
            *lock(&shared.notes.probe) = Some(result);
        }
        // After an error of a service, the database may be closed to readers although no worker got an error.
        if !closed && lock(&shared.notes.errors).is_empty() {
            match tables::contents(shared.db, true).and_then(|rows| schema_changes::check(shared.db).map(|()| rows)) {
                Ok(rows) => *lock(&shared.notes.rows) = Some(rows),
                Err(what) => *lock(&finding) = Some(what),
            }
        }
    };
    run_workers(shared, vec![Box::new(afterwards)], rng)?;
    let finding = lock(&finding).take();
    finding.map_or(Ok(()), Err)
}

/// Returns two workers: one loads a table in bulk, the other relies on the emptiness of the table. A finding of the reader
/// is stored in `finding`.
fn load_beside_reader<'a>(
    shared: &'a Shared<'a>,
    finding: &'a Mutex<Option<String>>,
    rng: &mut Rng,
) -> [Work<'a>; concurrent_load::ACTORS] {
    let (of_loader, of_reader) = (rng.split(), rng.split());
    let note = |result: Result<(), TxnError>| match result {
        // The engine refuses the load if the table was loaded in an earlier life.
        Ok(()) | Err(TxnError::Schema { .. } | TxnError::Deadlock { .. }) => {}
        Err(error) => shared.notes.error(RunError::Txn(error)),
    };
    [
        Box::new(move || note(concurrent_load::load(shared.db, shared.sim, of_loader))),
        Box::new(move || match concurrent_load::read(shared.db, shared.sim, of_reader) {
            Ok(None) => {}
            Ok(what) => *lock(finding) = what,
            Err(error) => note(Err(error)),
        }),
    ]
}

/// Returns a worker that creates, fills, empties and drops a table of its own, and changes the table's indexes.
fn change_schema<'a>(shared: &'a Shared<'a>, rng: &mut Rng) -> Work<'a> {
    let of_table = rng.split();
    Box::new(move || match schema_changes::work(shared.db, shared.sim, of_table) {
        Ok(()) | Err(TxnError::Deadlock { .. }) => {}
        Err(error) => shared.notes.error(RunError::Txn(error)),
    })
}

/// Runs the workers. Also runs servants, unless the only worker does the background work.
fn run_workers(shared: &Shared<'_>, workers: Vec<Work<'_>>, rng: &mut Rng) -> Result<(), String> {
    let mut roles: Vec<Role<'_>> = workers.into_iter().map(|work| Role { serves: false, work }).collect();
    if !shared.alone {
        roles.extend(servants(shared, rng));
    }
    shared.sim.run(roles)
}

/// Runs one more transaction and waits until it is durable.
fn probe(shared: &Shared<'_>, tables: &Tables, mut rng: Rng) -> Result<(), TxnError> {
    let mut tx = shared.db.begin()?;
    let (key, row) = (workload::key(1_000_000), vec![rng.next() as u8; 700]);
    tx.put(&tables[0], &Bytes(key.clone()), &row)?;
    let number = shared.notes.history.begin(vec![Op::Put { table: 0, key, row, done: true }]);
    let lsn = tx.commit_async().inspect_err(|_| shared.notes.history.withdraw(number))?;
    shared.notes.history.committed(number, lsn.0);
    shared.db.wait_durable(lsn)?;
    shared.notes.acknowledge(lsn);
    Ok(())
}

/// Opens the tables. If the profile requires it and a table is empty, loads the table in bulk.
fn prepare(shared: &Shared<'_>, rng: &mut Rng) -> Result<Tables, TxnError> {
    let tables = tables::open(shared.db)?;
    if shared.script.profile.loaded > 0 {
        let table = rng.index(tables.len());
        let rows = workload::bulk(rng, &shared.script.profile, table);
        let number = shared.notes.history.begin(vec![Op::Run { table, rows: rows.clone(), done: true }]);
        // The parts of a table with indexes become visible one after the other. The model does not support this.
        let in_parts = tables::indexes(table) == 0 && rng.once_in(2);
        match load(shared.db, &tables[table], &rows, in_parts, rng.once_in(2)) {
            Ok(()) => {
                let durable = shared.db.durable();
                shared.notes.history.committed(number, durable.0);
                shared.notes.acknowledge(durable);
            }
            Err(LoadError::Refused(error)) => {
                shared.notes.history.withdraw(number);
                // The load is refused because the table is not empty. This is not a failure.
                if !matches!(error, TxnError::Schema { .. }) {
                    return Err(error);
                }
            }
            // The load may have taken effect despite the error.
            Err(LoadError::Failed(error)) => return Err(error),
        }
    }
    Ok(tables)
}

/// Reason for which rows were not loaded.
enum LoadError {
    /// The load did not begin and had no effect.
    Refused(TxnError),
    /// The load began and failed.
    Failed(TxnError),
}

/// Loads rows in bulk: as a table, or as the only part of a table; typed or raw.
fn load(
    db: &Database,
    table: &OpenTable<Bytes, Vec<u8>>,
    rows: &Rows,
    part: bool,
    typed: bool,
) -> Result<(), LoadError> {
    if part {
        let mut load = db.bulk_load_part(table, Part::Rows).map_err(LoadError::Refused)?;
        let pushed = rows.iter().try_for_each(|(key, row)| load.push_raw(key, row));
        return pushed.and_then(|()| load.finish().map(drop)).map_err(LoadError::Failed);
    }
    let mut load = db.bulk_load(table).map_err(LoadError::Refused)?;
    let pushed = rows
        .iter()
        .try_for_each(|(key, row)| if typed { load.push(&Bytes(key.clone()), row) } else { load.push_raw(key, row) });
    pushed.and_then(|()| load.finish().map(drop)).map_err(LoadError::Failed)
}

fn servants<'a>(shared: &'a Shared<'a>, rng: &mut Rng) -> [Role<'a>; SERVANTS] {
    let (mut of_log, mut of_pages) = (rng.split(), rng.split());
    let checkpoint_period = 2 + rng.below(12);
    let serve = move |service: Service| {
        if let Err(error) = shared.db.step_service(service) {
            shared.notes.error(RunError::Service(error));
        }
        shared.notes.acknowledge(shared.db.durable());
        shared.sim.pause();
    };
    [
        Role {
            serves: true,
            work: Box::new(move || {
                while !shared.sim.is_last() {
                    serve(of_log.pick(&[Service::Flusher, Service::PageReader, Service::SegmentMaker]));
                }
            }),
        },
        Role {
            serves: true,
            work: Box::new(move || {
                while !shared.sim.is_over() {
                    serve(if of_pages.once_in(checkpoint_period) {
                        Service::Checkpointer
                    } else {
                        of_pages.pick(&[Service::Cleaner, Service::Purger])
                    });
                }
            }),
        },
    ]
}

/// Returns true if workers also make calls other than statements. Such calls make many disk calls, so that most of the
/// sampled points of power loss would lie in them. They are therefore excluded if points of power loss are sampled.
fn may_call_anything(shared: &Shared<'_>) -> bool {
    shared.script.max_power_losses == 0
}

/// Makes a call other than a statement, and records its error.
fn call_database(shared: &Shared<'_>, tables: &Tables, call: DatabaseCall, rng: &mut Rng) {
    if let Err(error) = call.make(shared.db, tables, rng) {
        shared.notes.error(error);
    }
    shared.notes.acknowledge(shared.db.durable());
}

fn worker(shared: &Shared<'_>, tables: &Tables, mut rng: Rng) {
    // Age of the last deadlock victim. Some victims restart with the age of their first attempt.
    let mut victim = None;
    for _ in 0..shared.script.profile.transactions {
        if may_call_anything(shared) && rng.once_in(4) {
            call_database(shared, tables, DatabaseCall::between_transactions(&mut rng), &mut rng);
        }
        let mut age = victim.take().filter(|_| rng.once_in(2));
        match transaction(shared, tables, &mut rng, &mut age) {
            Ok(()) => {}
            Err(TxnError::Deadlock { .. }) => victim = age,
            Err(error) => {
                let continues = error.is_retryable();
                shared.notes.error(RunError::Txn(error));
                if !continues {
                    return;
                }
            }
        }
        if shared.script.profile.workers == 1 && rng.once_in(24) && !empty(shared, rng.index(tables.len())) {
            return;
        }
        if shared.alone {
            let served = match rng.below(8) {
                0 => shared.db.checkpoint(),
                1 | 2 => shared.db.step(),
                3 => shared.db.preload().map(drop),
                _ => Ok(()),
            };
            if let Err(error) = served {
                shared.notes.error(RunError::Service(error));
            }
            shared.notes.acknowledge(shared.db.durable());
        }
        shared.sim.pause();
    }
}

/// Removes all rows of a table. The caller must be the only worker: no other transaction may commit between the call and the
/// following read of the log's end. Returns false if the worker cannot continue.
fn empty(shared: &Shared<'_>, table: usize) -> bool {
    let (db, notes) = (shared.db, shared.notes);
    let number = notes.history.begin(vec![Op::Empty { table }]);
    match db.truncate(tables::name(table)) {
        Ok(_) => {
            notes.history.committed(number, db.durable().0);
            notes.acknowledge(db.durable());
            true
        }
        Err(error) => {
            notes.error(RunError::Txn(error));
            // The call had no effect unless it closed the database. If the database is closed, the next restart shows the
            // effect.
            let is_open = db.checkpoint().is_ok();
            if is_open {
                notes.history.withdraw(number);
            }
            is_open
        }
    }
}

/// Runs one transaction. `age` is the age of a deadlock victim that restarts. It is set to the age of this transaction.
fn transaction(shared: &Shared<'_>, tables: &Tables, rng: &mut Rng, age: &mut Option<Age>) -> Result<(), TxnError> {
    let (db, notes, profile) = (shared.db, shared.notes, &shared.script.profile);
    let blind = rng.below(10) < profile.blind;
    let level =
        if blind { rng.pick(&[Isolation::ReadCommitted, Isolation::RepeatableRead]) } else { Isolation::Serializable };
    let mut tx = match *age {
        Some(age) => db.begin_again(level, age)?,
        None => db.begin_at(level)?,
    };
    *age = Some(tx.age());
    let Some(ops) = statements(shared, tables, rng, &mut tx, blind)? else { return Ok(()) };
    if rng.below(10) < profile.aborts {
        if rng.once_in(2) {
            tx.rollback()?;
        }
        return Ok(());
    }
    let number = notes.history.begin(ops);
    let waits = rng.below(10) < profile.sync;
    if waits && profile.workers == 1 {
        tx.commit()?;
        // No other worker commits now, so the end of the log lies between this commit and the next one.
        notes.history.committed(number, db.durable().0);
    } else {
        let lsn = tx.commit_async().inspect_err(|_| notes.history.withdraw(number))?;
        notes.history.committed(number, lsn.0);
        if waits {
            db.wait_durable(lsn)?;
            notes.acknowledge(lsn);
        } else if rng.once_in(2) {
            db.request_flush(lsn);
        }
    }
    notes.acknowledge(db.durable());
    if waits {
        notes.offer_after_commit(shared.disk);
    }
    Ok(())
}

/// Runs the statements of a transaction and returns their answers. Returns `None` if the transaction gives up after an
/// error.
fn statements<'d>(
    shared: &Shared<'d>,
    tables: &Tables,
    rng: &mut Rng,
    tx: &mut Transaction<'d>,
    blind: bool,
) -> Result<Option<Vec<Op>>, TxnError> {
    let (notes, profile) = (shared.notes, &shared.script.profile);
    let mut maker = StatementMaker { db: shared.db, tx, tables, rng, profile, in_loop: false };
    let announced = if maker.rng.below(10) < profile.announces { maker.announce()? } else { Vec::new() };
    let mut ops = Vec::new();
    // Savepoint, and the number of answers before it.
    let mut mark = None;
    for _ in 0..1 + maker.rng.below(profile.statements) {
        if maker.rng.once_in(8) {
            mark = Some((maker.tx.savepoint(), ops.len()));
        }
        let answers = if blind {
            maker.put_blindly().map(|op| vec![op])
        } else if shared.script.speculate && maker.rng.once_in(3) {
            match run_in_loop(shared, &mut maker)? {
                Some(answers) => Ok(answers),
                None => return Ok(None),
            }
        } else {
            maker.statement(&announced).map(|op| vec![op])
        };
        match answers {
            Ok(answers) => ops.extend(answers),
            Err(error @ TxnError::Deadlock { .. }) => {
                if !maker.tx.is_victim() {
                    raise_finding("a deadlock's victim does not say so".to_owned());
                }
                return Err(error);
            }
            Err(error) => {
                notes.error(RunError::Txn(error));
                // The statement has had no effect, so the transaction may continue.
                if maker.rng.once_in(2) {
                    return Ok(None);
                }
            }
        }
        if let Some((savepoint, answers)) = mark
            && maker.rng.once_in(4)
        {
            if let Err(error) = maker.tx.rollback_to(savepoint) {
                notes.error(RunError::Txn(error));
                return Ok(None);
            }
            // Answers after the savepoint are also correct. They are dropped because they may depend on writes that are
            // rolled back.
            ops.truncate(answers);
        }
        notes.acknowledge(shared.db.durable());
        if may_call_anything(shared) && maker.rng.once_in(12) {
            call_database(shared, tables, DatabaseCall::in_transaction(maker.rng), maker.rng);
        }
        shared.sim.pause();
    }
    Ok(Some(ops))
}

/// Runs statements as iterations of a loop. Returns their answers. Returns `None` if the transaction gives up after an error.
fn run_in_loop<'d>(shared: &Shared<'d>, maker: &mut StatementMaker<'_, 'd>) -> Result<Option<Vec<Op>>, TxnError> {
    let before = maker.tx.savepoint();
    let mut counters = LoopCounters::default();
    let ran = loops::run(maker, &mut counters);
    *lock(&shared.notes.loop_counters) += counters;
    match ran {
        Ok(answers) => return Ok(Some(answers)),
        Err(error @ TxnError::Deadlock { .. }) => return Err(error),
        Err(error) => shared.notes.error(RunError::Txn(error)),
    }
    match maker.tx.rollback_to(before) {
        Ok(()) if maker.rng.once_in(2) => Ok(Some(Vec::new())),
        Ok(()) => Ok(None),
        Err(error) => {
            shared.notes.error(RunError::Txn(error));
            Ok(None)
        }
    }
}

/// Closes the database. For a kill, leaks it, as the end of a process would.
///
/// # Errors
/// Returns a panic.
pub(super) fn end(db: Database, disk: &SimDisk, script: &Script, notes: &Notes) -> Result<(), String> {
    notes.acknowledge(db.durable());
    match script.ending {
        Ending::Close => {
            let closed = catch_panic(|| db.close())?;
            match closed {
                Some(Ok(())) => notes.acknowledge(Lsn(u64::MAX - 1)),
                Some(Err(error)) => notes.error(RunError::Service(error)),
                None => {}
            }
        }
        Ending::Kill => {
            // Writes after the kill must not reach the disk.
            disk.power_off_after(0);
            catch_panic(|| drop(db))?;
        }
    }
    notes.offer_power_losses(disk, Call::Sync);
    Ok(())
}
