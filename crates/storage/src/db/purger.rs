//! The purge service: removes ghost (deleted) records that no transaction needs any more and merges nearly empty pages,
//! which frees pages. It works in bounded steps.
//!
//! *Due pages.* A thread that leaves ghosts in a page, or reads a page that has ghosts, sets the page's bit
//! (`buffer/due.rs`). The service goes through the bits in rounds. If a transaction still needs ghosts of a page, the
//! service sets the page's bit again, and the next round examines the page. The more such pages a round finds, the
//! longer is the pause before the next round.
//!
//! *Ghosts that existed when the database was opened* have no bit. One slow sweep through all trees reads the leaves, a
//! few at a time, and finds these ghosts.
//!
//! A ghost is *removable* if no lock refers to its key and no transaction has locked the whole table. The service holds
//! a table's IS lock for the duration of a step, as a reader does, and never waits for the lock.
//!
//! If a page cannot be read, the disk is full, or the instance is closed, the service pauses without changing anything.

use std::time::Duration;

use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{IndexId, PageId};
use crate::base::sync::Mutex;
use crate::base::sync::plain::{AtomicBool, AtomicU64, Ordering};
use crate::btree::merge::MergeLimits;
use crate::btree::{Tree, space};
use crate::page::PageRef;
use crate::page::header::Kind;
use crate::table::catalog::Catalog;
use crate::table::purge::TableShare;
use crate::txn::active::SystemPurpose;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

/// Maximum number of pages per step: normally, and (`STEP_THROTTLED`) while the log slows transactions.
const STEP: usize = 32;
const STEP_THROTTLED: usize = 4;
/// Maximum number of due pages that are taken from the bitmap by one call.
const TAKEN: usize = 256;
/// Minimum and maximum pause after a round that found ghosts that are still needed, in nanoseconds.
const PAUSE_NS: (u64, u64) = (5_000_000, 1_000_000_000);
/// Pause after a failure, in nanoseconds.
const AFTER_FAILURE_NS: u64 = 1_000_000_000;
/// Delay of the sweep after the database was opened, interval between steps of the sweep (both in nanoseconds), and
/// maximum number of leaves per step of the sweep.
const SWEEP_AFTER_NS: u64 = 500_000_000;
const SWEEP_EVERY_NS: u64 = 50_000_000;
const SWEEP_STEP: usize = 1024;
/// Maximum number of steps, and maximum time in nanoseconds, for due pages when the database is closed.
const LAST_STEPS: usize = 256;
const LAST_NS: u64 = 300_000_000;
/// Sleep times of the idle service: normally, and for `AFTER_WORK_NS` nanoseconds after a step that had work.
const IDLE: Duration = Duration::from_millis(50);
const IDLE_AFTER_WORK: Duration = Duration::from_millis(10);
const AFTER_WORK_NS: u64 = 1_000_000_000;

/// The purge service of one database.
#[derive(Debug)]
pub(crate) struct Purger {
    /// State of the service between steps. `None` during a step: a step takes the state, because it may wait for pages.
    state: Mutex<Option<PurgeState>>,
    /// Time in nanoseconds at which a step has work even if no page has become due since the last step.
    next_ns: AtomicU64,
    /// Time in nanoseconds before which steps do not process due pages.
    not_before_ns: AtomicU64,
    /// Number of active [`PurgeSuspension`] guards.
    suspensions: AtomicU64,
    /// True while the database is being compacted: steps then also merge pages that are only partly empty.
    is_thorough: AtomicBool,
}

#[derive(Debug, Default)]
struct PurgeState {
    /// Remaining due pages taken from the bitmap in the current round, in reverse order.
    queue: Vec<PageId>,
    round: Option<Round>,
    /// Time in nanoseconds before which no round begins.
    not_before: u64,
    sweep: Sweep,
    /// Time in nanoseconds of the last step that removed ghosts or merged pages.
    worked_ns: Option<u64>,
}

/// One pass through the due pages.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Page from which the search for due pages continues; `None` if the search has reached the end of the bitmap.
    next: Option<PageId>,
    begun_ns: u64,
    done: u64,
    /// Number of pages of the round whose ghosts are still needed.
    deferred: u64,
}

