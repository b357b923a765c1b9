//! Numbers of tables in memory. A table gets one when it is first used and loses it when it is dropped or its indexes
//! are changed; the next table takes it. By the number everything is found that is kept for a table while the database
//! is open: its locks, its trees, its name. So memory grows with the tables that are used beside each other, and not
//! with those that ever were.
//!
//! A statement finds the table first and locks it then, and no other transaction sees it in between. So a number that
//! is *retired* rests until every transaction that ran at that moment has ended: those may have found the table before
//! it was dropped, and their request for its lock must be refused. Later ones cannot find it: its ticket is gone.
//!
//! A *ticket* says which table has a number: no two in the life of a process are equal. A handle has the table's
//! ticket, and compares it at each use.

use std::collections::BTreeMap;

use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::txn::active::Running;
use crate::txn::engine::Engine;

/// Numbers lie below this.
pub(super) const MOST: u32 = 1 << 20;

/// The numbers that are free, and those that rest.
#[derive(Debug)]
pub(super) struct Numbers {
    /// No number from here on has been given away.
    next: u32,
    /// Free numbers by the shape of the table that had them; 0 for those that only locks were taken on.
    free: BTreeMap<u64, Vec<u32>>,
    /// Numbers that rest for as long as these transactions run.
    resting: Option<(Running, Vec<(u64, u32)>)>,
    /// Numbers that were retired since then.
    retired: Vec<(u64, u32)>,
}

impl Numbers {
    /// All from `first` on.
    pub(super) fn new(first: u32) -> Numbers {
        Numbers { next: first, free: BTreeMap::new(), resting: None, retired: Vec::new() }
    }

    /// A number for a table of this shape: one that is new, or one of a table that it `fits`. `None` if there is none.
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

    /// Takes a number back, of the table of this shape that had it. No transaction that begins later can find that table.
    pub(super) fn retire(&mut self, engine: &Engine, shape: u64, number: u32) {
        self.retired.push((shape, number));
        if self.resting.is_none() {
            self.rest(engine);
        }
    }

    fn rest(&mut self, engine: &Engine) {
        self.resting = Some((engine.slots.running(), std::mem::take(&mut self.retired)));
    }

    /// Frees the numbers that have rested long enough.
    fn settle(&mut self, engine: &Engine) {
        if let Some((running, _)) = &mut self.resting
            && !engine.slots.have_ended(running)
        {
            return;
        }
        for (shape, number) in self.resting.take().into_iter().flat_map(|(_, numbers)| numbers) {
            engine.locks.table_is_back(number);
            self.free.entry(shape).or_default().push(number);
        }
        if !self.retired.is_empty() {
            self.rest(engine);
        }
    }
}

/// A ticket for a table of the open database `instance`.
pub(super) fn new_ticket(instance: u64) -> u64 {
    static GIVEN: AtomicU64 = AtomicU64::new(1);
    let given = GIVEN.fetch_add(1, Ordering::Relaxed);
    instance << GIVEN_BITS | given & ((1 << GIVEN_BITS) - 1)
}

/// Whether a ticket was given by this open database, as far as can be told: for errors.
pub(crate) fn is_ticket_of(ticket: u64, instance: u64) -> bool {
    ticket >> GIVEN_BITS == instance & (u64::MAX >> GIVEN_BITS)
}

/// Bits that count tickets; those above them name the database.
const GIVEN_BITS: u32 = 40;
