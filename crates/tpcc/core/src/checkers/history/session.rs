//! A session: executes programs, one transaction after the other, and records their operations and results.
//!
//! A session calls only blocking statements of the engine, so it runs on a thread or on a fiber. Between steps it calls the
//! `pause` function of its runner. During the call, the session holds no latch, and no locks except the locks of its
//! transaction.

use std::collections::HashMap;
use std::ops::ControlFlow;

use storage::{Row, Transaction, TxnError};

use super::generate::MOST_STEPS;
use super::list_step::ListStep;
use super::shared_state::{Absence, decoded, encoded, numbers};
use super::{Form, Op, Outcome, Program, Programs, SharedState, Step, Txn};

/// Version number of a register row between its insert and its first update. No other transaction may observe this version.
const NO_VERSION: u64 = 0;

/// A session of a history run, with its recorded transactions.
#[derive(Debug)]
pub struct RecordedSession<'w, 'db> {
    shared: &'w SharedState<'db>,
    number: u32,
    generator: Programs,
    done: Vec<Txn>,
    /// True if the steps of a transaction are a loop on several threads.
    in_loops: bool,
}

/// A transaction in progress.
struct Running<'t, 'w, 'db> {
    shared: &'w SharedState<'db>,
    tx: &'t mut Transaction<'db>,
    ops: &'t mut Vec<Op>,
    /// Key of each accessed position. The key of a position stays the same within a transaction.
    keys: HashMap<u64, u64>,
    /// Keys and previous versions of the absence entries that deletes of this transaction replaced. The previous versions
    /// are restored if the transaction does not commit.
    replaced: Vec<(u64, Option<u64>)>,
    /// Next number to append to a list.
    number: u64,
}

impl<'w, 'db> RecordedSession<'w, 'db> {
    /// Creates a session that has not run any transaction.
    pub fn new(shared: &'w SharedState<'db>, number: u32) -> RecordedSession<'w, 'db> {
        let generator = Programs::new(&shared.params, number);
        let done = Vec::with_capacity(shared.params.transactions as usize);
        RecordedSession { shared, number, generator, done, in_loops: false }
    }

    /// Returns the number of bytes of a recorded transaction, without the lists that it reads.
    pub fn transaction_bytes() -> u64 {
        (size_of::<Txn>() + MOST_STEPS as usize * size_of::<Op>()) as u64
    }

    /// Creates a session in which the steps of each transaction are a loop on several threads. For the list-append form only.
    pub(super) fn in_loops(shared: &'w SharedState<'db>, number: u32) -> RecordedSession<'w, 'db> {
        RecordedSession { in_loops: true, ..RecordedSession::new(shared, number) }
    }

    /// Returns the number of the session.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns true if the session has only its last transaction left to run.
    pub fn is_at_last(&self) -> bool {
        self.done.len() as u32 + 1 >= self.shared.params.transactions
    }

    /// Returns true if the session has run all its transactions.
    pub fn is_over(&self) -> bool {
        self.done.len() as u32 >= self.shared.params.transactions
    }

    /// Returns the recorded transactions.
    pub fn into_done(self) -> Vec<Txn> {
        self.done
    }

    /// Runs the next transaction. A deadlock victim is not retried: another transaction follows.
    ///
    /// # Errors
    /// Any error of the engine but a deadlock. The session is then over. A transaction whose commit failed is recorded
    /// nevertheless.
    pub fn step(&mut self, pause: &mut dyn FnMut()) -> Result<(), TxnError> {
        let plan = self.generator.plan();
        self.carry_out(&plan, pause)
    }

    /// Runs one more transaction, which reads every row. Called for one session after all other sessions have ended. These
    /// reads give the complete order of every list, and reveal lost writes.
    ///
    /// # Errors
    /// See [`RecordedSession::step`].
    pub fn read_all(&mut self) -> Result<(), TxnError> {
        let last = self.shared.last_key();
        let all = Step::Range { at: 0, below: 0, above: last, backward: false };
        self.carry_out(&Program { steps: vec![(all, false)], abort: false }, &mut || {})
    }

