//! Transactions for the ACID tests of TPC-C clause 3. A test runs them one by one on a disk of its choice and can stop each
//! at a chosen operation.
//!
//! Not part of the public interface: public only for the integration tests.

mod observed_ops;
mod running;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sched_steps::Executor;
use sched_steps::team::Operations;
use storage::disk::Disk;
use storage::{Database, Hook, Isolation, Options};

pub use running::{Figures, Running, Status};

use crate::driver::runner::steps::policy::hook_for;
use crate::driver::{Clock, next_run};
use crate::engines::storage::fiber_hook::StoreHook;
use crate::engines::storage::store::{Store, StoreError};
use crate::workload::check;
use crate::workload::engine::{Engine, OpenTransaction, Session, Ticket};
use crate::workload::generate::Random;
use crate::workload::generate::deck::{Deck, Mix};
use crate::workload::generate::input::{Input, InputSpace};
use crate::workload::generate::nurand::Constants;
use crate::workload::load;
use crate::workload::loaded::Loaded;
use crate::workload::schema::Scale;
use crate::workload::schema::keys::HistoryKey;
use crate::workload::schema::rows::Timestamp;
use crate::workload::settings::SwitchPoints;
use crate::workload::settings::TeamUnit;
use crate::workload::txn::{self, Failure, Scratch, StepOrder, Verdict};

/// A small loaded database: two districts per warehouse, 30 customers and 30 orders per district, nine of the orders
/// undelivered, 100 items. Its size does not conform to TPC-C, but all consistency rules hold.
pub struct TestDatabase {
    store: Store,
    loaded: Loaded,
    /// Operations that statements announce to the fiber executor; `None` unless loaded for fibers.
    operations: Option<Operations>,
}

impl std::fmt::Debug for TestDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestDatabase").finish_non_exhaustive()
    }
}

/// Response to a terminal's New-Order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// Warehouse of the order.
    pub w: u32,
    /// District of the order.
    pub d: u8,
    /// Number of the order.
    pub o: u32,
    /// Number of lines of the order.
    pub lines: usize,
    /// True if the order was committed; false if it was rolled back because it contained an item number that is not in ITEM.
    pub committed: bool,
}

