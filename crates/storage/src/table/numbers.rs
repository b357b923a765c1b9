//! Table numbers in memory. A table gets a number at its first use and loses the number when the table is dropped or
//! its indexes are changed; then another table reuses the number. All in-memory state of a table is found by its
//! number: its locks, its trees, its name. So memory grows with the number of existing tables that were used, not with
//! the number of all tables that ever existed.
//!
//! A statement first finds the table and then locks it, and other transactions cannot observe the time in between. So a
//! *retired* number rests until every transaction that ran at its retirement has ended: such a transaction may have
//! found the table before it was dropped, and its lock request must be refused. Later transactions cannot find the
//! table, because its ticket is no longer valid.
//!
//! A *ticket* identifies the table that has a number: tickets are unique in a process. A handle stores the table's
//! ticket and compares it at each use.

use std::collections::BTreeMap;

use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::txn::active::RunningSet;
use crate::txn::engine::Engine;

/// Upper bound of table numbers, exclusive.
pub(super) const MOST: u32 = 1 << 20;

/// Free table numbers, and retired numbers that rest before their reuse.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Lowest table number that was never used.
    next: u32,
    /// Free numbers, by the shape (see `TableEntry::shape`) of the table that used them last. Shape 0: numbers that
    /// were used only for locks.
    free: BTreeMap<u64, Vec<u32>>,
    /// Resting numbers, each with the shape of its last table, and the set of running transactions for whose end they
    /// wait.
    resting: Option<(RunningSet, Vec<(u64, u32)>)>,
    /// Numbers retired after the resting numbers, each with the shape of its last table.
    retired: Vec<(u64, u32)>,
}

impl Numbers {
    /// Creates a set in which all table numbers from `first` on are free.
    pub(super) fn new(first: u32) -> Numbers {
        Numbers { next: first, free: BTreeMap::new(), resting: None, retired: Vec::new() }
    }

    /// Takes a number for a table of this shape: a free number of the same shape that `fits` accepts, another free
    /// number, or an unused number. Returns `None` if no number is free.
    pub(super) fn take(&mut self, engine: &Engine, shape: u64, fits: impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(number) = self.take_free(shape, &fits) {
            return Some(number);
        }
        self.settle(engine);
        self.take_free(shape, &fits).or_else(|| {
            let number = self.next;
            self.next += u32::from(number < MOST);
            (number < MOST).then_some(number)
        })
    }

    fn take_free(&mut self, shape: u64, fits: &impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(free) = self.free.get_mut(&shape)
            && let Some(at) = free.iter().rposition(|number| fits(*number))
        {
            return Some(free.swap_remove(at));
        }
        self.free.get_mut(&0)?.pop()
    }

    /// Releases the number of a table of this shape. The caller guarantees that no transaction that begins later can
    /// find the table.
    pub(super) fn retire(&mut self, engine: &Engine, shape: u64, number: u32) {
        self.retired.push((shape, number));
        if self.resting.is_none() {
            self.rest(engine);
        }
    }

    fn rest(&mut self, engine: &Engine) {
        self.resting = Some((engine.slots.running(), std::mem::take(&mut self.retired)));
    }

    /// Frees the resting numbers if the transactions for whose end they wait have ended.
    fn settle(&mut self, engine: &Engine) {
        if let Some((running, _)) = &mut self.resting
            && !engine.slots.have_ended(running)
        {
            return;
        }
        for (shape, number) in self.resting.take().into_iter().flat_map(|(_, numbers)| numbers) {
            engine.locks.reuse_table_number(number);
            self.free.entry(shape).or_default().push(number);
        }
        if !self.retired.is_empty() {
            self.rest(engine);
        }
    }
}

/// Returns a new ticket for a table of the open database `instance`.
pub(super) fn new_ticket(instance: u64) -> u64 {
    static GIVEN: AtomicU64 = AtomicU64::new(1);
    let given = GIVEN.fetch_add(1, Ordering::Relaxed);
    instance << GIVEN_BITS | given & ((1 << GIVEN_BITS) - 1)
}

/// Returns true if a ticket probably belongs to this open database. Used to choose an error message.
pub(crate) fn is_ticket_of(ticket: u64, instance: u64) -> bool {
    ticket >> GIVEN_BITS == instance & (u64::MAX >> GIVEN_BITS)
}

/// Number of low bits of a ticket that count tickets. The higher bits identify the open database.
const GIVEN_BITS: u32 = 40;
