//! The storage engine on teams of fibers: its hook, implemented by `sched_steps`.
//!
//! Storage calls [`Hook::point`] where it has just asked for memory or where a stretch of code ends; here that becomes a
//! hop to the next fiber of the team. It calls [`Hook::enter`] where a statement begins, so that fibers that run the same
//! code run it together: with a team per operation, the paper's, the fiber joins the team for that statement; with a team
//! per transaction, whose members are of one kind and go in step anyway, it lets the next one run, which costs a quarter.
//! In the middle of a panic a fiber goes on alone: destructors must not let others run.
//! Where storage must wait ([`Hook::block`]) the fiber leaves its team and the thread goes on with the others. Threads
//! without fibers (loading, checking, the engine's services) wait as threads do.
//!
//! Some rows are hot: every transaction of a warehouse or a district locks them. Where transactions of one warehouse may be
//! under way together, a transaction lets nobody run from the moment it asks for such a row until its end, so that nobody of
//! its team ever waits for one; all that comes after is one operation, `finish`. Where they are kept
//! [apart](StepsHook::keep_apart), these are operations like the others.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sched_steps::fiber::{self, Waker};
use sched_steps::point::{Bitmap, is_live};
use sched_steps::team::{self, OperationId, Operations, TooManyOperations};
use storage::{BlockReason, Hook, Operation, OperationKind, PointKind, PointSite, ThreadHook, WaitToken, points};

use crate::workload::error::Error;
use crate::workload::generate::deck::Kind;
use crate::workload::schema::TableId;
use crate::workload::settings::TeamsOf;
use crate::workload::settings::{CtxPoints, Scheduling};

/// Runs storage on the fibers of whichever thread calls.
#[derive(Debug)]
pub(crate) struct StepsHook {
    threads: ThreadHook,
    chosen: Chosen,
    teams: OnceLock<Teams>,
    /// What its teams do together.
    teams_of: TeamsOf,
    /// Transactions under way together are of different warehouses.
    apart: AtomicBool,
}

/// Which points are to be live.
#[derive(Debug)]
enum Chosen {
    BuiltIn,
    All,
    None,
    Bitmap(Bitmap),
    /// By number of the point: for which operations it is live, a bit each.
    These(Box<[u64]>),
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
    /// A whole transaction of which nobody said what it is.
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

/// The hook for this way of scheduling; none for threads, and for teams of one, which never switch.
pub(crate) fn hook(scheduling: &Scheduling) -> Result<Option<Arc<StepsHook>>, Error> {
    let Scheduling::Steps { team_size, teams_of, points } = scheduling else { return Ok(None) };
    let hook = hook_for(*teams_of, points)?;
    Ok((*team_size > 1).then_some(hook))
}

/// The hook for fibers that switch at these points.
pub(crate) fn hook_for(teams_of: TeamsOf, points: &CtxPoints) -> Result<Arc<StepsHook>, Error> {
    Ok(Arc::new(StepsHook::new(teams_of, Chosen::of(points)?)))
}

/// The hook for fibers that switch at points by their numbers: for which operations each is live, a bit each.
pub(crate) fn hook_at(teams_of: TeamsOf, live: Box<[u64]>) -> Arc<StepsHook> {
    Arc::new(StepsHook::new(teams_of, Chosen::These(live)))
}

impl Chosen {
    fn of(points: &CtxPoints) -> Result<Chosen, Error> {
        Ok(match points {
            CtxPoints::None => Chosen::None,
            CtxPoints::All => Chosen::All,
            CtxPoints::BuiltIn => Chosen::BuiltIn,
            CtxPoints::File(path) => {
                let told = |e| {
                    Error::usage(format!("--ctx-points {e}"))
                        .help("'tpcc footprint --place FILE' writes one for this build; or pass all or none")
                };
                Chosen::Bitmap(Bitmap::load(path).map_err(told)?)
            }
        })
    }

    /// Whether a point is live for some operation.
    fn may_stop_at(&self, site: &'static PointSite) -> bool {
        match self {
            Chosen::None => false,
            Chosen::All => true,
            Chosen::BuiltIn => is_built_in(site),
            Chosen::These(live) => live.get(site.number() as usize).is_some_and(|live| *live != 0),
            Chosen::Bitmap(bitmap) => bitmap.sites.iter().any(|listed| listed.live != 0 && listed.name == site.name()),
        }
    }

