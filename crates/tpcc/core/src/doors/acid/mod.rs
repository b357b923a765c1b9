//! The transactions as the ACID tests of clause 3 need them: one by one, held at a named point, on any disk.
//!
//! Not a part of the public interface: it is public for the integration tests only.

mod running;
mod watched;

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
use crate::workload::schema::rows::When;
use crate::workload::settings::CtxPoints;
use crate::workload::settings::TeamsOf;
use crate::workload::txn::{self, Failure, Scratch, StepOrder, Verdict};

/// A small loaded database: two districts a warehouse, 30 customers and orders in each, nine of these undelivered,
/// 100 items. Not TPC-C at all, but all its rules hold.
pub struct Shop {
    store: Store,
    loaded: Loaded,
    /// What its fibers do together, if it was loaded for them.
    operations: Option<Operations>,
}

impl std::fmt::Debug for Shop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shop").finish_non_exhaustive()
    }
}

/// What a terminal has been told: an order, and whether it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// Its warehouse.
    pub w: u32,
    /// Its district.
    pub d: u8,
    /// Its number.
    pub o: u32,
    /// Its lines.
    pub lines: usize,
    /// It was committed; otherwise it held an unused item and was rolled back.
    pub committed: bool,
}

impl Shop {
    /// Fills an empty disk.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn load(disk: Arc<dyn Disk>, options: Options, warehouses: u32) -> Result<Shop, String> {
        Shop::loaded(Shop::store(disk, options, None)?, warehouses, None)
    }

    /// Fills an empty disk, for transactions that are fibers of a thread and switch at every point.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn load_for_fibers(disk: Arc<dyn Disk>, options: Options, warehouses: u32) -> Result<Shop, String> {
        let hook = hook_for(TeamsOf::Operation, &CtxPoints::All).map_err(text)?;
        let options = options.hook(Arc::clone(&hook) as Arc<dyn Hook>);
        let store = Shop::store(disk, options, Some(&*hook))?;
        Shop::loaded(store, warehouses, hook.policy().operations())
    }

    fn loaded(store: Store, warehouses: u32, operations: Option<Operations>) -> Result<Shop, String> {
        let plan = load::Population::new(warehouses, Scale::TINY, 1, When::at(1));
        let _ = load::populate(&plan, &store, 1, &load::RowsDone::default()).map_err(text)?;
        store.finish_load(&plan.loaded()).map_err(text)?;
        Ok(Shop { store, loaded: plan.loaded(), operations })
    }

    /// Opens what is there, after recovery if needed.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Shop, String> {
        let store = Shop::store(disk, options.create(false), None)?;
        let loaded = Loaded::read(&mut store.reader().map_err(text)?).map_err(text)?;
        Ok(Shop { store, loaded: loaded.ok_or("incomplete load")?, operations: None })
    }

    /// The engine at its default level, acknowledging what is on disk.
    fn store(disk: Arc<dyn Disk>, options: Options, hook: Option<&dyn StoreHook>) -> Result<Store, String> {
        let db = options.open_on(disk).map_err(text)?;
        Store::new(db, Isolation::Serializable, storage::Durability::Sync, true, false, hook).map_err(text)
    }

    /// Runs transactions as fibers, if it was loaded for them.
    ///
    /// # Errors
    /// That of the system, in words.
    pub fn executor(&self) -> Result<Executor, String> {
        let operations = self.operations.clone().ok_or("not loaded for fibers")?;
        crate::engines::storage::fibers::executor(Executor::builder().fibers(4).operations(operations)).map_err(text)
    }

    /// The database below.
    pub fn database(&self) -> &Database {
        self.store.database()
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn close(self) -> Result<(), String> {
        self.store.close().map_err(text)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn begin(&self, isolation: Isolation, hot_last: bool) -> Result<Running<'_>, String> {
        let tx = self.store.begin_at(isolation).map_err(text)?;
        Ok(Running::new(tx, if hot_last { StepOrder::HotLast } else { StepOrder::Spec }, self.loaded.scale))
    }

    /// What breaks a rule of the database, the twelve conditions among them: nothing, if all is well.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn broken(&self) -> Result<Vec<String>, String> {
        self.database().verify_pages().map_err(text)?;
        let checked = check::check(&self.store, &self.loaded, 1, &check::WarehousesDone::default()).map_err(text)?;
        let broken = check::rule::Invariant::ALL.into_iter().flat_map(|rule| {
            checked.findings.of(rule).first.iter().map(move |what| format!("{}: {what}", rule.name()))
        });
        Ok(broken.collect())
    }

    /// Takes the number of a run of terminals from the database.
    ///
    /// # Errors
    /// Those of the engine, in words.
    pub fn run_number(&self) -> Result<u32, String> {
        next_run(&self.store).map_err(text)
    }

    /// A terminal that runs the mix, one transaction after the other, until `stop` is set or the engine fails. A
    /// New-Order is told to `answered` when its answer may leave.
    ///
    /// # Errors
    /// That of the engine that ended it, in words.
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

/// An error in words.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