    fn carry_out(&mut self, plan: &Program, pause: &mut dyn FnMut()) -> Result<(), TxnError> {
        let shared = self.shared;
        let id = u64::from(self.number) * u64::from(shared.params.transactions) + self.done.len() as u64;
        let start = shared.now();
        let mut tx = shared.db.begin_at(shared.isolation())?;
        let mut ops = Vec::with_capacity(plan.steps.len());
        let mut running = Running {
            shared,
            tx: &mut tx,
            ops: &mut ops,
            keys: HashMap::new(),
            replaced: Vec::new(),
            number: id * u64::from(MOST_STEPS) + 1,
        };
        let carried = if id.is_multiple_of(2) { running.announce(plan) } else { Ok(()) };
        let carried = carried.and_then(|()| match self.in_loops {
            true => running.steps_in_loop(plan, pause),
            false => running.steps(plan, pause),
        });
        if carried.is_err() || plan.abort {
            running.put_back();
        }
        let (outcome, error) = match carried {
            Ok(()) if !plan.abort => match tx.commit() {
                Ok(()) => (Outcome::Ok, None),
                Err(error) => (Outcome::Info, Some(error)),
            },
            Ok(()) => (Outcome::Fail, tx.rollback().err()),
            Err(error) => {
                let rolled_back = tx.rollback();
                let expected = matches!(error, TxnError::Deadlock { .. });
                (Outcome::Fail, if expected { rolled_back.err() } else { Some(error) })
            }
        };
        self.done.push(Txn { id, session: self.number, outcome, ops, start, end: shared.now() });
        error.map_or(Ok(()), Err)
    }
}

impl<'db> Running<'_, '_, 'db> {
    /// Prefetches the rows of a program. This tests that the engine does not use a remembered row position that is no longer
    /// valid.
    fn announce(&mut self, plan: &Program) -> Result<(), TxnError> {
        let keys = plan.steps.iter().map(|(step, _)| match *step {
            Step::Read(at)
            | Step::ReadForUpdate(at)
            | Step::Write(at, _)
            | Step::Delete(at)
            | Step::Range { at, .. } => at,
        });
        let keys: Vec<u64> = keys.map(|place| self.shared.key_at(place, 0)).collect();
        self.tx.prefetch(&self.shared.rows, &keys)
    }

    fn steps(&mut self, plan: &Program, pause: &mut dyn FnMut()) -> Result<(), TxnError> {
        for (step, then_pause) in &plan.steps {
            match (self.shared.params.form, *step) {
                (Form::ListAppend, step @ (Step::Write(..) | Step::Delete(_) | Step::Read(_))) => {
                    let seen = self.list_step(step).run(self.tx, &self.shared.rows)?;
                    self.ops.extend(seen);
                }
                (Form::ListAppend, Step::ReadForUpdate(place)) => {
                    let key = self.key(place, 0);
                    let row = self.tx.get_for_update(&self.shared.rows, &key)?;
                    self.ops.push(Op::List(key, row.map_or_else(Vec::new, |row| numbers(&row))));
                }
                (Form::Register, Step::Write(place, padding)) => self.write(place, padding)?,
                (Form::Register, Step::Delete(place)) => self.delete(place)?,
                (Form::Register, Step::Read(place)) => self.read(place, false)?,
                (Form::Register, Step::ReadForUpdate(place)) => self.read(place, true)?,
                (_, Step::Range { at, below, above, backward }) => {
                    let at = self.key(at, 0);
                    let (from, to) = (at.saturating_sub(below), self.shared.range_end(at + above));
                    self.range(from, to, backward)?;
                }
            }
            if *then_pause {
                pause();
            }
        }
        Ok(())
    }

    /// Runs the steps of a list-append program as one loop on several threads.
    fn steps_in_loop(&mut self, plan: &Program, pause: &mut dyn FnMut()) -> Result<(), TxnError> {
        let steps: Vec<ListStep> = plan.steps.iter().map(|(step, _)| self.list_step(*step)).collect();
        pause();
        let (rows, ops) = (&self.shared.rows, &mut *self.ops);
        self.tx.in_order(steps, |tx, step| step.run(tx, rows), |seen| ops.extend(seen))
    }

    /// Returns a step of a list-append program with the keys of its rows.
    fn list_step(&mut self, step: Step) -> ListStep {
        match step {
            Step::Write(place, _) => {
                let number = self.number;
                self.number += 1;
                ListStep::Append { key: self.key(place, 1), number }
            }
            Step::Delete(place) | Step::Read(place) | Step::ReadForUpdate(place) => ListStep::Read(self.key(place, 0)),
            Step::Range { at, below, above, .. } => {
                let at = self.key(at, 0);
                ListStep::Range(at.saturating_sub(below), self.shared.range_end(at + above))
            }
        }
    }

    /// Restores the absence entries that deletes have replaced, while the transaction still has exclusive access to the
    /// rows.
    fn put_back(&mut self) {
        while let Some((key, version)) = self.replaced.pop() {
            self.shared.store_absence(key, version);
        }
    }

