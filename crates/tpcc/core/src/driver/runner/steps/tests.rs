//! Tests of teams on the storage engine, with databases so small that conflicts are frequent.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use sched_steps::Executor;
use sched_steps::team::Membership;
use storage::disk::{Disk, MemDisk};
use storage::{Durability, Hook, Isolation, LatchKind, Operation, OperationKind, Options, TxnError};

use super::StepsRunner;
use super::policy::hook_for;
use crate::driver::{self, RunPlan, RunResult};
use crate::engines::storage::fiber_hook::{FiberPolicy, StoreHook};
use crate::engines::storage::fibers;
use crate::engines::storage::store::Store;
use crate::workload::check;
use crate::workload::generate::deck::{Kind, Mix};
use crate::workload::load;
use crate::workload::loaded::Loaded;
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::{Scale, TableId};
use crate::workload::settings::{Admission, ClockKind, Length, Scheduling, SwitchPoints, TeamUnit};
use crate::workload::txn::StepOrder;

#[derive(Clone)]
struct How {
    warehouses: u32,
    workers: usize,
    terminals: u32,
    team_size: usize,
    teams_of: TeamUnit,
    points: SwitchPoints,
    durability: Durability,
    latches: LatchKind,
    prefetch: bool,
    order: StepOrder,
    mix: Mix,
    /// Admission order; `None` for the default.
    admission: Option<Admission>,
}

const HOW: How = How {
    warehouses: 1,
    workers: 1,
    terminals: 12,
    team_size: 8,
    teams_of: TeamUnit::Transaction,
    points: SwitchPoints::BuiltIn,
    durability: Durability::Async,
    latches: LatchKind::Optimistic,
    prefetch: true,
    order: StepOrder::HotLast,
    mix: Mix::Standard,
    admission: None,
};

fn scheduling(how: &How) -> Scheduling {
    Scheduling::Steps { team_size: how.team_size, teams_of: how.teams_of, points: how.points.clone() }
}

fn runner(how: &How) -> StepsRunner {
    StepsRunner::new(how.team_size, how.teams_of, &how.points).unwrap()
}

fn open(how: &How, runner: &StepsRunner) -> (Store, Loaded) {
    let hook = runner.hook();
    let options = match &hook {
        Some(hook) => Options::new().hook(Arc::clone(hook) as Arc<dyn Hook>),
        None => Options::new(),
    };
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let db = options.buffer_pool(32 << 20).durability(how.durability).latches(how.latches).open_on(disk).unwrap();
    let store = Store::new(
        db,
        Isolation::Serializable,
        how.durability,
        how.prefetch,
        false,
        hook.as_deref().map(|hook| hook as &dyn StoreHook),
    )
    .unwrap();
    let plan = load::Population::new(how.warehouses, Scale::TINY, 1, Timestamp::at(1));
    let _ = load::populate(&plan, &store, 1, &load::RowsDone::default()).unwrap();
    store.finish_load(&plan.loaded()).unwrap();
    (store, plan.loaded())
}

/// Runs transactions and asserts that the twelve consistency conditions hold.
fn run(how: &How, transactions: u64) -> RunResult {
    let runner = runner(how);
    let (store, loaded) = open(how, &runner);
    let plan = RunPlan {
        warehouses: how.warehouses,
        workers: how.workers,
        terminals: how.terminals,
        mix: how.mix,
        steps: how.order,
        admission: how.admission.unwrap_or(Admission::default_for(how.team_size, scheduling(how).teams_of())),
        placement: itas::Placement::Packed,
        pin: false,
        counters: false,
        length: Length { warmup: Duration::ZERO, duration: None, transactions: Some(transactions) },
        clock: ClockKind::Real,
        seed: 11,
    };
    let measured = driver::run(&store, &runner, &loaded, &plan, None, |_| {}).unwrap();
    assert_eq!(measured.stats.completed(), transactions);
    let checked = check::check(&store, &loaded, 1, &check::WarehousesDone::default()).unwrap();
    assert!(checked.passed(), "{:?}", checked.findings);
    store.close().unwrap();
    measured
}