impl TestDatabase {
    /// Loads the database onto an empty disk.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn load(disk: Arc<dyn Disk>, options: Options, warehouses: u32) -> Result<TestDatabase, String> {
        TestDatabase::loaded(TestDatabase::store(disk, options, None)?, warehouses, None)
    }

    /// Loads the database onto an empty disk, for transactions in fibers of one thread that switch at every point.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn load_for_fibers(disk: Arc<dyn Disk>, options: Options, warehouses: u32) -> Result<TestDatabase, String> {
        let hook = hook_for(TeamUnit::Operation, &SwitchPoints::All).map_err(text)?;
        let options = options.hook(Arc::clone(&hook) as Arc<dyn Hook>);
        let store = TestDatabase::store(disk, options, Some(&*hook))?;
        TestDatabase::loaded(store, warehouses, hook.policy().operations())
    }

    fn loaded(store: Store, warehouses: u32, operations: Option<Operations>) -> Result<TestDatabase, String> {
        let plan = load::Population::new(warehouses, Scale::TINY, 1, Timestamp::at(1));
        let _ = load::populate(&plan, &store, 1, &load::RowsDone::default()).map_err(text)?;
        store.finish_load(&plan.loaded()).map_err(text)?;
        Ok(TestDatabase { store, loaded: plan.loaded(), operations })
    }

    /// Opens an existing database, after recovery if needed.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<TestDatabase, String> {
        let store = TestDatabase::store(disk, options.create(false), None)?;
        let loaded = Loaded::read(&mut store.reader().map_err(text)?).map_err(text)?;
        Ok(TestDatabase { store, loaded: loaded.ok_or("incomplete load")?, operations: None })
    }

    /// Opens the engine with serializable isolation. A commit is acknowledged once it is on disk.
    fn store(disk: Arc<dyn Disk>, options: Options, hook: Option<&dyn StoreHook>) -> Result<Store, String> {
        let db = options.open_on(disk).map_err(text)?;
        Store::new(db, Isolation::Serializable, storage::Durability::Sync, true, false, hook).map_err(text)
    }

    /// Creates an executor for transactions in fibers, if the database was loaded for fibers.
    ///
    /// # Errors
    /// Error message of the system.
    pub fn executor(&self) -> Result<Executor, String> {
        let operations = self.operations.clone().ok_or("not loaded for fibers")?;
        crate::engines::storage::fibers::executor(Executor::builder().fibers(4).operations(operations)).map_err(text)
    }

    /// Returns the engine's database.
    pub fn database(&self) -> &Database {
        self.store.database()
    }

    /// Closes the database.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn close(self) -> Result<(), String> {
        self.store.close().map_err(text)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn begin(&self, isolation: Isolation, hot_last: bool) -> Result<Running<'_>, String> {
        let tx = self.store.begin_at(isolation).map_err(text)?;
        Ok(Running::new(tx, if hot_last { StepOrder::HotLast } else { StepOrder::Spec }, self.loaded.scale))
    }

    /// Verifies all pages and checks all rules of the database, including the twelve consistency conditions. Returns one
    /// message per violation.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn broken(&self) -> Result<Vec<String>, String> {
        self.database().verify_pages().map_err(text)?;
        let checked = check::check(&self.store, &self.loaded, 1, &check::WarehousesDone::default()).map_err(text)?;
        let broken = check::rule::Invariant::ALL.into_iter().flat_map(|rule| {
            checked.findings.of(rule).first.iter().map(move |what| format!("{}: {what}", rule.name()))
        });
        Ok(broken.collect())
    }

    /// Allocates the next run number in the database.
    ///
    /// # Errors
    /// Error message of the engine.
    pub fn run_number(&self) -> Result<u32, String> {
        next_run(&self.store).map_err(text)
    }

    /// Runs a terminal with the standard mix, one transaction after the other, until `stop` is set or the engine fails.
    /// Calls `answered` for each New-Order once its response may be sent. Returns the number of finished transactions.
    ///
    /// # Errors
    /// Error message of the engine that ended the terminal.
    pub fn terminal(
        &self,
        run: u32,
        number: u32,
        seed: u64,
        stop: &AtomicBool,
        mut answered: impl FnMut(Answer),
    ) -> Result<u64, String> {
        let (mut random, mut deck) = (Random::stream(seed, u64::from(number)), Deck::new(Mix::Standard));
        let constants = Constants::for_run(&mut Random::stream(seed, u64::MAX), self.loaded.c_load);
        let world = InputSpace { scale: self.loaded.scale, warehouses: self.loaded.warehouses, constants };
        let home = (number % self.loaded.warehouses + 1, (number % u32::from(self.loaded.scale.districts)) as u8 + 1);
        let (clock, mut scratch, mut done) = (Clock::start(), Scratch::default(), 0);
        let mut session = self.store.session(number as usize).map_err(text)?;
        while !stop.load(Ordering::Relaxed) {
            let kind = deck.draw(&mut random);
            let history = HistoryKey { run, terminal: number, sequence: done };
            let input = world.input(&mut random, kind, home, clock.date(clock.now_ns()), history);
            let (verdict, ticket) = loop {
                match attempt(&mut session, &input, &mut scratch) {
                    Err(failure) if failure.abort().is_some() => {}
                    ended => break ended.map_err(text)?,
                }
            };
            session.wait_for(ticket).map_err(text)?;
            done += 1;
            if let Input::NewOrder(input) = &input {
                let out = &scratch.out.new_order;
                let (w, d) = (input.customer.w, input.customer.d);
                let committed = verdict == Verdict::Commit;
                answered(Answer { w, d, o: out.o_id, lines: input.lines.len(), committed });
            }
        }
        Ok(done)
    }
}

fn attempt<S: Session<Error = StoreError>>(
    session: &mut S,
    input: &Input,
    scratch: &mut Scratch,
) -> Result<(Verdict, Ticket), Failure<StoreError>> {
    let mut transaction = session.begin()?;
    let verdict = txn::run(&mut transaction, StepOrder::HotLast, input, scratch)?;
    let ticket = match verdict {
        Verdict::Commit => transaction.commit()?,
        Verdict::Rollback => transaction.rollback()?,
    };
    Ok((verdict, ticket))
}

/// Converts an error to its message.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