    /// By number of the point: for which operations it is live, a bit each.
    fn live(&self, operations: &Operations) -> Box<[u64]> {
        let sites = points().iter();
        match self {
            Chosen::These(live) => live.clone(),
            Chosen::Bitmap(bitmap) => {
                let live = bitmap.live_for(operations);
                let at = |site: &PointSite| bitmap.sites.iter().position(|listed| listed.name == site.name());
                sites.map(|site| at(site).and_then(|at| live.get(at).copied()).unwrap_or(0)).collect()
            }
            Chosen::None | Chosen::All | Chosen::BuiltIn => {
                sites.map(|site| if self.may_stop_at(site) { u64::MAX } else { 0 }).collect()
            }
        }
    }
}

/// Whether a point is live unless something else is asked for: those of group descents. There a stop waits for a dozen
/// lines; in the descent of a single key it waits for one, which is near most of the time, and costs as much.
fn is_built_in(site: &PointSite) -> bool {
    site.kind() == PointKind::Data && site.name().starts_with(GROUPS)
}

/// How the names of the points in group descents begin.
const GROUPS: &str = "btree/group-";

impl StepsHook {
    fn new(teams_of: TeamsOf, chosen: Chosen) -> StepsHook {
        StepsHook {
            threads: ThreadHook::default(),
            chosen,
            teams: OnceLock::new(),
            teams_of,
            apart: AtomicBool::new(false),
        }
    }

    /// Learns which indexes there are: number, table, name.
    ///
    /// # Errors
    /// When they are too many for the operations of an executor.
    pub(crate) fn know(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
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
        // Nobody stops who may hold a hot row.
        let live = self.chosen.live(&operations).iter().map(|live| live & !finish.bit()).collect();
        let (together, apart) = (together.into(), apart.into());
        let _ =
            self.teams.set(Teams { operations, live, begin, finish, kinds, transaction, stretches, together, apart });
        Ok(())
    }

    /// Says whether transactions that are under way together are kept apart: of different warehouses.
    pub(crate) fn keep_apart(&self, apart: bool) {
        self.apart.store(apart, Ordering::Relaxed);
    }

    /// A transaction of this kind is about to begin. Where teams are of whole transactions the fiber joins one.
    #[inline]
    pub(crate) fn begins(&self, kind: Kind) {
        if self.teams_of == TeamsOf::Transaction
            && let Some(teams) = self.teams.get()
        {
            team::begin_operation(teams.kinds[kind as usize]);
        }
    }

    /// Whether a point is live that is not of a group descent.
    pub(crate) fn stops_outside_of_groups(&self) -> bool {
        let is_outside = |site: &PointSite| !site.name().starts_with(GROUPS);
        self.teams
            .get()
            .is_some_and(|teams| points().iter().zip(&teams.live).any(|(s, live)| *live != 0 && is_outside(s)))
    }

    /// The operations of a team's executor; none if there are no teams.
    pub(crate) fn operations(&self) -> Option<Operations> {
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
            // Nobody has said that it begins, or it begins again.
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

impl Hook for StepsHook {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn may_stop_at(&self, site: &'static PointSite) -> bool {
        self.chosen.may_stop_at(site)
    }

    #[inline]
    fn point(&self, site: u32) {
        if let Some(teams) = self.teams.get()
            && is_live(teams.live[site as usize])
            && !std::thread::panicking()
        {
            fiber::hop();
        }
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

    fn task(&self) -> u64 {
        // A fiber's waker is odd, so the numbers of fibers and of threads stay apart.
        fiber::waker().map_or_else(|| storage::thread_number() << 1, |waker| waker.to_bits() as u64)
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        let Some(waker) = fiber::waker() else { return self.threads.block(token, reason) };
        token.scheduler_word.store(waker.to_bits(), Ordering::Release);
        fence(Ordering::SeqCst);
        // Whoever wakes first leaves the wake and then looks at the word, so one of us sees the other.
        while !token.try_consume() {
            fiber::park();
        }
        token.scheduler_word.store(0, Ordering::Relaxed);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        if !fiber::is_fiber() {
            return self.threads.block_for(token, reason, limit);
        }
        let until = Instant::now() + limit;
        let woken = Cell::new(false);
        fiber::block_until(|| {
            woken.set(woken.get() || token.try_consume());
            woken.get() || Instant::now() >= until
        });
        woken.get()
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
        fence(Ordering::SeqCst);
        if let Some(waker) = Waker::from_bits(token.scheduler_word.load(Ordering::Acquire)) {
            waker.wake();
        }
    }
}