#[test]
fn conditions_hold_after_teams() {
    for (teams_of, operation) in [(TeamUnit::Operation, "begin"), (TeamUnit::Transaction, "payment")] {
        let how = How { teams_of, ..HOW };
        let measured = run(&how, 4_000);
        assert_eq!(measured.teams.len(), 1);
        let teams = &measured.teams[0];
        let of = teams.operations.iter().find(|of| of.name == operation).unwrap();
        assert!(of.begun >= 1_500 && of.mean_in > 2.0, "{of:?}");
        assert!(teams.mean_team > 2.0, "{teams:?}");
        run(&How { points: SwitchPoints::All, ..how.clone() }, 3_000);
        run(&How { points: SwitchPoints::None, ..how.clone() }, 3_000);
        run(&How { latches: LatchKind::Plain, points: SwitchPoints::All, ..how.clone() }, 3_000);
        run(&How { prefetch: false, points: SwitchPoints::All, ..how.clone() }, 3_000);
        run(&How { warehouses: 3, terminals: 30, team_size: 16, ..how.clone() }, 3_000);
        run(&How { mix: Mix::Payment, ..how.clone() }, 3_000);
        run(&How { admission: Some(Admission::Fifo), ..how }, 3_000);
    }
}

/// Returns the order in which two transactions of one team execute their statements, as statement numbers.
fn turns(statements: &[(OperationKind, u32)], keep_apart: bool) -> Vec<usize> {
    let hook = hook_for(TeamUnit::Transaction, &SwitchPoints::BuiltIn).unwrap();
    let name = |table: TableId| table.name().to_owned();
    let indexes = [TableId::Warehouse, TableId::Stock, TableId::Item];
    // Index numbers start at 1.
    let numbered = (1..).zip(indexes).map(|(number, table)| (number, name(table), name(table)));
    hook.policy().set_indexes(&numbered.collect::<Vec<_>>()).unwrap();
    hook.policy().keep_apart(keep_apart);
    let order = RefCell::new(Vec::new());
    let builder = Executor::builder().fibers(2).operations(hook.policy().operations().unwrap());
    let mut executor = fibers::executor(builder.membership(Membership::PerOperation)).unwrap();
    executor
        .scope(|scope| {
            for _ in 0..2 {
                let (hook, order) = (&hook, &order);
                scope.spawn(move || {
                    hook.policy().begins(Kind::Payment);
                    for (number, (kind, index)) in statements.iter().enumerate() {
                        hook.enter(Operation { kind: *kind, index: *index });
                        order.borrow_mut().push(number);
                    }
                });
            }
        })
        .unwrap();
    order.into_inner()
}

#[test]
fn a_team_goes_through_a_stretch_of_code_at_a_time() {
    use OperationKind as K;
    let (warehouse, stock, item) = (1, 2, 3);
    let statements = [
        (K::Begin, 0),
        (K::Fetch, stock),
        (K::Fetch, item),
        (K::Update, stock),
        (K::Insert, item),
        (K::Fetch, warehouse),
        (K::Update, warehouse),
        (K::Commit, 0),
    ];
    assert_eq!(turns(&statements, true), [0, 1, 2, 0, 1, 2, 3, 3, 4, 4, 5, 6, 5, 6, 7, 7]);
    // If transactions of a team may conflict at a hot row, a transaction keeps the CPU from its first access to a hot row to
    // its end.
    assert_eq!(turns(&statements, false), [0, 1, 2, 0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 5, 6, 7]);
}

/// A prefetch of rows of several tables has no index number, but belongs to the code region of reads.
#[test]
fn announcements_belong_to_what_is_read_after_them() {
    use OperationKind as K;
    let stock = 2;
    let statements = [(K::Begin, 0), (K::Update, stock), (K::Prefetch, 0), (K::Fetch, stock)];
    assert_eq!(turns(&statements, true), [0, 0, 1, 1, 2, 3, 2, 3]);
}

