//! The traced program: runs transactions on the calling thread, one after the other, and marks the starts of statements and
//! the context-switch points.

use std::sync::Arc;
use std::time::Duration;

use storage::measure::MeasuredPage;
use storage::{BlockReason, Hook, LatchKind, Operation, Options, ThreadHook, WaitToken};

use super::marks::{Mark, trap};
use super::{holds, lines};
use tpcc_core::driver::terminal::Terminal;
use tpcc_core::driver::{self, Clock, RunPlan};
use tpcc_core::engines::storage::store::Store;
use tpcc_core::workload::database::Database;
use tpcc_core::workload::engine::{Engine, OpenTransaction, Session};
use tpcc_core::workload::error::{Error, command};
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::input::InputSpace;
use tpcc_core::workload::generate::nurand::Constants;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::settings::{Latches, StoreConfig};
use tpcc_core::workload::streams::print;
use tpcc_core::workload::txn::{self, Scratch, Verdict};

/// Hook that emits a mark for each event of storage, and blocks as a thread does.
#[derive(Debug, Default)]
pub struct MarkingHook {
    threads: ThreadHook,
    /// True while marks are emitted. False while the database is opened and during the warm-up.
    marking: std::sync::atomic::AtomicBool,
}

impl MarkingHook {
    fn is_marking(&self) -> bool {
        self.marking.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Hook for MarkingHook {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn point(&self, site: u32) {
        if self.is_marking() {
            trap(Mark::Point, site.into(), 0);
        }
    }

    fn enter(&self, operation: Operation) {
        if self.is_marking() {
            trap(Mark::Enter, operation.kind as u64, operation.index.into());
        }
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        self.threads.block(token, reason);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        self.threads.block_for(token, reason, limit)
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
    }
}

/// Parameters of the traced program.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracedRun {
    /// Minimum number of transactions without marks, before the transactions that are traced.
    pub warm_up: u64,
    /// True if the program tells the record locks of each transaction before its commit ([`holds`]).
    pub holds: bool,
}

/// Lets the parent trace this thread, opens the database and runs transactions until the tracer ends the trace.
pub fn run(config: &StoreConfig, plan: &RunPlan, traced: TracedRun) -> Result<(), Error> {
    allow_tracing()?;
    let hook = Arc::new(MarkingHook::default());
    let (store, loaded) = open(config, Arc::clone(&hook))?;
    let mut places = String::new();
    for (number, table, index) in store.database().indexes() {
        places += &format!("{}\n", super::format_index(number, &table, &index));
    }
    store.database().shared_lines().iter().for_each(|of| places += &format!("{}\n", lines::format_lines(of)));
    print(&places);
    store.preload()?;
    if traced.holds {
        aside(|| Ok(places + &holds::places(store.database())))?;
    }
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("the traced run failed: {e}"));
    let run = driver::next_run(&store).map_err(|e| failed(&e))?;
    let constants = Constants::for_run(&mut Random::stream(plan.seed, u64::MAX), loaded.c_load);
    let world = InputSpace { scale: loaded.scale, warehouses: plan.warehouses, constants };
    let clock = Clock::start();
    let mut terminals: Vec<Terminal> =
        (0..plan.terminals).map(|number| Terminal::new(number, run, plan, &loaded.scale)).collect();
    let mut session = store.session(0).map_err(|e| failed(&e))?;
    let mut scratch = Scratch::default();
    let set_marking = |on| hook.marking.store(on, std::sync::atomic::Ordering::Relaxed);
    // The first transaction of each terminal, at least, runs without marks, as a warm-up of code and data.
    let mut ran = 0_u64;
    let mut enough = false;
    while !enough {
        let (at, count) = ((ran % terminals.len() as u64) as usize, traced.warm_up.max(plan.terminals.into()));
        let input = terminals[at].next(&world, &clock, clock.now_ns());
        if ran >= count {
            if traced.holds {
                // Work of the engine's services is no work of the transaction that would do it next.
                aside(|| store.database().step().map(|_| String::new()).map_err(|e| failed(&e)))?;
            }
            set_marking(true);
            enough = trap(Mark::Transaction, input.kind() as u64, ran);
        }
        let mut transaction = session.begin().map_err(|e| failed(&e))?;
        let verdict = txn::run(&mut transaction, plan.steps, &input, &mut scratch).map_err(|e| failed(&e))?;
        if traced.holds && hook.is_marking() {
            let held = || transaction.inner().held_locks().map_err(|e| failed(&e));
            aside(|| held().map(|held| holds::format_locks(&held)))?;
        }
        let ended = match verdict {
            Verdict::Commit => transaction.commit(),
            Verdict::Rollback => transaction.rollback(),
        };
        ended.map_err(|e| failed(&e))?;
        ran += 1;
    }
    set_marking(false);
    Database::close(store)
}

/// Runs something whose instructions do not belong to the transaction, and passes its text to the tracer.
fn aside(text: impl FnOnce() -> Result<String, Error>) -> Result<(), Error> {
    trap(Mark::Aside, 0, 0);
    let text = text()?;
    trap(Mark::Aside, text.as_ptr().addr() as u64, text.len() as u64);
    Ok(())
}

/// Lets the parent trace this thread and reads one page until the tracer ends the trace. Each read is marked as a
/// transaction.
pub fn read_page(latches: Latches) -> Result<(), Error> {
    allow_tracing()?;
    // The page is in a box because accesses to the stack are not traced.
    let page = Box::new(MeasuredPage::new(kind(latches)));
    page.shared_lines().iter().for_each(|of| print(&format!("{}\n", lines::format_lines(of))));
    let mut reads = 0;
    while !trap(Mark::Transaction, 0, reads) {
        std::hint::black_box(page.read());
        reads += 1;
    }
    Ok(())
}

fn kind(latches: Latches) -> LatchKind {
    match latches {
        Latches::Optimistic => LatchKind::Optimistic,
        Latches::Plain => LatchKind::Plain,
        Latches::Super => LatchKind::Super,
    }
}

/// Opens a loaded database with this hook.
fn open(config: &StoreConfig, hook: Arc<MarkingHook>) -> Result<(Store, Loaded), Error> {
    let shown = config.shown();
    let failed = |e: &dyn std::fmt::Display| {
        let load = command("load", &shown, "");
        Error::failed(e.to_string())
            .help(format!("{load} makes a database; without --data a small one is made and removed again"))
    };
    let options = Options::new()
        .create(false)
        .buffer_pool(config.buffer_pool_mib << 20)
        .durability(storage::Durability::Async)
        .background(storage::Background::Inline)
        .latches(kind(config.latches))
        .hook(hook);
    let db = options.open(&config.data).map_err(|e| failed(&e))?;
    let isolation = storage::Isolation::Serializable;
    let store =
        Store::new(db, isolation, storage::Durability::Async, config.prefetch, true, None).map_err(|e| failed(&e))?;
    let mut reader = store.reader().map_err(|e| failed(&e))?;
    let loaded = Loaded::read(&mut reader).map_err(|e| failed(&e))?;
    drop(reader);
    Ok((store, loaded.ok_or_else(|| failed(&format!("{shown}: incomplete load")))?))
}

/// Lets the parent trace this thread.
fn allow_tracing() -> Result<(), Error> {
    nix::sys::ptrace::traceme().map_err(|e| Error::failed(format!("cannot be traced: {}", e.desc())))?;
    // Stops until the parent continues the program. A parent that does not trace leaves it stopped.
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP)
        .map_err(|e| Error::failed(format!("cannot stop for the tracer: {}", e.desc())))
}
