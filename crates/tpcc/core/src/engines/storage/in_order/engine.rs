//! Engine whose sessions run the loops of transactions on several threads.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use parking_lot::Mutex;

use super::session_governor::SessionGovernor;
use super::{LoopSelector, TransactionLoop, run};
use crate::engines::storage::store::{Store, StoreError, StoreSession, StoreTransaction};
use crate::workload::counters::{Counters, LeafCounters, SpeculationCounters};
use crate::workload::engine::{Engine, EngineFigures, OpenTransaction, Session, Ticket};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::Input;
use crate::workload::ops::{Direction, Ops, Read};
use crate::workload::schema::{IndexDef, RowOf, TableDef};
use crate::workload::settings::Speculate;
use crate::workload::txn::long_order::LongOrderOutput;
use crate::workload::txn::{self, Scratch, StepOrder, TxnResult};

/// A [`Store`] whose sessions run the loops of transactions on several threads.
pub struct LoopStore<'s> {
    store: &'s Store,
    how: Speculate,
    /// Sum of the counters that the sessions have reported.
    shared_counters: Mutex<SpeculationCounters>,
}

impl<'s> LoopStore<'s> {
    /// Creates the engine. The number of threads of a loop is that of the store (`StoreConfig::loop_threads`).
    pub fn new(store: &'s Store, how: Speculate) -> LoopStore<'s> {
        LoopStore { store, how, shared_counters: Mutex::default() }
    }
}

impl Engine for LoopStore<'_> {
    type Error = StoreError;
    type Session<'a>
        = LoopSession<'a>
    where
        Self: 'a;
    type Reader<'a>
        = StoreTransaction<'a>
    where
        Self: 'a;

    fn session(&self, worker: usize) -> Result<LoopSession<'_>, StoreError> {
        let state = LoopState {
            order: LongOrderOutput::default(),
            governor: SessionGovernor::new(self.how),
            may_run_loop: false,
            selectors: [
                TransactionLoop::OrderLines,
                TransactionLoop::Accounts,
                TransactionLoop::StatusLines,
                TransactionLoop::Districts,
                TransactionLoop::RecentOrders,
            ]
            .map(|of| LoopSelector::new(of.lengths(self.store.database().loop_threads()).to_vec(), self.how)),
            counted: SpeculationCounters::default(),
            unreported: 0,
            shared_counters: &self.shared_counters,
        };
        Ok(LoopSession { session: self.store.session(worker)?, state })
    }

    fn reader(&self) -> Result<StoreTransaction<'_>, StoreError> {
        self.store.reader()
    }

    fn figures(&self) -> EngineFigures {
        let stats = self.store.database().stats();
        let counted = *self.shared_counters.lock();
        let speculation = SpeculationCounters { epochs: stats.loop_epochs, violations: stats.loop_repeats, ..counted };
        EngineFigures { speculation: Some(speculation), ..self.store.figures() }
    }

    fn leaves(&self) -> BTreeMap<String, LeafCounters> {
        self.store.leaves()
    }
}

/// Session of a worker on a store whose loops run on several threads.
pub struct LoopSession<'a> {
    session: StoreSession<'a>,
    state: LoopState<'a>,
}

impl<'a> Session for LoopSession<'a> {
    type Error = StoreError;
    type Transaction<'t>
        = LoopTransaction<'t, 'a>
    where
        Self: 't;

    fn begin(&mut self) -> Result<LoopTransaction<'_, 'a>, StoreError> {
        self.state.may_run_loop = self.state.governor.begin();
        Ok(LoopTransaction { tx: self.session.begin()?, state: &mut self.state })
    }

    fn begin_again(&mut self) -> Result<LoopTransaction<'_, 'a>, StoreError> {
        // The time of the transaction includes that of its earlier attempts.
        Ok(LoopTransaction { tx: self.session.begin_again()?, state: &mut self.state })
    }

    fn durable(&mut self) -> Ticket {
        self.session.durable()
    }

    fn request(&mut self, ticket: Ticket) {
        self.session.request(ticket);
    }

    fn wait_for(&mut self, ticket: Ticket) -> Result<Ticket, StoreError> {
        self.session.wait_for(ticket)
    }
}

/// State of a worker for the loops of its transactions.
struct LoopState<'a> {
    order: LongOrderOutput,
    governor: SessionGovernor,
    /// True if the loop of the current transaction may run on several threads.
    may_run_loop: bool,
    /// Selector of the loop execution for each transaction kind, indexed by [`Kind`].
    selectors: [LoopSelector; Kind::ALL.len()],
    counted: SpeculationCounters,
    /// Number of transactions since the last report of the counters.
    unreported: u32,
    shared_counters: &'a Mutex<SpeculationCounters>,
}

/// Number of transactions between two reports of a session's counters.
const REPORT_EVERY: u32 = 64;

impl<'a> LoopState<'a> {
    fn run(
        &mut self,
        tx: &mut StoreTransaction<'_>,
        steps: StepOrder,
        input: &Input,
        scratch: &mut Scratch,
    ) -> TxnResult<StoreTransaction<'a>> {
        let selector = &mut self.selectors[input.kind() as usize];
        let decision = self.may_run_loop.then(|| selector.decide());
        let ran = match decision.as_ref().and_then(|decision| decision.length) {
            Some(length) => {
                self.counted.several_threads += 1;
                run(tx, TransactionLoop::best_of(input), input, length, scratch, &mut self.order)
            }
            None => {
                self.counted.one_thread += 1;
                txn::run(tx, steps, input, scratch)
            }
        };
        if ran.is_ok()
            && let Some(decision) = &decision
        {
            selector.record(decision, input.items());
        }
        self.unreported += 1;
        if self.unreported == REPORT_EVERY {
            self.report();
        }
        ran
    }

    fn report(&mut self) {
        self.shared_counters.lock().add(&std::mem::take(&mut self.counted));
        self.unreported = 0;
    }
}

impl Drop for LoopState<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// A transaction, with the worker's state for its loop.
pub struct LoopTransaction<'t, 'a> {
    tx: StoreTransaction<'a>,
    state: &'t mut LoopState<'a>,
}

impl OpenTransaction for LoopTransaction<'_, '_> {
    fn run(&mut self, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<Self> {
        self.state.run(&mut self.tx, steps, input, scratch)
    }

    fn commit(self) -> Result<Ticket, StoreError> {
        let ended = self.tx.commit();
        self.state.governor.end();
        ended
    }

    fn rollback(self) -> Result<Ticket, StoreError> {
        let ended = self.tx.rollback();
        self.state.governor.end();
        ended
    }
}

impl Read for LoopTransaction<'_, '_> {
    type Error = StoreError;

    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, StoreError> {
        self.tx.read::<T, R>(key, f)
    }

    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.tx.scan::<T>(from, to, f)
    }

    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.tx.scan_index::<I>(from, to, direction, f)
    }
}

/// Executes the statements outside of loops.
impl Ops for LoopTransaction<'_, '_> {
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.tx.update::<T, R>(key, f)
    }

    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.tx.rewrite::<T, R>(key, f)
    }

    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, StoreError> {
        self.tx.update_run::<T>(from, to, f)
    }

    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), StoreError> {
        self.tx.insert::<T>(key, row)
    }

    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), StoreError> {
        self.tx.insert_run::<T>(rows)
    }

    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, StoreError> {
        self.tx.remove_first::<T>(from, to)
    }

    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]) {
        self.tx.prefetch::<T>(keys);
    }
}