/// With enough warehouses, no transaction of a team waits for another transaction of the team, because they are of different
/// warehouses.
#[test]
fn those_of_a_team_are_kept_apart() {
    for teams_of in [TeamUnit::Operation, TeamUnit::Transaction] {
        let how = How { warehouses: 8, terminals: 40, teams_of, mix: Mix::Payment, ..HOW };
        let measured = run(&how, 3_000);
        let (waits, begun) = (measured.teams[0].operations.iter())
            .fold((0, 0), |(waits, begun), operation| (waits + operation.strays, begun + operation.begun));
        assert!(begun >= 3_000, "{begun}");
        assert!(waits < 100, "{waits} strays");
        run(&How { points: SwitchPoints::All, mix: Mix::Standard, ..how.clone() }, 3_000);
        run(&How { workers: 2, warehouses: 16, terminals: 64, mix: Mix::Standard, ..how }, 3_000);
    }
}

/// Two workers on one warehouse: a transaction that waits for a row is woken by the other thread.
#[test]
fn workers_wake_each_other() {
    for points in [SwitchPoints::BuiltIn, SwitchPoints::All] {
        run(&How { workers: 2, terminals: 16, team_size: 4, points, ..HOW }, 4_000);
    }
    run(&How { workers: 2, warehouses: 2, terminals: 20, ..HOW }, 4_000);
}

/// In the step order of the specification, hot rows are accessed first, so nearly all transactions wait, and some waits are
/// deadlocks.
#[test]
fn those_who_wait_and_victims_get_through() {
    let measured =
        run(&How { order: StepOrder::Spec, points: SwitchPoints::All, workers: 2, terminals: 16, ..HOW }, 2_000);
    assert_eq!(measured.stats.completed(), 2_000);
    run(&How { order: StepOrder::Spec, durability: Durability::Sync, ..HOW }, 1_000);
}

#[test]
fn answers_wait_for_the_log() {
    run(&How { durability: Durability::Sync, ..HOW }, 2_000);
    run(&How { durability: Durability::Sync, workers: 2, warehouses: 2, terminals: 40, ..HOW }, 2_000);
}

#[test]
fn a_team_of_one_is_no_team() {
    let measured = run(&How { team_size: 1, ..HOW }, 2_000);
    assert!(measured.teams.is_empty());
}

/// A fiber can wait for another fiber of its thread. A wait of a fiber for itself is an error. A lock timeout applies to
/// fibers as it applies to threads.
#[test]
fn a_fiber_never_waits_for_its_own_transactions() {
    const ROWS: storage::Table<u64, u64> = storage::Table::new("rows");
    for limit in [None, Some(Duration::from_millis(2))] {
        let hook = runner(&HOW).hook().unwrap();
        let options = Options::new().hook(hook as Arc<dyn Hook>).buffer_pool(8 << 20);
        let options = limit.into_iter().fold(options, Options::lock_timeout);
        let db = &options.open_on(Arc::new(MemDisk::new())).unwrap();
        db.transact(|tx| tx.put(&ROWS, &1, &0)).unwrap();
        let waits = db.stats().lock_waits;
        let mut executor = fibers::executor(Executor::builder().fibers(2)).unwrap();
        let ends = executor.scope(|scope| {
            let holder = scope.spawn(move || {
                let mut first = db.begin().unwrap();
                first.put(&ROWS, &1, &1).unwrap();
                let second = db.begin().unwrap();
                assert!(matches!(second.get(&ROWS, &1), Err(TxnError::OwnTask { .. })));
                // Waits until the other fiber waits; with a lock timeout, until that fiber has timed out.
                let begun = waits + 2;
                sched_steps::fiber::block_until(|| db.stats().lock_waits >= begun);
                if limit.is_none() {
                    first.commit().unwrap();
                } else {
                    sched_steps::fiber::block_until(|| db.table_names().len() > 1);
                    first.rollback().unwrap();
                }
            });
            let waiter = scope.spawn(move || {
                let tx = db.begin().unwrap();
                match (tx.get(&ROWS, &1), limit) {
                    (Ok(Some(1)), None) => {}
                    (Err(TxnError::LockTimeout { holder: Some(holder), .. }), Some(_)) => assert!(holder.task & 1 == 1),
                    other => panic!("{other:?}"),
                }
                db.table(&storage::Table::<u64, u64>::new("given up")).unwrap();
            });
            [holder.join(), waiter.join()]
        });
        ends.unwrap().into_iter().for_each(|end| end.unwrap());
    }
}