/// Progress of the sweep through all trees.
#[derive(Debug, Default)]
struct Sweep {
    /// The current tree, and (`cursor`) the key at which the sweep continues in this tree. If `cursor` is `None`, the
    /// sweep continues in the next tree.
    index: IndexId,
    cursor: Option<Vec<u8>>,
    /// Leaves to examine, in reverse order.
    leaves: Vec<PageId>,
    next_ns: Option<u64>,
    is_over: bool,
    /// True for the sweep of a compaction, which finds all pages that may be merged, and skips tables that a
    /// transaction has locked as a whole. Other sweeps retry such tables later.
    is_thorough: bool,
}

/// A step in progress. Owns the state of the service, and gives the state back when dropped.
struct PurgeTurn<'p> {
    purger: &'p Purger,
    state: PurgeState,
}

impl Drop for PurgeTurn<'_> {
    fn drop(&mut self) {
        *self.purger.state.lock() = Some(std::mem::take(&mut self.state));
    }
}

/// Guard that prevents new steps of the service until dropped.
pub(crate) struct PurgeSuspension<'p>(&'p Purger);

impl Drop for PurgeSuspension<'_> {
    fn drop(&mut self) {
        self.0.suspensions.fetch_sub(1, Ordering::Release);
    }
}

/// Guard of compaction: until it is dropped, all steps merge pages as compaction requires.
struct CompactionMode<'p>(&'p AtomicBool);

impl<'p> CompactionMode<'p> {
    fn begin(flag: &'p AtomicBool) -> CompactionMode<'p> {
        flag.store(true, Ordering::Relaxed);
        CompactionMode(flag)
    }
}

impl Drop for CompactionMode<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Purger {
    pub(crate) fn new() -> Purger {
        Purger {
            state: Mutex::new(Some(PurgeState::default())),
            next_ns: AtomicU64::new(0),
            not_before_ns: AtomicU64::new(0),
            suspensions: AtomicU64::new(0),
            is_thorough: AtomicBool::new(false),
        }
    }

    /// Returns true if a step would probably have work. The check costs three loads, for callers that run a step after
    /// each transaction.
    #[inline]
    pub(crate) fn is_due(&self, engine: &Engine, now_ns: u64) -> bool {
        let is_past = |time: &AtomicU64| now_ns >= time.load(Ordering::Relaxed);
        is_past(&self.next_ns) || engine.pool.has_due_pages() && is_past(&self.not_before_ns)
    }

    /// Runs one step; returns true if the next step may have work immediately. The caller holds no latch. A step that
    /// begins during another one does nothing. The sweep stops after `sweep_ns`, at the end of a page.
    pub(crate) fn step(&self, engine: &Engine, catalog: &Catalog, sweep_ns: u64) -> bool {
        let taken = {
            let mut state = self.state.lock();
            if self.suspensions.load(Ordering::Acquire) == 0 { state.take() } else { None }
        };
        let Some(state) = taken else { return false };
        let mut turn = PurgeTurn { purger: self, state };
        if engine.poison.check().is_err() {
            return false;
        }
        let now = engine.clock.now_ns();
        let worked = turn.state.purge(engine, catalog, now, self.limits());
        turn.state.sweep.step(engine, catalog, (now, sweep_ns));
        let state = &turn.state;
        let of_sweep = state.sweep.next_ns.filter(|_| !state.sweep.is_over).unwrap_or(u64::MAX);
        let of_round = if state.round.is_some() { state.not_before } else { u64::MAX };
        let next = if worked { 0 } else { of_sweep.min(of_round) };
        self.next_ns.store(next, Ordering::Relaxed);
        self.not_before_ns.store(turn.state.not_before, Ordering::Relaxed);
        worked
    }

    /// Keeps the service from changing pages until the guard is dropped. Waits for a step in progress.
    pub(crate) fn suspend(&self, engine: &Engine) -> PurgeSuspension<'_> {
        // A step that begins later sees the count under the lock of the state.
        self.suspensions.fetch_add(1, Ordering::AcqRel);
        let suspension = PurgeSuspension(self);
        while self.state.lock().is_none() {
            engine.hook.block_for(&WaitToken::new(), BlockReason::Room, Duration::from_nanos(PAUSE_NS.0));
        }
        suspension
    }

