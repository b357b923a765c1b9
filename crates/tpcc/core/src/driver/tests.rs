//! Tests of the driver on a wrapper of the floor engine that delays responses and aborts transactions.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Mutex;

use super::runner::steps::StepsRunner;
use super::runner::threads::ThreadsRunner;
use super::*;
use crate::engines::floor::{Floor, FloorError, FloorReader, FloorSession, FloorTransaction, LoadingMaps};
use crate::workload::abort::{Abort, AbortCause, EngineError};
use crate::workload::check;
use crate::workload::engine::Ticket;
use crate::workload::load;
use crate::workload::ops::{Direction, Read};
use crate::workload::schema::keys::HistoryKey;
use crate::workload::schema::tables::History;
use crate::workload::schema::{IndexDef, RowOf, Scale, TableDef, TableId};

/// Engine whose commits become durable `lag` tickets late, and whose every `victim_every`-th commit aborts.
pub(super) struct LaggingEngine {
    floor: Floor,
    lag: u64,
    victim_every: u64,
    /// Tickets for whose durability the driver has waited.
    waits: Mutex<Vec<u64>>,
    /// Ticket whose commit fails permanently.
    fails_at: u64,
    /// True to panic at the ticket `fails_at` instead of failing.
    panics: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LaggingError {
    #[error("floor: {0}")]
    Floor(#[from] FloorError),
    #[error("chosen as a victim")]
    Victim,
    #[error("log: no space left; free some")]
    Full,
}

impl EngineError for LaggingError {
    fn abort(&self) -> Option<Abort> {
        matches!(self, LaggingError::Victim)
            .then_some(Abort { cause: AbortCause::Deadlock, table: Some(TableId::Stock) })
    }
}

pub(super) struct LaggingSession<'a> {
    floor: FloorSession<'a>,
    engine: &'a LaggingEngine,
    tickets: u64,
    durable: u64,
    tries: u64,
}

pub(super) struct LaggingTransaction<'t> {
    floor: FloorTransaction<'t>,
    engine: &'t LaggingEngine,
    tickets: &'t mut u64,
    tries: &'t mut u64,
}

impl Engine for LaggingEngine {
    type Error = LaggingError;
    type Session<'a> = LaggingSession<'a>;
    type Reader<'a> = LaggingReader<'a>;

    fn session(&self, worker: usize) -> Result<LaggingSession<'_>, LaggingError> {
        Ok(LaggingSession { floor: self.floor.session(worker)?, engine: self, tickets: 0, durable: 0, tries: 0 })
    }

    fn reader(&self) -> Result<LaggingReader<'_>, LaggingError> {
        Ok(LaggingReader(self.floor.reader()?))
    }

    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}

impl<'a> Session for LaggingSession<'a> {
    type Error = LaggingError;
    type Transaction<'t>
        = LaggingTransaction<'t>
    where
        Self: 't;

    fn begin(&mut self) -> Result<LaggingTransaction<'_>, LaggingError> {
        Ok(LaggingTransaction {
            floor: self.floor.begin()?,
            engine: self.engine,
            tickets: &mut self.tickets,
            tries: &mut self.tries,
        })
    }

    fn begin_again(&mut self) -> Result<LaggingTransaction<'_>, LaggingError> {
        self.begin()
    }

    fn durable(&mut self) -> Ticket {
        self.durable = self.durable.max(self.tickets.saturating_sub(self.engine.lag));
        Ticket(self.durable)
    }

    fn request(&mut self, _ticket: Ticket) {}

    fn wait_for(&mut self, ticket: Ticket) -> Result<Ticket, LaggingError> {
        assert!(ticket.0 <= self.tickets, "waits for a ticket that was never given");
        self.engine.waits.lock().unwrap().push(ticket.0);
        self.durable = self.durable.max(ticket.0);
        Ok(Ticket(self.durable))
    }
}

impl OpenTransaction for LaggingTransaction<'_> {
    fn commit(self) -> Result<Ticket, LaggingError> {
        *self.tries += 1;
        if self.tries.is_multiple_of(self.engine.victim_every) {
            return Err(LaggingError::Victim);
        }
        *self.tickets += 1;
        if *self.tickets == self.engine.fails_at {
            assert!(!self.engine.panics, "the engine is broken");
            return Err(LaggingError::Full);
        }
        self.floor.commit()?;
        Ok(Ticket(*self.tickets))
    }

    fn rollback(self) -> Result<Ticket, LaggingError> {
        self.floor.rollback()?;
        Ok(Ticket(*self.tickets))
    }
}

