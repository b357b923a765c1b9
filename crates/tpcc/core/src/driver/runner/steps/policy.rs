//! Team policy for the fibers of a [`FiberHook`]: fibers join teams and switch at the start of statements.
//!
//! The policy brings fibers that run the same code together at the start of a statement. With a team per operation, as in
//! the paper, a fiber joins the team of the statement's operation. With a team per transaction, the members of a team run
//! transactions of one kind and execute the same statements anyway. A fiber then only lets the next member run, which is
//! cheaper.
//!
//! Some rows are hot: every transaction of a warehouse or a district locks them. If transactions of one warehouse may run
//! concurrently, a transaction does not let other fibers run from its first request of a hot row until its end. Therefore no
//! transaction of its team ever waits for a hot row. All statements from this request on belong to one operation, `finish`.
//! If the concurrent transactions are of [different warehouses](TeamPolicy::keep_apart), statements on hot rows are ordinary
//! operations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use sched_steps::fiber;
use sched_steps::point::is_live;
use sched_steps::team::{self, OperationId, Operations, TooManyOperations};
use storage::{Operation, OperationKind, PointSite, points};

use super::points::{GROUPS, PointSelection};
use crate::engines::storage::fiber_hook::{FiberHook, FiberPolicy};
use crate::workload::error::Error;
use crate::workload::generate::deck::Kind;
use crate::workload::schema::TableId;
use crate::workload::settings::{SwitchPoints, TeamUnit};

/// Engine hook that runs storage on teams of fibers.
pub type StepsHook = FiberHook<TeamPolicy>;

/// Decides which fibers run together and at which points they switch.
#[derive(Debug)]
pub struct TeamPolicy {
    selection: PointSelection,
    teams: OnceLock<Teams>,
    /// Unit of work that a team executes together.
    teams_of: TeamUnit,
    /// True if concurrent transactions are of different warehouses.
    apart: AtomicBool,
}

/// Operations of teams, and the mapping of statements to operations.
#[derive(Debug)]
struct Teams {
    operations: Operations,
    /// Bit mask of the operations for which a point is live, indexed by point number.
    live: Box<[u64]>,
    begin: OperationId,
    finish: OperationId,
    /// Operations for whole transactions, indexed by transaction kind.
    kinds: [OperationId; KINDS],
    /// Operation for a whole transaction of unknown kind.
    transaction: OperationId,
    /// Code region of each operation, indexed by operation.
    regions: [CodeRegion; u64::BITS as usize],
    /// Operation of each statement, by index number and kind of statement, if transactions of one warehouse may run
    /// concurrently. `None` if the fiber stays in its team.
    together: Box<[Option<OperationId>]>,
    /// Operation of each statement, if concurrent transactions are of different warehouses.
    apart: Box<[Option<OperationId>]>,
}

/// Number of entries per index in the mapping of statements, at least the number of kinds of statements. A power of two.
const PLACES: usize = 16;

const _: () = assert!((OperationKind::Prefetch as usize) < PLACES);

/// Code that a statement executes, as a unit of the instruction cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodeRegion {
    /// Reads. The code at the start of a transaction (begin, scans, fetches, prefetches) fits the instruction cache
    /// together.
    Reads,
    /// Accesses to hot rows. The same code updates both tables of hot rows.
    Hot,
    /// Code that shares the cache with no other statement.
    Alone,
}

/// Number of transaction kinds.
const KINDS: usize = Kind::ALL.len();

/// Creates a hook for fibers that switch at `points`.
pub fn hook_for(teams_of: TeamUnit, points: &SwitchPoints) -> Result<Arc<StepsHook>, Error> {
    Ok(Arc::new(FiberHook::new(TeamPolicy::new(teams_of, PointSelection::of(points)?))))
}

/// Creates a hook. `live` contains, for each point number, the bit mask of the operations for which the point is live.
pub fn hook_at(teams_of: TeamUnit, live: Box<[u64]>) -> Arc<StepsHook> {
    Arc::new(FiberHook::new(TeamPolicy::new(teams_of, PointSelection::Masks(live))))
}

impl TeamPolicy {
    fn new(teams_of: TeamUnit, selection: PointSelection) -> TeamPolicy {
        TeamPolicy { selection, teams: OnceLock::new(), teams_of, apart: AtomicBool::new(false) }
    }

    /// Sets whether concurrent transactions are of different warehouses.
    pub fn keep_apart(&self, apart: bool) {
        self.apart.store(apart, Ordering::Relaxed);
    }

    /// Called before a transaction of this kind begins. If teams execute whole transactions, the fiber joins the team of
    /// this kind.
    #[inline]
    pub fn begins(&self, kind: Kind) {
        if self.teams_of == TeamUnit::Transaction
            && let Some(teams) = self.teams.get()
        {
            team::begin_operation(teams.kinds[kind as usize]);
        }
    }

    /// Returns true if any point outside of group descents is live.
    pub fn stops_outside_of_groups(&self) -> bool {
        let is_outside = |site: &PointSite| !site.name().starts_with(GROUPS);
        self.teams
            .get()
            .is_some_and(|teams| points().iter().zip(&teams.live).any(|(s, live)| *live != 0 && is_outside(s)))
    }