    /// Sweeps through all trees at once, then runs steps until they find no work. Tables that a transaction has locked
    /// as a whole are skipped. `make_room` makes space in the log, because steps do not wait for log space.
    ///
    /// # Errors
    /// An error if the instance is closed.
    pub(crate) fn purge_all(
        &self,
        engine: &Engine,
        catalog: &Catalog,
        make_room: impl Fn() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let _guard = CompactionMode::begin(&self.is_thorough);
        let mut sweep = Sweep { is_thorough: true, ..Sweep::default() };
        let mut idle = 0;
        // The number of steps is bounded, because transactions that continue to delete rows always create more work.
        let mut steps = 100 + engine.pool.file_pages() as usize / STEP;
        while !sweep.is_over || (idle < 3 && steps > 0) {
            engine.poison.check()?;
            let mut worked = false;
            if !sweep.is_over {
                worked = sweep.examine(engine, catalog, u64::MAX).unwrap_or_else(|_| {
                    sweep.skip();
                    true
                });
            }
            make_room()?;
            worked |= self.step(engine, catalog, 0);
            idle = if worked || !sweep.is_over { 0 } else { idle + 1 };
            steps -= usize::from(sweep.is_over && steps > 0);
            if !worked {
                // Another thread may be running a step, or a round ended with ghosts that are still needed.
                engine.hook.block_for(&WaitToken::new(), BlockReason::Room, Duration::from_nanos(PAUSE_NS.0));
                self.end_pause();
            }
        }
        Ok(())
    }

    /// Runs steps for a limited time before the database is closed, so that the next open has less work. `make_room`
    /// makes space in the log, because the services have ended.
    pub(crate) fn finish(&self, engine: &Engine, catalog: &Catalog, make_room: impl Fn() -> Result<(), StorageError>) {
        let begun = engine.clock.now_ns();
        for _ in 0..LAST_STEPS {
            if make_room().is_err() {
                break;
            }
            let worked = self.step(engine, catalog, 0);
            if !worked && !engine.pool.has_due_pages() || engine.clock.now_ns().saturating_sub(begun) > LAST_NS {
                break;
            }
            self.end_pause();
        }
    }

    fn limits(&self) -> MergeLimits {
        if self.is_thorough.load(Ordering::Relaxed) { MergeLimits::COMPACT } else { MergeLimits::THOROUGH }
    }

    /// Ends the pause before the next round.
    fn end_pause(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.not_before = 0;
        }
    }

    /// Returns the pause after a step that found no work.
    pub(crate) fn pause(&self, now_ns: u64) -> Duration {
        let worked = self.state.lock().as_ref().and_then(|state| state.worked_ns);
        let lately = worked.is_some_and(|then| now_ns.saturating_sub(then) < AFTER_WORK_NS);
        if lately { IDLE_AFTER_WORK } else { IDLE }
    }
}

/// The tables on which a step holds an IS lock, with their trees.
struct SharedTables<'s, 'db> {
    engine: &'db Engine,
    catalog: &'s Catalog,
    txn: Txn<'db>,
    limits: MergeLimits,
    granted: Vec<(Tree, u32)>,
    refused: Vec<IndexId>,
}

impl<'s, 'db> SharedTables<'s, 'db> {
    /// Begins the transaction of a step. Returns `None` if another purge transaction runs, or the instance is closed.
    fn begin(engine: &'db Engine, catalog: &'s Catalog, limits: MergeLimits) -> Option<SharedTables<'s, 'db>> {
        let txn = engine.begin_alone(SystemPurpose::Purge).ok().flatten()?;
        Some(SharedTables { engine, catalog, txn, limits, granted: Vec::new(), refused: Vec::new() })
    }

    /// Returns the tree with this number. The step holds an IS lock on the tree's table until the step ends.
    fn tree(&mut self, index: IndexId) -> Result<Tree, TableShare> {
        if let Some((tree, _)) = self.granted.iter().find(|(tree, _)| tree.index == index) {
            return Ok(*tree);
        }
        if self.refused.contains(&index) {
            return Err(TableShare::Refused);
        }
        let (tree, table) = self.catalog.tree(self.engine, index).ok_or(TableShare::Gone)?;
        match self.txn.try_share(table) {
            // Checked under the lock: while the lock is held, the tree is not dropped and the table's number is not
            // reused.
            TableShare::Granted if self.catalog.tree(self.engine, index) == Some((tree, table)) => {
                self.granted.push((tree, table));
                Ok(tree)
            }
            TableShare::Gone => Err(TableShare::Gone),
            TableShare::Granted | TableShare::Refused => {
                self.refused.push(index);
                Err(TableShare::Refused)
            }
        }
    }