pub(super) struct LaggingReader<'a>(FloorReader<'a>);

macro_rules! reads {
    ($($reader:ty, $inner:tt;)*) => {$(
        impl Read for $reader {
            type Error = LaggingError;
            fn read<T: TableDef, R>(
                &mut self,
                key: &T::Key,
                f: impl FnMut(&RowOf<T>) -> R,
            ) -> Result<Option<R>, LaggingError> {
                Ok(self.$inner.read::<T, R>(key, f)?)
            }
            fn scan<T: TableDef>(
                &mut self,
                from: &T::Key,
                to: &T::Key,
                f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
            ) -> Result<(), LaggingError> {
                Ok(self.$inner.scan::<T>(from, to, f)?)
            }
            fn scan_index<I: IndexDef>(
                &mut self,
                from: &I::Key,
                to: &I::Key,
                direction: Direction,
                f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
            ) -> Result<(), LaggingError> {
                Ok(self.$inner.scan_index::<I>(from, to, direction, f)?)
            }
        }
    )*};
}
reads! {
    LaggingReader<'_>, 0;
    LaggingTransaction<'_>, floor;
}

impl Ops for LaggingTransaction<'_> {
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, LaggingError> {
        Ok(self.floor.update::<T, R>(key, f)?)
    }
    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, LaggingError> {
        Ok(self.floor.rewrite::<T, R>(key, f)?)
    }
    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, LaggingError> {
        Ok(self.floor.update_run::<T>(from, to, f)?)
    }
    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), LaggingError> {
        Ok(self.floor.insert::<T>(key, row)?)
    }
    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), LaggingError> {
        Ok(self.floor.insert_run::<T>(rows)?)
    }
    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, LaggingError> {
        Ok(self.floor.remove_first::<T>(from, to)?)
    }
    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]) {
        self.floor.prefetch::<T>(keys);
    }
}

pub(super) fn lagging_engine(lag: u64, victim_every: u64, fails_at: u64) -> (LaggingEngine, Loaded) {
    let plan = load::Population::new(2, Scale::TINY, 1, Timestamp::at(1));
    let maps = LoadingMaps::default();
    let _ = load::populate(&plan, &maps, 1, &load::RowsDone::default()).unwrap();
    let floor = Floor::new(maps, &plan.loaded());
    (LaggingEngine { floor, lag, victim_every, waits: Mutex::default(), fails_at, panics: false }, plan.loaded())
}

pub(super) fn plan(terminals: u32, length: Length) -> RunPlan {
    RunPlan {
        warehouses: 2,
        workers: 1,
        terminals,
        mix: Mix::Standard,
        steps: StepOrder::HotLast,
        admission: crate::workload::settings::Admission::Fifo,
        placement: itas::Placement::Packed,
        pin: false,
        counters: false,
        clock: crate::workload::settings::ClockKind::Real,
        length,
        seed: 3,
    }
}

/// Creates a plan with ten terminals per warehouse.
pub(super) fn paced_plan(warehouses: u32, workers: usize) -> RunPlan {
    let length =
        Length { warmup: Duration::from_millis(300), duration: Some(Duration::from_millis(2_000)), transactions: None };
    RunPlan { warehouses, workers, ..plan(10 * warehouses, length) }
}

