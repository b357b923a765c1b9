//! What teams do together, as the policy of a [`FiberHook`].
//!
//! Where a statement begins, fibers that run the same code run it together: with a team per operation, the paper's, the
//! fiber joins the team for that statement; with a team per transaction, whose members are of one kind and go in step
//! anyway, it lets the next one run, which costs a quarter.
//!
//! Some rows are hot: every transaction of a warehouse or a district locks them. Where transactions of one warehouse may be
//! under way together, a transaction lets no other run from the moment it asks for such a row until its end, so that no
//! transaction of its team ever waits for one; all that comes after is one operation, `finish`. Where they are kept
//! [apart](TeamPolicy::keep_apart), these are operations like the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use sched_steps::fiber;
use sched_steps::point::is_live;
use sched_steps::team::{self, OperationId, Operations, TooManyOperations};
use storage::{Operation, OperationKind, PointSite, points};

use super::points::{Chosen, GROUPS};
use crate::engines::storage::fiber_hook::{FiberHook, FiberPolicy};
use crate::workload::error::Error;
use crate::workload::generate::deck::Kind;
use crate::workload::schema::TableId;
use crate::workload::settings::{CtxPoints, TeamsOf};

/// Runs storage on teams of fibers.
pub type StepsHook = FiberHook<TeamPolicy>;

/// Which fibers run together, and where they switch.
#[derive(Debug)]
pub struct TeamPolicy {
    chosen: Chosen,
    teams: OnceLock<Teams>,
    /// What its teams do together.
    teams_of: TeamsOf,
    /// Transactions under way together are of different warehouses.
    apart: AtomicBool,
}

/// Which statement belongs to which team.
#[derive(Debug)]
struct Teams {
    operations: Operations,
    /// By number of the point: for which operations it is live, a bit each.
    live: Box<[u64]>,
    begin: OperationId,
    finish: OperationId,
    /// Whole transactions, by kind.
    kinds: [OperationId; KINDS],
    /// A whole transaction whose kind was not said.
    transaction: OperationId,
    /// By operation.
    stretches: [Stretch; u64::BITS as usize],
    /// By number of the index and kind of statement, where transactions of one warehouse may be under way together;
    /// none if the fiber stays in the team it is in.
    together: Box<[Option<OperationId>]>,
    /// The same where they are kept apart.
    apart: Box<[Option<OperationId>]>,
}

/// Places of an index in a table of statements: a power of two, for the kinds of statements.
const PLACES: usize = 16;

const _: () = assert!((OperationKind::Prefetch as usize) < PLACES);

/// What a statement does, as far as the instruction cache is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    /// It reads. All that begins a transaction fits the cache together: its begin, scans, fetches, announcements.
    Reads,
    /// It is about a hot row. Both tables of such rows are changed by the same code.
    Hot,
    /// It is on its own.
    Alone,
}

/// Kinds of transactions.
const KINDS: usize = Kind::ALL.len();

/// The hook for fibers that switch at these points.
pub fn hook_for(teams_of: TeamsOf, points: &CtxPoints) -> Result<Arc<StepsHook>, Error> {
    Ok(Arc::new(FiberHook::new(TeamPolicy::new(teams_of, Chosen::of(points)?))))
}

/// The hook for fibers that switch at points by their numbers: for which operations each is live, a bit each.
pub fn hook_at(teams_of: TeamsOf, live: Box<[u64]>) -> Arc<StepsHook> {
    Arc::new(FiberHook::new(TeamPolicy::new(teams_of, Chosen::These(live))))
}

impl TeamPolicy {
    fn new(teams_of: TeamsOf, chosen: Chosen) -> TeamPolicy {
        TeamPolicy { chosen, teams: OnceLock::new(), teams_of, apart: AtomicBool::new(false) }
    }

    /// Says whether transactions that are under way together are kept apart: of different warehouses.
    pub fn keep_apart(&self, apart: bool) {
        self.apart.store(apart, Ordering::Relaxed);
    }