    /// Processes a due page. Returns true as the first flag if the page must be processed again, and true as the second
    /// flag if ghosts were removed or pages merged.
    fn process(&mut self, id: PageId) -> Result<(bool, bool), StorageError> {
        let Some(leaf) = Leaf::read(self.engine, id)? else { return Ok((false, false)) };
        let tree = match self.tree(leaf.index) {
            Ok(tree) => tree,
            // The tree is being built or was dropped.
            Err(TableShare::Gone) => return Ok((false, false)),
            Err(_) => return Ok((true, false)),
        };
        let purge = self.txn.purge_page(tree, (id, &leaf.low), self.limits)?;
        Ok((purge.is_due, purge.ghosts > 0 || purge.merged))
    }
}

/// Properties of a leaf, read before it is latched.
struct Leaf {
    index: IndexId,
    /// A key within the leaf's bounds. The page may have changed since the key was read.
    low: Vec<u8>,
}

impl Leaf {
    /// Reads the properties of a page; returns `None` if the page is no leaf.
    fn read(engine: &Engine, id: PageId) -> Result<Option<Leaf>, StorageError> {
        loop {
            let frame = engine.pool.get_or_load(id)?;
            let read = frame.read(engine.pool.latches());
            let page: PageRef<'_> = read.page();
            let leaf = (page.kind() == Some(Kind::Leaf))
                .then(|| Leaf { index: page.index(), low: page.low_fence().unwrap_or_default() });
            if frame.page_id() == id && read.is_valid() {
                return Ok(leaf);
            }
        }
    }

    /// Returns true if the page is a leaf that has ghosts, or uses fewer bytes than `below`.
    fn may_be_due(engine: &Engine, id: PageId, below: usize) -> Result<bool, StorageError> {
        loop {
            let frame = engine.pool.get_or_load(id)?;
            let read = frame.read(engine.pool.latches());
            let page = read.page();
            let is_leaf = page.kind() == Some(Kind::Leaf);
            let is_due = is_leaf && (page.ghosts() > 0 || page.used_bytes() < below);
            if frame.page_id() == id && read.is_valid() {
                return Ok(is_due);
            }
        }
    }
}

impl PurgeState {
    /// Processes some due pages; returns true if more due pages may be processed immediately.
    fn purge(&mut self, engine: &Engine, catalog: &Catalog, now: u64, limits: MergeLimits) -> bool {
        if !self.refill(engine, now) {
            return false;
        }
        let Some(mut shared) = SharedTables::begin(engine, catalog, limits) else { return false };
        let Ok(end) = space::first_unused(engine.structure_change(shared.txn.slot.peek().id)) else { return false };
        let step = if engine.log.is_throttled() { STEP_THROTTLED } else { STEP };
        for _ in 0..step {
            let Some(id) = self.queue.pop() else { break };
            if u64::from(id.0) >= end {
                continue;
            }
            let processed = shared.process(id);
            let Some(round) = &mut self.round else { break };
            match processed {
                Ok((is_due, worked)) => {
                    if worked {
                        self.worked_ns = Some(now);
                    }
                    if is_due {
                        engine.pool.note_due(id);
                        round.deferred += 1;
                    }
                    round.done += u64::from(worked || !is_due);
                }
                // The damage is not reported here, because readers of the page report it.
                Err(StorageError::CorruptPage { .. }) => {}
                Err(_) => {
                    engine.pool.note_due(id);
                    self.not_before = now.saturating_add(AFTER_FAILURE_NS);
                    return false;
                }
            }
        }
        true
    }