/// Tests teams on an engine without fiber support, on which fibers switch only between transactions. Each session of the
/// test engine counts its own tickets, so only an engine without lag can serve several sessions.
#[test]
fn a_team_counts_each_transaction_once() {
    let (fifo, batched) = (Admission::Fifo, Admission::Batched);
    for (terminals, team_size, admission) in [(4, 4, batched), (8, 3, fifo), (16, 16, batched), (16, 16, fifo)] {
        let (engine, loaded) = lagging_engine(0, 7, u64::MAX);
        let plan = RunPlan { admission, ..plan(terminals, count(2_000)) };
        let measured = run(&engine, &StepsRunner::without_hook(team_size), &loaded, &plan, None, |_| {}).unwrap();
        assert_eq!(measured.stats.completed(), 2_000);
        assert_eq!(measured.teams.len(), 1);
        let checked = check::check(&engine, &loaded, 1, &check::WarehousesDone::default()).unwrap();
        assert!(checked.passed(), "{:?}", checked.findings);
    }
    let (engine, loaded) = lagging_engine(0, 5, 300);
    let plan = RunPlan { admission: batched, ..plan(8, count(1_000)) };
    keeps_its_figures(run(&engine, &StepsRunner::without_hook(4), &loaded, &plan, None, |_| {}).unwrap());
}

/// A transaction that panics ends the run for all fibers, including fibers that wait for this transaction.
#[test]
fn a_panic_in_a_team_ends_the_run_with_its_message() {
    for admission in [Admission::Fifo, Admission::Batched] {
        let (engine, loaded) = lagging_engine(0, 5, 300);
        let engine = LaggingEngine { panics: true, ..engine };
        let length =
            Length { warmup: Duration::from_millis(20), duration: Some(Duration::from_secs(5)), transactions: None };
        let plan = RunPlan { admission, ..plan(8, length) };
        let failure =
            run(&engine, &StepsRunner::without_hook(4), &loaded, &plan, None, |_| {}).unwrap().failure.unwrap();
        assert!(failure.contains("panicked: the engine is broken"), "{failure}");
    }
}

fn count(transactions: u64) -> Length {
    Length { warmup: Duration::ZERO, duration: None, transactions: Some(transactions) }
}

#[test]
fn late_answers_and_victims_are_counted_once() {
    for (lag, terminals) in [(0, 4), (3, 8), (50, 8), (8, 8), (7, 1)] {
        let (engine, loaded) = lagging_engine(lag, 7, u64::MAX);
        let measured = run(&engine, &ThreadsRunner, &loaded, &plan(terminals, count(2_000)), None, |_| {}).unwrap();
        let stats = &measured.stats;
        assert_eq!(stats.completed(), 2_000, "lag {lag}");
        assert_eq!(stats.aborts_in_all(), (stats.completed() - stats.rolled_back() - 1) / 6, "lag {lag}");
        assert!(
            stats.aborts().all(|(cause, table, _)| { cause == AbortCause::Deadlock && table == Some(TableId::Stock) })
        );
        let ran = stats.kinds.iter().map(|kind| kind.counters.count).collect::<Vec<_>>();
        assert!((890..=910).contains(&ran[0]) && (850..=870).contains(&ran[1]), "{ran:?}");
        assert!(stats.drawn.new_orders == ran[0] && stats.drawn.payments == ran[1]);
        // A worker runs one transaction at a time, and waits for durability do not count as run time. The total run time is
        // therefore bounded by the duration of the run.
        let run_s = stats.kinds.iter().map(|kind| kind.counters.run_ns).sum::<u64>() as f64 / 1e9;
        assert!(run_s > 0.0 && run_s <= stats.seconds(), "{run_s} s of {} s", stats.seconds());
        let checked = check::check(&engine, &loaded, 1, &check::WarehousesDone::default()).unwrap();
        assert!(checked.passed(), "{:?}", checked.findings);
        // The worker waits only if all its terminals wait.
        let waits = engine.waits.lock().unwrap().len();
        match lag {
            0 => assert_eq!(waits, 1, "only the run's own number was waited for"),
            3 => assert!(waits <= 3, "{waits}"),
            50 => assert!(waits >= 200, "{waits}"),
            _ => {}
        }
    }
}

/// Batched admission also applies to a worker that runs one transaction at a time.
#[test]
fn batches_are_of_one_kind_and_arrivals_are_not() {
    let kinds_of = |admission| {
        let (engine, loaded) = lagging_engine(0, u64::MAX, u64::MAX);
        // The number of terminals is so large that each kind is requested at least `BATCH` times.
        let plan = RunPlan { admission, ..plan(500, count(BATCH as u64)) };
        let measured = run(&engine, &ThreadsRunner, &loaded, &plan, None, |_| {}).unwrap();
        let counts = measured.stats.kinds.iter().map(|kind| kind.counters.count).filter(|count| *count > 0);
        counts.collect::<Vec<_>>()
    };
    assert_eq!(kinds_of(Admission::Batched), [BATCH as u64]);
    let arrived = kinds_of(Admission::Fifo);
    assert!(arrived.len() > 1 && arrived.iter().sum::<u64>() == BATCH as u64, "{arrived:?}");
}

