//! Tests of the whole lock manager.

mod deadlocks;
mod fibers;
mod gaps;
mod model;
mod records;
#[cfg(shuttle)]
mod scheduled;
mod stress;
mod table_model;
mod tables;
mod timeouts;
mod timing;

use std::time::Duration;

#[cfg(shuttle)]
use super::InsertCheck;
use super::name::{LockName, Prefix};
use super::owner::{Acquired, Attempt, IfBlocked, LockOwner};
use super::sync::Arc;
use super::wait::WaitOutcome;
use super::{LockOptions, LockRefusal, LockTable, RecordMode, TableMode};
use crate::base::hook::{BlockReason, Hook, ThreadHook, WaitToken};
use crate::base::ids::{IndexId, SlotId};

/// Hook for tests that step through waits on one thread: an owner that blocks fails the test.
#[derive(Debug)]
struct NeverBlock;

impl Hook for NeverBlock {
    fn block(&self, _: &WaitToken, _: BlockReason) {
        panic!("blocks although nothing should be in the way");
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, _: Duration) -> bool {
        self.block(token, reason);
        false
    }

    fn wake(&self, token: &WaitToken) {
        token.set_woken();
    }
}

/// Returns the configuration for `n` random cases, fewer under Miri. A failure prints its smallest input, which is then
/// added as a separate test.
fn cases(n: u32) -> proptest::prelude::ProptestConfig {
    proptest::prelude::ProptestConfig {
        cases: if cfg!(miri) { 1 } else { n },
        failure_persistence: None,
        ..Default::default()
    }
}

/// Returns options for tests: few buckets, so that different names share buckets.
fn small() -> LockOptions {
    LockOptions { buckets: 2, slots: 16, dense_tables: 4, ..LockOptions::default() }
}

/// Creates `n` owners on this thread. Owner i has age i.
fn owners(options: LockOptions, n: u16) -> Vec<LockOwner> {
    let locks = LockTable::new(options, Arc::new(NeverBlock)).unwrap();
    attach(&locks, n)
}

fn attach(locks: &Arc<LockTable>, n: u16) -> Vec<LockOwner> {
    (0..n)
        .map(|slot| {
            let mut owner = locks.attach(SlotId(slot));
            owner.begin(slot.into());
            owner
        })
        .collect()
}

fn on_threads(options: LockOptions) -> Arc<LockTable> {
    LockTable::new(options, Arc::new(ThreadHook::default())).unwrap()
}

const TABLE: u32 = 1;

/// Returns the lock name of a one-byte key.
fn key(key: u8) -> LockName {
    LockName::new(IndexId(1), &[key])
}

fn at(key: u8) -> Prefix {
    Prefix::of(&[key])
}

impl LockOwner {
    /// Starts to acquire a lock. Returns `None` if the request has to wait.
    fn start(&mut self, name: LockName, mode: RecordMode, low: Prefix) -> Option<Result<Acquired, LockRefusal>> {
        let claim = super::mode::GapMode { mode, low };
        match self.attempt(TABLE, name, claim, IfBlocked::Queue) {
            Ok(Attempt::Done(acquired)) => Some(Ok(acquired)),
            Ok(_) => self.queued(),
            Err(error) => Some(Err(error)),
        }
    }

    /// Starts a request to insert. Returns `None` if the request has to wait.
    fn start_insert(&mut self, next: LockName, at: Prefix) -> Option<Result<Acquired, LockRefusal>> {
        match self.attempt_insert(TABLE, next, at, IfBlocked::Queue) {
            Ok(Attempt::Done(())) => Some(Ok(Acquired::Already)),
            Ok(_) => self.queued(),
            Err(error) => Some(Err(error)),
        }
    }

    /// Starts to lock a table. Returns `None` if the request has to wait.
    fn start_table(&mut self, table: u32, mode: TableMode) -> Option<Result<Acquired, LockRefusal>> {
        match self.attempt_table(table, mode, IfBlocked::Queue) {
            Attempt::Done(acquired) => Some(Ok(acquired)),
            _ => self.queued(),
        }
    }

    fn queued(&mut self) -> Option<Result<Acquired, LockRefusal>> {
        self.locks.resolve_deadlocks(self.slot);
        self.poll()
    }

    /// Returns the result of a wait, or `None` while the owner still waits.
    fn poll(&mut self) -> Option<Result<Acquired, LockRefusal>> {
        assert!(self.pending.is_some(), "does not wait");
        match self.shared().outcome() {
            WaitOutcome::Waiting => None,
            over => Some(self.note_outcome(over)),
        }
    }

    /// Acquires a lock that must be granted without a wait.
    fn take(&mut self, name: LockName, mode: RecordMode) {
        assert!(self.try_acquire(TABLE, name, mode, Prefix::MIN).is_ok(), "{name:?} {mode:?} is refused");
    }
}

/// Checks that nothing is locked: no bucket contains a request, and no owner holds or waits for a table.
fn assert_idle(locks: &LockTable) {
    for at in 0..locks.options.buckets.next_power_of_two() {
        assert_eq!(locks.buckets.at(at).latch().iter().count(), 0, "bucket {at}");
    }
    for table in 0..1024 {
        assert_eq!(locks.tables.strong(table).load(super::sync::Ordering::SeqCst), 0, "table {table}");
        for slot in &locks.slots {
            assert_eq!(slot.mode(table), TableMode::None, "table {table}");
        }
    }
}

/// Returns true if the victims can have been chosen in some order, each from the result of `candidates` at its time.
fn explain<M: Clone>(
    model: &M,
    victims: &[usize],
    candidates: impl Fn(&M) -> Vec<usize> + Copy,
    withdraw: impl Fn(&mut M, usize) + Copy,
) -> Option<M> {
    if victims.is_empty() {
        return Some(model.clone());
    }
    let just = candidates(model);
    (0..victims.len()).filter(|&i| just.contains(&victims[i])).find_map(|i| {
        let (mut then, mut rest) = (model.clone(), victims.to_vec());
        withdraw(&mut then, rest.swap_remove(i));
        explain(&then, &rest, candidates, withdraw)
    })
}