    fn key(&mut self, place: u64, appends: u32) -> u64 {
        let shared = self.shared;
        // Counts the append even if the key is already known, because every append fills the list.
        let key = shared.key_at(place, appends);
        *self.keys.entry(place).or_insert(key)
    }

    fn write(&mut self, key: u64, padding: u32) -> Result<(), TxnError> {
        let shared = self.shared;
        // The version must be drawn while the row is locked. A new row is therefore inserted first and gets its version by
        // an update.
        let draw = |row: &mut Vec<u8>| {
            let version = shared.draw(false);
            row.clear();
            row.extend_from_slice(&version.to_le_bytes());
            row.resize(size_of::<u64>() + padding as usize, version as u8);
            version
        };
        loop {
            if let Some(version) = self.tx.raw_mut().update(&shared.rows, &encoded(key), draw)? {
                self.ops.push(Op::Write(key, version));
                return Ok(());
            }
            match self.tx.insert(&shared.rows, &key, &NO_VERSION.to_le_bytes().to_vec()) {
                // The row exists now, inserted here or by another transaction: retry the update.
                Ok(()) | Err(TxnError::DuplicateKey { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn delete(&mut self, key: u64) -> Result<(), TxnError> {
        loop {
            let before = self.shared.absence(key);
            if self.tx.delete(&self.shared.rows, &key)? {
                let version = self.shared.draw(true);
                let replaced = self.shared.store_absence(key, Some(version));
                self.replaced.push((key, replaced));
                self.ops.push(Op::Write(key, version));
                return Ok(());
            }
            // A delete of an absent row is recorded as a read of this row.
            if self.saw_absent(key, before) {
                return Ok(());
            }
        }
    }

    fn read(&mut self, key: u64, for_update: bool) -> Result<(), TxnError> {
        loop {
            let before = self.shared.absence(key);
            let rows = &self.shared.rows;
            let row = if for_update { self.tx.get_for_update(rows, &key) } else { self.tx.get(rows, &key) }?;
            match row {
                Some(row) => {
                    self.ops.push(Op::Read(key, Some(version(&row))));
                    return Ok(());
                }
                None if self.saw_absent(key, before) => return Ok(()),
                None => {}
            }
        }
    }

    /// Records a read of an absent row, and returns true, if the absence entry is still the same as `before`.
    fn saw_absent(&mut self, key: u64, before: Absence) -> bool {
        let now = self.shared.absence(key);
        if now == before {
            self.ops.push(Op::Read(key, now.version));
        }
        now == before
    }

    fn range(&mut self, from: u64, to: u64, backward: bool) -> Result<(), TxnError> {
        let register = self.shared.params.form == Form::Register;
        let before: Vec<Absence> =
            if register { (from..=to).map(|key| self.shared.absence(key)).collect() } else { Vec::new() };
        let mut found: HashMap<u64, Vec<u8>> = HashMap::new();
        if backward {
            for row in self.tx.range(&self.shared.rows, from..=to)?.rev() {
                let (key, row) = row?;
                found.insert(key, row);
            }
        } else {
            self.tx.raw().scan(&self.shared.rows, &encoded(from), &encoded(to), |key, row| {
                if let Some(key) = decoded(key) {
                    found.insert(key, row.to_vec());
                }
                ControlFlow::Continue(())
            })?;
        }
        for key in from..=to {
            match found.remove(&key) {
                Some(row) if register => self.ops.push(Op::Read(key, Some(version(&row)))),
                Some(row) => self.ops.push(Op::List(key, numbers(&row))),
                None if !register => self.ops.push(Op::List(key, Vec::new())),
                None if self.saw_absent(key, before[(key - from) as usize]) => {}
                None => self.read(key, false)?,
            }
        }
        Ok(())
    }
}

/// Decodes the version number of a register row. For an invalid row, returns a version number that no transaction wrote.
fn version(row: &[u8]) -> u64 {
    row.get(..size_of::<u64>()).and_then(<u64 as Row>::decode).unwrap_or(u64::MAX)
}

/// Runs a session to its end. The first session leaves out its last transaction, which runs after all sessions have ended.
pub(super) fn drive(
    session: &mut RecordedSession<'_, '_>,
    is_first: bool,
    pause: &mut dyn FnMut(),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<(), TxnError> {
    while !(session.is_over() || is_first && session.is_at_last() || interrupted()) {
        session.step(pause)?;
    }
    Ok(())
}