/// An aborted transaction is retried with the same input, including its HISTORY key.
#[test]
fn every_payment_has_its_own_row() {
    let (engine, loaded) = lagging_engine(2, 3, u64::MAX);
    let measured =
        run(&engine, &ThreadsRunner, &loaded, &RunPlan { mix: Mix::Payment, ..plan(4, count(1_000)) }, None, |_| {})
            .unwrap();
    assert_eq!(measured.stats.completed(), 1_000);
    let mut keys = HashSet::new();
    let from = HistoryKey { run: 1, terminal: 0, sequence: 0 };
    let to = HistoryKey { run: u32::MAX, terminal: u32::MAX, sequence: u64::MAX };
    let mut reader = engine.reader().unwrap();
    reader
        .scan::<History>(&from, &to, |key, _| {
            keys.insert((key.run, key.terminal, key.sequence));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(keys.len(), 1_000);
    // The sequence numbers of each terminal have no gaps: no retry drew a new number.
    for terminal in 0..4 {
        let mut of: Vec<u64> = keys.iter().filter(|k| k.1 == terminal).map(|k| k.2).collect();
        of.sort_unstable();
        assert!(of.iter().copied().eq(1..=of.len() as u64), "terminal {terminal}: {of:?}");
    }
}

#[test]
fn a_failure_ends_the_run_with_its_message() {
    let (engine, loaded) = lagging_engine(2, 5, 300);
    keeps_its_figures(run(&engine, &ThreadsRunner, &loaded, &plan(4, count(1_000)), None, |_| {}).unwrap());
}

/// Checks a run whose engine failed at ticket 300, of 1,000 transactions: only responses before the failure count.
fn keeps_its_figures(measured: RunResult) {
    assert_eq!(measured.failure.as_deref(), Some("log: no space left; free some"));
    let stats = &measured.stats;
    assert!((150..=300).contains(&stats.completed()), "{}", stats.completed());
    assert!(measured.seconds > 0.0 && !measured.interrupted);
    for kind in &stats.kinds {
        assert!(kind.counters.rolled_back <= kind.counters.count);
    }
}

#[test]
fn warm_up_is_not_counted() {
    let (engine, loaded) = lagging_engine(2, 1_000, u64::MAX);
    let length = Length { warmup: Duration::from_millis(50), duration: None, transactions: Some(100) };
    let measured = run(&engine, &ThreadsRunner, &loaded, &plan(4, length), None, |_| {}).unwrap();
    assert_eq!(measured.stats.completed(), 100);
    assert_eq!(measured.stats.drawn.new_orders, measured.stats.kinds[0].counters.count);
}

#[test]
fn time_limits_hold() {
    let (engine, loaded) = lagging_engine(2, 1_000, u64::MAX);
    let length =
        Length { warmup: Duration::from_millis(20), duration: Some(Duration::from_millis(80)), transactions: None };
    let measured = run(&engine, &ThreadsRunner, &loaded, &plan(4, length), None, |_| {}).unwrap();
    assert!((0.05..1.0).contains(&measured.seconds), "{}", measured.seconds);
    assert!(measured.stats.completed() > 0 && !measured.interrupted);
}

#[test]
fn transactions_are_divided_among_busy_workers() {
    let plan = RunPlan { workers: 4, warehouses: 3, ..plan(3, count(10)) };
    let mut terminals: Vec<Vec<Terminal>> = (0..4).map(|_| Vec::new()).collect();
    for number in 0..3 {
        let terminal = Terminal::new(number, 1, &plan, &Scale::FULL);
        terminals[terminal.worker(&plan)].push(terminal);
    }
    let quotas = quotas(Some(10), &terminals);
    assert_eq!(quotas.iter().flatten().sum::<u64>(), 10);
    for (quota, terminals) in quotas.iter().zip(&terminals) {
        assert_eq!(quota == &Some(0), terminals.is_empty());
    }
}