    /// Takes more due pages from the bitmap if the queue is empty. Returns false if no due page may be processed now.
    fn refill(&mut self, engine: &Engine, now: u64) -> bool {
        while self.queue.is_empty() {
            match &mut self.round {
                Some(Round { next: Some(next), .. }) => {
                    let at = engine.pool.take_due_pages(*next, TAKEN, &mut self.queue);
                    self.queue.reverse();
                    if let Some(round) = &mut self.round {
                        round.next = (!at.is_none()).then_some(at);
                    }
                }
                Some(round) => {
                    if round.deferred > 0 {
                        // The pause is chosen so that about half of the examined pages can be purged.
                        let took = now.saturating_sub(round.begun_ns);
                        let pause = took.saturating_mul(round.deferred) / (round.done + 1);
                        self.not_before = now.saturating_add(pause.clamp(PAUSE_NS.0, PAUSE_NS.1));
                    }
                    self.round = None;
                }
                None => {
                    if now < self.not_before || !engine.pool.begin_purge_round() {
                        return false;
                    }
                    self.round = Some(Round { next: Some(PageId(0)), begun_ns: now, done: 0, deferred: 0 });
                }
            }
        }
        now >= self.not_before
    }
}

impl Sweep {
    /// Examines the next leaves, if the interval has passed.
    fn step(&mut self, engine: &Engine, catalog: &Catalog, (now, at_most): (u64, u64)) {
        let due = *self.next_ns.get_or_insert(now.saturating_add(SWEEP_AFTER_NS));
        if self.is_over || now < due {
            return;
        }
        self.next_ns = Some(now.saturating_add(SWEEP_EVERY_NS));
        // After an error, for example a page that cannot be read, the rest of the tree is skipped.
        if self.examine(engine, catalog, at_most).is_err() {
            self.skip();
        }
    }

    /// Skips the rest of the current tree.
    fn skip(&mut self) {
        self.leaves.clear();
        self.cursor = None;
    }

    /// Examines some leaves. Returns false if the next leaves cannot be collected because another purge transaction
    /// runs.
    fn examine(&mut self, engine: &Engine, catalog: &Catalog, at_most_ns: u64) -> Result<bool, StorageError> {
        if self.leaves.is_empty() {
            let Some(mut shared) = SharedTables::begin(engine, catalog, MergeLimits::THOROUGH) else {
                return Ok(false);
            };
            self.gather(engine, catalog, &mut shared)?;
        }
        let below = if self.is_thorough { MergeLimits::COMPACT.below } else { MergeLimits::PASSING.below };
        let begun = engine.clock.now_ns();
        for _ in 0..SWEEP_STEP {
            let Some(id) = self.leaves.pop() else { break };
            if Leaf::may_be_due(engine, id, below)? {
                engine.pool.note_due(id);
            }
            if engine.clock.now_ns().saturating_sub(begun) >= at_most_ns {
                break;
            }
        }
        Ok(true)
    }

    /// Collects the leaves below the next inner page of the current tree.
    fn gather(
        &mut self,
        engine: &Engine,
        catalog: &Catalog,
        shared: &mut SharedTables<'_, '_>,
    ) -> Result<(), StorageError> {
        let Some(key) = &self.cursor else {
            match catalog.index_after(self.index) {
                Some(index) => (self.index, self.cursor) = (index, Some(Vec::new())),
                None => self.is_over = true,
            }
            return Ok(());
        };
        let tree = match shared.tree(self.index) {
            Ok(tree) => tree,
            // A later step tries this tree again.
            Err(TableShare::Refused) if !self.is_thorough => return Ok(()),
            Err(_) => {
                self.cursor = None;
                return Ok(());
            }
        };
        loop {
            let root = engine.pool.get_or_load(tree.root)?;
            let read = root.read(engine.pool.latches());
            let is_leaf = read.page().is_leaf();
            if root.page_id() != tree.root || !read.is_valid() {
                continue;
            }
            drop(read);
            if is_leaf {
                self.leaves.push(tree.root);
                self.cursor = None;
                return Ok(());
            }
            let (node, _) = tree.with_parent(&engine.pool, key, 1)?;
            let page = node.page();
            let leaves: Vec<PageId> = (0..=page.count()).rev().map(|i| page.child(i)).collect();
            let high = page.high_fence();
            if node.is_valid() {
                (self.leaves, self.cursor) = (leaves, high);
                return Ok(());
            }
        }
    }
}