    /// Returns the operations for the executor of a worker's teams. `None` if there are no teams.
    pub fn operations(&self) -> Option<Operations> {
        self.teams.get().map(|teams| teams.operations.clone())
    }
}

/// Returns the position of a statement in the mapping, by index number and kind.
#[inline]
fn place(index: u32, kind: OperationKind) -> usize {
    index as usize * PLACES + kind as usize % PLACES
}

impl Teams {
    /// Returns the operation of a statement. `None` if the fiber stays in its team.
    #[inline]
    fn of(&self, operation: Operation, apart: bool) -> Option<OperationId> {
        let table = if apart { &self.apart } else { &self.together };
        table.get(place(operation.index, operation.kind)).copied().flatten()
    }

    /// Handles the start of a statement if teams execute whole transactions. Lets the next fiber of the team run first,
    /// unless the statement is in the same code region as the previous statement.
    #[inline]
    fn enter_in_team(&self, next: OperationId) {
        let now = team::current_part();
        if next == self.begin {
            // The transaction did not announce its begin, or this attempt is a retry.
            if now.is_none() || now != team::current_operation() {
                team::begin_operation(self.transaction);
            }
            return team::go_on_as(next);
        }
        let Some(now) = now else { return };
        if now == next || now == self.finish {
            return;
        }
        team::go_on_as(next);
        let region = self.region(next);
        if region == CodeRegion::Alone || region != self.region(now) {
            let_others_run();
        }
    }

    #[inline]
    fn region(&self, operation: OperationId) -> CodeRegion {
        self.regions[operation.index() % self.regions.len()]
    }
}

/// Lets the next fiber run. Never inlined, so that statements without a switch do not save registers for a switch.
#[inline(never)]
fn let_others_run() {
    if !std::thread::panicking() {
        fiber::hop();
    }
}

impl FiberPolicy for TeamPolicy {
    fn may_switch_at(&self, site: &'static PointSite) -> bool {
        self.selection.may_switch_at(site)
    }

    #[inline]
    fn switches_at(&self, site: u32) -> bool {
        self.teams.get().is_some_and(|teams| is_live(teams.live[site as usize]))
    }

    fn enter(&self, operation: Operation) {
        let Some(teams) = self.teams.get() else { return };
        let Some(next) = teams.of(operation, self.apart.load(Ordering::Relaxed)) else { return };
        if self.teams_of == TeamUnit::Transaction {
            return teams.enter_in_team(next);
        }
        let now = team::current_operation();
        // After a transaction has started its last operation (`finish`), all its further statements belong to this
        // operation.
        if now == Some(next) || (now == Some(teams.finish) && next != teams.begin) {
            return;
        }
        team::begin_operation(next);
    }

    fn set_indexes(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
        if matches!(self.selection, PointSelection::None) {
            return Ok(());
        }
        let mut operations = Operations::new();
        let begin = operations.add("begin", "")?;
        let announce = operations.add("announce", "")?;
        let scan = operations.add("scan", "")?;
        let finish = operations.add("finish", "")?;
        let transaction = operations.add("transaction", "")?;
        let mut kinds = [transaction; KINDS];
        for kind in Kind::ALL {
            kinds[kind as usize] = operations.add(kind.name(), "")?;
        }
        let mut regions = [CodeRegion::Alone; u64::BITS as usize];
        for operation in [begin, announce, scan] {
            regions[operation.index()] = CodeRegion::Reads;
        }
        let last = indexes.iter().map(|(number, ..)| *number).max().unwrap_or(0) as usize;
        let mut together = vec![None; (last + 1) * PLACES];
        use OperationKind as K;
        for (kind, operation) in
            [(K::Begin, begin), (K::Prefetch, announce), (K::Commit, finish), (K::Rollback, finish)]
        {
            together[place(0, kind)] = Some(operation);
        }
        let mut apart = together.clone();
        for (number, table, name) in indexes {
            let is_hot = [TableId::Warehouse, TableId::District].iter().any(|hot| hot.name() == table);
            let mut add = |what: &str| operations.add(what, name);
            let (fetch, insert) = (add("fetch")?, add("insert")?);
            let (update, delete) = (add("update")?, add("delete")?);
            regions[fetch.index()] = if is_hot { CodeRegion::Hot } else { CodeRegion::Reads };
            regions[update.index()] = if is_hot { CodeRegion::Hot } else { CodeRegion::Alone };
            for (kind, own) in
                [(K::Fetch, fetch), (K::Insert, insert), (K::Update, update), (K::Delete, delete), (K::Scan, scan)]
            {
                apart[place(*number, kind)] = Some(own);
                together[place(*number, kind)] = Some(if is_hot { finish } else { own });
            }
            together[place(*number, K::Prefetch)] = Some(announce);
            apart[place(*number, K::Prefetch)] = Some(announce);
        }
        // A transaction that may hold the lock of a hot row never switches at a point.
        let live = self.selection.live(&operations).iter().map(|live| live & !finish.bit()).collect();
        let (together, apart) = (together.into(), apart.into());
        let _ = self.teams.set(Teams { operations, live, begin, finish, kinds, transaction, regions, together, apart });
        Ok(())
    }
}