    /// A transaction of this kind is about to begin. Where teams are of whole transactions the fiber joins one.
    #[inline]
    pub fn begins(&self, kind: Kind) {
        if self.teams_of == TeamsOf::Transaction
            && let Some(teams) = self.teams.get()
        {
            team::begin_operation(teams.kinds[kind as usize]);
        }
    }

    /// Whether a point is live that is not of a group descent.
    pub fn stops_outside_of_groups(&self) -> bool {
        let is_outside = |site: &PointSite| !site.name().starts_with(GROUPS);
        self.teams
            .get()
            .is_some_and(|teams| points().iter().zip(&teams.live).any(|(s, live)| *live != 0 && is_outside(s)))
    }

    /// The operations of a team's executor; none if there are no teams.
    pub fn operations(&self) -> Option<Operations> {
        self.teams.get().map(|teams| teams.operations.clone())
    }
}

/// The place of a kind of statement on an index in a table of statements.
#[inline]
fn place(index: u32, kind: OperationKind) -> usize {
    index as usize * PLACES + kind as usize % PLACES
}

impl Teams {
    /// What a statement is; none if the fiber stays in the team it is in.
    #[inline]
    fn of(&self, operation: Operation, apart: bool) -> Option<OperationId> {
        let table = if apart { &self.apart } else { &self.together };
        table.get(place(operation.index, operation.kind)).copied().flatten()
    }

    /// A statement of a transaction that a team goes through as a whole: the next mate runs first, unless the statement
    /// goes on with the stretch of code that the one before it was in.
    #[inline]
    fn go_on(&self, next: OperationId) {
        let now = team::current_part();
        if next == self.begin {
            // Its begin was not said, or it begins again.
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
        let stretch = self.stretch(next);
        if stretch == Stretch::Alone || stretch != self.stretch(now) {
            let_others_run();
        }
    }

    #[inline]
    fn stretch(&self, operation: OperationId) -> Stretch {
        self.stretches[operation.index() % self.stretches.len()]
    }
}

/// A hop that is called, so that statements which need none save no registers for it.
#[inline(never)]
fn let_others_run() {
    if !std::thread::panicking() {
        fiber::hop();
    }
}

impl FiberPolicy for TeamPolicy {
    fn may_stop_at(&self, site: &'static PointSite) -> bool {
        self.chosen.may_stop_at(site)
    }

    #[inline]
    fn stops_at(&self, site: u32) -> bool {
        self.teams.get().is_some_and(|teams| is_live(teams.live[site as usize]))
    }

    fn enter(&self, operation: Operation) {
        let Some(teams) = self.teams.get() else { return };
        let Some(next) = teams.of(operation, self.apart.load(Ordering::Relaxed)) else { return };
        if self.teams_of == TeamsOf::Transaction {
            return teams.go_on(next);
        }
        let now = team::current_operation();
        // What is left of a transaction that has begun its last operation belongs to that.
        if now == Some(next) || (now == Some(teams.finish) && next != teams.begin) {
            return;
        }
        team::begin_operation(next);
    }

    fn know(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
        if matches!(self.chosen, Chosen::None) {
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
        let mut stretches = [Stretch::Alone; u64::BITS as usize];
        for operation in [begin, announce, scan] {
            stretches[operation.index()] = Stretch::Reads;
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
            stretches[fetch.index()] = if is_hot { Stretch::Hot } else { Stretch::Reads };
            stretches[update.index()] = if is_hot { Stretch::Hot } else { Stretch::Alone };
            for (kind, own) in
                [(K::Fetch, fetch), (K::Insert, insert), (K::Update, update), (K::Delete, delete), (K::Scan, scan)]
            {
                apart[place(*number, kind)] = Some(own);
                together[place(*number, kind)] = Some(if is_hot { finish } else { own });
            }
            together[place(*number, K::Prefetch)] = Some(announce);
            apart[place(*number, K::Prefetch)] = Some(announce);
        }
        // A transaction that may hold a hot row stops nowhere.
        let live = self.chosen.live(&operations).iter().map(|live| live & !finish.bit()).collect();
        let (together, apart) = (together.into(), apart.into());
        let _ =
            self.teams.set(Teams { operations, live, begin, finish, kinds, transaction, stretches, together, apart });
        Ok(())
    }
}
